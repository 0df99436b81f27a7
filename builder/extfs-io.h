/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libext2fs' view of a range of a disk: an io_manager with a cache that reads ahead and, on a
 * disk that is open for writing, writes behind. Private to the extfs modules.
 */
#ifndef GPUIMG_EXTFS_IO_H
#define GPUIMG_EXTFS_IO_H

#include <ext2fs/ext2fs.h>

#include "disk.h"

struct extfs_io;

/* The disk must outlive it, and it any ext2_filsys opened through it. What was not flushed is
 * lost when it is freed. */
struct extfs_io *extfs_io_new(struct disk *disk, uint64_t offset_bytes, uint64_t size_bytes,
                              bool writable);
void extfs_io_free(struct extfs_io *io);
DEFINE_CLEANUP(extfs_io, struct extfs_io *, extfs_io_free)
#define CLEANUP_EXTFS_IO CLEANUP(cleanup_extfs_io)

/* The two arguments for ext2fs_open2(). */
const char *extfs_io_name(const struct extfs_io *io);
io_manager extfs_io_manager(struct extfs_io *io);

uint64_t extfs_io_offset(const struct extfs_io *io);
/* Trims a range of the partition past the cache: call extfs_io_forget() before. */
int extfs_io_trim(struct extfs_io *io, uint64_t size_bytes, uint64_t offset_bytes,
                  struct error *err);
/* Writes what the cache has, and empties it. */
int extfs_io_forget(struct extfs_io *io, struct error *err);

/* Why the last request failed, which an errcode_t cannot tell; NULL: it did not. */
const struct error *extfs_io_error(const struct extfs_io *io);

#endif
