/* SPDX-License-Identifier: Apache-2.0 */
/* The rootfs backend over a running appliance. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "appliance-internal.h"

#define COMMAND_S     3600 /* unless the caller says otherwise */
#define CALL_S        120
#define DATA_S        600 /* a large file, or a directory with all that is below it */
#define TAIL_LINES    6
#define TAIL_LINE_MAX 300

struct appliance_root {
	struct rootfs base;
	struct appliance *a;
};

static struct appliance *appliance_of(struct rootfs *r)
{
	return ((struct appliance_root *)r)->a;
}

/* A damaged file system can make the appliance's kernel hang: no call goes without a deadline. */
static struct appliance *watch(struct rootfs *r, unsigned seconds)
{
	struct appliance *a = appliance_of(r);

	appliance_watch(a, seconds);
	return a;
}

static inline void cleanup_watch(struct appliance **a)
{
	appliance_unwatch(*a);
}

#define CLEANUP_WATCH CLEANUP(cleanup_watch)

static int failed(struct rootfs *r, struct error *err, const char *verb, const char *path)
{
	CLEANUP_FREE char *shown = str_printable(path, 300);
	CLEANUP_FREE char *what = str_format("cannot %s '%s'", verb, shown);

	appliance_error(err, appliance_of(r), what);
	return -1;
}

static int root_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                      struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, CALL_S);
	struct guestfs_statns *st = guestfs_lstatns(a->g, path);

	if (!st) {
		int errnum = guestfs_last_errno(a->g);

		return errnum == ENOENT || errnum == ENOTDIR ? 0 : failed(r, err, "stat", path);
	}
	*ret = (struct rootfs_stat){
		.mode = (uint32_t)st->st_mode,
		.uid = (uint32_t)st->st_uid,
		.gid = (uint32_t)st->st_gid,
		.size_bytes = (uint64_t)st->st_size,
		.mtime_s = st->st_mtime_sec,
		.mtime_ns = (uint32_t)st->st_mtime_nsec,
		.inode = (uint64_t)st->st_ino,
		.device = (uint64_t)st->st_dev,
	};
	guestfs_free_statns(st);
	return 1;
}

static int root_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, CALL_S);
	char *target = guestfs_readlink(a->g, path);

	if (!target)
		return failed(r, err, "read the link", path);
	*ret = target;
	return 0;
}

static int root_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, CALL_S);
	char **names = guestfs_ls(a->g, path);

	if (!names)
		return failed(r, err, "list", path);
	for (size_t i = 0; names[i]; i++)
		strv_take(ret, names[i]);
	free(names);
	return 0;
}

static int read_whole(struct rootfs *r, const char *path, void **ret, size_t *ret_size,
                      struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, DATA_S);
	CLEANUP_FREE char *data = guestfs_read_file(a->g, path, ret_size);

	if (!data)
		return failed(r, err, "read", path);
	*ret = mem_copy(data, *ret_size);
	return 0;
}

static int root_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                     size_t *ret_size, struct error *err)
{
	struct rootfs_stat st;

	if (root_lstat(r, path, &st, err) != 1)
		return failed(r, err, "read", path);
	if (st.size_bytes > max_bytes)
		return error_set(err, "cannot read '%s': larger than %zu bytes", path, max_bytes);
	return read_whole(r, path, ret, ret_size, err);
}

static int root_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	CLEANUP_FREE char *to = str_format("/dev/fd/%d", fd);
	CLEANUP_WATCH struct appliance *a = watch(r, DATA_S);

	return guestfs_download(a->g, path, to) < 0 ? failed(r, err, "read", path) : 0;
}

static int root_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                        uint64_t *ret_size_bytes, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, CALL_S);
	struct guestfs_statvfs *st = guestfs_statvfs(a->g, path);

	if (!st)
		return failed(r, err, "ask the free space of", path);
	*ret_free_bytes = (uint64_t)st->bavail * (uint64_t)st->frsize;
	*ret_size_bytes = (uint64_t)st->blocks * (uint64_t)st->frsize;
	guestfs_free_statvfs(st);
	return 0;
}

static int root_write(struct rootfs *r, const char *path, const void *data, size_t size,
                      uint32_t mode, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, DATA_S);

	/* Removed first: a link in this place is replaced, not written through. */
	if (guestfs_rm_f(a->g, path) < 0 || guestfs_write(a->g, path, data, size) < 0 ||
	    guestfs_chmod(a->g, (int)mode, path) < 0 || guestfs_chown(a->g, 0, 0, path) < 0)
		return failed(r, err, "write", path);
	return 0;
}

static int root_copy_in(struct rootfs *r, const char *path, int fd, uint32_t mode,
                        struct error *err)
{
	CLEANUP_FREE char *from = str_format("/dev/fd/%d", fd);
	CLEANUP_WATCH struct appliance *a = watch(r, DATA_S);

	if (guestfs_rm_f(a->g, path) < 0 || guestfs_upload(a->g, from, path) < 0 ||
	    guestfs_chmod(a->g, (int)mode, path) < 0 || guestfs_chown(a->g, 0, 0, path) < 0)
		return failed(r, err, "write", path);
	return 0;
}

static int root_mkdir(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, CALL_S);

	return guestfs_mkdir_mode(a->g, path, (int)mode) < 0
	               ? failed(r, err, "make the directory", path)
	               : 0;
}

static int root_symlink(struct rootfs *r, const char *target, const char *path, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, CALL_S);

	return guestfs_ln_sf(a->g, target, path) < 0 ? failed(r, err, "make the link", path) : 0;
}

static int root_rename(struct rootfs *r, const char *from, const char *to, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, CALL_S);

	return guestfs_rename(a->g, from, to) < 0 ? failed(r, err, "rename", from) : 0;
}

