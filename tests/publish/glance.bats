#!/usr/bin/env bats
# 'gpuimg publish' to OpenStack: Debian's Keystone and Glance, with own databases, on loopback.

load ../lib/common
load ../lib/servers
load ../lib/publish

setup_file() {
	need_programs keystone-manage keystone-wsgi-public glance-api sqlite3 jq
	servers_begin
	start_keystone
	keystone_people
	start_glance
	GLANCE_CREDENTIAL=$(keystone_credential)
	export GLANCE_CREDENTIAL
}

teardown_file() {
	publish_row glance "Keystone 22 and Glance 25 of Debian 12" "$(cell_of publish)" \
		"$(cell_of again)" "$(cell_of killed)" "$(cell_of wrong)" "$(cell_of verified)"
	servers_end
}

setup() {
	NAME=node$BATS_TEST_NUMBER
	mkdir "$BATS_TEST_TMPDIR/image" "$BATS_TEST_TMPDIR/cloud"
	IMAGE=$BATS_TEST_TMPDIR/image/$NAME.qcow2
	TARGETS=$BATS_TEST_TMPDIR/cloud/targets.yaml
	publish_image "$IMAGE" 12
	write_cloud s3cret-alice
	write_targets RegionOne
}

teardown() {
	gate_open
}

write_cloud() { # PASSWORD [PORT]
	local cloud=$BATS_TEST_TMPDIR/cloud
	cat >"$cloud/clouds.yaml" <<-YAML
		clouds:
		  test:
		    region_name: RegionOne
		    auth:
		      auth_url: http://127.0.0.1:${2:-$KEYSTONE_PORT}
		      username: alice
		      project_name: images
		      user_domain_name: Default
		      project_domain_id: default
	YAML
	printf 'clouds: {test: {auth: {password: %s}}}\n' "$1" >"$cloud/secure.yaml"
	chmod 600 "$cloud/secure.yaml"
	export OS_CLIENT_CONFIG_FILE=$cloud/clouds.yaml OS_CLOUD=test
}

write_targets() { # REGION [MORE_KEYS]
	printf 'targets:\n  stack: {type: glance, locations: [here], region: %s%s}\n' \
		"$1" "${2:+, $2}" >"$TARGETS"
}

glance_id_of() {
	record_value "$1" stack/here id
}

glance_image() { # ID: what Glance says of it
	glance_curl GET "/images/$1"
}

glance_named() { # NAME: how many images have it
	glance_curl GET "/images?name=$1" | jq '.images | length'
}

glance_ours() { # IMAGE: all images with its digest, "ID STATUS NAME" each
	glance_curl GET "/images?gpuimg_sha256=$(sha256_of "$1")" |
		jq -r '.images[] | .id + " " + .status + " " + .name'
}

glance_writes() {
	grep -c -E '"(POST|PUT|PATCH|DELETE) /v2/' "$GLANCE_LOG" || true
}

expect_stored() { # IMAGE ID: downloaded by curl it is the same
	glance_curl GET "/images/$2/file" -o "$BATS_TEST_TMPDIR/back"
	cmp "$1" "$BATS_TEST_TMPDIR/back"
}

@test "an image is published with a password of clouds.yaml and secure.yaml, byte for byte" {
	write_targets RegionOne 'boot_type: uefi, visibility: private, min_ram: 2048, tags: [gpu, k8s], properties: {hw_disk_bus: scsi, driver: "550"}'
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	id=$(glance_id_of "$IMAGE")
	expect_stored "$IMAGE" "$id"
	expect_value "$IMAGE" stack/here result published
	expect_value "$IMAGE" stack/here ref "RegionOne/$id"
	expect_value "$IMAGE" stack/here verified server-sha512
	expect_value "$IMAGE" stack/here bytes_sent "$(stat -c %s "$IMAGE")"
	glance_image "$id" | jq -e --arg name "$NAME-1.0" --arg sum "$(sha256_of "$IMAGE")" '
		.status == "active" and .name == $name and .visibility == "private" and
		.disk_format == "qcow2" and .container_format == "bare" and .min_disk == 1 and
		.min_ram == 2048 and .hw_firmware_type == "uefi" and .hw_machine_type == "q35" and
		.architecture == "x86_64" and .os_type == "linux" and .os_distro == "debian" and
		.os_version == "12" and .hw_disk_bus == "scsi" and .driver == "550" and
		(.tags | sort) == ["gpu", "k8s"] and .gpuimg_sha256 == $sum and
		has("os_secure_boot") == false'
	[ ! -e "$IMAGE.publish-state.json" ]
	no_secrets "$BATS_TEST_TMPDIR/image"
	cell publish "password and application credential; same bytes by curl"
}

