#!/bin/sh
# What: runs test programs that speak TAP (unit tests, bats files) and adds up what they say.
# Why:  one closing line, 'N passed, N failed, N skipped', over everything that ran.
# How:  tests/lib/run-tests.sh FILE...; *.bats by bats, one after the other: they share guests and
#       servers; before them the rest as they are, as many at once as there are processors. Exit 1 on
#       a failure.
set -u

limit=${GPUIMG_TEST_TIMEOUT:-2400}

run_one() { # FILE PREFIX: to PREFIX.tap, PREFIX.err; exit code and seconds to PREFIX.end
	started=$(date +%s)
	case $1 in
	*.bats) timeout -k 10 "$limit" bats --tap "$1" ;;
	*) timeout -k 10 "$limit" "$1" ;;
	esac >"$2.tap" 2>"$2.err" </dev/null
	echo "$? $(($(date +%s) - started))" >"$2.end"
}

if [ "${1:-}" = --one ]; then
	run_one "$2" "$3/${2##*/}"
	exit
fi

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
passed=0 failed=0 skipped=0

add_up() { # FILE
	result=$out/${1##*/}
	read -r code seconds <"$result.end"
	good=$(grep -c '^ok ' "$result.tap")
	skips=$(grep -ci '^ok .* # skip' "$result.tap")
	bad=$(grep -c '^not ok ' "$result.tap")
	plan=$(sed -n 's/^1\.\.\([0-9][0-9]*\).*/\1/p' "$result.tap" | head -n 1)
	# A program that dies, or stops before its plan is done, has failed once more.
	if [ "$code" -ne 0 ] && [ "$bad" -eq 0 ] || [ "${plan:-none}" != "$((good + bad))" ]; then
		bad=$((bad + 1))
		echo "not ok - $1 ended with code $code after $good of ${plan:-an unknown number of} checks"
	fi
	echo "# $1: $((good - skips)) passed, $bad failed, $skips skipped, $seconds s"
	if [ "$bad" -gt 0 ]; then
		grep -A 12 '^not ok ' "$result.tap"
		tail -n 20 "$result.err"
	fi
	grep -i '^ok .* # skip' "$result.tap"
	grep '^# score:' "$result.tap"
	passed=$((passed + good - skips)) failed=$((failed + bad)) skipped=$((skipped + skips))
}

for file in "$@"; do
	case $file in
	*.bats) ;;
	*) echo "$file" ;;
	esac
done | xargs -r -P "$(nproc)" -I FILE "$0" --one FILE "$out"

for file in "$@"; do
	case $file in
	*.bats) run_one "$file" "$out/${file##*/}" ;;
	esac
	add_up "$file"
done

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
