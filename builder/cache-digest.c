/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Digests of files that do not change from run to run, a base image of gigabytes above all. What
 * tells a file is its inode, size and times; a file that changed just now may change once more
 * within the same tick of its clock, so its digest is not remembered.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>

#include "cache-internal.h"
#include "digest.h"

#define REMEMBERED_MAX 1000
#define SETTLED_NS     2000000000ll

static char *identity(const struct stat *st)
{
	return str_format("%" PRIx64 ":%" PRIx64 ":%" PRIu64 ":%" PRId64 ".%09ld:%" PRId64 ".%09ld",
	                  (uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
	                  (int64_t)st->st_mtim.tv_sec, st->st_mtim.tv_nsec,
	                  (int64_t)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
}

static bool is_older(const struct timespec *then, const struct timespec *now)
{
	int64_t seconds;

	if (__builtin_sub_overflow((int64_t)now->tv_sec, (int64_t)then->tv_sec, &seconds) ||
	    seconds > 3600)
		return then->tv_sec < now->tv_sec;
	if (seconds < 0)
		return false;
	return seconds * 1000000000ll + now->tv_nsec - then->tv_nsec >= SETTLED_NS;
}

static bool is_settled(const struct stat *st)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return is_older(&st->st_mtim, &now) && is_older(&st->st_ctim, &now);
}

static bool is_sha256(const char *hex)
{
	return hex && strlen(hex) == 64 && strspn(hex, "0123456789abcdef") == 64;
}

/* An empty object if there is none, or a garbled one. */
static json_t *read_memo(const struct cache *cache)
{
	CLEANUP_ERROR struct error why = ERROR_INIT;
	CLEANUP_CLOSE int fd = -1;
	json_t *memo = NULL;
	struct stat st;

	if (cache_open_file(&fd, cache->fd, CACHE_DIGESTS, CACHE_DIGESTS, &st, &why) == 1 &&
	    cache_read_json(&memo, fd, CACHE_DIGESTS, &why) == 0)
		return memo;
	if (why.message)
		log_detail(cache->log, "remembered digests: %s, ignoring", why.message);
	return json_object();
}

/* The object keeps the order in which things were added. */
static void forget_oldest(json_t *memo)
{
	while (json_object_size(memo) > REMEMBERED_MAX) {
		const char *oldest = json_object_iter_key(json_object_iter(memo));
		CLEANUP_FREE char *name = str_copy(oldest);

		json_object_del(memo, name);
	}
}

static int write_memo(const struct cache *cache, const json_t *memo, struct error *err)
{
	CLEANUP_FREE char *name = NULL;
	CLEANUP_CLOSE int fd = -1;

	if (cache_make_temporary(&fd, &name, cache->fd, cache->path, err) < 0)
		return -1;
	if (cache_write_json(fd, memo, CACHE_DIGESTS, err) == 0 &&
	    renameat(cache->fd, name, cache->fd, CACHE_DIGESTS) == 0)
		return 0;
	if (!err->message)
		error_errno(err, errno, "cannot rename in '%s'", cache->path);
	unlinkat(cache->fd, name, 0);
	return -1;
}

static int remember(const struct cache *cache, const char *id, const char *hex, struct error *err)
{
	CLEANUP_CLOSE int lock = -1;
	json_t *memo;
	int result;

	if (cache_lock(&lock, cache, CACHE_DIGEST_LOCK, LOCK_EX, err) < 0)
		return -1;
	memo = read_memo(cache);
	json_object_set_new(memo, id, json_string(hex));
	forget_oldest(memo);
	result = write_memo(cache, memo, err);
	json_decref(memo);
	return result;
}

static char *recall(const struct cache *cache, const char *id)
{
	json_t *memo = read_memo(cache);
	const char *hex = json_string_value(json_object_get(memo, id));
	char *found = is_sha256(hex) ? str_copy(hex) : NULL;

	json_decref(memo);
	return found;
}

int cache_digest_file(struct cache *cache, const char *path, const atomic_bool *stop,
                      char **ret_hex, struct error *err)
{
	CLEANUP_ERROR struct error why = ERROR_INIT;
	CLEANUP_FREE char *before = NULL;
	CLEANUP_FREE char *after = NULL;
	CLEANUP_FREE char *hex = NULL;
	struct stat st;
	bool settled;

	if (cache->fd < 0 || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return digest_file_until(path, "SHA256", stop, ret_hex, err);
	before = identity(&st);
	settled = is_settled(&st);
	hex = settled ? recall(cache, before) : NULL;
	if (hex) {
		log_detail(cache->log, "the digest of '%s' is remembered", path);
		*ret_hex = STEAL(hex);
		return 0;
	}
	if (digest_file_until(path, "SHA256", stop, &hex, err) < 0)
		return -1;
	after = stat(path, &st) == 0 ? identity(&st) : NULL;
	if (settled && str_equal(before, after) && remember(cache, before, hex, &why) < 0)
		log_detail(cache->log, "cannot remember the digest of '%s': %s, ignoring", path,
		           why.message);
	*ret_hex = STEAL(hex);
	return 0;
}
