#!/usr/bin/env bats
# Case 30: whatever ends a build, nothing that looks finished and no process is left.
load ../lib/common

setup_file() {
	need_root
	image=$(phony plain)
	export image
}

# A script in the guest that waits, so that there is something to interrupt.
start_build() {
	mkdir -p "$BATS_TEST_TMPDIR/work"
	chmod 711 "$BATS_TEST_TMPDIR" "$BATS_TEST_TMPDIR/work"
	printf '#!/bin/sh\ntouch /started\nsleep 300\n' >"$BATS_TEST_TMPDIR/wait.sh"
	"$GPUIMG" build --no-boot-test --no-cache --exec=sandbox --work-dir="$BATS_TEST_TMPDIR/work" -o "$BATS_TEST_TMPDIR/out.qcow2" \
		--run="$BATS_TEST_TMPDIR/wait.sh" "$image" >"$BATS_TEST_TMPDIR/out" 2>"$BATS_TEST_TMPDIR/err" </dev/null 3>&- &
	pid=$!
	for _ in $(seq 300); do
		[ -z "$(find "$BATS_TEST_TMPDIR/work" -maxdepth 3 -name started)" ] || return 0
		sleep 0.1
	done
	cat "$BATS_TEST_TMPDIR/err"
	return 1
}

# Processes that name our work directory: QEMU, qemu-nbd, bwrap and what runs in it.
left_over() {
	pgrep -f "$BATS_TEST_TMPDIR/work" || true
}

wait_gone() {
	for _ in $(seq 100); do
		[ -n "$(left_over)" ] || return 0
		sleep 0.1
	done
	ps aux | grep "$BATS_TEST_TMPDIR/work"
	return 1
}

expect_clean() {
	wait_gone
	[ ! -e "$BATS_TEST_TMPDIR/out.qcow2" ]
	[ ! -e "$BATS_TEST_TMPDIR/out.manifest.json" ]
	[ -z "$(find "$BATS_TEST_TMPDIR" -name '*.partial')" ]
	[ -s "$BATS_TEST_TMPDIR/out.log" ]
}

@test "case 30: SIGTERM ends all children and removes the work directory" {
	start_build
	kill -TERM "$pid"
	status=0
	wait "$pid" || status=$?
	[ "$status" -eq 143 ]
	expect_clean
	[ -z "$(ls "$BATS_TEST_TMPDIR/work")" ]
}

@test "case 30: Ctrl-C ends all children and removes the work directory" {
	start_build
	kill -INT "$pid" # a shell starts background jobs with SIGINT ignored; ours is not impressed
	status=0
	wait "$pid" || status=$?
	[ "$status" -eq 130 ]
	expect_clean
	[ -z "$(ls "$BATS_TEST_TMPDIR/work")" ]
}

@test "case 30: after kill -9 no process is left, and the next run removes what lies around" {
	start_build
	kill -KILL "$pid"
	wait "$pid" || true
	expect_clean
	[ -n "$(ls "$BATS_TEST_TMPDIR/work")" ]
	run_split "$GPUIMG" build --plan -q --work-dir="$BATS_TEST_TMPDIR/work" "$image"
	expect_status 0
	[ -z "$(ls "$BATS_TEST_TMPDIR/work")" ]
}

@test "two builds of one name do not take each other's file" {
	start_build
	run_split "$GPUIMG" build --no-boot-test --no-cache --work-dir="$BATS_TEST_TMPDIR/work" -o "$BATS_TEST_TMPDIR/out.qcow2" "$image"
	expect_status 3
	expect_in "$err" "another build is making '$BATS_TEST_TMPDIR/out.qcow2'"
	run_split "$GPUIMG" build --plan -q --work-dir="$BATS_TEST_TMPDIR/work" -o "$BATS_TEST_TMPDIR/out.qcow2" "$image"
	expect_status 0
	kill -TERM "$pid"
	wait "$pid" || true
	expect_clean
}

@test "--keep-work keeps the work directory, from later runs too" {
	mkdir "$BATS_TEST_TMPDIR/work"
	printf '#!/bin/sh\nexit 1\n' >"$BATS_TEST_TMPDIR/fail.sh"
	run_split "$GPUIMG" build --no-boot-test --no-cache --exec=sandbox --keep-work --work-dir="$BATS_TEST_TMPDIR/work" -o "$BATS_TEST_TMPDIR/out.qcow2" --run="$BATS_TEST_TMPDIR/fail.sh" "$image"
	expect_status 1
	run_split "$GPUIMG" build --plan -q --work-dir="$BATS_TEST_TMPDIR/work" "$image"
	expect_status 0
	[ -n "$(find "$BATS_TEST_TMPDIR/work" -maxdepth 2 -name overlay.qcow2)" ]
}

@test "a work directory of a run that lives is left alone" {
	start_build
	run_split "$GPUIMG" build --plan -q --work-dir="$BATS_TEST_TMPDIR/work" "$image"
	expect_status 0
	[ -n "$(find "$BATS_TEST_TMPDIR/work" -maxdepth 3 -name started)" ]
	kill -TERM "$pid"
	wait "$pid" || true
	expect_clean
}

@test "a full disk under the artifact fails the build and leaves nothing that looks finished" {
	mkdir "$BATS_TEST_TMPDIR/small"
	# Random data that the export cannot make smaller, on a file system that just passes the check.
	dd if=/dev/urandom of="$BATS_TEST_TMPDIR/ballast" bs=1M count=60 status=none
	run_split unshare -m sh -c '
		mount -t tmpfs -o size=420m tmpfs "$1/small" || exit 99
		printf "#!/bin/sh\ntouch /started\nsleep 8\n" >"$1/wait.sh"
		(for _ in $(seq 300); do
			[ -z "$(find "$1/work" -maxdepth 3 -name started 2>/dev/null)" ] || break
			sleep 0.1
		done
		dd if=/dev/zero of="$1/small/filler" bs=1M count=400 2>/dev/null) &
		mkdir -p "$1/work"
		"$2" build --no-boot-test --no-cache --exec=sandbox --work-dir="$1/work" -o "$1/small/out.qcow2" --upload="$1/ballast:/opt/ballast" --run="$1/wait.sh" "$3"
		code=$?
		wait
		ls -A "$1/small"
		exit $code' sh "$BATS_TEST_TMPDIR" "$GPUIMG" "$image"
	expect_status 1
	expect_in "$err" "No space left"
	expect_not_in "$out" "out.qcow2"
	expect_not_in "$out" "partial"
	[ -z "$(ls "$BATS_TEST_TMPDIR/work")" ]
}
