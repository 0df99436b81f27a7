#!/usr/bin/env bats
# Odd cases on phony images, several to a build; both backends.
load ../lib/common

# altered NAME [KERNEL...]: a phony image whose root was changed, by the script on standard input,
# before its boot files were made.
altered() {
	local name=$1
	shift
	cat >"$OUT/customize-$name.sh"
	PHONY_CUSTOMIZE=$OUT/customize-$name.sh phony "$name" "$@"
}

# kept NAME IMAGE [OPTION...]: one build whose exit code, output and artifact are kept for the tests.
kept() {
	local name=$1 image=$2 code=0
	shift 2
	"$GPUIMG" build --no-boot-test --no-cache -o "$OUT/$name.qcow2" "$@" "$image" >"$OUT/$name.out" 2>"$OUT/$name.err" </dev/null || code=$?
	echo "$code" >"$OUT/$name.code"
}

kept_status() { # name, want
	status=$(cat "$OUT/$1.code") out=$(cat "$OUT/$1.out") err=$(cat "$OUT/$1.err")
	expect_status "$2"
}

setup_file() {
	need_root
	export ODD_NAME="$OUT/a b,c'd\"e:f.raw"

	# Both backends on one image with two kernels, of which one has no initramfs.
	image=$(altered two-kernels 6.1.0-phony 6.12.0-phony <<-'END'
		touch "$1/.no-initrd-6.12.0-phony"
	END
	)
	kept sandbox "$image" --exec=sandbox
	kept appliance "$image" --exec=appliance

	# Much that is odd and legal at once: a raw base with a name full of traps, a kernel without
	# nouveau, parameters left out, another compression, output for machines.
	image=$(altered no-nouveau <<-'END'
		rm "$1/lib/modules/6.1.0-phony/kernel/nouveau.ko"
		# What the seal removes must not be in the artifact any more.
		dd if=/dev/urandom of="$1/var/cache/apt/archives/big.deb" bs=1M count=40 status=none
	END
	)
	qemu-img convert -O raw "$image" "$ODD_NAME"
	cat >"$OUT/net.sh" <<-'END'
		#!/bin/sh
		ip route >/net
		[ ! -e /sys/class/net ]
	END
	kept legal "$ODD_NAME" --no-nocrs --no-module-blacklist --compression=zstd --json -q --run="$OUT/net.sh" --exec=sandbox

	# An unknown claimant, and parameters of the base that say the opposite of ours.
	image=$(altered claimant <<-'END'
		printf '__attribute__((used, section(".modinfo"))) static const char a[] = "alias=pci:v000010DEd*sv*sd*bc03sc02i*\\0name=fancy_nv\\0license=GPL";\n' |
			gcc -x c -c -o "$1/lib/modules/6.1.0-phony/kernel/fancy_nv.ko" -
		echo 'GRUB_CMDLINE_LINUX_DEFAULT="quiet pci=use_crs"' >"$1/etc/default/grub.d/90-site.cfg"
	END
	)
	kept claimant "$image" --cmdline-remove=pci=use_crs

	# /boot on a file system of its own, behind a number that no loop counts to.
	image=$(PHONY_BOOT=16 phony boot16)
	kept boot16 "$image"

	# Everything wrong that a generator and a hook can do, so that the proof has to name it.
	image=$(altered wrong <<-'END'
		cat >"$1/etc/initramfs-tools/phony-hook" <<-'HOOK'
			#!/bin/sh
			rm -r "$1/etc/modprobe.d"
			rm "$1/usr/lib/modules/$2/kernel/virtio_blk.ko"
			cp "/lib/modules/$2/kernel/nouveau.ko" "$1/usr/lib/modules/$2/kernel/"
			mkdir -p "$1/usr/lib/modules/$(uname -r)-other/kernel"
			touch "$1/usr/lib/modules/$(uname -r)-other/modules.dep"
		HOOK
		chmod 755 "$1/etc/initramfs-tools/phony-hook"
		# An entry that GRUB takes from another file.
		cat >"$1/boot/grub/custom.cfg" <<-'ENTRY'
			menuentry 'Kept beside' {
				linux /boot/vmlinuz-6.1.0-phony root=UUID=11111111-2222-4333-8444-555555555555
				initrd /boot/initrd.img-6.1.0-phony
			}
		ENTRY
		echo 'echo "source \${config_directory}/custom.cfg" >>"$2"' >>"$1/usr/sbin/grub-mkconfig"
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
	echo "an older artifact" >"$OUT/wrong.qcow2"
	kept wrong "$image"
}

# failing NAME OPTION...: a build that fails before anything is written to an image.
failing() {
	local image=$1
	shift
	run_split "$GPUIMG" build --no-boot-test --no-cache --exec=sandbox --work-dir="$BATS_TEST_TMPDIR" -o "$BATS_TEST_TMPDIR/out.qcow2" "$@" "$image"
	[ ! -e "$BATS_TEST_TMPDIR/out.qcow2" ]
	[ ! -e "$BATS_TEST_TMPDIR/out.manifest.json" ]
	[ -s "$BATS_TEST_TMPDIR/out.log" ]
	[ -z "$out" ]
}

@test "a profile that leaves every initramfs as it was is told what block they lack" {
	local data=$BATS_TEST_TMPDIR/data
	mkdir "$data"
	cp -r "$REPO/boot" "$REPO/profiles" "$REPO/builder" "$data/"
	printf 'stages: [modprobe, user]\n' >"$data/profiles/old-initramfs.yaml"
	failing "$(phony plain)" --data-dir="$data" --profile=old-initramfs
	expect_status 5
	expect_in "$err" "initrd.img-6.1.0-phony"
	printf '#!/bin/sh\nmkinitramfs -o /boot/initrd.img-6.1.0-phony 6.1.0-phony\n' >"$BATS_TEST_TMPDIR/own.sh"
	run_split "$GPUIMG" build --no-boot-test --no-cache --exec=sandbox --data-dir="$data" --profile=old-initramfs \
		--run="$BATS_TEST_TMPDIR/own.sh" -o "$BATS_TEST_TMPDIR/own.qcow2" "$(phony plain)"
	expect_status 0
}

@test "both backends give the same image content" {
	kept_status sandbox 0
	kept_status appliance 0
	a=$OUT/sandbox.manifest.json b=$OUT/appliance.manifest.json
	[ "$(jq -r .execution.backend "$a")" = sandbox ]
	[ "$(jq -r .execution.backend "$b")" = appliance ]
	[ "$(jq -c '[.entries, .inputs, [.proof[].what]]' "$a")" = "$(jq -c '[.entries, .inputs, [.proof[].what]]' "$b")" ]
	[ "$(jq '.kernels | length' "$a")" -eq 2 ]
}

@test "without --compression the artifact has the base's" {
	[ "$(qemu-img info --output=json "$OUT/sandbox.qcow2" | jq -r '."format-specific".data."compression-type"')" = zlib ]
}

@test "an artifact has the compression that was asked for" {
	[ "$(qemu-img info --output=json "$OUT/legal.qcow2" | jq -r '."format-specific".data."compression-type"')" = zstd ]
}

@test "case 34: a kernel without nouveau is built and proven" {
	kept_status legal 0
	jq -e '.proof | all(.verdict != "bad")' "$OUT/legal.manifest.json"
}

@test "case 35: nocrs and the module blacklist can be left out" {
	jq -e '.entries | all((.cmdline | contains("nocrs") | not) and (.cmdline | contains("pci=realloc")) and (.cmdline | contains("module_blacklist") | not))' \
		"$OUT/legal.manifest.json"
}

@test "a raw base, whose name holds blanks, commas, quotes and colons, is taken" {
	[ "$(jq -r .base.format "$OUT/legal.manifest.json")" = raw ]
	[ "$(jq -r .base.path "$OUT/legal.manifest.json")" = "$ODD_NAME" ]
}

@test "--json prints the manifest to stdout, and -q nothing to stderr" {
	[ ! -s "$OUT/legal.err" ]
	[ "$(jq -S . "$OUT/legal.out")" = "$(jq -S . "$OUT/legal.manifest.json")" ]
}

@test "a script has no network unless asked" {
	[ -z "$(guest_cat "$(raw_root "$OUT/legal.qcow2" 1)" /net)" ]
	guest_ls "$(raw_root "$OUT/legal.qcow2" 1)" / | grep -q '^net$'
}

@test "case 04: a module of the image that claims NVIDIA display devices is found and blocked" {
	kept_status claimant 0
	expect_in "$err" "'fancy_nv' claims NVIDIA display devices"
	jq -e '.inputs.modules_blocked | index("fancy_nv")' "$OUT/claimant.manifest.json"
	expect_in "$(guest_cat "$(raw_root "$OUT/claimant.qcow2" 1)" /etc/modprobe.d/gpuimg-gpu-block.conf)" "install fancy_nv /bin/false"
}

@test "case 33: pci=use_crs of the base is told, and can be taken out" {
	run_split "$GPUIMG" build --plan "$(phony claimant)"
	expect_status 0
	expect_in "$err" "pci=use_crs"
	jq -e '.entries | all(.cmdline | contains("use_crs") | not)' "$OUT/claimant.manifest.json"
	jq -e '.entries | all(.cmdline | contains("pci=nocrs"))' "$OUT/claimant.manifest.json"
}

@test "free space is given back: what was removed is not in the artifact" {
	[ "$(stat -c %s "$OUT/phony-no-nouveau.qcow2")" -gt $((40 * 1024 * 1024)) ]
	[ "$(stat -c %s "$OUT/legal.qcow2")" -lt $((20 * 1024 * 1024)) ]
}

@test "case 13: a /boot on partition 16 gets the initramfs and the entries, the root's /boot nothing" {
	kept_status boot16 0
	boot=$(raw_root "$OUT/boot16.qcow2" 16)
	guest_cat "$boot" /initrd.img-6.1.0-phony | gzip -dc | cpio -it 2>/dev/null | grep -q gpuimg-gpu-block.conf
	expect_in "$(guest_cat "$boot" /grub/grub.cfg)" "linux	/vmlinuz-6.1.0-phony"
	expect_in "$(guest_cat "$boot" /grub/grub.cfg)" "pci=nocrs"
	[ -z "$(guest_ls "$(raw_root "$OUT/boot16.qcow2" 1)" /boot)" ]
}

@test "case 01: an initramfs that does not carry the block fails the proof, by name" {
	kept_status wrong 5
	expect_in "$err" "'/boot/initrd.img-6.1.0-phony': does not hold '/etc/modprobe.d/gpuimg-gpu-block.conf'"
}

@test "an initramfs that would load nouveau fails the proof, by name" {
	kept_status wrong 5
	expect_in "$err" "an NVIDIA display device would load nouveau"
}

@test "case 03: an initramfs with modules of another kernel fails the proof, by name" {
	kept_status wrong 5
	expect_in "$err" "holds modules of another kernel, '$(uname -r)-other'"
}

@test "case 11: an initramfs without the disk's driver fails the proof, by name" {
	kept_status wrong 5
	expect_in "$err" "lacks 'virtio_blk'"
}

@test "case 24: a GPU module in the initramfs fails the proof, by name" {
	kept_status wrong 5
	expect_in "$err" "carries the GPU module 'nouveau'"
}

@test "case 05: one entry without the parameters fails the proof, by its title" {
	kept_status wrong 5
	expect_in "$err" "entry 'Rescue of the site'"
	expect_in "$err" "'pci=nocrs' is not in effect"
}

@test "an entry in a file that grub.cfg sources is judged too" {
	kept_status wrong 5
	expect_in "$err" "entry 'Kept beside'"
}

@test "a failed proof leaves no artifact, not an older one either, and keeps the log" {
	kept_status wrong 5
	[ ! -e "$OUT/wrong.qcow2" ]
	[ ! -e "$OUT/wrong.manifest.json" ]
	[ -z "$(find "$OUT" -name '.wrong*')" ]
	[ -s "$OUT/wrong.log" ]
}

@test "case 02: a generator that exits 0 without a new file is a failure" {
	printf 'printf "#!/bin/sh\\nexit 0\\n" >"$1/usr/sbin/mkinitramfs"' >"$OUT/lazy.sh"
	failing "$(PHONY_FINISH=$OUT/lazy.sh phony lazy)"
	expect_status 1
	expect_in "$err" "stage 'initramfs'"
	expect_in "$err" "kernel '6.1.0-phony'"
	expect_in "$err" "without having written"
}

@test "a bootloader script that exits 0 without a new file is a failure" {
	printf 'printf "#!/bin/sh\\nexit 0\\n" >"$1/usr/sbin/grub-mkconfig"' >"$OUT/lazy-grub.sh"
	failing "$(PHONY_FINISH=$OUT/lazy-grub.sh phony lazy-grub)"
	expect_status 1
	expect_in "$err" "stage 'bootloader'"
	expect_in "$err" "without having written"
}

@test "case 29: a failing script fails the build and shows the stage, its last lines and the log" {
	printf '#!/bin/sh\necho "all is lost in here" >&2\nexit 7\n' >"$BATS_TEST_TMPDIR/fail.sh"
	failing "$(phony plain)" --run="$BATS_TEST_TMPDIR/fail.sh"
	expect_status 1
	expect_in "$err" "stage 'user', apply"
	expect_in "$err" "fail.sh"
	expect_in "$err" "all is lost in here"
	expect_in "$err" "the log is '$BATS_TEST_TMPDIR/out.log'"
	grep -q "all is lost in here" "$BATS_TEST_TMPDIR/out.log"
}
