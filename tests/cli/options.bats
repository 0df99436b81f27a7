#!/usr/bin/env bats
# The command line: what it prints where, and with which exit code it ends.
load ../lib/common

@test "help goes to stdout and ends with 0" {
	run_split "$GPUIMG" --help
	expect_status 0
	expect_in "$out" "usage: gpuimg COMMAND"
	[ -z "$err" ]
	for command in build boot doctor; do
		run_split "$GPUIMG" "$command" --help
		expect_status 0
		expect_in "$out" "usage: gpuimg $command"
		[ -z "$err" ]
	done
}

@test "the version goes to stdout" {
	run_split "$GPUIMG" --version
	expect_status 0
	[[ $out =~ ^gpuimg\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
}

@test "no command is a usage error" {
	run_split "$GPUIMG"
	expect_status 2
	[ -z "$out" ]
}

@test "an unknown command is named" {
	run_split "$GPUIMG" bild
	expect_status 2
	[ -z "$out" ]
	expect_in "$err" "there is no command 'bild'"
	expect_in "$err" "hint:"
}

@test "build-gpu-base-image is gpuimg build" {
	run_split "$REPO/build/build-gpu-base-image" --help
	expect_status 0
	expect_in "$out" "usage: gpuimg build"
}

@test "an unknown option is named, with where to look" {
	run_split "$GPUIMG" build --colour x.qcow2
	expect_status 2
	[ -z "$out" ]
	expect_in "$err" "unknown option '--colour'"
	expect_in "$err" "gpuimg build --help"
}

@test "an option without its value is named" {
	run_split "$GPUIMG" build --output
	expect_status 2
	expect_in "$err" "option '--output' needs a value"
}

@test "an option of another command is unknown" {
	run_split "$GPUIMG" boot --cmdline-add=a x.qcow2
	expect_status 2
	expect_in "$err" "unknown option"
}

@test "a value out of its set is named with the set" {
	run_split "$GPUIMG" build --exec=vm x.qcow2
	expect_status 2
	expect_in "$err" "'vm' is not one of auto|appliance|sandbox"
}

@test "a BAR size that is no power of two is refused" {
	run_split "$GPUIMG" boot --bar-size=33G x.qcow2
	expect_status 2
	expect_in "$err" "power of two"
}

@test "two images at once are refused" {
	run_split "$GPUIMG" build a.qcow2 b.qcow2
	expect_status 2
	expect_in "$err" "'b.qcow2': one image at a time"
}

@test "a kernel parameter that a shell could read is refused" {
	for bad in 'a;b$(c)' "a'b" 'a`b`' 'a b'; do
		run_split "$GPUIMG" build "--cmdline-add=$bad" x.qcow2
		expect_status 2
		expect_in "$err" "error:"
	done
}

@test "a module name that is none is refused" {
	run_split "$GPUIMG" build "--block=../x" x.qcow2
	expect_status 2
	expect_in "$err" "not the name of a kernel module"
}

@test "a URL without a checksum is refused before anything is fetched" {
	run_split "$GPUIMG" build http://127.0.0.1:9/base.qcow2
	expect_status 2
	expect_in "$err" "a fetched base needs a checksum"
	expect_in "$err" "--base-sha256"
}

@test "an unknown profile is named with where the profiles are" {
	run_split "$GPUIMG" build --profile=gpu-bsae x.qcow2
	expect_status 2
	expect_in "$err" "there is no profile 'gpu-bsae'"
	expect_in "$err" "profiles"
}

@test "an unknown key of image.yaml is an error with its line and the nearest key" {
	printf 'output: a.qcow2\ncompresion: zstd\n' >"$BATS_TEST_TMPDIR/image.yaml"
	run_split "$GPUIMG" build -c "$BATS_TEST_TMPDIR/image.yaml" x.qcow2
	expect_status 2
	expect_in "$err" "image.yaml:2:"
	expect_in "$err" "compresion"
	expect_in "$err" "compression"
}

@test "a value of image.yaml out of its set is an error with its line" {
	printf '# a comment\nexec: vm\n' >"$BATS_TEST_TMPDIR/image.yaml"
	run_split "$GPUIMG" build -c "$BATS_TEST_TMPDIR/image.yaml" x.qcow2
	expect_status 2
	expect_in "$err" "image.yaml:2:"
}

@test "image.yaml and the command line say the same, and the command line wins" {
	image=$(phony plain)
	printf 'base: %s\noutput: %s/from-yaml.qcow2\ncmdline-add: [iommu=pt]\nnocrs: false\nexec: sandbox\n' \
		"$image" "$BATS_TEST_TMPDIR" >"$BATS_TEST_TMPDIR/image.yaml"
	run_split "$GPUIMG" build --plan --json -q -c "$BATS_TEST_TMPDIR/image.yaml" --cmdline-add=quiet_too=1 -o "$BATS_TEST_TMPDIR/from-argv.qcow2"
	expect_status 0
	[ "$(jq -r '.parameters | join(" ")' <<<"$out")" = "pci=realloc iommu=pt quiet_too=1" ]
	[ "$(jq -r .output <<<"$out")" = "$BATS_TEST_TMPDIR/from-argv.qcow2" ]
	[ "$(jq -r .base <<<"$out")" = "$image" ]
}

@test "an artifact that would replace its own base is refused, and the base is still there" {
	cp "$(phony plain)" "$BATS_TEST_TMPDIR/node.qcow2"
	ln "$BATS_TEST_TMPDIR/node.qcow2" "$BATS_TEST_TMPDIR/other-name.qcow2"
	for base in node other-name; do
		run_split "$GPUIMG" build --no-boot-test -o "$BATS_TEST_TMPDIR/node.qcow2" "$BATS_TEST_TMPDIR/$base.qcow2"
		expect_status 2
		expect_in "$err" "goes in, and the build would replace it"
	done
	cmp "$(phony plain)" "$BATS_TEST_TMPDIR/node.qcow2"
}

@test "a profile with an unknown stage, or one that lacks another, is refused" {
	cp -r "$REPO/boot" "$REPO/builder/sandbox" "$REPO/profiles" "$BATS_TEST_TMPDIR"
	echo 'stages: [modprobe, sael]' >"$BATS_TEST_TMPDIR/profiles/typo.yaml"
	echo 'stages: [initramfs, bootloader]' >"$BATS_TEST_TMPDIR/profiles/lacks.yaml"
	run_split "$GPUIMG" build --plan --data-dir="$BATS_TEST_TMPDIR" --profile=typo "$(phony plain)"
	expect_status 2
	expect_in "$err" "there is no stage 'sael'"
	run_split "$GPUIMG" build --plan --data-dir="$BATS_TEST_TMPDIR" --profile=lacks "$(phony plain)"
	expect_status 2
	expect_in "$err" "needs stage 'modprobe'"
	echo 'stages: [modprobe, driver, containerd, seal]' >"$BATS_TEST_TMPDIR/profiles/lacks.yaml"
	for option in --driver-branch=580 --containerd-runtime=nvidia; do
		run_split "$GPUIMG" build --plan --data-dir="$BATS_TEST_TMPDIR" --profile=lacks "$option" "$(phony plain)"
		expect_status 2
		expect_in "$err" "--driver-branch or --containerd-runtime needs stage 'initramfs'"
	done
	echo 'stages: [modprobe, initramfs, seal]' >"$BATS_TEST_TMPDIR/profiles/lacks.yaml"
	for option in driver-branch=580 containerd-runtime=nvidia; do
		run_split "$GPUIMG" build --plan --data-dir="$BATS_TEST_TMPDIR" --profile=lacks "--$option" "$(phony plain)"
		expect_status 2
		expect_in "$err" "--${option%=*} needs stage '"
	done
}

@test "a result that cannot be written is an error" {
	run_split sh -c '"$1" build --plan -q "$2" >/dev/full' sh "$GPUIMG" "$(phony plain)"
	[ "$status" -ne 0 ]
	expect_in "$err" "standard output"
}

@test "a plan touches nothing" {
	image=$(phony plain)
	before=$(sha256sum "$image")
	run_split "$GPUIMG" build --plan --work-dir="$BATS_TEST_TMPDIR" -o "$BATS_TEST_TMPDIR/dist/x.qcow2" "$image"
	expect_status 0
	expect_in "$out" "kernel      6.1.0-phony"
	expect_in "$out" "pci=nocrs pci=realloc"
	[ ! -e "$BATS_TEST_TMPDIR/dist" ]
	[ -z "$(ls -d "$BATS_TEST_TMPDIR"/gpuimg.* 2>/dev/null)" ]
	[ "$(sha256sum "$image")" = "$before" ]
}

@test "the cache directory is made with all above it" {
	run_split "$GPUIMG" build --plan -q --cache-dir="$BATS_TEST_TMPDIR/not/there/yet" "$(phony plain)"
	expect_status 0
	[ -d "$BATS_TEST_TMPDIR/not/there/yet" ]
}

@test "doctor tells each finding, for people and for machines" {
	run_split "$GPUIMG" doctor
	expect_in "$out" "accelerator"
	expect_in "$out" "sandbox"
	run_split "$GPUIMG" doctor --json
	[ "$status" -eq 0 ] || [ "$status" -eq 3 ]
	jq -e '.findings | length > 8' <<<"$out"
	[ "$(jq -r '[.findings[] | select(.verdict == "bad")] | length == 0' <<<"$out")" = "$(jq -r .fit <<<"$out")" ]
}

@test "doctor names a missing program and its package, and ends with 3" {
	mkdir "$BATS_TEST_TMPDIR/bin"
	for program in qemu-nbd qemu-img supermin bwrap; do
		ln -s "$(command -v "$program")" "$BATS_TEST_TMPDIR/bin/$program"
	done
	run_split env PATH="$BATS_TEST_TMPDIR/bin" "$GPUIMG" doctor
	expect_status 3
	expect_in "$out" "'qemu-system-x86_64' is missing"
	expect_in "$out" "install the package 'qemu-system-x86'"
}

@test "case 28: a work directory without space is told by name before anything starts" {
	need_root
	image=$(phony plain)
	mkdir -p "$BATS_TEST_TMPDIR/small"
	run_split unshare -m sh -c 'mount -t tmpfs -o size=64m tmpfs "$1" && "$2" build --no-boot-test --work-dir="$1" -o "$3" "$4"' \
		sh "$BATS_TEST_TMPDIR/small" "$GPUIMG" "$BATS_TEST_TMPDIR/x.qcow2" "$image"
	expect_status 3
	expect_in "$err" "not enough space in '$BATS_TEST_TMPDIR/small"
	expect_in "$err" "--work-dir"
	[ ! -e "$BATS_TEST_TMPDIR/x.qcow2" ]
}

@test "make install puts everything where an installed program finds it" {
	make -s -C "$REPO" install DESTDIR="$BATS_TEST_TMPDIR/root" PREFIX=/usr >&2
	[ -x "$BATS_TEST_TMPDIR/root/usr/bin/gpuimg" ]
	[ "$(readlink "$BATS_TEST_TMPDIR/root/usr/bin/build-gpu-base-image")" = gpuimg ]
	[ -s "$BATS_TEST_TMPDIR/root/usr/share/man/man1/gpuimg.1" ]
	run_split "$BATS_TEST_TMPDIR/root/usr/bin/gpuimg" build --plan -q --data-dir="$BATS_TEST_TMPDIR/root/usr/share/gpuimg" "$(phony plain)"
	expect_status 0
	expect_in "$out" "pci=nocrs"
	run_split "$BATS_TEST_TMPDIR/root/usr/share/gpuimg/make-base.sh" --print-recipe --suite=bookworm
	expect_status 0
	[ -n "$out" ]
	make -s -C "$REPO" uninstall DESTDIR="$BATS_TEST_TMPDIR/root" PREFIX=/usr >&2
	[ -z "$(find "$BATS_TEST_TMPDIR/root" -type f)" ]
}

@test "the man page is well formed and names every option and exit code" {
	run mandoc -T lint -W warning "$REPO/docs/gpuimg.1"
	[ "$status" -eq 0 ]
	for command in build boot doctor; do
		for option in $("$GPUIMG" "$command" --help | grep -o -e '--[a-z0-9-]*' | sort -u); do
			grep -q -e " -${option#--}\\b" "$REPO/docs/gpuimg.1" || {
				echo "the man page does not name $option"
				false
			}
		done
	done
}
