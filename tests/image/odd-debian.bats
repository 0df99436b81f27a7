#!/usr/bin/env bats
# A real Debian with two kernels and every awkwardness at once, built once, looked at from all sides.
load ../lib/common

setup_file() {
	need_root
	base=$(base odd --kernels=linux-image-amd64,linux-image-rt-amd64 --customize="$REPO/tests/fixtures/odd-debian.sh")
	sha_before=$(sha256sum <"$base")
	cat >"$OUT/probe.sh" <<-'END'
		#!/bin/sh
		# A user's script: tells what it sees.
		set -e
		echo "machine-id $(wc -c </etc/machine-id)" >/probe
		echo "uid $(id -u)" >>/probe
		echo "resolv $(readlink /etc/resolv.conf)" >>/probe
		echo "secret ${GPUIMG_TEST_SECRET:-unset}" >>/probe
		echo "hosts $(ls / | tr '\n' ' ')" >>/probe
		touch /boot/from-script
	END
	echo "hello from outside" >"$OUT/hello"
	# So that a build of the build has the same initramfs.
	export SOURCE_DATE_EPOCH=1700000000
	GPUIMG_TEST_SECRET=leaked built odd "$base" -v --run="$OUT/probe.sh" --upload="$OUT/hello:/opt/site/hello" \
		--upload="$REPO/cloud-init/10-datasources.cfg:/etc/cloud/cloud.cfg.d/10-datasources.cfg" --cmdline-add=iommu=pt
	sha_after=$(sha256sum <"$base")
	root=$(raw_root "$OUT/odd.qcow2" 1)
	manifest=$OUT/odd.manifest.json
	export base sha_before sha_after root manifest
}

@test "the base is not written" {
	[ "$sha_before" = "$sha_after" ]
}

@test "the result is a whole qcow2 without a backing file" {
	qemu-img check -q "$OUT/odd.qcow2"
	[ "$(qemu-img info --output=json "$OUT/odd.qcow2" | jq -r '."backing-filename" // "none"')" = none ]
}

@test "the result's file systems are clean" {
	e2fsck -fn "$root"
}

@test "case 01: every initramfs holds the block, as an independent reader sees it" {
	count=0
	for name in $(guest_ls "$root" /boot | grep '^initrd.img-'); do
		guest_cat "$root" "/boot/$name" >"$BATS_TEST_TMPDIR/initrd"
		rm -rf "$BATS_TEST_TMPDIR/unpacked"
		unmkinitramfs "$BATS_TEST_TMPDIR/initrd" "$BATS_TEST_TMPDIR/unpacked"
		file=$(find "$BATS_TEST_TMPDIR/unpacked" -name gpuimg-gpu-block.conf)
		[ -n "$file" ]
		guest_cat "$root" /etc/modprobe.d/gpuimg-gpu-block.conf | cmp - "$file"
		count=$((count + 1))
	done
	[ "$count" -eq 2 ]
}

@test "case 02: the kernel that had no initramfs has one, although update_initramfs=no" {
	[ "$(jq '.kernels | length' "$manifest")" -eq 2 ]
	jq -e '.kernels | all(.initramfs_bytes > 1000000)' "$manifest"
	guest_ls "$root" /boot | grep -q '^initrd.img-.*-rt-amd64$'
	# The base really had none, or this test shows nothing.
	[ "$(guest_ls "$(raw_root "$base" 1)" /boot | grep -c '^initrd.img-.*-rt-amd64$')" -eq 0 ]
}

@test "case 03: each initramfs holds modules of its own kernel only" {
	for name in $(guest_ls "$root" /boot | grep '^initrd.img-'); do
		guest_cat "$root" "/boot/$name" >"$BATS_TEST_TMPDIR/initrd"
		[ "$(lsinitramfs "$BATS_TEST_TMPDIR/initrd" | sed -n 's,^\(usr/\)\?lib/modules/\([^/]*\)/.*,\2,p' | sort -u)" = "${name#initrd.img-}" ]
	done
}

