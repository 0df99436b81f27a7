/* SPDX-License-Identifier: Apache-2.0 */
/* Real directories with shifted owners, as trees have them. Needs root. */
#ifndef GPUIMG_TESTS_TREE_FIXTURE_H
#define GPUIMG_TESTS_TREE_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "builder/tree.h"
#include "tap.h"

static inline void must(bool good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static inline char *in(const char *root, const char *path)
{
	return str_format("%s%s", root, path);
}

/* uid: the guest's. An existing file is written to, as a program would do it. */
static inline void put_file(const char *root, const char *path, const char *text, uint32_t uid,
                            mode_t mode)
{
	CLEANUP_FREE char *full = in(root, path);
	CLEANUP_CLOSE int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), full);
	must(fchown(fd, TREE_UID_BASE + uid, TREE_UID_BASE + uid) == 0 && fchmod(fd, mode) == 0,
	     full);
}

static inline void put_dir(const char *root, const char *path, uint32_t uid, mode_t mode)
{
	CLEANUP_FREE char *full = in(root, path);

	must(mkdir(full, 0700) == 0 && chown(full, TREE_UID_BASE + uid, TREE_UID_BASE + uid) == 0 &&
	             chmod(full, mode) == 0,
	     full);
}

static inline void put_link(const char *root, const char *from, const char *to)
{
	CLEANUP_FREE char *full_from = in(root, from);
	CLEANUP_FREE char *full_to = in(root, to);

	must(link(full_from, full_to) == 0, full_to);
}

static inline void put_symlink(const char *root, const char *path, const char *target)
{
	CLEANUP_FREE char *full = in(root, path);

	must(symlink(target, full) == 0 && lchown(full, TREE_UID_BASE, TREE_UID_BASE) == 0, full);
}

static inline void put_xattr(const char *root, const char *path, const char *name,
                             const void *value, size_t size)
{
	CLEANUP_FREE char *full = in(root, path);

	must(lsetxattr(full, name, value, size, 0) == 0, name);
}

static inline void put_time(const char *root, const char *path, time_t seconds)
{
	const struct timespec times[2] = {{.tv_sec = seconds, .tv_nsec = 5},
	                                  {.tv_sec = seconds, .tv_nsec = 5}};
	CLEANUP_FREE char *full = in(root, path);

	must(utimensat(AT_FDCWD, full, times, AT_SYMLINK_NOFOLLOW) == 0, full);
}

/* A file, or an empty directory. */
static inline void drop_path(const char *root, const char *path)
{
	CLEANUP_FREE char *full = in(root, path);

	must(remove(full) == 0, full);
}

static inline struct stat stat_of(const char *root, const char *path)
{
	CLEANUP_FREE char *full = in(root, path);
	struct stat st = {0};

	if (lstat(full, &st) < 0)
		st = (struct stat){0};
	return st;
}

static inline bool is_there(const char *root, const char *path)
{
	return stat_of(root, path).st_mode != 0;
}

static inline bool text_is(const char *root, const char *path, const char *want)
{
	CLEANUP_FREE char *full = in(root, path);
	CLEANUP_CLOSE int fd = open(full, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char text[256] = "";

	return fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0 && str_equal(text, want);
}

#endif
