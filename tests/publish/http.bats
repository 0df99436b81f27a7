#!/usr/bin/env bats
# 'gpuimg publish' to web servers with DAV: nginx and apache2, both as own instances.

load ../lib/common
load ../lib/servers
load ../lib/publish

setup_file() {
	need_root
	need_programs nginx apache2 openssl python3 curl
	servers_begin
	start_nginx
	start_apache
	start_gate nginx "$NGINX_PORT"
	export NGINX_GATE=$GATE NGINX_GATE_PORT=$GATE_PORT
	start_gate apache "$APACHE_PORT"
	export APACHE_GATE=$GATE APACHE_GATE_PORT=$GATE_PORT
	export WEB_IMAGE=$BATS_FILE_TMPDIR/node.qcow2 IMAGES_PASSWORD=s3cret-password
	publish_image "$WEB_IMAGE" 24
}

teardown_file() {
	for server in nginx apache; do
		publish_row http "$server" "$(cell_of "publish-$server")" "$(cell_of "again-$server")" \
			"$(cell_of "killed-$server")" "$(cell_of "wrong-$server")" "$(cell_of "verified-$server")"
	done
	servers_end
}

setup() {
	IMAGE=$BATS_TEST_TMPDIR/node.qcow2
	publish_take "$WEB_IMAGE"
	TARGETS=$BATS_TEST_TMPDIR/targets.yaml
}

# use SERVER: a directory of this test's own on it. By the gate, which a rule can stop.
use() {
	case $1 in
	nginx) root=$NGINX_ROOT log=$NGINX_LOG port=$NGINX_GATE_PORT GATE=$NGINX_GATE ;;
	apache) root=$APACHE_ROOT log=$APACHE_LOG port=$APACHE_GATE_PORT GATE=$APACHE_GATE ;;
	esac
	area=t$BATS_TEST_NUMBER
	root=$root/$area
	install -d -o www-data "$root"
	stored=$root/node/1.0/$SUM/node.qcow2
	cat >"$TARGETS" <<-YAML
		targets:
		  web:
		    type: http
		    url: http://127.0.0.1:$port/$area
		    user: alice
		    password: {env: IMAGES_PASSWORD}
		    ${2:-}
	YAML
}

# writes: requests in the server's own access log that change something and are this test's.
writes() {
	grep -E "^(PUT|MOVE|MKCOL|DELETE|POST|COPY|PROPPATCH) /$area" "$log" | wc -l
}

