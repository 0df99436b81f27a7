/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the tree module share; nobody else includes this. */
#ifndef GPUIMG_TREE_PRIVATE_H
#define GPUIMG_TREE_PRIVATE_H

#include "tree.h"

/* Guests do not nest deeper; a crafted image or program might, to exhaust us. */
#define TREE_DEPTH_MAX 256

/* tree-inodes.c: file identities (device, inode) seen so far, with the path of the first. */
struct inode_slot {
	uint64_t device, inode;
	char *path; /* NULL: the slot is free */
};

struct inode_map {
	struct inode_slot *slots;
	size_t size, used; /* size is a power of two */
};

/* The path remembered for it; NULL if it is new: then 'path' is remembered (copied). */
const char *inode_map_add(struct inode_map *map, uint64_t device, uint64_t inode, const char *path);
void inode_map_free(struct inode_map *map);

/* tree-index.c: what a directory held at one time, without TREE_SKIPPED. */
struct tree_entry {
	char *path; /* absolute, of the guest */
	uint64_t inode;
	int64_t ctime_ns;
	uint64_t size_bytes;
	uint32_t mode, uid, gid;
	uint64_t xattr_hash; /* of directories only */
	bool absent;         /* a device node or socket that stayed in the image */
};

struct tree_index {
	struct tree_entry *entries; /* sorted, a directory right before what is in it */
	size_t count, room;
};

/* Whether the sandbox mounts something of its own there: "/proc", "/dev"… */
bool tree_is_skipped(const char *path);
void tree_index_add_absent(struct tree_index *index, const char *path, uint32_t mode);
/* Adds all that is in the directory, then sorts. */
int tree_index_scan(struct tree_index *index, int root_fd, struct error *err);
void tree_index_free(struct tree_index *index);

struct tree {
	char *dir;
	int root_fd;
	struct tree_index index;
	uint64_t file_count, data_bytes;
	struct log *log; /* borrowed from tree_extract's caller */
};

/* tree-rootfs.c: the directory that holds 'path', opened so that no link is followed and
 * nothing outside is reached; *ret_name points into path. A descriptor or -1 with errno. */
int tree_open_parent(int root_fd, const char *path, const char **ret_name);
int tree_open_root(const char *dir, struct error *err);
/* tree-remove.c: removes name, and all that is below it; missing is fine. 0 or -1 with errno. */
int tree_remove_at(int dir_fd, const char *name);

/* tree-xattr.c: a name in an open directory, links not followed. Values in the guest's ids. */
int tree_xattrs_get(int dir_fd, const char *name, struct rootfs_xattr **ret, size_t *ret_count);
/* 0, or -1 with errno; EINVAL for an owner outside the mapped ids. */
int tree_xattr_set(int dir_fd, const char *name, const struct rootfs_xattr *xattr);

/* The guest's id for an owner on the host, and back: false if it is not in the mapped range. */
bool tree_id_to_guest(uint32_t host, uint32_t *ret_guest);
bool tree_id_to_host(uint32_t guest, uint32_t *ret_host);

#endif
