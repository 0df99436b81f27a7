# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of make-base share their state
# What: the command line into the variables of make-base.sh, and what in it does not fit together.
# Why:  all of it is told before the first second of work.

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
			--initramfs | --loader | --boot-partition-number | --customize | --compression | \
			--cache-dir)
			need_value "$1" $#
			set_option "$1" "$2"
			shift 2 ;;
		--separate-boot)
			boot_size=512M
			shift
			if [ $# -gt 0 ] && [[ $1 =~ ^[0-9] ]]; then boot_size=$1 && shift; fi ;;
		--secure-boot) secure_boot=y && shift ;;
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
	--initramfs) initramfs=$2 ;;
	--loader) loader=$2 ;;
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
	check_choice "root file system" "$root_fs" ext4 xfs btrfs lvm
	check_choice "initramfs generator" "$initramfs" initramfs-tools dracut
	check_choice "boot loader" "$loader" grub systemd-boot uki
	check_choice compression "$compression" zstd zlib none
	[ -z "$secure_boot" ] || [ "$loader" = grub ] ||
		die 2 "--secure-boot with loader '$loader'" "Debian signs GRUB only: --loader=grub"
	check_layout_options
	check_customize
}

# check_choice WHAT VALUE ALLOWED...
check_choice()
{
	local what=$1 value=$2 allowed

	shift 2
	for allowed; do
		[ "$value" != "$allowed" ] || return 0
	done
	printf -v allowed ', %s' "$@"
	die 2 "unknown $what '$value'" "one of ${allowed#, }"
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
