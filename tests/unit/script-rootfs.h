/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's root in memory that can be written to, and whose programs are a function of the test's:
 * it sees a command line, may change files, and answers with output and an exit code.
 */
#ifndef GPUIMG_TESTS_SCRIPT_ROOTFS_H
#define GPUIMG_TESTS_SCRIPT_ROOTFS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/rootfs.h"

struct script_file {
	char *path;
	char *text;    /* of a link: its target */
	uint32_t mode; /* with the type */
};

struct script_rootfs;
/* command: the arguments, joined by blanks. *ret_output may be set. The exit code. */
typedef int script_run(struct script_rootfs *s, const char *command, char **ret_output);

struct script_rootfs {
	struct rootfs base;
	struct script_file *files;
	size_t count;
	struct strv commands; /* all that were run */
	unsigned last_timeout_ms;
	script_run *run;
	void *opaque; /* the test's */
};

static inline struct script_rootfs *script_of(struct rootfs *r)
{
	return (struct script_rootfs *)r;
}

static inline struct script_file *script_find(struct script_rootfs *s, const char *path)
{
	for (size_t i = 0; i < s->count; i++)
		if (strcmp(s->files[i].path, path) == 0)
			return &s->files[i];
	return NULL;
}

static inline void script_put(struct script_rootfs *s, const char *path, uint32_t mode,
                              const char *text)
{
	struct script_file *f = script_find(s, path);

	if (!f) {
		s->files = mem_grow(s->files, s->count + 1, sizeof(*s->files));
		f = &s->files[s->count++];
		*f = (struct script_file){.path = str_copy(path)};
	}
	free(f->text);
	f->text = str_copy(text);
	f->mode = mode;
}

static inline void script_file_put(struct script_rootfs *s, const char *path, const char *text)
{
	script_put(s, path, S_IFREG | 0644, text);
}

static inline bool script_has(struct script_rootfs *s, const char *path)
{
	return script_find(s, path) != NULL;
}

/* With all that is below. */
static inline void script_drop(struct script_rootfs *s, const char *path)
{
	for (size_t i = s->count; i-- > 0;) {
		if (strcmp(s->files[i].path, path) != 0 && !str_below(s->files[i].path, path))
			continue;
		free(s->files[i].path);
		free(s->files[i].text);
		s->files[i] = s->files[--s->count];
	}
}

/* Whether a command was run that begins like this. */
static inline bool script_ran(struct script_rootfs *s, const char *begin)
{
	for (size_t i = 0; i < s->commands.count; i++)
		if (str_starts(s->commands.items[i], begin))
			return true;
	return false;
}

static inline int script_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                               struct error *err)
{
	struct script_rootfs *s = script_of(r);
	struct script_file *f = script_find(s, path);

	(void)err;
	if (f) {
		*ret = (struct rootfs_stat){.mode = f->mode, .size_bytes = strlen(f->text)};
		return 1;
	}
	for (size_t i = 0; i < s->count; i++)
		if (strcmp(path, "/") == 0 || str_below(s->files[i].path, path)) {
			*ret = (struct rootfs_stat){.mode = S_IFDIR | 0755};
			return 1;
		}
	return 0;
}

static inline int script_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	struct script_file *f = script_find(script_of(r), path);

	if (!f || !S_ISLNK(f->mode))
		return error_errno(err, EINVAL, "'%s'", path);
	*ret = str_copy(f->text);
	return 0;
}

static inline int script_list(struct rootfs *r, const char *path, struct strv *ret,
                              struct error *err)
{
	struct script_rootfs *s = script_of(r);
	size_t length = strcmp(path, "/") == 0 ? 0 : strlen(path);

	(void)err;
	for (size_t i = 0; i < s->count; i++) {
		const char *name = s->files[i].path + length + 1;
		CLEANUP_FREE char *first = NULL;

		if (strncmp(s->files[i].path, path, length) != 0 || s->files[i].path[length] != '/')
			continue;
		first = mem_copy(name, strcspn(name, "/"));
		if (!strv_has(ret, first))
			strv_add(ret, first);
	}
	strv_sort(ret);
	return 0;
}

