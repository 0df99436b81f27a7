#!/usr/bin/env bats
# Debian 13, driver 550: a kernel without headers, then two kernels with modules, which DKMS forgets, and which
# boot; and the open flavour.
load ../lib/common
load ../lib/driver-guest

setup_file() {
	need_root
	gone=$(base driver13-gone --suite=trixie --size=6G --customize="$REPO/tests/fixtures/kernel-without-headers.sh")
	two=$(base driver13-two --suite=trixie --size=6G --kernels=linux-image-amd64,linux-image-cloud-amd64)
	one=$(base driver13-one --suite=trixie --size=6G)
	driver_try driver13-gone "$gone" --no-boot-test --driver-branch=550 --driver-flavour=proprietary
	driver_row driver13-gone 'distro, proprietary' 'Debian 13' 'amd64, and one whose headers are in no repository' \
		"$(driver_outcome driver13-gone), naming the kernel"
	driver_try driver13-two "$two" --firmware=bios --driver-branch=550 --driver-flavour=proprietary --dkms=unregister
	driver_row driver13-two 'distro, proprietary' 'Debian 13' 'amd64, cloud-amd64' \
		"$(driver_outcome driver13-two), DKMS knows nothing of it, boot pair $(driver_verdict driver13-two)"
	driver_try driver13-open "$one" --no-boot-test --driver-branch=550 --driver-flavour=open
	driver_row driver13-open 'distro, open' 'Debian 13' amd64 "$(driver_outcome driver13-open)"
}

@test "a kernel whose headers cannot be had is refused by its name, before anything is compiled" {
	driver_is_refused driver13-gone 6.12.0-1-amd64 headers
}

@test "two kernels with headers both have their modules" {
	driver_is_whole driver13-two 550
	[ "$(jq '.driver.kernels | length' "$OUT/driver13-two.manifest.json")" -eq 2 ]
	jq -e '.driver.found.modules | any(.license == "NVIDIA")' "$OUT/driver13-two.manifest.json"
}

@test "DKMS knows nothing of modules that it is told to forget" {
	jq -e '.driver.found.dkms == []' "$OUT/driver13-two.manifest.json"
}

@test "the image boots, nouveau stays away, and its driver loads as far as it can without a card" {
	driver_boots driver13-two
}

@test "the open modules are baked, or what the compiler says is told" {
	driver_open_is_told driver13-open 550
}