@test "the initramfs still checks the root file system, as the base's does" {
	for name in $(guest_ls "$root" /boot | grep '^initrd.img-'); do
		guest_cat "$root" "/boot/$name" >"$BATS_TEST_TMPDIR/initrd"
		[ "$(lsinitramfs "$BATS_TEST_TMPDIR/initrd" | grep -c 'sbin/fsck.ext4$')" -eq 1 ]
		[ "$(lsinitramfs "$BATS_TEST_TMPDIR/initrd" | grep -c 'sbin/blkid$')" -eq 1 ]
		[ "$(lsinitramfs "$BATS_TEST_TMPDIR/initrd" | grep -c gpuimg-root-type)" -eq 0 ]
	done
	[ "$(guest_ls "$root" /usr/share/initramfs-tools/conf-hooks.d | grep -c gpuimg)" -eq 0 ]
}

@test "case 05: the parameters reach every entry, recovery too, although a later file assigns" {
	guest_cat "$root" /boot/grub/grub.cfg >"$BATS_TEST_TMPDIR/grub.cfg"
	entries=$(grep -c '^[[:space:]]*linux[[:space:]]' "$BATS_TEST_TMPDIR/grub.cfg")
	[ "$entries" -ge 5 ]
	for word in pci=nocrs pci=realloc iommu=pt; do
		[ "$(grep '^[[:space:]]*linux[[:space:]]' "$BATS_TEST_TMPDIR/grub.cfg" | grep -c " $word\( \|\$\)")" -eq "$entries" ]
		[ "$(grep -c " $word .* $word\( \|\$\)" "$BATS_TEST_TMPDIR/grub.cfg")" -eq 0 ]
	done
	[ "$(grep -c 'linux.* single ' "$BATS_TEST_TMPDIR/grub.cfg")" -ge 2 ]
}

@test "case 05: what the base had is kept: console, root, its own words" {
	guest_cat "$root" /boot/grub/grub.cfg >"$BATS_TEST_TMPDIR/grub.cfg"
	first=$(grep -m 1 '^[[:space:]]*linux[[:space:]]' "$BATS_TEST_TMPDIR/grub.cfg")
	expect_in "$first" "console=ttyS0,115200"
	expect_in "$first" "audit=0"
	expect_in "$first" "site=1"
	expect_in "$first" "root=UUID="
}

@test "case 32: the names of module_blacklist are merged into one" {
	guest_cat "$root" /boot/grub/grub.cfg >"$BATS_TEST_TMPDIR/grub.cfg"
	while read -r line; do
		[ "$(grep -o 'module_blacklist=' <<<"$line" | wc -l)" -eq 1 ]
		expect_in "$line" "nouveau"
	done < <(grep '^[[:space:]]*linux[[:space:]]' "$BATS_TEST_TMPDIR/grub.cfg")
	grep -v single "$BATS_TEST_TMPDIR/grub.cfg" | grep -m 1 '^[[:space:]]*linux' | grep -q 'module_blacklist=[^ ]*floppy'
}

@test "the drop-in sorts after every other file, also in a locale's order" {
	last=$(guest_ls "$root" /etc/default/grub.d | grep 'cfg$' | LC_ALL=C sort | tail -n 1)
	expect_in "$last" "gpuimg.cfg"
	[ "$(guest_ls "$root" /etc/default/grub.d | grep 'cfg$' | sort -f | tail -n 1)" = "$last" ]
}

@test "case 06: the dangling resolv.conf is the same link as before" {
	expect_in "$(guest_stat "$root" /etc/resolv.conf)" '../run/systemd/resolve/stub-resolv.conf'
}

@test "case 07: no identity is left: machine-id, host keys, cloud-init state" {
	expect_in "$(guest_stat "$root" /etc/machine-id)" "Size: 0"
	[ "$(guest_ls "$root" /var/lib/dbus | grep -c '^machine-id$')" -eq 0 ]
	[ "$(guest_ls "$root" /etc/ssh | grep -c '^ssh_host_')" -eq 0 ]
	[ -z "$(guest_ls "$root" /var/lib/cloud)" ]
}

@test "no logs, package lists or caches are left" {
	[ -z "$(guest_ls "$root" /var/log/old)" ]
	[ "$(guest_ls "$root" /var/lib/apt/lists | grep -vc '^partial$')" -eq 0 ]
	[ "$(guest_ls "$root" /var/cache/apt/archives | grep -vc '^partial$')" -eq 0 ]
	[ -z "$(guest_ls "$root" /var/tmp)" ]
}

