# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154 # the parts of make-base share their state
# What: GRUB for BIOS and UEFI without grub-install, and grub.cfg by the guest's own update-grub.
# Why:  grub-install and grub-bios-setup want block devices, and there are none here.

grub_fs()
{
	case "$1" in
	ext4) echo ext2 ;;
	*) echo "$1" ;;
	esac
}

# /boot/grub as GRUB sees it, from the top of the file system that holds it
grub_prefix()
{
	if [ -n "$boot_uuid" ]; then
		echo /grub
	elif [ "$root_fs" = btrfs ]; then
		echo "/$SUBVOL/boot/grub"
	else
		echo /boot/grub
	fi
}

# the modules that GRUB needs to read that file system
grub_fs_modules()
{
	if [ -n "$boot_uuid" ]; then
		grub_fs ext4
	else
		[ "$root_fs" != lvm ] || echo lvm
		grub_fs "$(root_type)"
	fi
}

# where GRUB looks for its modules and grub.cfg: by UUID, so disk order and firmware do not matter
grub_load_config()
{
	printf "search.fs_uuid %s root\nset prefix=(\$root)'%s'\n" "${boot_uuid:-$root_uuid}" \
		"$(grub_prefix)"
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
	local fs=()

	mapfile -t fs < <(grub_fs_modules)
	grub_load_config >"$work/grub/load.cfg"
	{ grub_load_config; echo "configfile \$prefix/grub.cfg"; } >"$work/grub/esp.cfg"

	sandbox grub-mkimage -O i386-pc -p "$(grub_prefix)" \
		-c /run/gpuimg/load.cfg -o /run/gpuimg/core.img biosdisk part_gpt "${fs[@]}" search_fs_uuid
	sandbox grub-mkimage -O x86_64-efi -p /EFI/debian -o /run/gpuimg/grubx64.efi \
		part_gpt fat "${fs[@]}" search search_fs_uuid configfile normal echo test
	cp "$root/usr/lib/grub/i386-pc/boot.img" "$work/grub/boot.img"
	cp "$work/grub/boot.img" "$work/grub/core.img" "$root/boot/grub/i386-pc/"
	cp "$work/grub/grubx64.efi" "$root/boot/grub/x86_64-efi/core.efi"
}

configure_grub()
{
	step "boot loader: modules, core images, update-grub"
	copy_grub_modules
	make_grub_cores
	fill_grub_esp
	if ! run_logged "$work/grub.log" sandbox update-grub; then
		tail -n 15 "$work/grub.log" >&2
		die 1 "update-grub in the new root failed" "its last lines stand above"
	fi
	grep -q "root=$(root_device) " "$root/boot/grub/grub.cfg" ||
		die 1 "the new root's grub.cfg has no entry with root=$(root_device)"
}

fill_grub_esp()
{
	mkdir -p "$esp/EFI/BOOT" "$esp/EFI/debian"
	if [ -n "$secure_boot" ]; then
		copy_signed_loaders
	else
		cp "$work/grub/grubx64.efi" "$esp/EFI/BOOT/BOOTX64.EFI"
		cp "$work/grub/grubx64.efi" "$esp/EFI/debian/"
	fi
	cp "$work/grub/esp.cfg" "$esp/EFI/debian/grub.cfg"
}

# The firmware starts shim, shim the grubx64.efi beside it, and that one reads /EFI/debian/grub.cfg.
# Under the removable path's name, since an image brings no boot entry for a machine's NVRAM; shim's
# fbx64.efi would write one, and is left out.
copy_signed_loaders()
{
	local shim=$root/usr/lib/shim grub=$root/usr/lib/grub/x86_64-efi-signed

	cp "$shim/shimx64.efi.signed" "$esp/EFI/BOOT/BOOTX64.EFI"
	cp "$grub/grubx64.efi.signed" "$esp/EFI/BOOT/grubx64.efi"
	cp "$shim/mmx64.efi.signed" "$esp/EFI/BOOT/mmx64.efi"
	cp "$shim/shimx64.efi.signed" "$esp/EFI/debian/shimx64.efi"
	cp "$grub/grubx64.efi.signed" "$esp/EFI/debian/grubx64.efi"
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
