/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting and pruning of results, both under the lock. The oldest use goes first; beside that,
 * whatever a process that is no more has left half done.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "cache-internal.h"

#define KEY_HEX         64
#define LEFT_AFTER_S    86400
#define TEMPORARY_AFTER ".tmp"

DEFINE_CLEANUP(closedir, DIR *, closedir)
#define CLEANUP_DIR CLEANUP(cleanup_closedir)

/* What one look at the results does. */
struct scan {
	const struct cache *cache;
	const char *kind; /* only this one; NULL: all */
	bool with_inputs;
	bool tidy; /* remove leftovers */
	struct cache_items *found;
};

static DIR *list_dir(int fd)
{
	int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = own >= 0 ? fdopendir(own) : NULL;

	if (!dir && own >= 0)
		close(own);
	return dir;
}

/* "<key>.json" or "<key>.data" */
static bool is_entry_name(const char *name, const char *suffix)
{
	return strlen(name) == KEY_HEX + strlen(suffix) && str_ends(name, suffix) &&
	       strspn(name, "0123456789abcdef") == KEY_HEX;
}

/*
 * The writer holds a lock on its temporary file. Its process id would tell nothing: it may be of
 * another container. Where locks do not work, age tells.
 */
static bool is_left_behind(int dir_fd, const char *name, bool made_under_lock)
{
	CLEANUP_CLOSE int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;
	bool old;

	if (fd < 0)
		return errno == ELOOP;
	if (fstat(fd, &st) < 0)
		return false;
	old = st.st_mtime < time(NULL) - LEFT_AFTER_S;
	if (flock(fd, LOCK_EX | LOCK_NB) == 0)
		return made_under_lock || old;
	return errno != EWOULDBLOCK && old;
}

static json_t *read_inputs(int kind_fd, const char *name)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_CLOSE int fd = -1;
	json_t *json = NULL, *inputs;
	struct stat st;

	if (cache_open_file(&fd, kind_fd, name, name, &st, &ignored) != 1 ||
	    cache_read_json(&json, fd, name, &ignored) < 0)
		return NULL;
	inputs = json_object_get(json, "inputs");
	inputs = json_is_object(inputs) ? json_incref(inputs) : NULL;
	json_decref(json);
	return inputs;
}

