#!/usr/bin/env bats
# inspect without a guest: usage, what cannot be read, what is refused.
load ../lib/common

# No word on stdout, exactly one error.
refused() { # status, part of the message
	expect_status "$1"
	[ -z "$out" ]
	expect_in "$err" "$2"
	[ "$(grep -c 'error:' <<<"$err")" -eq 1 ]
	[ -z "$(find "$BATS_TEST_TMPDIR" -maxdepth 1 -name 'gpuimg.*')" ]
}

inspect() {
	run_split "$GPUIMG" inspect --work-dir="$BATS_TEST_TMPDIR" --cache-dir="$BATS_TEST_TMPDIR/cache" "$@"
}

@test "help names the image and the exit codes" {
	run_split "$GPUIMG" inspect --help
	expect_status 0
	expect_in "$out" "usage: gpuimg inspect [OPTION…] IMAGE"
	expect_in "$out" "--profile"
	expect_in "$out" "--no-nocrs"
	expect_in "$out" "5 something does not hold"
	[ -z "$err" ]
}

@test "no image is a usage error" {
	inspect
	refused 2 "no image given"
	expect_in "$err" "usage: gpuimg inspect IMAGE"
}

@test "an option of build alone is unknown" {
	inspect --output=x.qcow2 x.qcow2
	refused 2 "unknown option"
}

@test "an unknown profile is named" {
	inspect --profile=gpu-bsae x.qcow2
	refused 2 "there is no profile 'gpu-bsae'"
}

@test "a URL is a usage error" {
	inspect https://127.0.0.1:9/base.qcow2
	refused 2 "inspect reads files"
}

@test "a missing file cannot be read" {
	inspect "$BATS_TEST_TMPDIR/nothing.qcow2"
	refused 4 "No such file"
}

@test "a raw file with no partitions and no file system is refused, as JSON too" {
	truncate -s 64M "$BATS_TEST_TMPDIR/empty.raw"
	inspect "$BATS_TEST_TMPDIR/empty.raw"
	refused 4 "empty.raw"
	inspect --json "$BATS_TEST_TMPDIR/empty.raw"
	refused 4 "empty.raw"
}

@test "a disk without an operating system is refused" {
	truncate -s 64M "$BATS_TEST_TMPDIR/data.raw"
	mke2fs -q -F -t ext4 "$BATS_TEST_TMPDIR/data.raw"
	inspect "$BATS_TEST_TMPDIR/data.raw"
	refused 4 "data.raw"
}
