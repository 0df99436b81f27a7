#!/usr/bin/env bats
# What: 'gpuimg publish' to real OCI registries: docker-registry open, with basic and token
#       authentication; what arrives is pulled by skopeo, which shares no code with ours.
# Why:  a registry's protocol is easy to speak nearly right.
# How:  bats tests/publish/oci.bats; needs docker-registry, apache2-utils, skopeo.

load ../lib/common
load ../lib/servers
load ../lib/publish

SIZE_MIB=40
LAYER_MORE=$((2 * 512 + 1024)) # two headers before, two blocks behind; the image is a multiple of 512

setup_file() {
	need_programs docker-registry htpasswd skopeo jq openssl
	servers_begin
	export OCI_PASSWORD="pw-$(openssl rand -hex 12)"
	export DIR=$BATS_FILE_TMPDIR
	mkdir -p "$DIR/home" "$DIR/seen" "$DIR/image" "$DIR/other"
	oci_registry "$DIR/open"
	oci_registry "$DIR/basic" htpasswd
	oci_registry "$DIR/token" token
	publish_image "$DIR/image/gpu-node.qcow2" "$SIZE_MIB"
	publish_image "$DIR/other/gpu-node.qcow2" 8
}

teardown_file() {
	servers_end
	if [ -h "$DIR/big" ]; then
		rm -rf "$(readlink "$DIR/big")"
	fi
	write_rows
}

setup() {
	export HOME=$DIR/home PASSWORD=$OCI_PASSWORD
	unset REGISTRY_AUTH_FILE DOCKER_CONFIG
	WORK=$BATS_TEST_TMPDIR/work
	mkdir -p "$WORK"
	ln "$DIR/image/gpu-node.qcow2" "$DIR/image/gpu-node.manifest.json" "$WORK/"
	IMAGE=$WORK/gpu-node.qcow2
	LAYER=$(($(stat -c %s "$IMAGE") + LAYER_MORE))
}

