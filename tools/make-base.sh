#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: makes a small real Debian cloud image (GPT, BIOS and UEFI) from a package mirror.
# Why:  a build and its tests need a base on any machine: no KVM, appliance, loop device or mount.
# How:  mmdebstrap makes a root tar, the guest's own GRUB its boot files, mke2fs -d the disk.
# shellcheck disable=SC2034,SC2154 # options and state are shared with the parts in make-base/
set -euo pipefail

readonly SECTOR=512 MIB=1048576
readonly BIOS_PART=14 ESP_PART=15 ROOT_PART=1 # the numbers of Debian's and Ubuntu's cloud images
readonly BIOS_START_MIB=1 BIOS_MIB=1 ESP_START_MIB=2 ESP_MIB=124
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# no recommended packages: what stands here is what a GPU node's base needs to boot and be reached
readonly BASE_PACKAGES="systemd-sysv systemd-resolved udev dbus kmod e2fsprogs iproute2 pciutils
	initramfs-tools zstd grub2-common grub-pc-bin grub-efi-amd64-bin cloud-init cloud-guest-utils
	netplan.io openssh-server sudo ca-certificates containerd runc"

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
for part in child host recipe root grub disk xfs; do
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
	      --suite NAME         Debian release (this machine's, else bookworm)
	      --mirror URI         package mirror (from this machine's apt configuration)
	      --packages A,B       further packages
	      --kernels A,B        kernel packages (linux-image-amd64)
	      --size SIZE          virtual size, as 4G or 3500M (4G)
	      --separate-boot [SIZE]
	                           /boot as a file system of its own (512M)
	      --boot-partition-number N
	                           its number in the partition table (16, as Ubuntu 24.04)
	      --root-fs TYPE       ext4, xfs or btrfs (ext4)
	      --customize SCRIPT   run SCRIPT with the root directory as argument, after the packages
	                           are in and before GRUB is configured; may be repeated
	      --compression TYPE   zstd, zlib or none (zstd)
	      --cache-dir DIR      ($cache_dir)
	      --no-cache           neither read nor fill the cache
	      --print-recipe       print the cache key, make nothing
	  -q, --quiet              no progress
	  -h, --help               this text

	exit status: 0 made, 1 failed, 2 wrong usage, 3 something is missing on this machine
	EOF
}

need_value()
{
	[ "$2" -gt 1 ] || die 2 "option '$1' needs a value" "see make-base.sh --help"
}

is_size()
{
	[[ $1 =~ ^[1-9][0-9]{0,6}[MGT]$ ]]
}

size_mib()
{
	case "$1" in
	*M) echo "${1%M}" ;;
	*G) echo $((${1%G} * 1024)) ;;
	*T) echo $((${1%T} * 1048576)) ;;
	esac
}

# one case per option; "--name=value" is split first so that both forms read the same
parse_options()
{
	while [ $# -gt 0 ]; do
		case "$1" in
		--separate-boot=*) boot_size=${1#*=} && shift && continue ;;
		--*=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
		esac

		case "$1" in
		-o | --output | --suite | --mirror | --size | --packages | --kernels | --root-fs | \
			--boot-partition-number | --customize | --compression | --cache-dir)
			need_value "$1" $#
			set_option "$1" "$2"
			shift 2 ;;
		--separate-boot)
			boot_size=512M
			shift
			if [ $# -gt 0 ] && [[ $1 =~ ^[0-9] ]]; then boot_size=$1 && shift; fi ;;
		--no-cache) use_cache='' && shift ;;
		--print-recipe) print_recipe=y && shift ;;
		-q | --quiet) quiet=y && shift ;;
		-h | --help) usage && exit 0 ;;
		-*) die 2 "unknown option '$1'" "see make-base.sh --help" ;;
		*) die 2 "unexpected argument '$1'" "see make-base.sh --help" ;;
		esac
	done
}

