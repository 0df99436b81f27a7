#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: makes a small real Debian cloud image (GPT, BIOS and UEFI) from a package mirror.
# Why:  a build and its tests need a base on any machine: no KVM, appliance, loop device or mount.
# How:  mmdebstrap makes a root tar; the guest's own GRUB writes its files; mke2fs -d fills the disk.
set -euo pipefail

readonly SECTOR=512 MIB=1048576
readonly BIOS_PART=14 ESP_PART=15 ROOT_PART=1 # the numbers of Debian's and Ubuntu's cloud images
readonly BIOS_START_MIB=1 BIOS_MIB=1 ESP_START_MIB=2 ESP_MIB=124
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg

# no recommended packages: what stands here is what a GPU node's base needs to boot and be reached
readonly BASE_PACKAGES="systemd-sysv systemd-resolved udev dbus kmod e2fsprogs iproute2 pciutils
	initramfs-tools zstd grub2-common grub-pc-bin grub-efi-amd64-bin cloud-init cloud-guest-utils
	netplan.io openssh-server sudo ca-certificates containerd runc"

here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
readonly here
readonly sandbox_dir=${GPUIMG_SANDBOX_DIR:-$here/../builder/sandbox}

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

work=
child=
unfinished=()

# ---- messages -------------------------------------------------------------------------------

step()
{
	[ -n "$quiet" ] || printf 'make-base: [%3d s] %s\n' "$SECONDS" "$*" >&2
}

# die STATUS MESSAGE [HINT]
die()
{
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

# ---- options --------------------------------------------------------------------------------

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
		*) die 2 "unknown option '$1'" "see make-base.sh --help" ;;
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
	[[ $mirror =~ ^([a-z+]+:[^[:space:]]+)?$ ]] || die 2 "bad mirror '$mirror'" "a URI, as http://…/debian"
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

# ---- the host -------------------------------------------------------------------------------

# all that is missing is told at once: a second try for each package is a wasted run in CI
check_tools()
{
	local tool package missing=() packages=()

	while read -r tool package; do
		command -v "$tool" >/dev/null && continue
		missing+=("$tool")
		packages+=("$package")
	done < <(needed_tools)

	if [ ! -r "$KEYRING" ]; then
		missing+=("$KEYRING")
		packages+=(debian-archive-keyring)
	fi
	[ ${#missing[@]} -eq 0 ] || die 3 "missing on this machine: ${missing[*]}" \
		"apt-get install $(printf '%s\n' "${packages[@]}" | sort -u | tr '\n' ' ' | sed 's/ $//')"

	[[ -x $sandbox_dir/grub-probe.sh && -x $sandbox_dir/grub-mkrelpath.sh ]] ||
		die 3 "cannot find 'grub-probe.sh' and 'grub-mkrelpath.sh' in '$sandbox_dir'" \
			"set GPUIMG_SANDBOX_DIR to the directory that holds them"
}

needed_tools()
{
	cat <<-EOF
	mmdebstrap mmdebstrap
	bwrap bubblewrap
	mke2fs e2fsprogs
	sfdisk fdisk
	mkfs.vfat dosfstools
	mcopy mtools
	qemu-img qemu-utils
	zstd zstd
	flock util-linux
	EOF
	case "$root_fs" in
	xfs) printf '%s\n' "mkfs.xfs xfsprogs" "xfs_db xfsprogs" "getcap libcap2-bin" ;;
	btrfs) echo "mkfs.btrfs btrfs-progs" ;;
	esac
	[ "$(id -u)" -eq 0 ] || echo "newuidmap uidmap"
}

# Root makes files of any owner; others do so in a user namespace with their own range of ids.
# The pid namespace is for /proc in the new root. unshare itself ignores SIGTERM, so that goes to
# its child, and a child in the background ignores SIGINT, so TERM is what it gets for both.
run_in_namespace()
{
	local options=(--user --map-root-user --map-auto --mount --pid --fork --mount-proc) status=0

	unshare "${options[@]}" true 2>/dev/null ||
		die 3 "not root, and this machine refuses a user namespace to '$(id -un)'" \
			"run it as root, or give '$(id -un)' a line in /etc/subuid and /etc/subgid"
	trap 'stop_namespace 130' INT
	trap 'stop_namespace 143' TERM HUP
	unshare "${options[@]}" -- "${BASH_SOURCE[0]}" "$@" &
	child=$!
	wait "$child" || status=$?
	exit "$status"
}

