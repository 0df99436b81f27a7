#!/usr/bin/env bats
# What a rebuild takes from the cache, on a phony image: each input is changed once, and what depends on
# it is made anew, and nothing else.
load ../lib/common

# Apart from the other files' artifacts: one of these is damaged on purpose.
OUT=$OUT/cache
mkdir -p "$OUT"

setup_file() {
	need_root
	export CACHE=$OUT/results
	rm -rf "$CACHE"
	mkdir -p "$CACHE"
	# The answer of the accelerator's probe, so that it is not asked for once more.
	cp "${XDG_CACHE_HOME:-$HOME/.cache}/gpuimg/accel.json" "$CACHE/" 2>/dev/null || true
	image=$(phony cached 6.1.0-phony 6.12.0-phony)
	echo one >"$OUT/upload.txt"
	printf '#!/bin/sh\necho one >/etc/by-script\n' >"$OUT/script.sh"
	export image
	make_it first
}

# make_it NAME OPTION...: a build by way of the cache, whose manifest stands under NAME.
make_it() {
	local name=$1
	shift
	"$GPUIMG" build -q --no-boot-test --exec=sandbox --cache-dir="$CACHE" -o "$OUT/cached-$name.qcow2" \
		--upload="$OUT/upload.txt:/etc/by-upload" --run="$OUT/script.sh" "$@" "${FROM:-$image}"
}

# expect_made NAME image|initramfs|nothing: what the build had to make.
expect_made() {
	local manifest=$OUT/cached-$1.manifest.json got=image
	[ "$(jq '.execution.initramfs_from_cache | length' "$manifest")" -eq 2 ] || got=initramfs
	[ "$(jq .execution.image_from_cache "$manifest")" = false ] || got=nothing
	[ "$got" = "$2" ] || {
		echo "made: $got, want $2"
		jq .execution "$manifest"
		return 1
	}
}

same_image() {
	cmp "$OUT/cached-$1.qcow2" "$OUT/cached-$2.qcow2"
}

# A script of the guest that takes its time, in a work directory where that can be seen.
slow_script() {
	printf '#!/bin/sh\ntouch /started\nsleep 3\n' >"$BATS_TEST_TMPDIR/slow.sh"
	mkdir "$BATS_TEST_TMPDIR/work"
}

# while_it_runs COMMAND...: does it once that script has begun.
while_it_runs() {
	for _ in $(seq 200); do
		[ -z "$(find "$BATS_TEST_TMPDIR/work" -maxdepth 3 -name started)" ] || break
		sleep 0.1
	done
	"$@"
}

@test "the first build makes all, and leaves image and initramfs in the cache" {
	expect_made first initramfs
	run_split "$GPUIMG" cache ls --json --cache-dir="$CACHE"
	expect_status 0
	[ "$(jq '[.entries[] | select(.kind == "initramfs")] | length' <<<"$out")" -eq 2 ]
	[ "$(jq '[.entries[] | select(.kind == "image")] | length' <<<"$out")" -eq 1 ]
}

@test "an unchanged build makes nothing, ends in 5 seconds and gives the same bytes" {
	run_split make_it again
	expect_status 0
	expect_made again nothing
	same_image first again
	[ "$(jq -c .proof "$OUT/cached-first.manifest.json")" = "$(jq -c .proof "$OUT/cached-again.manifest.json")" ]
	[ "$(jq -r .image.file "$OUT/cached-again.manifest.json")" = cached-again.qcow2 ]
	awk -v s="$seconds" 'BEGIN { exit !(s < 5) }'
}

@test "--no-cache makes all" {
	make_it uncached --no-cache
	expect_made uncached initramfs
}

@test "another kernel parameter: a new image with the old initramfs" {
	make_it parameter --cmdline-add=fancy=1
	expect_made parameter image
	jq -e '.entries[] | select(.cmdline | contains("fancy=1"))' "$OUT/cached-parameter.manifest.json"
}

@test "another compression: a new image with the old initramfs" {
	make_it compression --compression=zstd
	expect_made compression image
}

@test "a full pass over all clusters: a new image with the old initramfs" {
	make_it compact --compact
	expect_made compact image
}

@test "another blocked module: new initramfs" {
	make_it block --block=fancy_nv
	expect_made block initramfs
}

@test "another content of an uploaded file: new initramfs" {
	echo two >"$OUT/upload.txt"
	make_it upload
	expect_made upload initramfs
	echo one >"$OUT/upload.txt"
	make_it upload-back
	expect_made upload-back nothing
}

@test "another script with another effect: new initramfs" {
	printf '#!/bin/sh\necho two >/etc/by-script\n' >"$OUT/script.sh"
	make_it script
	expect_made script initramfs
}

@test "another script with the same effect: a new image with the old initramfs" {
	printf '#!/bin/sh\n# in other words\necho one >/etc/by-script\n' >"$OUT/script.sh"
	make_it reworded
	expect_made reworded image
	printf '#!/bin/sh\necho one >/etc/by-script\n' >"$OUT/script.sh"
}

@test "another base: new initramfs" {
	cat >"$BATS_TEST_TMPDIR/other.sh" <<-'END'
		echo other >"$1/etc/other"
	END
	FROM=$(PHONY_CUSTOMIZE=$BATS_TEST_TMPDIR/other.sh phony cached-other 6.1.0-phony 6.12.0-phony)
	FROM=$FROM make_it base
	expect_made base initramfs
}

@test "another SOURCE_DATE_EPOCH: new initramfs" {
	SOURCE_DATE_EPOCH=1700000000 make_it epoch
	expect_made epoch initramfs
}

