#!/usr/bin/env bats
# 'gpuimg publish' to S3: OpenStack Swift with s3api, which checks signatures to the letter. What was
# stored is fetched by Swift's own protocol.

load ../lib/common
load ../lib/servers
load ../lib/publish

setup_file() {
	need_root
	need_programs swift-proxy-server swift-ring-builder memcached python3 curl
	servers_begin
	start_swift
	swift_curl PUT images
	start_gate swift "$SWIFT_PORT"
	export S3_IMAGE=$BATS_FILE_TMPDIR/node.qcow2 S3_SMALL=$BATS_FILE_TMPDIR/small.qcow2
	export S3_KEY=test:tester S3_SECRET=s3cret-swift-key
	publish_image "$S3_IMAGE" 40
	publish_image "$S3_SMALL" 4
}

teardown_file() {
	publish_row s3 "Swift 2.30 s3api" "$(cell_of publish)" "$(cell_of again)" "$(cell_of killed)" \
		"$(cell_of wrong)" "$(cell_of verified)"
	servers_end
}

setup() {
	IMAGE=$BATS_TEST_TMPDIR/node.qcow2
	TARGETS=$BATS_TEST_TMPDIR/targets.yaml
	area=t$BATS_TEST_NUMBER
	publish_take "$S3_IMAGE"
	targets "$area"
}

targets() { # prefix [parts at once]: one after the other, so that a test knows which is under way
	cat >"$TARGETS" <<-YAML
		targets:
		  store:
		    type: s3
		    endpoint: http://127.0.0.1:$GATE_PORT
		    bucket: images
		    prefix: "$1"
		    access_key: {env: S3_KEY}
		    secret_key: {env: S3_SECRET}
		    upload_concurrency: ${2:-1}
	YAML
}

fetch() { # PATH below the prefix: to $BATS_TEST_TMPDIR/fetched
	swift_curl GET "images/$area/node/$1" -o "$BATS_TEST_TMPDIR/fetched"
}

index_versions() {
	swift_curl GET "images/$area/node/index.json" | jq -r '.versions | keys | join(" ")'
}

has_index() {
	swift_curl GET "images/$area/node/index.json" >/dev/null
}

expect_no_index() {
	if has_index; then
		echo "there is an index already"
		return 1
	fi
}

writes() { # of this test, in the access log of the server
	grep -cE " (PUT|POST|DELETE) /v1/[^ ]*(images|segments)/$area" "$SWIFT_LOG" || true
}

uploads() { # open multipart uploads of this test
	swift_curl GET "images+segments?prefix=$area" 2>/dev/null | grep -cE '\.qcow2/[^/]+$' || true
}

