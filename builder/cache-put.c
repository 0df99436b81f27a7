/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing. Data and JSON are written under temporary names, which are locked as long as we live,
 * and brought to the disk; then both get their names under the cache's lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "cache-internal.h"

/* A new entry on its way: temporary files, locked by us. */
struct draft {
	int kind_fd, data_fd, json_fd;
	char *kind_path, *data_name, *json_name; /* names: NULL once renamed */
};

static void draft_end(struct draft *d)
{
	if (d->data_name)
		unlinkat(d->kind_fd, d->data_name, 0);
	if (d->json_name)
		unlinkat(d->kind_fd, d->json_name, 0);
	cleanup_close(&d->data_fd);
	cleanup_close(&d->json_fd);
	cleanup_close(&d->kind_fd);
	free(d->kind_path);
	free(d->data_name);
	free(d->json_name);
}
#define CLEANUP_DRAFT CLEANUP(draft_end)

/* Under the lock: a prune must not meet a file between its making and its locking. */
static int draft_begin(struct draft *d, const struct cache *cache, const char *kind,
                       struct error *err)
{
	CLEANUP_CLOSE int lock = -1;

	d->kind_path = str_format("%s/%s", cache->path, kind);
	if (cache_lock(&lock, cache, CACHE_LOCK, LOCK_EX, err) < 0 ||
	    cache_open_dir(&d->kind_fd, cache->fd, kind, d->kind_path, true, err) < 0 ||
	    cache_make_temporary(&d->data_fd, &d->data_name, d->kind_fd, d->kind_path, err) < 0 ||
	    cache_make_temporary(&d->json_fd, &d->json_name, d->kind_fd, d->kind_path, err) < 0)
		return -1;
	return 0;
}

static int write_description(const struct draft *d, struct cache_key *key, const char *sha256,
                             json_t *meta, uint64_t *ret_bytes, struct error *err)
{
	struct stat data_st, json_st;
	json_t *json;
	int result;

	if (fstat(d->data_fd, &data_st) < 0)
		return error_errno(err, errno, "cannot stat the copy");
	json = json_pack("{s:i, s:s, s:s, s:I, s:s, s:I, s:O, s:O*}", "format", CACHE_FORMAT,
	                 "kind", key->kind, "key", cache_key_hex(key), "size",
	                 (json_int_t)data_st.st_size, "sha256", sha256, "created",
	                 (json_int_t)time(NULL), "inputs", key->inputs, "meta", meta);
	if (!json)
		return error_set(err, "cannot describe it as JSON");
	result = cache_write_json(d->json_fd, json, d->kind_path, err);
	json_decref(json);
	if (result < 0)
		return -1;
	if (fstat(d->json_fd, &json_st) < 0)
		return error_errno(err, errno, "cannot stat the description");
	*ret_bytes = (uint64_t)data_st.st_size + (uint64_t)json_st.st_size;
	return 0;
}

static int check_bound(const struct cache *cache, uint64_t bytes, struct error *err)
{
	CLEANUP_FREE char *its = str_size(bytes);
	CLEANUP_FREE char *bound = str_size(cache->max_bytes);

	if (bytes <= cache->max_bytes)
		return 0;
	error_hint(err, "--cache-size=SIZE sets the bound");
	return error_set(err, "it alone (%s) is larger than the cache may be (%s)", its, bound);
}

static int give_names(struct draft *d, struct cache_key *key, struct error *err)
{
	CLEANUP_FREE char *json_name = cache_file_name(key, "json");
	CLEANUP_FREE char *data_name = cache_file_name(key, "data");

	if (renameat(d->kind_fd, d->data_name, d->kind_fd, data_name) < 0)
		return error_errno(err, errno, "cannot rename in '%s'", d->kind_path);
	free(STEAL(d->data_name));
	if (renameat(d->kind_fd, d->json_name, d->kind_fd, json_name) < 0) {
		error_errno(err, errno, "cannot rename in '%s'", d->kind_path);
		unlinkat(d->kind_fd, data_name, 0);
		return -1;
	}
	free(STEAL(d->json_name));
	if (fsync(d->kind_fd) < 0)
		return error_errno(err, errno, "cannot sync '%s'", d->kind_path);
	return 0;
}

