#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What: prints the table of docs/boot-chains.md from the last run of tests/guests.
# Why:  every cell is of a real run.
# How:  after 'make check-guests'; GPUIMG_TEST_OUT as for the tests.
set -eu

rows=${GPUIMG_TEST_OUT:-$(dirname "$0")/../../build/test-out}/guests.tsv
[ -e "$rows" ] || exit 0
echo '| guest | firmware | inspect before | build | inspect after | boot pair | kernel installed later |'
echo '| --- | --- | --- | --- | --- | --- | --- |'
sort -u "$rows" | awk -F '\t' '{ printf "|"; for (i = 1; i <= NF; i++) printf " %s |", $i; print "" }'
