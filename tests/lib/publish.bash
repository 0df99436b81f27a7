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

# no_secrets FILE_OR_DIR...: none of the tests' secrets is in these, in the last run's output, or
# in what the background run wrote.
no_secrets() {
	local secret places=("$@") place
	for place in "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/err" "$BATS_TEST_TMPDIR/background"; do
		[ ! -e "$place" ] || places+=("$place")
	done
	for secret in s3cret "$(printf 'alice:s3cret-password' | base64)" X-Amz-Signature 'Signature='; do
		if grep -r -F -l -- "$secret" "${places[@]}"; then
			echo "the secret '$secret' is there"
			return 1
		fi
	done
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
