#!/usr/bin/env bats
# Debian 12, GRUB, root on a btrfs subvolume: inspected, built, proven, booted, and a kernel installed later.
load ../lib/common
load ../lib/guest

setup_file() {
	guest_cycle debian12-btrfs bios --root-fs=btrfs
}

@test "the base is told for what it is" {
	check_before debian12-btrfs
}

@test "the build is proven" {
	check_build debian12-btrfs
}

@test "inspect finds nothing to mend in the image" {
	check_after debian12-btrfs
}

@test "the base fails and the image passes under the unreachable window" {
	check_pair debian12-btrfs bios
}

@test "a kernel installed later has the block and the parameters" {
	check_later debian12-btrfs
}