@test "publishing it again writes nothing" {
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	id=$(glance_id_of "$IMAGE")
	before=$(glance_image "$id" | jq -r .updated_at)
	writes=$(glance_writes)
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" stack/here result unchanged
	expect_value "$IMAGE" stack/here bytes_sent 0
	expect_value "$IMAGE" stack/here id "$id"
	[ "$(glance_image "$id" | jq -r .updated_at)" = "$before" ]
	[ "$(glance_writes)" -eq "$writes" ]
	cell again "unchanged, 0 writes"
}

@test "an application credential of the targets file does it too" {
	read -r id secret <<<"$GLANCE_CREDENTIAL"
	echo "$secret" >"$BATS_TEST_TMPDIR/cloud/secret"
	chmod 600 "$BATS_TEST_TMPDIR/cloud/secret"
	unset OS_CLIENT_CONFIG_FILE OS_CLOUD
	write_targets RegionOne "auth_url: 'http://127.0.0.1:$KEYSTONE_PORT/v3/', application_credential_id: $id, application_credential_secret: {file: $BATS_TEST_TMPDIR/cloud/secret}"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_stored "$IMAGE" "$(glance_id_of "$IMAGE")"
	no_secrets "$BATS_TEST_TMPDIR/image"
}

@test "Secure Boot is asked for where the image has it, and BIOS is said" {
	publish_manifest "$IMAGE" bios uefi-secure-boot
	write_targets RegionOne "boot_type: uefi-secure-boot"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	first=$(glance_id_of "$IMAGE")
	glance_image "$first" | jq -e '.hw_firmware_type == "uefi" and .os_secure_boot == "required"'
	write_targets RegionOne "boot_type: bios"
	publish "$IMAGE" --image-version=1.0-bios
	expect_status 0
	[ "$(glance_id_of "$IMAGE")" != "$first" ]
	glance_image "$(glance_id_of "$IMAGE")" | jq -e '.hw_firmware_type == "bios"'
}

@test "a boot type that the image has not is refused before the first request" {
	publish_manifest "$IMAGE" bios
	write_targets RegionOne "boot_type: uefi"
	before=$(wc -l <"$GLANCE_LOG")
	publish "$IMAGE" --image-version=1.0
	expect_status 4
	expect_in "$out" "boot type 'uefi'"
	[ "$(wc -l <"$GLANCE_LOG")" -eq "$before" ]
}

@test "a wrong password is told, and nothing is made" {
	write_cloud s3cret-wrong
	writes=$(glance_writes)
	publish "$IMAGE" --image-version=1.0
	expect_status 2
	expect_in "$out" "cannot sign in to the cloud"
	expect_in "$out" "401"
	[ "$(glance_writes)" -eq "$writes" ]
	[ -z "$(glance_ours "$IMAGE")" ]
	no_secrets "$BATS_TEST_TMPDIR/image"
	cell wrong "401: exit $status, nothing made"
}

@test "a secret that everybody on the host can read is refused" {
	chmod 644 "$BATS_TEST_TMPDIR/cloud/secure.yaml"
	publish "$IMAGE" --image-version=1.0
	expect_status 2
	expect_in "$out" "everybody on this host can read it"
	expect_in "$out" "chmod 600"
}

@test "a region that the cloud has not is told with those that it has" {
	write_targets Atlantis
	publish "$IMAGE" --image-version=1.0
	expect_status 2
	expect_in "$out" "Atlantis"
	expect_in "$out" "Gated"
}

