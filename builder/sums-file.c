/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "fd.h"
#include "sums-file.h"

#define SHA256_DIGITS   64
#define POLL_MS         50
#define TEMPORARY_TRIES 16
#define TEMPORARY_END   ".new"
#define TEMPORARY_HEX   16

DEFINE_CLEANUP(dir, DIR *, closedir)
#define CLEANUP_DIR CLEANUP(cleanup_dir)

/* --- Files that are written whole --- */

/* "DIR/.NAME." of the temporary names for 'path'; the name alone where ret_dir is given. */
static char *temporary_prefix(const char *path, char **ret_dir)
{
	CLEANUP_FREE char *copy = str_copy(path);
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;
	const char *dir = dirname(copy);

	if (!ret_dir)
		return str_format("%s/.%s.", dir, name);
	*ret_dir = str_copy(dir);
	return str_format(".%s.", name);
}

/* With errno as it was: callers judge by it. */
static int cannot_write(const char *path, int errnum, struct error *err)
{
	error_errno(err, errnum, "cannot write '%s'", path);
	errno = errnum;
	return -1;
}

/* A name that nobody else has: two builds, or somebody's symlink, are never written through. */
static int open_temporary(const char *path, mode_t mode, char **ret_name, struct error *err)
{
	CLEANUP_FREE char *prefix = temporary_prefix(path, NULL);

	errno = EEXIST;
	for (int i = 0; i < TEMPORARY_TRIES && errno == EEXIST; i++) {
		CLEANUP_FREE char *name = NULL;
		uint64_t number = 0;
		int fd;

		if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
			number = (uint64_t)getpid() << 8 | (uint64_t)i;
		name = str_format("%s%0*" PRIx64 "%s", prefix, TEMPORARY_HEX, number,
		                  TEMPORARY_END);
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
		if (fd >= 0) {
			*ret_name = STEAL(name);
			return fd;
		}
	}
	return cannot_write(path, errno, err);
}

int whole_file_write_as(const char *path, mode_t mode, const char *data, size_t size,
                        struct error *err)
{
	CLEANUP_FREE char *temporary = NULL;
	int fd = open_temporary(path, mode, &temporary, err);
	int result, errnum;

	if (fd < 0)
		return -1;
	result = fd_write_all(fd, data, size) < 0 ? -1 : fsync(fd);
	errnum = errno;
	if (close(fd) < 0 && result == 0) {
		result = -1;
		errnum = errno;
	}
	if (result == 0 && rename(temporary, path) == 0)
		return 0;
	if (result == 0)
		errnum = errno;
	unlink(temporary);
	return cannot_write(path, errnum, err);
}

int whole_file_write(const char *path, const char *data, size_t size, struct error *err)
{
	return whole_file_write_as(path, 0644, data, size, err);
}

void whole_file_sweep(const char *path)
{
	CLEANUP_FREE char *dir_path = NULL;
	CLEANUP_FREE char *prefix = temporary_prefix(path, &dir_path);
	CLEANUP_DIR DIR *dir = opendir(dir_path);
	size_t length = strlen(prefix);

	for (const struct dirent *e; dir && (e = readdir(dir));) {
		const char *number = e->d_name + length;

		if (str_starts(e->d_name, prefix) &&
		    strspn(number, "0123456789abcdef") == TEMPORARY_HEX &&
		    str_equal(number + TEMPORARY_HEX, TEMPORARY_END))
			unlinkat(dirfd(dir), e->d_name, 0);
	}
}

/* --- The lock --- */

/* Whoever is done takes the lock file away: one that we waited for may have lost its name. */
static bool is_named(int fd, const char *path)
{
	struct stat locked, named;

	return fstat(fd, &locked) == 0 && lstat(path, &named) == 0 &&
	       locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

/* The locked file; -1: somebody has it (errno is EWOULDBLOCK), or it cannot be. */
static int try_lock(const char *path)
{
	CLEANUP_CLOSE int fd =
		open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);

	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -1;
	if (!is_named(fd, path)) {
		errno = EWOULDBLOCK;
		return -1;
	}
	return steal_fd(&fd);
}

static int take_lock(const char *path, unsigned wait_ms, int *ret_fd, struct error *err)
{
	const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
	int64_t end = clock_ms() + wait_ms;

	for (;;) {
		int fd = try_lock(path);

		if (fd >= 0) {
			*ret_fd = fd;
			return 0;
		}
		if (errno != EWOULDBLOCK && errno != EINTR) {
			error_errno(err, errno, "cannot lock '%s'", path);
			break;
		}
		if (clock_ms() >= end) {
			error_set(err, "cannot lock '%s': another process has held it for %u s",
			          path, wait_ms / 1000);
			error_hint(err, "wait for the other build, or look with 'fuser' who it is");
			break;
		}
		nanosleep(&pause, NULL);
	}
	return error_code(err, EXIT_HOST);
}

