#!/usr/bin/env bats
# What is kept between builds: listed, pruned, and never taken from under who uses it.
load ../lib/common

setup() {
	cache=$BATS_TEST_TMPDIR/cache
}

# result KIND DIGIT BYTES AGE_SECONDS: an entry as the cache writes it; its key is of one digit.
result() {
	local key
	key=$(printf "%064d" 0 | tr 0 "$2")
	mkdir -p -m 0700 "$cache" "$cache/results" "$cache/results/$1"
	head -c "$3" /dev/zero >"$cache/results/$1/$key.data"
	jq -n --arg kind "$1" --arg key "$key" --argjson size "$3" \
		--arg sha256 "$(sha256sum <"$cache/results/$1/$key.data" | cut -d ' ' -f 1)" \
		'{format: 1, $kind, $key, $size, $sha256, created: 0,
		  inputs: {cache_format: 1, program: ("sha256:" + $key), kernel: "6.1.0-phony", digest: $key}}' \
		>"$cache/results/$1/$key.json"
	touch -d "@$(($(date +%s) - $4))" "$cache/results/$1/$key.json"
}

# shelf: what other parts keep there.
shelf() {
	mkdir -p -m 0700 "$cache" "$cache/downloads" "$cache/bases" "$cache/.guestfs-0/appliance.d"
	echo base >"$cache/downloads/sha256-$(printf '%064d' 7)"
	: >"$cache/downloads/sha256-$(printf '%064d' 7).lock"
	echo part >"$cache/downloads/sha256-$(printf '%064d' 8).part"
	echo made >"$cache/bases/4e077f44488e.qcow2"
	: >"$cache/bases/4e077f44488e.qcow2.lock"
	echo digest >"$cache/bases/4e077f44488e.qcow2.sha256"
	echo default >"$cache/default-base.qcow2"
	echo root >"$cache/.guestfs-0/appliance.d/root"
	touch -d '1 hour ago' "$cache/.guestfs-0/appliance.d/root"
	: >"$cache/.guestfs-0/lock"
	echo '{}' >"$cache/accel.json"
}

@test "the cache's help goes to stdout, and the man page names each option" {
	run_split "$GPUIMG" cache --help
	expect_status 0
	expect_in "$out" "usage: gpuimg cache"
	[ -z "$err" ]
	for option in $(grep -o -e '--[a-z0-9-]*' <<<"$out" | sort -u); do
		grep -q -e " -${option#--}\\b" "$REPO/docs/gpuimg.1" || {
			echo "the man page does not name $option"
			false
		}
	done
	grep -q '^\.Ss cache$' "$REPO/docs/gpuimg.1"
}

@test "the cache alone, or with an unknown action, is a usage error with a hint" {
	run_split "$GPUIMG" cache
	expect_status 2
	[ -z "$out" ]
	expect_in "$err" "needs to know what to do"
	expect_in "$err" "hint: usage: gpuimg cache ls|prune"
	run_split "$GPUIMG" cache list
	expect_status 2
	expect_in "$err" "'list' is nothing that can be done"
	run_split "$GPUIMG" cache ls prune
	expect_status 2
	expect_in "$err" "'prune': one action at a time"
}

@test "options of a prune are refused elsewhere, and values that are none" {
	run_split "$GPUIMG" cache ls --all
	expect_status 2
	expect_in "$err" "'--all' is for 'gpuimg cache prune'"
	run_split "$GPUIMG" cache prune --kind=../x
	expect_status 2
	expect_in "$err" "'../x' is not the name of a kind"
	run_split "$GPUIMG" cache prune --max-size=lots
	expect_status 2
	expect_in "$err" "option '--max-size': 'lots' is not a size"
	run_split "$GPUIMG" cache prune --no-cache
	expect_status 2
	expect_in "$err" "unknown option '--no-cache'"
	run_split "$GPUIMG" build --cache-size=0 x.qcow2
	expect_status 2
	expect_in "$err" "--no-cache keeps none"
}

