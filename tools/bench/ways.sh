# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of bench share their state
# What: the ways that can be measured, which of them run on this machine, and what they need before.
# Why:  a way that cannot run here is named with its reason, and never just missing in the table.

readonly ALL_WAYS=(gpuimg gpuimg-same gpuimg-changed virt-customize root-script gpuimg-kvm
	virt-customize-kvm)

way_known()
{
	[[ " ${ALL_WAYS[*]} " == *" $1 "* ]]
}

# also of the rows that come from a part of a way
way_label()
{
	case "$1" in
	gpuimg) echo "gpuimg build" ;;
	gpuimg-same) echo "gpuimg build again, nothing changed" ;;
	gpuimg-changed) echo "gpuimg build again, one more module blocked" ;;
	virt-customize) echo "virt-customize (no KVM), result left large" ;;
	virt-sparsify) echo "virt-customize + virt-sparsify + convert (no KVM)" ;;
	root-script) echo "root script: loop mount, chroot, convert" ;;
	gpuimg-kvm) echo "gpuimg build with KVM" ;;
	virt-customize-kvm) echo "virt-customize with KVM, result left large" ;;
	virt-sparsify-kvm) echo "virt-customize + virt-sparsify + convert, with KVM" ;;
	esac
}

kvm_works()
{
	[ "$accel" = kvm ]
}

# prints nothing if the way can run here, else why not
way_obstacle()
{
	case "$1" in
	*-kvm) kvm_works || { echo "KVM does not work here" && return; } ;;
	esac
	case "$1" in
	gpuimg | gpuimg-kvm) ;;
	gpuimg-*) gpuimg_has_cache || echo "this gpuimg has no cache of results" ;;
	virt-customize*) tools_missing virt-customize virt-sparsify ;;
	root-script) root_script_obstacle ;;
	esac
}

tools_missing()
{
	local tool

	for tool in "$@"; do
		command -v "$tool" >/dev/null || { echo "'$tool' is not installed" && return; }
	done
}

gpuimg_has_cache()
{
	"$gpuimg" build --help 2>/dev/null | grep -q -e --no-cache
}

root_script_obstacle()
{
	if [ "$(id -u)" -ne 0 ]; then
		echo "needs root"
	elif ! losetup -f >/dev/null 2>&1; then
		echo "no free loop device"
	fi
}

list_ways()
{
	local way obstacle

	accel=$(accelerator)
	for way in "${ALL_WAYS[@]}"; do
		obstacle=$(way_obstacle "$way")
		printf '%-20s %s%s\n' "$way" "$(way_label "$way")" "${obstacle:+ [left out: $obstacle]}"
	done
}

choose_ways()
{
	local way obstacle

	ways=()
	accel=$(accelerator)
	for way in "${ALL_WAYS[@]}"; do
		[[ -z $only || ",$only," == *",$way,"* ]] || continue
		obstacle=$(way_obstacle "$way")
		if [ -n "$obstacle" ]; then
			step "$way: left out: $obstacle"
			record_skipped "$way" "$obstacle"
		else
			ways+=("$way")
		fi
	done
	[ ${#ways[@]} -gt 0 ] || die 3 "no way can be measured here" "see bench.sh --list-ways"
}

chosen()
{
	[[ " ${ways[*]} " == *" $1 "* ]]
}

# what a user has from the second build on is made before, outside of the measured time
prepare_ways()
{
	lend_appliance
	if chosen virt-customize || chosen virt-customize-kvm; then
		step "libguestfs: making its appliance, not measured"
		warm_appliance || warn "cannot start libguestfs' appliance, going on without"
	fi
	if chosen gpuimg-same || chosen gpuimg-changed; then
		step "gpuimg: filling its cache, not measured"
		run_sample gpuimg-same 0
	fi
}

# gpuimg keeps one below its cache directory, which is a new one here; libguestfs takes no link
lend_appliance()
{
	local dir=$appliance_dir/.guestfs-$UID

	mkdir -p "$work/cache"
	[ ! -d "$dir" ] || cp -a --sparse=always --reflink=auto "$dir" "$work/cache/" ||
		warn "cannot copy '$dir', going on without"
}

# supermin keeps the appliance by user under this directory, where gpuimg has its own too
warm_appliance()
{
	local dir=$appliance_dir/.guestfs-$UID/appliance.d

	[ ! -e "$dir/root" ] || return 0
	mkdir -p "$appliance_dir"
	LIBGUESTFS_CACHEDIR=$appliance_dir LIBGUESTFS_BACKEND=direct \
		LIBGUESTFS_BACKEND_SETTINGS=force_tcg TMPDIR=$work \
		timeout 300 guestfish -a /dev/null run >"$work/appliance.log" 2>&1
}
