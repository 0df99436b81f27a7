#!/usr/bin/env bats
# 'gpuimg publish' to VCO: against a mock (tests/publish/vco-mock.py), since no VCO can be installed.

load ../lib/common
load ../lib/servers
load ../lib/publish

setup_file() {
	need_programs python3 jq qemu-img curl
	servers_begin
	VCO_PORT=$(start_mock vco vco-mock.py)
	OTHER_PORT=$(start_mock other vco-mock.py)
	FILES_PORT=$(free_port)
	mkdir "$SERVERS/files"
	server_run files python3 -m http.server --bind 127.0.0.1 --directory "$SERVERS/files" "$FILES_PORT"
	server_wait files "http://127.0.0.1:$FILES_PORT/"
	export VCO_PORT OTHER_PORT FILES_PORT VCO_IMAGE=$BATS_FILE_TMPDIR/node.qcow2
	publish_image "$VCO_IMAGE" 22
}

teardown_file() {
	publish_row vco "mock of its API" "$(cell_of publish)" "$(cell_of again)" "$(cell_of killed)" \
		"$(cell_of wrong)" "$(cell_of verified)"
	servers_end
}

setup() {
	IMAGE=$BATS_TEST_TMPDIR/node.qcow2
	publish_take "$VCO_IMAGE"
	PARTS=$(((SIZE + 5242879) / 5242880))
	TARGETS=$BATS_TEST_TMPDIR/targets.yaml
	VERSION=v$BATS_TEST_NUMBER
	NAME=node-$VERSION-${SUM:0:12}
	mock_reset vco
	mock_reset other
	rm -f "$SERVERS/vco/refreshed"
	VCO_TOKEN=$(token 3600)
	export VCO_TOKEN
	use be-g8-3
}

teardown() {
	no_tokens
}

token() { # seconds
	python3 "$REPO/tests/publish/vco-mock.py" "$SERVERS/vco" token "$1"
}

