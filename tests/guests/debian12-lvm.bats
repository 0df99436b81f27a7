#!/usr/bin/env bats
# Debian 12, GRUB, root on LVM: inspected, built, proven, booted, and a kernel installed later.
load ../lib/common
load ../lib/guest

setup_file() {
	guest_cycle debian12-lvm uefi --root-fs=lvm
}

@test "the base is told for what it is" {
	check_before debian12-lvm
}

@test "the build is proven" {
	check_build debian12-lvm
}

@test "inspect finds nothing to mend in the image" {
	check_after debian12-lvm
}

@test "the base fails and the image passes under the unreachable window" {
	check_pair debian12-lvm uefi
}

@test "a kernel installed later has the block and the parameters" {
	check_later debian12-lvm
}
