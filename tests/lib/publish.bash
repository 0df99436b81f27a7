# What: what the tests of 'gpuimg publish' share: images to publish, runs, records, the table's rows.
# Why:  every backend has to keep the same promises.
# How:  'load ../lib/publish' behind common and servers.
# shellcheck shell=bash disable=SC2034 # SUM and SIZE are for the tests

export PUBLISH_TSV=$OUT/publish.tsv

# publish_image PATH MIB [BOOT_TYPE...]: a qcow2 full of noise with a manifest beside it.
publish_image() {
	local path=$1 mib=$2 stem=${1%.qcow2}
	shift 2
	[ $# -gt 0 ] || set -- bios uefi
	head -c "${mib}M" /dev/urandom >"$stem.raw"
	qemu-img convert -q -O qcow2 "$stem.raw" "$path"
	rm -f "$stem.raw"
	publish_manifest "$path" "$@"
}

publish_manifest() { # PATH BOOT_TYPE...
	local path=$1 sum
	shift
	sum=$(sha256sum "$path")
	printf '{"image": {"sha256": "%s", "boot_types": [%s]}, "base": {"arch": "x86_64", "os_id": "debian", "os_version_id": "12"}}\n' \
		"${sum%% *}" "$(printf '"%s"\n' "$@" | paste -sd,)" >"${path%.qcow2}.manifest.json"
}

sha256_of() {
	sha256sum "$1" | cut -d' ' -f1
}

# publish_take PATH: that image and its manifest as $IMAGE, this test's own; $SUM, $SIZE.
publish_take() {
	cp "$1" "$IMAGE"
	cp "${1%.qcow2}.manifest.json" "${IMAGE%.qcow2}.manifest.json"
	SUM=$(sha256_of "$IMAGE")
	SIZE=$(stat -c %s "$IMAGE")
}

# publish_other MIB: $other, another image of the same name.
publish_other() {
	other=$BATS_TEST_TMPDIR/other/node.qcow2
	mkdir "${other%/*}"
	publish_image "$other" "$1"
}

# publish_big: $IMAGE becomes a qcow2 of 10 GB, nearly all of it a hole, so the disk needs room for
# what the target stores alone; 20 GB stay free. Skips where nobody wants to wait for minutes.
publish_big() {
	local free
	[ -n "${GPUIMG_TEST_BIG:-}" ] || skip "GPUIMG_TEST_BIG is not set: 10 GB are stored, for minutes"
	free=$(df --output=avail -B1G "$BATS_TEST_TMPDIR" | tail -n 1)
	[ "$free" -ge 32 ] || skip "'$BATS_TEST_TMPDIR' has only $free GB free"
	truncate -s 9600M "$IMAGE.raw"
	echo 'start=2048, bootable' | sfdisk -q "$IMAGE.raw"
	qemu-img convert -q -O qcow2 -o preallocation=metadata "$IMAGE.raw" "$IMAGE"
	rm "$IMAGE.raw"
	SIZE=$(stat -c %s "$IMAGE")
	[ "$SIZE" -gt 10000000000 ]
	[ "$(stat -c %b "$IMAGE")" -lt 200000 ] # of 512 bytes
	rm -f "${IMAGE%.qcow2}.manifest.json" # another one would need a digest more
}

# same_ends FILE FILE: as long as each other, with the same 64 MiB at the begin and at the end. The rest
# is digested by who stored it.
same_ends() {
	local size
	size=$(stat -c %s "$1")
	[ "$(stat -c %s "$2")" -eq "$size" ] && cmp -n 67108864 "$1" "$2" &&
		cmp -i $((size - 67108864)) "$1" "$2"
}

# publish_watched LOCATION VERIFIED: $IMAGE of publish_big as version 1.0, and the most memory that the
# worker had, which is told.
publish_watched() {
	local worker='' value hwm_kib=0 code=0 began=$SECONDS
	publish_background "$IMAGE" --image-version=1.0
	while kill -0 "$publisher" 2>/dev/null; do
		[ -n "$worker" ] || worker=$(cat "/proc/$publisher/task/$publisher/children" 2>/dev/null || true)
		value=$(awk '/^VmHWM/ { print $2 }' "/proc/${worker%% *}/status" 2>/dev/null || true)
		hwm_kib=${value:-$hwm_kib}
		sleep 0.2
	done
	wait "$publisher" || code=$?
	echo "# $1: 10 GB in $((SECONDS - began)) s, at most $hwm_kib KiB of memory" >&3
	[ "$code" -eq 0 ] || {
		cat "$BATS_TEST_TMPDIR/background"
		return 1
	}
	expect_value "$IMAGE" "$1" bytes_sent "$SIZE"
	expect_value "$IMAGE" "$1" verified "$2"
	[ "$hwm_kib" -gt 0 ] && [ "$hwm_kib" -lt 65536 ]
}

# publish IMAGE OPTION...: run_split with the targets file of this test.
publish() {
	run_split "$GPUIMG" publish -t "$TARGETS" "$@"
}

# publish_background IMAGE OPTION...: $publisher is its process.
publish_background() {
	"$GPUIMG" publish -t "$TARGETS" "$@" >"$BATS_TEST_TMPDIR/background" 2>&1 3>&- </dev/null &
	publisher=$!
}

# kill -9 to the supervisor and to the process that does the work.
publish_kill() {
	local worker
	worker=$(cat "/proc/$publisher/task/$publisher/children")
	# shellcheck disable=SC2086 # its numbers are words
	kill -9 "$publisher" $worker
	wait "$publisher" 2>/dev/null || true
}

# publish_killed RULE...: a run that is killed as soon as the gate holds something by this rule; what was
# held never comes.
publish_killed() {
	gate_rule "$@"
	publish_background "$IMAGE" --image-version=1.0
	gate_wait
	publish_kill
	gate_drop
}

# publish_two: two publishers of different images at once, $other as version 2.0 and $IMAGE as 1.0;
# both end well.
publish_two() {
	publish_other 4
	publish_background "$other" --image-version=2.0
	publish "$IMAGE" --image-version=1.0
	expect_status 0
	wait "$publisher"
}

# publish_overtaking TARGETS VERSION: $other's index as VERSION waits at the gate while $IMAGE as 1.0 is
# published by TARGETS, which goes around it, to its very end. $first and $second are their exit codes.
publish_overtaking() {
	publish_other 4
	gate_rule line '^PUT .*index.json'
	publish_background "$other" --image-version="$2"
	gate_wait
	second=0
	"$GPUIMG" publish -t "$1" "$IMAGE" --image-version=1.0 \
		>"$BATS_TEST_TMPDIR/direct" 2>&1 3>&- </dev/null || second=$?
	gate_open
	first=0
	wait "$publisher" || first=$?
}

# publish_overtaken TARGETS VERSION COMMAND...: the worst order: $other's index arrives when that of
# $IMAGE was written and not looked at again. A gate of its own holds this look, the third one after
# those before sending and before writing, until $other's run is done: no clock is asked. COMMAND says
# that the index of $IMAGE is there by then.
publish_overtaken() {
	local by=$1 version=$2 behind=$BATS_TEST_TMPDIR/behind port two
	shift 2
	mkdir "$behind"
	sed -n 's/.*127\.0\.0\.1:\([0-9]*\).*/\1/p' "$by" >"$behind/port"
	port=$(server_gate "$behind" 0 'line@3' '^GET .*index\.json')
	sed "s/127\.0\.0\.1:[0-9]*/127.0.0.1:$port/" "$by" >"$by.held"
	publish_other 4
	gate_rule line '^PUT .*index.json'
	publish_background "$other" --image-version="$version"
	gate_wait
	"$GPUIMG" publish -t "$by.held" "$IMAGE" --image-version=1.0 \
		>"$BATS_TEST_TMPDIR/direct" 2>&1 3>&- </dev/null &
	two=$!
	GATE=$behind/gate gate_wait
	"$@"
	gate_open
	first=0 second=0
	wait "$publisher" || first=$?
	GATE=$behind/gate gate_open
	wait "$two" || second=$?
}

# publish_changed BYTES OFFSET: $IMAGE is changed at OFFSET when BYTES of it went through the gate,
# and the run ends as it shall then.
publish_changed() {
	local code=0
	gate_rule bytes "$1"
	publish_background "$IMAGE" --image-version=1.0
	gate_wait
	printf 'XXXX' | dd of="$IMAGE" bs=1 seek="$2" conv=notrunc status=none
	gate_open
	wait "$publisher" || code=$?
	[ "$code" -eq 4 ] || {
		cat "$BATS_TEST_TMPDIR/background"
		return 1
	}
	expect_in "$(cat "$BATS_TEST_TMPDIR/background")" "changed"
}

# publish_copy: $copy, the same image and manifest as $IMAGE, for a second publisher of it.
publish_copy() {
	copy=$BATS_TEST_TMPDIR/copy/${IMAGE##*/}
	mkdir "${copy%/*}"
	cp "$IMAGE" "$copy"
	cp "${IMAGE%.qcow2}.manifest.json" "${copy%.qcow2}.manifest.json"
}

# record_value IMAGE LOCATION KEY: of <name>.published.json; LOCATION as target/location.
record_value() {
	python3 - "${1%.qcow2}.published.json" "$2" "$3" <<-'PYTHON'
		import json, sys
		record = json.load(open(sys.argv[1]))
		for row in record["results"]:
		    if row["target"] + "/" + row["location"] == sys.argv[2]:
		        print(row[sys.argv[3]])
	PYTHON
}

expect_value() { # IMAGE LOCATION KEY WANTED
	local value
	value=$(record_value "$1" "$2" "$3")
	[ "$value" = "$4" ] || {
		echo "$2: $3 is '$value', want '$4'"
		return 1
	}
}

# secret_forms: of secrets on stdin, one a line, every form in which one may get out, one a line:
# itself, each part of a token, percent-encoded, and in base64 at every offset, so that it is found
# alone and behind any user of a Basic pair.
secret_forms() {
	python3 -c '
import base64, sys, urllib.parse
for secret in sys.stdin.read().split("\n"):
    parts = [part for part in secret.split(".") if len(part) > 7]
    forms = {secret, urllib.parse.quote(secret, safe="")} | set(parts)
    for skip in range(3):
        raw = bytes(skip) + secret.encode()
        for encode in base64.b64encode, base64.urlsafe_b64encode:
            text = encode(raw).decode().rstrip("=")
            forms.add(text[(0, 2, 3)[skip]:len(text) - (len(raw) % 3 != 0)])
    if secret:
        print(*sorted(forms), sep="\n")
'
}

# nowhere FILE_OR_DIR...: none of the texts on stdin, one a line, is in these.
nowhere() {
	local texts
	texts=$(cat)
	[ -n "$texts" ] || {
		echo "nothing to look for"
		return 1
	}
	if grep -r -F -l -f <(echo "$texts") -- "$@"; then
		echo "one of these is there:"
		echo "$texts"
		return 1
	fi
}

# no_secrets FILE_OR_DIR...: none of the tests' secrets, which all begin with 's3cret', is in these,
# in the last run's output, or in what the background run wrote; nor a signature or Keystone's token.
no_secrets() {
	local places=("$@") place
	for place in "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/err" "$BATS_TEST_TMPDIR/background"; do
		[ ! -e "$place" ] || places+=("$place")
	done
	{
		echo s3cret | secret_forms
		printf '%s\n' X-Amz-Signature 'Signature=' gAAAAA
	} | nowhere "${places[@]}"
}

# publish_row BACKEND SERVER PUBLISH AGAIN KILLED WRONG VERIFIED: one row of docs/publish.md's
# table, from what the tests of this file saw; a later row of the same backend and server counts.
publish_row() {
	local IFS=$'\t'
	echo "$*" >>"$PUBLISH_TSV"
}

# cell NAME TEXT, cell_of NAME: what a test saw, for the row at the file's end.
cell() {
	echo "$2" >"$BATS_FILE_TMPDIR/cell-$1"
}

cell_of() {
	cat "$BATS_FILE_TMPDIR/cell-$1" 2>/dev/null || echo "not seen"
}
