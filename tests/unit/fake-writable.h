/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's root in memory that can be written, and whose programs are a function of the test. */
#ifndef GPUIMG_TESTS_FAKE_WRITABLE_H
#define GPUIMG_TESTS_FAKE_WRITABLE_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "builder/rootfs.h"

struct fake_entry {
	char *path;
	uint32_t mode;
	char *data; /* of a link its target */
	size_t size;
};

struct fake_writable {
	struct rootfs base;
	struct fake_entry entries[256];
	size_t count;
	int (*run)(struct fake_writable *r, const struct guest_command *command, struct error *err);
	int fail_write_after; /* this many writes work; -1: all */
};

static inline struct fake_writable *fw_of(struct rootfs *r)
{
	return (struct fake_writable *)r;
}

static inline struct fake_entry *fw_find(struct rootfs *r, const char *path)
{
	struct fake_writable *w = fw_of(r);

	for (size_t i = 0; i < w->count; i++)
		if (strcmp(w->entries[i].path, path) == 0)
			return &w->entries[i];
	return NULL;
}

static inline bool fw_is_implied(struct rootfs *r, const char *path)
{
	struct fake_writable *w = fw_of(r);

	if (strcmp(path, "/") == 0)
		return true;
	for (size_t i = 0; i < w->count; i++)
		if (str_below(w->entries[i].path, path))
			return true;
	return false;
}

static inline void fw_put(struct rootfs *r, const char *path, uint32_t mode, const void *data,
                          size_t size)
{
	struct fake_writable *w = fw_of(r);
	struct fake_entry *e = fw_find(r, path);

	if (!e) {
		if (w->count == sizeof(w->entries) / sizeof(w->entries[0]))
			abort();
		e = &w->entries[w->count++];
		e->path = str_copy(path);
	} else {
		free(e->data);
	}
	e->mode = mode;
	e->data = mem_copy(data, size);
	e->size = size;
}

/* What a test puts there; texts may hold no NUL. */
static inline void fw_text(struct fake_writable *w, const char *path, const char *text)
{
	fw_put(&w->base, path, S_IFREG | 0644, text, strlen(text));
}

static inline void fw_program(struct fake_writable *w, const char *path, const char *text)
{
	fw_put(&w->base, path, S_IFREG | 0755, text, strlen(text));
}

static inline void fw_link(struct fake_writable *w, const char *path, const char *target)
{
	fw_put(&w->base, path, S_IFLNK | 0777, target, strlen(target));
}

static inline int fw_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                           struct error *err)
{
	const struct fake_entry *e = fw_find(r, path);

	(void)err;
	if (!e && !fw_is_implied(r, path))
		return 0;
	*ret = (struct rootfs_stat){.mode = e ? e->mode : S_IFDIR | 0755,
	                            .size_bytes = e ? e->size : 0};
	return 1;
}

static inline int fw_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	const struct fake_entry *e = fw_find(r, path);

	if (!e || !S_ISLNK(e->mode))
		return error_errno(err, EINVAL, "'%s'", path);
	*ret = str_copy(e->data);
	return 0;
}

static inline int fw_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	struct fake_writable *w = fw_of(r);
	size_t length = strcmp(path, "/") == 0 ? 0 : strlen(path);

	(void)err;
	for (size_t i = 0; i < w->count; i++) {
		const char *at = w->entries[i].path;
		CLEANUP_FREE char *first = NULL;

		if (strncmp(at, path, length) != 0 || at[length] != '/')
			continue;
		first = mem_copy(at + length + 1, strcspn(at + length + 1, "/"));
		if (!strv_has(ret, first))
			strv_add(ret, first);
	}
	strv_sort(ret);
	return 0;
}

static inline int fw_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                          size_t *ret_size, struct error *err)
{
	const struct fake_entry *e = fw_find(r, path);

	if (!e || !S_ISREG(e->mode) || e->size > max_bytes)
		return error_errno(err, e ? EFBIG : EISDIR, "cannot read '%s'", path);
	*ret = mem_copy(e->data, e->size);
	if (ret_size)
		*ret_size = e->size;
	return 0;
}

static inline int fw_write(struct rootfs *r, const char *path, const void *data, size_t size,
                           uint32_t mode, struct error *err)
{
	struct fake_writable *w = fw_of(r);

	if (w->fail_write_after == 0)
		return error_errno(err, ENOSPC, "cannot write '%s'", path);
	if (w->fail_write_after > 0)
		w->fail_write_after--;
	fw_put(r, path, S_IFREG | mode, data, size);
	return 0;
}

static inline int fw_mkdir(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	(void)err;
	if (!fw_find(r, path) && !fw_is_implied(r, path))
		fw_put(r, path, S_IFDIR | mode, "", 0);
	return 0;
}

static inline int fw_symlink(struct rootfs *r, const char *target, const char *path,
                             struct error *err)
{
	(void)err;
	fw_link(fw_of(r), path, target);
	return 0;
}

static inline int fw_remove(struct rootfs *r, const char *path, struct error *err)
{
	struct fake_writable *w = fw_of(r);

	(void)err;
	for (size_t i = 0; i < w->count;) {
		struct fake_entry *e = &w->entries[i];

		if (strcmp(e->path, path) != 0 && !str_below(e->path, path)) {
			i++;
			continue;
		}
		free(e->path);
		free(e->data);
		*e = w->entries[--w->count];
	}
	return 0;
}

static inline int fw_rename(struct rootfs *r, const char *from, const char *to, struct error *err)
{
	struct fake_entry *e;

	fw_remove(r, to, err);
	e = fw_find(r, from);
	if (!e)
		return error_errno(err, ENOENT, "cannot rename '%s'", from);
	free(e->path);
	e->path = str_copy(to);
	return 0;
}

static inline int fw_chmod(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	struct fake_entry *e = fw_find(r, path);

	(void)err;
	if (e)
		e->mode = (e->mode & S_IFMT) | mode;
	return 0;
}

static inline int fw_run(struct rootfs *r, const struct guest_command *command, struct error *err)
{
	struct fake_writable *w = fw_of(r);

	return w->run ? w->run(w, command, err) : error_set(err, "nothing can be run");
}

static inline void fw_close(struct rootfs *r)
{
	(void)r;
}

static inline struct fake_writable fake_writable(void)
{
	static const struct rootfs_ops ops = {.name = "fake",
	                                      .lstat = fw_lstat,
	                                      .readlink = fw_readlink,
	                                      .list = fw_list,
	                                      .read = fw_read,
	                                      .write = fw_write,
	                                      .mkdir = fw_mkdir,
	                                      .symlink = fw_symlink,
	                                      .rename = fw_rename,
	                                      .remove = fw_remove,
	                                      .chmod = fw_chmod,
	                                      .run = fw_run,
	                                      .close = fw_close};

	return (struct fake_writable){.base = {.ops = &ops}, .fail_write_after = -1};
}

static inline void fake_writable_free(struct fake_writable *w)
{
	for (size_t i = 0; i < w->count; i++) {
		free(w->entries[i].path);
		free(w->entries[i].data);
	}
	w->count = 0;
}
#define CLEANUP_FAKE CLEANUP(fake_writable_free)

/* All of it as one text, to compare. Owned by the caller. */
static inline char *fake_writable_text(const struct fake_writable *w)
{
	CLEANUP_STRV struct strv lines = {0};

	for (size_t i = 0; i < w->count; i++)
		strv_addf(&lines, "%s %o %s", w->entries[i].path, w->entries[i].mode,
		          w->entries[i].data);
	strv_sort(&lines);
	return strv_join(&lines, "\n--\n");
}

#endif
