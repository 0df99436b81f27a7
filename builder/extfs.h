/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-only rootfs backend: ext2/3/4 file systems of a disk read in user space by libext2fs
 * through an io_manager of ours over disk_read() (with a read-ahead cache), so no appliance
 * and no mount. A journal that needs recovery is an error that says so (EXIT_INPUT): the
 * caller may fall back to the appliance. Checksums are verified where the file system has them.
 * One thread at a time per rootfs; several may share a disk. Free space counts what is
 * reserved for root.
 */
#ifndef GPUIMG_EXTFS_H
#define GPUIMG_EXTFS_H

#include "disk.h"
#include "rootfs.h"

/* Whether libext2fs here reads this volume ("ext2", "ext3", "ext4", not on LVM). */
bool extfs_supports(const struct volume *volume);

/* One file system as a rootfs; the disk must outlive it. */
int extfs_open(struct rootfs **ret, struct disk *disk, const struct volume *volume,
               struct error *err);
/* Puts another file system at an absolute directory of it ("/boot"); longest match wins. */
int extfs_mount(struct rootfs *r, const char *path, const struct volume *volume, struct error *err);

#endif