@test "another profile: what it changes is made anew" {
	data=$BATS_TEST_TMPDIR/data
	mkdir -p "$data/sandbox"
	cp -r "$REPO"/boot "$REPO"/profiles "$REPO"/cloud-init "$data/"
	cp "$REPO"/builder/sandbox/*.sh "$data/sandbox/"
	sed 's/, seal\]/]/' "$REPO/profiles/gpu-base.yaml" >"$data/profiles/unsealed.yaml"
	[ "$(grep -c 'seal\]' "$data/profiles/unsealed.yaml")" -eq 0 ]
	run_split make_it profile --data-dir="$data" --profile=unsealed
	expect_status 0
	expect_made profile image
}

@test "a script with a network: its result is not taken from the cache" {
	make_it network --network
	expect_made network image
	make_it network-again --network
	expect_made network-again image
}

@test "a damaged image in the cache is noticed, told and made anew" {
	entry=$(grep -l "$(jq -r .image.sha256 "$OUT/cached-first.manifest.json")" "$CACHE"/results/image/*.json)
	data=${entry%.json}.data
	cp "$data" "$BATS_TEST_TMPDIR/copy"
	printf 'X' | dd of="$BATS_TEST_TMPDIR/copy" bs=1 seek=100000 conv=notrunc status=none
	mv "$BATS_TEST_TMPDIR/copy" "$data"
	run_split make_it damaged
	expect_status 0
	expect_in "$(cat "$OUT/cached-damaged.log")" "$(basename "$data" .data)"
	expect_made damaged image
	make_it mended
	expect_made mended nothing
}

@test "an artifact that its owner changes damages no later build" {
	make_it owned --cmdline-add=owned=1
	printf 'X' | dd of="$OUT/cached-owned.qcow2" bs=1 seek=100000 conv=notrunc status=none
	make_it owned-again --cmdline-add=owned=1
	[ "$(sha256sum <"$OUT/cached-owned-again.qcow2" | cut -d' ' -f1)" = "$(jq -r .image.sha256 "$OUT/cached-owned-again.manifest.json")" ]
	qemu-img check -q "$OUT/cached-owned-again.qcow2"
}

@test "an image from the cache is as readable as any" {
	[ "$(stat -c %a "$OUT/cached-again.qcow2")" = "$(stat -c %a "$OUT/cached-first.qcow2")" ]
}

@test "an initramfs that the proof refused is not in the cache" {
	cat >"$BATS_TEST_TMPDIR/break.sh" <<-'END'
		printf '#!/bin/sh\nrm -r "$1/etc/modprobe.d"\n' >"$1/etc/initramfs-tools/phony-hook"
		chmod 755 "$1/etc/initramfs-tools/phony-hook"
	END
	FROM=$(PHONY_CUSTOMIZE=$BATS_TEST_TMPDIR/break.sh phony cached-broken)
	FROM=$FROM run_split make_it refused
	expect_status 5
	before=$(find "$CACHE/results" -name '*.json' | wc -l)
	FROM=$FROM run_split make_it refused
	expect_status 5
	[ "$(find "$CACHE/results" -name '*.json' | wc -l)" -eq "$before" ]
	[ "$(grep -c "one of the cache's" "$OUT/cached-refused.log")" -eq 0 ]
}

@test "a base that is replaced while the build runs: refused, and nothing is kept" {
	cp "$image" "$BATS_TEST_TMPDIR/base.qcow2"
	cp "$image" "$BATS_TEST_TMPDIR/other.qcow2"
	slow_script
	while_it_runs mv "$BATS_TEST_TMPDIR/other.qcow2" "$BATS_TEST_TMPDIR/base.qcow2" 3>&- &
	FROM=$BATS_TEST_TMPDIR/base.qcow2 run_split make_it replaced --work-dir="$BATS_TEST_TMPDIR/work" --run="$BATS_TEST_TMPDIR/slow.sh"
	wait
	expect_status 4
	expect_in "$err" "changed or replaced while the build ran"
	[ ! -e "$OUT/cached-replaced.qcow2" ]
}

@test "a script that is changed before its turn comes: refused" {
	slow_script
	echo '#!/bin/sh' >"$BATS_TEST_TMPDIR/second.sh"
	while_it_runs sed -i '$a touch /changed' "$BATS_TEST_TMPDIR/second.sh" 3>&- &
	run_split make_it swapped --work-dir="$BATS_TEST_TMPDIR/work" --run="$BATS_TEST_TMPDIR/slow.sh" --run="$BATS_TEST_TMPDIR/second.sh"
	wait
	expect_status 4
	expect_in "$err" "second.sh' was changed while the build ran"
}

@test "two builds at once of the same inputs both end well" {
	make_it both-1 --block=fancy_both &
	first=$!
	make_it both-2 --block=fancy_both
	wait "$first"
	for name in both-1 both-2; do
		[ "$(sha256sum <"$OUT/cached-$name.qcow2" | cut -d' ' -f1)" = "$(jq -r .image.sha256 "$OUT/cached-$name.manifest.json")" ]
		qemu-img check -q "$OUT/cached-$name.qcow2"
	done
}

@test "a cache that cannot be written costs a warning, not the build" {
	chattr +i "$CACHE"/results/* 2>/dev/null || skip "this file system has no immutable flag"
	run_split make_it readonly --block=fancy_ro
	chattr -i "$CACHE"/results/*
	expect_status 0
	expect_made readonly initramfs
	expect_in "$(cat "$OUT/cached-readonly.log")" "warning"
}
