#!/usr/bin/env bats
# 'gpuimg publish' to a server that fails on demand (tests/publish/fault-server.py): what real
# servers and what stands before them do now and then, for web servers, S3 and registries.

load ../lib/common
load ../lib/servers
load ../lib/publish

setup_file() {
	need_programs python3 jq qemu-img openssl
	servers_begin
	mkdir "$SERVERS/tls"
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 \
		-keyout "$SERVERS/tls/key.pem" -out "$SERVERS/tls/cert.pem" 2>/dev/null
	FAULT_PORT=$(start_mock fault fault-server.py)
	OTHER_PORT=$(start_mock other fault-server.py)
	TLS_PORT=$(start_mock tls fault-server.py)
	export FAULT_PORT OTHER_PORT TLS_PORT FAULT_IMAGE=$BATS_FILE_TMPDIR/node.qcow2
	export FAULT_PASSWORD=s3cret-password FAULT_KEY=s3cret-key
	publish_image "$FAULT_IMAGE" 36
}

teardown_file() {
	servers_end
}

setup() {
	IMAGE=$BATS_TEST_TMPDIR/node.qcow2
	ln "$FAULT_IMAGE" "$IMAGE"
	cp "${FAULT_IMAGE%.qcow2}.manifest.json" "${IMAGE%.qcow2}.manifest.json"
	SUM=$(sha256_of "$IMAGE")
	SIZE=$(stat -c %s "$IMAGE")
	TARGETS=$BATS_TEST_TMPDIR/targets.yaml
	VERSION=v$BATS_TEST_NUMBER
	DIR=node/$VERSION/$SUM
	PART=16777216
	mock_reset fault
	mock_reset other
	mock_reset tls
}

teardown() {
	no_secrets "$BATS_TEST_TMPDIR" "$SERVERS/fault/log"
}

# use web|s3|oci|tls [LINE...]: the one target, and further settings of it.
use() {
	local base
	case $1 in
	web | tls)
		base=$([ "$1" = web ] && echo "http://127.0.0.1:$FAULT_PORT" || echo "https://127.0.0.1:$TLS_PORT")
		cat <<-YAML
			targets:
			  t:
			    type: http
			    url: $base/web
			    user: alice
			    password: {env: FAULT_PASSWORD}
			    $([ "$1" = web ] || echo "ca_file: $SERVERS/tls/cert.pem")
		YAML
		;;
	s3)
		cat <<-YAML
			targets:
			  t:
			    type: s3
			    endpoint: http://127.0.0.1:$FAULT_PORT
			    bucket: images
			    access_key: {env: FAULT_ACCESS}
			    secret_key: {env: FAULT_KEY}
		YAML
		;;
	oci)
		cat <<-YAML
			targets:
			  t:
			    type: oci
			    repository: 127.0.0.1:$FAULT_PORT/team/r$BATS_TEST_NUMBER
			    user: alice
			    password: {env: FAULT_PASSWORD}
		YAML
		;;
	esac >"$TARGETS"
	export FAULT_ACCESS=test-key
	shift
	[ $# -eq 0 ] || printf '    %s\n' "$@" >>"$TARGETS"
}

go() { # further options
	publish "$IMAGE" --image-version="$VERSION" "$@"
}

