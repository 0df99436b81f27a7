#!/usr/bin/env bats
# Every base that is refused: its own message, exit code 4, in under a second, nothing left behind.
load ../lib/common

setup_file() {
	dir=$OUT/refusals
	export dir
	mkdir -p "$dir"
	image=$(phony plain)
	export image
}

# refused FILE PART-OF-MESSAGE...
refused() {
	local file=$1
	shift
	run_split "$GPUIMG" build --no-boot-test -o "$BATS_TEST_TMPDIR/out.qcow2" --work-dir="$BATS_TEST_TMPDIR" "$file"
	expect_status 4
	[ -z "$out" ]
	expect_in "$err" "gpuimg: error:"
	expect_in "$err" "$file"
	for part in "$@"; do
		expect_in "$err" "$part"
	done
	[ "$(grep -c 'error:' <<<"$err")" -eq 1 ]
	# A second is the promise; the machine may be busy with something else.
	awk -v s="$seconds" 'BEGIN { if (s > 5) { print "took " s " s"; exit 1 } }'
	[ ! -e "$BATS_TEST_TMPDIR/out.qcow2" ]
	[ -z "$(find "$BATS_TEST_TMPDIR" -name '*.partial' -o -name 'gpuimg.*')" ]
}

@test "a missing file" {
	refused "$dir/nothing.qcow2" "No such file"
}

@test "an empty file" {
	: >"$dir/empty.qcow2"
	refused "$dir/empty.qcow2" "empty"
}

@test "a directory" {
	mkdir -p "$dir/folder"
	refused "$dir/folder"
}

@test "a file that cannot be read" {
	need_root
	cp "$image" "$dir/secret.qcow2"
	chmod 600 "$dir/secret.qcow2"
	chmod 755 "$OUT" "$dir"
	cache=$(mktemp -d "$OUT/cache.XXXXXX")
	chmod 777 "$cache"
	command -v setpriv || skip "no setpriv"
	run_split setpriv --reuid=65534 --regid=65534 --clear-groups "$GPUIMG" build --plan --cache-dir="$cache" --work-dir="$cache" "$dir/secret.qcow2"
	if [ "$status" -eq 126 ] || grep -q 'cannot find our data files' <<<"$err"; then
		skip "the source tree is not readable for other users"
	fi
	expect_status 4
	expect_in "$err" "Permission denied"
}

@test "a truncated qcow2" {
	size=$(stat -c %s "$image")
	head -c $((size / 2)) "$image" >"$dir/cut.qcow2"
	refused "$dir/cut.qcow2" "truncated"
}

@test "a truncated raw disk" {
	qemu-img convert -O raw "$image" "$dir/whole.raw"
	head -c $((64 * 1024 * 1024)) "$dir/whole.raw" >"$dir/cut.raw"
	refused "$dir/cut.raw" "truncated"
}

@test "a text file" {
	seq 100000 >"$dir/text.img"
	refused "$dir/text.img" "text"
}

@test "an archive" {
	tar -cJf "$dir/base.qcow2.tar.xz" -C "$REPO" README.md
	refused "$dir/base.qcow2.tar.xz" "xz"
}

@test "a qcow2 with a backing file" {
	qemu-img create -q -f qcow2 -F qcow2 -b "$image" "$dir/backed.qcow2"
	refused "$dir/backed.qcow2" "backing file"
}

@test "a qcow2 with an external data file" {
	qemu-img create -q -f qcow2 -o data_file="$dir/data.raw" "$dir/external.qcow2" 64M
	refused "$dir/external.qcow2" "data stands in another file"
}

@test "an encrypted qcow2" {
	# The header's crypt_method (bytes 32 to 35): 2 is LUKS.
	cp "$image" "$dir/luks.qcow2"
	printf '\000\000\000\002' | dd of="$dir/luks.qcow2" bs=1 seek=32 conv=notrunc status=none
	refused "$dir/luks.qcow2" "encrypt"
}

@test "a qcow2 with the corrupt bit" {
	cp "$image" "$dir/corrupt.qcow2"
	printf '\002' | dd of="$dir/corrupt.qcow2" bs=1 seek=79 conv=notrunc status=none
	refused "$dir/corrupt.qcow2" "corrupt"
}

@test "a disk without a partition table or a file system" {
	qemu-img create -q -f qcow2 "$dir/blank.qcow2" 64M
	refused "$dir/blank.qcow2" "neither a partition table nor a file system"
}

@test "a disk without an operating system" {
	mkdir -p "$BATS_TEST_TMPDIR/data"
	echo hello >"$BATS_TEST_TMPDIR/data/file"
	rm -f "$dir/data.ext4"
	mke2fs -q -d "$BATS_TEST_TMPDIR/data" "$dir/data.ext4" 32M
	refused "$dir/data.ext4" "no operating system"
}

@test "a disk with two operating systems" {
	raw=$(raw_root "$image" 1)
	truncate -s 300M "$dir/two.raw"
	sfdisk -q "$dir/two.raw" <<-END
		label: gpt
		start=2048, size=258048
		start=262144, size=258048
	END
	dd if="$raw" of="$dir/two.raw" bs=1M seek=1 conv=notrunc,sparse status=none
	dd if="$raw" of="$dir/two.raw" bs=512 seek=262144 conv=notrunc,sparse status=none
	refused "$dir/two.raw" "two operating systems"
}

# altered NAME: a phony image whose root was changed by the script on stdin.
altered() {
	cat >"$BATS_TEST_TMPDIR/customize.sh"
	PHONY_FINISH=$BATS_TEST_TMPDIR/customize.sh phony "$1"
}

