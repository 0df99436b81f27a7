/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One ext2/3/4 file system, below the rootfs that extfs.c makes of one or several: opening,
 * inodes, directories (extfs-volume.c) and what an inode holds (extfs-content.c). Everything
 * it says of itself is checked against its size, so that no loop and no allocation is larger
 * than the file system itself.
 */
#ifndef GPUIMG_EXTFS_INTERNAL_H
#define GPUIMG_EXTFS_INTERNAL_H

#include <stdbool.h>

#include "extfs-io.h"
#include "rootfs.h"

struct extfs_dirs; /* directories that were read lately */

struct extfs_volume {
	char *name; /* for messages: "image 'x', partition 3" */
	struct extfs_io *io;
	ext2_filsys fs;
	struct extfs_dirs *dirs;
};

/* An inode, and under which path it was found, for messages. */
struct extfs_node {
	const struct extfs_volume *volume;
	const char *path;
	ext2_ino_t number;
	struct ext2_inode_large inode;
};

int extfs_volume_open(struct extfs_volume **ret, struct disk *disk, const struct volume *volume,
                      struct error *err);
/* The same for writing; 1: what is said in *ret_reason (owned by the caller) forbids it. */
int extfs_volume_open_writable(struct extfs_volume **ret, struct disk *disk,
                               const struct volume *volume, char **ret_reason, struct error *err);
/* extfs-write-features.c: why this file system is not ours to write; NULL: it is. The superblock
 * as it stands on the disk. */
char *extfs_unwritable(const struct ext2_super_block *super);
void extfs_volume_close(struct extfs_volume *v);
DEFINE_CLEANUP(extfs_volume, struct extfs_volume *, extfs_volume_close)
#define CLEANUP_EXTFS_VOLUME CLEANUP(cleanup_extfs_volume)

/* "name: cannot <what> 'path': reason" (EXIT_INPUT), with the disk's own reason if it has one. */
int extfs_fail(const struct extfs_volume *v, errcode_t code, const char *what, const char *path,
               struct error *err);
/* The same with a reason of ours. */
int extfs_refuse(const struct extfs_volume *v, const char *reason, const char *what,
                 const char *path, struct error *err);

/* 1: the node becomes its child of that name, 0: there is none, -1: error. */
int extfs_step(struct extfs_node *node, const char *name, size_t length, struct error *err);
/* Walks from the root of the file system, following no link. 'path' must outlive *ret.
 * 1: found, 0: does not exist, -1: error. */
int extfs_find(const struct extfs_volume *v, const char *path, struct extfs_node *ret,
               struct error *err);
/* What a writer did to a directory: 'name' is now 'inode', new, or (0) gone; the directory itself
 * is gone. */
void extfs_entry_changed(const struct extfs_volume *v, ext2_ino_t dir_inode, const char *name,
                         ext2_ino_t inode);
void extfs_dir_gone(const struct extfs_volume *v, ext2_ino_t dir_inode);
int extfs_names(const struct extfs_node *dir, struct strv *ret, struct error *err);

/* The part of 'path' that lies below 'mount', from its slash on; NULL: not below it. */
const char *extfs_path_below(const char *mount, const char *path);
uint64_t extfs_node_size(const struct extfs_node *node);
/* Fails unless the block map of the inode is sound: see walk_runs() in extfs-content.c. */
int extfs_node_check_map(const struct extfs_node *node, struct error *err);
int extfs_node_read(const struct extfs_node *node, size_t max_bytes, void **ret, size_t *ret_size,
                    struct error *err);
int extfs_node_copy(const struct extfs_node *node, int fd, struct error *err);
int extfs_node_link(const struct extfs_node *node, char **ret, struct error *err);
int extfs_node_xattrs(const struct extfs_node *node, struct rootfs_xattr **ret, size_t *ret_count,
                      struct error *err);

#endif
