#!/usr/bin/env bats
# 'gpuimg publish' to a directory of this host.

load ../lib/common
load ../lib/publish

setup_file() {
	export DIR_IMAGE=$BATS_FILE_TMPDIR/node.qcow2
	publish_image "$DIR_IMAGE" 24
}

setup() {
	IMAGE=$BATS_TEST_TMPDIR/node.qcow2
	publish_take "$DIR_IMAGE"
	ROOT=$BATS_TEST_TMPDIR/root
	TARGETS=$BATS_TEST_TMPDIR/targets.yaml
	STORED=$ROOT/node/1.0/$SUM/node.qcow2
	mkdir "$ROOT"
	printf 'targets:\n  share: {type: dir, path: %s}\n' "$ROOT" >"$TARGETS"
}

teardown_file() {
	publish_row dir "local ext4 or overlay" "$(cell_of publish)" "$(cell_of again)" \
		"$(cell_of killed)" "$(cell_of wrong)" "$(cell_of verified)"
}

# Everything below a directory with its times: whatever is written changes it.
tree_of() {
	find "$1" -printf '%P %y %s %i %T@ %C@\n' | sort
}

@test "an image is published to a directory, byte for byte, with sums and an index" {
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$STORED"
	(cd "$(dirname "$STORED")" && sha256sum -c --quiet SHA256SUMS)
	[ "$(jq -r '.versions["1.0"].sha256' "$ROOT/node/index.json")" = "$SUM" ]
	expect_value "$IMAGE" share/default result published
	expect_value "$IMAGE" share/default verified "read back"
	expect_value "$IMAGE" share/default bytes_sent "$SIZE"
	[ ! -e "$IMAGE.publish-state.json" ]
	cell publish "same bytes"
	cell verified "$(record_value "$IMAGE" share/default verified)"
}

@test "publishing it again writes nothing to the directory" {
	publish "$IMAGE" --image-version=1.0
	before=$(tree_of "$ROOT")
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	[ "$(tree_of "$ROOT")" = "$before" ]
	expect_value "$IMAGE" share/default result unchanged
	expect_value "$IMAGE" share/default bytes_sent 0
	cell again "unchanged, 0 writes"
}

@test "a plan writes nothing" {
	publish "$IMAGE" --image-version=1.0 --plan
	expect_status 0
	expect_in "$out" planned
	[ -z "$(ls -A "$ROOT")" ]
	[ ! -e "${IMAGE%.qcow2}.published.json" ]
	[ ! -e "$IMAGE.publish-state.json" ]
}