# use "LOCATION LOCATION…" [LINE...]: a target with these locations, and further settings.
use() {
	local locations=$1
	shift
	{
		printf 'targets:\n  vco:\n    type: vco\n    url: http://127.0.0.1:%s/api/1\n' "$VCO_PORT"
		printf '    customer: acme\n    token: {env: VCO_TOKEN}\n    boot_type: uefi\n'
		printf '    locations: [%s]\n' "${locations// /, }"
		[ $# -eq 0 ] || printf '    %s\n' "$@"
	} >"$TARGETS"
}

settings() { # JSON
	echo "$1" >"$SERVERS/vco/settings.json"
}

# No token of this test, given or refreshed, and no part of one is in what was written or told.
no_tokens() {
	{
		echo "$VCO_TOKEN"
		cat "$SERVERS/vco/refreshed" 2>/dev/null || true
	} | secret_forms | nowhere "$BATS_TEST_TMPDIR" "$SERVERS/vco/log"
}

go() { # further options
	publish "$IMAGE" --image-version="$VERSION" "$@"
}

images() { # LOCATION: how many there are of this test's name
	jq --arg name "$NAME" "[.\"$1\"[] | select(.name == \$name)] | length" "$SERVERS/vco/images.json"
}

made() { # LOCATION: whether there is one
	[ "$(images "$1")" -gt 0 ]
}

image() { # LOCATION KEY: of the one of this test's name
	jq -r --arg name "$NAME" ".\"$1\"[] | select(.name == \$name) | .$2" "$SERVERS/vco/images.json"
}

parts_sent() {
	mock_count vco '^PUT .*/upload-part/.* 200 '
}

@test "two locations at once: each has the bytes and an id of its own, and again nothing is written" {
	use "be-g8-3 nl-g8-1" "tags: gpu"
	go
	expect_status 0
	for location in be-g8-3 nl-g8-1; do
		[ "$(image "$location" sha256)" = "$SUM" ]
		[ "$(image "$location" boot_type)" = uefi ]
		[ "$(image "$location" os_name)" = "Debian 12" ]
		[ "$(image "$location" tags)" = "sha256=$SUM,gpu" ]
		[ "$(image "$location" boot_disk_size)" = 1 ]
		expect_value "$IMAGE" "vco/$location" id "$(image "$location" image_id)"
		expect_value "$IMAGE" "vco/$location" ref "$location/$(image "$location" image_id)"
		expect_value "$IMAGE" "vco/$location" bytes_sent "$SIZE"
		expect_value "$IMAGE" "vco/$location" verified server-md5
	done
	[ "$(image be-g8-3 image_id)" != "$(image nl-g8-1 image_id)" ]
	jq -e '.results | map(.id | type == "number") | all' "${IMAGE%.qcow2}.published.json"
	[ ! -e "$IMAGE.publish-state.json" ]
	cell publish "2 locations, same bytes"
	cell verified "$(record_value "$IMAGE" vco/be-g8-3 verified)"
	mock_reset vco
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 result unchanged
	expect_value "$IMAGE" vco/nl-g8-1 result unchanged
	expect_value "$IMAGE" vco/nl-g8-1 id "$(image nl-g8-1 image_id)"
	[ "$(mock_writes vco)" -eq 0 ]
	[ "$(mock_count vco '^GET ')" -gt 0 ]
	cell again "unchanged, $(mock_writes vco) writes in the access log"
	go --consumer=capvco
	expect_status 0
	expect_in "$out" "# location be-g8-3, boot type uefi
VCO_IMAGE_ID=$(image be-g8-3 image_id)"
	expect_in "$out" "VCO_IMAGE_ID=$(image nl-g8-1 image_id)"
}

@test "a part's ETag in the body counts more than one of the reply in the header" {
	settings '{"etag": "body"}'
	go
	expect_status 0
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
	settings '{"etag": "text"}'
	VERSION=${VERSION}b NAME=node-$VERSION-${SUM:0:12}
	go
	expect_status 0
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
}

@test "a part without any ETag is an error, and nothing is finished" {
	mock_faults vco '[{"on": "PUT .*upload-part/2", "do": "reply", "status": 200}]'
	go
	expect_status 1
	expect_in "$out" "part 2: the server took it and gave no ETag"
	[ "$(images be-g8-3)" -eq 0 ]
	mock_no_faults vco
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 resumed_from 5242880
}

@test "killed between parts, a run sends only those that are missing" {
	mock_faults vco '[{"on": "PUT .*upload-part/3", "do": "hold"}]'
	publish_background "$IMAGE" --image-version="$VERSION"
	mock_wait vco fired upload-part/3
	publish_kill
	mock_reset vco
	sleep 1 # the part that was held ends
	mock_reset vco
	go
	expect_status 0
	[ "$(parts_sent)" -eq $((PARTS - 2)) ]
	expect_value "$IMAGE" vco/be-g8-3 resumed_from 10485760
	expect_value "$IMAGE" vco/be-g8-3 bytes_sent $((SIZE - 10485760))
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
	[ "$(images be-g8-3)" -eq 1 ]
	cell killed "between parts: only the missing $((PARTS - 2)) of $PARTS"
}

@test "killed after the parts and before the end, a run sends none" {
	mock_faults vco '[{"on": "GET .*os-names", "do": "hold"}]'
	publish_background "$IMAGE" --image-version="$VERSION"
	mock_wait vco fired os-names
	publish_kill
	mock_reset vco
	[ "$(images be-g8-3)" -eq 0 ]
	go
	expect_status 0
	[ "$(parts_sent)" -eq 0 ]
	expect_value "$IMAGE" vco/be-g8-3 bytes_sent 0
	expect_value "$IMAGE" vco/be-g8-3 resumed_from "$SIZE"
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
	cell killed "$(cell_of killed); before the end: 0 sent"
}

@test "killed after the end and before the image is ready, a run waits and writes nothing" {
	settings '{"ready_s": 4}'
	publish_background "$IMAGE" --image-version="$VERSION"
	mock_wait vco log '^POST .*finish-image-upload.* 200 '
	publish_kill
	mock_reset vco
	settings '{"ready_s": 4}'
	[ "$(image be-g8-3 status)" = CREATING ]
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 result published
	expect_value "$IMAGE" vco/be-g8-3 bytes_sent 0
	[ "$(mock_writes vco)" -eq 0 ]
	[ "$(images be-g8-3)" -eq 1 ]
	[ "$(image be-g8-3 status)" = CREATED ]
	[ ! -e "$IMAGE.publish-state.json" ]
	cell killed "$(cell_of killed); before it is ready: 0 writes"
}

@test "killed before it heard that the image was made, a run makes no second one" {
	mock_faults vco '[{"on": "POST .*finish-image-upload", "do": "slow", "seconds": 60}]'
	publish_background "$IMAGE" --image-version="$VERSION"
	wait_until 10 made be-g8-3
	publish_kill
	mock_reset vco
	go
	expect_status 0
	[ "$(mock_writes vco)" -eq 0 ]
	[ "$(images be-g8-3)" -eq 1 ]
}

@test "an image that vanished while nobody ran is sent anew" {
	settings '{"ready_s": 2, "spoil": true}'
	publish_background "$IMAGE" --image-version="$VERSION"
	wait_until 10 grep -qs image_id "$IMAGE.publish-state.json"
	publish_kill
	sleep 3
	[ "$(images be-g8-3)" -eq 0 ]
	mock_reset vco
	go
	expect_status 0
	[ "$(parts_sent)" -eq "$PARTS" ]
	[ "$(images be-g8-3)" -eq 1 ]
}

@test "a lost reply to the end is looked after, and no second image is made" {
	mock_faults vco '[{"on": "POST .*finish-image-upload", "do": "lost"}]'
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 result published
	[ "$(images be-g8-3)" -eq 1 ]
	[ "$(mock_count vco '^POST .*finish-image-upload')" -eq 1 ]
}

@test "a gateway that gives up at the end while the platform goes on is no failure" {
	mock_faults vco '[{"on": "POST .*finish-image-upload", "do": "later", "status": 502, "seconds": 3}]'
	go
	expect_status 0
	[ "$(images be-g8-3)" -eq 1 ]
	[ "$(mock_count vco '^POST .*finish-image-upload')" -eq 1 ]
	expect_value "$IMAGE" vco/be-g8-3 id "$(image be-g8-3 image_id)"
}

@test "without an id in the reply the image is found by its name" {
	settings '{"tell_id": false, "ready_s": 1}'
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 id "$(image be-g8-3 image_id)"
}

@test "what refuses the end is told, and the parts stay" {
	use be-g8-3 "os_name: Plan 9"
	go
	expect_status 1
	expect_in "$out" "os_name is none of os-names"
	expect_in "$out" "correct the settings"
	[ "$(images be-g8-3)" -eq 0 ]
	use be-g8-3 "os_name: Debian 11" "memory: 4096" "boot_disk_size: 20"
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 bytes_sent 0
	[ "$(image be-g8-3 os_name) $(image be-g8-3 memory) $(image be-g8-3 boot_disk_size)" = "Debian 11 4096 20" ]
}

@test "a server that is busy for a moment is asked again" {
	mock_faults vco '[{"on": "PUT .*upload-part/2", "do": "status", "status": 503},
		{"on": "PUT .*upload-part/3", "do": "lost"}, {"on": "POST .*upload-vm-image", "do": "drop"}]'
	go
	expect_status 0
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
}

