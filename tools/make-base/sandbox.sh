# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154 # the parts of make-base share their state
# What: runs the guest's own programs in the guest's root.
# Why:  boot files are made by the versions of GRUB and systemd that the guest has.

# Without network and without the host's files. The ESP is a mount of its own, as on a node, so
# that nothing of it stays in the root; kernel-install has to be told so, since 'stat -c %m' does
# not know a bind mount within one file system.
sandbox()
{
	local options=(--bind "$root" / --bind "$esp" /boot/efi --dev /dev --proc /proc --tmpfs /run
		--tmpfs /tmp --unshare-pid --unshare-net --unshare-ipc --unshare-uts --die-with-parent
		--new-session --clearenv --chdir / --setenv PATH /usr/sbin:/usr/bin:/sbin:/bin
		--setenv HOME /root --setenv LC_ALL C.UTF-8)

	if [ "$loader" = grub ]; then
		sandbox_grub
		sandbox_root_device
	else
		options+=(--setenv BOOT_ROOT /boot/efi --setenv BOOT_MNT /boot/efi
			--setenv SYSTEMD_RELAX_ESP_CHECKS 1)
	fi
	bwrap "${options[@]}" -- "$@"
}

# the stand-ins for GRUB's programs that want block devices (see grub-probe.sh)
sandbox_grub()
{
	options+=(--ro-bind "$sandbox_dir/grub-probe.sh" /usr/sbin/grub-probe
		--ro-bind "$sandbox_dir/grub-mkrelpath.sh" /usr/bin/grub-mkrelpath
		--bind "$work/grub" /run/gpuimg
		--setenv GPUIMG_PARTMAP gpt --setenv GPUIMG_ESP_UUID "$esp_uuid"
		--setenv GPUIMG_ROOT_UUID "$root_uuid"
		--setenv GPUIMG_ROOT_FS "$(grub_fs "$(root_type)")"
		--setenv GPUIMG_ROOT_PARTUUID "$root_partuuid" --setenv GPUIMG_BOOT_UUID "$boot_uuid"
		--setenv GPUIMG_BOOT_FS ext2 --setenv GPUIMG_BOOT_PARTUUID "$boot_partuuid")
	[ "$root_fs" != btrfs ] || options+=(--setenv GPUIMG_ROOT_SUBVOL "$SUBVOL")
}

# 10_linux writes the root as the node names it only if it sees that name in /dev
sandbox_root_device()
{
	if [ "$root_fs" = lvm ]; then
		options+=(--dir /dev/mapper --symlink ../null "$(root_device)"
			--setenv GPUIMG_ROOT_DEVICE "$(root_device)")
	else
		options+=(--dir /dev/disk --dir /dev/disk/by-uuid
			--symlink ../../null "/dev/disk/by-uuid/$root_uuid")
	fi
}
