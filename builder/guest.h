/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an image is: its root file system, mounts (from the image's own fstab), distribution,
 * kernels, initramfs generator and boot loader. Read only. All from files and packages of
 * the image, never from a command's name.
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
	char *path;                  /* "/", "/boot", "/boot/efi" */
	char *type;                  /* fstab's word */
	const struct volume *volume; /* borrowed from the disk */
};

struct guest_kernel {
	char *version;
	char *image;     /* "/boot/vmlinuz-VERSION" */
	char *initramfs; /* "/boot/initrd.img-VERSION", whether it is there or not */
	bool has_initramfs;
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
	char *loader;    /* "grub", or what was found, for the refusal */
};

/*
 * Finds the one operating system on the disk and opens its root read-only. Errors
 * (EXIT_INPUT): none, two (both named), an encrypted, RAID or LVM member as the only place
 * where one could be, a mount of fstab whose device is not on the disk.
 * appliance: for file systems that libext2fs does not read; NULL: then such a root gives
 * 1 with nothing set, and the caller starts one (appliance_start, read-only) and calls again.
 */
int guest_open(struct guest **ret, struct rootfs **ret_root, struct disk *disk,
               struct appliance *appliance, struct error *err);
/* One more handle on the same root, for another thread; ext file systems only. */
int guest_open_again(struct rootfs **ret, struct guest *guest, struct disk *disk,
                     struct error *err);
void guest_free(struct guest *guest);
DEFINE_CLEANUP(guest, struct guest *, guest_free)
#define CLEANUP_GUEST CLEANUP(cleanup_guest)

/* Reads the kernels anew (a stage may have added some). */
int guest_read_kernels(struct guest *guest, struct rootfs *root, struct error *err);
/* Whether our stages know this boot chain; the error (EXIT_INPUT) names what was found. */
int guest_check_supported(const struct guest *guest, struct rootfs *root, struct error *err);
const struct guest_mount *guest_find_mount(const struct guest *guest, const char *path);

#endif
