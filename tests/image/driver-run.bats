#!/usr/bin/env bats
# --driver-source=run and --replace-driver on a real Debian 12, one .run installation over another. The
# installer is a stand-in (tests/fixtures/make-run.sh); kernel, headers, compiler and DKMS are real.
load ../lib/common

setup_file() {
	need_root
	export WORLD=$OUT/driver-run
	rm -rf "$WORLD"
	mkdir -p "$WORLD"
	base=$(base driver-run --suite=bookworm --packages=dkms,linux-headers-amd64,libc6-dev \
		--customize="$REPO/tests/fixtures/older-run.sh")
	"$REPO/tests/fixtures/make-run.sh" "$WORLD/driver.run" 580.95.05
	code=0
	build -o "$WORLD/node.qcow2" --replace-driver >"$WORLD/node.out" 2>"$WORLD/node.err" </dev/null || code=$?
	[ "$code" -ne 0 ] || root=$(raw_root "$WORLD/node.qcow2" 1)
	export base code root manifest=$WORLD/node.manifest.json
}

teardown_file() {
	rm -f "${root-}"
}

build() { # option...
	"$GPUIMG" build --no-boot-test --no-cache --exec=sandbox --driver-branch=580 --driver-flavour=open \
		--driver-source=run --driver-path="$WORLD/driver.run" "$@" "$base"
}

@test "a driver that an installer left is refused by its version and its program" {
	run_split build --plan -o "$WORLD/never.qcow2"
	expect_status 4
	expect_in "$err" "already, version 535.104.05"
	expect_in "$err" "installed by /usr/bin/nvidia-installer"
	expect_in "$err" "--replace-driver"
}

@test "the installer runs in the image, and its modules are compiled for the image's kernel" {
	[ "$code" -eq 0 ] || {
		tail -n 30 "$WORLD/node.err"
		return 1
	}
	expect_manifest '.driver.source == "run" and .driver.version == "580.95.05"'
	expect_manifest '[.driver.kernels[] | select(.how == "installer") | .version] == [.kernels[].version]'
	expect_manifest '.kernels[0].version as $k | .driver.found.modules | length == 5 and
		all(.version == "580.95.05" and .license == "Dual MIT/GPL" and (.vermagic | startswith($k + " ")))'
	expect_manifest '.driver.found.dkms == ["nvidia/580.95.05"]'
	expect_manifest '[.proof[] | select(.verdict == "bad")] == []'
	grep -- "--silent .*--kernel-module-type=open .*--dkms --kernel-name=$(jq -r '.kernels[0].version' "$manifest")" \
		<(guest_cat "$root" /var/lib/nvidia/stand-in-args)
}

@test "of the driver that was there nothing is left" {
	expect_manifest '.driver.replaced | contains("version 535.104.05")'
	local libraries modules
	libraries=$(guest_ls "$root" /usr/lib/x86_64-linux-gnu)
	grep -F "$(jq -r '.driver.version' "$manifest")" <<<"$libraries"
	expect_not_in "$libraries" 535.104
	[ -z "$(guest_ls "$root" /usr/lib/firmware/nvidia/535.104.05)" ]
	modules=$(guest_ls "$root" "/usr/lib/modules/$(jq -r '.kernels[0].version' "$manifest")/kernel/drivers/video")
	[ -n "$modules" ]
	expect_not_in "$modules" nvidia
}

@test "nothing of the installer's run is left, and kernel and headers are held" {
	expect_in "$(guest_stat "$root" /var/tmp)" "Type: directory"
	[ -z "$(guest_ls "$root" /var/tmp)" ]
	guest_cat "$root" /var/lib/dpkg/status | awk '/^Package: / { p = $2 } /^Status: hold ok installed/ { print p }' >"$WORLD/held"
	grep -x linux-image-amd64 "$WORLD/held"
	grep -x "linux-headers-$(jq -r '.kernels[0].version' "$manifest")" "$WORLD/held"
}