@test "case 08: a user's script sees a machine-id of full length, the image an empty one" {
	expect_in "$(guest_cat "$root" /probe)" "machine-id 33"
}

@test "a user's script runs as the guest's root and sees nothing of the host" {
	probe=$(guest_cat "$root" /probe)
	expect_in "$probe" "uid 0"
	expect_in "$probe" "secret unset"
	expect_in "$probe" "resolv ../run/systemd/resolve/stub-resolv.conf"
	[ ! -e /probe ] && [ ! -e /boot/from-script ]
	guest_ls "$root" /boot | grep -q '^from-script$'
}

@test "an uploaded file is there, owned by root" {
	[ "$(guest_cat "$root" /opt/site/hello)" = "hello from outside" ]
	expect_in "$(guest_stat "$root" /opt/site/hello)" "User:     0"
	guest_cat "$root" /etc/cloud/cloud.cfg.d/10-datasources.cfg | cmp - "$REPO/cloud-init/10-datasources.cfg"
}

@test "what nobody touched is as it was: owners, modes, times, capabilities" {
	old=$(raw_root "$base" 1)
	for path in /etc/shadow /usr/bin/sudo /usr/bin/ping /var/log/journal /etc/passwd /usr/sbin/sshd; do
		[ "$(guest_stat "$old" "$path" | grep -v -e 'atime' -e 'Inode:')" = "$(guest_stat "$root" "$path" | grep -v -e 'atime' -e 'Inode:')" ]
	done
}

@test "case 24: the change of the initramfs' size is reported, and no GPU module is in it" {
	jq -e '[.proof[] | select(.id == "initramfs.size")] | length == 2' "$manifest"
	jq -e '[.proof[] | select(.id == "initramfs.gpu-module")] | length == 0' "$manifest"
	guest_cat "$root" "/boot/$(guest_ls "$root" /boot | grep -m 1 '^initrd.img-')" >"$BATS_TEST_TMPDIR/initrd"
	[ "$(lsinitramfs "$BATS_TEST_TMPDIR/initrd" | grep -cE '(nouveau|nvidia[^/]*)\.ko')" -eq 0 ]
}

@test "the manifest names base, kernels, entries, steps, tools and every point of the proof" {
	jq -e '.schema == 1 and (.base.sha256 | length == 64) and (.steps | length > 8)' "$manifest"
	[ "$(jq -r .base.sha256 "$manifest")" = "${sha_before%% *}" ]
	[ "$(jq -r .image.sha256 "$manifest")" = "$(sha256sum <"$OUT/odd.qcow2" | cut -d' ' -f1)" ]
	jq -e '.proof | all(.verdict != "bad") and length > 30' "$manifest"
	jq -e '.inputs.user_digests | length == 3' "$manifest"
	jq -e '.packages == {"added": [], "removed": []}' "$manifest"
	(cd "$OUT" && sha256sum --check --quiet --ignore-missing SHA256SUMS)
}

@test "building the built image again gives the same content" {
	again=$(built odd-again "$OUT/odd.qcow2" --run="$OUT/probe.sh" --upload="$OUT/hello:/opt/site/hello" --cmdline-add=iommu=pt)
	new=$(raw_root "$again" 1)
	for path in /boot/grub/grub.cfg /etc/modprobe.d/gpuimg-gpu-block.conf; do
		guest_cat "$root" "$path" >"$BATS_TEST_TMPDIR/old"
		guest_cat "$new" "$path" | cmp - "$BATS_TEST_TMPDIR/old"
	done
	[ "$(guest_ls "$root" /etc/default/grub.d)" = "$(guest_ls "$new" /etc/default/grub.d)" ]
	[ "$(jq -c '[.entries[].cmdline]' "$manifest")" = "$(jq -c '[.entries[].cmdline]' "$OUT/odd-again.manifest.json")" ]
	[ "$(jq -c '[.kernels[].initramfs_sha256]' "$manifest")" = "$(jq -c '[.kernels[].initramfs_sha256]' "$OUT/odd-again.manifest.json")" ]
}