@test "an upload that was forgotten begins anew, in its middle at once, at its end in the next run" {
	mock_faults vco '[{"on": "PUT .*upload-part/3", "do": "call", "name": "forget"}]'
	go
	expect_status 0
	[ "$(parts_sent)" -eq $((PARTS + 2)) ]
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
	VERSION=${VERSION}b NAME=node-$VERSION-${SUM:0:12}
	mock_faults vco '[{"on": "POST .*finish-image-upload", "do": "call", "name": "forget"}]'
	go
	expect_status 7
	[ "$(images be-g8-3)" -eq 0 ]
	mock_no_faults vco
	go
	expect_status 0
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
}

@test "a token that has ended is refreshed, and so is one that is refused in the middle" {
	VCO_TOKEN=$(token -10)
	use be-g8-3 "iam_url: http://127.0.0.1:$VCO_PORT/"
	mock_faults vco '[{"on": "PUT .*upload-part/2", "do": "status", "status": 401}]'
	go
	expect_status 0
	[ "$(wc -l <"$SERVERS/vco/refreshed")" -eq 2 ]
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
	settings '{"refresh": "json"}'
	VERSION=${VERSION}b
	go -v
	expect_status 0
	[ "$(wc -l <"$SERVERS/vco/refreshed")" -eq 3 ]
}

