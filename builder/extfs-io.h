/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libext2fs' view of a range of a disk: an io_manager, read-only, with a cache that reads
 * ahead. Private to extfs.c.
 */
#ifndef GPUIMG_EXTFS_IO_H
#define GPUIMG_EXTFS_IO_H

#include <ext2fs/ext2fs.h>

#include "disk.h"

struct extfs_io;

/* The disk must outlive it, and it any ext2_filsys opened through it. */
struct extfs_io *extfs_io_new(struct disk *disk, uint64_t offset_bytes, uint64_t size_bytes);
void extfs_io_free(struct extfs_io *io);
DEFINE_CLEANUP(extfs_io, struct extfs_io *, extfs_io_free)
#define CLEANUP_EXTFS_IO CLEANUP(cleanup_extfs_io)

/* The two arguments for ext2fs_open2(). */
const char *extfs_io_name(const struct extfs_io *io);
io_manager extfs_io_manager(struct extfs_io *io);

/* Why the last read failed, which an errcode_t cannot tell; NULL: it did not. */
const struct error *extfs_io_error(const struct extfs_io *io);

#endif