static void take_entry(const struct scan *s, int kind_fd, const char *kind, const char *name)
{
	CLEANUP_FREE char *key = mem_copy(name, KEY_HEX);
	CLEANUP_FREE char *data = str_format("%s.data", key);
	struct stat json_st, data_st;
	struct cache_item *item;

	if (fstatat(kind_fd, name, &json_st, AT_SYMLINK_NOFOLLOW) < 0)
		return;
	if (!S_ISREG(json_st.st_mode) ||
	    fstatat(kind_fd, data, &data_st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(data_st.st_mode)) {
		if (s->tidy)
			unlinkat(kind_fd, name, 0);
		return;
	}
	item = cache_items_add(s->found);
	item->kind = str_copy(kind);
	item->path = str_format("%s/%s/%s", s->cache->path, kind, data);
	item->key = STEAL(key);
	item->size_bytes = (uint64_t)json_st.st_size + (uint64_t)data_st.st_size;
	item->used = json_st.st_mtim.tv_sec;
	item->used_ns = json_st.st_mtim.tv_nsec;
	item->is_result = true;
	item->inputs = s->with_inputs ? read_inputs(kind_fd, name) : NULL;
}

static bool is_orphan(int kind_fd, const char *data_name)
{
	CLEANUP_FREE char *json = str_format("%.*s.json", KEY_HEX, data_name);

	return faccessat(kind_fd, json, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static void scan_kind(const struct scan *s, const char *kind)
{
	CLEANUP_FREE char *shown = str_format("%s/%s", s->cache->path, kind);
	CLEANUP_ERROR struct error why = ERROR_INIT;
	CLEANUP_CLOSE int fd = -1;
	CLEANUP_DIR DIR *dir = NULL;
	struct dirent *entry;

	if (cache_open_dir(&fd, s->cache->fd, kind, shown, false, &why) < 0) {
		log_detail(s->cache->log, "%s, ignoring", why.message);
		return;
	}
	dir = list_dir(fd);
	while (dir && (entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (is_entry_name(name, ".json"))
			take_entry(s, fd, kind, name);
		else if (s->tidy &&
		         (is_entry_name(name, ".data") ? is_orphan(fd, name)
		                                       : str_ends(name, TEMPORARY_AFTER) &&
		                                                 is_left_behind(fd, name, true)))
			unlinkat(fd, name, 0);
	}
}

static int scan(const struct scan *s, struct error *err)
{
	CLEANUP_DIR DIR *dir = list_dir(s->cache->fd);
	struct dirent *entry;

	if (!dir)
		return error_errno(err, errno, "cannot list '%s'", s->cache->path);
	while ((entry = readdir(dir))) {
		const char *name = entry->d_name;

		if (str_ends(name, TEMPORARY_AFTER)) {
			if (s->tidy && is_left_behind(s->cache->fd, name, false))
				unlinkat(s->cache->fd, name, 0);
		} else if (cache_good_kind(name) && (!s->kind || str_equal(s->kind, name))) {
			scan_kind(s, name);
		}
	}
	cache_items_sort(s->found, 0);
	return 0;
}

static int remove_entry(const struct cache *cache, const struct cache_item *item, struct error *err)
{
	CLEANUP_FREE char *json = str_format("%s.json", item->key);
	CLEANUP_FREE char *data = str_format("%s.data", item->key);
	CLEANUP_CLOSE int fd = -1;

	if (cache_open_dir(&fd, cache->fd, item->kind, item->kind, false, err) < 0)
		return -1;
	/* The JSON first: data without it is nothing. */
	if ((unlinkat(fd, json, 0) < 0 && errno != ENOENT) ||
	    (unlinkat(fd, data, 0) < 0 && errno != ENOENT)) {
		error_errno(err, errno, "cannot remove '%s'", item->path);
		return error_code(err, EXIT_HOST);
	}
	return 0;
}

static uint64_t sum(const struct cache_items *list)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < list->count; i++)
		bytes += list->items[i].size_bytes;
	return bytes;
}

static void move_item(struct cache_items *to, struct cache_item *item)
{
	*cache_items_add(to) = *item;
	*item = (struct cache_item){0};
}

static int prune(struct cache *cache, const char *kind, uint64_t max_bytes,
                 const struct cache_key *keep, struct cache_items *ret_removed, struct error *err)
{
	CLEANUP_CACHE_ITEMS struct cache_items found = {0};
	const struct scan s = {.cache = cache, .kind = kind, .tidy = true, .found = &found};
	uint64_t bytes;

	if (scan(&s, err) < 0)
		return -1;
	bytes = sum(&found);
	for (size_t i = 0; i < found.count && bytes > max_bytes; i++) {
		struct cache_item *item = &found.items[i];
		uint64_t size = item->size_bytes;

		if (keep && str_equal(item->key, keep->hex) && str_equal(item->kind, keep->kind))
			continue;
		if (remove_entry(cache, item, err) < 0)
			return -1;
		bytes -= size;
		log_detail(cache->log, "pruned from the cache: '%s'", item->path);
		if (ret_removed)
			move_item(ret_removed, item);
	}
	return 0;
}

int cache_prune(struct cache *cache, const char *kind, uint64_t max_bytes,
                struct cache_items *ret_removed, struct error *err)
{
	CLEANUP_CLOSE int lock = -1;

	if (cache->fd < 0)
		return 0;
	if (cache_lock(&lock, cache, CACHE_LOCK, LOCK_EX, err) < 0)
		return error_code(err, EXIT_HOST);
	return prune(cache, kind, max_bytes, NULL, ret_removed, err);
}

int cache_prune_locked(struct cache *cache, const struct cache_key *keep, struct error *err)
{
	return prune(cache, NULL, cache->max_bytes, keep, NULL, err);
}

int cache_list(struct cache *cache, bool with_inputs, struct cache_items *ret, struct error *err)
{
	const struct scan s = {.cache = cache, .with_inputs = with_inputs, .found = ret};
	CLEANUP_CLOSE int lock = -1;

	if (cache->fd < 0)
		return 0;
	if (cache_lock_to_read(&lock, cache, err) < 0)
		return error_code(err, EXIT_HOST);
	return scan(&s, err);
}