teardown() {
	local file
	# whatever a test left is looked through for secrets at the end
	for file in "$WORK"/*.json "$BATS_TEST_TMPDIR"/out "$BATS_TEST_TMPDIR"/err "$BATS_TEST_TMPDIR"/*.log; do
		[ ! -s "$file" ] || cp "$file" "$DIR/seen/$BATS_TEST_NUMBER-$(basename "$file")"
	done
}

# target SERVER REPOSITORY [LINE...]: a targets file for it; PORT= another way to it.
target() {
	local server=$1 repository=$2 port
	shift 2
	port=${PORT:-$(cat "$DIR/$server/port")}
	{
		printf 'targets:\n  %s:\n    type: oci\n    repository: 127.0.0.1:%s/%s\n' \
			"$server" "$port" "$repository"
		[ "$server" = open ] || printf '    user: alice\n    password: {env: PASSWORD}\n'
		[ $# -eq 0 ] || printf '    %s\n' "$@"
	} >"$WORK/targets.yaml"
}

send() {
	run_split "$GPUIMG" publish -v -t "$WORK/targets.yaml" "$@" "$IMAGE"
}

# send_behind [OPTION...]: the same in a session of its own, in the background; $behind.
send_behind() {
	setsid "$GPUIMG" publish -v -t "$WORK/targets.yaml" "$@" "$IMAGE" \
		>"$BATS_TEST_TMPDIR/behind.log" 2>&1 </dev/null 3>&- &
	behind=$!
}

kill_behind() {
	kill -9 -- "-$behind"
	wait "$behind" || true
}

record() { # jq filter of the only row
	jq -r ".results[0]$1" "$WORK/gpu-node.published.json"
}

expect_record() { # jq filter, value
	[ "$(record "$1")" = "$2" ] || {
		echo "$1 is '$(record "$1")', want '$2'"
		return 1
	}
}

write_rows() {
	local server wrong
	for server in open basic token; do
		wrong='needs none'
		[ "$server" = open ] || wrong=$(cell_of "$server-credentials")
		publish_row oci "docker-registry ($server)" "$(cell_of "$server-publish")" \
			"$(cell_of "$server-again")" "$(cell_of "$server-killed")" "$wrong" \
			"$(cell_of "$server-verified")"
	done
}

pull() { # server, reference, directory: by skopeo
	local creds=()
	[ "$1" = open ] || creds=(--src-creds "alice:$OCI_PASSWORD")
	rm -rf "$3"
	skopeo --override-arch amd64 copy -q --src-tls-verify=false "${creds[@]}" \
		"docker://127.0.0.1:$(cat "$DIR/$1/port")/$2" "dir:$3"
}

# expect_pulled SERVER REPOSITORY[:TAG]: without a tag by the one of the record; what a consumer gets is the image, alone, and qemu's.
expect_pulled() {
	local dir=$BATS_TEST_TMPDIR/pulled layer reference=$2
	case $reference in
	*[:@]*) ;;
	*) reference=$reference:$(record .tag) ;;
	esac
	pull "$1" "$reference" "$dir"
	layer=$dir/$(jq -r '.layers[0].digest' "$dir/manifest.json" | cut -d: -f2)
	[ "$(jq '.layers | length' "$dir/manifest.json")" -eq 1 ]
	[ "$(tar --numeric-owner -tvf "$layer" | awk '{ print $1, $2, $6 }')" = \
		"drwxr-xr-x 107/107 disk/"$'\n'"-r--r----- 107/107 disk/gpu-node.qcow2" ]
	tar -xOf "$layer" disk/gpu-node.qcow2 | cmp - "$IMAGE"
}

uploaded() { # server, repository: bytes of uploads that are not done
	find "$DIR/$1/data" -path "*/$2/_uploads/*/data" -printf '%s\n' 2>/dev/null |
		awk '{ sum += $1 } END { print sum + 0 }'
}

has_uploaded() { # server, repository, bytes
	[ "$(uploaded "$1" "$2")" -ge "$3" ]
}

# --- publish, again, other content ---------------------------------------------------------------

publish_and_again() { # server
	local before
	target "$1" team/gpu-node
	send --image-version=1.0+a
	expect_status 0
	expect_record .result published
	expect_record .verified registry-digest
	expect_record .tag 1.0_a
	expect_record .id "$(record .ref | sed 's/.*@//')"
	[ "$(record .bytes_sent)" -ge "$LAYER" ]
	[ ! -e "$IMAGE.publish-state.json" ]
	cell "$1-publish" "$(numfmt --to=iec "$(record .bytes_sent)") in $(printf %.1f "$seconds") s"
	cell "$1-verified" "$(record .verified)"
	expect_pulled "$1" team/gpu-node:1.0_a
	expect_pulled "$1" "team/gpu-node@$(record .id)"

	before=$(oci_writes "$DIR/$1")
	send --image-version=1.0+a
	expect_status 0
	expect_record .result unchanged
	expect_record .bytes_sent 0
	[ "$(oci_writes "$DIR/$1")" -eq "$before" ]
	cell "$1-again" "unchanged, 0 writes in $(printf %.1f "$seconds") s"
}

@test "an open registry takes the image once, and skopeo gets it back" {
	publish_and_again open
}

@test "so does a registry with a password" {
	publish_and_again basic
}

@test "so does a registry with a token server" {
	publish_and_again token
	[ -s "$DIR/token/tokens.d/tokens" ]
}

@test "the index names the platform and the config the variables" {
	target open team/env 'env: {INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE: ubuntu, N: 1}' 'tag: 7'
	send
	expect_status 0
	expect_record .tag 7
	curl -fsS -H 'Accept: application/vnd.oci.image.index.v1+json' \
		"http://127.0.0.1:$(cat "$DIR/open/port")/v2/team/env/manifests/7" >"$WORK/index.json"
	[ "$(jq -c '.manifests[0].platform' "$WORK/index.json")" = '{"architecture":"amd64","os":"linux"}' ]
	[ "sha256:$(sha256sum <"$WORK/index.json" | cut -d' ' -f1)" = "$(record .id)" ]
	[ "$(record .manifest)" = "$(jq -r '.manifests[0].digest' "$WORK/index.json")" ]
	skopeo --override-arch amd64 inspect --tls-verify=false --config \
		"docker://127.0.0.1:$(cat "$DIR/open/port")/team/env:7" >"$WORK/config.json"
	[ "$(jq -c '.config.Env' "$WORK/config.json")" = \
		'["INSTANCETYPE_KUBEVIRT_IO_DEFAULT_PREFERENCE=ubuntu","N=1"]' ]
	[ "$(jq -r '.rootfs.diff_ids[0]' "$WORK/config.json")" = "$(record .layer)" ]
}

@test "full verification reads the layer back" {
	target token team/full
	send --verify=full
	expect_status 0
	expect_record .verified 'read back'
}

@test "a layer that is damaged in the registry is told with exit code 5" {
	local blob
	oci_registry "$DIR/bad"
	target bad team/bad
	sed -i '/user:\|password:/d' "$WORK/targets.yaml"
	send --image-version=1
	expect_status 0
	blob=$DIR/bad/data/docker/registry/v2/blobs/sha256/$(record .layer | sed 's/sha256:\(..\)\(.*\)/\1\/\1\2/')/data
	printf 'X' | dd of="$blob" bs=1 seek=5000000 conv=notrunc status=none
	# under another tag, so that there is something to verify
	send --image-version=2 --verify=full
	expect_status 5
	expect_in "$err$out" 'what was stored is not what was sent'
}

@test "a tag with other content is kept, unless --replace is given" {
	local first before
	target open team/tagged 'tag: latest'
	send
	expect_status 0
	first=$(record .id)
	ln -f "$DIR/other/gpu-node.qcow2" "$DIR/other/gpu-node.manifest.json" "$WORK/"
	before=$(oci_writes "$DIR/open")
	send
	expect_status 4
	expect_record .result failed
	expect_in "$out" "team/tagged:latest is $first"
	[ "$(oci_writes "$DIR/open")" -eq "$before" ]
	send --plan
	expect_status 4
	send --replace
	expect_status 0
	expect_record .result published
	expect_pulled open team/tagged:latest
	skopeo inspect --tls-verify=false --raw \
		"docker://127.0.0.1:$(cat "$DIR/open/port")/team/tagged@$first" >/dev/null
}

@test "--plan writes nothing" {
	local before
	before=$(oci_writes "$DIR/open")
	target open team/planned
	send --plan
	expect_status 0
	expect_in "$out" planned
	[ "$(oci_writes "$DIR/open")" -eq "$before" ]
}

# --- credentials ---------------------------------------------------------------------------------

wrong_password() { # server
	local before
	before=$(oci_writes "$DIR/$1")
	target "$1" team/wrong
	PASSWORD="not-$OCI_PASSWORD" send
	expect_status 2
	expect_in "$out" "refuses the credentials of user 'alice'"
	[ "$(oci_writes "$DIR/$1")" -eq "$before" ]
	[ ! -e "$DIR/$1/data/docker/registry/v2/repositories/team/wrong" ]
	cell "$1-credentials" "refused, exit code 2, 0 writes"
}

@test "a wrong password is refused before anything is written" {
	wrong_password basic
}

@test "so it is by a token server" {
	wrong_password token
}

@test "no credentials at all: the error says which registry wants them" {
	target basic team/none
	sed -i '/user:\|password:/d' "$WORK/targets.yaml"
	send
	expect_status 2
	expect_in "$out" 'wants credentials, and there are none'
}

@test "what docker login left is used, if it is not for everybody to read" {
	local port
	port=$(cat "$DIR/token/port")
	target token team/docker
	sed -i '/user:\|password:/d' "$WORK/targets.yaml"
	mkdir -p "$WORK/docker"
	printf '{"auths": {"127.0.0.1:%s": {"auth": "%s"}}}\n' "$port" \
		"$(printf 'alice:%s' "$OCI_PASSWORD" | base64 -w0)" >"$WORK/docker/config.json"
	chmod 644 "$WORK/docker/config.json"
	DOCKER_CONFIG=$WORK/docker send
	expect_status 2
	expect_in "$out" 'everybody on this host can read it'
	chmod 600 "$WORK/docker/config.json"
	DOCKER_CONFIG=$WORK/docker send
	expect_status 0
	expect_record .result published
	REGISTRY_AUTH_FILE=$WORK/docker/config.json send --image-version=2
	expect_status 0
	rm -r "$WORK/docker"
}

@test "a credential helper is not run, and said so" {
	local marker=$WORK/was-run
	mkdir -p "$WORK/docker" "$WORK/bin"
	printf '#!/bin/sh\ntouch %s\n' "$marker" >"$WORK/bin/docker-credential-vault"
	chmod +x "$WORK/bin/docker-credential-vault"
	target basic team/helper
	sed -i '/user:\|password:/d' "$WORK/targets.yaml"
	printf '{"credHelpers": {"127.0.0.1:%s": "vault"}}\n' "$(cat "$DIR/basic/port")" \
		>"$WORK/docker/config.json"
	DOCKER_CONFIG=$WORK/docker PATH=$WORK/bin:$PATH send
	expect_status 2
	expect_in "$out" 'docker-credential-vault'
	[ ! -e "$marker" ]
}

@test "tokens of five seconds do not hurt an upload that takes longer" {
	local issued
	oci_registry "$DIR/short" token 5
	PORT=$(server_gate "$DIR/short" 5000000) target short team/short
	send
	expect_status 0
	expect_record .result published
	[ "${seconds%.*}" -ge 7 ]
	# one before the upload, one after: the first was refused by then
	grep -A 20 "PUT /v2/team/short/blobs/uploads/.* 201 " "$DIR/short/log" | grep -q '" 401 '
	issued=$(wc -l <"$DIR/short/tokens.d/tokens")
	[ "$issued" -ge 3 ]

	PORT=$(server_gate "$DIR/short" 5000000) target short team/short2 'chunk_bytes: 8M'
	send
	expect_status 0
	[ "$(($(wc -l <"$DIR/short/tokens.d/tokens") - issued))" -ge 6 ]
	expect_pulled short team/short2
}

# --- interrupted ---------------------------------------------------------------------------------

killed_in_layer() { # server
	PORT=$(server_gate "$DIR/$1" 12000000) target "$1" team/killed
	send_behind
	wait_until 20 has_uploaded "$1" team/killed 8000000
	tr '\0' ' ' <"/proc/$behind/cmdline" >"$BATS_TEST_TMPDIR/argv.log"
	kill_behind
	[ -s "$IMAGE.publish-state.json" ]
	[ "$(stat -c %a "$IMAGE.publish-state.json")" = 600 ]
	cp "$IMAGE.publish-state.json" "$DIR/seen/$BATS_TEST_NUMBER-state.json"
	send --abort
	expect_status 0
	expect_in "$out" /blobs/uploads/
	send
	expect_status 0
	expect_record .result published
	# not within a body: the layer goes once more, whole, and only once
	expect_record .resumed_from 0
	[ "$(record .bytes_sent)" -ge "$LAYER" ] && [ "$(record .bytes_sent)" -lt $((LAYER + 10000)) ]
	[ ! -e "$IMAGE.publish-state.json" ]
	expect_pulled "$1" team/killed
}

@test "killed within the layer: the layer is sent anew" {
	killed_in_layer open
	cell open-killed "within the layer: sent anew"
}

remembered() { # bytes
	[ "$(jq '[.slots[].done] | max // 0' "$IMAGE.publish-state.json" 2>/dev/null || echo 0)" -ge "$1" ]
}

killed_in_chunk() { # server
	local chunk=$((4 * 1024 * 1024))
	PORT=$(server_gate "$DIR/$1" 12000000) target "$1" team/chunks 'chunk_bytes: 4M'
	send_behind
	wait_until 20 remembered $((3 * chunk))
	wait_until 20 has_uploaded "$1" team/chunks $((3 * chunk + 1000000))
	kill_behind
	send
	expect_status 0
	expect_record .result published
	expect_record .resumed_from 0
	[ "$(record .bytes_sent)" -ge "$LAYER" ]
	expect_pulled "$1" team/chunks
}

@test "killed within a chunk: docker-registry forgets the upload, and it is sent anew" {
	killed_in_chunk basic
	cell basic-killed "within a chunk: sent anew"
}

@test "killed between two chunks: only the rest is sent" {
	local done=$((2 * 4 * 1024 * 1024))
	# the third chunk does not get through
	PORT=$(server_gate "$DIR/token" 0 "line@3 ^PATCH /v2/team/between/") \
		target token team/between 'chunk_bytes: 4M'
	send_behind
	wait_until 20 test -e "$DIR/token/gate/held"
	kill_behind
	remembered "$done"
	# the proxy lets everything after through
	send
	expect_status 0
	expect_record .resumed_from "$done"
	[ "$(record .bytes_sent)" -ge $((LAYER - done)) ]
	[ "$(record .bytes_sent)" -lt $((LAYER - done + 10000)) ]
	expect_pulled token team/between
	cell token-killed "between chunks: $(numfmt --to=iec "$(record .bytes_sent)") of $(numfmt --to=iec "$LAYER") sent"
}

@test "killed after the layer, before the tag: only what is missing is sent" {
	local server port
	for server in open basic token; do
		port=$(server_gate "$DIR/$server" 0 "line@1 ^PUT /v2/team/tagless/manifests/")
		PORT=$port target "$server" team/tagless
		send_behind
		wait_until 20 test -e "$DIR/$server/gate/held"
		kill_behind
		[ ! -e "$DIR/$server/data/docker/registry/v2/repositories/team/tagless/_manifests/tags" ]
		send
		expect_status 0
		expect_record .resumed_from "$LAYER"
		[ "$(record .bytes_sent)" -lt 10000 ]
		expect_pulled "$server" team/tagless
	done
}

@test "--abort --remove cancels the upload that is remembered" {
	PORT=$(server_gate "$DIR/open" 12000000) target open team/aborted 'chunk_bytes: 4M'
	send_behind
	wait_until 20 remembered $((4 * 1024 * 1024))
	kill_behind
	send --abort --remove
	expect_status 0
	expect_in "$out" ': removed'
	[ ! -e "$IMAGE.publish-state.json" ]
	send --abort
	expect_status 0
	expect_not_in "$out" /blobs/uploads/
}

@test "a reply that got lost: what became of it is asked, and nothing is sent twice" {
	local nth
	# of the layer, the config, the manifest, the tag
	for nth in 1 2 3 4; do
		PORT=$(server_gate "$DIR/open" 0 "lost@$nth ^HTTP/1.1 201 ") \
			target open "team/lost-$nth"
		send --image-version="$nth"
		expect_status 0
		[ -e "$DIR/open/gate/held" ]
		expect_record .result published
		[ "$(record .bytes_sent)" -lt $((LAYER + 10000)) ]
		[ "$(grep -c "PUT /v2/team/lost-$nth/manifests/$nth " "$DIR/open/log")" -eq 1 ]
		expect_pulled open "team/lost-$nth:$nth"
	done
}

# --- several at once -----------------------------------------------------------------------------

# at_once OPTION...: two publishers of two copies; $first and $second are their exit codes.
at_once() {
	local one two
	"$GPUIMG" publish -v -t "$WORK/targets.yaml" "$@" "$IMAGE" \
		>"$BATS_TEST_TMPDIR/one.log" 2>&1 </dev/null 3>&- &
	one=$!
	"$GPUIMG" publish -v -t "$WORK/targets.yaml" "$@" "$WORK/second/gpu-node.qcow2" \
		>"$BATS_TEST_TMPDIR/two.log" 2>&1 </dev/null 3>&- &
	two=$!
	first=0 second=0
	wait "$one" || first=$?
	wait "$two" || second=$?
}

@test "two publishers of the same image at once both succeed" {
	mkdir "$WORK/second"
	ln "$IMAGE" "$DIR/image/gpu-node.manifest.json" "$WORK/second/"
	PORT=$(server_gate "$DIR/open" 40000000) target open team/both
	at_once --image-version=1
	[ "$first $second" = "0 0" ] || {
		cat "$BATS_TEST_TMPDIR"/*.log
		false
	}
	expect_pulled open team/both:1
}

@test "two images on one tag at once: the tag is one of them, and the other is told" {
	mkdir "$WORK/second"
	ln "$DIR/other/gpu-node.qcow2" "$DIR/other/gpu-node.manifest.json" "$WORK/second/"
	PORT=$(server_gate "$DIR/open" 40000000) target open team/race
	at_once --image-version=1
	# the smaller one is first; the larger one finds the tag set
	[ "$first $second" = "4 0" ] || {
		cat "$BATS_TEST_TMPDIR"/*.log
		false
	}
	expect_in "$(cat "$BATS_TEST_TMPDIR/one.log")" 'another publisher has just set'
	IMAGE=$WORK/second/gpu-node.qcow2
	expect_pulled open team/race:1
}

@test "two runs for one file at once: the second one says so" {
	PORT=$(server_gate "$DIR/open" 12000000) target open team/locked
	send_behind
	wait_until 20 has_uploaded open team/locked 4000000
	send
	expect_status 3
	expect_in "$err" 'another gpuimg publishes this image now'
	wait "$behind"
}

# --- large, and secret ---------------------------------------------------------------------------

@test "an image of 10 GB, mostly zeros: skopeo reads a size beyond ustar's, and a limit is told" {
	local big=${GPUIMG_TEST_BIG:-} free
	[ -n "$big" ] || skip "GPUIMG_TEST_BIG is not set: minutes, and 20 GB (nothing where zeros are compressed)"
	[ -d "$big" ] || big=$BATS_FILE_TMPDIR
	free=$(df --output=avail -B1G "$big" | tail -n 1)
	[ "$free" -ge 22 ] || skip "'$big' has only $free GB free"
	big=$(mktemp -d "$big/oci-XXXXXX")
	ln -sfn "$big" "$DIR/big"
	rm "$WORK"/gpu-node.*
	rmdir "$WORK"
	mkdir "$big/image"
	WORK=$big/image IMAGE=$big/image/gpu-node.qcow2
	qemu-img create -q -f qcow2 -o preallocation=metadata "$IMAGE" 9600M
	[ "$(stat -c %s "$IMAGE")" -gt 10000000000 ]
	publish_manifest "$IMAGE" bios
	oci_registry "$big/registry"
	PORT=$(cat "$big/registry/port") target open team/big
	send
	expect_status 0
	expect_record .result published
	expect_in "$err" 'take no more than 10 GB'
	echo "# 10 GB: $(record .bytes_sent) bytes sent in a run of $seconds s" >&3
	skopeo --override-arch amd64 copy -q --src-tls-verify=false \
		"docker://127.0.0.1:$(cat "$big/registry/port")/team/big@$(record .id)" "dir:$big/pulled"
	tar -xOf "$big/pulled/$(record .layer | cut -d: -f2)" disk/gpu-node.qcow2 | cmp - "$IMAGE"
}

@test "no password and no token stands in any log, state, record or argument" {
	[ "$(find "$DIR/seen" -type f | wc -l)" -ge 20 ]
	[ -s "$(find "$DIR/seen" -name '*argv.log' | head -n 1)" ]
	{
		echo "$OCI_PASSWORD"
		cat "$DIR"/*/tokens.d/tokens
	} | secret_forms >"$DIR/secrets"
	[ "$(wc -l <"$DIR/secrets")" -gt 10 ]
	run grep -rlF -f "$DIR/secrets" "$DIR/seen"
	[ "$status" -eq 1 ]
	# that grep would find one
	printf 'alice:%s' "$OCI_PASSWORD" | base64 -w0 >"$DIR/seen/control"
	run grep -rlF -f "$DIR/secrets" "$DIR/seen"
	[ "$status" -eq 0 ]
}
