# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of bench share their state
# What: what a build costs as the image grows: bases with more kernels, and with more data.
# Why:  time, memory and disk are to grow with what is changed, not with what an image holds.

# Full kernels of about the same weight, the newest of the series that the plain package takes.
# make-base puts them into its key, so that a base is made again when there are newer ones.
kernel_packages()
{
	local wanted=$1 newest series found

	newest=$(apt-cache depends --no-recommends --no-suggests linux-image-amd64 2>/dev/null |
		sed -n 's/^ *Depends: \(linux-image-[0-9.]*\).*/\1/p' | sed -n 1p)
	series=${newest:-linux-image-6.1.0}
	mapfile -t found < <(apt-cache search --names-only "^$series" | cut -d' ' -f1 |
		grep -E '^linux-image-[0-9.+a-z]+-?[0-9]*-amd64$' | sort -V | tail -n "$wanted")
	[ ${#found[@]} -eq "$wanted" ] ||
		die 3 "apt knows ${#found[@]} kernels like '$series-NN-amd64', $wanted are needed" \
			"apt-get update, or leave that point out with --points"
	(IFS=, && echo "${found[*]}")
}

# The script stands in the image's cache key with its content, so the amount is written into it.
data_script()
{
	{
		echo '#!/usr/bin/env bash'
		echo "megabytes=$(($1 * 1000))"
		cat "$here/bench/fill-data.sh"
	} >"$work/fill-data"
	chmod +x "$work/fill-data"
}

# make_point_base POINT: leaves it as $base
make_point_base()
{
	local number=${1#*-} options=()

	step "$1: making its base (from the cache, if there)"
	case "$1" in
	kernels-*)
		options=(--kernels "$(kernel_packages "$number")" --size $((3 + number))G)
		;;
	data-*)
		data_script "$number"
		options=(--customize "$work/fill-data" --size $((4 + number + number / 4))G)
		;;
	esac
	base=$work/base.qcow2
	TMPDIR=$work "$here/make-base.sh" -q -o "$base" "${options[@]}" >/dev/null ||
		die 1 "cannot make the base of '$1'" "leave it out with --points"
}

# make-base holds a root three times, and its cache and we have a copy each
check_growth_space()
{
	local list=$1 point need_mib=8192 free_mib

	for point in $list; do
		case "$point" in
		data-*) need_mib=$((need_mib > 4096 + ${point#*-} * 4096 ? need_mib : 4096 + ${point#*-} * 4096)) ;;
		esac
	done
	free_mib=$(df -Pm "$work" | awk 'NR == 2 { print $4 }')
	[ "$free_mib" -ge "$need_mib" ] ||
		die 3 "'$work_parent' has $free_mib MiB free, $need_mib MiB are needed" \
			"give --work-dir, or leave large points out with --points"
}

run_growth()
{
	local point round way list

	list=$(tr , ' ' <<<"${points:-kernels-1,kernels-2,kernels-4,data-2,data-6,data-12}")
	check_growth_space "$list"
	ways=(gpuimg)
	accel=$(accelerator)
	[ -z "$growth_all" ] || ways+=(root-script)
	lend_appliance
	machine_json >"$work/machine.json"
	for point in $list; do
		make_point_base "$point"
		open_base
		cat "$work/base.json" >>"$work/bases.json"
		for ((round = 1; round <= rounds; round++)); do
			for way in "${ways[@]}"; do
				step "$point, round $round of $rounds: $way"
				run_sample "$way" "$round"
			done
		done
		base_untouched
		rm -f "$base"
	done
	echo null >"$work/base.json"
	publish_report growth
}
