#!/usr/bin/env bats
# What a person sees: a line that is drawn anew on a terminal, plain lines elsewhere; and a base by URL.
load ../lib/common

@test "on a terminal a step has one line that is drawn anew" {
	image=$(phony plain)
	TERM=xterm script -qec "'$GPUIMG' build --plan '$image'" /dev/null </dev/null >"$BATS_TEST_TMPDIR/tty"
	grep -q $'\r\033\[K' "$BATS_TEST_TMPDIR/tty"
	grep -q 'preflight    done' "$BATS_TEST_TMPDIR/tty"
}

@test "elsewhere a step has plain lines, without control characters" {
	run_split "$GPUIMG" build --plan "$(phony plain)"
	expect_status 0
	expect_in "$err" "gpuimg: preflight: done"
	[ "$(grep -c $'[\r\033]' "$BATS_TEST_TMPDIR/err")" -eq 0 ]
}

@test "-q says nothing but errors" {
	run_split "$GPUIMG" build --plan -q "$(phony plain)"
	expect_status 0
	[ -z "$err" ]
}

# serve: a web server on a free port of loopback for $OUT, ended by teardown.
serve() {
	for port in $(seq 18080 18120); do
		busybox httpd -f -p "127.0.0.1:$port" -h "$OUT" 2>/dev/null 3>&- &
		server=$!
		sleep 0.3
		if kill -0 "$server" 2>/dev/null; then
			return 0
		fi
	done
	return 1
}

teardown() {
	[ -z "${server:-}" ] || kill "$server" 2>/dev/null || true
}

@test "a base by URL is fetched, checked and taken from the cache the next time" {
	image=$(phony plain)
	sum=$(sha256sum <"$image" | cut -d' ' -f1)
	serve
	run_split "$GPUIMG" build --plan --json --cache-dir="$BATS_TEST_TMPDIR/cache" --base-sha256="$sum" "http://127.0.0.1:$port/phony-plain.qcow2"
	expect_status 0
	expect_in "$(jq -r .base <<<"$out")" "$sum"
	kill "$server"
	run_split "$GPUIMG" build --plan --json --cache-dir="$BATS_TEST_TMPDIR/cache" --base-sha256="$sum" "http://127.0.0.1:$port/phony-plain.qcow2"
	expect_status 0
}

@test "a fetched base with a wrong checksum names both values and keeps nothing" {
	image=$(phony plain)
	sum=$(sha256sum <"$image" | cut -d' ' -f1)
	wrong=0000000000000000000000000000000000000000000000000000000000000000
	serve
	run_split "$GPUIMG" build --plan --cache-dir="$BATS_TEST_TMPDIR/cache" --base-sha256=$wrong "http://127.0.0.1:$port/phony-plain.qcow2"
	expect_status 4
	expect_in "$err" "$sum"
	expect_in "$err" "$wrong"
	[ -z "$(find "$BATS_TEST_TMPDIR/cache/downloads" -type f -size +0 ! -name '*.lock')" ]
}
