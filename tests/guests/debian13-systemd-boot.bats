#!/usr/bin/env bats
# Debian 13, systemd-boot with type 1 entries: inspected, built, proven, booted, and a kernel installed later.
load ../lib/common
load ../lib/guest

setup_file() {
	guest_cycle debian13-systemd-boot uefi --suite=trixie --loader=systemd-boot
}

@test "the base is told for what it is" {
	check_before debian13-systemd-boot
}

@test "the build is proven" {
	check_build debian13-systemd-boot
}

@test "inspect finds nothing to mend in the image" {
	check_after debian13-systemd-boot
}

@test "the base fails and the image passes under the unreachable window" {
	check_pair debian13-systemd-boot uefi
}

@test "a kernel installed later has the block and the parameters" {
	check_later debian13-systemd-boot
}
