/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the tree module share; nobody else includes this. */
#ifndef GPUIMG_TREE_PRIVATE_H
#define GPUIMG_TREE_PRIVATE_H

#include "tree.h"

/* Guests do not nest deeper; a crafted image or program might, to exhaust us. */
#define TREE_DEPTH_MAX 256

/* tree-inodes.c: file identities (device, inode) seen so far, each with a number. */
struct inode_slot {
	uint64_t device, inode;
	uint32_t value;
	bool used;
};

struct inode_table {
	struct inode_slot *slots;
	size_t size, used; /* size is a power of two */
};

/* NULL: it is new, and 'value' is remembered for it; else what was remembered before. */
const uint32_t *inode_table_add(struct inode_table *table, uint64_t device, uint64_t inode,
                                uint32_t value);
/* NULL: it was never added. */
const uint32_t *inode_table_find(const struct inode_table *table, uint64_t device, uint64_t inode);
void inode_table_free(struct inode_table *table);

/* The same with the path of the first. */
struct inode_map {
	struct inode_table table;
	struct strv paths;
};

/* The path remembered for it; NULL if it is new: then 'path' is remembered (copied). */
const char *inode_map_add(struct inode_map *map, uint64_t device, uint64_t inode, const char *path);
void inode_map_free(struct inode_map *map);

/* How a placeholder was when we had filled it: what is different later, others did. */
struct tree_fill {
	int64_t ctime_ns, mtime_ns;
	uint64_t links;
	uint64_t bytes;      /* of data */
	uint64_t xattr_hash; /* of all, by descriptor */
	bool changed;        /* others did something before or meanwhile, or wrote to it */
};

#define TREE_NO_ENTRY UINT32_MAX

/* tree-index.c: what was put into the directory, without TREE_SKIPPED. */
struct tree_entry {
	const char *name; /* in its directory; the index owns it */
	uint64_t inode;   /* 0: a device node or socket, which stayed in the image */
	int64_t ctime_ns;
	uint64_t size_bytes; /* of a directory: a hash of its extended attributes */
	/* Of a placeholder, once it is filled; of several names of one file, the first one's.
	 * Written by the filling thread, read after lazy_sync(). */
	struct tree_fill *fill;
	uint32_t parent; /* TREE_NO_ENTRY: it is in the root */
	uint32_t mode, uid, gid;
};

/* Paths are not kept, but put together from the names: half a million files are no reason to
 * need more than some tens of MiB. */
struct tree_index {
	struct tree_entry *entries; /* a directory right before what is in it, names sorted */
	size_t count, room;
	struct name_block *names;
};

/* Whether the sandbox mounts something of its own there: "/proc", "/dev"… */
bool tree_is_skipped(const char *path);
/* To be called in the order that the entries shall have. The entry's number. */
uint32_t tree_index_add(struct tree_index *index, uint32_t parent, const char *name, uint32_t mode);
/* What it is on the disk, once nothing more is done to it. fd: a directory's own; else -1. */
int tree_index_set(struct tree_index *index, uint32_t entry, const struct stat *st, int fd);
char *tree_index_path(const struct tree_index *index, uint32_t entry);
void tree_index_free(struct tree_index *index);
int64_t tree_time_ns(const struct timespec *time);
/* A hash of all extended attributes, as the host has them. 0 or -1 with errno. */
int tree_hash_xattrs(int fd, uint64_t *ret);

struct lazy;

struct tree {
	char *dir;
	int root_fd;
	struct tree_index index;
	uint64_t file_count, data_bytes;
	uint64_t copied_bytes; /* by the extraction itself */
	struct lazy *lazy;     /* NULL: all data was copied */
	struct log *log;       /* borrowed from tree_extract's caller */
	bool clamps_times;
	int64_t clamp_s;       /* of mtimes that are sent */
	tree_labeler *labeler; /* may be NULL */
	void *labeler_opaque;
};

/* tree.c: what both ways of extraction begin and end with. */
struct tree *tree_new(const char *dir, struct log *log);
int tree_make_root(struct tree *tree, struct error *err);
/* To be called before anything else happens to the files: what changes later gets a later ctime. */
void tree_await_tick(void);
void tree_tell_copied(const struct tree *tree, uint64_t lost_xattrs);

/* One name that is being made: where, and what it is in the source. */
struct tree_place {
	int dir_fd;
	const char *name;
	const char *path; /* of the guest */
	struct rootfs_stat st;
	bool made_up;   /* the source does not have it */
	uint32_t entry; /* its number in the index; TREE_NO_ENTRY: it is not in there */
	int fd;         /* what was made, open; -1: a link or FIFO */
};

/* tree-place.c. Both return -1: what errno says, and what a damaged or hostile source is told. */
int tree_place_fail(const struct tree_place *p, struct error *err);
int tree_place_refuse(const char *path, const char *why, struct error *err);
int tree_place_set_owner(const struct tree_place *p, struct error *err);
/* One that the host cannot keep is counted. */
int tree_place_set_xattr(const struct tree_place *p, const struct rootfs_xattr *xattr,
                         struct log *log, uint64_t *lost, struct error *err);
/* Times and mode, after owner and attributes; what it then is. */
int tree_place_finish(const struct tree_place *p, struct stat *ret, struct error *err);

/* tree-rootfs.c: the directory that holds 'path', opened so that no link is followed and
 * nothing outside is reached; *ret_name points into path. A descriptor or -1 with errno. */
int tree_open_parent(int root_fd, const char *path, const char **ret_name);
int tree_open_root(const char *dir, struct error *err);
/* tree-changes.c: names in a directory, sorted as the index wants them. 0 or -1 with errno. */
int tree_list_names(int dir_fd, struct strv *names);
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