stop_namespace()
{
	# shellcheck disable=SC2046 # one word for each child
	kill -TERM $(cat "/proc/$child/task/$child/children") 2>/dev/null || true
	wait "$child" || true
	exit "$1"
}

check_sandbox()
{
	bwrap --bind / / --unshare-pid --unshare-net true 2>/dev/null ||
		die 3 "bubblewrap cannot make a sandbox here" \
			"in a container, start it with --privileged; else see 'bwrap --bind / / true'"
}

host_codename()
{
	# shellcheck source=/dev/null
	( . /etc/os-release && [ "${ID-}" = debian ] && echo "${VERSION_CODENAME-}" ) || true
}

# prints "URI SUITE" for each Debian entry of this machine's apt, from both file formats;
# other repositories are left out, since their suites do not carry the machine's code name
apt_entries()
{
	local dir=/etc/apt

	find "$dir/sources.list.d" -name '*.sources' -type f -exec awk '
		function flush(  u, s, n, m, i) {
			if (f["types"] ~ /(^| )deb( |$)/ && f["enabled"] != "no") {
				split(f["uris"], u, " ")
				n = split(f["suites"], s, " ")
				for (i = 1; i <= n; i++)
					print u[1], s[i]
			}
			delete f
		}
		FNR == 1 || /^[[:space:]]*$/ { flush(); key = "" }
		/^#/ { next }
		/^[^[:space:]]+:/ { key = tolower($1); sub(/:.*/, "", key); sub(/^[^:]*:[[:space:]]*/, "") }
		key != "" { f[key] = f[key] (f[key] == "" ? "" : " ") $0 }
		END { flush() }' {} +
	find "$dir/sources.list" "$dir/sources.list.d" -name '*.list' -type f -exec \
		sed -nE 's/^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+)[[:space:]]+([^[:space:]]+).*/\2 \3/p' \
		{} + 2>/dev/null || true
}

# prints "URI SUITE" lines for the wanted suite: the machine's mirror serves the other suites too
mirror_entries()
{
	local host uri entry

	if [ -n "$mirror" ]; then
		echo "$mirror $suite"
		return 0
	fi
	host=$(host_codename)
	apt_entries | sort -u | while read -r uri entry; do
		case "$entry" in
		"$host" | "$host-updates" | "$host-security")
			echo "${uri%/} $suite${entry#"$host"}" ;;
		esac
	done
}

# the deb822 file that mmdebstrap reads and that stays in the guest
guest_sources()
{
	local uri suites

	mirror_entries | awk '{ s[$1] = s[$1] " " $2 } END { for (u in s) print u s[u] }' | sort |
		while read -r uri suites; do
			printf 'Types: deb\nURIs: %s\nSuites: %s\n' "$uri" "$suites"
			printf 'Components: main\nSigned-By: %s\n\n' "$KEYRING"
		done
}

choose_mirror()
{
	local host

	host=$(host_codename)
	suite=${suite:-${host:-bookworm}}
	sources=$(guest_sources)
	[[ $sources == *Suites:*" $suite"* ]] ||
		die 3 "no Debian mirror in the apt configuration of this machine" "name one with --mirror URI"
}

# proxy and date checks of this machine's apt hold for the download, never for the guest
apt_options()
{
	apt-config dump --format '%f "%v";%n' Acquire::http::Proxy Acquire::https::Proxy \
		Acquire::Check-Valid-Until Acquire::Check-Date 2>/dev/null |
		grep -v ' "";$' | sed 's/^/--aptopt=/' || true
}

# ---- recipe: what the cache keys and every UUID are made of ----------------------------------

