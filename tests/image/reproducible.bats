#!/usr/bin/env bats
# With SOURCE_DATE_EPOCH, the same inputs give the same bytes, on a real Debian.
load ../lib/common

@test "two builds of one base with one SOURCE_DATE_EPOCH are the same, byte for byte" {
	need_root
	base=$(base default)
	for i in 1 2; do
		SOURCE_DATE_EPOCH=1700000000 "$GPUIMG" build -q --no-boot-test --no-cache --exec=sandbox -o "$OUT/same-$i.qcow2" "$base"
		sha256sum <"$OUT/same-$i.qcow2" >"$OUT/same-$i.sum"
		rm "$OUT/same-$i.qcow2"
	done
	cmp "$OUT/same-1.sum" "$OUT/same-2.sum"
	[ "$(jq -r '.kernels[0].initramfs_sha256' "$OUT/same-1.manifest.json")" = "$(jq -r '.kernels[0].initramfs_sha256' "$OUT/same-2.manifest.json")" ]
}
