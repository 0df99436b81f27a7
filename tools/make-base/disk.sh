# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of make-base share their state
# What: partition table, ESP and ext4 file systems, and the qcow2 file.
# Why:  all of it is written by user-space tools into a plain file: no loop device, no mount.

plan_disk()
{
	disk_mib=$(size_mib "$size")
	case "$loader" in
	grub) esp_mib=124 ;;
	*) esp_mib=764 ;; # kernels with their initramfs: two, and the new one beside them
	esac
	boot_start_mib=$((ESP_START_MIB + esp_mib + 2))
	boot_mib=0
	[ -z "$boot_size" ] || boot_mib=$(size_mib "$boot_size")
	root_start_mib=$((boot_start_mib + boot_mib))
	root_mib=$((disk_mib - root_start_mib - 1)) # the last MiB: backup GPT
}

little_endian()
{
	local i

	for ((i = 0; i < $1; i += 8)); do
		printf '%b' "\\x$(printf %02x $((($2 >> i) & 255)))"
	done
}

le32()
{
	little_endian 32 "$1"
}

le64()
{
	little_endian 64 "$1"
}

partition_line()
{
	local number=$1 start_mib=$2 size_mib=$3 type=$4 uuid=$5

	printf '%s%d : start=%d, size=%d, type=%s, uuid=%s\n' "$disk" "$number" \
		$((start_mib * MIB / SECTOR)) $((size_mib * MIB / SECTOR)) "$type" "${uuid^^}"
}

# The root comes last on the disk, whatever its number, so that growpart can extend it. A BIOS boot
# partition says that an image boots there: only GRUB does.
partition_disk()
{
	local root_type_uuid=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709 # x86-64 root

	[ "$root_fs" != lvm ] || root_type_uuid=E6D6D379-F507-44C2-A23C-238F2A3DF928
	truncate -s "${disk_mib}M" "$disk"
	{
		printf 'label: gpt\nlabel-id: %s\nunit: sectors\n' "${disk_uuid^^}"
		[ "$loader" != grub ] || partition_line "$BIOS_PART" "$BIOS_START_MIB" "$BIOS_MIB" \
			21686148-6449-6E6F-744E-656564454649 "$bios_partuuid"
		partition_line "$ESP_PART" "$ESP_START_MIB" "$esp_mib" \
			C12A7328-F81F-11D2-BA4B-00A0C93EC93B "$esp_partuuid"
		[ -z "$boot_uuid" ] || partition_line "$boot_part" "$boot_start_mib" "$boot_mib" \
			BC13C2FF-59E6-4262-A352-B275FD6F7172 "$boot_partuuid"
		partition_line "$ROOT_PART" "$root_start_mib" "$root_mib" \
			"$root_type_uuid" "$root_partuuid"
	} | sfdisk -q --no-reread --no-tell-kernel "$disk" >"$work/sfdisk.log" 2>&1 ||
		die 1 "cannot write the partition table: $(tail -n 1 "$work/sfdisk.log")"
}

# copies a partition's image into the disk; dd would read every hole, at seconds for each GiB
place()
{
	local image=$1 start_mib=$2 target

	target="driver=raw,offset=$((start_mib * MIB)),size=$(stat -c %s "$image")"
	target+=",file.driver=file,file.filename=${disk//,/,,}"
	qemu-img convert -n -f raw "$image" --target-image-opts "$target" ||
		die 1 "cannot write partition image '$(basename "$image")' into the disk"
	rm -f "$image"
}

