#!/bin/bash
# What: prints what tests/publish saw, as a markdown table.
# Why:  the table of docs/publish.md holds real runs only.
# How:  tests/lib/publish-table.sh [FILE], after 'make check-publish'.
set -eu

file=${1:-${GPUIMG_TEST_OUT:-build/test-out}/publish.tsv}
echo '| backend | server | publish | again | killed and resumed | wrong credentials | verified |'
echo '|---|---|---|---|---|---|---|'
# The last row of each backend and server, in the order of their first.
awk -F'\t' '
	{ key = $1 "\t" $2; if (!(key in last)) order[++count] = key; last[key] = $0 }
	END { for (i = 1; i <= count; i++) { $0 = last[order[i]]
		printf "|"; for (f = 1; f <= 7; f++) printf " %s |", $f; print "" } }' "$file"