stored() { # PATH: SHA-256 of what lies there
	local name=${1//\//%2F}
	cat "$SERVERS/fault/stored/${name//:/%3A}" 2>/dev/null || echo nothing
}

expect_sent() { # bytes of the image
	expect_value "$IMAGE" t/default bytes_sent "$1"
}

# go_bounded OPTION...: the same, within 30 s and $rss KiB.
go_bounded() {
	local script='import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print("rss", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)'
	run_split timeout 60 python3 -c "$script" \
		"$GPUIMG" publish -t "$TARGETS" "$IMAGE" --image-version="$VERSION" "$@"
	rss=$(sed -n 's/^rss //p' <<<"$err")
	[ "${seconds%.*}" -lt 30 ]
	[ "$rss" -lt 131072 ] || {
		echo "peak memory $rss KiB"
		return 1
	}
}

# --- S3: the end of a multipart upload -----------------------------------------------------------

@test "s3: an upload's end that says 200 with an error in it is a failure, and nothing is sent again" {
	use s3
	mock_faults fault '[{"on": "POST .*uploadId=", "do": "status", "status": 200,
		"body": "<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>"}]'
	go
	expect_status 7
	expect_in "$out" InternalError
	[ "$(stored "/images/$DIR/node.qcow2")" = nothing ]
	mock_reset fault
	go
	expect_status 0
	expect_sent 0
	[ "$(stored "/images/$DIR/node.qcow2")" = "$SUM" ]
}

@test "s3: an end that says an error, and has made the object, is none" {
	use s3
	mock_faults fault '[{"on": "POST .*uploadId=", "do": "reply", "status": 200,
		"body": "<Error><Code>InternalError</Code></Error>"}]'
	go
	expect_status 0
	expect_value "$IMAGE" t/default verified "read back"
	[ "$(mock_count fault '^POST .*uploadId=')" -eq 1 ]
}

@test "s3: an end whose reply is lost is looked after" {
	use s3
	mock_faults fault '[{"on": "POST .*uploadId=", "do": "lost"}]'
	go
	expect_status 0
	[ "$(mock_count fault '^POST .*uploadId=')" -eq 1 ]
	[ "$(stored "/images/$DIR/node.qcow2")" = "$SUM" ]
}

@test "s3: an end that never arrived is done by the next run, without a part sent twice" {
	use s3
	mock_faults fault '[{"on": "POST .*uploadId=", "do": "drop"}]'
	go
	expect_status 7
	mock_reset fault
	go
	expect_status 0
	expect_sent 0
	[ "$(mock_count fault '^PUT .*partNumber=')" -eq 0 ]
}

@test "s3: a lost reply to the begin is asked again" {
	use s3
	mock_faults fault '[{"on": "POST .*uploads=", "do": "lost"}]'
	go
	expect_status 0
}

@test "s3: a wrong ETag of a part is refused at the end, and put right by the next run" {
	use s3
	mock_faults fault '[{"on": "PUT .*partNumber=2", "do": "headers",
		"headers": {"ETag": "\"00000000000000000000000000000000\""}}]'
	go
	expect_status 7
	expect_in "$out" InvalidPart
	mock_reset fault
	go
	expect_status 0
	expect_sent 0
	[ "$(stored "/images/$DIR/node.qcow2")" = "$SUM" ]
}

@test "s3: a part without an ETag is an error" {
	use s3
	mock_faults fault '[{"on": "PUT .*partNumber=2", "do": "reply", "status": 200}]'
	go
	expect_status 1
	expect_in "$out" "part 2: the server took it and gave no ETag"
}

@test "s3: an upload that the server has forgotten may be begun anew" {
	use s3
	mock_faults fault '[{"on": "PUT .*partNumber=3", "do": "call", "name": "forget"}]'
	go
	expect_status 7
	expect_in "$out" NoSuchUpload
	mock_reset fault
	go
	expect_status 0
	expect_sent "$SIZE"
	[ "$(stored "/images/$DIR/node.qcow2")" = "$SUM" ]
}

@test "s3: credentials that end in the middle are told; a run with fresh ones sends the rest" {
	use s3 'upload_concurrency: 1'
	mock_faults fault '[{"on": "PUT .*partNumber=2", "do": "status", "status": 403,
		"body": "<Error><Code>ExpiredToken</Code></Error>"}]'
	go
	expect_status 7
	expect_in "$out" ExpiredToken
	expect_in "$out" 'fresh credentials'
	mock_reset fault
	go
	expect_status 0
	expect_value "$IMAGE" t/default resumed_from "$PART"
	expect_sent $((SIZE - PART))
}