root_packages()
{
	local list

	list="$BASE_PACKAGES ${kernels//,/ } ${extra_packages//,/ }"
	case "$root_fs" in
	xfs) list+=" xfsprogs" ;;
	btrfs) list+=" btrfs-progs" ;;
	esac
	# shellcheck disable=SC2086 # split on purpose
	printf '%s\n' $list | sort -u | paste -sd,
}

# the functions that make the tar stand in its recipe as text, so that work on the other half of
# this script does not cost a new bootstrap
root_recipe()
{
	printf 'suite=%s\npackages=%s\nroot-fs=%s\n' "$suite" "$(root_packages)" "$root_fs"
	printf 'sources=%s\n' "$sources"
	printf 'mmdebstrap=%s\n' "$(mmdebstrap --version)"
	declare -f bootstrap_root setup_hook
}

image_recipe()
{
	local script

	root_recipe
	printf 'size=%s\nboot=%s,%s\ncompression=%s\n' "$size" "$boot_size" "$boot_part" "$compression"
	printf 'qemu-img=%s\n' "$(qemu-img --version | head -n 1)"
	printf 'mkfs=%s\n' "$(mkfs_version)"
	for script in "${BASH_SOURCE[0]}" "$sandbox_dir"/grub-{probe,mkrelpath}.sh "${customize[@]}"; do
		printf 'script=%s\n' "$(sha256sum <"$script")"
	done
}

mkfs_version()
{
	mke2fs -V 2>&1 | head -n 1
	case "$root_fs" in
	xfs) mkfs.xfs -V ;;
	btrfs) mkfs.btrfs --version ;;
	esac
}

key_of()
{
	sha256sum | cut -c 1-32
}

# uuid_for NAME: a version 8 UUID (RFC 9562) from the recipe, the same on every run of it
uuid_for()
{
	local h

	h=$(printf '%s %s' "$image_key" "$1" | sha256sum)
	printf '%s-%s-8%s-8%s-%s\n' "${h:0:8}" "${h:8:4}" "${h:12:3}" "${h:15:3}" "${h:18:12}"
}

compute_ids()
{
	root_key=$(root_recipe | key_of)
	image_key=$(image_recipe | key_of)

	disk_uuid=$(uuid_for disk)
	bios_partuuid=$(uuid_for bios-part)
	esp_partuuid=$(uuid_for esp-part)
	boot_partuuid=$(uuid_for boot-part)
	root_partuuid=$(uuid_for root-part)
	root_uuid=$(uuid_for root-fs)
	boot_uuid=
	[ -z "$boot_size" ] || boot_uuid=$(uuid_for boot-fs)
	esp_id=$(uuid_for esp-fs | cut -c 1-8 | tr a-f A-F)
	esp_uuid=${esp_id:0:4}-${esp_id:4:4}
}

# ---- work directory and children ------------------------------------------------------------

