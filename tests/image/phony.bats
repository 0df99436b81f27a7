#!/usr/bin/env bats
# Odd cases on phony images: seconds each, both backends.
load ../lib/common

setup_file() {
	need_root
}

# altered NAME [KERNEL...]: a phony image whose root was changed before its boot files were made.
altered() {
	local name=$1
	shift
	cat >"$BATS_TEST_TMPDIR/customize.sh"
	PHONY_CUSTOMIZE=$BATS_TEST_TMPDIR/customize.sh phony "$name" "$@"
}

build() { # image, option...
	local image=$1
	shift
	run_split "$GPUIMG" build --no-boot-test --work-dir="$BATS_TEST_TMPDIR" -o "$BATS_TEST_TMPDIR/out.qcow2" "$@" "$image"
}

@test "both backends give the same image content" {
	image=$(altered two-kernels 6.1.0-phony 6.12.0-phony <<-'END'
		touch "$1/.no-initrd-6.12.0-phony"
	END
	)
	built phony-sandbox "$image" --exec=sandbox
	built phony-appliance "$image" --exec=appliance
	a=$OUT/phony-sandbox.manifest.json b=$OUT/phony-appliance.manifest.json
	[ "$(jq -r .execution.backend "$a")" = sandbox ]
	[ "$(jq -r .execution.backend "$b")" = appliance ]
	[ "$(jq -c '[.entries, .inputs, [.proof[].what]]' "$a")" = "$(jq -c '[.entries, .inputs, [.proof[].what]]' "$b")" ]
	[ "$(jq '.kernels | length' "$a")" -eq 2 ]
}

@test "case 04: a module of the image that claims NVIDIA display devices is found and blocked" {
	image=$(altered claimant <<-'END'
		dir=$1/lib/modules/6.1.0-phony/kernel
		printf '__attribute__((used, section(".modinfo"))) static const char a[] = "alias=pci:v000010DEd*sv*sd*bc03sc02i*\\0name=fancy_nv\\0license=GPL";\n' |
			gcc -x c -c -o "$dir/fancy_nv.ko" -
	END
	)
	build "$image"
	expect_status 0
	expect_in "$err" "'fancy_nv' claims NVIDIA display devices"
	jq -e '.inputs.modules_blocked | index("fancy_nv")' "$BATS_TEST_TMPDIR/out.manifest.json"
	root=$(raw_root "$BATS_TEST_TMPDIR/out.qcow2" 1)
	expect_in "$(guest_cat "$root" /etc/modprobe.d/gpuimg-gpu-block.conf)" "install fancy_nv /bin/false"
}

@test "case 01: an initramfs that does not carry the block fails the proof, by name" {
	image=$(altered forgetful <<-'END'
		printf '#!/bin/sh\nrm -rf "$1/etc/modprobe.d"\n' >"$1/etc/initramfs-tools/phony-hook"
		chmod 755 "$1/etc/initramfs-tools/phony-hook"
	END
	)
	build "$image"
	expect_status 5
	expect_in "$err" "does not hold '/etc/modprobe.d/gpuimg-gpu-block.conf'"
	[ ! -e "$BATS_TEST_TMPDIR/out.qcow2" ]
	[ -s "$BATS_TEST_TMPDIR/out.log" ]
}

@test "case 03: an initramfs made for the appliance's kernel fails the proof, by name" {
	image=$(altered wrong-version <<-'END'
		printf '#!/bin/sh\nmv "$1/usr/lib/modules/$2" "$1/usr/lib/modules/$(uname -r)"\n' >"$1/etc/initramfs-tools/phony-hook"
		chmod 755 "$1/etc/initramfs-tools/phony-hook"
	END
	)
	build "$image"
	expect_status 5
	expect_in "$err" "holds modules of another kernel"
}

@test "case 11: an initramfs without the disk's driver fails the proof, by name" {
	image=$(altered no-virtio <<-'END'
		printf '#!/bin/sh\nrm "$1"/usr/lib/modules/*/kernel/virtio_blk.ko\n' >"$1/etc/initramfs-tools/phony-hook"
		chmod 755 "$1/etc/initramfs-tools/phony-hook"
	END
	)
	build "$image"
	expect_status 5
	expect_in "$err" "lacks 'virtio_blk'"
}

@test "case 24: a GPU module in the initramfs fails the proof, by name" {
	image=$(altered gpu-module <<-'END'
		printf '#!/bin/sh\ncp /lib/modules/$2/kernel/nouveau.ko "$1/usr/lib/modules/$2/kernel/"\n' >"$1/etc/initramfs-tools/phony-hook"
		chmod 755 "$1/etc/initramfs-tools/phony-hook"
	END
	)
	build "$image"
	expect_status 5
	expect_in "$err" "carries the GPU module 'nouveau'"
}

@test "case 02: a generator that exits 0 without a new file is a failure" {
	image=$(PHONY_FINISH=<(printf 'printf "#!/bin/sh\\nexit 0\\n" >"$1/usr/sbin/mkinitramfs"') phony lazy)
	build "$image"
	expect_status 1
	expect_in "$err" "without having written"
	expect_in "$err" "6.1.0-phony"
	[ ! -e "$BATS_TEST_TMPDIR/out.qcow2" ]
}

@test "a bootloader script that exits 0 without a new file is a failure" {
	image=$(PHONY_FINISH=<(printf 'printf "#!/bin/sh\\nexit 0\\n" >"$1/usr/sbin/grub-mkconfig"') phony lazy-grub)
	build "$image"
	expect_status 1
	expect_in "$err" "stage 'bootloader'"
	expect_in "$err" "without having written"
}

