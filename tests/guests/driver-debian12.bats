#!/usr/bin/env bats
# Debian 12, driver 535: a kernel without headers, a real-time kernel, two kernels that have modules in the
# end, and the open flavour; the image with two kernels boots.
load ../lib/common
load ../lib/driver-guest

setup_file() {
	need_root
	gone=$(base driver12-gone --suite=bookworm --size=6G --customize="$REPO/tests/fixtures/kernel-without-headers.sh")
	rt=$(base driver12-rt --suite=bookworm --size=6G --kernels=linux-image-amd64,linux-image-rt-amd64)
	two=$(base driver12-two --suite=bookworm --size=6G --kernels=linux-image-amd64,linux-image-cloud-amd64)
	one=$(base bookworm --suite=bookworm)
	driver_try driver12-gone "$gone" --no-boot-test --driver-branch=535 --driver-flavour=proprietary
	driver_row driver12-gone 'distro, proprietary' 'Debian 12' 'amd64, and one whose headers are in no repository' \
		"$(driver_outcome driver12-gone), naming the kernel"
	driver_try driver12-rt "$rt" --no-boot-test --driver-branch=535 --driver-flavour=proprietary
	driver_row driver12-rt 'distro, proprietary' 'Debian 12' 'amd64, rt-amd64' "$(driver_outcome driver12-rt): BUILD_EXCLUSIVE_CONFIG !CONFIG_PREEMPT_RT"
	driver_try driver12-two "$two" --firmware=bios --driver-branch=535 --driver-flavour=proprietary
	driver_row driver12-two 'distro, proprietary' 'Debian 12' 'amd64, cloud-amd64' \
		"$(driver_outcome driver12-two), boot pair $(driver_verdict driver12-two)"
	driver_try driver12-open "$one" --no-boot-test --driver-branch=535 --driver-flavour=open
	driver_row driver12-open 'distro, open' 'Debian 12' amd64 "$(driver_outcome driver12-open)"
}

@test "a kernel whose headers cannot be had is refused by its name, before anything is compiled" {
	driver_is_refused driver12-gone 6.1.0-1-amd64 headers
}

@test "a real-time kernel is refused by its name and the directive, before anything is compiled" {
	driver_is_refused driver12-rt "-rt-amd64'" CONFIG_PREEMPT_RT
}

@test "two kernels with headers both have their modules" {
	driver_is_whole driver12-two 535
	[ "$(jq '.driver.kernels | length' "$OUT/driver12-two.manifest.json")" -eq 2 ]
}

@test "the image boots, nouveau stays away, and its driver loads as far as it can without a card" {
	driver_boots driver12-two
}

@test "the open modules are baked, or what the compiler says is told" {
	driver_open_is_told driver12-open 535
}