@test "a cache that is not there is empty, and is not made" {
	run_split "$GPUIMG" cache ls --cache-dir="$cache"
	expect_status 0
	expect_in "$out" "0 entries"
	[ -z "$err" ]
	run_split "$GPUIMG" cache prune --all --cache-dir="$cache"
	expect_status 0
	expect_in "$out" "freed 0 bytes: 0 entries"
	[ ! -e "$cache" ]
}

@test "results are listed, oldest use first, with what they were made from" {
	result initramfs a 1000 7300
	result verdict b 2000 10
	run_split "$GPUIMG" cache ls --cache-dir="$cache"
	expect_status 0
	[ "$(awk '{ print $1, $2 }' <<<"$out" | head -n 3 | tr '\n' ,)" = "KIND KEY,initramfs aaaaaaaaaaaa,verdict bbbbbbbbbbbb," ]
	expect_in "$out" "kernel=6.1.0-phony digest=aaaaaaaaaaaa"
	expect_in "$out" "2 h"
	expect_in "$out" "2 entries in '$cache'"
	expect_not_in "$out" "program"
	expect_not_in "$out" "cache_format"
	run_split "$GPUIMG" cache ls -v --kind=verdict --cache-dir="$cache"
	expect_status 0
	expect_in "$out" "    program: \"sha256:bbbb"
	expect_not_in "$out" "initramfs"
}

@test "the list for machines has sums, paths and inputs" {
	result initramfs a 1000 100
	shelf
	run_split "$GPUIMG" cache ls --json --cache-dir="$cache"
	expect_status 0
	jq -e '.total_bytes == ([.entries[].size_bytes] | add)' <<<"$out"
	jq -e '.results_bytes == ([.entries[] | select(.result) | .size_bytes] | add)' <<<"$out"
	jq -e '.bound_bytes == 10737418240' <<<"$out"
	[ "$(jq -r '.entries[0].inputs.kernel' <<<"$out")" = 6.1.0-phony ]
	[ "$(jq -r '.entries[].kind' <<<"$out" | sort | uniq -c | awk '{ print $2 "=" $1 }' | tr '\n' ' ')" = \
		"accelerator=1 appliance=1 base=2 initramfs=1 made-base=2 " ]
	jq -r '.entries[].path' <<<"$out" | while read -r path; do
		[ -e "$path" ]
	done
}

@test "a prune removes what was not used for longest, down to the size" {
	result initramfs a 10000 300
	result verdict b 10000 200
	result initramfs c 10000 100
	run_split "$GPUIMG" cache prune --max-size=24K --cache-dir="$cache" -v
	expect_status 0
	expect_in "$out" "aaaaaaaaaaaa"
	expect_in "$out" ": 1 entry"
	[ "$(find "$cache/results" -name '*.data' | wc -l)" -eq 2 ]
	[ ! -e "$cache/results/initramfs/$(printf '%064d' 0 | tr 0 a).data" ]
	run_split "$GPUIMG" cache prune --max-size=0 --kind=initramfs --json --cache-dir="$cache"
	expect_status 0
	[ "$(jq -r '.removed[].kind' <<<"$out")" = initramfs ]
	jq -e '.freed_bytes > 10000 and .in_use == []' <<<"$out"
	[ "$(find "$cache/results" -name '*.data')" = "$cache/results/verdict/$(printf '%064d' 0 | tr 0 b).data" ]
}

@test "a prune within the bound removes nothing but what dead processes left" {
	result initramfs a 1000 100
	shelf
	echo half >"$cache/results/initramfs/.0123.tmp"
	run_split "$GPUIMG" cache prune --cache-dir="$cache"
	expect_status 0
	expect_in "$out" "freed 0 bytes: 0 entries"
	[ ! -e "$cache/results/initramfs/.0123.tmp" ]
	[ -e "$cache/results/initramfs/$(printf '%064d' 0 | tr 0 a).data" ]
	[ -e "$cache/default-base.qcow2" ]
}

@test "a kind without a bound is pruned with --all only" {
	shelf
	run_split "$GPUIMG" cache prune --kind=base --cache-dir="$cache"
	expect_status 2
	expect_in "$err" "pass --all"
	run_split "$GPUIMG" cache prune --kind=base --all --cache-dir="$cache"
	expect_status 0
	[ -z "$(find "$cache/downloads" -type f ! -name '*.lock')" ]
	[ -e "$cache/default-base.qcow2" ]
	[ -e "$cache/accel.json" ]
}

