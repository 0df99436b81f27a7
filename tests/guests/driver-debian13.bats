#!/usr/bin/env bats
# Debian 13, driver 550: a kernel without headers, then two kernels with the open modules, which boot, and the
# proprietary ones that DKMS forgets.
load ../lib/common
load ../lib/driver-guest

setup_file() {
	need_root
	gone=$(base driver13-gone --suite=trixie --size=6G --customize="$REPO/tests/fixtures/kernel-without-headers.sh")
	two=$(base driver13-two --suite=trixie --size=6G --kernels=linux-image-amd64,linux-image-cloud-amd64)
	one=$(base driver13-one --suite=trixie --size=6G)
	driver_try driver13-gone "$gone" --no-boot-test --driver-branch=550 --driver-flavour=open
	driver_row driver13-gone distro trixie 'amd64, and one whose headers are in no repository' 'refused, naming it'
	driver_try driver13-two "$two" --firmware=bios --driver-branch=550 --driver-flavour=open
	driver_row driver13-two distro trixie 'amd64, cloud-amd64' \
		"baked, boot pair $(jq -r .boot_test.verdict "$OUT/driver13-two.manifest.json" 2>/dev/null || echo missing)"
	driver_try driver13-proprietary "$one" --no-boot-test --driver-branch=550 --driver-flavour=proprietary --dkms=unregister
	driver_row driver13-proprietary distro trixie amd64 'baked, DKMS knows nothing of it'
}

@test "a kernel whose headers cannot be had is refused by its name, before anything is compiled" {
	driver_code driver13-gone 4
	expect_in "$err" "6.12.0-1-amd64"
	expect_in "$err" "headers"
	expect_not_in "$err" "compiles"
	[ ! -e "$OUT/driver13-gone.qcow2" ]
}

@test "two kernels both have the open modules" {
	driver_is_whole driver13-two 550
	[ "$(jq '.driver.kernels | length' "$OUT/driver13-two.manifest.json")" -eq 2 ]
	jq -e '.driver.found.modules | any(.license == "Dual MIT/GPL") and all(.license != "NVIDIA")' "$OUT/driver13-two.manifest.json"
}

@test "the image boots, nouveau stays away, and its driver loads as far as it can without a card" {
	driver_boots driver13-two
}

@test "the proprietary modules are baked, and DKMS knows nothing of them" {
	driver_is_whole driver13-proprietary 550
	jq -e '.driver.found.modules | any(.license == "NVIDIA")' "$OUT/driver13-proprietary.manifest.json"
	jq -e '.driver.found.dkms == []' "$OUT/driver13-proprietary.manifest.json"
}