@test "s3: credentials that end before the upload is completed, too" {
	use s3
	mock_faults fault '[{"on": "POST .*uploadId=", "do": "status", "status": 400,
		"body": "<Error><Code>ExpiredToken</Code></Error>"},
		{"on": "HEAD ", "do": "status", "status": 400, "skip": 2, "times": 9}]'
	go
	expect_status 7
	expect_in "$out" 'fresh credentials'
	mock_reset fault
	go
	expect_status 0
	expect_sent 0
}

@test "credentials that end while it is read back are no usage error either" {
	use s3
	mock_faults fault '[{"on": "GET .*node.qcow2", "do": "status", "status": 400,
		"body": "<Error><Code>ExpiredToken</Code></Error>"}]'
	go
	expect_status 7
	use web
	mock_faults fault '[{"on": "GET .*node.qcow2", "do": "status", "status": 401}]'
	go
	expect_status 7
	mock_reset fault
	go
	expect_status 0
	expect_sent 0
}

@test "s3: credentials that were never good are a usage error, run out or not" {
	use s3
	mock_faults fault '[{"on": "GET", "do": "status", "status": 403, "times": 99,
		"body": "<Error><Code>ExpiredToken</Code></Error>"}]'
	go
	expect_status 2
	expect_in "$out" ExpiredToken
}

@test "s3: an end that is forbidden is not a matter of running again" {
	use s3
	mock_faults fault '[{"on": "POST .*uploadId=", "do": "status", "status": 403,
		"body": "<Error><Code>AccessDenied</Code></Error>"}]'
	go
	expect_status 2
	expect_in "$out" AccessDenied
}

@test "s3: a try again is signed anew, so that its date is not an old one" {
	use s3
	mock_faults fault '[{"on": "PUT .*partNumber=2", "do": "status", "status": 503}]'
	go
	expect_status 0
	[ "$(grep -c '^PUT .*partNumber=2' "$SERVERS/fault/log")" -ge 2 ]
	[ "$(grep '^date PUT .*partNumber=2' "$SERVERS/fault/dates" | sort -u | wc -l)" -ge 2 ]
}

upload_xml() { # KEY ID INITIATED
	printf '<Upload><Key>%s</Key><UploadId>%s</UploadId><Initiated>%s</Initiated></Upload>' "$@"
}

@test "s3: --abort --remove reads every page, and leaves what another publisher may be sending" {
	local old=2020-01-01T00:00:00.000Z now mine=node/$VERSION/$SUM/node.qcow2 one two
	use s3
	now=$(date -u +%FT%T.000Z)
	one="<R>$(upload_xml node/1/aa/node.qcow2 id-old $old)$(upload_xml node/1/bb/node.qcow2 id-new "$now")<IsTruncated>true</IsTruncated><NextKeyMarker>node/1/bb</NextKeyMarker><NextUploadIdMarker>id-new</NextUploadIdMarker></R>"
	two="<R>$(upload_xml "$mine" id-mine "$now")$(upload_xml other/1/node.qcow2 id-other $old)<IsTruncated>false</IsTruncated></R>"
	mock_faults fault "$(jq -n --arg one "$one" --arg two "$two" '[
		{"on": "GET .*key-marker=node%2F1%2Fbb.*upload-id-marker=id-new", "do": "status", "status": 200, "body": $two, "times": 2},
		{"on": "GET .*uploads=", "do": "status", "status": 200, "body": $one, "times": 2}]')"
	go --abort
	expect_status 0
	[ "$(grep -c 'upload id-' <<<"$out")" -eq 3 ]
	[ "$(grep -c '^DELETE' "$SERVERS/fault/log")" -eq 0 ]
	go --abort --remove
	expect_status 0
	expect_in "$out" "id-new of node/1/bb/node.qcow2: kept"
	expect_in "$(grep '^DELETE' "$SERVERS/fault/log")" id-old
	expect_in "$(grep '^DELETE' "$SERVERS/fault/log")" id-mine
	[ "$(grep -c '^DELETE' "$SERVERS/fault/log")" -eq 2 ]
}

