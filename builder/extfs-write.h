/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes changed files into the ext2/3/4 file systems of a disk in user space, by libext2fs: no
 * kernel mounts an untrusted file system, and no appliance is started. For a working copy
 * (disk_open_writable) only: after an error it is half written.
 *
 * A file system is refused (extfs_writer_mount returns 1 and a reason) unless all of its
 * features are known to be kept right by the libext2fs that is linked here: the caller then
 * takes the appliance. A journal that needs recovery is an error before (extfs.h).
 */
#ifndef GPUIMG_EXTFS_WRITE_H
#define GPUIMG_EXTFS_WRITE_H

#include "cleanup.h"
#include "disk.h"
#include "error.h"
#include "tree.h"

struct extfs_writer;

/* The disk is borrowed and must outlive the writer. */
int extfs_writer_new(struct extfs_writer **ret, struct disk *disk, struct error *err);
/* Frees; what was not finished is lost. */
void extfs_writer_free(struct extfs_writer *w);
DEFINE_CLEANUP(extfs_writer, struct extfs_writer *, extfs_writer_free)
#define CLEANUP_EXTFS_WRITER CLEANUP(cleanup_extfs_writer)

/* Parents first, "/" before all. 0: mounted, 1: not ours to write (*ret_reason, owned by the
 * caller, says why), -1: error. */
int extfs_writer_mount(struct extfs_writer *w, const char *path, const struct volume *volume,
                       char **ret_reason, struct error *err);
/* Removes a path with all that is below it; missing is fine. A path that is a mount point, or
 * above one, is an error. */
int extfs_writer_remove(struct extfs_writer *w, const char *path, struct error *err);
/*
 * A sink for tree_send(): creates or replaces. A directory that is there keeps its entries, and
 * gets mode, owner, times and attributes. The file system full is an error that names it
 * (EXIT_INPUT).
 */
struct tree_sink *extfs_writer_sink(struct extfs_writer *w);
/* Trims all free space of every mounted file system, as fstrim does. */
int extfs_writer_trim(struct extfs_writer *w, struct error *err);
/* Writes superblocks, group descriptors and bitmaps; disk_finish() is the caller's. */
int extfs_writer_finish(struct extfs_writer *w, struct error *err);

#endif
