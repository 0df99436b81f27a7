#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# grub-probe stand-in: answers grub-mkconfig where the image is a directory, not a mounted disk.
# The real one reads block devices, which the sandbox does not have; here the builder, which
# knows the disk, gives the answers as variables. Scripts of GRUB 2.06 and 2.12 were read for it.
#
# Bind-mount it read-only over the guest's /usr/sbin/grub-probe (grub2-probe), and
# grub-mkrelpath.sh over /usr/bin/grub-mkrelpath (grub2-mkrelpath); the guest's files stay as
# they are. Variables (only the first is always needed):
#   GPUIMG_ROOT_UUID, GPUIMG_ROOT_FS (ext2, xfs, btrfs…: GRUB's names), GPUIMG_ROOT_PARTUUID,
#   GPUIMG_ROOT_LABEL, GPUIMG_ROOT_PARTNUM, GPUIMG_PARTMAP (gpt, msdos; empty: no table)
#   GPUIMG_ROOT_DEVICE: set when the root is a logical volume, its name on the node
#   ("/dev/mapper/VG-LV"); it must lead to something that exists, as the names below
#   GPUIMG_BOOT_UUID, _FS, _PARTUUID, _LABEL, _PARTNUM: set when /boot is its own file system
#   GPUIMG_ESP_UUID, _PARTUUID, _LABEL, _PARTNUM: the FAT file system on /boot/efi or /efi
#
# The sandbox's /dev needs one node more than bubblewrap's own --dev: 10_linux writes
# root=UUID=… only if /dev/disk/by-uuid/UUID exists (a dangling link does not count), so
#   --dev /dev --dir /dev/disk --dir /dev/disk/by-uuid \
#   --symlink ../../null /dev/disk/by-uuid/$GPUIMG_ROOT_UUID
# (/dev/disk/by-partuuid/PARTUUID likewise, for guests that ask for root=PARTUUID=). Without /sys
# the guest cannot see the host's firmware, so no "UEFI Firmware Settings" entry appears.
#
# The answer to "which device is that path on" is /dev/disk/by-uuid/UUID: the name that is also
# right on the node if a script writes it into grub.cfg unchanged; of a logical volume its own, as
# 10_linux writes root=/dev/mapper/VG-LV only then. No hints are given: GRUB then searches all disks
# for the UUID, which is right on any machine.
set -eu

fail()
{
	echo "grub-probe: error: $*." >&2
	exit 1
}

# prints root, boot or esp: the file system that holds a path of the guest
role_of_path()
{
	path=$(readlink -f -- "$1") || path=
	[ -e "$path" ] || fail "failed to get canonical path of \`$1'"

	case "$path" in
	/dev | /dev/* | /proc | /proc/* | /sys | /sys/* | /run | /run/*)
		fail "cannot find a device for $path (is /dev mounted?)" ;;
	/boot/efi | /boot/efi/* | /efi | /efi/*)
		if [ -n "${GPUIMG_ESP_UUID-}" ]; then echo esp; else role_of_boot; fi ;;
	/boot | /boot/*)
		role_of_boot ;;
	*)
		echo root ;;
	esac
}

role_of_boot()
{
	if [ -n "${GPUIMG_BOOT_UUID-}" ]; then echo boot; else echo root; fi
}

# only names that an earlier answer of ours gave, or that name the same partition
role_of_device()
{
	case "$1" in
	"${GPUIMG_ROOT_DEVICE:-none}" | \
	"/dev/disk/by-uuid/${GPUIMG_ROOT_UUID}" | \
	"/dev/disk/by-partuuid/${GPUIMG_ROOT_PARTUUID:-none}")
		echo root ;;
	"/dev/disk/by-uuid/${GPUIMG_BOOT_UUID:-none}" | \
	"/dev/disk/by-partuuid/${GPUIMG_BOOT_PARTUUID:-none}")
		echo boot ;;
	"/dev/disk/by-uuid/${GPUIMG_ESP_UUID:-none}" | \
	"/dev/disk/by-partuuid/${GPUIMG_ESP_PARTUUID:-none}")
		echo esp ;;
	*)
		fail "cannot find a GRUB drive for $1.  Check your device.map" ;;
	esac
}

load_role()
{
	volume=
	case "$1" in
	root)
		volume=${GPUIMG_ROOT_DEVICE-}
		uuid=$GPUIMG_ROOT_UUID fs=${GPUIMG_ROOT_FS-} partuuid=${GPUIMG_ROOT_PARTUUID-}
		label=${GPUIMG_ROOT_LABEL-} partnum=${GPUIMG_ROOT_PARTNUM-} ;;
	boot)
		uuid=$GPUIMG_BOOT_UUID fs=${GPUIMG_BOOT_FS-} partuuid=${GPUIMG_BOOT_PARTUUID-}
		label=${GPUIMG_BOOT_LABEL-} partnum=${GPUIMG_BOOT_PARTNUM-} ;;
	esp)
		uuid=$GPUIMG_ESP_UUID fs=fat partuuid=${GPUIMG_ESP_PARTUUID-}
		label=${GPUIMG_ESP_LABEL-} partnum=${GPUIMG_ESP_PARTNUM-} ;;
	esac
}

# as the real one: a list that is empty prints no line at all, a value that is empty an empty one
answer()
{
	case "$target" in
	device | disk)
		echo "${volume:-/dev/disk/by-uuid/$uuid}" ;;
	fs)
		[ -n "$fs" ] || fail "unknown filesystem"
		echo "$fs" ;;
	fs_uuid)
		echo "$uuid" ;;
	fs_label)
		echo "$label" ;;
	partuuid)
		echo "$partuuid" ;;
	partmap)
		[ -z "${GPUIMG_PARTMAP-}" ] || echo "$GPUIMG_PARTMAP" ;;
	drive)
		if [ -n "$volume" ]; then
			echo "(lvm/${volume#/dev/mapper/})"
			return
		fi
		[ -n "$partnum" ] || fail "the drive of $uuid is not known in the sandbox"
		echo "(hd0,${GPUIMG_PARTMAP-}$partnum)" ;;
	abstraction)
		[ -z "$volume" ] || echo lvm ;;
	cryptodisk_uuid) ;;
	compatibility_hint | hints_string | *_hints)
		echo ;;
	*)
		fail "target \`$target' is not known in the sandbox" ;;
	esac
}

target=fs
by_device=
operands=

while [ $# -gt 0 ]; do
	case "$1" in
	-t | --target)
		[ $# -gt 1 ] || fail "option requires an argument: $1"
		target=$2
		shift ;;
	--target=*) target=${1#--target=} ;;
	-t*) target=${1#-t} ;;
	-d | --device) by_device=y ;;
	-m | --device-map) shift ;;
	--device-map=* | -m* | -v | --verbose | -0) ;;
	-V | --version)
		echo "grub-probe (gpuimg sandbox)"
		exit 0 ;;
	--) ;;
	-*) fail "option \`$1' is not known in the sandbox" ;;
	*) operands=${operands:+$operands
}$1 ;;
	esac
	[ $# -eq 0 ] || shift
done

[ -n "${GPUIMG_ROOT_UUID-}" ] || fail "GPUIMG_ROOT_UUID is not set in the sandbox"
[ -n "$operands" ] || fail "No path or device is specified"

# several devices may be named (btrfs, RAID): one answer each, as the real one does
IFS='
'
for operand in $operands; do
	if [ -n "$by_device" ]; then
		role=$(role_of_device "$operand")
	else
		role=$(role_of_path "$operand")
	fi
	load_role "$role"
	answer
done