@test "a plan writes nothing" {
	writes=$(glance_writes)
	publish "$IMAGE" --image-version=1.0 --plan
	expect_status 0
	expect_in "$out" planned
	[ "$(glance_writes)" -eq "$writes" ]
	[ ! -e "$IMAGE.publish-state.json" ]
}

@test "killed in the middle of the bytes, it goes on under the same id" {
	write_targets Gated
	publish_killed bytes 5000000
	no_secrets "$BATS_TEST_TMPDIR/image"
	before=$(glance_ours "$IMAGE")
	expect_in "$before" ".unfinished"
	[ "$(glance_named "$NAME-1.0")" -eq 0 ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	id=$(glance_id_of "$IMAGE")
	[ "$id" = "${before%% *}" ]
	[ "$(glance_ours "$IMAGE")" = "$id active $NAME-1.0" ]
	expect_stored "$IMAGE" "$id"
	cell killed "same id; in the bytes: sent anew, behind them: 0 bytes"
}

@test "killed between the image's record and its bytes, it goes on under the same id" {
	write_targets Gated
	publish_killed line '^PUT '
	before=$(glance_ours "$IMAGE")
	rm "$IMAGE.publish-state.json" # the id needs no memory
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	[ "$(glance_ours "$IMAGE")" = "${before%% *} active $NAME-1.0" ]
	expect_stored "$IMAGE" "${before%% *}"
}

@test "killed before the image's record, it makes it" {
	write_targets Gated
	publish_killed line '^POST '
	[ -z "$(glance_ours "$IMAGE")" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_stored "$IMAGE" "$(glance_id_of "$IMAGE")"
}

@test "killed behind the bytes, it sends none again" {
	write_targets Gated
	gate_rule line '^PATCH '
	publish_background "$IMAGE" --image-version=1.0
	gate_wait
	[ "$(glance_named "$NAME-1.0")" -eq 0 ]
	publish_kill
	gate_drop
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" stack/here result published
	expect_value "$IMAGE" stack/here bytes_sent 0
	[ "$(glance_named "$NAME-1.0")" -eq 1 ]
	expect_stored "$IMAGE" "$(glance_id_of "$IMAGE")"
}

@test "bytes that the store damaged are found by reading back, before they get the name" {
	write_targets Gated
	publish_killed line '^PATCH '
	id=$(glance_ours "$IMAGE" | cut -d' ' -f1)
	printf XXXX | dd of="$GLANCE_STORE/$id" bs=1 seek=4500000 conv=notrunc status=none
	publish "$IMAGE" --image-version=1.0 --verify=full
	expect_status 5
	expect_in "$out" "not what was sent"
	[ "$(glance_named "$NAME-1.0")" -eq 0 ]
}

@test "read back in full, it says so" {
	publish "$IMAGE" --image-version=1.0 --verify=full
	expect_status 0
	expect_value "$IMAGE" stack/here verified "read back"
	cell verified "server-sha512; --verify=full: read back"
}

@test "a token that runs out while the bytes move does no harm" {
	write_cloud s3cret-alice "$KEYSTONE_SHORT_PORT"
	write_targets Gated
	gate_rule bytes 5000000
	publish_background "$IMAGE" --image-version=1.0
	gate_wait
	sleep 17
	gate_open
	wait "$publisher"
	expect_stored "$IMAGE" "$(glance_id_of "$IMAGE")"
	no_secrets "$BATS_TEST_TMPDIR/image"
}

@test "an image that was deleted there comes back under the next id, and is found again without a memory" {
	publish "$IMAGE" --image-version=1.0
	first=$(glance_id_of "$IMAGE")
	glance_curl DELETE "/images/$first"
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	second=$(glance_id_of "$IMAGE")
	[ "$second" != "$first" ]
	expect_stored "$IMAGE" "$second"
	[ "$(glance_image "$second" | jq -r .id)" = "$second" ]
	writes=$(glance_writes)
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" stack/here result unchanged
	expect_value "$IMAGE" stack/here id "$second"
	[ "$(glance_writes)" -eq "$writes" ]
}

# $first has sent a part of its bytes; $second, of the copy, meets its unfinished image.
two_publishers() {
	publish_copy
	write_targets Gated
	gate_rule bytes 5000000
	publish_background "$IMAGE" --image-version=1.0
	first=$publisher
	gate_wait
	write_targets RegionOne # the first one has read it
	publish_background "$copy" --image-version=1.0
	second=$publisher
	sleep 2
}

@test "of two publishers at once one waits for the other's bytes, and there is one image" {
	two_publishers
	gate_open
	wait "$first"
	wait "$second"
	id=$(glance_id_of "$IMAGE")
	[ "$(glance_id_of "$copy")" = "$id" ]
	[ "$(glance_ours "$IMAGE")" = "$id active $NAME-1.0" ]
	[ "$(record_value "$copy" stack/here bytes_sent)" -eq 0 ]
	expect_stored "$IMAGE" "$id"
}

@test "a publisher that waits takes over when the other one dies" {
	two_publishers
	publisher=$first
	publish_kill
	gate_drop
	wait "$second"
	expect_stored "$IMAGE" "$(glance_id_of "$copy")"
}

@test "an image of the same name is never joined by a second one; --replace renames it and deletes nothing" {
	other=$(glance_curl POST /images -H 'Content-Type: application/json' \
		-d '{"name": "'"$NAME"'-1.0"}' | jq -r .id)
	writes=$(glance_writes)
	publish "$IMAGE" --image-version=1.0
	expect_status 4
	expect_in "$out" "$other"
	[ "$(glance_writes)" -eq "$writes" ]
	publish "$IMAGE" --image-version=1.0 --replace
	expect_status 0
	[ "$(glance_named "$NAME-1.0")" -eq 1 ]
	glance_image "$other" | jq -e --arg name "$NAME-1.0.replaced-${other%%-*}" '.name == $name'
}

@test "a name that somebody else takes in the same moment is given back" {
	local code=0
	write_targets Gated
	gate_rule line '^PATCH '
	publish_background "$IMAGE" --image-version=1.0
	gate_wait
	other=$(glance_curl POST /images -H 'Content-Type: application/json' \
		-d '{"name": "'"$NAME"'-1.0"}' | jq -r .id)
	gate_open
	wait "$publisher" || code=$?
	[ "$code" -eq 4 ]
	expect_in "$(cat "$BATS_TEST_TMPDIR/background")" "the image stays unnamed: another image is named '$NAME-1.0': $other"
	[ "$(glance_named "$NAME-1.0")" -eq 1 ]
	[ "$(glance_ours "$IMAGE")" = "$(glance_id_of "$IMAGE") active $NAME-1.0.unfinished" ]
}

@test "settings that changed are written without a byte of the image" {
	publish "$IMAGE" --image-version=1.0
	id=$(glance_id_of "$IMAGE")
	write_targets RegionOne 'tags: [gpu], protected: true, properties: {hw_video_model: none}'
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	expect_value "$IMAGE" stack/here bytes_sent 0
	expect_value "$IMAGE" stack/here id "$id"
	glance_image "$id" | jq -e '.tags == ["gpu"] and .protected and .hw_video_model == "none"'
}

@test "--abort lists what was left, and removes it only when it is told to" {
	write_targets Gated
	publish_killed line '^PUT '
	id=$(glance_ours "$IMAGE" | cut -d' ' -f1)
	publish "$IMAGE" --abort
	expect_status 0
	expect_in "$out" "$id"
	[ "$(glance_image "$id" | jq -r .status)" = queued ]
	publish "$IMAGE" --abort --remove
	expect_status 0
	expect_in "$out" "$id"
	[ -z "$(glance_ours "$IMAGE")" ]
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	[ "$(glance_id_of "$IMAGE")" != "$id" ]
}

@test "Cluster API gets the id" {
	publish "$IMAGE" --image-version=1.0 --consumer=capo
	expect_status 0
	expect_in "$out" "id: $(glance_id_of "$IMAGE")"
}

@test "an image of 10 GB, mostly zeros, is stored and has the right SHA-512, in little memory" {
	publish_big
	publish_watched stack/here server-sha512
	same_ends "$IMAGE" "$GLANCE_STORE/$(glance_id_of "$IMAGE")"
	glance_curl DELETE "/images/$(glance_id_of "$IMAGE")"
}
