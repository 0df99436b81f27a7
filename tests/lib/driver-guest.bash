# SPDX-License-Identifier: Apache-2.0
# What: real drivers on real guests with several kernels: what is refused, and by which words; what is baked.
# Why:  package managers and DKMS exit 0 for a kernel that they pass over.
# How:  'load ../lib/driver-guest' after common; driver_try NAME BASE OPTION..., driver_row; rows go to
#       $OUT/drivers.tsv, which tests/lib/driver-table.sh prints.
# shellcheck shell=bash disable=SC2034 # status, out and err are for common.bash

# driver_try NAME BASE OPTION...: a build, whose exit code, words and seconds stand under NAME.
driver_try() {
	local name=$1 base=$2 code=0 began
	shift 2
	began=$(date +%s)
	"$GPUIMG" build --no-cache -o "$OUT/$name.qcow2" "$@" "$base" \
		>"$OUT/$name.out" 2>"$OUT/$name.err" </dev/null || code=$?
	echo "$code" >"$OUT/$name.code"
	echo $(($(date +%s) - began)) >"$OUT/$name.seconds"
}

driver_code() { # name, want
	status=$(cat "$OUT/$1.code") out=$(cat "$OUT/$1.out") err=$(cat "$OUT/$1.err")
	expect_status "$2"
}

driver_is_refused() { # name, words: before anything is compiled
	local name=$1 word
	shift
	driver_code "$name" 4
	for word; do
		expect_in "$err" "$word"
	done
	expect_not_in "$err" "compiles"
	[ ! -e "$OUT/$name.qcow2" ]
}

# driver_row NAME SOURCE SUITE KERNELS OUTCOME: of a build that was tried.
driver_row() {
	local manifest=$OUT/$1.manifest.json modules=none
	if [ "$(cat "$OUT/$1.code")" -eq 0 ]; then
		modules=$(jq -r '"\(.driver.version) \(.driver.flavour), \(.driver.found.modules | length) modules"' "$manifest")
	fi
	printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$2" "$3" "$4" "$(cat "$OUT/$1.seconds")" "$modules" "$5" >>"$OUT/drivers.tsv"
}

# Archives have open modules that their own security kernels have outgrown: either they are baked, or what
# the compiler says about which kernel is told.
driver_open_is_told() { # name, branch
	if [ "$(cat "$OUT/$1.code")" -eq 0 ]; then
		driver_is_whole "$1" "$2"
		jq -e '.driver.found.modules | any(.license == "Dual MIT/GPL") and all(.license != "NVIDIA")' "$OUT/$1.manifest.json"
		return
	fi
	driver_code "$1" 1
	expect_in "$err" "error: stage 'driver'"
	expect_in "$err" "kernel '"
	expect_in "$err" "was not compiled"
	expect_in "$err" " error: "
	[ ! -e "$OUT/$1.qcow2" ]
}

driver_outcome() { # name
	if [ "$(cat "$OUT/$1.code")" -eq 0 ]; then
		echo baked
	elif grep -q 'was not compiled' "$OUT/$1.err"; then
		echo "refused by the kernel's name: its modules do not compile for it"
	else
		echo refused
	fi
}

driver_verdict() { # name
	jq -r .boot_test.verdict "$OUT/$1.manifest.json" 2>/dev/null || echo missing
}

# Every kernel of the image has modules of one version, and each point holds.
driver_is_whole() { # name, branch
	local manifest=$OUT/$1.manifest.json
	driver_code "$1" 0
	jq -e --arg branch "$2" '.driver.branch == $branch' "$manifest"
	jq -e '(.driver.found.modules | map(.kernel) | unique) == ([.kernels[].version] | sort)' "$manifest"
	jq -e '.driver.version as $v | .driver.found.modules | all(.version == $v)' "$manifest"
	jq -e '[.proof[] | select(.verdict == "bad")] == []' "$manifest"
}

# The base shows the failure, the image does not; its driver loads as far as it can without a card.
driver_boots() { # name
	[ "$(jq -r .boot_test.verdict "$OUT/$1.manifest.json")" = passed ] || {
		jq .boot_test "$OUT/$1.manifest.json"
		return 1
	}
	jq -e '.boot_test.runs | all(.image.driver != null)' "$OUT/$1.manifest.json"
}
