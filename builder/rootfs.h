/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest's file tree as its own processes would see it: "/etc/fstab" is the guest's file.
 * Every path is resolved inside the guest, link by link, so that no link leads outside.
 * Backends: 'ext' (read-only, libext2fs over a disk, no appliance), 'tree' (a directory,
 * commands in bubblewrap) and 'appliance' (libguestfs). All content is untrusted; reads
 * are bounded by the caller.
 */
#ifndef GPUIMG_ROOTFS_H
#define GPUIMG_ROOTFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "error.h"
#include "log.h"
#include "str.h"

struct rootfs_stat {
	uint32_t mode;     /* type and permission bits as in st_mode */
	uint32_t uid, gid; /* as the guest sees them */
	uint64_t size_bytes;
	int64_t mtime_s;
	uint32_t mtime_ns;
	uint64_t inode; /* unique with 'device' inside one rootfs */
	uint64_t device;
};

/* One extended attribute, as getxattr(2) in the guest would give it. */
struct rootfs_xattr {
	char *name; /* with its prefix: "security.capability" */
	void *value;
	size_t size;
};

void rootfs_xattrs_free(struct rootfs_xattr *xattrs, size_t count);

/* A command of the guest's own, run inside its root as root, without network unless asked. */
struct guest_command {
	const char *const *argv; /* never a shell string with guest content in it */
	const char *const *env;  /* added to PATH, HOME, LC_ALL; may be NULL */
	unsigned timeout_ms;     /* 0: the backend's default for one command */
	bool network;
	char **ret_stdout; /* may be NULL: stdout goes to the log */
	size_t max_bytes;  /* of ret_stdout */
};

struct rootfs;

/*
 * What a backend offers. Paths given to 'ops' are absolute, normal and free of links (the
 * last component may itself be a link). 'write' and what follows it are NULL where the
 * backend is read-only.
 */
struct rootfs_ops {
	const char *name;
	/* 1: filled, 0: does not exist, -1: error */
	int (*lstat)(struct rootfs *r, const char *path, struct rootfs_stat *ret,
	             struct error *err);
	int (*readlink)(struct rootfs *r, const char *path, char **ret, struct error *err);
	int (*list)(struct rootfs *r, const char *path, struct strv *ret, struct error *err);
	/* Content of a regular file, at most max_bytes: a larger one is an error. NUL added. */
	int (*read)(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
	            size_t *ret_size, struct error *err);
	/* Content of a regular file into the descriptor, which is at offset 0 of an empty file. */
	int (*copy_out)(struct rootfs *r, const char *path, int fd, struct error *err);
	int (*statvfs)(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
	               uint64_t *ret_size_bytes, struct error *err);
	/* Creates or replaces a regular file, owner root, given permission bits. */
	int (*write)(struct rootfs *r, const char *path, const void *data, size_t size,
	             uint32_t mode, struct error *err);
	/* The same with what the descriptor holds from its beginning on. */
	int (*copy_in)(struct rootfs *r, const char *path, int fd, uint32_t mode,
	               struct error *err);
	int (*mkdir)(struct rootfs *r, const char *path, uint32_t mode, struct error *err);
	int (*symlink)(struct rootfs *r, const char *target, const char *path, struct error *err);
	int (*rename)(struct rootfs *r, const char *from, const char *to, struct error *err);
	int (*remove)(struct rootfs *r, const char *path, struct error *err); /* recursive */
	int (*chmod)(struct rootfs *r, const char *path, uint32_t mode, struct error *err);
	int (*run)(struct rootfs *r, const struct guest_command *command, struct error *err);
	void (*close)(struct rootfs *r);
	/* Optional: extended attributes of a path; rootfs_xattrs_free. */
	int (*xattrs)(struct rootfs *r, const char *path, struct rootfs_xattr **ret,
	              size_t *ret_count, struct error *err);
};

struct rootfs {
	const struct rootfs_ops *ops; /* a backend's own structure begins with this one */
};

void rootfs_close(struct rootfs *r);
DEFINE_CLEANUP(rootfs, struct rootfs *, rootfs_close)
#define CLEANUP_ROOTFS CLEANUP(cleanup_rootfs)

/*
 * Path without links, as the guest's kernel would find it: at most 40 links, ".." stops at the
 * root. follow_last: whether a link in the last place is followed. The last component need
 * not exist (its directory must). 1: it exists, 0: it does not (ret_path is set in both
 * cases, unless a directory on the way is missing: then ret_path stays NULL), -1: error.
 */
int rootfs_resolve(struct rootfs *r, const char *path, bool follow_last, char **ret_path,
                   struct error *err);
/* The same, always to the end of all links, with directories that are missing on the way taken
 * as they are named: where a file would be once they were made. */
int rootfs_resolve_new(struct rootfs *r, const char *path, char **ret_path, struct error *err);

/* 1, 0 or -1 as above; lstat does not follow a last link, stat does. */
int rootfs_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret, struct error *err);
int rootfs_stat(struct rootfs *r, const char *path, struct rootfs_stat *ret, struct error *err);
/* Whether it exists after following links; an error counts as no. */
bool rootfs_exists(struct rootfs *r, const char *path);
bool rootfs_is_dir(struct rootfs *r, const char *path);
bool rootfs_is_file(struct rootfs *r, const char *path); /* a regular one */
/* The link's own text. */
int rootfs_readlink(struct rootfs *r, const char *path, char **ret, struct error *err);
/* Names in a directory, sorted by strcmp, without "." and ".."; a missing one is empty. */
int rootfs_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err);
/* Missing is an error; for 'may be missing' ask rootfs_exists first. ret_size may be NULL. */
int rootfs_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret, size_t *ret_size,
                struct error *err);
int rootfs_copy_out(struct rootfs *r, const char *path, int fd, struct error *err);
/* The same into a new file without a name in a directory of ours: a descriptor at offset 0, or -1.
 */
int rootfs_open_copy(struct rootfs *r, const char *path, const char *dir, struct error *err);
int rootfs_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                   uint64_t *ret_size_bytes, struct error *err);

/* Writers: missing directories on the way are made (0755, root); links on the way are
 * followed, a link in the last place is replaced, never written through (and refused by chmod).
 * A directory is never replaced by another type. mkdir: a directory, or a link to one, may be
 * there already and stays as it is. */
int rootfs_write(struct rootfs *r, const char *path, const void *data, size_t size, uint32_t mode,
                 struct error *err);
int rootfs_copy_in(struct rootfs *r, const char *path, int fd, uint32_t mode, struct error *err);
int rootfs_mkdir(struct rootfs *r, const char *path, uint32_t mode, struct error *err);
int rootfs_symlink(struct rootfs *r, const char *target, const char *path, struct error *err);
int rootfs_rename(struct rootfs *r, const char *from, const char *to, struct error *err);
int rootfs_remove(struct rootfs *r, const char *path, struct error *err); /* missing is fine */
int rootfs_chmod(struct rootfs *r, const char *path, uint32_t mode, struct error *err);
int rootfs_run(struct rootfs *r, const struct guest_command *command, struct error *err);

#endif