static inline int script_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                              size_t *ret_size, struct error *err)
{
	struct script_file *f = script_find(script_of(r), path);

	if (!f || !S_ISREG(f->mode) || strlen(f->text) > max_bytes)
		return error_errno(err, f ? EFBIG : ENOENT, "cannot read '%s'", path);
	*ret = str_copy(f->text);
	if (ret_size)
		*ret_size = strlen(f->text);
	return 0;
}

static inline int script_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                                 uint64_t *ret_size_bytes, struct error *err)
{
	(void)r;
	(void)path;
	(void)err;
	*ret_free_bytes = 1 << 20;
	*ret_size_bytes = 1 << 30;
	return 0;
}

static inline int script_write(struct rootfs *r, const char *path, const void *data, size_t size,
                               uint32_t mode, struct error *err)
{
	CLEANUP_FREE char *text = mem_copy(data, size);

	(void)err;
	script_put(script_of(r), path, S_IFREG | mode, text);
	return 0;
}

static inline int script_copy_in(struct rootfs *r, const char *path, int fd, uint32_t mode,
                                 struct error *err)
{
	char text[65536];
	ssize_t n = pread(fd, text, sizeof(text), 0);

	if (n < 0)
		return error_errno(err, errno, "cannot copy to '%s'", path);
	return script_write(r, path, text, (size_t)n, mode, err);
}

static inline int script_mkdir(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	(void)err;
	if (!script_has(script_of(r), path))
		script_put(script_of(r), path, S_IFDIR | mode, "");
	return 0;
}

static inline int script_remove(struct rootfs *r, const char *path, struct error *err)
{
	(void)err;
	script_drop(script_of(r), path);
	return 0;
}

/* driver_command() runs its programs through a shell, whose last line is the exit code. */
static inline int script_op_run(struct rootfs *r, const struct guest_command *c, struct error *err)
{
	struct script_rootfs *s = script_of(r);
	const bool shell = str_equal(c->argv[0], "sh") && str_equal(c->argv[1], "-c");
	CLEANUP_STRV struct strv words = {0};
	CLEANUP_FREE char *command = NULL;
	CLEANUP_FREE char *output = NULL;
	int status;

	for (const char *const *arg = c->argv + (shell ? 4 : 0); *arg; arg++)
		strv_add(&words, *arg);
	command = strv_join(&words, " ");
	strv_add(&s->commands, command);
	s->last_timeout_ms = c->timeout_ms;
	status = s->run ? s->run(s, command, &output) : 0;
	if (status < 0)
		return error_set(err, "'%s' did not end in time", words.items[0]);
	if (!shell && status != 0)
		return error_set(err, "'%s' exited with %d", words.items[0], status);
	if (c->ret_stdout)
		*c->ret_stdout =
			shell ? str_format("%s\ngpuimg-exit %d\n", output ? output : "", status)
			      : str_copy(output ? output : "");
	return 0;
}

static inline void script_close(struct rootfs *r)
{
	struct script_rootfs *s = script_of(r);

	while (s->count)
		script_drop(s, s->files[0].path);
	free(s->files);
	strv_free(&s->commands);
}

/* To be released by rootfs_close(). */
static inline struct script_rootfs script_rootfs(script_run *run, void *opaque)
{
	static const struct rootfs_ops ops = {.name = "script",
	                                      .lstat = script_lstat,
	                                      .readlink = script_readlink,
	                                      .list = script_list,
	                                      .read = script_read,
	                                      .statvfs = script_statvfs,
	                                      .write = script_write,
	                                      .copy_in = script_copy_in,
	                                      .mkdir = script_mkdir,
	                                      .remove = script_remove,
	                                      .run = script_op_run,
	                                      .close = script_close};

	return (struct script_rootfs){.base = {.ops = &ops}, .run = run, .opaque = opaque};
}

#endif
