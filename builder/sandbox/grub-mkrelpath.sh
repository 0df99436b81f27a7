#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# grub-mkrelpath stand-in: a guest path as GRUB sees it, relative to its own file system.
# The real one compares st_dev along the path, but in the sandbox /boot is an ordinary directory.
# Variables: GPUIMG_BOOT_UUID (set when /boot is a file system of its own), GPUIMG_ROOT_SUBVOL
# (btrfs: the subvolume mounted as /). How it is mounted: see grub-probe.sh.
set -eu

path=
for arg; do
	case "$arg" in
	-V | --version)
		echo "grub-mkrelpath (gpuimg sandbox)"
		exit 0 ;;
	-r | --relative | --) ;;
	-*)
		echo "grub-mkrelpath: error: option \`$arg' is not known in the sandbox." >&2
		exit 1 ;;
	*) path=$arg ;;
	esac
done

if [ -z "$path" ]; then
	echo "grub-mkrelpath: error: no path is specified." >&2
	exit 1
fi

real=$(readlink -f -- "$path") || real=
if [ ! -e "$real" ]; then
	echo "grub-mkrelpath: error: failed to get canonical path of \`$path'." >&2
	exit 1
fi

# the top of a file system is the empty string, not "/": scripts append "/vmlinuz" to the answer
case "$real" in
/boot | /boot/*)
	if [ -n "${GPUIMG_BOOT_UUID-}" ]; then
		echo "${real#/boot}"
		exit 0
	fi ;;
/) real= ;;
esac

subvol=${GPUIMG_ROOT_SUBVOL-}
subvol=${subvol#/}
echo "${subvol:+/$subvol}$real"
