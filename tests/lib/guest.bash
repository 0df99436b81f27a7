# SPDX-License-Identifier: Apache-2.0
# What: one real guest's whole way: inspect, build, inspect, boot pair, a kernel installed later.
# Why:  each boot chain is seen to hold on a guest that boots, not on files that look like one.
# How:  guest_cycle in setup_file, one @test for each check_* below; rows go to $OUT/guests.tsv.
# shellcheck shell=bash disable=SC2034 # status, out and err are for common.bash

# A profile without any of our work: what a node's own package manager does to the image.
scripts_only_data() {
	local dir=$OUT/data-scripts-only
	if [ ! -d "$dir" ]; then
		mkdir -p "$dir.new"
		cp -r "$REPO/boot" "$REPO/profiles" "$REPO/builder" "$REPO/tools" "$dir.new/"
		printf 'summary: nothing but scripts\nstages: [user]\n' >"$dir.new/profiles/scripts-only.yaml"
		mv "$dir.new" "$dir"
	fi
	echo "$dir"
}

# guest_inspect IMAGE FILE: JSON and exit code.
guest_inspect() {
	local code=0
	"$GPUIMG" inspect --json "$1" >"$2.json" 2>"$2.err" </dev/null || code=$?
	echo "$code" >"$2.code"
}

# guest_later NAME: installs another kernel as a node would, by its packages' own hooks.
guest_later() {
	local data
	data=$(scripts_only_data)
	cat >"$OUT/guest-later.sh" <<-'END'
		#!/bin/sh
		set -e
		export DEBIAN_FRONTEND=noninteractive
		# A node is no container, for whose sake hooks would leave the boot loader alone.
		mkdir /tmp/node
		printf '#!/bin/sh\nexit 1\n' >/tmp/node/systemd-detect-virt
		chmod 755 /tmp/node/systemd-detect-virt
		apt-get update -q
		apt-get -o DPkg::Path=/tmp/node:/usr/sbin:/usr/bin:/sbin:/bin install -q -y --no-install-recommends linux-image-rt-amd64
		apt-get clean
		rm -rf /var/lib/apt/lists/*
	END
	"$GPUIMG" build --no-boot-test --no-cache --data-dir="$data" --profile=scripts-only --network \
		--run="$OUT/guest-later.sh" -o "$OUT/$1-later.qcow2" "$OUT/$1.qcow2" >"$OUT/$1-later.log" 2>&1 </dev/null
}

# guest_cycle NAME FIRMWARE[,FIRMWARE] MAKE-BASE-OPTION...
guest_cycle() {
	local name=$1 firmware=$2 code=0 base
	shift 2
	need_root
	base=$(base "$name" "$@")
	guest_inspect "$base" "$OUT/$name-before"
	"$GPUIMG" build --no-cache --firmware="${firmware/bios,uefi/both}" -o "$OUT/$name.qcow2" "$base" \
		>"$OUT/$name.log" 2>&1 </dev/null || code=$?
	echo "$code" >"$OUT/$name.code"
	[ "$code" -eq 0 ] || return 0 # the tests tell
	guest_inspect "$OUT/$name.qcow2" "$OUT/$name-after"
	code=0
	guest_later "$name" || code=$?
	echo "$code" >"$OUT/$name-later.code"
	[ "$code" -eq 0 ] || return 0
	guest_inspect "$OUT/$name-later.qcow2" "$OUT/$name-later"
	code=0
	"$GPUIMG" boot --json --firmware="${firmware%%,*}" --expect=pci=nocrs --expect=pci=realloc \
		--console="$OUT/$name-later.console" "$OUT/$name-later.qcow2" \
		>"$OUT/$name-later-boot.json" 2>"$OUT/$name-later-boot.err" </dev/null || code=$?
	echo "$code" >"$OUT/$name-later-boot.code"
	rm -f "$OUT/$name-later.qcow2"
	guest_row "$name" "$firmware"
}

manifest() { # name, jq expression
	jq -r "$2" "$OUT/$1.manifest.json"
}

# A row of the table in docs/boot-chains.md, from what was measured.
guest_row() {
	local bad
	bad=$(jq '[.findings[] | select(.verdict == "bad")] | length' "$OUT/$1-before.json")
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$bad points do not hold" \
		"$(manifest "$1" '[.steps[] | select(.name != "boot-test") | .seconds] | add | round') s" \
		"$(jq -r '.verdict' "$OUT/$1-after.json")" \
		"$(manifest "$1" '.boot_test.verdict') in $(manifest "$1" '[.steps[] | select(.name == "boot-test") | .seconds] | add | round') s" \
		"$(jq -r '.verdict' "$OUT/$1-later-boot.json")" >>"$OUT/guests.tsv"
}

kept_code() { # name, want
	status=$(cat "$OUT/$1.code") out=$(tail -n 40 "$OUT/$1.log" 2>/dev/null || true) err=$(cat "$OUT/$1.err" 2>/dev/null || true)
	expect_status "$2"
}

# The base is no GPU node image, and inspect says why.
check_before() {
	kept_code "$1-before" 5
	jq -e '[.findings[] | select(.verdict == "bad") | .id] | (index("modules.alias") and index("cmdline.param"))' \
		"$OUT/$1-before.json"
}

check_build() {
	kept_code "$1" 0
	[ "$(manifest "$1" '[.proof[] | select(.verdict == "bad")] | length')" = 0 ]
}

check_after() {
	kept_code "$1-after" 0
	[ "$(jq '[.findings[] | select(.verdict == "bad")] | length' "$OUT/$1-after.json")" = 0 ]
}

# check_pair NAME FIRMWARE...: the base shows the failure, the image does not.
check_pair() {
	local name=$1 firmware
	shift
	[ "$(manifest "$name" .boot_test.verdict)" = passed ]
	for firmware in "$@"; do
		manifest "$name" '.boot_test.runs[] | select(.firmware == "'"$firmware"'") | "\(.base.bar_assigned) \(.image.bar_assigned)"' |
			grep -x 'no yes'
	done
}

# A kernel that came later has the block and the parameters, and boots with them.
check_later() {
	kept_code "$1-later" 0
	[ "$(jq '[.kernels[] | select(.version | contains("-rt-"))] | length' "$OUT/$1-later.json")" = 1 ]
	[ "$(jq '[.findings[] | select(.verdict == "bad")] | length' "$OUT/$1-later.json")" = 0 ]
	kept_code "$1-later-boot" 0
}
