/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's root as a directory of the host, for the sandbox. Owners on the host are the
 * guest's, shifted by TREE_UID_BASE: nothing in it is owned by a real user, and the sandbox's
 * user namespace maps them back. An index taken right after the extraction tells later what
 * changed: by ctime, inode and size, which nothing inside the sandbox can forge.
 */
#ifndef GPUIMG_TREE_H
#define GPUIMG_TREE_H

#include "rootfs.h"

#define TREE_UID_BASE  0x70000000u /* host uid/gid of the guest's uid/gid 0 */
#define TREE_UID_COUNT 0x00100000u /* how many ids are mapped */

struct tree;

/*
 * Copies the whole of 'from' into the new directory 'dir' (made 0755, owner shifted root):
 * directories, regular files (sparse where the source has holes, hard links kept), links,
 * FIFOs; modes, owners, mtimes, extended attributes (security.capability rewritten for
 * the shifted owner). Device nodes and sockets are left out, but remembered as present.
 * /proc, /sys, /dev, /run, /tmp are made empty. More data than the source's file systems can
 * hold is refused (EXIT_INPUT). Then takes the index. After a failure the
 * directory stays, half full. The log is borrowed for as long as the tree lives.
 */
int tree_extract(struct tree **ret, struct rootfs *from, const char *dir, struct log *log,
                 struct error *err);
/*
 * The same without the data of regular files: each is a placeholder, sparse, of the right
 * size and attributes, and gets its content from 'filler' when something first opens it,
 * be it a program in the sandbox or ourselves. 'filler' is a second handle on the content of
 * 'from', used by a thread of the tree's until tree_free(); borrowed. Needs fanotify permission
 * events (CAP_SYS_ADMIN, CONFIG_FANOTIFY_ACCESS_PERMISSIONS): without them all data is copied at
 * once, which the log says.
 * A placeholder that cannot be filled cannot be opened (EPERM), and tree_check() tells why. After
 * tree_free() what was not filled reads as zeros: the directory is of no use then.
 */
int tree_extract_lazy(struct tree **ret, struct rootfs *from, struct rootfs *filler,
                      const char *dir, struct log *log, struct error *err);
/*
 * The same from a pax tar (as tar or libguestfs write it: numeric owners, SCHILY.xattr), read from
 * the descriptor until it ends: for file systems that only the appliance reads. Members that lead
 * outside of the directory, and more bytes than max_bytes (holes too), are refused (EXIT_INPUT).
 */
int tree_extract_tar(struct tree **ret, int fd, uint64_t max_bytes, const char *dir,
                     struct log *log, struct error *err);
/* Called for each path that is sent (or packed) without a label of its own: *ret_label is the value
 * of security.selinux, to be freed, or NULL. */
typedef int tree_labeler(void *opaque, const char *path, uint32_t mode, char **ret_label,
                         struct error *err);
void tree_set_labeler(struct tree *tree, tree_labeler *labeler, void *opaque);
/* Whether all that was asked for could be filled; the error is that of the first that was not.
 * To be asked after guest programs ran; tree_changes() asks by itself. */
int tree_check(struct tree *tree, struct error *err);
/* Whether it has placeholders. */
bool tree_is_lazy(const struct tree *tree);
bool tree_can_be_lazy(void); /* whether this host lets us watch opens at all */
/* Bytes of data copied to the directory until now. */
uint64_t tree_filled_bytes(const struct tree *tree);
void tree_free(struct tree *tree); /* the directory stays */
DEFINE_CLEANUP(tree, struct tree *, tree_free)
#define CLEANUP_TREE CLEANUP(cleanup_tree)
/* Removes such a directory with all that is in it, however deep a guest has nested it. */
int tree_remove(const char *dir, struct error *err);
const char *tree_dir(const struct tree *tree);
uint64_t tree_file_count(const struct tree *tree);
uint64_t tree_data_bytes(const struct tree *tree);

/*
 * Compares the directory with the index: 'removed' gets paths that are gone or changed their
 * type (parents only, not what was below them), 'changed' those that are new or different
 * (content, mode, owner, link text, xattrs); both absolute guest paths, sorted, without "/"
 * itself and without /proc, /sys, /dev, /run, /tmp. A file that was only touched counts as
 * changed, a directory whose entries alone are different does not. Sockets and device nodes
 * count as not there. Of a lazy tree, every changed file is filled before this returns; files
 * that were only filled have not changed.
 */
int tree_changes(const struct tree *tree, struct strv *ret_changed, struct strv *ret_removed,
                 struct error *err);
/*
 * Takes out of both lists what lies at or below 'mounts', file systems that the tree does not
 * hold, and removals of a directory above one, with what took its place; 'dropped' gets these
 * paths, sorted.
 */
void tree_spare_mounts(const struct strv *mounts, struct strv *changed, struct strv *removed,
                       struct strv *ret_dropped);
/*
 * Writes the changed paths as a pax tar to the descriptor, guest ids (shift taken off again),
 * xattrs as SCHILY.xattr, security.capability in its version 2 form again.
 */
int tree_write_tar(const struct tree *tree, const struct strv *changed, int fd, struct error *err);

/*
 * Unpacks such a tar over the tree as it is now, read from the descriptor until it ends. What a
 * member names is replaced by another file, so placeholders and other names of the old one stay
 * what they are; directories that are there stay, and get the member's attributes and no others.
 * All of it is a change for tree_changes(). Members that lead outside, a directory with files in it
 * that is to be something else, and more bytes than max_bytes (holes too) are refused (EXIT_INPUT);
 * the tree is half changed then.
 */
int tree_apply_tar(struct tree *tree, int fd, uint64_t max_bytes, struct error *err);

/* One changed path, as the image shall have it. Valid during one put(). */
struct tree_node {
	const char *path; /* absolute, of the guest */
	uint32_t mode, uid,
		gid; /* the guest's ids; mode with the type: file, directory, link, FIFO */
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint64_t size_bytes;     /* of a regular file */
	int fd;                  /* its content, from 0 on, maybe with holes (SEEK_DATA); else -1 */
	const char *link_target; /* of a symbolic link */
	const char *same_as;     /* a further name of a file that was put under this path before */
	const struct rootfs_xattr *xattrs;
	size_t xattr_count;
};

struct tree_sink {
	int (*put)(struct tree_sink *sink, const struct tree_node *node, struct error *err);
};

/* From now on, no file is sent (or packed) with a later mtime than this. */
void tree_clamp_times(struct tree *tree, int64_t epoch_s);
/* Gives the changed paths to a sink, in the order of the list (parents come first). */
int tree_send(const struct tree *tree, const struct strv *changed, struct tree_sink *sink,
              struct error *err);

/* The rootfs backend over the directory. run() is the sandbox's (sandbox.h). */
struct sandbox;
int tree_rootfs(struct rootfs **ret, const char *dir, struct sandbox *sandbox, struct error *err);

#endif