@test "all of it goes, but lock files" {
	result initramfs a 1000 100
	shelf
	run_split "$GPUIMG" cache prune --all --cache-dir="$cache"
	expect_status 0
	expect_in "$out" ": 7 entries"
	[ -z "$(find "$cache" -type f ! -name '*lock')" ]
	[ -e "$cache/bases/4e077f44488e.qcow2.lock" ]
	[ ! -e "$cache/.guestfs-0/appliance.d" ]
}

@test "what somebody makes or reads now stays, and is told" {
	shelf
	exec {maker}>"$cache/bases/4e077f44488e.qcow2.lock"
	flock "$maker"
	exec {reader}<"$cache/default-base.qcow2"
	flock -s "$reader"
	touch "$cache/.guestfs-0/appliance.d/root"
	run_split "$GPUIMG" cache prune --all --cache-dir="$cache"
	expect_status 0
	expect_in "$err" "in use, so it stays: '$cache/bases/4e077f44488e.qcow2'"
	expect_in "$err" "in use, so it stays: '$cache/default-base.qcow2'"
	expect_in "$err" "in use, so it stays: '$cache/.guestfs-0/appliance.d'"
	[ -e "$cache/bases/4e077f44488e.qcow2.sha256" ]
	[ ! -e "$cache/accel.json" ]
	exec {maker}>&- {reader}<&-
	run_split "$GPUIMG" cache prune --all --kind=made-base --json --cache-dir="$cache"
	expect_status 0
	[ "$(jq '.removed | length' <<<"$out")" -eq 2 ]
}

@test "an image that QEMU has open stays" {
	command -v qemu-nbd >/dev/null || skip "needs qemu-nbd"
	mkdir -p "$cache"
	qemu-img create -q -f qcow2 "$cache/default-base.qcow2" 1M
	qemu-nbd -t -k "$BATS_TEST_TMPDIR/sock" "$cache/default-base.qcow2" 3>&- &
	nbd=$!
	for _ in $(seq 100); do
		[ -S "$BATS_TEST_TMPDIR/sock" ] && break
		sleep 0.1
	done
	run_split "$GPUIMG" cache prune --all --cache-dir="$cache"
	kill "$nbd"
	wait "$nbd" || true
	expect_status 0
	expect_in "$err" "in use, so it stays: '$cache/default-base.qcow2'"
	[ -e "$cache/default-base.qcow2" ]
}

@test "links in the cache directory are not followed" {
	mkdir -p "$cache" "$BATS_TEST_TMPDIR/mine/initramfs"
	echo mine >"$BATS_TEST_TMPDIR/mine/mine.qcow2"
	echo mine >"$BATS_TEST_TMPDIR/mine/digests.json"
	ln -s "$BATS_TEST_TMPDIR/mine" "$cache/bases"
	ln -s "$BATS_TEST_TMPDIR/mine" "$cache/results"
	ln -s "$BATS_TEST_TMPDIR/mine/mine.qcow2" "$cache/default-base.qcow2"
	run_split "$GPUIMG" cache prune --all --cache-dir="$cache"
	expect_status 0
	expect_in "$err" "'$cache/results'"
	[ -e "$BATS_TEST_TMPDIR/mine/mine.qcow2" ]
	[ -e "$BATS_TEST_TMPDIR/mine/digests.json" ]
}

@test "a cache directory of another user is listed, but neither pruned nor used" {
	need_root
	result initramfs a 1000 100
	shelf
	chown -R 65534:65534 "$cache"
	run_split "$GPUIMG" cache ls --cache-dir="$cache"
	expect_status 0
	expect_in "$err" "belongs to another user"
	expect_in "$out" "default-base"
	run_split "$GPUIMG" cache prune --all --cache-dir="$cache"
	expect_status 3
	expect_in "$err" "cannot prune '$cache': it belongs to another user"
	[ -e "$cache/default-base.qcow2" ]
}