make_esp()
{
	local image=$work/esp.img

	truncate -s "${esp_mib}M" "$image"
	mkfs.vfat -F 32 -i "$esp_id" -n EFI "$image" >/dev/null
	mcopy -s -i "$image" "$esp"/* ::/ || die 1 "cannot write the ESP"
	place "$image" "$ESP_START_MIB"
}

# our own mke2fs.conf: a newer host would switch on features that the guest's GRUB cannot read
# (metadata_csum_seed, orphan_file)
make_ext4()
{
	local start_mib=$1 mib=$2 uuid=$3 from=$4 extended

	# in one string, since a second -E makes mke2fs forget the first
	extended="offset=$((start_mib * MIB)),hash_seed=$uuid,root_owner=0:0"
	extended+=",lazy_itable_init=0,lazy_journal_init=0"

	cat >"$work/mke2fs.conf" <<-EOF
	[defaults]
		base_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
		default_mntopts = acl,user_xattr
		enable_periodic_fsck = 0
		blocksize = 4096
		inode_size = 256
		inode_ratio = 16384
	[fs_types]
		ext4 = {
			features = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
		}
	EOF
	MKE2FS_CONFIG=$work/mke2fs.conf run_logged "$work/mkfs.log" mke2fs -t ext4 -m 1 -U "$uuid" \
		-E "$extended" -d "$from" "$disk" "${mib}M"
}

make_root_fs()
{
	case "$root_fs" in
	ext4) make_ext4 "$root_start_mib" "$root_mib" "$root_uuid" "$root" || mkfs_failed "the root" ;;
	lvm) make_lvm_root || mkfs_failed "the root" ;;
	*) make_root_image || mkfs_failed "the root" ;;
	esac
}

make_lvm_root()
{
	make_lvm_label
	make_ext4 $((root_start_mib + LV_START_MIB)) "$(lv_mib)" "$root_uuid" "$root"
}

make_root_image()
{
	local image=$work/root.img

	truncate -s "${root_mib}M" "$image"
	"make_$root_fs" "$image" || return 1
	place "$image" "$root_start_mib"
}

# /boot leaves the root only now: until here the guest's tools saw one tree
make_boot_fs()
{
	[ -n "$boot_uuid" ] || return 0
	mv "$root/boot" "$work/boot"
	mkdir "$root/boot"
	make_ext4 "$boot_start_mib" "$boot_mib" "$boot_uuid" "$work/boot" || mkfs_failed /boot
}

mkfs_failed()
{
	tail -n 5 "$work/mkfs.log" >&2
	die 1 "cannot make the file system of $1" "if it is full, give a larger --size or --separate-boot"
}

make_disk()
{
	local boot=${boot_size:+, /boot $boot_size on partition $boot_part}

	step "disk: $size, root $root_fs, boot loader $loader$boot"
	plan_disk
	partition_disk
	[ "$loader" != grub ] || install_bios_grub
	make_esp
	make_boot_fs
	make_root_fs
	check_disk
	rm -rf --one-file-system "${root:?}"
}

# the tools above write into one file at offsets: that none wrote over another's part is seen here
check_disk()
{
	sfdisk --verify "$disk" >"$work/sfdisk.log" 2>&1 ||
		die 1 "the partition table does not verify: $(tail -n 1 "$work/sfdisk.log")"
	check_uuid_at "$ESP_START_MIB" "$esp_mib" "$esp_uuid"
	[ -z "$boot_uuid" ] || check_uuid_at "$boot_start_mib" "$boot_mib" "$boot_uuid"
	if [ "$root_fs" = lvm ]; then
		check_uuid_at "$root_start_mib" "$root_mib" "$(lvm_id pv dashes)"
		check_uuid_at $((root_start_mib + LV_START_MIB)) "$(lv_mib)" "$root_uuid"
	else
		check_uuid_at "$root_start_mib" "$root_mib" "$root_uuid"
	fi
}

check_uuid_at()
{
	local found

	found=$(blkid -p -O $(($1 * MIB)) -S $(($2 * MIB)) -s UUID -o value "$disk") || true
	[ "$found" = "$3" ] ||
		die 1 "the file system at $1 MiB of the disk is not '$3' but '${found:-unknown}'"
}

convert_disk()
{
	local options=(-O qcow2)

	[ "$compression" = none ] || options+=(-c -o "compression_type=$compression")
	step "image: qcow2, compression $compression"
	run_logged "$work/convert.log" qemu-img convert -f raw "${options[@]}" "$disk" "$1" ||
		die 1 "cannot write '$1': $(tail -n 1 "$work/convert.log")"
	rm -f "$disk"
}