@test "a base for another architecture" {
	refused "$(altered arm <<-'END'
		# The machine field of the ELF header: EM_AARCH64.
		printf '\267\000' | dd of="$1/usr/bin/busybox" bs=1 seek=18 conv=notrunc status=none
	END
	)" "aarch64"
}

@test "an initramfs generator that we cannot run is refused by name" {
	refused "$(altered tiny <<-'END'
		printf 'Package: tiny-initramfs\nStatus: install ok installed\nVersion: 0.1\n\n' >"$1/var/lib/dpkg/status"
	END
	)" "tiny-initramfs"
	refused "$(altered mkinitcpio <<-'END'
		rm -r "$1/var/lib/dpkg"
		printf '#!/bin/sh\n' >"$1/usr/bin/mkinitcpio"
		chmod 755 "$1/usr/bin/mkinitcpio"
	END
	)" "mkinitcpio"
}

@test "case 12: a command named update-initramfs does not make it initramfs-tools" {
	refused "$(altered dracut-wrapper <<-'END'
		printf 'Package: dracut\nStatus: install ok installed\nVersion: 106\n\n' >"$1/var/lib/dpkg/status"
		printf '#!/bin/sh\nexec dracut\n' >"$1/usr/sbin/update-initramfs"
		chmod 755 "$1/usr/sbin/update-initramfs"
	END
	)" "dracut"
}

@test "another boot loader is refused by name" {
	refused "$(altered extlinux <<-'END'
		mkdir -p "$1/boot/extlinux"
		echo "label l" >"$1/boot/extlinux/extlinux.conf"
		rm -r "$1/boot/grub" "$1/usr/sbin/grub-mkconfig"
	END
	)" "/boot/extlinux/extlinux.conf"
}

@test "boot entries that no program of the image writes are refused, with their place" {
	refused "$(altered no-mkconfig <<-'END'
		rm "$1/usr/sbin/grub-mkconfig"
	END
	)" "/boot/grub/grub.cfg', line 2"
}

@test "systems whose root is made elsewhere are refused by what they are" {
	for name in talos nixos ubuntu-core opensuse-leap; do
		refused "$(altered "id-$name" <<-END
			sed -i 's/^ID=.*/ID=$name/; s/^PRETTY_NAME=.*/PRETTY_NAME="Phony $name"/' "\$1/etc/os-release"
		END
		)" "${name%%-leap}"
	done
	refused "$(altered ostree <<-'END'
		mkdir -p "$1/ostree/repo"
	END
	)" "ostree"
}

@test "a kernel without modules is refused by name" {
	refused "$(altered no-modules <<-'END'
		rm -r "$1/lib/modules/6.1.0-phony"
	END
	)" "kernel '/boot/vmlinuz-6.1.0-phony' has no modules"
}

@test "an image without a kernel is refused" {
	refused "$(altered no-kernel <<-'END'
		rm "$1"/boot/vmlinuz-*
	END
	)" "no kernel in /boot"
}

@test "a kernel whose name would be dangerous is refused" {
	refused "$(altered odd-kernel <<-'END'
		cp "$1/boot/vmlinuz-6.1.0-phony" "$1/boot/vmlinuz-6.1; touch x"
	END
	)" "not a kernel version"
}

@test "case 13: a /boot of fstab that is not on the disk is an error, not an empty /boot" {
	refused "$(altered lost-boot <<-'END'
		echo "UUID=99999999-0000-4000-8000-000000000000 /boot ext4 defaults 0 2" >>"$1/etc/fstab"
	END
	)" "mounts 'UUID=99999999-0000-4000-8000-000000000000' on '/boot'"
}

@test "case 14: a device letter in fstab that we cannot follow is an error" {
	refused "$(altered letters <<-'END'
		echo "/dev/sdb1 /boot ext4 defaults 0 2" >>"$1/etc/fstab"
	END
	)" "/dev/sdb1" "UUID="
}

@test "case 17: a /boot too full for a new initramfs is told before anything changes" {
	refused "$(altered full <<-'END'
		dd if=/dev/urandom of="$1/boot/ballast" bs=1M count=100 status=none
		dd if=/dev/urandom of="$1/boot/initrd.img-6.1.0-phony" bs=1M count=10 status=none
	END
	)" "too full for a new initramfs" "free" "needed"
}

@test "case 33: a base that cancels pci=realloc is told, with the cure" {
	path=$(altered realloc-off <<-'END'
		echo 'GRUB_CMDLINE_LINUX_DEFAULT="pci=realloc=off"' >"$1/etc/default/grub.d/90-site.cfg"
		sed -i 's/$/ /; /linux.*quiet/s/quiet/pci=realloc=off/' "$1/boot/grub/grub.cfg"
	END
	)
	refused "$path" "pci=realloc=off" "--cmdline-remove"
	run_split "$GPUIMG" build --plan -q --cmdline-remove=pci=realloc=off "$path"
	expect_status 0
	run_split "$GPUIMG" build --plan -q --no-realloc "$path"
	expect_status 0
}

@test "an upload or script that is not there is told before anything starts" {
	run_split "$GPUIMG" build --plan --upload=/nonexistent:/x "$image"
	expect_status 2
	expect_in "$err" "/nonexistent"
	run_split "$GPUIMG" build --plan --run=/nonexistent "$image"
	expect_status 2
	expect_in "$err" "/nonexistent"
	run_split "$GPUIMG" build --plan --upload=/etc/hostname "$image"
	expect_status 2
	expect_in "$err" "SRC:/DST"
}