@test "a token that ends within a minute is refreshed before it is used" {
	VCO_TOKEN=$(token 30)
	use be-g8-3 "iam_url: http://127.0.0.1:$VCO_PORT"
	go
	expect_status 0
	[ "$(mock_count vco ' 401 ')" -eq 0 ]
	[ "$(wc -l <"$SERVERS/vco/refreshed")" -eq 1 ]
}

@test "a token that has ended and cannot be refreshed is told before anything is asked" {
	VCO_TOKEN=$(token -10)
	go
	expect_status 2
	expect_in "$out" "the token has ended"
	expect_in "$out" "iam_url"
	[ ! -s "$SERVERS/vco/log" ]
}

@test "a token that ends on the way ends with 7, and a fresh one goes on where it stopped" {
	VCO_TOKEN=$(token 5)
	mock_faults vco '[{"on": "PUT .*upload-part/2", "do": "slow", "seconds": 6}]'
	go
	expect_status 7
	expect_in "$out" "the token has ended on the way"
	expect_in "$out" "run again with a fresh one"
	[ "$(parts_sent)" -eq 2 ]
	no_tokens
	VCO_TOKEN=$(token 3600)
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 resumed_from 10485760
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
}

@test "a token that is refused on the way ends with 7 too, and so where nobody refreshes it" {
	mock_faults vco '[{"on": "PUT .*upload-part/2", "do": "status", "status": 401}]'
	go
	expect_status 7
	expect_in "$out" "the token has ended on the way"
	use be-g8-3 "iam_url: http://127.0.0.1:$VCO_PORT"
	mock_faults vco '[{"on": "PUT .*upload-part/3", "do": "status", "status": 401},
		{"on": "GET .*jwt/refresh", "do": "status", "status": 401}]'
	go
	expect_status 7
	expect_in "$out" "/v1/oauth/jwt/refresh: the server says 401"
	expect_in "$out" "run again with a fresh token"
	expect_not_in "$out" "iam_url"
	[ "$(images be-g8-3)" -eq 0 ]
	mock_no_faults vco
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 resumed_from 10485760
}

@test "a token of a few seconds is good where nobody can refresh it" {
	VCO_TOKEN=$(token 30)
	go
	expect_status 0
}

@test "a wrong token is told, and nothing is written" {
	VCO_TOKEN=${VCO_TOKEN%?????}wrong
	go
	expect_status 2
	expect_in "$out" "401"
	expect_in "$out" "credentials"
	[ "$(mock_writes vco)" -eq 0 ]
	use be-g8-3 "iam_url: http://127.0.0.1:$VCO_PORT"
	go
	expect_status 2
	expect_in "$out" "/v1/oauth/jwt/refresh: the server says 401"
	[ "$(mock_writes vco)" -eq 0 ]
	cell wrong "401: exit $status, nothing written"
}

@test "no token at all, or one that everybody can read, is refused" {
	unset VCO_TOKEN
	go
	VCO_TOKEN=$(token 3600)
	expect_status 2
	expect_in "$out" "VCO_TOKEN, which is not set"
	echo "$VCO_TOKEN" >"$SERVERS/token"
	chmod 644 "$SERVERS/token"
	sed -i "s,{env: VCO_TOKEN},{file: $SERVERS/token}," "$TARGETS"
	go
	expect_status 2
	expect_in "$err" "everybody on this host can read it"
	chmod 600 "$SERVERS/token"
	go
	expect_status 0
}