@test "an entry that does not take the parameters fails the proof, by its title" {
	image=$(altered custom-entry <<-'END'
		cat >>"$1/usr/sbin/grub-mkconfig" <<-'SCRIPT'
			cat >>"$2" <<-'ENTRY'
			menuentry 'Rescue of the site' {
				linux /boot/vmlinuz-6.1.0-phony root=UUID=11111111-2222-4333-8444-555555555555
				initrd /boot/initrd.img-6.1.0-phony
			}
			ENTRY
		SCRIPT
	END
	)
	build "$image"
	expect_status 5
	expect_in "$err" "Rescue of the site"
	expect_in "$err" "pci=nocrs"
}

@test "case 29: a failing script fails the build and shows the stage, its last lines and the log" {
	printf '#!/bin/sh\necho "all is lost in here" >&2\nexit 7\n' >"$BATS_TEST_TMPDIR/fail.sh"
	build "$(phony plain)" --run="$BATS_TEST_TMPDIR/fail.sh"
	expect_status 1
	expect_in "$err" "stage 'user', apply"
	expect_in "$err" "fail.sh"
	expect_in "$err" "all is lost in here"
	expect_in "$err" "the log is '$BATS_TEST_TMPDIR/out.log'"
	grep -q "all is lost in here" "$BATS_TEST_TMPDIR/out.log"
	[ ! -e "$BATS_TEST_TMPDIR/out.qcow2" ]
	[ ! -e "$BATS_TEST_TMPDIR/out.manifest.json" ]
	[ -z "$out" ]
}

@test "a failed build removes an older artifact of the same name" {
	echo old >"$BATS_TEST_TMPDIR/out.qcow2"
	printf '#!/bin/sh\nexit 1\n' >"$BATS_TEST_TMPDIR/fail.sh"
	build "$(phony plain)" --run="$BATS_TEST_TMPDIR/fail.sh"
	expect_status 1
	[ ! -e "$BATS_TEST_TMPDIR/out.qcow2" ]
}

@test "a script has no network unless asked" {
	cat >"$BATS_TEST_TMPDIR/net.sh" <<-'END'
		#!/bin/sh
		ip route >/net || true
		ls /sys/class/net >>/net 2>/dev/null || true
		[ ! -e /sys/class/net ] || [ "$(ls /sys/class/net)" = lo ]
	END
	build "$(phony plain)" --exec=sandbox --run="$BATS_TEST_TMPDIR/net.sh"
	expect_status 0
	[ -z "$(guest_cat "$(raw_root "$BATS_TEST_TMPDIR/out.qcow2" 1)" /net)" ]
}

@test "case 33: pci=use_crs of the base is told, and ours holds" {
	image=$(altered use-crs <<-'END'
		echo 'GRUB_CMDLINE_LINUX_DEFAULT="quiet pci=use_crs"' >"$1/etc/default/grub.d/90-site.cfg"
	END
	)
	run_split "$GPUIMG" build --plan "$image"
	expect_status 0
	expect_in "$err" "pci=use_crs"
	build "$image" --cmdline-remove=pci=use_crs
	expect_status 0
	jq -e '.entries | all(.cmdline | contains("use_crs") | not)' "$BATS_TEST_TMPDIR/out.manifest.json"
	jq -e '.entries | all(.cmdline | contains("pci=nocrs"))' "$BATS_TEST_TMPDIR/out.manifest.json"
}

@test "case 35: nocrs can be left out" {
	build "$(phony plain)" --no-nocrs --no-module-blacklist
	expect_status 0
	jq -e '.entries | all((.cmdline | contains("nocrs") | not) and (.cmdline | contains("pci=realloc")) and (.cmdline | contains("module_blacklist") | not))' \
		"$BATS_TEST_TMPDIR/out.manifest.json"
}

@test "case 34: a kernel without nouveau is built and proven" {
	image=$(altered no-nouveau <<-'END'
		rm "$1/lib/modules/6.1.0-phony/kernel/nouveau.ko"
	END
	)
	build "$image"
	expect_status 0
}

@test "the compression of the artifact is the base's, or what was asked for" {
	build "$(phony plain)" --compression=zstd
	expect_status 0
	[ "$(qemu-img info --output=json "$BATS_TEST_TMPDIR/out.qcow2" | jq -r '."format-specific".data."compression-type"')" = zstd ]
	build "$(phony plain)"
	[ "$(qemu-img info --output=json "$BATS_TEST_TMPDIR/out.qcow2" | jq -r '."format-specific".data."compression-type"')" = zlib ]
}

@test "a raw base is taken too" {
	qemu-img convert -O raw "$(phony plain)" "$BATS_TEST_TMPDIR/base.raw"
	build "$BATS_TEST_TMPDIR/base.raw"
	expect_status 0
	[ "$(jq -r .base.format "$BATS_TEST_TMPDIR/out.manifest.json")" = raw ]
}

@test "a base whose name holds blanks, commas, quotes and colons" {
	odd="$BATS_TEST_TMPDIR/a b,c'd\"e:f.qcow2"
	cp "$(phony plain)" "$odd"
	build "$odd"
	expect_status 0
	[ "$(jq -r .base.path "$BATS_TEST_TMPDIR/out.manifest.json")" = "$odd" ]
}

@test "--json prints the manifest to stdout and nothing else" {
	build "$(phony plain)" --json -q
	expect_status 0
	[ -z "$err" ]
	[ "$(jq -S . <<<"$out")" = "$(jq -S . "$BATS_TEST_TMPDIR/out.manifest.json")" ]
}
