#!/bin/sh
# What: runs test programs that speak TAP (unit tests, bats files) and adds up what they say.
# Why:  one closing line, 'N passed, N failed, N skipped', over everything that ran.
# How:  tests/lib/run-tests.sh FILE...; *.bats by bats, the rest as they are. Exit 1 on a failure.
set -u

limit=${GPUIMG_TEST_TIMEOUT:-2400}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0 skipped=0

run_one() {
	case $1 in
	*.bats) timeout -k 10 "$limit" bats --tap "$1" ;;
	*) timeout -k 10 "$limit" "$1" ;;
	esac >"$out/tap" 2>"$out/err" </dev/null
}

for file in "$@"; do
	started=$(date +%s)
	run_one "$file"
	code=$?
	good=$(grep -c '^ok ' "$out/tap")
	skips=$(grep -ci '^ok .* # skip' "$out/tap")
	bad=$(grep -c '^not ok ' "$out/tap")
	plan=$(sed -n 's/^1\.\.\([0-9][0-9]*\).*/\1/p' "$out/tap" | head -n 1)
	# A program that dies, or stops before its plan is done, has failed once more.
	if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ] || [ "${plan:-none}" != "$((good + bad))" ]; then
		bad=$((bad + 1))
		echo "not ok - $file ended with code $code after $good of ${plan:-an unknown number of} checks"
	fi
	echo "# $file: $((good - skips)) passed, $bad failed, $skips skipped, $(($(date +%s) - started)) s"
	if [ "$bad" -gt 0 ]; then
		grep -A 12 '^not ok ' "$out/tap"
		tail -n 20 "$out/err"
	fi
	grep -i '^ok .* # skip' "$out/tap"
	grep '^# score:' "$out/tap"
	passed=$((passed + good - skips)) failed=$((failed + bad)) skipped=$((skipped + skips))
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
