#!/usr/bin/env bats
# Debian 13, systemd-boot with unified kernel images: inspected, built, proven, booted, and a kernel installed later.
load ../lib/common
load ../lib/guest

setup_file() {
	guest_cycle debian13-uki uefi --suite=trixie --loader=uki
}

@test "the base is told for what it is" {
	check_before debian13-uki
}

@test "the build is proven" {
	check_build debian13-uki
}

@test "inspect finds nothing to mend in the image" {
	check_after debian13-uki
}

@test "the base fails and the image passes under the unreachable window" {
	check_pair debian13-uki uefi
}

@test "a kernel installed later has the block and the parameters" {
	check_later debian13-uki
}

@test "with a key, images are signed, and then cannot be changed without it" {
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=gpuimg-test/ -keyout "$OUT/uki.key" -out "$OUT/uki.crt" 2>/dev/null
	run_split "$GPUIMG" build --no-boot-test --no-cache --uki-key="$OUT/uki.key" --uki-cert="$OUT/uki.crt" \
		-o "$OUT/debian13-uki-signed.qcow2" "$OUT/base-debian13-uki.qcow2"
	expect_status 0
	run_split "$GPUIMG" inspect --json "$OUT/debian13-uki-signed.qcow2"
	expect_status 0
	[ "$(jq -c '[.entries[].signed]' <<<"$out")" = '[true]' ]
	run_split "$GPUIMG" build --plan "$OUT/debian13-uki-signed.qcow2"
	expect_status 4
	expect_in "$err" signed
	expect_in "$err" uki-key
	run_split "$GPUIMG" build --plan --uki-key="$OUT/uki.key" --uki-cert="$OUT/uki.crt" "$OUT/debian13-uki-signed.qcow2"
	expect_status 0
	rm -f "$OUT/debian13-uki-signed.qcow2"
}
