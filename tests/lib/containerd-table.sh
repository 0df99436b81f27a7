#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What: prints the table of docs/containerd.md from the last run of tests/image/containerd.bats.
# Why:  every cell is of a real run.
# How:  after the test; GPUIMG_TEST_OUT as for the tests.
set -eu

rows=${GPUIMG_TEST_OUT:-$(dirname "$0")/../../build/test-out}/containerd.tsv
[ -e "$rows" ] || exit 0
echo '| containerd | configuration | written by | files edited | outcome |'
echo '| --- | --- | --- | --- | --- |'
awk -F '\t' '{ printf "|"; for (i = 1; i <= NF; i++) printf " %s |", $i; print "" }' "$rows"
