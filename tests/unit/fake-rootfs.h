/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's root that is a table of files in memory; read-only, directories are implied. */
#ifndef GPUIMG_TESTS_FAKE_ROOTFS_H
#define GPUIMG_TESTS_FAKE_ROOTFS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/rootfs.h"

struct fake_file {
	const char *path; /* absolute; NULL ends the table */
	const char *text;
};

struct fake_rootfs {
	struct rootfs base;
	const struct fake_file *files;
};

static inline const struct fake_file *fake_find(struct rootfs *r, const char *path)
{
	const struct fake_file *f = ((struct fake_rootfs *)r)->files;

	for (; f->path; f++)
		if (strcmp(f->path, path) == 0)
			return f;
	return NULL;
}

static inline bool fake_is_dir(struct rootfs *r, const char *path)
{
	const struct fake_file *f = ((struct fake_rootfs *)r)->files;
	size_t length = strcmp(path, "/") == 0 ? 0 : strlen(path);

	for (; f->path; f++)
		if (strncmp(f->path, path, length) == 0 && f->path[length] == '/')
			return true;
	return length == 0;
}

static inline int fake_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                             struct error *err)
{
	const struct fake_file *f = fake_find(r, path);

	(void)err;
	*ret = (struct rootfs_stat){.mode = f ? S_IFREG | 0644 : S_IFDIR | 0755,
	                            .size_bytes = f ? strlen(f->text) : 0};
	return f || fake_is_dir(r, path);
}

static inline int fake_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	(void)r;
	(void)ret;
	return error_errno(err, EINVAL, "'%s'", path);
}

static inline int fake_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	const struct fake_file *f = ((struct fake_rootfs *)r)->files;
	size_t length = strcmp(path, "/") == 0 ? 0 : strlen(path);

	(void)err;
	for (; f->path; f++) {
		const char *name = f->path + length + 1;
		CLEANUP_FREE char *first = NULL;

		if (strncmp(f->path, path, length) != 0 || f->path[length] != '/')
			continue;
		first = mem_copy(name, strcspn(name, "/"));
		if (!strv_has(ret, first))
			strv_add(ret, first);
	}
	strv_sort(ret);
	return 0;
}

static inline int fake_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                            size_t *ret_size, struct error *err)
{
	const struct fake_file *f = fake_find(r, path);

	if (!f || strlen(f->text) > max_bytes)
		return error_errno(err, f ? EFBIG : EISDIR, "cannot read '%s'", path);
	*ret = str_copy(f->text);
	if (ret_size)
		*ret_size = strlen(f->text);
	return 0;
}

static inline int fake_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	const struct fake_file *f = fake_find(r, path);
	size_t size = f ? strlen(f->text) : 0;

	if (!f || write(fd, f->text, size) != (ssize_t)size)
		return error_errno(err, errno, "cannot copy '%s'", path);
	return 0;
}

static inline void fake_close(struct rootfs *r)
{
	(void)r;
}

/* Nothing in it needs to be released. */
static inline struct fake_rootfs fake_rootfs(const struct fake_file *files)
{
	static const struct rootfs_ops ops = {.name = "fake",
	                                      .lstat = fake_lstat,
	                                      .readlink = fake_readlink,
	                                      .list = fake_list,
	                                      .read = fake_read,
	                                      .copy_out = fake_copy_out,
	                                      .close = fake_close};

	return (struct fake_rootfs){.base = {.ops = &ops}, .files = files};
}

#endif
