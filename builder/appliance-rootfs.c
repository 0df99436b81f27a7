/* SPDX-License-Identifier: Apache-2.0 */
/* The rootfs backend over a running appliance. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "appliance-internal.h"

struct appliance_root {
	struct rootfs base;
	struct appliance *a;
};

static struct appliance *appliance_of(struct rootfs *r)
{
	return ((struct appliance_root *)r)->a;
}

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
	struct appliance *a = appliance_of(r);
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
		.inode = (uint64_t)st->st_ino,
		.device = (uint64_t)st->st_dev,
	};
	guestfs_free_statns(st);
	return 1;
}

static int root_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	char *target = guestfs_readlink(appliance_of(r)->g, path);

	if (!target)
		return failed(r, err, "read the link", path);
	*ret = target;
	return 0;
}

static int root_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	char **names = guestfs_ls(appliance_of(r)->g, path);

	if (!names)
		return failed(r, err, "list", path);
	for (size_t i = 0; names[i]; i++)
		strv_take(ret, names[i]);
	free(names);
	return 0;
}

static int root_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                     size_t *ret_size, struct error *err)
{
	CLEANUP_FREE char *data = NULL;
	struct rootfs_stat st;
	size_t size;

	if (root_lstat(r, path, &st, err) != 1)
		return failed(r, err, "read", path);
	if (st.size_bytes > max_bytes)
		return error_set(err, "cannot read '%s': larger than %zu bytes", path, max_bytes);
	data = guestfs_read_file(appliance_of(r)->g, path, &size);
	if (!data)
		return failed(r, err, "read", path);
	*ret = mem_copy(data, size);
	*ret_size = size;
	return 0;
}

static int root_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	CLEANUP_FREE char *to = str_format("/dev/fd/%d", fd);

	return guestfs_download(appliance_of(r)->g, path, to) < 0 ? failed(r, err, "read", path)
	                                                          : 0;
}

static int root_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                        uint64_t *ret_size_bytes, struct error *err)
{
	struct guestfs_statvfs *st = guestfs_statvfs(appliance_of(r)->g, path);

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
	struct appliance *a = appliance_of(r);

	/* Removed first: a link in this place is replaced, not written through. */
	if (guestfs_rm_f(a->g, path) < 0 || guestfs_write(a->g, path, data, size) < 0 ||
	    guestfs_chmod(a->g, (int)mode, path) < 0 || guestfs_chown(a->g, 0, 0, path) < 0)
		return failed(r, err, "write", path);
	return 0;
}

static int root_mkdir(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	return guestfs_mkdir_mode(appliance_of(r)->g, path, (int)mode) < 0
	               ? failed(r, err, "make the directory", path)
	               : 0;
}

static int root_symlink(struct rootfs *r, const char *target, const char *path, struct error *err)
{
	return guestfs_ln_sf(appliance_of(r)->g, target, path) < 0
	               ? failed(r, err, "make the link", path)
	               : 0;
}

static int root_rename(struct rootfs *r, const char *from, const char *to, struct error *err)
{
	return guestfs_rename(appliance_of(r)->g, from, to) < 0 ? failed(r, err, "rename", from)
	                                                        : 0;
}

static int root_remove(struct rootfs *r, const char *path, struct error *err)
{
	return guestfs_rm_rf(appliance_of(r)->g, path) < 0 ? failed(r, err, "remove", path) : 0;
}

static int root_chmod(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	return guestfs_chmod(appliance_of(r)->g, (int)mode, path) < 0
	               ? failed(r, err, "change the mode of", path)
	               : 0;
}

/*
 * guestfs_command() takes no environment and no deadline: env(1) gives the one, timeout(1), in
 * the image's coreutils, the other. Its output comes back at the end, bounded by the protocol.
 */
static int root_run(struct rootfs *r, const struct guest_command *c, struct error *err)
{
	struct appliance *a = appliance_of(r);
	CLEANUP_STRV struct strv argv = {0};
	CLEANUP_FREE char *output = NULL;

	strv_add(&argv, "/usr/bin/timeout");
	strv_add(&argv, "-k");
	strv_add(&argv, "10");
	strv_addf(&argv, "%u", c->timeout_ms ? c->timeout_ms / 1000 : 3600);
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
	output = guestfs_command(a->g, argv.items);
	if (!output)
		return failed(r, err, "run", c->argv[0]);
	log_raw(a->log, output, strlen(output));
	if (c->ret_stdout)
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
	.mkdir = root_mkdir,
	.symlink = root_symlink,
	.rename = root_rename,
	.remove = root_remove,
	.chmod = root_chmod,
	.run = root_run,
	.close = root_close,
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