@test "the token goes to https or to this host, and nowhere else" {
	for url in http://vco.example/api/1 http://127.0.0.1.example/api/1 "https://a@b.example/api/1"; do
		use be-g8-3
		sed -i "s,url: .*,url: $url," "$TARGETS"
		go
		expect_status 2
		expect_in "$out" "'url' must be the https address"
	done
	use be-g8-3 "iam_url: http://iam.example"
	go
	expect_status 2
	expect_in "$out" "'iam_url' must be the https address"
	use be-g8-3 "memory: lots"
	go
	expect_status 2
	expect_in "$err" "'memory' must be a whole number"
	for setting in "memory: 0" "boot_disk_size: 2147483648" "ready_timeout: 0"; do
		use be-g8-3 "$setting"
		go
		expect_status 2
		expect_in "$out" "'${setting%%:*}' must be from 1 to 2147483647"
	done
	[ ! -s "$SERVERS/vco/log" ]
}

@test "a redirect to another host is not followed" {
	mock_faults vco "[{\"on\": \".\", \"do\": \"status\", \"times\": 9, \"status\": 307,
		\"headers\": {\"Location\": \"http://127.0.0.1:$OTHER_PORT/api/1\"}}]"
	go
	expect_status 1
	expect_in "$out" "the server says 307"
	[ ! -s "$SERVERS/other/log" ]
}

# refused_by_both WORDS...: without --replace and with it, saying these, and nothing is written.
refused_by_both() {
	local option words
	for option in --verify=quick --replace; do
		go "$option"
		expect_status 4
		for words in "$@"; do
			expect_in "$out" "$words"
		done
		[ "$(mock_writes vco)" -eq 0 ]
	done
}

@test "an image of another boot type under the name is refused, with --replace too" {
	use be-g8-3
	sed -i 's/boot_type: uefi/boot_type: bios/' "$TARGETS"
	go
	expect_status 0
	mock_reset vco
	use be-g8-3
	refused_by_both "has another boot type than uefi" "another name or version"
	expect_value "$IMAGE" vco/be-g8-3 id "$(image be-g8-3 image_id)"
}

@test "an image that somebody disabled is there: nothing is sent, and no second one is made" {
	go
	expect_status 0
	mock_reset vco
	settings '{"show": {"status": "DISABLED"}}'
	refused_by_both "is there and disabled" "have it enabled"
	[ "$(images be-g8-3)" -eq 1 ]
	settings '{}'
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 result unchanged
}

@test "an image that comes out disabled is told, and taken when it is enabled" {
	settings '{"show": {"status": "DISABLED"}}'
	go
	expect_status 4
	expect_in "$out" "is there and disabled"
	expect_value "$IMAGE" vco/be-g8-3 id "$(image be-g8-3 image_id)"
	mock_reset vco
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 bytes_sent 0
	[ "$(mock_writes vco)" -eq 0 ]
	[ "$(images be-g8-3)" -eq 1 ]
}

@test "a status that nobody knows is told at once, and ends the run long before the ready time" {
	local code=0 began=$SECONDS
	use be-g8-3 "ready_timeout: 60"
	settings '{"show": {"status": "BAKING"}}'
	publish_background "$IMAGE" --image-version="$VERSION"
	wait_until 5 grep -q "has the status 'BAKING', which gpuimg does not know" "$BATS_TEST_TMPDIR/background"
	kill -0 "$publisher"
	wait "$publisher" || code=$?
	[ "$code" -eq 7 ] || { cat "$BATS_TEST_TMPDIR/background"; return 1; }
	[ $((SECONDS - began)) -lt 30 ]
	expect_in "$(cat "$BATS_TEST_TMPDIR/background")" 'ready_status: "BAKING"'
	[ "$(images be-g8-3)" -eq 1 ]
	use be-g8-3 "ready_status: baking"
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 bytes_sent 0
	[ "$(images be-g8-3)" -eq 1 ]
}