@test "s3: garbage in the place of XML is an error, or means that nothing is known" {
	use s3
	mock_faults fault '[{"on": "POST .*uploads=", "do": "status", "status": 200, "body": "<html>sign in"}]'
	go
	expect_status 1
	expect_in "$out" "did not name it"
	mock_faults fault '[{"on": "PUT .*partNumber=3", "do": "status", "status": 403}]'
	go
	expect_status 2
	mock_faults fault '[{"on": "GET .*uploadId=", "do": "status", "status": 200, "body": "\u0000<Part><Part>"},
		{"on": "POST .*uploadId=", "do": "status", "status": 200, "body": "<html>done</html>"}]'
	go
	expect_status 7
	mock_no_faults fault
	go
	expect_status 0
	[ "$(stored "/images/$DIR/node.qcow2")" = "$SUM" ]
}

# --- What was stored is not what was sent --------------------------------------------------------

check_wrong_bytes() { # BACKEND, REGEX of the GET, PATH stored, KIND and its settings
	use "$1"
	mock_faults fault "[{\"on\": \"$2\", $4}]"
	go
	expect_status 5
	expect_in "$out" "what was stored is not what was sent"
	[ "$(mock_count fault '^PUT .*(index.json|SHA256SUMS)')" -eq 0 ]
	mock_reset fault
	go
	expect_status 0
	expect_sent "$SIZE"
	[ "$(stored "$3")" = "$SUM" ]
}

@test "s3: a right ETag with wrong bytes is found, gets no name, and is sent anew" {
	check_wrong_bytes s3 '^GET .*qcow2' "/images/$DIR/node.qcow2" '"do": "flip"'
}

@test "web: wrong bytes are found, get no name, and are sent anew" {
	check_wrong_bytes web '^GET .*qcow2' "/web/$DIR/node.qcow2" '"do": "flip"'
}

@test "web: more bytes than were sent are found" {
	check_wrong_bytes web '^GET .*qcow2' "/web/$DIR/node.qcow2" '"do": "longer", "bytes": 1'
}

@test "web: a file that never ends is not read to its end" {
	use web
	mock_faults fault '[{"on": "^GET .*qcow2", "do": "endless-body"}]'
	go_bounded
	expect_status 5
	expect_in "$out" "it is longer"
}

@test "registry: wrong bytes are found by --verify=full" {
	use oci
	mock_faults fault '[{"on": "^GET .*blobs/", "do": "flip"}]'
	go --verify=full
	expect_status 5
	expect_in "$out" "what was stored is not what was sent"
}

@test "registry: a layer that never ends is not read to its end" {
	use oci
	mock_faults fault '[{"on": "^GET .*blobs/", "do": "endless-body"}]'
	go_bounded --verify=full
	expect_status 5
}

@test "registry: another digest than ours for what it stored is a failure" {
	use oci
	mock_faults fault '[{"on": "PUT .*manifests/v", "do": "headers", "headers":
		{"Docker-Content-Digest": "sha256:0000000000000000000000000000000000000000000000000000000000000000"}}]'
	go
	expect_status 5
	expect_in "$out" "what was stored is not what was sent"
}

# --- Lost replies --------------------------------------------------------------------------------

@test "web: a lost reply to a move is looked after, and one that never arrived is made good" {
	use web
	mock_faults fault '[{"on": "^MOVE ", "do": "lost"}]'
	go
	expect_status 0
	[ "$(mock_count fault '^MOVE ')" -eq 1 ]
	[ "$(stored "/web/$DIR/node.qcow2")" = "$SUM" ]
	VERSION=${VERSION}b
	mock_faults fault '[{"on": "^MOVE ", "do": "drop"}]'
	go
	expect_status 7
	mock_reset fault
	go
	expect_status 0
	expect_sent 0
}

