/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's root in memory (fake-writable.h) whose programs are a function of the test's: it sees a
 * command line, may change files, and answers with output and an exit code.
 */
#ifndef GPUIMG_TESTS_SCRIPT_ROOTFS_H
#define GPUIMG_TESTS_SCRIPT_ROOTFS_H

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake-writable.h"

struct script_rootfs;
/* command: the arguments, joined by blanks. *ret_output may be set. The exit code. */
typedef int script_run(struct script_rootfs *s, const char *command, char **ret_output);

struct script_rootfs {
	union {
		struct rootfs base;
		struct fake_writable files; /* which begins with it, too */
	};
	struct strv commands; /* all that were run */
	unsigned last_timeout_ms;
	script_run *run;
	void *opaque; /* the test's */
};

static inline struct script_rootfs *script_of(struct rootfs *r)
{
	return (struct script_rootfs *)r;
}

static inline void script_put(struct script_rootfs *s, const char *path, uint32_t mode,
                              const char *text)
{
	fw_put(&s->base, path, mode, text, strlen(text));
}

static inline void script_file_put(struct script_rootfs *s, const char *path, const char *text)
{
	fw_text(&s->files, path, text);
}

static inline bool script_has(struct script_rootfs *s, const char *path)
{
	return fw_find(&s->base, path) != NULL;
}

/* With all that is below. */
static inline void script_drop(struct script_rootfs *s, const char *path)
{
	fw_remove(&s->base, path, NULL);
}

/* Whether a command was run that begins like this. */
static inline bool script_ran(struct script_rootfs *s, const char *begin)
{
	for (size_t i = 0; i < s->commands.count; i++)
		if (str_starts(s->commands.items[i], begin))
			return true;
	return false;
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

static inline int script_copy_in(struct rootfs *r, const char *path, int fd, uint32_t mode,
                                 struct error *err)
{
	char text[65536];
	ssize_t n = pread(fd, text, sizeof(text), 0);

	if (n < 0)
		return error_errno(err, errno, "cannot copy to '%s'", path);
	return fw_write(r, path, text, (size_t)n, mode, err);
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

	fake_writable_free(&s->files);
	strv_free(&s->commands);
}

/* To be released by rootfs_close(). */
static inline struct script_rootfs script_rootfs(script_run *run, void *opaque)
{
	static const struct rootfs_ops ops = {.name = "script",
	                                      .lstat = fw_lstat,
	                                      .readlink = fw_readlink,
	                                      .list = fw_list,
	                                      .read = fw_read,
	                                      .statvfs = script_statvfs,
	                                      .write = fw_write,
	                                      .copy_in = script_copy_in,
	                                      .mkdir = fw_mkdir,
	                                      .remove = fw_remove,
	                                      .run = script_op_run,
	                                      .close = script_close};
	struct script_rootfs s = {.files = fake_writable(), .run = run, .opaque = opaque};

	s.base.ops = &ops;
	return s;
}

#endif
