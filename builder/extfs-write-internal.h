/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the ext writer share. extfs-write-mount.c: mounts.
 * extfs-write.c: paths, what replaces what.
 * extfs-write-inode.c: an inode and its attributes. extfs-write-content.c: blocks.
 * extfs-write-dir.c: names. extfs-write-features.c: which file systems are ours to write.
 */
#ifndef GPUIMG_EXTFS_WRITE_INTERNAL_H
#define GPUIMG_EXTFS_WRITE_INTERNAL_H

#include "extfs-internal.h"
#include "extfs-write.h"

#define EXTFS_LINKS_MAX 65000 /* the kernel's EXT4_LINK_MAX */

struct write_volume {
	char *path; /* where it is mounted */
	struct extfs_volume *v;
	blk64_t next_block;  /* where the next free block is looked for */
	ext2_ino_t full_dir; /* that had to grow last; 0: none */
};

struct extfs_writer {
	struct tree_sink sink; /* first */
	struct disk *disk;
	struct write_volume **volumes; /* parents first */
	size_t count;
};

/* extfs-write.c */
int extfs_writer_put(struct tree_sink *sink, const struct tree_node *node, struct error *err);
/* Whether a file system can be mounted there. */
int extfs_writer_check_mount(const struct extfs_writer *w, const char *path, struct error *err);

/* One inode with all of its bytes, more than struct ext2_inode_large has. */
struct edit {
	struct write_volume *vol;
	const char *path; /* for messages */
	ext2_ino_t number;
	struct ext2_inode_large *inode; /* EXT2_INODE_SIZE bytes */
	ext2_extent_handle_t extents;   /* while blocks are added to an inode with extents */
};

void edit_close(struct edit *e);
#define CLEANUP_EDIT __attribute__((cleanup(edit_close)))

static inline struct ext2_inode *edit_small(struct edit *e)
{
	return (struct ext2_inode *)e->inode;
}

/* As extfs_fail(), where a full file system has words of its own. */
int write_fail(const struct write_volume *vol, errcode_t code, const char *path, struct error *err);

/* extfs-write-inode.c. The inode as it is on the disk; a new one near 'parent', allocated. */
int edit_open(struct edit *ret, struct write_volume *vol, ext2_ino_t number, const char *path,
              struct error *err);
int edit_create(struct edit *ret, struct write_volume *vol, ext2_ino_t parent, uint32_t mode,
                const char *path, struct error *err);
int edit_store(struct edit *e, struct error *err);
/* Frees blocks and attributes, and makes it as good as new. */
int edit_reset(struct edit *e, struct error *err);
/* Mode, owner and times, stores the inode, then writes the attributes. The last thing done to an
 * inode: *e is behind the disk afterwards. */
int edit_set_attributes(struct edit *e, const struct tree_node *node, struct error *err);
/* Takes a name of it away, and all of it with the last one (of a directory: at once). */
int edit_drop(struct edit *e, struct error *err);
int64_t edit_mtime_s(const struct edit *e);
void edit_set_mtime(struct edit *e, int64_t s, uint32_t ns);

/* extfs-write-content.c */
errcode_t volume_alloc_block(ext2_filsys fs, blk64_t goal, blk64_t *ret);
/* Where a large free range begins. */
blk64_t volume_first_goal(ext2_filsys fs);
int content_free(struct edit *e, struct error *err);
/* The inode is stored and empty; it must be stored again. */
int content_from_fd(struct edit *e, const struct tree_node *node, struct error *err);
/* One block at most. */
int content_from_memory(struct edit *e, const void *data, size_t size, struct error *err);
/* One block for the inode; *ret_block gets its number. */
int content_one_block(struct edit *e, blk64_t *ret_block, struct error *err);

/* extfs-write-dir.c. 'mode' is that of the inode that gets the name. */
int dir_add(struct write_volume *vol, ext2_ino_t dir, const char *name, ext2_ino_t inode,
            uint32_t mode, const char *path, struct error *err);
/* The first block, with "." and "..". */
int dir_fill(struct edit *e, ext2_ino_t parent, struct error *err);
/* +1, -1, 0: a directory more or less is in it; not older than the time afterwards. */
int dir_touch(struct write_volume *vol, ext2_ino_t dir, int subdirs, const struct tree_node *node,
              const char *path, struct error *err);
/* Takes 'name' out of 'dir', with all that is below. */
int dir_remove(struct write_volume *vol, ext2_ino_t dir, const char *name,
               const struct extfs_node *victim, struct error *err);

#endif
