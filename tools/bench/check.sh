# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of bench share their state
# What: whether a way's result is what was asked for, outside of the measured time.
# Why:  no way is to win by not doing the work: the block must be in every initramfs, byte for byte
#       as in the root, and the parameters in every boot entry.

readonly BLOCK_PATH=/etc/modprobe.d/gpuimg-gpu-block.conf

# check_result IMAGE EXTRA: EXTRA is a further module that is to be blocked; $wrong tells why not
check_result()
{
	local image=$1 extra=$2 status=0

	wrong=
	[ -f "$image" ] || { wrong="no image" && return 1; }
	qemu-img check -q -f qcow2 "$image" >/dev/null 2>&1 || { wrong="not a sound qcow2" && return 1; }
	[ "$(qemu-img info --output=json "$image" | jq 'has("backing-filename")')" = false ] ||
		{ wrong="needs a backing file" && return 1; }

	open_view "$image" qcow2
	check_content "$extra" || status=1
	close_view
	rm -rf "$work/check"
	return "$status"
}

check_content()
{
	local kernel kernels

	rm -rf "$work/check"
	mkdir "$work/check"
	guest_file "$BLOCK_PATH" "$work/check/block" || { wrong="no '$BLOCK_PATH'" && return 1; }
	check_block "$work/check/block" "$1" || return 1
	guest_file /boot/grub/grub.cfg "$work/check/grub.cfg" || { wrong="no grub.cfg" && return 1; }
	check_entries "$work/check/grub.cfg" || return 1

	kernels=$(guest_kernels)
	[ "$(wc -l <<<"$kernels")" -eq "$(jq '.kernels | length' "$work/base.json")" ] ||
		{ wrong="other kernels than the base" && return 1; }
	while read -r kernel; do
		check_initramfs "$kernel" || return 1
	done <<<"$kernels"
}

check_block()
{
	local module

	for module in nouveau $2; do
		grep -q -x "blacklist $module" "$1" ||
			{ wrong="'$BLOCK_PATH' does not block '$module'" && return 1; }
	done
}

# every entry that boots Linux
check_entries()
{
	local entries without

	entries=$(grep -c -E '^[[:space:]]+linux[[:space:]]' "$1" || true)
	[ "$entries" -gt 0 ] || { wrong="no boot entry" && return 1; }
	without=$(awk '$1 == "linux" && (" " $0 " " !~ / pci=nocrs / || " " $0 " " !~ / pci=realloc /)' \
		"$1" | wc -l)
	[ "$without" -eq 0 ] || { wrong="$without boot entries without the parameters" && return 1; }
	[ "$(entry_roots "$1")" = "$base_roots" ] ||
		{ wrong="boot entries name another root: $(entry_roots "$1" | paste -sd' ')" && return 1; }
}

# what root= says in the entries; a device's name of the build machine would not boot on a node
entry_roots()
{
	awk '$1 == "linux" { for (i = 3; i <= NF; i++) if ($i ~ /^root=/) print $i }' "$1" | sort -u
}

check_initramfs()
{
	local file=$work/check/initrd dir=$work/check/initrd.d inside

	guest_file "/boot/initrd.img-$1" "$file" || { wrong="kernel $1 has no initramfs" && return 1; }
	rm -rf "$dir"
	unmkinitramfs "$file" "$dir" >/dev/null 2>&1 ||
		{ wrong="the initramfs of $1 cannot be read" && return 1; }
	inside=$(find "$dir" -type f -path "*$BLOCK_PATH" | sed -n 1p)
	[ -n "$inside" ] || { wrong="no '$BLOCK_PATH' in the initramfs of $1" && return 1; }
	cmp -s "$inside" "$work/check/block" ||
		{ wrong="another '$BLOCK_PATH' in the initramfs of $1" && return 1; }
}