@test "a large image is published in parts, byte for byte, and again without a write" {
	local before
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	fetch "1.0/$SUM/node.qcow2"
	cmp "$IMAGE" "$BATS_TEST_TMPDIR/fetched"
	fetch "1.0/$SUM/SHA256SUMS"
	[ "$(cat "$BATS_TEST_TMPDIR/fetched")" = "$SUM  node.qcow2" ]
	[ "$(index_versions)" = 1.0 ]
	expect_value "$IMAGE" store/default bytes_sent "$SIZE"
	expect_value "$IMAGE" store/default verified "read back"
	no_secrets "$BATS_TEST_TMPDIR"
	cell publish "same bytes, 3 parts"
	cell verified "$(record_value "$IMAGE" store/default verified)"
	before=$(writes)
	[ "$before" -ge 5 ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" store/default result unchanged
	sleep 1
	[ "$(writes)" -eq "$before" ]
	cell again "unchanged, $(($(writes) - before)) writes in the access log"
}

@test "a small image goes in one piece" {
	publish_take "$S3_SMALL"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	fetch "1.0/$SUM/node.qcow2"
	cmp "$IMAGE" "$BATS_TEST_TMPDIR/fetched"
	[ "$(uploads)" -eq 0 ]
}

@test "killed in the middle of the second part, it sends that one and the third" {
	local part=$((16 * 1024 * 1024))
	publish_killed bytes 24000000
	expect_no_index
	no_secrets "$BATS_TEST_TMPDIR"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" store/default bytes_sent $((SIZE - part))
	expect_value "$IMAGE" store/default resumed_from "$part"
	fetch "1.0/$SUM/node.qcow2"
	cmp "$IMAGE" "$BATS_TEST_TMPDIR/fetched"
	[ ! -e "$IMAGE.publish-state.json" ]
	cell killed "in part 2 of 3: $((SIZE - part)) of $SIZE sent, part 1 kept"
}

has_parts() { # NUMBER...: the state remembers them
	local number
	for number in "$@"; do
		jq -e --arg n "$number" '[.slots[].parts[$n]] | any' "$IMAGE.publish-state.json" >/dev/null || return
	done
}

@test "parts go side by side: the second and third are taken while the first one stands, and stay so" {
	local part=$((16 * 1024 * 1024))
	targets "$area" 4
	gate_rule line '^PUT .*partNumber=1&'
	publish_background "$IMAGE" --image-version=1.0
	gate_wait
	wait_until 30 has_parts 2 3
	publish_kill
	gate_drop
	expect_no_index
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" store/default bytes_sent "$part"
	expect_value "$IMAGE" store/default resumed_from $((SIZE - part))
	fetch "1.0/$SUM/node.qcow2"
	cmp "$IMAGE" "$BATS_TEST_TMPDIR/fetched"
}

@test "a part whose connection breaks is sent again beside the others" {
	sed -i '/upload_concurrency/d' "$TARGETS"
	gate_rule line '^PUT .*partNumber=2&'
	publish_background "$IMAGE" --image-version=1.0
	gate_wait
	wait_until 30 has_parts 1 3
	gate_drop # the store never saw it: if it has the part in the end, it came again
	wait "$publisher"
	expect_value "$IMAGE" store/default resumed_from 0
	fetch "1.0/$SUM/node.qcow2"
	cmp "$IMAGE" "$BATS_TEST_TMPDIR/fetched"
}

@test "parts at once are a number from 1 to 16" {
	local wrong
	for wrong in 0 17 -1 four true '[2]'; do
		targets "$area" "$wrong"
		publish "$IMAGE" --image-version=1.0
		expect_status 2
		expect_in "$out$err" upload_concurrency
	done
	[ "$(writes)" -eq 0 ]
}

killed_before() { # REGEX of the request that never comes
	publish_killed line "$1"
	expect_no_index
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" store/default bytes_sent 0
	fetch "1.0/$SUM/node.qcow2"
	cmp "$IMAGE" "$BATS_TEST_TMPDIR/fetched"
	[ "$(index_versions)" = 1.0 ]
}

@test "killed after the last part and before it is completed, it sends nothing again" {
	killed_before '^POST .*uploadId='
	cell killed "$(cell_of killed); after the parts: 0 sent"
}

@test "killed before the index, it sends nothing again" {
	killed_before '^PUT .*index.json'
}

@test "the memory of a completed upload being lost, the object is read back and not sent again" {
	publish_killed line '^PUT .*SHA256SUMS'
	rm "$IMAGE.publish-state.json"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" store/default bytes_sent 0
	expect_value "$IMAGE" store/default verified "read back"
}

@test "wrong credentials are told, and nothing is written" {
	S3_SECRET=s3cret-other-key publish "$IMAGE" --image-version=1.0
	expect_status 2
	expect_in "$out" "403"
	expect_in "$out" "credentials"
	expect_value "$IMAGE" store/default bytes_sent 0
	[ "$(writes)" -eq 0 ]
	no_secrets "$BATS_TEST_TMPDIR"
	cell wrong "403: exit $status, nothing written"
}

@test "two publishers at once both get into the index" {
	publish_two
	[ "$(index_versions)" = "1.0 2.0" ]
}

overtake() { # VERSION of the one that waits
	publish_take "$S3_SMALL"
	sed "s/127.0.0.1:$GATE_PORT/127.0.0.1:$SWIFT_PORT/" "$TARGETS" >"$TARGETS.direct"
	publish_overtaken "$TARGETS.direct" "$1" has_index
}

@test "an index that overtakes another one loses nothing" {
	overtake 2.0
	[ "$first $second" = "0 0" ]
	[ "$(index_versions)" = "1.0 2.0" ]
}

@test "of two images under one version at once, one is told that it lost" {
	overtake 1.0
	[ "$first $second" = "0 4" ] || [ "$first $second" = "4 0" ]
}

@test "two publishers of one image at once both end well" {
	local one=0
	publish_copy
	publish_background "$copy" --image-version=1.0
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	wait "$publisher" || one=$?
	[ "$one" -eq 0 ] || { cat "$BATS_TEST_TMPDIR/background"; return 1; }
	fetch "1.0/$SUM/node.qcow2"
	cmp "$IMAGE" "$BATS_TEST_TMPDIR/fetched"
}

@test "other content under the same version is refused, and put there with --replace" {
	local before
	publish "$IMAGE" --image-version=1.0
	publish_take "$S3_SMALL"
	before=$(writes)
	publish "$IMAGE" --image-version=1.0
	expect_status 4
	expect_in "$out" "--replace"
	[ "$(writes)" -eq "$before" ]
	publish "$IMAGE" --image-version=1.0 --replace
	expect_status 0
	[ "$(swift_curl GET "images/$area/node/index.json" | jq -r '.versions["1.0"].sha256')" = "$SUM" ]
}

@test "a file that changes while it is sent gets no name" {
	publish_changed 24000000 40000000 # of the part that goes last: all parts before it are right
	expect_no_index
	if fetch "1.0/$SUM/node.qcow2"; then return 1; fi
}

@test "a plan writes nothing" {
	publish "$IMAGE" --image-version=1.0 --plan
	expect_status 0
	expect_in "$out" planned
	[ "$(writes)" -eq 0 ]
}

@test "--abort lists an open upload, and removes it only when asked" {
	publish_killed bytes 24000000
	[ "$(uploads)" -eq 1 ]
	publish "$IMAGE" --image-version=1.0 --abort
	expect_status 0
	expect_in "$out" "upload "
	[ "$(uploads)" -eq 1 ]
	publish "$IMAGE" --image-version=1.0 --abort --remove
	expect_status 0
	expect_in "$out" removed
	[ "$(uploads)" -eq 0 ]
	[ ! -e "$IMAGE.publish-state.json" ]
}

@test "keys with every reserved byte are signed as the server reads them" {
	local prefix="a b+c=d&e@f:g(h)!*'\$,;é~%2F[i]{j}|^#k?/x" encoded
	publish_take "$S3_SMALL"
	targets "$area/$prefix"
	publish "$IMAGE" --image-version=1.0+b
	expect_status 0
	encoded=$(python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.argv[1]))' \
		"$area/$prefix/node/1.0+b/$SUM/node.qcow2")
	swift_curl GET "images/$encoded" -o "$BATS_TEST_TMPDIR/fetched"
	cmp "$IMAGE" "$BATS_TEST_TMPDIR/fetched"
	publish "$IMAGE" --image-version=1.0+b
	expect_value "$IMAGE" store/default result unchanged
}

@test "a large object under such a key goes in parts too" {
	targets "$area/a b+c=d&e@f:g(h)"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" store/default verified "read back"
}

@test "--verify=quick compares length and ETag, none nothing" {
	publish "$IMAGE" --image-version=1.0 --verify=quick
	expect_status 0
	expect_value "$IMAGE" store/default verified "size and ETag"
	publish "$IMAGE" --image-version=2.0 --verify=none
	expect_status 0
	expect_value "$IMAGE" store/default verified none
}

@test "a public address is what consumers are told" {
	publish_take "$S3_SMALL"
	echo '    public_url: https://cdn.example/pool' >>"$TARGETS"
	publish "$IMAGE" --image-version=1.0 --consumer=cozystack
	expect_status 0
	expect_in "$out" "url: https://cdn.example/pool/$area/node/1.0/$SUM/node.qcow2"
}