/* --- The lines --- */

struct text {
	char *bytes; /* may hold NUL */
	size_t size, room;
};

static void text_release(struct text *t)
{
	free(t->bytes);
}

#define CLEANUP_TEXT CLEANUP(text_release)

static void text_add(struct text *t, const char *bytes, size_t size)
{
	if (!t->bytes || size > t->room - t->size) {
		t->room = 2 * (t->size + size); /* there may be very many lines */
		t->bytes = mem_grow(t->bytes, t->room, 1);
	}
	memcpy(t->bytes + t->size, bytes, size);
	t->size += size;
}

static int not_readable(const char *path, struct error *err)
{
	error_hint(err, "it may hold the sums of other files: move it away, or build into another "
	                "directory with --output");
	error_prefix(err, "cannot read '%s', which the build would change", path);
	return error_code(err, EXIT_HOST);
}

static int read_bytes(int fd, struct text *t, struct error *err)
{
	char block[16384];
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot look at it");
	if (!S_ISREG(st.st_mode))
		return error_set(err, "it is not a file");
	for (;;) {
		ssize_t n = read(fd, block, sizeof(block));

		if (n == 0)
			return 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "reading fails");
		if ((size_t)n > SUMS_FILE_MAX_BYTES - t->size)
			return error_set(err, "it has more than %zu bytes", SUMS_FILE_MAX_BYTES);
		text_add(t, block, (size_t)n);
	}
}

/* No file is an empty one. */
static int read_old(const char *path, struct text *t, struct error *err)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 && errno == ELOOP)
		error_set(err, "it is a symbolic link");
	else if (fd < 0)
		error_errno(err, errno, "opening fails");
	else if (read_bytes(fd, t, err) == 0)
		return 0;
	return not_readable(path, err);
}

/* "HASH  NAME" or "HASH *NAME" with one of the names, and nothing else. */
static bool is_ours(const char *line, size_t length, const struct strv *names)
{
	const char *name = line + SHA256_DIGITS + 2;

	if (length <= SHA256_DIGITS + 2 || name[-2] != ' ' || (name[-1] != ' ' && name[-1] != '*'))
		return false;
	for (size_t i = 0; i < SHA256_DIGITS; i++)
		if (!isxdigit((unsigned char)line[i]))
			return false;
	length -= SHA256_DIGITS + 2;
	for (size_t i = 0; i < names->count; i++)
		if (strlen(names->items[i]) == length && memcmp(names->items[i], name, length) == 0)
			return true;
	return false;
}

static void keep_others(struct text *t, const struct text *old, const struct strv *names)
{
	for (size_t at = 0, length; at < old->size; at += length) {
		const char *line = old->bytes + at;
		const char *end = memchr(line, '\n', old->size - at);

		length = end ? (size_t)(end - line) + 1 : old->size - at;
		if (!is_ours(line, end ? length - 1 : length, names))
			text_add(t, line, length);
	}
}

static void add_ours(struct text *t, const struct strv *names, const struct strv *digests)
{
	if (t->size > 0 && t->bytes[t->size - 1] != '\n')
		text_add(t, "\n", 1);
	for (size_t i = 0; i < names->count; i++) {
		CLEANUP_FREE char *line =
			str_format("%s  %s\n", digests->items[i], names->items[i]);

		text_add(t, line, strlen(line));
	}
}

static int update_locked(const char *path, const struct strv *names, const struct strv *digests,
                         struct error *err)
{
	CLEANUP_TEXT struct text old = {0};
	CLEANUP_TEXT struct text text = {0};

	whole_file_sweep(path);
	if (read_old(path, &old, err) < 0)
		return -1;
	keep_others(&text, &old, names);
	if (digests)
		add_ours(&text, names, digests);
	if (text.size == old.size &&
	    (text.size == 0 || memcmp(text.bytes, old.bytes, text.size) == 0))
		return 0;
	if (text.size > 0)
		return whole_file_write(path, text.bytes, text.size, err);
	if (unlink(path) < 0)
		return error_errno(err, errno, "cannot remove '%s', which names no file any more",
		                   path);
	return 0;
}

int sums_file_update(const char *dir, const struct strv *names, const struct strv *digests,
                     unsigned wait_ms, struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, SUMS_FILE_NAME);
	CLEANUP_FREE char *lock = str_format("%s/%s", dir, SUMS_FILE_LOCK);
	CLEANUP_CLOSE int lock_fd = -1;
	int result;

	if (take_lock(lock, wait_ms, &lock_fd, err) < 0)
		return -1;
	result = update_locked(path, names, digests, err);
	/* While it is locked: who waits for it sees that the name is gone, and makes a new one. */
	unlink(lock);
	return result;
}