@test "a status that is shown cut or altered is no advice for 'ready_status', and one with a space is" {
	local long word
	long=$(printf 'BAKING%.0s' {1..12})
	use be-g8-3 "ready_timeout: 12"
	for word in "$long" $'BAK\ting' 'BAK\ING' 'THE "OVEN"'; do
		settings "$(jq -n --arg word "$word" '{show: {status: $word}}')"
		go
		expect_status 7
		expect_in "$out" "which gpuimg does not know"
		expect_in "$out" "run again to wait"
		expect_not_in "$out" "ready_status"
	done
	settings '{"show": {"status": "NEARLY: done"}}'
	go
	expect_status 7
	expect_in "$out" 'ready_status: "NEARLY: done"'
	use be-g8-3 'ready_status: "NEARLY: done"'
	go
	expect_status 0
	[ "$(images be-g8-3)" -eq 1 ]
}

@test "an image of our name without our tag is taken with a note, and by its size where one is told" {
	go
	expect_status 0
	settings '{"show": {"tags": "gpu"}}'
	go
	expect_status 0
	expect_in "$err" "has no tag of gpuimg: it is taken for this one by its name and size"
	expect_value "$IMAGE" vco/be-g8-3 verified "name and size"
	settings '{"show": {"tags": null, "size": null, "boot_type": null}}'
	go
	expect_status 0
	expect_in "$err" "has no tag of gpuimg: it is taken for this one by its name"
	expect_in "$err" "does not tell the boot type"
	expect_value "$IMAGE" vco/be-g8-3 verified name
	mock_reset vco
	settings '{"show": {"tags": null, "size": 4711471147}}'
	go
	expect_status 4
	expect_in "$out" "other content"
	[ "$(mock_writes vco)" -eq 0 ]
	settings '{"show": {"size": 4711471147}}'
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 verified server-md5
	expect_not_in "$err" "taken for"
}

@test "the search for tokens finds a whole one, each part of it, and one in a Basic pair" {
	local place=$BATS_TEST_TMPDIR/leak form
	for form in "$VCO_TOKEN" "${VCO_TOKEN%%.*}" "$(cut -d. -f2 <<<"$VCO_TOKEN")" "${VCO_TOKEN##*.}" \
		"$(printf 'me:%s' "$VCO_TOKEN" | base64 -w0)" "$(printf %s "$VCO_TOKEN" | base64 -w0)"; do
		echo "x $form y" >"$place"
		if no_tokens; then return 1; fi
	done
	rm "$place"
	no_tokens
}

@test "a boot type that the image does not have is refused before the first byte" {
	sed -i 's/boot_type: uefi/boot_type: uefi-secure-boot/' "$TARGETS"
	go
	expect_status 4
	expect_in "$out" "wants boot type 'uefi-secure-boot', and the image boots by bios, uefi"
	[ ! -s "$SERVERS/vco/log" ]
}

@test "the platform fetches the image itself from 'source_url'" {
	mkdir -p "$SERVERS/files/node/$VERSION"
	use be-g8-3 "source_url: http://127.0.0.1:$FILES_PORT/{name}/{version}/{sha256}.qcow2"
	go
	expect_status 7
	expect_in "$out" "its import failed"
	expect_in "$out" "source_url"
	[ "$(images be-g8-3)" -eq 0 ]
	cp "$IMAGE" "$SERVERS/files/node/$VERSION/$SUM.qcow2"
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 bytes_sent 0
	expect_value "$IMAGE" vco/be-g8-3 id "$(image be-g8-3 image_id)"
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
	[ "$(mock_count vco upload)" -eq 0 ]
	grep -q "HEAD /node/$VERSION/$SUM.qcow2" "$SERVERS/files.log"
	mock_reset vco
	go
	expect_status 0
	[ "$(mock_writes vco)" -eq 0 ]
}