@test "web: a gateway that gives up at the move, which goes on behind it" {
	use web
	mock_faults fault '[{"on": "^MOVE ", "do": "later", "status": 502, "seconds": 1}]'
	go
	expect_status 7
	sleep 1.5
	mock_reset fault
	go
	expect_status 0
	expect_sent 0
	[ "$(mock_count fault '^MOVE ')" -eq 0 ]
}

@test "web: lost replies to the other requests are asked again" {
	use web
	mock_faults fault '[{"on": "^PUT .*qcow2", "do": "lost"}, {"on": "^PUT .*SHA256SUMS", "do": "drop"},
		{"on": "^PUT .*index.json", "do": "lost"}, {"on": "^HEAD ", "do": "drop"}]'
	go
	expect_status 0
	[ "$(stored "/web/$DIR/node.qcow2")" = "$SUM" ]
}

@test "registry: a lost reply to a blob is looked after, and the blob not sent again" {
	use oci
	mock_faults fault '[{"on": "^PUT .*blobs/uploads/", "do": "lost"}]'
	go
	expect_status 0
	[ "$(mock_count fault '^PUT .*blobs/uploads/.* lost ')" -eq 1 ]
	[ "$(mock_count fault '^PUT .*blobs/uploads/')" -eq 2 ] # the layer and the config
}

@test "registry: lost replies to begin, manifest and tag" {
	use oci
	mock_faults fault '[{"on": "^POST .*uploads/", "do": "lost"}, {"on": "^PUT .*manifests/sha256", "do": "lost"},
		{"on": "^PUT .*manifests/v", "do": "lost"}]'
	go
	expect_status 0
	expect_value "$IMAGE" t/default verified registry-digest
	[ "$(mock_count fault '^PUT .*manifests/v')" -eq 1 ]
}

@test "registry: chunks of an upload that it forgot begin anew" {
	use oci "chunk_bytes: 8388608"
	mock_faults fault '[{"on": "^PATCH ", "do": "call", "name": "forget", "skip": 2}]'
	go
	expect_status 0
	[ "$(stored "/v2/team/r$BATS_TEST_NUMBER/blobs/$(record_value "$IMAGE" t/default layer)")" != nothing ]
}

@test "registry: a token that ends in the middle is fetched anew" {
	use oci
	mock_faults fault "[{\"on\": \"^PUT .*blobs/uploads/\", \"do\": \"early\", \"status\": 401, \"read\": 0,
		\"headers\": {\"WWW-Authenticate\": \"Bearer realm=\\\"http://127.0.0.1:$FAULT_PORT/token\\\",service=\\\"x\\\"\"}}]"
	go
	expect_status 0
	[ "$(mock_count fault '^GET /token')" -ge 2 ]
}

# --- Refusals ------------------------------------------------------------------------------------

body_of() { # BACKEND: a regex of the request that has the image's bytes
	case $1 in
	web) echo '^PUT .*qcow2' ;;
	s3) echo '^PUT .*partNumber=2' ;;
	oci) echo '^PUT .*blobs/uploads/' ;;
	esac
}

check_early() { # BACKEND: 100 Continue, some of the body, and then a refusal
	use "$1"
	mock_faults fault "[{\"on\": \"$(body_of "$1")\", \"do\": \"early\", \"status\": 401, \"read\": 65536,
		\"body\": \"who are you\", \"times\": 9}]"
	go
	expect_status 2
	expect_in "$out" "401"
	[ "$(wc -l <"$SERVERS/fault/fired")" -eq 1 ]
	mock_reset fault
	go
	expect_status 0
}

@test "web: 100 Continue and then 401 is a refusal like any other" {
	check_early web
}

@test "s3: 100 Continue and then 401 is a refusal like any other" {
	check_early s3
}

