#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What: prints the table of docs/driver.md from the last run of tests/guests/driver-*.bats.
# Why:  every cell is of a real run.
# How:  after 'make check-drivers'; GPUIMG_TEST_OUT as for the tests.
set -eu

rows=${GPUIMG_TEST_OUT:-$(dirname "$0")/../../build/test-out}/drivers.tsv
[ -e "$rows" ] || exit 0
echo '| source | suite | kernels | seconds | driver | outcome |'
echo '| --- | --- | --- | --- | --- | --- |'
sort -u "$rows" | awk -F '\t' '{ printf "|"; for (i = 1; i <= NF; i++) printf " %s |", $i; print "" }'
