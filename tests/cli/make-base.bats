#!/usr/bin/env bats
# The base maker's options: what is refused, and that each of them is part of the recipe.
load ../lib/common

maker() {
	run_split "$GPUIMG" make-base --cache-dir "$BATS_TEST_TMPDIR/cache" "$@"
}

recipe() {
	maker --print-recipe "$@"
	expect_status 0
	echo "$out"
}

@test "a value that an option does not know is a usage error" {
	for option in --loader=lilo --initramfs=mkinitcpio --root-fs=zfs --compression=lzma; do
		maker -o "$BATS_TEST_TMPDIR/x.qcow2" "$option"
		expect_status 2
		expect_in "$err" "${option#*=}"
		[ ! -e "$BATS_TEST_TMPDIR/x.qcow2" ]
	done
}

@test "each option makes another recipe" {
	local keys=()
	for option in --suite=bookworm --initramfs=dracut --loader=systemd-boot --root-fs=xfs --root-fs=btrfs \
		--root-fs=lvm --separate-boot --size=5G --secure-boot; do
		keys+=("$(recipe "$option")")
	done
	[ "$(printf '%s\n' "${keys[@]}" | sort -u | wc -l)" -ge 8 ]
	[ "$(recipe --loader=systemd-boot)" = "$(recipe --loader=systemd-boot)" ]
}

@test "Secure Boot is for the loader that Debian signs" {
	maker -o "$BATS_TEST_TMPDIR/x.qcow2" --secure-boot --loader=uki
	expect_status 2
	expect_in "$err" "--secure-boot"
	expect_in "$err" "--loader=grub"
}

@test "a suite whose key this machine lacks is refused with its cure" {
	maker -o "$BATS_TEST_TMPDIR/x.qcow2" --suite=no-such-suite --no-cache
	[ "$status" -ne 0 ]
	expect_in "$err" hint
}