@test "registry: 100 Continue and then 401 is a refusal like any other" {
	check_early oci
}

check_final() { # BACKEND STATUS...: asked once
	local backend=$1 code
	shift
	use "$backend"
	for code; do
		mock_faults fault "[{\"on\": \"$(body_of "$backend")\", \"do\": \"status\", \"status\": $code, \"times\": 9}]"
		go
		expect_status 1
		expect_in "$out" "the server says $code"
		[ "$(wc -l <"$SERVERS/fault/fired")" -eq 1 ]
	done
}

@test "web: 413, 416 and 507 are final" {
	check_final web 413 416 507
}

@test "s3: 413, 416 and 507 are final" {
	check_final s3 413 416 507
}

@test "registry: 413 and 507 are final" { # 416 is of a chunk, and begins the upload anew
	check_final oci 413 507
}

check_retry_after() { # BACKEND
	use "$1"
	mock_faults fault "[{\"on\": \"$(body_of "$1")\", \"do\": \"status\", \"status\": 429, \"headers\": {\"Retry-After\": \"4\"}}]"
	go
	expect_status 0
	[ "${seconds%.*}" -ge 4 ]
	[ "${seconds%.*}" -lt 15 ]
}

@test "web: 429 is asked again when the server said" {
	check_retry_after web
}

@test "s3: 429 is asked again when the server said" {
	check_retry_after s3
}

@test "registry: 429 is asked again when the server said" {
	check_retry_after oci
}

check_busy() { # BACKEND: 503 without an end
	use "$1"
	mock_faults fault "[{\"on\": \"$(body_of "$1")\", \"do\": \"status\", \"status\": 503, \"times\": 99}]"
	go --tries=2
	expect_status 7
	expect_in "$out" 503
	expect_value "$IMAGE" t/default resumable True
	mock_reset fault
	go
	expect_status 0
}

@test "web: 503 without an end is exit code 7" {
	check_busy web
}

@test "s3: 503 without an end is exit code 7" {
	check_busy s3
}

@test "registry: 503 without an end is exit code 7" {
	check_busy oci
}

# --- Time ----------------------------------------------------------------------------------------

check_slow() { # BACKEND: the server works on a body that it has whole
	use "$1"
	mock_faults fault "[{\"on\": \"$(body_of "$1")\", \"do\": \"slow\", \"seconds\": 6}]"
	go --stall-timeout=2 --tries=1
	expect_status 0
	[ "$(wc -l <"$SERVERS/fault/fired")" -eq 1 ]
}

@test "web: work that takes longer than the stall time is not cut" {
	check_slow web
}

@test "s3: work that takes longer than the stall time is not cut" {
	check_slow s3
}

@test "registry: work that takes longer than the stall time is not cut" {
	check_slow oci
}

check_stall() { # BACKEND
	use "$1"
	mock_faults fault "[{\"on\": \"$(body_of "$1")\", \"do\": \"stall\", \"read\": 65536, \"seconds\": 60, \"times\": 9}]"
	go --stall-timeout=2 --tries=1
	expect_status 7
	expect_in "$out" "no byte moved for too long"
	mock_reset fault
	go
	expect_status 0
}

@test "web: a body that does not move is cut" {
	check_stall web
}

@test "s3: a body that does not move is cut" {
	check_stall s3
}

@test "registry: a body that does not move is cut" {
	check_stall oci
}

# --- Redirects -----------------------------------------------------------------------------------

redirect() { # ON STATUS TARGET [TIMES]
	echo "[{\"on\": \"$1\", \"do\": \"status\", \"status\": $2, \"times\": ${4:-1}, \"headers\": {\"Location\": \"$3\"}}]"
}

check_body_redirect() { # BACKEND
	use "$1"
	mock_faults fault "$(redirect "$(body_of "$1")" 307 "http://127.0.0.1:$OTHER_PORT/elsewhere")"
	go
	expect_status 1
	expect_in "$out" "the server says 307"
	[ ! -s "$SERVERS/other/log" ]
}

