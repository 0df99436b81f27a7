/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an image is: its root file system, mounts (from the image's own fstab), distribution,
 * kernels and initramfs generator. Read only. All from files and packages of the image, never
 * from a command's name.
 */
#ifndef GPUIMG_GUEST_H
#define GPUIMG_GUEST_H

#include <stdbool.h>

#include "disk.h"
#include "error.h"
#include "rootfs.h"
#include "str.h"

struct appliance;

struct guest_mount {
	char *path;    /* "/", "/boot", "/boot/efi" */
	char *type;    /* fstab's word */
	char *subvol;  /* btrfs: path of the subvolume from the top ("@rootfs"), without a
	                * leading '/'; "": the top, where it is not the default; NULL:
	                * the file system's default, which is its top */
	bool implicit; /* not in fstab: an ESP or XBOOTLDR that systemd-gpt-auto-generator
	                * would mount there */
	const struct volume *volume; /* borrowed from the disk */
};

struct guest_kernel {
	char *version;
	char *image;     /* "/boot/vmlinuz-VERSION"; where /boot has none and entries are made by
	                  * kernel-install, "/usr/lib/modules/VERSION/vmlinuz" */
	char *initramfs; /* "/boot/initrd.img-VERSION" or, of the EL family,
	                  * "/boot/initramfs-VERSION.img", whether it is there or not */
	bool has_initramfs;
	bool rescue; /* a copy of a kernel under the name "0-rescue-MACHINE-ID", without modules of
	              * its own: nothing is made for it */
	uint64_t initramfs_bytes;
};

struct guest {
	char *id, *version_id, *pretty_name; /* os-release */
	char *arch;                          /* "x86_64", "aarch64"… */
	struct guest_mount *mounts;          /* parents first: "/" is mounts[0] */
	size_t mount_count;
	struct guest_kernel *kernels; /* sorted by version string */
	size_t kernel_count;
	char *generator; /* "initramfs-tools", "dracut", "mkinitcpio", "none" */
	char *grub_dir;  /* "/boot/grub", "/boot/grub2": where a grub.cfg is; NULL: no GRUB */
	bool is_el; /* Enterprise Linux, Fedora and kin: os-release ID or ID_LIKE has rhel or fedora
	             */
};

/*
 * Finds the one operating system on the disk and opens its root read-only, with what its fstab
 * mounts. Errors (EXIT_INPUT): none, two (both named), one that cannot be reached or changed (an
 * encrypted disk, a RAID, an immutable system), a mount of fstab whose device is not on the disk, a
 * /boot that is not mounted.
 * Without an appliance ext and vfat are read; where another file system or LVM is needed, the
 * result is 1 with nothing set, and the caller starts one (appliance_start, read-only) and calls
 * again. With one it finds the logical volumes too, which become volumes of the disk.
 */
int guest_open(struct guest **ret, struct rootfs **ret_root, struct disk *disk,
               struct appliance *appliance, struct error *err);
/* One more handle on the same root, for another thread; where guest_in_user_space(). */
int guest_open_again(struct rootfs **ret, struct guest *guest, struct disk *disk,
                     struct error *err);
/* Whether all of its file systems are read without an appliance. */
bool guest_in_user_space(const struct guest *guest);
void guest_free(struct guest *guest);
DEFINE_CLEANUP(guest, struct guest *, guest_free)
#define CLEANUP_GUEST CLEANUP(cleanup_guest)

/* Reads the kernels anew (a stage may have added some). */
int guest_read_kernels(struct guest *guest, struct rootfs *root, struct error *err);
/* Whether our stages know this boot chain; the error (EXIT_INPUT) names what was found. */
int guest_check_supported(const struct guest *guest, struct rootfs *root, struct error *err);
/* Whether a mounted ESP has a program that firmware or another loader can start: EFI/…/….EFI. */
bool guest_has_uefi_loader(const struct guest *guest, struct rootfs *root);
const struct guest_mount *guest_find_mount(const struct guest *guest, const char *path);
/* The innermost mount that the path lies below; a mount point itself lies below another. */
const struct guest_mount *guest_mount_of(const struct guest *guest, const char *path);
bool guest_mount_is_fat(const struct guest_mount *mount);

#endif
