# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # a line before gives megabytes; the argument is the root
# What: fills the guest's /srv/data with files of 1 to 50 MB, half of which compress.
# Why:  stands for a node's data (models, container layers); the same bytes every time.
set -euo pipefail

# noise NUMBER MEGABYTES: bytes that look random, by a fixed key and the number
noise()
{
	head -c "$2"000000 /dev/zero | openssl enc -aes-128-ctr -nosalt \
		-K 00112233445566778899aabbccddeeff -iv "$(printf '%032x' "$1")"
}

# text NUMBER MEGABYTES: lines that differ in little
text()
{
	awk -v n="$1" 'BEGIN { for (;;) printf "%d %d node event: device %d ready\n", n, ++i, i * n % 977 }' |
		head -c "$2"000000 || [ $? -eq 141 ]
}

mkdir -p "$1/srv/data"
number=0
while [ "$megabytes" -gt 0 ]; do
	number=$((number + 1))
	size=$((1 + number * 17 % 50))
	[ "$size" -le "$megabytes" ] || size=$megabytes
	if [ $((number % 2)) -eq 0 ]; then noise "$number" "$size"; else text "$number" "$size"; fi \
		>"$1/srv/data/$(printf '%04d' "$number")"
	megabytes=$((megabytes - size))
done
