# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of bench share their state
# What: an image's content as a raw file, and files out of its root by debugfs: no root, no mount.
# Why:  results are checked by programs that share no code with any of the ways.

# open_view IMAGE FORMAT: $view is a raw file, by FUSE where that works, else a sparse copy
open_view()
{
	view=$work/view
	: >"$view"
	rm -f "$work/view.pid"
	if qemu-storage-daemon --daemonize --pidfile "$work/view.pid" \
		--blockdev "$(jq -nc --arg file "$1" --arg format "$2" '{"node-name": "image",
			driver: $format, "read-only": true,
			file: {driver: "file", filename: $file, locking: "off"}}')" \
		--export "$(jq -nc --arg view "$view" '{type: "fuse", id: "view",
			"node-name": "image", mountpoint: $view}')" >"$work/view.log" 2>&1; then
		view_pid=$(cat "$work/view.pid")
		return 0
	fi
	rm -f "$view"
	qemu-img convert -q -f "$2" -O raw "$1" "$view"
}

close_view()
{
	local tries

	if [ -n "$view_pid" ]; then
		kill "$view_pid" 2>/dev/null || true
		for ((tries = 0; tries < 50; tries++)); do
			kill -0 "$view_pid" 2>/dev/null || break
			sleep 0.1
		done
		view_pid=
	fi
	[ -z "$work" ] || rm -f "$work/view"
}

# guest_file PATH TO: debugfs does not tell failure by its exit status
guest_file()
{
	rm -f "$2"
	debugfs -R "dump \"$1\" \"$2\"" "$view?offset=$root_offset" >/dev/null 2>&1 || true
	[ -s "$2" ]
}

# versions of the kernels in /boot; odd names are left out, since debugfs reads them as commands
guest_kernels()
{
	debugfs -R "ls -p /boot" "$view?offset=$root_offset" 2>/dev/null | cut -d/ -f6 |
		sed -n 's/^vmlinuz-\([A-Za-z0-9.+~_-]*\)$/\1/p'
}

# the one ext4 file system with a Debian's files; a base that is anything else is refused
find_root()
{
	local start number found=()

	while read -r start number; do
		root_offset=$((start * 512))
		[ "$(blkid -p -O "$root_offset" -o value -s TYPE "$view")" = ext4 ] || continue
		guest_file /etc/fstab "$work/fstab" || continue
		guest_file /usr/lib/os-release "$work/os-release" ||
			guest_file /etc/os-release "$work/os-release" || continue
		found+=("$root_offset $number")
	done < <(sfdisk -J "$view" 2>/dev/null |
		jq -r '.partitiontable.partitions[] | "\(.start) \(.node | capture("(?<n>[0-9]+)$").n)"')

	[ ${#found[@]} -eq 1 ] ||
		die 4 "base '$base' has ${#found[@]} ext4 root file systems in its partitions, not one" \
			"take a Debian or Ubuntu cloud image"
	read -r root_offset root_number <<<"${found[0]}"
	! awk '$1 !~ /^#/ && $2 == "/boot" { found = 1 } END { exit !found }' "$work/fstab" ||
		die 4 "base '$base' has /boot on a file system of its own" "take one without"
	[ -n "$(guest_kernels)" ] || die 4 "base '$base' has no kernel in /boot" "take one that boots"
}

# all ways start from this file: alone, of a format that all of them read
open_base()
{
	local info

	info=$(qemu-img info --output=json -- "$base" 2>"$work/info.log") ||
		die 4 "cannot read base '$base': $(tail -n 1 "$work/info.log")" "is it an image?"
	base_format=$(jq -r .format <<<"$info")
	[[ $base_format =~ ^(qcow2|raw)$ ]] ||
		die 4 "base '$base' is $base_format" "qemu-img convert it to qcow2"
	[ "$(jq 'has("backing-filename")' <<<"$info")" = false ] ||
		die 4 "base '$base' lies over another image" "qemu-img convert makes it one file"
	base_compression=$(jq -r '.["format-specific"].data["compression-type"] // "zstd"' <<<"$info")
	base_stat=$(stat -c '%s %y' "$base")

	open_view "$base" "$base_format"
	find_root
	guest_file /boot/grub/grub.cfg "$work/grub.cfg" ||
		die 4 "base '$base' has no '/boot/grub/grub.cfg'" "take one that GRUB boots"
	base_roots=$(entry_roots "$work/grub.cfg")
	jq -n --arg file "${base##*/}" --arg format "$base_format" \
		--arg sha256 "$(sha256sum <"$base" | cut -d' ' -f1)" \
		--arg kernels "$(guest_kernels)" --argjson bytes "$(stat -c %s "$base")" \
		--arg os "$(sed -n 's/^PRETTY_NAME="*\([^"]*\)"*$/\1/p' "$work/os-release")" \
		--argjson virtual "$(jq '.["virtual-size"]' <<<"$info")" \
		--arg compression "$base_compression" \
		'{file: $file, sha256: $sha256, format: $format, bytes: $bytes, virtual_bytes: $virtual,
		compression: $compression, os: $os, kernels: ($kernels | split("\n"))}' >"$work/base.json"
	close_view
}

base_untouched()
{
	[ "$(stat -c '%s %y' "$base")" = "$base_stat" ] ||
		die 1 "base '$base' was written to during the run" "this run's figures are no good"
}

make_default_base()
{
	step "base: a small Debian"
	base=$work/base.qcow2
	"$here/make-base.sh" -q -o "$base" >/dev/null || die 1 "cannot make a base image"
}
