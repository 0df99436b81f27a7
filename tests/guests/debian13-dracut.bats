#!/usr/bin/env bats
# Debian 13, GRUB, dracut, /boot on partition 16, XFS root: inspected, built, proven, booted, and a kernel installed later.
load ../lib/common
load ../lib/guest

setup_file() {
	guest_cycle debian13-dracut bios,uefi --suite=trixie --initramfs=dracut --root-fs=xfs --separate-boot --boot-partition-number=16
}

@test "the base is told for what it is" {
	check_before debian13-dracut
}

@test "the build is proven" {
	check_build debian13-dracut
}

@test "inspect finds nothing to mend in the image" {
	check_after debian13-dracut
}

@test "the base fails and the image passes under the unreachable window" {
	check_pair debian13-dracut bios uefi
}

@test "a kernel installed later has the block and the parameters" {
	check_later debian13-dracut
}