static int publish(struct draft *d, struct cache *cache, struct cache_key *key, struct error *err)
{
	CLEANUP_ERROR struct error why = ERROR_INIT;
	CLEANUP_CLOSE int lock = -1;

	if (fsync(d->data_fd) < 0 || fsync(d->json_fd) < 0)
		return error_errno(err, errno, "cannot sync in '%s'", d->kind_path);
	if (cache_lock(&lock, cache, CACHE_LOCK, LOCK_EX, err) < 0 || give_names(d, key, err) < 0)
		return -1;
	if (cache_prune_locked(cache, key, &why) < 0)
		log_warn(cache->log, "cannot prune the cache: %s, ignoring", why.message);
	return 0;
}

static int open_source(int *ret, const char *from, uint64_t *ret_bytes, struct error *err)
{
	CLEANUP_CLOSE int fd = open(from, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open '%s'", from);
	if (!S_ISREG(st.st_mode))
		return error_set(err, "'%s' is not a regular file", from);
	*ret_bytes = (uint64_t)st.st_size;
	*ret = steal_fd(&fd);
	return 0;
}

static bool is_same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev &&
	       x.st_ino == y.st_ino;
}

/*
 * Puts a hard link in place of the temporary file. False: it has to be copied, because it lies on
 * another file system, is a symbolic link, or belongs to somebody else.
 */
static bool link_in(struct draft *d, const struct cache *cache, const char *from, int from_fd)
{
	CLEANUP_FREE char *name = str_format("%s.link.tmp", d->data_name);
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_CLOSE int lock = -1, fd = -1;
	struct stat st;

	/* As in draft_begin(): a prune must not meet it unlocked. */
	if (cache_lock(&lock, cache, CACHE_LOCK, LOCK_EX, &ignored) < 0 ||
	    linkat(AT_FDCWD, from, d->kind_fd, name, 0) < 0)
		return false;
	if (cache_open_file(&fd, d->kind_fd, name, name, &st, &ignored) != 1 ||
	    !is_same_file(fd, from_fd)) {
		unlinkat(d->kind_fd, name, 0);
		return false;
	}
	/* Where this fails, somebody else has it locked, which serves as well. */
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		log_detail(cache->log, "cannot lock '%s', ignoring", from);
	unlinkat(d->kind_fd, d->data_name, 0);
	free(d->data_name);
	d->data_name = STEAL(name);
	close(d->data_fd);
	d->data_fd = steal_fd(&fd);
	return true;
}

/* sha256: NULL if unknown, and then it is copied. */
static int put(struct cache *cache, struct cache_key *key, const char *from, const char *sha256,
               json_t *meta, struct error *err)
{
	CLEANUP_DRAFT struct draft d = {.kind_fd = -1, .data_fd = -1, .json_fd = -1};
	CLEANUP_FREE char *hex = NULL;
	CLEANUP_CLOSE int from_fd = -1;
	uint64_t bytes = 0;

	if (key->unusable)
		return error_set(err, "%s", key->unusable);
	if (open_source(&from_fd, from, &bytes, err) < 0 || check_bound(cache, bytes, err) < 0 ||
	    draft_begin(&d, cache, key->kind, err) < 0)
		return -1;
	if (sha256 && (cache_clone(from_fd, d.data_fd) || link_in(&d, cache, from, from_fd)))
		hex = str_copy(sha256);
	else if (cache_copy(from_fd, d.data_fd, &hex, err) != CACHE_COPIED)
		return -1;
	if (write_description(&d, key, hex, meta, &bytes, err) < 0 ||
	    check_bound(cache, bytes, err) < 0)
		return -1;
	return publish(&d, cache, key, err);
}

static void put_or_warn(struct cache *cache, struct cache_key *key, const char *from,
                        const char *sha256, json_t *meta)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (cache->fd < 0)
		return;
	if (put(cache, key, from, sha256, meta, &err) < 0)
		log_warn(cache->log, "the result '%s' is not kept in the cache: %s%s%s%s",
		         key->kind, err.message, err.hint ? " (" : "", err.hint ? err.hint : "",
		         err.hint ? ")" : "");
	else
		log_detail(cache->log, "kept in the cache: '%s/%s/%s'", cache->path, key->kind,
		           cache_key_hex(key));
}

void cache_put(struct cache *cache, struct cache_key *key, const char *from, json_t *meta)
{
	put_or_warn(cache, key, from, NULL, meta);
}

void cache_put_linked(struct cache *cache, struct cache_key *key, const char *from,
                      const char *sha256, json_t *meta)
{
	put_or_warn(cache, key, from, sha256, meta);
}