# A limit on what a file may hold ends the process at just this byte, by a signal that nobody
# handles: as kill -9, and always at the same place.
@test "ended in the middle of sending, it goes on where it stopped" {
	local half=$((10 * 1024 * 1024)) sent resumed
	run bash -c "ulimit -c 0; ulimit -f $((half / 1024)); exec '$GPUIMG' publish -t '$TARGETS' --image-version=1.0 '$IMAGE'"
	[ "$status" -ne 0 ]
	[ "$(stat -c %s "$STORED.part")" -eq "$half" ]
	[ ! -e "$STORED" ]
	[ ! -e "$ROOT/node/index.json" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$STORED"
	sent=$(record_value "$IMAGE" share/default bytes_sent)
	resumed=$(record_value "$IMAGE" share/default resumed_from)
	[ "$resumed" -eq "$half" ]
	[ "$sent" -eq $((SIZE - half)) ]
	cell killed "resumed at byte $resumed of $SIZE, sent $sent"
}

@test "what an interrupted run left is compared, not trusted" {
	mkdir -p "$(dirname "$STORED")"
	head -c 5000000 "$IMAGE" >"$STORED.part"
	printf 'XXXX' | dd of="$STORED.part" bs=1 seek=4500000 conv=notrunc status=none
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$STORED"
}

@test "killed after sending and before the name, it sends nothing again" {
	local lock=$ROOT/node/.gpuimg-index.lock
	mkdir -p "$ROOT/node"
	exec 9>"$lock"
	flock 9
	publish_background "$IMAGE" --image-version=1.0 9>&-
	wait_until 10 test -e "$(dirname "$STORED")/SHA256SUMS"
	[ -e "$STORED" ]
	publish_kill
	exec 9>&-
	[ ! -e "$ROOT/node/index.json" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" share/default bytes_sent 0
	[ "$(jq -r '.versions["1.0"].sha256' "$ROOT/node/index.json")" = "$SUM" ]
}

@test "two publishers of different images at once both get into the index" {
	publish_two
	[ "$(jq -r '.versions | keys | join(" ")' "$ROOT/node/index.json")" = "1.0 2.0" ]
	cmp "$other" "$ROOT/node/2.0/$(sha256_of "$other")/node.qcow2"
}

@test "of two publishers of one image the second one is told, and finds all when the first is done" {
	mkdir -p "$(dirname "$STORED")"
	exec 9>"$STORED.part"
	flock 9
	publish "$IMAGE" --image-version=1.0 9>&-
	exec 9>&-
	expect_status 7
	expect_in "$out" "another publisher writes '$STORED.part' now"
	[ ! -s "$STORED.part" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$STORED"
}

# What both do really at the same time; which of them is first is not known.
@test "two publishers of one image at once: each ends well or can be run again, and one file is there" {
	local code=0
	publish_copy
	publish_background "$copy" --image-version=1.0
	publish "$IMAGE" --image-version=1.0
	wait "$publisher" || code=$?
	[[ "$status $code" =~ ^(0\ 0|0\ 7|7\ 0)$ ]]
	cmp "$IMAGE" "$STORED"
	[ ! -e "$STORED.part" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	publish "$copy" --image-version=1.0
	expect_status 0
	expect_value "$copy" share/default result unchanged
}

@test "of two images under one version the later one is refused, under the lock too" {
	local lock=$ROOT/node/.gpuimg-index.lock code=0
	publish_other 4
	mkdir -p "$ROOT/node"
	exec 9>"$lock"
	flock 9
	publish_background "$IMAGE" --image-version=1.0 9>&-
	wait_until 10 test -e "$(dirname "$STORED")/SHA256SUMS"
	# the other one's index, written by whoever has the lock
	printf '{"schema": 1, "versions": {"1.0": {"sha256": "%s"}}}\n' "$(sha256_of "$other")" >"$ROOT/node/index.json"
	exec 9>&-
	wait "$publisher" || code=$?
	[ "$code" -eq 4 ]
	expect_in "$(cat "$BATS_TEST_TMPDIR/background")" "another publisher has just put version '1.0'"
	[ "$(jq -r '.versions["1.0"].sha256' "$ROOT/node/index.json")" = "$(sha256_of "$other")" ]
}

@test "a run that waits for the index ends at once by a signal, and when another location fails it" {
	local began code=0
	mkdir -p "$ROOT/node"
	exec 9>"$ROOT/node/.gpuimg-index.lock"
	flock 9
	publish_background "$IMAGE" --image-version=1.0 9>&-
	wait_until 10 test -e "$(dirname "$STORED")/SHA256SUMS"
	sleep 0.5
	began=$SECONDS
	kill "$publisher"
	wait "$publisher" || code=$?
	[ "$code" -eq 143 ]
	[ $((SECONDS - began)) -lt 5 ]
	# the other location fails while this one waits
	cat >"$TARGETS" <<-YAML
		targets:
		  share: {type: dir, path: $ROOT}
		  web: {type: http, url: "http://127.0.0.1:9/", move: false}
	YAML
	began=$SECONDS
	publish "$IMAGE" --image-version=1.0 --fail-fast --tries=3 9>&-
	exec 9>&-
	expect_status 7
	expect_value "$IMAGE" share/default result failed
	expect_in "$out" "stopped"
	[ $((SECONDS - began)) -lt 20 ]
	publish "$IMAGE" --image-version=1.0 --only=share
	expect_status 0
	expect_value "$IMAGE" share/default bytes_sent 0
}

@test "an index or sums that are too large are told, and never cut" {
	publish "$IMAGE" --image-version=1.0
	truncate -s 5M "$ROOT/node/index.json"
	publish "$IMAGE" --image-version=1.0
	expect_status 4
	expect_in "$out" "cannot read '$ROOT/node/index.json': File too large"
	truncate -s 17M "$(dirname "$IMAGE")/SHA256SUMS"
	publish "$IMAGE" --image-version=1.0
	expect_status 4
	expect_in "$err" "SHA256SUMS': File too large"
}

@test "other content under the same version is refused, and put there with --replace" {
	local other before
	publish "$IMAGE" --image-version=1.0
	publish_other 4
	before=$(tree_of "$ROOT")
	publish "$other" --image-version=1.0
	expect_status 4
	expect_in "$err$out" "--replace"
	[ "$(tree_of "$ROOT")" = "$before" ]
	publish "$other" --image-version=1.0 --replace
	expect_status 0
	[ "$(jq -r '.versions["1.0"].sha256' "$ROOT/node/index.json")" = "$(sha256_of "$other")" ]
	cmp "$IMAGE" "$STORED"
}

@test "bytes that were stored wrong are never named, and the next run writes them anew" {
	mkdir -p "$(dirname "$STORED")"
	cp "$IMAGE" "$STORED"
	printf 'XXXX' | dd of="$STORED" bs=1 seek=4500000 conv=notrunc status=none
	publish "$IMAGE" --image-version=1.0
	expect_status 5
	[ ! -e "$ROOT/node/index.json" ]
	[ ! -e "$STORED" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$STORED"
}

@test "--verify=full looks at what is there already, byte for byte" {
	publish "$IMAGE" --image-version=1.0
	publish "$IMAGE" --image-version=1.0 --verify=full
	expect_status 0
	expect_value "$IMAGE" share/default result unchanged
	expect_value "$IMAGE" share/default verified "read back"
	printf 'XXXX' | dd of="$STORED" bs=1 seek=4500000 conv=notrunc status=none
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	publish "$IMAGE" --image-version=1.0 --verify=full
	expect_status 5
}

@test "--verify=quick and none say what they did" {
	publish "$IMAGE" --image-version=1.0 --verify=quick
	expect_status 0
	expect_value "$IMAGE" share/default verified size
	publish "$IMAGE" --image-version=2.0 --verify=none
	expect_status 0
	expect_value "$IMAGE" share/default verified none
}

@test "--abort lists what is left over, and removes it only when asked" {
	mkdir -p "$(dirname "$STORED")"
	head -c 5000000 "$IMAGE" >"$STORED.part"
	publish "$IMAGE" --image-version=1.0 --abort
	expect_status 0
	expect_in "$out" "$STORED.part"
	[ -e "$STORED.part" ]
	publish "$IMAGE" --image-version=1.0 --abort --remove
	expect_status 0
	expect_in "$out" removed
	[ ! -e "$STORED.part" ]
}

@test "--only serves one location, and the record keeps what the others got before" {
	mkdir "$ROOT/a" "$ROOT/b"
	cat >"$TARGETS" <<-YAML
		targets:
		  share:
		    type: dir
		    path: $ROOT
		    locations:
		      a: {path: $ROOT/a}
		      b: {path: $ROOT/b}
	YAML
	publish "$IMAGE" --image-version=1.0 --only=share/a
	expect_status 0
	[ -e "$ROOT/a/node/index.json" ]
	[ ! -e "$ROOT/b/node" ]
	expect_value "$IMAGE" share/b result skipped
	publish "$IMAGE" --image-version=1.0 --only=share/b
	expect_status 0
	expect_value "$IMAGE" share/a result published
	expect_value "$IMAGE" share/b result published
	publish "$IMAGE" --image-version=1.0 --only=share/c
	expect_status 2
	expect_in "$err" "share/c"
}

@test "one location that fails stops no other, and the exit code tells" {
	mkdir "$ROOT/good"
	cat >"$TARGETS" <<-YAML
		targets:
		  bad: {type: dir, path: $ROOT/missing}
		  good: {type: dir, path: $ROOT/good}
	YAML
	publish "$IMAGE" --image-version=1.0
	expect_status 2
	expect_value "$IMAGE" bad/default result failed
	expect_value "$IMAGE" good/default result published
	expect_in "$out" "missing"
	[ ! -e "$ROOT/missing" ]
}

@test "a directory that may not be written is told, with its exit code" {
	# /sys takes no new directories, from root neither
	printf 'targets:\n  share: {type: dir, path: /sys}\n' >"$TARGETS"
	publish "$IMAGE" --image-version=1.0
	expect_status 3
	expect_in "$out" "cannot make the directory '/sys/node'"
	cell wrong "no permission: exit $status, nothing written"
}

@test "a '.part' that cannot be opened in a directory that is there is told, and not followed" {
	mkdir -p "$(dirname "$STORED")"
	ln -s "$BATS_TEST_TMPDIR/elsewhere" "$STORED.part"
	publish "$IMAGE" --image-version=1.0
	expect_status 3
	expect_in "$out" "cannot write '$STORED.part'"
	[ ! -e "$BATS_TEST_TMPDIR/elsewhere" ]
	[ ! -e "$ROOT/node/index.json" ]
	rm "$STORED.part"
	mkdir "$STORED.part"
	publish "$IMAGE" --image-version=1.0
	expect_status 3
	expect_in "$out" "cannot write '$STORED.part'"
}

@test "a directory that may not be written any more ends the index with the same exit code" {
	chattr +i "$ROOT" 2>/dev/null || skip "'$ROOT' takes no attribute 'immutable'"
	chattr -i "$ROOT"
	mkdir -p "$(dirname "$STORED")"
	cp "$IMAGE" "$STORED"
	chattr +i "$(dirname "$STORED")"
	publish "$IMAGE" --image-version=1.0
	chattr -i "$(dirname "$STORED")"
	expect_status 3
	expect_in "$out" "cannot write '$(dirname "$STORED")/SHA256SUMS'"
}

# The sweep of what killed runs left fails at this one, which says nothing of the state itself.
@test "what cannot be swept away beside the state is not taken for a state that cannot be read" {
	mkdir "$(dirname "$IMAGE")/.node.qcow2.publish-state.json.0123456789abcdef.new"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" share/default result published
}

@test "a boot type that the image does not have is refused before the first byte" {
	printf 'targets:\n  share: {type: dir, path: %s, boot_type: uefi-secure-boot}\n' "$ROOT" >"$TARGETS"
	publish "$IMAGE" --image-version=1.0
	expect_status 4
	expect_in "$out" "in 'check': the target wants boot type 'uefi-secure-boot'"
	expect_not_in "$err" "run again"
	[ -z "$(ls -A "$ROOT")" ]
}

@test "a consumer that no target gives anything to is refused before the first byte" {
	publish "$IMAGE" --image-version=1.0 --consumer=kubevirt
	expect_status 2
	expect_in "$err" "no target gives what 'kubevirt' could use"
	expect_in "$err" "oci"
	[ -z "$(ls -A "$ROOT")" ]
}

@test "a second run of the same image is told to wait" {
	exec 9>"$IMAGE.publish-state.json.lock"
	flock 9
	publish "$IMAGE" --image-version=1.0 9>&-
	exec 9>&-
	expect_status 3
	expect_in "$err" "another gpuimg"
	[ -z "$(ls -A "$ROOT")" ]
}

@test "an image of 10 GB, mostly zeros, is stored and read back in little memory" {
	publish_big
	publish_watched share/default "read back"
	same_ends "$IMAGE" "$ROOT/node/1.0"/*/node.qcow2
	rm -r "$ROOT"
}
