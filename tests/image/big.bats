#!/usr/bin/env bats
# The bounds: what a build takes of memory and disk does not grow with the data of the image.
load ../lib/common

# An image with 12 GB of data, of which a fortieth is random. Made once a machine: it takes a minute.
big_image() {
	local cache=${XDG_CACHE_HOME:-$HOME/.cache}/gpuimg/test-images recipe path
	cat >"$OUT/big-data.sh" <<-'END'
		mkdir "$1/srv"
		for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
			head -c 975M < <(yes "line of file $i, which is as long as a line of a log file may well be") >"$1/srv/$i.log"
			head -c 25M < <(openssl enc -aes-128-ctr -pass "pass:$i" -nosalt -pbkdf2 </dev/zero 2>/dev/null) >>"$1/srv/$i.log"
		done
	END
	recipe=$(cat "$OUT/big-data.sh" "$REPO/tests/fixtures/make-phony-image.sh" | sha256sum | cut -c1-32)
	path=$cache/big-$recipe.qcow2
	if [ ! -e "$path" ]; then
		mkdir -p "$cache"
		rm -f "$cache"/big-*
		PHONY_ROOT_MIB=12800 PHONY_COMPRESSION=zstd PHONY_CUSTOMIZE=$OUT/big-data.sh \
			"$REPO/tests/fixtures/make-phony-image.sh" "$path.new" >&2 || return 1
		mv "$path.new" "$path" || return 1
	fi
	echo "$path"
}

setup_file() {
	need_root
	big=$(big_image)
	export big
	began=$(date +%s)
	"$GPUIMG" build -q --no-boot-test --no-cache --exec=sandbox -o "$OUT/big.qcow2" "$big"
	echo $(($(date +%s) - began)) >"$OUT/big.seconds"
}

teardown_file() {
	rm -f "$OUT/big.qcow2"
}

figure() {
	jq "$1" "$OUT/big.manifest.json"
}

@test "12 GB of data: gpuimg itself takes at most 200 MiB of memory" {
	[ "$(figure .execution.peak_memory_bytes)" -gt 1000000 ]
	[ "$(figure .execution.peak_memory_bytes)" -le $((200 << 20)) ]
}

@test "12 GB of data: the work takes no more disk than changed data and output" {
	[ "$(figure .execution.peak_disk_bytes)" -gt 0 ]
	[ "$(figure .execution.peak_disk_bytes)" -le $(($(figure .execution.changed_bytes) + $(figure .export.bytes))) ]
}

@test "12 GB of data: unchanged clusters are taken over, not compressed anew" {
	[ "$(figure .export.method)" = '"clusters"' ]
	[ "$(figure .export.clusters_compressed)" -lt 2000 ]
	[ "$(figure .export.clusters_taken_over)" -gt 150000 ]
}

@test "12 GB of data: the build takes less than a minute" {
	[ "$(cat "$OUT/big.seconds")" -lt 60 ]
}

@test "12 GB of data: the file is sound, and as small as the base" {
	qemu-img check -q "$OUT/big.qcow2"
	[ "$(figure .export.bytes)" -lt $(($(stat -c %s "$big") * 105 / 100 + (4 << 20))) ]
}
