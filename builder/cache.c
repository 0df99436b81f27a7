/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache's directory, and reading. Data and JSON get their names together under the lock
 * (cache-put.c), and a reader opens both together: what it holds then belongs together.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "cache-internal.h"
#include "workdir.h"

#define DEFAULT_BYTES (10ull << 30)
#define RESULTS       "results"

/* An entry that is being read. Descriptors are -1 if not open. */
struct entry {
	int json_fd, data_fd;
	json_t *json;
	const char *sha256; /* in json */
	bool damaged;       /* not what we wrote: it goes */
};

static void entry_close(struct entry *e)
{
	cleanup_close(&e->json_fd);
	cleanup_close(&e->data_fd);
	json_decref(e->json);
}
#define CLEANUP_ENTRY CLEANUP(entry_close)

/* --- The directory --- */

/* The user may have made it a link to a larger disk; what we make in it is no link. */
static int open_top(int *ret, const char *dir, bool make, struct error *err)
{
	CLEANUP_FREE char *parent = str_copy(dir);
	char *slash = strrchr(parent, '/');
	CLEANUP_CLOSE int fd = -1;
	struct stat st;

	if (make && slash && slash > parent) {
		*slash = '\0';
		if (workdir_make_parents(parent, err) < 0)
			return -1;
	}
	if (make && mkdir(dir, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make the directory '%s'", dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open the directory '%s'", dir);
	if (st.st_uid != geteuid() && st.st_uid != 0) {
		error_hint(err, "choose another with --cache-dir=DIR");
		return error_set(err, "the directory '%s' belongs to another user (uid %u)", dir,
		                 (unsigned)st.st_uid);
	}
	*ret = steal_fd(&fd);
	return 0;
}

int cache_open_results(struct cache *cache, bool make, struct error *err)
{
	CLEANUP_CLOSE int top = -1;

	if (open_top(&top, cache->dir, make, err) < 0)
		return -1;
	return cache_open_dir(&cache->fd, top, RESULTS, cache->path, make, err);
}

int cache_open(struct cache **ret, const char *dir, uint64_t max_bytes, bool disabled,
               struct log *log, struct error *err)
{
	struct cache *cache = mem_alloc(sizeof(*cache));
	CLEANUP_ERROR struct error why = ERROR_INIT;

	(void)err;
	cache->dir = str_copy(dir);
	cache->path = str_format("%s/" RESULTS, dir);
	cache->fd = -1;
	cache->max_bytes = max_bytes ? max_bytes : DEFAULT_BYTES;
	cache->log = log;
	if (!disabled && cache_open_results(cache, true, &why) < 0)
		log_warn(log, "no results are kept or taken: %s%s%s%s", why.message,
		         why.hint ? " (" : "", why.hint ? why.hint : "", why.hint ? ")" : "");
	*ret = cache;
	return 0;
}

void cache_close(struct cache *cache)
{
	if (!cache)
		return;
	cleanup_close(&cache->fd);
	free(cache->dir);
	free(cache->path);
	free(cache);
}

/* --- Reading --- */

static bool text_is(const json_t *json, const char *name, const char *want)
{
	return str_equal(json_string_value(json_object_get(json, name)), want);
}

static bool describes(const json_t *json, struct cache_key *key, off_t size)
{
	const json_t *its_size = json_object_get(json, "size");
	const json_t *meta = json_object_get(json, "meta");

	return json_integer_value(json_object_get(json, "format")) == CACHE_FORMAT &&
	       text_is(json, "kind", key->kind) && text_is(json, "key", cache_key_hex(key)) &&
	       json_is_integer(its_size) && json_integer_value(its_size) == size &&
	       json_is_string(json_object_get(json, "sha256")) && (!meta || !json_is_null(meta));
}

/* 1, 0: not there, -1. */
static int open_files(struct entry *e, int kind_fd, struct cache_key *key, const char *shown,
                      struct error *err)
{
	CLEANUP_FREE char *json_name = cache_file_name(key, "json");
	CLEANUP_FREE char *data_name = cache_file_name(key, "data");
	struct stat json_st, data_st;
	int result = cache_open_file(&e->json_fd, kind_fd, json_name, shown, &json_st, err);

	if (result <= 0)
		return result;
	result = cache_open_file(&e->data_fd, kind_fd, data_name, shown, &data_st, err);
	if (result == 0)
		return error_set(err, "its data is missing");
	if (result < 0 || cache_read_json(&e->json, e->json_fd, shown, err) < 0)
		return -1;
	if (!describes(e->json, key, data_st.st_size))
		return error_set(err, "its data is not of the size, or its JSON not of the form, "
		                      "that was written");
	e->sha256 = json_string_value(json_object_get(e->json, "sha256"));
	return 1;
}

/* 1, 0: not there, -1. */
static int open_entry(struct entry *e, const struct cache *cache, struct cache_key *key,
                      const char *shown, struct error *err)
{
	CLEANUP_FREE char *kind_path = str_format("%s/%s", cache->path, key->kind);
	CLEANUP_CLOSE int lock = -1, kind_fd = -1;
	int result;

	if (faccessat(cache->fd, key->kind, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
		return 0;
	if (cache_open_dir(&kind_fd, cache->fd, key->kind, kind_path, false, err) < 0 ||
	    cache_lock_to_read(&lock, cache, err) < 0)
		return -1;
	result = open_files(e, kind_fd, key, shown, err);
	e->damaged = result < 0;
	return result;
}

/* Unless another process has put a new one there since. */
static void remove_damaged(const struct cache *cache, struct cache_key *key, const struct entry *e)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *json_name = cache_file_name(key, "json");
	CLEANUP_FREE char *data_name = cache_file_name(key, "data");
	CLEANUP_CLOSE int lock = -1, kind_fd = -1;
	struct stat now, ours;

	if (cache_lock(&lock, cache, CACHE_LOCK, LOCK_EX, &ignored) < 0 ||
	    cache_open_dir(&kind_fd, cache->fd, key->kind, key->kind, false, &ignored) < 0)
		return;
	if (e->json_fd >= 0 && fstat(e->json_fd, &ours) == 0 &&
	    fstatat(kind_fd, json_name, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
	    (now.st_dev != ours.st_dev || now.st_ino != ours.st_ino))
		return;
	unlinkat(kind_fd, json_name, 0);
	unlinkat(kind_fd, data_name, 0);
}

/* 1, 0: the entry is no good, -1: 'to' cannot be written. */
static int copy_out(struct entry *e, const char *to, struct error *bad, struct error *err)
{
	CLEANUP_CLOSE int fd = open(to, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	CLEANUP_FREE char *hex = NULL;
	CLEANUP_ERROR struct error why = ERROR_INIT;
	enum cache_copied copied;

	if (fd < 0)
		return error_errno(err, errno, "cannot make '%s'", to);
	copied = cache_copy(e->data_fd, fd, &hex, &why);
	if (copied == CACHE_COPIED && str_equal(hex, e->sha256)) {
		if (close(steal_fd(&fd)) == 0)
			return 1;
		error_errno(err, errno, "cannot write '%s'", to);
		unlink(to);
		return -1;
	}
	unlink(to);
	if (copied == CACHE_TARGET_BAD) {
		error_take(err, &why);
		error_prefix(err, "cannot take '%s' out of the cache", to);
		return error_code(err, EXIT_HOST);
	}
	e->damaged = true;
	if (copied == CACHE_SOURCE_BAD)
		error_take(bad, &why);
	else
		error_set(bad, "its digest is %s, but %s was written", hex, e->sha256);
	return 0;
}

static bool can_use(const struct cache *cache, const struct cache_key *key)
{
	if (cache->fd >= 0 && key->unusable)
		log_detail(cache->log, "the cache is not asked for '%s': %s", key->kind,
		           key->unusable);
	return cache->fd >= 0 && !key->unusable;
}

int cache_get(struct cache *cache, struct cache_key *key, const char *to, json_t **ret_meta,
              struct error *err)
{
	CLEANUP_ENTRY struct entry e = {.json_fd = -1, .data_fd = -1};
	CLEANUP_ERROR struct error bad = ERROR_INIT;
	CLEANUP_FREE char *shown = NULL;
	int result;

	if (!can_use(cache, key))
		return 0;
	shown = str_format("%s/%s/%s", cache->path, key->kind, cache_key_hex(key));
	result = open_entry(&e, cache, key, shown, &bad);
	if (result == 1)
		result = copy_out(&e, to, &bad, err);
	else if (result < 0)
		result = 0;
	if (bad.message)
		log_warn(cache->log, "the cached '%s' cannot be used%s: %s", shown,
		         e.damaged ? " and is removed" : "", bad.message);
	if (e.damaged)
		remove_damaged(cache, key, &e);
	if (result != 1)
		return result;
	/* Not the access time: file systems are mounted without. */
	if (futimens(e.json_fd, NULL) < 0)
		log_detail(cache->log, "cannot note the use of '%s': %s, ignoring", shown,
		           strerror(errno));
	log_detail(cache->log, "'%s' is in the cache", shown);
	if (ret_meta)
		*ret_meta = json_incref(json_object_get(e.json, "meta"));
	return 1;
}
