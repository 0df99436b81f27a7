# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of make-base share their state
# What: this machine: tools, user namespace, sandbox, work directory, children and their end.
# Why:  all that can be missing is told before the first minute of work, and nothing stays behind.

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
			"keep make-base.sh beside its data, as 'make install' puts it"
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
	btrfs) printf '%s\n' "mkfs.btrfs btrfs-progs" "guestfish guestfish" ;;
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
	unshare "${options[@]}" -- "$self" "$@" &
	child=$!
	wait "$child" || status=$?
	told=y # by the child
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

cleanup()
{
	local status=$?

	trap - EXIT INT TERM HUP
	[ -z "$child" ] || stop_child
	[ -z "$work" ] || remove_tree "$work"
	[ ${#unfinished[@]} -eq 0 ] || rm -f -- "${unfinished[@]}"
	case "$status$told" in
	0 | *y | 130 | 143) ;;
	*) printf 'make-base: error: stopped at: %s\n' "$doing" >&2 ;;
	esac
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

# In the background, since bash runs no trap while it waits for a foreground command; job control
# is on for that moment, so that the child leads a process group that stop_child can end.
run_logged()
{
	local log=$1 status=0

	shift
	set -m
	"$@" <&0 >"$log" 2>&1 &
	child=$!
	set +m
	wait "$child" || status=$?
	child=
	return "$status"
}

make_work_dir()
{
	local parent

	parent=$(readlink -f "${TMPDIR:-/var/tmp}")
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

# at the peak, the root stands three times: as directory, as partition or tar, and in the disk;
# btrfs has the tar and the partition
needed_mib()
{
	local more_kernels=${kernels//[^,]/} mib=3584

	[ "$root_fs" != btrfs ] || mib=4608
	echo $((mib + 1536 * ${#more_kernels}))
}
