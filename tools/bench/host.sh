# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of bench share their state
# What: this machine: tools, what it is, work directory, and that nothing stays behind.
# Why:  what is missing is told in the first second; a stopped run leaves no process, mount or loop.

appliance_dir=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/gpuimg

check_tools()
{
	local tool package missing=() packages=()

	while read -r tool package; do
		command -v "$tool" >/dev/null && continue
		missing+=("$tool")
		packages+=("$package")
	done <<-EOF
	/usr/bin/time time
	jq jq
	qemu-img qemu-utils
	qemu-storage-daemon qemu-system-common
	debugfs e2fsprogs
	sfdisk fdisk
	unmkinitramfs initramfs-tools-core
	losetup mount
	unshare util-linux
	flock util-linux
	EOF
	[ ${#missing[@]} -eq 0 ] || die 3 "missing on this machine: ${missing[*]}" \
		"tools/install-deps.sh bench, or: apt-get install ${packages[*]}"
	[ -x "$gpuimg" ] || die 3 "cannot run '$gpuimg'" "run 'make' first, or name it with --gpuimg"
	gpuimg=$(readlink -f "$gpuimg")
}

make_work_dir()
{
	local free_mib need_mib=4096

	mkdir -p "$output_dir" || die 3 "cannot make directory '$output_dir'" "give --output-dir"
	exec {lock_fd}>"$output_dir/.lock"
	flock -n "$lock_fd" || die 3 "another run writes to '$output_dir'" "two at once spoil each other"

	[ -d "$work_parent" ] || die 3 "'$work_parent' is not a directory" "give --work-dir"
	[ -z "$base" ] || need_mib=$((need_mib + $(stat -c %s "$base") * 4 / 1048576))
	free_mib=$(df -Pm "$work_parent" | awk 'NR == 2 { print $4 }')
	[ "$free_mib" -ge "$need_mib" ] ||
		die 3 "'$work_parent' has $free_mib MiB free, $need_mib MiB are needed" "give --work-dir"
	work=$(mktemp -d "$(readlink -f "$work_parent")/gpuimg-bench.XXXXXX")
	touch "$work/samples"
	has_cache=
	! gpuimg_has_cache || has_cache=y
}

# kvm or tcg, as gpuimg itself found out by a real boot
accelerator()
{
	if timeout 60 "$gpuimg" doctor --json 2>/dev/null |
		jq -e 'any(.findings[]; .id == "accelerator" and .verdict == "ok")' >/dev/null; then
		echo kvm
	else
		echo tcg
	fi
}

first_line()
{
	{ "$@" 2>/dev/null || true; } | sed -n 1p
}

machine_json()
{
	jq -n --arg cpu "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | sed -n 1p)" \
		--argjson cores "$(nproc)" \
		--argjson kib "$(awk '/^MemTotal/ { print $2 }' /proc/meminfo)" \
		--arg kernel "$(uname -r)" --arg accelerator "$accel" \
		--argjson load "$(cut -d' ' -f1 /proc/loadavg)" \
		--arg gpuimg "$(first_line "$gpuimg" --version)" \
		--arg digest "$(sha256sum <"$gpuimg" | cut -d' ' -f1)" \
		--arg qemu "$(first_line qemu-img --version)" \
		--arg customize "$(first_line virt-customize --version)" \
		--arg disk "$(stat -f -c %T "$work")" \
		'{cpu: $cpu, cores: $cores, memory_bytes: ($kib * 1024), kernel: $kernel,
		accelerator: $accelerator, load_before: $load, work_file_system: $disk,
		versions: {gpuimg: $gpuimg, gpuimg_sha256: $digest, qemu: $qemu,
		"virt-customize": $customize}}'
	awk -v cores="$(nproc)" '{ exit !($1 > cores / 4) }' /proc/loadavg || return 0
	warn "the machine is busy (load $(cut -d' ' -f1 /proc/loadavg)): figures will be too high"
}

# never delete through a mount, nor leave a loop device behind
remove_tree()
{
	local target name file

	awk -v dir="$1/" 'index($5, dir) == 1 { print $5 }' /proc/self/mountinfo | sort -r |
		while read -r target; do
			umount -l "$target" || true
		done
	losetup -n -l -O NAME,BACK-FILE 2>/dev/null | while read -r name file; do
		[[ $file != "$1/"* ]] || losetup -d "$name" || true
	done
	rm -rf --one-file-system -- "$1"
}

cleanup()
{
	local status=$?

	trap - EXIT INT TERM HUP
	[ -z "$child" ] || stop_child
	close_view
	[ -z "$work" ] || remove_tree "$work"
	case "$status$told" in
	0 | *y | 130 | 143) ;;
	*) printf 'bench: error: stopped at: %s\n' "$doing" >&2 ;;
	esac
	exit "$status"
}
