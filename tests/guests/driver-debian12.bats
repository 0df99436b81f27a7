#!/usr/bin/env bats
# Debian 12, driver 535: a kernel without headers, a real-time kernel, two kernels that have modules in the
# end, and the open flavour; the image with two kernels boots. Then one driver in place of another: branch 470
# over 535, an installer's (a stand-in, tests/fixtures/make-run.sh) over the packages, packages over it.
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
	replace_setup
}

# The installer wants the C library's headers, which DKMS does not.
replace_setup() {
	local dev run=$OUT/driver12.run
	dev=$(base driver12-dev --suite=bookworm --packages=libc6-dev)
	"$REPO/tests/fixtures/make-run.sh" "$run" 580.95.05
	driver_try driver12-first "$dev" --no-boot-test --driver-branch=535 --driver-flavour=proprietary
	driver_try driver12-other "$OUT/driver12-first.qcow2" --no-boot-test --replace-driver \
		--driver-branch=470 --driver-flavour=proprietary
	driver_row driver12-other 'distro, proprietary, over 535 packages' 'Debian 12' amd64 "$(driver_outcome driver12-other)"
	driver_try driver12-run "$OUT/driver12-first.qcow2" --no-boot-test --replace-driver \
		--driver-branch=580 --driver-flavour=open --driver-source=run --driver-path="$run"
	driver_row driver12-run 'run (stand-in), open, over 535 packages' 'Debian 12' amd64 "$(driver_outcome driver12-run)"
	driver_try driver12-back "$OUT/driver12-run.qcow2" --no-boot-test --replace-driver \
		--driver-branch=535 --driver-flavour=proprietary
	driver_row driver12-back 'distro, proprietary, over the installer' 'Debian 12' amd64 "$(driver_outcome driver12-back)"
}

# Modules, libraries and registrations of the image are of its own driver alone.
replaced() { # name, branch, version of the driver that was there
	driver_is_whole "$1" "$2"
	jq -e --arg old "$3" '.driver.replaced | contains("version " + $old)' "$OUT/$1.manifest.json"
	jq -e '.driver.version as $v | .driver.found | (.libraries | length > 0 and all(startswith($v + " "))) and
		(.dkms | length == 1 and all(endswith("/" + $v)))' "$OUT/$1.manifest.json"
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

@test "another branch takes the place of the first one's packages" {
	replaced driver12-other 470 535.
}

@test "an installer's driver takes the place of packages, and what it compiles with stays" {
	replaced driver12-run 580 535.
	jq -e '.driver.found.packages == []' "$OUT/driver12-run.manifest.json"
	jq -e '.driver.found.held | index("linux-image-amd64")' "$OUT/driver12-run.manifest.json"
}

@test "packages take the place of an installer's driver" {
	replaced driver12-back 535 580.95.05
	jq -e '.driver.found.run_installer == []' "$OUT/driver12-back.manifest.json"
}