@test "web: bytes are not sent elsewhere" {
	check_body_redirect web
}

@test "s3: bytes are not sent elsewhere" {
	check_body_redirect s3
}

@test "registry: bytes are not sent elsewhere by a redirect" {
	check_body_redirect oci
}

@test "s3: a signed GET is not redirected" {
	use s3
	mock_faults fault "$(redirect '^GET .*qcow2' 302 "http://127.0.0.1:$OTHER_PORT/elsewhere")"
	go
	expect_status 1
	[ ! -s "$SERVERS/other/log" ]
}

@test "web: reading back follows to another host, without credentials" {
	use web
	mock_faults fault "$(redirect '^GET .*qcow2' 302 "http://127.0.0.1:$OTHER_PORT/web/there")"
	go
	expect_status 2
	[ "$(mock_count other '^GET /web/there 401 0 anonymous')" -eq 1 ]
	[ "$(mock_count other ' auth$')" -eq 0 ]
}

@test "web: a redirect on the same host keeps the credentials, and one without an end has one" {
	use web
	mock_faults fault "$(redirect '^GET /web/node/index.json' 302 /web/moved.json)"
	go
	expect_status 0
	[ "$(mock_count fault '^GET /web/moved.json 404 0 auth')" -eq 1 ]
	VERSION=${VERSION}b
	mock_faults fault "$(redirect '^GET /web/' 302 "http://127.0.0.1:$FAULT_PORT/web/round" 99)"
	go --tries=1
	expect_status 1
	expect_in "$out" "the server says 302"
	[ "$(mock_count fault '^GET /web/round')" -le 10 ]
}

@test "registry: a blob's place on another host gets no credentials" {
	use oci
	mock_faults fault "[{\"on\": \"^POST .*uploads/\", \"do\": \"headers\",
		\"headers\": {\"Location\": \"http://127.0.0.1:$OTHER_PORT/v2/x/blobs/uploads/1\"}}]"
	go
	[ "$status" -ne 0 ]
	[ "$(mock_count other ' anonymous$')" -ge 1 ]
	[ "$(mock_count other ' auth$')" -eq 0 ]
	! grep -q "127.0.0.1:$OTHER_PORT" "$IMAGE.publish-state.json"
}

@test "web: from https no redirect leads down to http" {
	use tls
	mock_faults tls "$(redirect '^GET .*index.json' 302 "http://127.0.0.1:$OTHER_PORT/web/node/index.json")"
	go
	expect_status 1
	expect_in "$out" "the server says 302"
	[ ! -s "$SERVERS/other/log" ]
	mock_reset tls
	go
	expect_status 0
}

# --- Replies that no client would think of -------------------------------------------------------

first_of() { # BACKEND: a regex of the first question
	case $1 in
	web | s3) echo '^GET .*index.json' ;;
	oci) echo '^GET /token' ;;
	esac
}

check_endless() { # BACKEND
	use "$1"
	mock_faults fault "[{\"on\": \"$(first_of "$1")\", \"do\": \"endless-headers\"}]"
	go_bounded
	expect_status 3
	expect_in "$out" "the reply is too large"
	mock_faults fault "[{\"on\": \"$(first_of "$1")\", \"do\": \"endless-body\"}]"
	go_bounded
	expect_status 3
	expect_in "$out" "the reply is too large"
	mock_faults fault "[{\"on\": \"$(first_of "$1")\", \"do\": \"endless-body\", \"status\": 400}]"
	go_bounded
	expect_status 3
	[ "$(mock_writes fault)" -eq 0 ]
}

@test "web: headers and bodies without an end are bounded" {
	check_endless web
}

@test "s3: headers and bodies without an end are bounded" {
	check_endless s3
}

