# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of bench share their state
# What: one sample: starts a way, watches its memory and disk, takes its times, has its result checked.
# Why:  memory is the sum of Pss (shared pages counted once) over the way's first process and all
#       below it. That is all there is: in a pid namespace, what loses its parent stays below the
#       first process, so a daemon (libguestfs' QEMU) is found too, whatever it does to its session
#       or environment. A cgroup's memory.peak would count page cache, which grows to what is free.
#       CPU time is the kernel's account of ended children (wait4), which is whole for that reason.
#       Without root there is no such namespace: then those once seen are remembered.

readonly SAMPLE_S=0.2 DISK_SAMPLE_US=500000

now_us()
{
	echo "${EPOCHREALTIME//./}"
}

# prints "Pss" in KiB; where that may not be read, what is resident
process_kib()
{
	local key value rest

	while read -r key value rest; do
		[ "$key" != Pss: ] || { memory_kib=$((memory_kib + value)) && return 0; }
	done <"/proc/$1/smaps_rollup"
	read -r key value rest <"/proc/$1/statm" && memory_kib=$((memory_kib + value * 4))
} 2>/dev/null

# adds a process, and all below it that were not seen yet, to memory_kib; through all threads,
# since a child stands under the thread that made it
walk()
{
	local list child children=() some

	[ -z "${visited[$1]-}" ] || return 0
	visited[$1]=y
	for list in /proc/"$1"/task/*/children; do
		some=()
		# the list does not end with a newline, which read takes for a failure
		{ read -r -a some <"$list"; } 2>/dev/null || true
		children+=("${some[@]}")
	done
	process_kib "$1" || true
	for child in "${children[@]}"; do
		walk "$child"
	done
}

sample_memory()
{
	local pid

	visited=()
	memory_kib=0
	walk "$child"
	for pid in "${!remembered[@]}"; do
		if [ -e "/proc/$pid" ]; then walk "$pid"; else unset "remembered[$pid]"; fi
	done
	if [ "$(id -u)" -ne 0 ]; then
		for pid in "${!visited[@]}"; do remembered[$pid]=y; done
	fi
}

# du of a large tree costs time of its own: never more than a tenth
sample_disk()
{
	local began took

	began=$(now_us)
	[ "$began" -ge "$next_disk_us" ] || return 0
	disk_bytes=$({ du -sx -B1 "$run_dir" 2>/dev/null || true; } | cut -f1)
	took=$((${EPOCHREALTIME//./} - began))
	next_disk_us=$((began + (took * 10 > DISK_SAMPLE_US ? took * 10 : DISK_SAMPLE_US)))
}

# ends when the way does; 1 if it had to be stopped
watch_way()
{
	local until=$((SECONDS + timeout_s)) next_disk_us=0 memory_kib disk_bytes=0
	local -A visited=() remembered=()

	while kill -0 "$child" 2>/dev/null; do
		sample_memory
		sample_disk
		echo "$EPOCHREALTIME $memory_kib ${disk_bytes:-0}" >>"$run_log.samples"
		if [ "$SECONDS" -ge "$until" ]; then
			stop_child
			return 1
		fi
		sleep "$SAMPLE_S"
	done
	# what it leaves, for ways that end between two samples
	next_disk_us=0
	sample_disk
	echo "$EPOCHREALTIME 0 ${disk_bytes:-0}" >>"$run_log.samples"
}

way_environment()
{
	local way=$1 round=$2

	bench_extra=bench_round_$round
	env=(TMPDIR="$run_dir/tmp" bench_base="$base" bench_format="$base_format" bench_dir="$run_dir"
		bench_out="$run_dir/out/result.qcow2" bench_gpuimg="$gpuimg" bench_repo="$repo"
		bench_cache="$work/cache" bench_extra="$bench_extra" bench_marks="$run_log.marks"
		bench_compression="$base_compression" bench_has_cache="$has_cache"
		bench_root_number="$root_number"
		LIBGUESTFS_CACHEDIR="$appliance_dir" LIBGUESTFS_BACKEND=direct)
	case "$way" in
	*-kvm) env+=(GPUIMG_ACCEL=kvm) ;;
	*) env+=(GPUIMG_ACCEL=tcg LIBGUESTFS_BACKEND_SETTINGS=force_tcg) ;;
	esac
}

# job control is on for a moment, so that the way leads a process group that stop_child can end
start_way()
{
	local env=() wrap=()

	way_environment "$@"
	if [ "$(id -u)" -eq 0 ]; then
		wrap=(unshare --mount --pid --fork --kill-child --mount-proc)
	fi
	set -m
	/usr/bin/time -o "$run_log.time" -f %e \
		env "${env[@]}" "${wrap[@]}" bash "$here/bench/way.sh" "$1" \
		</dev/null >"$run_log" 2>&1 &
	child=$!
	set +m
}

# nothing of the last sample still on its way to the disk, and the base in memory for everybody
settle()
{
	remove_tree "$run_dir"
	rm -f -- "$run_log"*
	mkdir -p "$run_dir/tmp" "$run_dir/out" "$work/cache"
	sync -f "$work"
	cat "$base" >/dev/null
}

# run_sample WAY ROUND: round 0 is a preparation, and not recorded
run_sample()
{
	local way=$1 round=$2 status=0 reason='' extra=''
	local run_dir=$work/run run_log=$work/way.log began bench_extra
	local began_ticks ended_ticks

	settle
	began=$EPOCHREALTIME
	began_ticks=$(machine_ticks)
	start_way "$way" "$round"
	watch_way || reason="stopped after $timeout_s s"
	if [ -n "$child" ]; then
		wait "$child" || status=$?
		child=
	fi
	ended_ticks=$(machine_ticks)
	[ "$way" != gpuimg-changed ] || extra=$bench_extra
	if [ -z "$reason" ] && [ "$status" -ne 0 ]; then
		tail -n 15 "$run_log" >&2
		reason="exit status $status"
	elif [ -z "$reason" ]; then
		check_result "$run_dir/out/result.qcow2" "$extra" || reason="wrong result: $wrong"
	fi

	if [ -n "$reason" ]; then
		failures=$((failures + 1))
		warn "$way: $reason"
	fi
	[ "$round" -eq 0 ] || record_sample "$way" "$round" "$reason"
	remove_tree "$run_dir"
}
