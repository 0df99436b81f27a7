# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # the parts of make-base share their state
# What: an LVM physical volume with one volume group and one linear volume, as bytes.
# Why:  pvcreate and lvcreate want block devices, and their UUIDs are new each time.
# The format is LVM's own (label/label.h, format_text/layout.h), and has not changed since 2.02;
# 'pvck --dump metadata FILE' reads and checks it.

readonly EXTENT_MIB=4 # LVM's default

# whole extents only
lv_mib()
{
	echo $(((root_mib - LV_START_MIB) / EXTENT_MIB * EXTENT_MIB))
}

# Writes the first MiB of the partition; the volume itself is what mke2fs writes behind it.
make_lvm_label()
{
	local start=$((root_start_mib * MIB)) text=$work/lvm.text label=$work/lvm.label area=$work/lvm.area

	{ lvm_metadata && printf '\0'; } >"$text"
	lvm_label_body >"$label"
	lvm_area_body "$text" >"$area"
	{
		printf LABELONE
		le64 1
		le32 "$(lvm_crc <"$label")"
		cat "$label"
	} | write_at $((start + SECTOR))
	{
		le32 "$(lvm_crc <"$area")"
		cat "$area"
	} | write_at $((start + 4096))
	write_at $((start + 4096 + SECTOR)) <"$text"
}

write_at()
{
	dd of="$disk" oflag=seek_bytes seek="$1" conv=notrunc status=none
}

# the label from its offset field on: the physical volume's id and size, where data and metadata are
lvm_label_body()
{
	{
		le32 32
		printf 'LVM2 001%s' "$(lvm_id pv)"
		le64 $((root_mib * MIB))
		le64 $((LV_START_MIB * MIB)) && le64 0 # data, to the end
		le64 0 && le64 0
		le64 4096 && le64 $((LV_START_MIB * MIB - 4096)) # metadata
		le64 0 && le64 0
		le32 2 && le32 1 # version of the extension, "used by a volume group"
	} | pad_to $((SECTOR - 20))
}

# the metadata area's header after its checksum: where the text is in the area, and the text's own
lvm_area_body()
{
	{
		printf ' LVM2 x[5A%%r0N*>'
		le32 1
		le64 4096 && le64 $((LV_START_MIB * MIB - 4096))
		le64 "$SECTOR" && le64 "$(stat -c %s "$1")"
		le32 "$(lvm_crc <"$1")"
	} | pad_to $((SECTOR - 4))
}

lvm_metadata()
{
	local extents=$(($(lv_mib) / EXTENT_MIB)) extent_sectors=$((EXTENT_MIB * MIB / SECTOR))

	cat <<-EOF
	$ROOT_VG {
	id = "$(lvm_id vg dashes)"
	seqno = 1
	format = "lvm2"
	status = ["RESIZEABLE", "READ", "WRITE"]
	flags = []
	extent_size = $extent_sectors
	max_lv = 0
	max_pv = 0
	metadata_copies = 0

	physical_volumes {
	pv0 {
	id = "$(lvm_id pv dashes)"
	status = ["ALLOCATABLE"]
	flags = []
	dev_size = $((root_mib * MIB / SECTOR))
	pe_start = $((LV_START_MIB * MIB / SECTOR))
	pe_count = $extents
	}
	}

	logical_volumes {
	$ROOT_LV {
	id = "$(lvm_id lv dashes)"
	status = ["READ", "WRITE", "VISIBLE"]
	flags = []
	segment_count = 1

	segment1 {
	start_extent = 0
	extent_count = $extents
	type = "striped"
	stripe_count = 1
	stripes = ["pv0", 0]
	}
	}
	}
	}
	contents = "Text Format Volume Group"
	version = 1
	EOF
}

# An LVM id is 32 letters and digits, with dashes in text; a UUID's hex digits are that too.
lvm_id()
{
	local id

	id=$(uuid_for "lvm-$1" | tr -d -)
	[ -z "${2-}" ] ||
		id=$(sed -E 's/(.{6})(.{4})(.{4})(.{4})(.{4})(.{4})/\1-\2-\3-\4-\5-\6-/' <<<"$id")
	echo "$id"
}

# LVM's CRC-32: the usual polynomial, another start value, no inversion at the end
lvm_crc()
{
	local crc=$((0xf597a6cf)) byte bit

	while read -r byte; do
		crc=$((crc ^ byte))
		for ((bit = 0; bit < 8; bit++)); do
			crc=$(((crc >> 1) ^ (crc & 1 ? 0xedb88320 : 0)))
		done
	done < <(od -An -v -tu1 -w1)
	echo "$crc"
}

pad_to()
{
	dd bs="$1" count=1 conv=sync iflag=fullblock status=none
}
