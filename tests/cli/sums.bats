#!/usr/bin/env bats
# What a build may not take for its own: inputs under the names that it writes, and their locks.
load ../lib/common

setup_file() {
	image=$(phony plain)
	export image
}

# refused_input FILE: an upload of what the build would replace.
refused_input() {
	echo "mine" >"$BATS_TEST_TMPDIR/$1"
	run_split "$GPUIMG" build --no-boot-test -o "$BATS_TEST_TMPDIR/node.qcow2" --work-dir="$BATS_TEST_TMPDIR" \
		--upload="$BATS_TEST_TMPDIR/$1:/etc/x" "$image"
	expect_status 2
	expect_in "$err" "the build would replace it"
	expect_in "$err" "$1"
	[ "$(cat "$BATS_TEST_TMPDIR/$1")" = mine ]
}

@test "SHA256SUMS of the output directory is no input" {
	refused_input SHA256SUMS
}

@test "the console logs are no inputs" {
	for name in bios.image bios.base uefi.image uefi.base; do
		refused_input "node.console.$name.log"
	done
}

@test "the lock of the build is no input" {
	refused_input .node.build.lock
}

@test "an image cannot be called SHA256SUMS, nor have a newline in its name" {
	for name in SHA256SUMS $'a\nb'; do
		run_split "$GPUIMG" build --no-boot-test -o "$BATS_TEST_TMPDIR/$name" --work-dir="$BATS_TEST_TMPDIR" "$image"
		expect_status 2
		expect_in "$err" "an image cannot be called"
	done
}

@test "images of one stem are one build at a time: they share manifest and log" {
	exec {lock}>"$BATS_TEST_TMPDIR/.st.build.lock"
	flock -n "$lock"
	for name in st st.qcow2; do
		run_split "$GPUIMG" build --no-boot-test -o "$BATS_TEST_TMPDIR/$name" --work-dir="$BATS_TEST_TMPDIR" "$image"
		expect_status 3
		expect_in "$err" "another build is making"
	done
	exec {lock}>&-
}

@test "SHA256SUMS that cannot be kept is refused, and the older image stays" {
	echo "mine" >"$BATS_TEST_TMPDIR/kept"
	ln -s kept "$BATS_TEST_TMPDIR/SHA256SUMS"
	echo "older" >"$BATS_TEST_TMPDIR/node.qcow2"
	run_split "$GPUIMG" build --no-boot-test --no-cache -o "$BATS_TEST_TMPDIR/node.qcow2" --work-dir="$BATS_TEST_TMPDIR" "$image"
	expect_status 3
	expect_in "$err" "cannot read '$BATS_TEST_TMPDIR/SHA256SUMS'"
	expect_in "$err" "gpuimg: hint: it may hold the sums of other files"
	[ "$(cat "$BATS_TEST_TMPDIR/kept" "$BATS_TEST_TMPDIR/node.qcow2")" = $'mine\nolder' ]
}