check_publish() {
	use "$1"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$stored"
	(cd "$(dirname "$stored")" && sha256sum -c --quiet SHA256SUMS)
	[ "$(jq -r '.versions["1.0"].sha256' "$root/node/index.json")" = "$SUM" ]
	expect_value "$IMAGE" web/default bytes_sent "$SIZE"
	expect_value "$IMAGE" web/default verified "read back"
	[ ! -e "$stored.part" ]
	no_secrets "$BATS_TEST_TMPDIR"
	cell "publish-$1" "same bytes"
	cell "verified-$1" "$(record_value "$IMAGE" web/default verified)"
	# and the second time
	local before
	before=$(writes)
	[ "$before" -gt 0 ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" web/default result unchanged
	[ "$(writes)" -eq "$before" ]
	cell "again-$1" "unchanged, $(($(writes) - before)) writes in the access log"
}

@test "nginx: an image is published byte for byte, and again without a write" {
	check_publish nginx
}

@test "apache: an image is published byte for byte, and again without a write" {
	check_publish apache
}

# Neither server keeps what came of a body that was cut: it has to be sent again, once.
check_killed() {
	use "$1"
	publish_killed bytes 8000000
	[ ! -e "$stored" ]
	[ ! -e "$root/node/index.json" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$stored"
	expect_value "$IMAGE" web/default bytes_sent "$SIZE"
	no_secrets "$BATS_TEST_TMPDIR"
	cell "killed-$1" "in a body: all $SIZE sent again (no resume in the protocol)"
}

@test "nginx: killed in the middle of the body, it sends it again" {
	check_killed nginx
}

@test "apache: killed in the middle of the body, it sends it again" {
	check_killed apache
}

check_killed_at() { # SERVER, REGEX of the request that is held
	use "$1"
	publish_killed line "$2"
	[ -e "$stored.part" ]
	[ ! -e "$stored" ]
	[ ! -e "$root/node/index.json" ]
	no_secrets "$BATS_TEST_TMPDIR"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$stored"
	expect_value "$IMAGE" web/default bytes_sent 0
	expect_value "$IMAGE" web/default resumed_from "$SIZE"
	[ ! -e "$stored.part" ]
	cell "killed-$1" "$(cell_of "killed-$1"); after it: 0 sent"
}

@test "nginx: killed after the body and before the move, it sends nothing again" {
	check_killed_at nginx '^MOVE '
}

@test "apache: killed after the body and before the move, it sends nothing again" {
	check_killed_at apache '^MOVE '
}

@test "nginx: killed after a move that it never heard of, it sends nothing again" {
	use nginx
	publish_killed line '^MOVE '
	mv "$stored.part" "$stored"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" web/default bytes_sent 0
	cmp "$IMAGE" "$stored"
}

@test "nginx: killed before the index, it sends nothing again" {
	use nginx
	publish_killed line '^PUT .*index.json'
	[ ! -e "$root/node/index.json" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" web/default bytes_sent 0
	[ "$(jq -r '.versions["1.0"].sha256' "$root/node/index.json")" = "$SUM" ]
}

check_wrong() {
	use "$1"
	IMAGES_PASSWORD=s3cret-other publish "$IMAGE" --image-version=1.0
	expect_status 2
	expect_in "$out" "401"
	expect_in "$out" "credentials"
	[ -z "$(ls -A "$root")" ]
	expect_value "$IMAGE" web/default bytes_sent 0
	no_secrets "$BATS_TEST_TMPDIR"
	cell "wrong-$1" "401: exit $status, nothing written"
}

@test "nginx: wrong credentials are told, and nothing is written" {
	check_wrong nginx
}

@test "apache: wrong credentials are told, and nothing is written" {
	check_wrong apache
}

check_two() {
	use "$1"
	publish_two
	[ "$(jq -r '.versions | keys | join(" ")' "$root/node/index.json")" = "1.0 2.0" ]
	cmp "$other" "$root/node/2.0/$(sha256_of "$other")/node.qcow2"
}

@test "nginx: two publishers at once both get into the index" {
	check_two nginx
}

@test "apache: two publishers at once both get into the index" {
	check_two apache
}

# direct SERVER_PORT: a targets file that goes around the gate.
direct() {
	sed "s/127.0.0.1:$port/127.0.0.1:$1/" "$TARGETS" >"$TARGETS.direct"
}

# The first one of two copies stands before its MOVE while the second one does all.
check_same() {
	use "$1"
	direct "$2"
	publish_copy
	gate_rule line '^MOVE '
	publish_background "$IMAGE" --image-version=1.0
	gate_wait
	run_split "$GPUIMG" publish -t "$TARGETS.direct" "$copy" --image-version=1.0
	expect_status 0
	gate_open
	wait "$publisher"
	cmp "$IMAGE" "$stored"
	[ ! -e "$stored.part" ]
	expect_value "$IMAGE" web/default verified "read back"
	[ "$(jq -r '.versions["1.0"].sha256' "$root/node/index.json")" = "$SUM" ]
}

@test "nginx: of two publishers of one image the slower one finds it in its place" {
	check_same nginx "$NGINX_PORT"
}

@test "apache: of two publishers of one image the slower one finds it in its place" {
	check_same apache "$APACHE_PORT"
}

check_lost_update() {
	use "$1"
	direct "$2"
	publish_overtaken "$TARGETS.direct" 2.0 test -e "$root/node/index.json"
	[ "$first $second" = "0 0" ]
	[ "$(jq -r '.versions | keys | join(" ")' "$root/node/index.json")" = "1.0 2.0" ]
}

@test "nginx: an index that overtakes another one loses nothing" {
	check_lost_update nginx "$NGINX_PORT"
}

@test "apache: an index that overtakes another one loses nothing" {
	check_lost_update apache "$APACHE_PORT"
}

# However long the first one stood, which nginx could not tell it.
@test "apache: an index is written only in the place of the one that was read" {
	use apache
	direct "$APACHE_PORT"
	publish_overtaking "$TARGETS.direct" 2.0
	[ "$first $second" = "0 0" ]
	grep "^PUT /$area/node/index.json 412" "$log"
	[ "$(jq -r '.versions | keys | join(" ")' "$root/node/index.json")" = "1.0 2.0" ]
	rm -r "$BATS_TEST_TMPDIR/other" "${IMAGE%.qcow2}.published.json"
	publish_overtaking "$TARGETS.direct" 3.0
	[ "$first $second" = "0 0" ]
	[ "$(jq -r '.versions | keys | join(" ")' "$root/node/index.json")" = "1.0 2.0 3.0" ]
}

@test "apache: of two images under one version the later one is refused" {
	use apache
	direct "$APACHE_PORT"
	publish_overtaking "$TARGETS.direct" 1.0
	[ "$first $second" = "4 0" ]
	expect_in "$(cat "$BATS_TEST_TMPDIR/background")" "another publisher has just put version '1.0'"
	[ "$(jq -r '.versions["1.0"].sha256' "$root/node/index.json")" = "$SUM" ]
}

# nginx keeps no condition: the first one overwrites, and the second one sees it when it looks again.
@test "nginx: of two images under one version one is refused, and the index names the other" {
	use nginx
	direct "$NGINX_PORT"
	publish_overtaken "$TARGETS.direct" 1.0 test -e "$root/node/index.json"
	[ "$first $second" = "0 4" ]
	expect_in "$(cat "$BATS_TEST_TMPDIR/direct")" "another publisher has just put version '1.0'"
	[ "$(jq -r '.versions["1.0"].sha256' "$root/node/index.json")" = "$(sha256_of "$other")" ]
}

@test "other content under the same version is refused, and put there with --replace" {
	local other before
	use nginx
	publish "$IMAGE" --image-version=1.0
	publish_other 4
	before=$(writes)
	publish "$other" --image-version=1.0
	expect_status 4
	expect_in "$out" "--replace"
	[ "$(writes)" -eq "$before" ]
	publish "$other" --image-version=1.0 --replace
	expect_status 0
	[ "$(jq -r '.versions["1.0"].sha256' "$root/node/index.json")" = "$(sha256_of "$other")" ]
}

check_changed() {
	use "$1"
	publish_changed 8000000 20000000
	[ ! -e "$stored" ]
	[ ! -e "$root/node/index.json" ]
}

@test "nginx: a file that changes while it is sent gets no name" {
	check_changed nginx
}

@test "apache: a file that changes while it is sent gets no name" {
	check_changed apache
}

@test "a plan writes nothing" {
	use nginx
	publish "$IMAGE" --image-version=1.0 --plan
	expect_status 0
	expect_in "$out" planned
	[ "$(writes)" -eq 0 ]
	[ ! -e "${IMAGE%.qcow2}.published.json" ]
}

@test "bytes that are stored wrong are found by reading back, and sent anew" {
	use nginx
	install -d -o www-data "$(dirname "$stored")"
	head -c "$SIZE" /dev/zero >"$stored"
	chown -R www-data "$root"
	publish "$IMAGE" --image-version=1.0
	expect_status 5
	[ ! -e "$root/node/index.json" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$stored"
}

@test "--abort lists what is left over, and removes it only when asked" {
	use nginx
	publish_killed line '^MOVE '
	[ -e "$stored.part" ]
	publish "$IMAGE" --image-version=1.0 --abort
	expect_status 0
	expect_in "$out" "node.qcow2.part"
	[ -e "$stored.part" ]
	publish "$IMAGE" --image-version=1.0 --abort --remove
	expect_status 0
	expect_in "$out" removed
	[ ! -e "$stored.part" ]
	[ ! -e "$IMAGE.publish-state.json" ]
}

@test "--verify=quick and none say what they did" {
	use apache
	publish "$IMAGE" --image-version=1.0 --verify=quick
	expect_status 0
	expect_value "$IMAGE" web/default verified size
	publish "$IMAGE" --image-version=2.0 --verify=none
	expect_status 0
	expect_value "$IMAGE" web/default verified none
}

@test "a server without MOVE takes the file at its place" {
	use nginx 'move: false'
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	cmp "$IMAGE" "$stored"
	run grep -c "^MOVE /$area" "$log"
	[ "$output" = 0 ]
}

@test "--json tells phases, progress and the end, one object a line" {
	use nginx
	publish "$IMAGE" --image-version=1.0 --json
	expect_status 0
	jq -e . "$BATS_TEST_TMPDIR/out" >/dev/null
	[ "$(jq -r 'select(.event == "end") | .result' "$BATS_TEST_TMPDIR/out")" = published ]
	jq -r 'select(.event == "phase") | .phase' "$BATS_TEST_TMPDIR/out" | grep -qx sends
	[ "$(jq -r 'select(.event == "result") | .record.results[0].result' "$BATS_TEST_TMPDIR/out")" = published ]
}

@test "consumers get what they need: Cozystack's entry, CDI's DataVolume" {
	use nginx
	publish "$IMAGE" --image-version=1.0 --consumer=cozystack
	expect_status 0
	python3 - "$BATS_TEST_TMPDIR/out" "http://127.0.0.1:$port/$area/node/1.0/$SUM/node.qcow2" <<-'PYTHON'
		import sys, yaml
		entry, = yaml.safe_load(open(sys.argv[1]))["images"]
		assert entry["url"] == sys.argv[2], entry
		assert entry["name"] == "node" and entry["storage"] == "1Gi", entry
		assert entry["os"] == {"family": "linux", "name": "debian", "version": "12"}, entry
	PYTHON
	publish "$IMAGE" --image-version=1.0 --consumer=cdi
	expect_status 0
	python3 - "$BATS_TEST_TMPDIR/out" "$SUM" <<-'PYTHON'
		import sys, yaml
		volume = yaml.safe_load(open(sys.argv[1]))
		assert volume["kind"] == "DataVolume", volume
		assert sys.argv[2] in volume["spec"]["source"]["http"]["url"], volume
		assert volume["spec"]["storage"]["resources"]["requests"]["storage"] == "1Gi", volume
	PYTHON
	publish "$IMAGE" --image-version=1.0 --consumer=kubevirt
	expect_status 2
	expect_in "$err" kubevirt
}

@test "a user without a password is refused before anything is asked" {
	use nginx
	sed -i '/password/d' "$TARGETS"
	publish "$IMAGE" --image-version=1.0
	expect_status 2
	expect_in "$out" "password"
}

@test "nginx: an image of 10 GB, mostly zeros, is stored and read back in little memory" {
	publish_big
	use nginx
	direct "$NGINX_PORT"
	TARGETS=$TARGETS.direct
	publish_watched web/default "read back"
	same_ends "$IMAGE" "$root/node/1.0"/*/node.qcow2
	rm -r "$root"
}
