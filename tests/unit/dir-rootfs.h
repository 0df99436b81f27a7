/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's root that is a directory of the test's own. */
#ifndef GPUIMG_TESTS_DIR_ROOTFS_H
#define GPUIMG_TESTS_DIR_ROOTFS_H

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/rootfs.h"

/* A directory as a guest's root, read-only: what the readers need of a backend. The
 * real one for directories wants the owners of a sandbox's tree. */
struct dir_rootfs {
	struct rootfs base;
	char *dir;
};

static inline char *host_path(const struct rootfs *r, const char *path)
{
	return str_format("%s%s", ((const struct dir_rootfs *)r)->dir, path);
}

static inline int dir_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                            struct error *err)
{
	CLEANUP_FREE char *full = host_path(r, path);
	struct stat st;

	if (lstat(full, &st) < 0)
		return errno == ENOENT || errno == ENOTDIR
		               ? 0
		               : error_errno(err, errno, "cannot look at '%s'", full);
	*ret = (struct rootfs_stat){.mode = st.st_mode,
	                            .size_bytes = (uint64_t)st.st_size,
	                            .inode = st.st_ino,
	                            .device = st.st_dev};
	return 1;
}

static inline int dir_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	CLEANUP_FREE char *full = host_path(r, path), *target = mem_alloc(4097);

	if (readlink(full, target, 4096) < 0)
		return error_errno(err, errno, "cannot read the link '%s'", full);
	*ret = STEAL(target);
	return 0;
}

static inline int dir_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	CLEANUP_FREE char *full = host_path(r, path);
	DIR *dir = opendir(full);
	struct dirent *entry;

	if (!dir)
		return error_errno(err, errno, "cannot list '%s'", full);
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			strv_add(ret, entry->d_name);
	closedir(dir);
	strv_sort(ret);
	return 0;
}

static inline int dir_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                           size_t *ret_size, struct error *err)
{
	CLEANUP_FREE char *full = host_path(r, path);
	CLEANUP_FCLOSE FILE *f = fopen(full, "re");
	CLEANUP_FREE char *data = NULL;
	struct stat st;
	size_t size;

	if (!f || fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode))
		return error_errno(err, errno, "cannot read '%s'", full);
	size = (size_t)st.st_size;
	if (size > max_bytes)
		return error_set(err, "cannot read '%s': it is too large", full);
	data = mem_alloc(size + 1);
	if (fread(data, 1, size, f) != size)
		return error_errno(err, errno, "cannot read '%s'", full);
	if (ret_size)
		*ret_size = size;
	*ret = STEAL(data);
	return 0;
}

static inline void dir_close(struct rootfs *r)
{
	free(((struct dir_rootfs *)r)->dir);
	free(r);
}

static inline struct rootfs *open_dir(const char *dir)
{
	static const struct rootfs_ops ops = {
		.name = "directory",
		.lstat = dir_lstat,
		.readlink = dir_readlink,
		.list = dir_list,
		.read = dir_read,
		.close = dir_close,
	};
	struct dir_rootfs *r = mem_alloc(sizeof(*r));

	r->base.ops = &ops;
	r->dir = str_copy(dir);
	return &r->base;
}

#endif