cleanup()
{
	local status=$?

	trap - EXIT INT TERM HUP
	if [ -n "$child" ]; then
		kill "$child" 2>/dev/null || true
		wait "$child" 2>/dev/null || true
	fi
	[ -z "$work" ] || remove_tree "$work"
	[ ${#unfinished[@]} -eq 0 ] || rm -f -- "${unfinished[@]}"
	exit "$status"
}

# a customize script may have mounted something and died: never delete through a mount
remove_tree()
{
	local target

	awk -v dir="$1/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
		while read -r target; do
			umount -l "$target" || true
		done
	rm -rf --one-file-system -- "$1"
}

# in the background, since bash runs no trap while it waits for a foreground command
run_logged()
{
	local log=$1 status=0

	shift
	"$@" >"$log" 2>&1 &
	child=$!
	wait "$child" || status=$?
	child=
	return "$status"
}

make_work_dir()
{
	local parent=${TMPDIR:-/var/tmp}

	check_free "$parent" "$(needed_mib)" "set TMPDIR to a directory on a larger disk"
	work=$(mktemp -d "$parent/gpuimg-base.XXXXXXXXXX")
	chmod 755 "$work"      # apt's own user reads through it
	export TMPDIR=$work # else mmdebstrap fills /tmp, whose space nobody has checked
}

check_free()
{
	local dir=$1 need_mib=$2 hint=$3 free_mib

	[[ -d $dir && -w $dir ]] || die 3 "cannot write to directory '$dir'" "$hint"
	free_mib=$(df -Pm "$dir" | awk 'NR == 2 { print $4 }')
	[ "$free_mib" -ge "$need_mib" ] ||
		die 3 "'$dir' has $free_mib MiB free, $need_mib MiB are needed" "make room, or $hint"
}

# at the peak, the root stands three times: as directory, as partition or tar, and in the disk
needed_mib()
{
	local more_kernels=${kernels//[^,]/}

	echo $((3584 + 1536 * ${#more_kernels}))
}

# ---- cache ----------------------------------------------------------------------------------

# an entry is good only with its digest beside it: a half-written or damaged one is made again
cache_valid()
{
	[ -f "$1" ] && [ -f "$1.sha256" ] || return 1
	[ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$(cat "$1.sha256")" ] && return 0
	step "cache entry '$1' is damaged, making it again"
	return 1
}

cache_store()
{
	local from=$1 to=$2

	rm -f "$to.sha256"
	sha256sum <"$from" | cut -d ' ' -f 1 >"$to.sha256.new"
	mv "$from" "$to"
	mv "$to.sha256.new" "$to.sha256"
}

lock_cache()
{
	exec {lock_fd}>"$1.lock"
	if ! flock -n "$lock_fd"; then
		step "waiting for another run that makes the same"
		flock "$lock_fd"
	fi
}

unlock_cache()
{
	exec {lock_fd}>&-
}

# ---- first half: packages into a root tar ---------------------------------------------------

# before the kernel is configured: the initramfs takes fsck and the root's module by this line
setup_hook()
{
	echo "mkdir -p \"\$1/etc\" && echo '/dev/root / $root_fs defaults 0 1' >\"\$1/etc/fstab\""
}

bootstrap_root()
{
	local tar=$1 options

	mapfile -t options < <(apt_options)
	printf '%s\n' "$sources" >"$work/debian.sources"
	run_logged "$work/bootstrap.log" mmdebstrap --mode=root --variant=minbase --format=tar \
		--architectures=amd64 --include="$(root_packages)" \
		--aptopt='APT::Install-Recommends "false"' "${options[@]}" \
		--setup-hook="$(setup_hook)" "$suite" "$work/root.tar" "$work/debian.sources" || return 1
	zstd -q -T0 -3 --rm "$work/root.tar" -o "$tar"
}

make_root_tar()
{
	root_tar=$cache_dir/$root_key.tar.zst
	lock_cache "$root_tar"
	if cache_valid "$root_tar"; then
		step "packages: from the cache"
	else
		step "packages: mmdebstrap $suite (one to four minutes)"
		unfinished+=("$root_tar.new")
		bootstrap_root "$root_tar.new" || bootstrap_failed
		cache_store "$root_tar.new" "$root_tar"
	fi
	unlock_cache
}

bootstrap_failed()
{
	tail -n 15 "$work/bootstrap.log" >&2 || true
	cp "$work/bootstrap.log" "$cache_dir/bootstrap.log" || true
	die 1 "mmdebstrap of $suite failed, whole log in '$cache_dir/bootstrap.log'" \
		"see whether 'apt-get update' works here, and whether the packages exist in $suite"
}

unpack_root()
{
	mkdir "$root"
	zstd -dc -q "$root_tar" | tar -xpf - -C "$root" --numeric-owner --xattrs --xattrs-include='*'
	rm -rf "${root:?}/dev" && mkdir -m 755 "$root/dev" # devtmpfs covers it, in the sandbox too
}

# ---- second half: the guest's own files -----------------------------------------------------

guest_file()
{
	install -D -m "${2:-644}" /dev/stdin "$root$1"
}

write_fstab()
{
	{
		echo "UUID=$root_uuid / $root_fs $(root_mount_options) 0 1"
		[ -z "$boot_uuid" ] || echo "UUID=$boot_uuid /boot ext4 defaults 0 2"
		echo "UUID=$esp_uuid /boot/efi vfat defaults,umask=0077 0 0"
	} | guest_file /etc/fstab
	mkdir -p "$root/boot/efi"
}

root_mount_options()
{
	case "$root_fs" in
	ext4) echo discard,errors=remount-ro ;;
	*) echo defaults ;;
	esac
}

write_identity()
{
	echo debian | guest_file /etc/hostname
	guest_file /etc/hosts <<-EOF
	127.0.0.1	localhost
	127.0.1.1	debian
	::1		localhost ip6-localhost ip6-loopback
	ff02::1		ip6-allnodes
	ff02::2		ip6-allrouters
	EOF
	echo LANG=C.UTF-8 | guest_file /etc/default/locale
	rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
	printf '%s\n' "$sources" | guest_file /etc/apt/sources.list.d/debian.sources
}

write_default_grub()
{
	guest_file /etc/default/grub <<-'EOF'
	# If you change this file, run 'update-grub' afterwards to update
	# /boot/grub/grub.cfg.
	GRUB_DEFAULT=0
	GRUB_TIMEOUT=1
	GRUB_DISTRIBUTOR=`. /etc/os-release; echo ${NAME%% *}`
	GRUB_CMDLINE_LINUX_DEFAULT=""
	GRUB_CMDLINE_LINUX="console=tty0 console=ttyS0,115200 earlyprintk=ttyS0,115200 consoleblank=0"
	GRUB_TERMINAL="console serial"
	GRUB_SERIAL_COMMAND="serial --unit=0 --speed=115200"
	GRUB_DISABLE_OS_PROBER=true
	EOF
}

# only sources that answer at once when they are not there: Ec2 would wait for its metadata server
write_cloud_init()
{
	guest_file /etc/cloud/cloud.cfg.d/90_dpkg.cfg <<-'EOF'
	# to update this file, run dpkg-reconfigure cloud-init
	datasource_list: [ NoCloud, ConfigDrive, OpenStack, None ]
	EOF
	guest_file /etc/cloud/cloud.cfg.d/01_debian_cloud.cfg <<-'EOF'
	apt:
	  preserve_sources_list: true
	manage_etc_hosts: true
	# generating a locale costs a minute on a slow machine, and C.UTF-8 is there already
	locale: false
	EOF
}

tailor_root()
{
	write_fstab
	write_identity
	write_default_grub
	write_cloud_init
	# cloud-init writes netplan files, netplan writes networkd files; netplan's own generator has
	# run by then, so on the first boot nothing else would start networkd
	sandbox systemctl enable systemd-networkd.service systemd-resolved.service >/dev/null 2>&1
	ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
}

scrub_root()
{
	: >"$root/etc/machine-id"
	rm -f "$root"/var/lib/dbus/machine-id "$root"/etc/ssh/ssh_host_* "$root"/usr/sbin/policy-rc.d \
		"$root"/etc/apt/apt.conf.d/99mmdebstrap "$root"/etc/dpkg/dpkg.cfg.d/99mmdebstrap \
		"$root"/var/cache/debconf/*-old "$root"/var/lib/dpkg/*-old \
		"$root"/var/cache/ldconfig/aux-cache "$root"/var/lib/systemd/random-seed
	rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin \
		"$root"/var/cache/apt/archives/*.deb "$root"/tmp/* "$root"/var/tmp/* "$root"/run/*
	find "$root/var/log" -type f -delete
}

run_customize()
{
	local script

	for script in "${customize[@]}"; do
		step "customize: $(basename "$script")"
		run_logged "$work/customize.log" "$(readlink -f "$script")" "$root" && continue
		tail -n 15 "$work/customize.log" >&2
		die 1 "customize script '$script' failed" "its last lines stand above"
	done
}

# ---- boot loader ----------------------------------------------------------------------------

# The guest's programs in the guest's root, without network and without the host's files. /dev
# is bubblewrap's own, with the one link that 10_linux looks for (see grub-probe.sh).
sandbox()
{
	bwrap --bind "$root" / --dev /dev --proc /proc --tmpfs /run --tmpfs /tmp \
		--dir /dev/disk --dir /dev/disk/by-uuid \
		--symlink ../../null "/dev/disk/by-uuid/$root_uuid" \
		--ro-bind "$sandbox_dir/grub-probe.sh" /usr/sbin/grub-probe \
		--ro-bind "$sandbox_dir/grub-mkrelpath.sh" /usr/bin/grub-mkrelpath \
		--bind "$work/grub" /run/gpuimg --unshare-pid --unshare-net --unshare-ipc --unshare-uts \
		--die-with-parent --new-session --clearenv --chdir / \
		--setenv PATH /usr/sbin:/usr/bin:/sbin:/bin --setenv HOME /root --setenv LC_ALL C.UTF-8 \
		--setenv GPUIMG_PARTMAP gpt --setenv GPUIMG_ESP_UUID "$esp_uuid" \
		--setenv GPUIMG_ROOT_UUID "$root_uuid" --setenv GPUIMG_ROOT_FS "$(grub_fs "$root_fs")" \
		--setenv GPUIMG_ROOT_PARTUUID "$root_partuuid" --setenv GPUIMG_BOOT_UUID "$boot_uuid" \
		--setenv GPUIMG_BOOT_FS ext2 --setenv GPUIMG_BOOT_PARTUUID "$boot_partuuid" -- "$@"
}

grub_fs()
{
	case "$1" in
	ext4) echo ext2 ;;
	*) echo "$1" ;;
	esac
}

# where GRUB looks for its modules and grub.cfg: by UUID, so disk order and firmware do not matter
grub_load_config()
{
	local uuid=${boot_uuid:-$root_uuid} prefix=/boot/grub

	[ -z "$boot_uuid" ] || prefix=/grub
	printf "search.fs_uuid %s root\nset prefix=(\$root)'%s'\n" "$uuid" "$prefix"
}

copy_grub_modules()
{
	local platform

	for platform in i386-pc x86_64-efi; do
		mkdir -p "$root/boot/grub/$platform"
		cp "$root/usr/lib/grub/$platform"/{*.mod,*.lst,modinfo.sh} "$root/boot/grub/$platform"
	done
	# an environment block is 1024 bytes, always: GRUB writes it in place
	printf '%-1024s' '# GRUB Environment Block' | tr ' ' '#' |
		sed '1s/^#.GRUB.Environment.Block#/# GRUB Environment Block\n/' |
		guest_file /boot/grub/grubenv
}

# core.img for both firmwares by the guest's own grub-mkimage: modules and tool are one version
make_grub_cores()
{
	local fs

	fs=$(grub_fs "$([ -n "$boot_uuid" ] && echo ext4 || echo "$root_fs")")
	grub_load_config >"$work/grub/load.cfg"
	{ grub_load_config; echo "configfile \$prefix/grub.cfg"; } >"$work/grub/esp.cfg"

	sandbox grub-mkimage -O i386-pc -p "$([ -n "$boot_uuid" ] || echo /boot)/grub" \
		-c /run/gpuimg/load.cfg -o /run/gpuimg/core.img biosdisk part_gpt "$fs" search_fs_uuid
	sandbox grub-mkimage -O x86_64-efi -p /EFI/debian -o /run/gpuimg/grubx64.efi \
		part_gpt fat "$fs" search search_fs_uuid configfile normal echo test
	cp "$root/usr/lib/grub/i386-pc/boot.img" "$work/grub/boot.img"
	cp "$work/grub/boot.img" "$work/grub/core.img" "$root/boot/grub/i386-pc/"
	cp "$work/grub/grubx64.efi" "$root/boot/grub/x86_64-efi/core.efi"
}

configure_grub()
{
	copy_grub_modules
	make_grub_cores
	if ! run_logged "$work/grub.log" sandbox update-grub; then
		tail -n 15 "$work/grub.log" >&2
		die 1 "update-grub in the new root failed" "its last lines stand above"
	fi
	grep -q "root=UUID=$root_uuid" "$root/boot/grub/grub.cfg" ||
		die 1 "the new root's grub.cfg has no entry with root=UUID=$root_uuid"
}

# ---- disk -----------------------------------------------------------------------------------

plan_disk()
{
	disk_mib=$(size_mib "$size")
	boot_start_mib=$((ESP_START_MIB + ESP_MIB + 2)) # 128 MiB
	boot_mib=0
	[ -z "$boot_size" ] || boot_mib=$(size_mib "$boot_size")
	root_start_mib=$((boot_start_mib + boot_mib))
	root_mib=$((disk_mib - root_start_mib - 1)) # the last MiB: backup GPT
}

partition_line()
{
	local number=$1 start_mib=$2 size_mib=$3 type=$4 uuid=$5

	printf '%s%d : start=%d, size=%d, type=%s, uuid=%s\n' "$disk" "$number" \
		$((start_mib * MIB / SECTOR)) $((size_mib * MIB / SECTOR)) "$type" "${uuid^^}"
}

# the root comes last on the disk, whatever its number, so that growpart can extend it
partition_disk()
{
	truncate -s "${disk_mib}M" "$disk"
	{
		printf 'label: gpt\nlabel-id: %s\nunit: sectors\n' "${disk_uuid^^}"
		partition_line $BIOS_PART $BIOS_START_MIB $BIOS_MIB \
			21686148-6449-6E6F-744E-656564454649 "$bios_partuuid"
		partition_line $ESP_PART $ESP_START_MIB $ESP_MIB \
			C12A7328-F81F-11D2-BA4B-00A0C93EC93B "$esp_partuuid"
		[ -z "$boot_uuid" ] || partition_line "$boot_part" "$boot_start_mib" "$boot_mib" \
			BC13C2FF-59E6-4262-A352-B275FD6F7172 "$boot_partuuid"
		partition_line $ROOT_PART "$root_start_mib" "$root_mib" \
			4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709 "$root_partuuid"
	} | sfdisk -q --no-reread --no-tell-kernel "$disk" >"$work/sfdisk.log" 2>&1 ||
		die 1 "cannot write the partition table: $(tail -n 1 "$work/sfdisk.log")"
}

le64()
{
	local i

	for ((i = 0; i < 64; i += 8)); do
		printf '%b' "\\x$(printf %02x $((($1 >> i) & 255)))"
	done
}

poke()
{
	dd of="$1" bs=1 seek=$(($2)) conv=notrunc status=none
}

# What grub-bios-setup does, by hand, since it wants a block device. boot.img: the sector of
# core.img at 0x5c, and two NOPs at 0x66, because BIOSes may pass a wrong drive number. The first
# sector of core.img (diskboot.img): where its rest begins, at 0x1f4.
install_bios_grub()
{
	local start=$((BIOS_START_MIB * MIB / SECTOR)) boot=$work/grub/boot.img core=$work/grub/core.img

	[ "$(stat -c %s "$core")" -le $((BIOS_MIB * MIB)) ] ||
		die 1 "GRUB's core.img is larger than the BIOS boot partition"
	le64 $start | poke "$boot" 0x5c
	printf '\x90\x90' | poke "$boot" 0x66
	le64 $((start + 1)) | poke "$core" 0x1f4
	dd if="$boot" of="$disk" bs=1 count=440 conv=notrunc status=none # the rest is the MBR's table
	dd if="$core" of="$disk" bs=$MIB seek=$BIOS_START_MIB conv=notrunc status=none
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
	local esp=$work/esp.img

	truncate -s "${ESP_MIB}M" "$esp"
	mkfs.vfat -F 32 -i "$esp_id" -n EFI "$esp" >/dev/null
	mmd -i "$esp" ::/EFI ::/EFI/BOOT ::/EFI/debian
	mcopy -i "$esp" "$work/grub/grubx64.efi" ::/EFI/BOOT/BOOTX64.EFI
	mcopy -i "$esp" "$work/grub/grubx64.efi" ::/EFI/debian/grubx64.efi
	mcopy -i "$esp" "$work/grub/esp.cfg" ::/EFI/debian/grub.cfg
	place "$esp" $ESP_START_MIB
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
	local image=$work/root.img

	if [ "$root_fs" = ext4 ]; then
		make_ext4 "$root_start_mib" "$root_mib" "$root_uuid" "$root" || mkfs_failed "the root"
		return 0
	fi
	truncate -s "${root_mib}M" "$image"
	"make_$root_fs" "$image" || mkfs_failed "the root"
	place "$image" "$root_start_mib"
}

make_btrfs()
{
	run_logged "$work/mkfs.log" mkfs.btrfs -q -U "$root_uuid" --rootdir "$root" "$1"
}

# A protofile has no escapes, no sticky bit, no times and no attributes. Names that it cannot
# express stop us, except those of ucf's cache (":etc:…"), which ucf does without. The rest is
# written afterwards; without times every compiled Python file would be stale on the node.
make_xfs()
{
	local image=$1 options=()

	rm -f "$root"/var/lib/ucf/cache/:*
	check_xfs_names
	xfs_protofile >"$work/protofile"
	mapfile -t options < <(xfs_options "$image")
	# the protofile has paths relative to here: they too cannot hold a space
	cd "$work"
	run_logged "$work/mkfs.log" mkfs.xfs -q -f -m "uuid=$root_uuid" "${options[@]}" \
		-p protofile "$image" || return 1
	xfs_attributes | run_logged "$work/mkfs.log" xfs_db -x -f "$image"
}

check_xfs_names()
{
	local bad

	bad=$(find "$root" \( -name ':*' -o -name '*[[:space:]]*' -o -lname '*[[:space:]]*' \) \
		-printf "'/%P' " -quit)
	[ -z "$bad" ] || die 1 "a mkfs.xfs protofile cannot name ${bad% }, and nothing else writes xfs" \
		"use --root-fs ext4, or remove the file with --customize"
	bad=$(getcap -r "$root" 2>/dev/null | head -n 1)
	[ -z "$bad" ] || die 1 "mkfs.xfs cannot set file capabilities: '${bad#"$root"}'" \
		"use --root-fs ext4"
}

# features that newer mkfs.xfs switch on and GRUB 2.06 cannot read; bigtime, so that xfs_db can
# write times as plain seconds
xfs_options()
{
	local option

	for option in "-m bigtime=0" "-i nrext64=0" "-i exchange=0" "-n parent=0"; do
		# shellcheck disable=SC2086 # flag and value
		! mkfs.xfs -N -f $option "$1" >/dev/null 2>&1 || printf '%s\n' $option
	done
}

xfs_protofile()
{
	(cd "$work" && find root -printf '%d\t%y\t%04m\t%U\t%G\t%f\t%p\t%l\n') | awk -F '\t' '
		function mode(type, octal) {
			return type (int(substr(octal, 1, 1) / 4) ? "u" : "-") \
				(int(substr(octal, 1, 1) / 2) % 2 ? "g" : "-") substr(octal, 2)
		}
		$1 == 0 { printf "/dev/null\n0 0\n%s %d %d\n", mode("d", $3), $4, $5; open = 1; next }
		{ while (open > $1) { print "$"; open-- } }
		$2 == "f" { print $6, mode("-", $3), $4, $5, $7 }
		$2 == "l" { print $6, mode("l", $3), $4, $5, $8 }
		$2 == "d" { print $6, mode("d", $3), $4, $5; open = $1 + 1 }
		END { while (open-- > 0) print "$" }'
}

# xfs_db takes a time as one 64-bit number: seconds in the upper half, nanoseconds in the lower
xfs_attributes()
{
	find "$root" -type f,d,l -printf '/%P\t%Ts\t%04m\t%y\n' | awk -F '\t' '
		{ printf "path %s\nwrite core.mtime.sec 0x%08x00000000\n", $1, $2 }
		$3 ~ /^[1357]/ && $4 == "d" { printf "write core.mode 04%s\n", $3 }'
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
	step "disk: $size, root $root_fs${boot_size:+, /boot $boot_size on partition $boot_part}"
	plan_disk
	partition_disk
	install_bios_grub
	make_esp
	make_boot_fs
	make_root_fs
	rm -rf --one-file-system "${root:?}"
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

# ---- order of work --------------------------------------------------------------------------

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
