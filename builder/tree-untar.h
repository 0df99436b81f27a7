/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out of a tar, for tree-untar.c, tree-untar-index.c and tree-apply.c. */
#ifndef GPUIMG_TREE_UNTAR_H
#define GPUIMG_TREE_UNTAR_H

#include <archive.h>
#include <time.h>

#include "tree-private.h"

/* A device node, or a further name of one: present in the image, never made here. */
struct left_out {
	char *dir, *name;
	uint32_t mode;
};

/* Each file that is made in a directory changes the directory's time. */
struct dir_time {
	char *path;
	struct timespec mtime;
};

struct untar {
	struct tree *tree;
	struct archive *archive;
	int fd;
	uint64_t max_bytes, member_bytes, member_count, lost_xattrs;
	struct left_out *left_out; /* sorted by directory and name, once all are known */
	size_t left_out_count, left_out_room;
	struct strv orphans; /* pairs: a hard link's path, and its target that is not there */
	struct dir_time *dirs;
	size_t dir_count, dir_room;
	struct inode_table seen; /* files with several names, to be counted once */
	bool over_tree; /* the tree is there already; its directories stay, with what the tar says
	                 */
};

/* tree-untar.c: every member, until the descriptor ends. */
int untar_members(struct untar *u, struct error *err);
/* tree-apply.c: takes all extended attributes off a directory that was there before. */
int untar_drop_xattrs(const struct tree_place *p, struct error *err);

/* tree-untar-index.c: what is remembered of the members, and what is made of it at the end. */
void untar_add_left_out(struct untar *u, const char *path, uint32_t mode);
void untar_add_dir(struct untar *u, const struct tree_place *p);
/* Once there are no more members: hard links to device nodes, which are left out like these. */
int untar_place_orphans(struct untar *u, struct error *err);
void untar_set_dir_times(const struct untar *u);
/* Both, then mount points and the index. */
int untar_finish(struct untar *u, struct error *err);
void untar_free(struct untar *u);

#endif