set_option()
{
	case "$1" in
	-o | --output) output=$2 ;;
	--suite) suite=$2 ;;
	--mirror) mirror=${2%/} ;;
	--size) size=$2 ;;
	--packages) extra_packages=$2 ;;
	--kernels) kernels=$2 ;;
	--root-fs) root_fs=$2 ;;
	--boot-partition-number) boot_part=$2 ;;
	--customize) customize+=("$2") ;;
	--compression) compression=$2 ;;
	--cache-dir) cache_dir=$2 ;;
	esac
}

check_options()
{
	[ -n "$output$print_recipe" ] || die 2 "no output file given" "name it with -o FILE"
	[ ! -d "$output" ] || die 2 "output '$output' is a directory" "name a file, as $output/base.qcow2"
	[ -z "$output" ] || [ -d "$(dirname "$output")" ] ||
		die 2 "the directory of output '$output' does not exist" "make it first"
	[[ $suite =~ ^[a-z]*$ ]] || die 2 "bad suite '$suite'" "a Debian code name, as bookworm"
	[[ $mirror =~ ^([a-z+]+:[^[:space:]]+)?$ ]] ||
		die 2 "bad mirror '$mirror'" "a URI, as http://…/debian"
	[[ $kernels =~ ^[a-z0-9][a-z0-9.+,-]*$ ]] ||
		die 2 "bad kernel list '$kernels'" "package names, as linux-image-amd64,linux-image-rt-amd64"
	[[ $extra_packages =~ ^[a-z0-9.+:,-]*$ ]] ||
		die 2 "bad package list '$extra_packages'" "names with commas between, as vim,tcpdump"
	[[ $root_fs =~ ^(ext4|xfs|btrfs)$ ]] ||
		die 2 "unknown root file system '$root_fs'" "one of ext4, xfs, btrfs"
	[[ $compression =~ ^(zstd|zlib|none)$ ]] ||
		die 2 "unknown compression '$compression'" "one of zstd, zlib, none"
	check_layout_options
	check_customize
}

check_layout_options()
{
	is_size "$size" || die 2 "bad size '$size'" "a number with M, G or T, as 4G"
	[ "$(size_mib "$size")" -ge 2048 ] || die 2 "size '$size' is too small" "2G is the least"

	if [ -z "$boot_size" ]; then
		[ -z "$boot_part" ] ||
			die 2 "--boot-partition-number without --separate-boot" "add --separate-boot"
		return 0
	fi
	is_size "$boot_size" || die 2 "bad /boot size '$boot_size'" "a number with M or G, as 512M"
	[ "$(size_mib "$boot_size")" -ge 128 ] ||
		die 2 "/boot size '$boot_size' is too small" "128M is the least"
	[ "$(size_mib "$boot_size")" -le $(($(size_mib "$size") - 1536)) ] ||
		die 2 "/boot size '$boot_size' leaves no room for the root in '$size'" "give a larger --size"

	boot_part=${boot_part:-16}
	if ! [[ $boot_part =~ ^[1-9][0-9]{0,2}$ ]] || [ "$boot_part" -gt 128 ] ||
		[[ " $ROOT_PART $BIOS_PART $ESP_PART " == *" $boot_part "* ]]; then
		die 2 "bad boot partition number '$boot_part'" \
			"2 to 128, but not $BIOS_PART (BIOS boot) and $ESP_PART (ESP)"
	fi
}

check_customize()
{
	local script

	for script in "${customize[@]}"; do
		[[ -f $script && -x $script ]] ||
			die 2 "customize script '$script' is not an executable file" "chmod +x it"
	done
}

build_image()
{
	check_sandbox
	make_work_dir
	root=$work/root
	disk=$work/disk.raw
	mkdir "$work/grub"
	[ -n "$use_cache" ] || cache_dir=$work

	make_root_tar
	step "root: unpacking"
	unpack_root
	tailor_root
	scrub_root
	run_customize
	step "boot loader: modules, core images, update-grub"
	configure_grub
	make_disk
	convert_disk "$1"
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
