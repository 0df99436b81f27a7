/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "str.h"
#include "tree.h"
#include "workdir.h"

#define PREFIX    "gpuimg."
#define LOCK_NAME "lock"

void workdir_remove(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (tree_remove(dir, &err) < 0)
		log_error(NULL, "warning: ", err.message);
}

void workdir_keep(const char *dir)
{
	CLEANUP_FREE char *path = str_format("%s/" LOCK_NAME, dir);

	unlink(path);
}

/* Locks DIR/lock without waiting; -1: somebody holds it, or it is not there. */
static int lock(const char *dir, int flags)
{
	CLEANUP_FREE char *path = str_format("%s/" LOCK_NAME, dir);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);

	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* Only directories of our own user, with our name and an unlocked lock, are removed. */
static void remove_stale(const char *parent)
{
	DIR *dir = opendir(parent);
	struct dirent *entry;

	while (dir && (entry = readdir(dir))) {
		CLEANUP_FREE char *path = NULL;
		CLEANUP_CLOSE int fd = -1;
		struct stat st;

		if (!str_starts(entry->d_name, PREFIX))
			continue;
		path = str_format("%s/%s", parent, entry->d_name);
		if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
			continue;
		fd = lock(path, 0);
		if (fd >= 0)
			workdir_remove(path);
	}
	if (dir)
		closedir(dir);
}

int workdir_make(char **ret, int *ret_lock_fd, const char *parent, struct error *err)
{
	const char *tmpdir = getenv("TMPDIR");
	CLEANUP_FREE char *path = NULL;
	CLEANUP_FREE char *real = NULL;
	int fd;

	if (!parent)
		parent = tmpdir && *tmpdir ? tmpdir : "/var/tmp";
	real = realpath(parent, NULL);
	path = str_format("%s/" PREFIX "XXXXXX", real ? real : parent);
	if (real)
		remove_stale(real);
	if (!mkdtemp(path)) {
		error_errno(err, errno, "cannot make a work directory in '%s'", parent);
		error_hint(err, "pass --work-dir=DIR with a writable directory that has space");
		return error_code(err, EXIT_HOST);
	}
	fd = lock(path, O_CREAT);
	if (fd < 0) {
		workdir_remove(path);
		return error_errno(err, errno, "cannot lock the work directory '%s'", path);
	}
	*ret = STEAL(path);
	*ret_lock_fd = fd;
	return 0;
}

/* Whatever mkdir() says of one that is there (EEXIST, EROFS, EACCES): it is there. */
static int make_directory(const char *path)
{
	struct stat st;
	int errnum;

	if (mkdir(path, 0755) == 0)
		return 0;
	errnum = errno;
	if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	errno = errnum;
	return -1;
}

int workdir_make_below(size_t there, const char *path, struct error *err)
{
	CLEANUP_FREE char *part = str_copy(path);
	char *slash = part + there;

	while (slash) {
		int errnum;

		slash = strchr(slash + 1, '/');
		if (slash)
			*slash = '\0';
		if (make_directory(part) < 0) { /* what is below it would fail by being nowhere */
			errnum = errno;
			error_errno(err, errnum, "cannot make the directory '%s'", part);
			error_code(err, EXIT_HOST);
			errno = errnum;
			return -1;
		}
		if (slash)
			*slash = '/';
	}
	return 0;
}

int workdir_make_parents(const char *path, struct error *err)
{
	return workdir_make_below(0, path, err);
}

uint64_t workdir_free_bytes(const char *dir)
{
	struct statvfs st;

	return statvfs(dir, &st) < 0 ? 0 : (uint64_t)st.f_bavail * st.f_frsize;
}

int workdir_check_space(const char *dir, uint64_t needed_bytes, struct error *err)
{
	uint64_t free_bytes = workdir_free_bytes(dir);
	CLEANUP_FREE char *have = str_size(free_bytes);
	CLEANUP_FREE char *need = str_size(needed_bytes);

	if (free_bytes >= needed_bytes)
		return 0;
	error_set(err, "not enough space in '%s': %s free, %s needed", dir, have, need);
	error_hint(err, "free some, or choose another file system with --work-dir or --output");
	return error_code(err, EXIT_HOST);
}