@test "other bytes at 'source_url' are found by their MD5" {
	mkdir -p "$SERVERS/files/node/$VERSION"
	head -c "$SIZE" /dev/zero >"$SERVERS/files/node/$VERSION/$SUM.qcow2"
	use be-g8-3 "source_url: http://127.0.0.1:$FILES_PORT/{name}/{version}/{sha256}.qcow2"
	go
	expect_status 7
	expect_in "$out" "dropped it again"
	[ "$(images be-g8-3)" -eq 0 ]
}

@test "one location that fails does not stop the other, and both are in the record" {
	use "be-g8-3 nl-g8-1 us-g8-9"
	mock_faults vco '[{"on": "nl-g8-1/vm-images/upload", "do": "status", "status": 503, "times": 99}]'
	go --tries=1
	expect_status 7
	expect_value "$IMAGE" vco/be-g8-3 result published
	expect_value "$IMAGE" vco/nl-g8-1 result failed
	expect_value "$IMAGE" vco/nl-g8-1 resumable True
	expect_value "$IMAGE" vco/us-g8-9 result failed
	expect_value "$IMAGE" vco/us-g8-9 resumable False
	expect_in "$out" "503"
	expect_in "$out" "no such location"
	mock_reset vco
	go --only=vco/nl-g8-1
	expect_status 0
	expect_value "$IMAGE" vco/nl-g8-1 result published
	[ "$(mock_count vco be-g8-3)" -eq 0 ]
}

@test "of two publishers at once the second to end finds the image, and makes no other" {
	local first
	publish_copy
	mock_faults vco '[{"on": "PUT .*upload-part/3", "do": "hold"}]'
	publish_background "$copy" --image-version="$VERSION"
	first=$publisher
	mock_wait vco fired upload-part/3
	run_split "$GPUIMG" publish -t "$TARGETS" "$copy" --image-version="$VERSION"
	expect_status 3
	expect_in "$err" "another gpuimg publishes this image now"
	go
	expect_status 0
	mock_no_faults vco
	wait "$first"
	[ "$(images be-g8-3)" -eq 1 ]
	expect_value "$copy" vco/be-g8-3 id "$(image be-g8-3 image_id)"
}

# upload_held RULE: $first, a run in the background that the mock holds there; what it says is in $told.
upload_held() {
	publish_copy
	told=$BATS_TEST_TMPDIR/told
	mock_faults vco "[{\"on\": \"$1\", \"do\": \"hold\"}]"
	publish_background "$IMAGE" --image-version="$VERSION"
	first=$publisher
	mock_wait vco fired "$1"
	mv "$BATS_TEST_TMPDIR/background" "$told"
}

first_ends() { # STATUS
	local code=0
	wait "$first" || code=$?
	[ "$code" -eq "$1" ] || {
		echo "exit code $code"
		cat "$told"
		return 1
	}
}

# overtaken RULE FAULTS: while a run is held there, another one makes an image of another boot type; the
# run goes on with these faults, and ends as if the image had been there before.
overtaken() {
	upload_held "$1"
	sed -i 's/boot_type: uefi/boot_type: bios/' "$TARGETS"
	publish "$copy" --image-version="$VERSION"
	expect_status 0
	mock_faults vco "$2"
	first_ends 4
	expect_in "$(cat "$told")" "has another boot type than uefi"
	expect_in "$(cat "$told")" "another name or version"
	[ "$(images be-g8-3)" -eq 1 ]
}

@test "an image of another boot type that comes while we send is refused as one that was there" {
	overtaken "PUT .*upload-part/3" '[]'
	[ "$(mock_count vco '^POST .*finish-image-upload')" -eq 1 ]
}

@test "so is one for which the platform refuses ours at the last moment" {
	overtaken "GET .*os-names" '[{"on": "POST .*finish-image-upload", "do": "status", "status": 409}]'
	[ "$(mock_count vco '^POST .*finish-image-upload')" -eq 2 ]
}

