# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of make-base share their state
# What: GRUB for BIOS and UEFI without grub-install, and grub.cfg by the guest's own update-grub.
# Why:  grub-install and grub-bios-setup want block devices, and there are none here.

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
	{ echo "# GRUB Environment Block" && printf '%999s' '' | tr ' ' '#'; } |
		guest_file /boot/grub/grubenv
}

# core.img for both firmwares by the guest's own grub-mkimage: modules and tool are one version
make_grub_cores()
{
	local fs=$root_fs prefix=/boot/grub

	[ -z "$boot_uuid" ] || fs=ext4 prefix=/grub
	fs=$(grub_fs "$fs")
	grub_load_config >"$work/grub/load.cfg"
	{ grub_load_config; echo "configfile \$prefix/grub.cfg"; } >"$work/grub/esp.cfg"

	sandbox grub-mkimage -O i386-pc -p $prefix \
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
	dd if="$core" of="$disk" bs="$MIB" seek="$BIOS_START_MIB" conv=notrunc status=none
}
