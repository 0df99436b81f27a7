/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-only rootfs backend: FAT12/16/32 with long names, as EFI system partitions have it, over
 * disk_read(), so that a proof sees the ESP without an appliance. Names are compared without
 * regard to case (ASCII), also by their short form ("LONGNA~1.TXT"), and listed as they were
 * written (UTF-16 to UTF-8, or code page 437; a name that is no Unicode, holds '/' or a control
 * character is an error that names its place, whatever is asked of that directory).
 * All is untrusted: cluster chains are bounded by the file system (loops are errors), as are
 * entries in a directory (65536) and depth (128). Files may share clusters; of two entries that
 * lead to one directory the second that is used is an error, so that a walk of the tree ends.
 * Files are root's, 0644; directories 0755 and of size 0; times are taken as UTC.
 * Source: Microsoft FAT specification (fatgen103); UEFI specification 13.3.
 */
#ifndef GPUIMG_FATFS_H
#define GPUIMG_FATFS_H

#include "disk.h"
#include "rootfs.h"

bool fatfs_supports(const struct volume *volume); /* "vfat" */
/* The disk must outlive it. Errors (EXIT_INPUT): not a FAT that can be read. One thread at a time
 * per rootfs; several may share a disk. */
int fatfs_open(struct rootfs **ret, struct disk *disk, const struct volume *volume,
               struct error *err);

#endif
