/* SPDX-License-Identifier: Apache-2.0 */
/* The writers of rootfs.h: only the directory of a path is resolved, its last name is not. */
#include <errno.h>

#include "rootfs.h"

static int need_writable(struct rootfs *r, bool can, const char *path, struct error *err)
{
	if (can)
		return 0;
	return error_set(err, "cannot change '%s': the image is open read-only (%s)", path,
	                 r->ops->name);
}

/* Directory and last name of a path that is to be changed; both are the caller's. */
static int split_path(const char *path, char **ret_dir, char **ret_name, struct error *err)
{
	CLEANUP_STRV struct strv parts = strv_split(path, "/");
	CLEANUP_FREE char *name = NULL;
	CLEANUP_FREE char *joined = NULL;

	if (parts.count)
		name = str_copy(parts.items[parts.count - 1]);
	if (!name || str_equal(name, ".") || str_equal(name, "..")) {
		error_set(err, "cannot change '%s' in the image: the path has no last name", path);
		return error_code(err, EXIT_INPUT);
	}
	strv_remove(&parts, parts.count - 1);
	joined = strv_join(&parts, "/");
	*ret_dir = str_format("/%s", joined);
	*ret_name = STEAL(name);
	return 0;
}

/* Makes every missing directory of a path that is free of links. */
static int make_dirs(struct rootfs *r, const char *path, struct error *err)
{
	CLEANUP_STRV struct strv parts = strv_split(path, "/");
	CLEANUP_FREE char *here = str_copy("");

	for (size_t i = 0; i < parts.count; i++) {
		char *next = str_format("%s/%s", here, parts.items[i]);
		struct rootfs_stat st = {0};
		int found = r->ops->lstat(r, next, &st, err);

		free(here);
		here = next;
		if (found < 0)
			return -1;
		if (found == 1 && !S_ISDIR(st.mode))
			return error_errno(err, ENOTDIR, "cannot make '%s' in the image", path);
		if (found == 0 && r->ops->mkdir(r, here, 0755, err) < 0)
			return -1;
	}
	return 0;
}

/*
 * Where a new last component goes: its directory is made, the name itself not followed.
 * ret_st: what stands there already, its mode is 0 if nothing does.
 */
static int prepare_new(struct rootfs *r, const char *path, char **ret, struct rootfs_stat *ret_st,
                       struct error *err)
{
	CLEANUP_FREE char *dir = NULL;
	CLEANUP_FREE char *name = NULL;
	CLEANUP_FREE char *real = NULL;
	CLEANUP_FREE char *full = NULL;
	int found;

	if (split_path(path, &dir, &name, err) < 0)
		return -1;
	found = rootfs_resolve_new(r, dir, &real, err);
	if (found < 0)
		return -1;
	if (!real)
		return error_errno(err, ENOTDIR, "cannot make '%s' in the image", path);
	if (make_dirs(r, real, err) < 0)
		return -1;
	full = str_format("%s/%s", str_equal(real, "/") ? "" : real, name);
	*ret_st = (struct rootfs_stat){0};
	if (r->ops->lstat(r, full, ret_st, err) < 0)
		return -1;
	*ret = STEAL(full);
	return 0;
}

/* Where a regular file goes: not in the place of a directory. */
static int prepare_file(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	struct rootfs_stat st = {0};

	if (need_writable(r, r->ops->write != NULL, path, err) < 0 ||
	    prepare_new(r, path, ret, &st, err) < 0)
		return -1;
	if (S_ISDIR(st.mode))
		return error_errno(err, EISDIR, "cannot write '%s' in the image", path);
	return 0;
}

int rootfs_write(struct rootfs *r, const char *path, const void *data, size_t size, uint32_t mode,
                 struct error *err)
{
	CLEANUP_FREE char *real = NULL;

	return prepare_file(r, path, &real, err) < 0
	               ? -1
	               : r->ops->write(r, real, data, size, mode, err);
}

int rootfs_copy_in(struct rootfs *r, const char *path, int fd, uint32_t mode, struct error *err)
{
	CLEANUP_FREE char *real = NULL;

	return prepare_file(r, path, &real, err) < 0 ? -1 : r->ops->copy_in(r, real, fd, mode, err);
}

int rootfs_mkdir(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	struct rootfs_stat st = {0};

	if (rootfs_is_dir(r, path))
		return 0;
	if (need_writable(r, r->ops->mkdir != NULL, path, err) < 0 ||
	    prepare_new(r, path, &real, &st, err) < 0)
		return -1;
	if (st.mode)
		return error_errno(err, EEXIST, "cannot make the directory '%s' in the image",
		                   path);
	return r->ops->mkdir(r, real, mode, err);
}

/* By way of a temporary name: what stood there before is replaced in one step. */
int rootfs_symlink(struct rootfs *r, const char *target, const char *path, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	CLEANUP_FREE char *temporary = NULL;
	struct rootfs_stat st = {0}, old;
	int left_over;

	if (need_writable(r, r->ops->symlink != NULL, path, err) < 0 ||
	    prepare_new(r, path, &real, &st, err) < 0)
		return -1;
	if (S_ISDIR(st.mode))
		return error_errno(err, EISDIR, "cannot make the link '%s' in the image", path);
	if (!st.mode)
		return r->ops->symlink(r, target, real, err);
	temporary = str_format("%s.gpuimg-new", real);
	left_over = r->ops->lstat(r, temporary, &old, err);
	if (left_over < 0 || (left_over == 1 && r->ops->remove(r, temporary, err) < 0) ||
	    r->ops->symlink(r, target, temporary, err) < 0)
		return -1;
	return r->ops->rename(r, temporary, real, err);
}

int rootfs_rename(struct rootfs *r, const char *from, const char *to, struct error *err)
{
	CLEANUP_FREE char *real_from = NULL;
	CLEANUP_FREE char *real_to = NULL;
	struct rootfs_stat st = {0};
	int found;

	if (need_writable(r, r->ops->rename != NULL, from, err) < 0)
		return -1;
	found = rootfs_resolve(r, from, false, &real_from, err);
	if (found < 0)
		return -1;
	if (found == 0)
		return error_errno(err, ENOENT, "cannot rename '%s' in the image", from);
	if (prepare_new(r, to, &real_to, &st, err) < 0)
		return -1;
	return r->ops->rename(r, real_from, real_to, err);
}

int rootfs_remove(struct rootfs *r, const char *path, struct error *err)
{
	CLEANUP_FREE char *dir = NULL;
	CLEANUP_FREE char *name = NULL;
	CLEANUP_FREE char *real = NULL;
	int found;

	if (need_writable(r, r->ops->remove != NULL, path, err) < 0 ||
	    split_path(path, &dir, &name, err) < 0)
		return -1;
	found = rootfs_resolve(r, path, false, &real, err);
	return found == 1 ? r->ops->remove(r, real, err) : found;
}

int rootfs_chmod(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	CLEANUP_FREE char *real = NULL;
	struct rootfs_stat st = {0};
	int found;

	if (need_writable(r, r->ops->chmod != NULL, path, err) < 0)
		return -1;
	found = rootfs_resolve(r, path, false, &real, err);
	if (found == 1)
		found = r->ops->lstat(r, real, &st, err);
	if (found < 0)
		return -1;
	if (found == 0 || S_ISLNK(st.mode))
		return error_errno(err, found ? ELOOP : ENOENT,
		                   "cannot change the mode of '%s' in the image", path);
	return r->ops->chmod(r, real, mode, err);
}
