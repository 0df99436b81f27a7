/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files and directories of the cache. What is in them goes into images, so nothing is taken that
 * another user may have put there, and no link is followed.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>

#include "cache-internal.h"
#include "digest.h"
#include "fd.h"

#define LOCK_WAIT_MS 10000
#define PIECE_BYTES  (1u << 20)
#define KIND_MAX     40

bool cache_good_kind(const char *kind)
{
	size_t length = strlen(kind);

	return length > 0 && length <= KIND_MAX &&
	       strspn(kind, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

int cache_hold(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 ? steal_fd(&fd) : -1;
}

static int check_owner(const struct stat *st, const char *shown, struct error *err)
{
	if (st->st_uid == geteuid() || st->st_uid == 0)
		return 0;
	return error_set(err, "'%s' belongs to another user (uid %u)", shown, (unsigned)st->st_uid);
}

int cache_open_dir(int *ret, int at, const char *name, const char *shown, bool make,
                   struct error *err)
{
	CLEANUP_CLOSE int fd = -1;
	struct stat st;

	if (make && mkdirat(at, name, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make the directory '%s'", shown);
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open the directory '%s'", shown);
	if (check_owner(&st, shown, err) < 0)
		return -1;
	if (st.st_mode & (S_IWGRP | S_IWOTH)) {
		error_hint(err, "if you trust what is in it: chmod go-w '%s'", shown);
		return error_set(err, "others may write into the directory '%s'", shown);
	}
	*ret = steal_fd(&fd);
	return 0;
}

int cache_open_file(int *ret, int at, const char *name, const char *shown, struct stat *st,
                    struct error *err)
{
	/* O_NONBLOCK: a FIFO must not hold us here. */
	CLEANUP_CLOSE int fd =
		openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0 || fstat(fd, st) < 0)
		return error_errno(err, errno, "cannot open '%s'", shown);
	if (!S_ISREG(st->st_mode))
		return error_set(err, "'%s' is not a regular file", shown);
	if (check_owner(st, shown, err) < 0)
		return -1;
	*ret = steal_fd(&fd);
	return 1;
}

int cache_make_temporary(int *ret, char **ret_name, int at, const char *shown, struct error *err)
{
	CLEANUP_FREE char *name = NULL;
	CLEANUP_CLOSE int fd = -1;
	uint64_t number;

	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return error_errno(err, errno, "cannot get a random name");
	name = str_format(".%016" PRIx64 ".tmp", number);
	fd = openat(at, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_errno(err, errno, "cannot make a file in '%s'", shown);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		error_errno(err, errno, "cannot lock '%s/%s'", shown, name);
		unlinkat(at, name, 0);
		return -1;
	}
	*ret = steal_fd(&fd);
	*ret_name = STEAL(name);
	return 0;
}

/* Who may only read the directory can still have a shared lock, where the file is there. */
static int open_lock(const struct cache *cache, const char *name)
{
	int fd = openat(cache->fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
	                0600);

	if (fd < 0 && (errno == EROFS || errno == EACCES))
		fd = openat(cache->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	return fd;
}

int cache_lock(int *ret, const struct cache *cache, const char *name, int operation,
               struct error *err)
{
	CLEANUP_CLOSE int fd = open_lock(cache, name);
	unsigned waited_ms = 0;

	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s/%s'", cache->path, name);
	for (unsigned pause_ms = 1; flock(fd, operation | LOCK_NB) < 0;) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return error_errno(err, errno, "cannot lock '%s/%s'", cache->path, name);
		if (waited_ms >= LOCK_WAIT_MS) {
			error_hint(err, "look for the process with 'fuser %s/%s'", cache->path,
			           name);
			return error_set(err, "another process holds '%s/%s' for long", cache->path,
			                 name);
		}
		nanosleep(&(struct timespec){0, pause_ms * 1000000L}, NULL);
		waited_ms += pause_ms;
		pause_ms = pause_ms < 50 ? pause_ms * 2 : pause_ms;
	}
	*ret = steal_fd(&fd);
	return 0;
}

int cache_lock_to_read(int *ret, const struct cache *cache, struct error *err)
{
	struct error why = ERROR_INIT;

	if (cache_lock(ret, cache, CACHE_LOCK, LOCK_SH, &why) == 0)
		return 0;
	if (faccessat(cache->fd, ".", W_OK, AT_EACCESS) < 0) {
		error_free(&why);
		return 0;
	}
	return error_take(err, &why);
}

int cache_read_json(json_t **ret, int fd, const char *shown, struct error *err)
{
	CLEANUP_FREE char *text = mem_alloc(CACHE_JSON_MAX + 1);
	size_t size = 0;
	json_error_t why;
	json_t *json;

	while (size <= CACHE_JSON_MAX) {
		ssize_t n = pread(fd, text + size, CACHE_JSON_MAX + 1 - size, (off_t)size);

		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot read '%s'", shown);
		if (n == 0)
			break;
		size += n > 0 ? (size_t)n : 0;
	}
	if (size > CACHE_JSON_MAX)
		return error_set(err, "'%s' is too large", shown);
	json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &why);
	if (!json || !json_is_object(json)) {
		CLEANUP_FREE char *reason = str_printable(json ? "no object" : why.text, 120);

		json_decref(json);
		return error_set(err, "'%s' is garbled: %s", shown, reason);
	}
	*ret = json;
	return 0;
}

int cache_write_json(int fd, const json_t *json, const char *shown, struct error *err)
{
	CLEANUP_FREE char *text = json_dumps(json, JSON_INDENT(1));

	if (!text)
		return error_set(err, "cannot write '%s': not a JSON text", shown);
	if (strlen(text) > CACHE_JSON_MAX)
		return error_set(err, "cannot write '%s': more than %u bytes", shown,
		                 CACHE_JSON_MAX);
	if (fd_write_all(fd, text, strlen(text)) < 0)
		return error_errno(err, errno, "cannot write '%s'", shown);
	return 0;
}

static enum cache_copied copy_bytes(int from, int to, struct error *err)
{
	CLEANUP_FREE char *piece = mem_alloc(PIECE_BYTES);
	off_t offset = 0;

	for (;;) {
		ssize_t n = pread(from, piece, PIECE_BYTES, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			error_errno(err, errno, "cannot read it");
			return CACHE_SOURCE_BAD;
		}
		if (n == 0)
			return CACHE_COPIED;
		if (fd_write_all(to, piece, (size_t)n) < 0) {
			error_errno(err, errno, "cannot write the copy");
			return CACHE_TARGET_BAD;
		}
		offset += n;
	}
}

bool cache_clone(int from, int to)
{
	return ioctl(to, FICLONE, from) == 0;
}

enum cache_copied cache_copy(int from, int to, char **ret_hex, struct error *err)
{
	bool cloned = cache_clone(from, to);
	enum cache_copied result = cloned ? CACHE_COPIED : copy_bytes(from, to, err);

	/* A clone has the source's own blocks, bad ones too. */
	if (result == CACHE_COPIED &&
	    (lseek(to, 0, SEEK_SET) < 0 || digest_fd(to, "the copy", ret_hex, err) < 0))
		result = cloned ? CACHE_SOURCE_BAD : CACHE_TARGET_BAD;
	return result;
}