@test "registry: headers and bodies without an end are bounded" {
	check_endless oci
}

@test "web: garbage in the place of the index is refused, and stays" {
	use web
	for body in '<html>' '[1]' '{"schema": 99}' '{"schema": 1, "versions": []}'; do
		mock_faults fault "[{\"on\": \"^GET .*index.json\", \"do\": \"status\", \"status\": 200,
			\"body\": $(jq -n --arg b "$body" '$b')}]"
		go
		expect_status 4
		expect_in "$out" "index.json is not one of ours"
		[ "$(mock_writes fault)" -eq 0 ]
	done
}

@test "registry: garbage in the place of a token is told" {
	use oci
	for body in '<html>' '{"token": 7}' '{"token": "a\nX: b"}' 'null'; do
		mock_faults fault "[{\"on\": \"^GET /token\", \"do\": \"status\", \"status\": 200,
			\"body\": $(jq -n --arg b "$body" '$b')}]"
		go
		[ "$status" -ne 0 ]
		expect_in "$out" "answered without a token"
		[ "$(mock_writes fault)" -eq 0 ]
	done
}

@test "a server's error text is shown without the secrets that it repeats" {
	use web
	mock_faults fault '[{"on": "^GET .*index.json", "do": "status", "status": 400,
		"body": "no such user: alice, s3cret-password \u001b[31m YWxpY2U6czNjcmV0LXBhc3N3b3Jk"}]'
	go
	expect_status 1
	expect_in "$out" "no such user: alice, ***"
	expect_not_in "$out" $'\033'
}

@test "web: credentials that run out on the way end with 7, and fresh ones send nothing twice" {
	use web
	mock_faults fault '[{"on": "^MOVE ", "do": "status", "status": 401}]'
	go
	expect_status 7
	expect_in "$out" "run again with fresh ones"
	go
	expect_status 0
	expect_sent 0
	[ "$(stored "/web/$DIR/node.qcow2")" = "$SUM" ]
}

@test "registry: a token that runs out on the way ends with 7, and a fresh one goes on" {
	local first
	first=$(curl -s -u "alice:$FAULT_PASSWORD" "http://127.0.0.1:$FAULT_PORT/token" | jq -r .token)
	use oci "token: {env: FAULT_TOKEN}" "chunk_bytes: 8M"
	sed -i '/user:\|password:/d' "$TARGETS"
	mock_faults fault '[{"on": "^PATCH .*blobs/uploads/", "do": "status", "status": 401, "skip": 1, "times": 9,
		"headers": {"WWW-Authenticate": "Bearer realm=\"http://127.0.0.1/token\""}}]'
	FAULT_TOKEN=$first go
	expect_status 7
	expect_in "$out" "run again with fresh ones"
	mock_no_faults fault
	FAULT_TOKEN=$first go
	expect_status 0
	expect_value "$IMAGE" t/default resumed_from $((8 * 1024 * 1024))
	# one that was never good is wrong
	VERSION=${VERSION}b
	FAULT_TOKEN=s3cret-never go --replace
	expect_status 2
}

@test "the search for secrets finds each form of one" {
	local place=$BATS_TEST_TMPDIR/leak form
	for form in "$FAULT_PASSWORD" "$(printf 'alice:%s' "$FAULT_PASSWORD" | base64)" \
		"$(printf 'a:%s' "$FAULT_PASSWORD" | base64)" "$(printf 'ab:%s' "$FAULT_PASSWORD" | base64)" \
		"$(printf %s "$FAULT_PASSWORD" | base64)" "https://host/x?X-Amz-Signature=00" \
		"AWS4-HMAC-SHA256 Signature=00" "X-Auth-Token: gAAAAABn"; do
		echo "x $form y" >"$place"
		if no_secrets "$BATS_TEST_TMPDIR"; then return 1; fi
	done
	rm "$place"
	no_secrets "$BATS_TEST_TMPDIR"
}