@test "that another run's image fails costs us nothing of what we sent" {
	upload_held "PUT .*upload-part/3"
	settings '{"ready_s": 6, "spoil": true}'
	publish_background "$copy" --image-version="$VERSION"
	wait_until 10 made be-g8-3
	publish_kill
	mock_no_faults vco
	first_ends 7
	expect_in "$(cat "$told")" "which another run made, is gone again"
	[ "$(mock_count vco '^POST .*finish-image-upload')" -eq 1 ]
	mock_reset vco
	go
	expect_status 0
	[ "$(parts_sent)" -eq 0 ]
	expect_value "$IMAGE" vco/be-g8-3 resumed_from "$SIZE"
	expect_value "$IMAGE" vco/be-g8-3 bytes_sent 0
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
}

@test "an image whose MD5 is not ours is dropped by the platform, and sent anew in the next run" {
	settings '{"spoil": true}'
	go
	expect_status 7
	expect_in "$out" "dropped it again"
	[ ! -e "$IMAGE.publish-state.json" ]
	settings '{}'
	go
	expect_status 0
	[ "$(image be-g8-3 sha256)" = "$SUM" ]
}

@test "a platform that works for longer than the stall time is waited for" {
	settings '{"ready_s": 4}'
	mock_faults vco '[{"on": "PUT .*upload-part/1", "do": "slow", "seconds": 5},
		{"on": "POST .*finish-image-upload", "do": "slow", "seconds": 5}]'
	go --stall-timeout=2
	expect_status 0
	[ "$(parts_sent)" -eq "$PARTS" ]
}

@test "an upload in which nothing moves is cut, and the next run goes on" {
	settings '{"part_size": 11534336}' # more than the sockets between us take
	mock_faults vco '[{"on": "PUT .*upload-part/2", "do": "stall", "read": 65536, "seconds": 30}]'
	go --stall-timeout=2 --tries=1
	expect_status 7
	expect_in "$out" "no byte moved"
	mock_no_faults vco
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 resumed_from 11534336
}

@test "an image that is not ready in time is waited for by the next run" {
	settings '{"ready_s": 8}'
	use be-g8-3 "ready_timeout: 1"
	go
	expect_status 7
	expect_in "$out" "is not ready yet"
	expect_value "$IMAGE" vco/be-g8-3 id "$(image be-g8-3 image_id)"
	use be-g8-3
	go
	expect_status 0
	expect_value "$IMAGE" vco/be-g8-3 bytes_sent 0
	[ "$(images be-g8-3)" -eq 1 ]
}

@test "a list that is none is an error, and not an empty one" {
	for body in '<html>sign in</html>' '{"result": null}' '[]' 'null' '{"result": [{"name": "'"$NAME"'"}]}'; do
		mock_faults vco "[{\"on\": \"GET .*vm-images$\", \"do\": \"reply\", \"body\": $(jq -n --arg b "$body" '$b')}]"
		go
		expect_status 1
		[ "$(mock_writes vco)" -eq 0 ]
	done
}

@test "an upload that does not say its parts is an error" {
	for body in '{}' '{"upload_id": "a", "object_name": "b", "part_size": 1}' \
		'{"upload_id": "", "object_name": "b", "part_size": 5242880}' '"x"'; do
		mock_faults vco "[{\"on\": \"POST .*upload-vm-image\", \"do\": \"reply\", \"body\": $(jq -n --arg b "$body" '$b')}]"
		go
		expect_status 1
		expect_in "$out" "did not tell its id, object and part size"
		[ "$(parts_sent)" -eq 0 ]
	done
}

@test "--plan asks and writes nothing; --abort tells of an upload and forgets it on demand" {
	go --plan
	expect_status 0
	expect_in "$out" planned
	[ "$(mock_writes vco)" -eq 0 ]
	mock_faults vco '[{"on": "PUT .*upload-part/2", "do": "status", "status": 413}]'
	go
	expect_status 1
	mock_reset vco
	go --abort
	expect_status 0
	expect_in "$out" "the platform drops it by itself"
	[ -e "$IMAGE.publish-state.json" ]
	go --abort --remove
	expect_status 0
	expect_in "$out" forgotten
	[ ! -e "$IMAGE.publish-state.json" ]
	[ "$(mock_writes vco)" -eq 0 ]
}
