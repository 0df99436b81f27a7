#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What: carries out one way once: $bench_base in, $bench_out out. Started by bench.sh only.
# Why:  as a process of its own, the first of a pid namespace, all that it starts is counted, and
#       ends with it; its mounts are seen by nobody else and go with it, and so do the loops.
# How:  way.sh WAY; all else comes in variables bench_*.
# shellcheck disable=SC2154 # they come from the environment
set -euo pipefail

. "$bench_repo/tools/bench/ticks.sh"

readonly BLOCK=modprobe.d/gpuimg-gpu-block.conf DROPIN=grub.d/zz-gpuimg.cfg

# bash ends on a signal only after its foreground child has, which gets the same signal
trap 'exit 143' TERM HUP INT

# mark NAME FILE: that part ends here: time, CPU ticks of the machine, size of its result
mark()
{
	echo "$1 $EPOCHREALTIME $(machine_ticks) $(stat -c %s "$2")" >>"$bench_marks"
}

gpuimg_build()
{
	"$bench_gpuimg" build --no-boot-test --cache-dir="$bench_cache" --work-dir="$TMPDIR" \
		-o "$bench_out" "$@" "$bench_base"
}

# a build without the cache of results, where this gpuimg has one
gpuimg_fresh()
{
	local no_cache=()

	[ -z "$bench_has_cache" ] || no_cache=(--no-cache)
	gpuimg_build "${no_cache[@]}"
}

compress()
{
	qemu-img convert -c -f "$1" -O qcow2 -o "compression_type=$bench_compression" "$2" "$bench_out"
}

# as many cores as there are: the default of one would be the appliance's loss, not the tool's
virt_customize()
{
	local image=$bench_dir/image.qcow2 smp=()

	[ "$(nproc)" -lt 2 ] || smp=(--smp "$(nproc)")
	if [ "$bench_format" = qcow2 ]; then
		cp --reflink=auto "$bench_base" "$image"
	else
		qemu-img convert -O qcow2 "$bench_base" "$image"
	fi
	virt-customize -q "${smp[@]}" --no-network --format qcow2 -a "$image" \
		--mkdir /etc/default/grub.d \
		--upload "$bench_repo/boot/$BLOCK:/etc/$BLOCK" \
		--upload "$bench_repo/boot/$DROPIN:/etc/default/$DROPIN" \
		--run-command 'update-initramfs -u -k all' --run-command update-grub
	mark virt-customize "$image"
	virt-sparsify -q --in-place --format qcow2 "$image"
	compress qcow2 "$image"
}

# grub-mkconfig writes root=UUID= only if /dev/disk/by-uuid has it: a /dev of the script's own
guest_dev()
{
	local dev=$1/dev node

	mount -t tmpfs -o mode=755,nosuid tmpfs "$dev"
	for node in null zero full random urandom tty "${2#/dev/}"; do
		cp -a "/dev/$node" "$dev/$node"
	done
	mkdir -p "$dev/disk/by-uuid" "$dev/shm"
	ln -s "../../${2#/dev/}" "$dev/disk/by-uuid/$(blkid -p -o value -s UUID "$2")"
	ln -s /proc/self/fd "$dev/fd"
}

in_guest()
{
	chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
		LC_ALL=C "$@" </dev/null
}

root_script()
{
	local raw=$bench_dir/image.raw disk part

	root=$bench_dir/root
	mkdir "$root"
	qemu-img convert -f "$bench_format" -O raw "$bench_base" "$raw"
	# with its partitions: GRUB's 10_linux writes no entry for a root on a whole loop device
	disk=$(losetup --find --partscan --show "$raw")
	part=${disk}p$bench_root_number
	[ -b "$part" ] || partx --add "$disk" # a kernel that does not read GPT itself
	mount "$part" "$root" || { losetup -d "$disk" && exit 1; }
	losetup -d "$disk" # when the mount goes, whatever happens to us
	guest_dev "$root" "$part"
	mount -t proc proc "$root/proc"
	mount -t sysfs -o ro sysfs "$root/sys"
	install -m 644 -D "$bench_repo/boot/$BLOCK" "$root/etc/$BLOCK"
	install -m 644 -D "$bench_repo/boot/$DROPIN" "$root/etc/default/$DROPIN"
	in_guest update-initramfs -u -k all
	in_guest update-grub
	umount "$root/sys" "$root/proc" "$root/dev"
	fstrim "$root"
	umount "$root"
	compress raw "$raw"
}

case "$1" in
gpuimg | gpuimg-kvm) gpuimg_fresh ;;
gpuimg-same) gpuimg_build ;;
gpuimg-changed) gpuimg_build --block="$bench_extra" ;;
virt-customize | virt-customize-kvm) virt_customize ;;
root-script) root_script ;;
*) echo "way.sh: unknown way '$1'" >&2 && exit 2 ;;
esac