static int root_remove(struct rootfs *r, const char *path, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, DATA_S);

	return guestfs_rm_rf(a->g, path) < 0 ? failed(r, err, "remove", path) : 0;
}

static int root_chmod(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, CALL_S);

	return guestfs_chmod(a->g, (int)mode, path) < 0 ? failed(r, err, "change the mode of", path)
	                                                : 0;
}

static int root_xattrs(struct rootfs *r, const char *path, struct rootfs_xattr **ret,
                       size_t *ret_count, struct error *err)
{
	CLEANUP_WATCH struct appliance *a = watch(r, CALL_S);
	struct guestfs_xattr_list *list = guestfs_lgetxattrs(a->g, path);
	struct rootfs_xattr *xattrs = NULL;

	*ret = NULL;
	*ret_count = 0;
	if (!list) {
		/* vfat has none */
		return guestfs_last_errno(a->g) == ENOTSUP
		               ? 0
		               : failed(r, err, "read the extended attributes of", path);
	}
	if (list->len)
		xattrs = mem_grow(NULL, list->len, sizeof(*xattrs));
	for (uint32_t i = 0; i < list->len; i++) {
		const struct guestfs_xattr *x = &list->val[i];

		xattrs[i] =
			(struct rootfs_xattr){str_copy(x->attrname),
		                              mem_copy(x->attrval, x->attrval_len), x->attrval_len};
	}
	*ret = xattrs;
	*ret_count = list->len;
	guestfs_free_xattr_list(list);
	return 0;
}

/* The last lines of a program's own words; as proc_run() shows them. */
static char *last_lines(const char *text)
{
	CLEANUP_STRV struct strv all = strv_split(text, "\r\n");
	CLEANUP_STRV struct strv shown = {0};

	for (size_t i = all.count > TAIL_LINES ? all.count - TAIL_LINES : 0; i < all.count; i++)
		strv_take(&shown, str_printable(all.items[i], TAIL_LINE_MAX));
	return strv_join(&shown, "\n  | ");
}

/* What libguestfs has for a command that failed is what it wrote to stderr, and no more. */
static int run_failed(struct rootfs *r, struct error *err, const char *program)
{
	struct appliance *a = appliance_of(r);
	const char *said = guestfs_last_error(a->g);
	CLEANUP_FREE char *shown = str_printable(program, 300);
	CLEANUP_FREE char *tail = last_lines(said ? said : "");
	unsigned seconds;

	if (said) {
		log_raw(a->log, said, strlen(said));
		log_raw(a->log, "\n", 1);
	}
	if (appliance_is_silent(a, &seconds))
		return failed(r, err, "run", program);
	return error_set(err, "cannot run '%s' in the appliance: it failed%s%s", shown,
	                 *tail ? "; it said:\n  | " : " without a message", tail);
}

/*
 * guestfs_command() takes no environment and no deadline: env(1) gives the one, timeout(1), in
 * the image's coreutils, the other. Its output comes back at the end, bounded by the protocol.
 */
static int root_run(struct rootfs *r, const struct guest_command *c, struct error *err)
{
	struct appliance *a = appliance_of(r);
	unsigned seconds = c->timeout_ms ? (c->timeout_ms - 1) / 1000 + 1 : COMMAND_S;
	CLEANUP_STRV struct strv argv = {0};
	CLEANUP_FREE char *output = NULL;

	strv_add(&argv, "/usr/bin/timeout");
	strv_add(&argv, "-k");
	strv_add(&argv, "10");
	strv_addf(&argv, "%u", seconds);
	strv_add(&argv, "/usr/bin/env");
	strv_add(&argv, "-i");
	strv_add(&argv, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	strv_add(&argv, "HOME=/root");
	strv_add(&argv, "LC_ALL=C.UTF-8");
	strv_add(&argv, "DEBIAN_FRONTEND=noninteractive");
	for (size_t i = 0; c->env && c->env[i]; i++)
		strv_add(&argv, c->env[i]);
	for (size_t i = 0; c->argv[i]; i++)
		strv_add(&argv, c->argv[i]);
	/* timeout(1) is the guest's own and may do anything, or nothing */
	appliance_watch(a, seconds + 60);
	output = guestfs_command(a->g, argv.items);
	appliance_unwatch(a);
	if (!output)
		return run_failed(r, err, c->argv[0]);
	log_raw(a->log, output, strlen(output));
	if (!c->ret_stdout)
		return 0;
	if (strlen(output) > c->max_bytes)
		return error_set(err, "'%s' wrote more than %zu bytes", c->argv[0], c->max_bytes);
	*c->ret_stdout = STEAL(output);
	return 0;
}

static void root_close(struct rootfs *r)
{
	free(r);
}

static const struct rootfs_ops appliance_ops = {
	.name = "appliance",
	.lstat = root_lstat,
	.readlink = root_readlink,
	.list = root_list,
	.read = root_read,
	.copy_out = root_copy_out,
	.statvfs = root_statvfs,
	.write = root_write,
	.copy_in = root_copy_in,
	.mkdir = root_mkdir,
	.symlink = root_symlink,
	.rename = root_rename,
	.remove = root_remove,
	.chmod = root_chmod,
	.run = root_run,
	.close = root_close,
	.xattrs = root_xattrs,
};

int appliance_rootfs(struct rootfs **ret, struct appliance *a, struct error *err)
{
	struct appliance_root *root;

	if (appliance_wait(a, err) < 0)
		return -1;
	root = mem_alloc(sizeof(*root));
	root->base.ops = &appliance_ops;
	root->a = a;
	*ret = &root->base;
	return 0;
}
