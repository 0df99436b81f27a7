#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: makes a small real Debian cloud image (GPT, BIOS and UEFI) from a package mirror.
# Why:  a build and its tests need a base on any machine: no KVM, appliance, loop device or mount.
# How:  mmdebstrap makes a root tar, the guest's own programs its boot files, mke2fs -d the disk.
# shellcheck disable=SC2034,SC2154 # options and state are shared with the parts in make-base/
set -euo pipefail

readonly SECTOR=512 MIB=1048576
readonly BIOS_PART=14 ESP_PART=15 ROOT_PART=1 # the numbers of Debian's and Ubuntu's cloud images
readonly BIOS_START_MIB=1 BIOS_MIB=1 ESP_START_MIB=2
readonly SUBVOL=@rootfs                  # of a btrfs root, as Debian's installer names it
readonly ROOT_VG=vg0 ROOT_LV=root LV_START_MIB=1 # LVM; the volume begins there in its partition
readonly CONSOLE_ARGS="console=tty0 console=ttyS0,115200 earlyprintk=ttyS0,115200 consoleblank=0"
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# no recommended packages: what stands here is what a GPU node's base needs to boot and be reached
readonly BASE_PACKAGES="systemd-sysv systemd-resolved udev dbus kmod e2fsprogs iproute2 pciutils
	zstd cloud-init cloud-guest-utils netplan.io openssh-server sudo ca-certificates containerd runc"

self=$(readlink -f "${BASH_SOURCE[0]}")
here=$(dirname "$self")
readonly self here
sandbox_dir=$here/../builder/sandbox # in the source tree
[ -d "$sandbox_dir" ] || sandbox_dir=$here/sandbox # installed

output=
suite=
mirror=
size=4G
extra_packages=
kernels=linux-image-amd64
boot_size=
boot_part=
root_fs=ext4
initramfs="initramfs-tools"
loader=grub
secure_boot=
customize=()
compression=zstd
cache_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gpuimg/bases
use_cache=y
print_recipe=
quiet=

doing="reading options"
told=
work=
child=
unfinished=()

# shellcheck source=/dev/null # tools/make-base/*.sh, each checked on its own
for part in child options host recipe root sandbox grub systemd-boot lvm btrfs xfs disk; do
	. "$here/make-base/$part.sh"
done

step()
{
	doing=$*
	[ -n "$quiet" ] || printf 'make-base: [%3d s] %s\n' "$SECONDS" "$*" >&2
}

# die STATUS MESSAGE [HINT]
die()
{
	told=y
	printf 'make-base: error: %s\n' "$2" >&2
	[ -z "${3-}" ] || printf 'make-base: hint: %s\n' "$3" >&2
	exit "$1"
}

usage()
{
	cat <<-EOF
	usage: make-base.sh -o FILE [options]
	Makes a small Debian cloud image (qcow2) and prints its path.

	  -o, --output FILE        where the image goes
	      --suite NAME         Debian release, as bookworm, trixie, forky or sid (this machine's,
	                           else bookworm)
	      --mirror URI         package mirror (from this machine's apt configuration)
	      --packages A,B       further packages
	      --kernels A,B        kernel packages (linux-image-amd64)
	      --size SIZE          virtual size, as 4G or 3500M (4G)
	      --separate-boot [SIZE]
	                           /boot as a file system of its own (512M)
	      --boot-partition-number N
	                           its number in the partition table (16, as Ubuntu 24.04)
	      --root-fs TYPE       ext4, xfs, btrfs (on the subvolume $SUBVOL) or lvm ($ROOT_VG/$ROOT_LV
	                           with ext4) (ext4)
	      --initramfs NAME     initramfs-tools or dracut (initramfs-tools)
	      --loader NAME        grub (BIOS and UEFI), systemd-boot (type 1 entries, UEFI) or
	                           uki (unified kernel images under systemd-boot, UEFI) (grub)
	      --secure-boot        UEFI starts Debian's signed GRUB by way of shim, which Microsoft
	                           signed (loader grub)
	      --customize SCRIPT   run SCRIPT with the root directory as argument, after the packages
	                           are in and before the boot loader is configured; may be repeated
	      --compression TYPE   zstd, zlib or none (zstd)
	      --cache-dir DIR      ($cache_dir)
	      --no-cache           neither read nor fill the cache
	      --print-recipe       print the cache key, make nothing
	  -q, --quiet              no progress
	  -h, --help               this text

	exit status: 0 made, 1 failed, 2 wrong usage, 3 something is missing on this machine
	EOF
}

build_image()
{
	check_sandbox
	make_work_dir
	root=$work/root
	disk=$work/disk.raw
	esp=$work/esp
	mkdir "$work/grub" "$esp"
	[ -n "$use_cache" ] || cache_dir=$work

	make_root_tar
	step "root: unpacking"
	unpack_root
	tailor_root
	scrub_root
	run_customize
	configure_loader
	make_disk
	convert_disk "$1"
}

configure_loader()
{
	case "$loader" in
	grub) configure_grub ;;
	systemd-boot | uki) configure_systemd_boot ;;
	esac
}

# the cached file is copied, not linked: whoever writes into the output must not reach the cache
deliver()
{
	local new=$output.new.$$

	unfinished+=("$new")
	cp --reflink=auto "$1" "$new" || die 1 "cannot write '$output'"
	mv "$new" "$output"
	step "done: $output ($(($(stat -c %s "$output") / MIB)) MiB)"
	echo "$output"
}

make_cached_image()
{
	local image=$cache_dir/$image_key.qcow2

	mkdir -p "$cache_dir" || die 3 "cannot make cache directory '$cache_dir'" "give --cache-dir DIR"
	check_free "$cache_dir" 1024 "give --cache-dir DIR"
	lock_cache "$image"
	local image_lock=$lock_fd
	if cache_valid "$image"; then
		step "image: from the cache"
	else
		unfinished+=("$image.new")
		build_image "$image.new"
		cache_store "$image.new" "$image"
	fi
	deliver "$image"
	exec {image_lock}>&-
}

main()
{
	trap cleanup EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	umask 022

	parse_options "$@"
	check_options
	check_tools
	choose_mirror
	compute_ids

	if [ -n "$print_recipe" ]; then
		echo "$image_key"
	elif [ "$(id -u)" -ne 0 ]; then
		run_in_namespace "$@"
	elif [ -n "$use_cache" ]; then
		make_cached_image
	else
		unfinished+=("$output.new.$$")
		build_image "$output.new.$$"
		mv "$output.new.$$" "$output"
		step "done: $output ($(($(stat -c %s "$output") / MIB)) MiB)"
		echo "$output"
	fi
}

main "$@"
