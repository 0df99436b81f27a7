/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boot entries of an image and what they boot: read from the image, for the comparison of
 * before and after.
 */
#ifndef GPUIMG_BOOTCHAIN_H
#define GPUIMG_BOOTCHAIN_H

#include "error.h"
#include "grubcfg.h"
#include "guest.h"
#include "rootfs.h"

#define BOOTCHAIN_GRUB_CFG "/boot/grub/grub.cfg"

struct bootchain {
	struct grub_config grub;
};

/*
 * Entries of grub.cfg and of the files in /boot/grub that it sources (41_custom sources
 * custom.cfg). Errors (EXIT_INPUT): entries that live elsewhere, as BLS files or UKIs.
 */
int bootchain_read(struct bootchain *ret, struct rootfs *root, struct error *err);
void bootchain_free(struct bootchain *chain);
/* A path as GRUB writes it ("/vmlinuz-…" where /boot is a file system of its own) as a path
 * of the guest's root. Owned by the caller. */
char *bootchain_guest_path(const struct guest *guest, const char *grub_path);

#endif
