/* SPDX-License-Identifier: Apache-2.0 */
/* cache: what is kept between builds, and the way to be rid of it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cache-internal.h"
#include "command.h"

#define SHORT_KEY 12

/* --- Text --- */

static char *age_of(int64_t used)
{
	int64_t seconds = (int64_t)time(NULL) - used;

	if (seconds < 120)
		return str_format("%" PRId64 " s", seconds < 0 ? 0 : seconds);
	if (seconds < 7200)
		return str_format("%" PRId64 " min", seconds / 60);
	if (seconds < 172800)
		return str_format("%" PRId64 " h", seconds / 3600);
	return str_format("%" PRId64 " d", seconds / 86400);
}

/* Digests by their first digits, as keys. */
static const char *short_key(const struct cache_item *item)
{
	return str_starts(item->key, "sha256-") || str_starts(item->key, "sha512-")
	               ? item->key + strlen("sha256-")
	               : item->key;
}

static uint64_t sum(const struct cache_items *list, bool results_only)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].is_result || !results_only)
			bytes += list->items[i].size_bytes;
	return bytes;
}

static const char *entries(size_t count)
{
	return count == 1 ? "entry" : "entries";
}

static void print_inputs(const struct cache_item *item)
{
	const char *name;
	json_t *value;

	json_object_foreach(item->inputs, name, value)
	{
		CLEANUP_FREE char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
		CLEANUP_FREE char *text = str_printable(dumped ? dumped : "", 300);

		printf("    %s: %s\n", name, text);
	}
}

/* A result by its inputs, all else by its place in the cache directory. */
static char *what_of(const struct options *o, const struct cache_item *item)
{
	size_t length = strlen(o->cache_dir);

	if (!item->is_result && str_starts(item->path, o->cache_dir) && item->path[length] == '/')
		return str_printable(item->path + length + 1, SIZE_MAX);
	return cache_item_label(item);
}

static void print_item(const struct options *o, const struct cache_item *item, bool with_inputs)
{
	CLEANUP_FREE char *size = str_size(item->size_bytes);
	CLEANUP_FREE char *age = age_of(item->used);
	CLEANUP_FREE char *label = what_of(o, item);
	CLEANUP_FREE char *key = str_printable(short_key(item), SHORT_KEY + 1);

	printf("%-14s %-12.12s %10s %8s  %s\n", item->kind, key, size, age, label);
	if (with_inputs)
		print_inputs(item);
}

/* --- JSON --- */

static json_t *item_json(const struct cache_item *item)
{
	CLEANUP_FREE char *label = cache_item_label(item);
	CLEANUP_FREE char *key = str_printable(item->key, SIZE_MAX);
	CLEANUP_FREE char *path = str_printable(item->path, SIZE_MAX);

	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:b, s:s, s:O*}", "kind", item->kind, "key",
	                 key, "path", path, "size_bytes", (json_int_t)item->size_bytes, "used",
	                 (json_int_t)item->used, "result", (int)item->is_result, "what", label,
	                 "inputs", item->inputs);
}

static json_t *items_json(const struct cache_items *list)
{
	json_t *array = json_array();

	for (size_t i = 0; i < list->count; i++)
		json_array_append_new(array, item_json(&list->items[i]));
	return array;
}

/* Takes the reference. */
static void print_json(json_t *report)
{
	CLEANUP_FREE char *text = report ? json_dumps(report, JSON_INDENT(2)) : NULL;

	puts(text ? text : "null");
	json_decref(report);
}

/* --- The actions --- */

/* Neither makes the directory: who asks what is there shall not change it. */
static int open_as_it_is(struct cache **ret, const struct options *o, struct log *log,
                         struct error *err)
{
	CLEANUP_ERROR struct error why = ERROR_INIT;

	if (cache_open(ret, o->cache_dir, o->cache_bytes, true, log, err) < 0)
		return -1;
	if (access((*ret)->path, F_OK) < 0 && errno == ENOENT)
		return 0;
	if (cache_open_results(*ret, false, &why) < 0)
		log_warn(log, "the results are left out: %s%s%s%s", why.message,
		         why.hint ? " (" : "", why.hint ? why.hint : "", why.hint ? ")" : "");
	return 0;
}

static bool is_wanted(const struct options *o, const struct cache_item *item)
{
	return !o->kind || str_equal(o->kind, item->kind);
}

/* Results, then what other parts keep, as far as wanted. */
static int list_all(const struct options *o, struct cache *cache, bool with_inputs,
                    struct cache_items *ret, struct error *err)
{
	CLEANUP_CACHE_ITEMS struct cache_items all = {0};

	if (cache_list(cache, with_inputs, &all, err) < 0)
		return -1;
	cache_list_shelf(o->cache_dir, &all);
	for (size_t i = 0; i < all.count; i++) {
		if (!is_wanted(o, &all.items[i]))
			continue;
		*cache_items_add(ret) = all.items[i];
		all.items[i] = (struct cache_item){0};
	}
	return 0;
}

static int list(const struct options *o, struct cache *cache, struct error *err)
{
	CLEANUP_CACHE_ITEMS struct cache_items found = {0};
	CLEANUP_FREE char *total = NULL;
	CLEANUP_FREE char *results = NULL;
	CLEANUP_FREE char *bound = str_size(o->cache_bytes);

	if (list_all(o, cache, true, &found, err) < 0)
		return -1;
	if (o->json) {
		print_json(json_pack("{s:s, s:I, s:I, s:I, s:o}", "directory", o->cache_dir,
		                     "total_bytes", (json_int_t)sum(&found, false), "results_bytes",
		                     (json_int_t)sum(&found, true), "bound_bytes",
		                     (json_int_t)o->cache_bytes, "entries", items_json(&found)));
		return 0;
	}
	total = str_size(sum(&found, false));
	results = str_size(sum(&found, true));
	if (found.count)
		printf("%-14s %-12s %10s %8s  %s\n", "KIND", "KEY", "SIZE", "AGE", "WHAT");
	for (size_t i = 0; i < found.count; i++)
		print_item(o, &found.items[i], o->level == LOG_VERBOSE);
	printf("%zu %s in '%s', %s; results: %s, at most %s\n", found.count, entries(found.count),
	       o->cache_dir, total, results, bound);
	return 0;
}

/* What a prune came to. */
struct outcome {
	struct cache_items removed;
	struct strv in_use;
	size_t failed;
};

static void outcome_free(struct outcome *r)
{
	cache_items_free(&r->removed);
	strv_free(&r->in_use);
}
#define CLEANUP_OUTCOME CLEANUP(outcome_free)

/* One that cannot be removed does not keep the others; 'err' is the first one's. */
static void prune_shelf(const struct options *o, struct outcome *r, struct error *err)
{
	CLEANUP_CACHE_ITEMS struct cache_items found = {0};

	cache_list_shelf(o->cache_dir, &found);
	for (size_t i = 0; i < found.count; i++) {
		CLEANUP_ERROR struct error why = ERROR_INIT;
		struct cache_item *item = &found.items[i];
		int result = is_wanted(o, item) ? cache_remove_from_shelf(item, &why) : 0;

		if (!is_wanted(o, item))
			continue;
		if (result == 1) {
			*cache_items_add(&r->removed) = *item;
			*item = (struct cache_item){0};
		} else if (result == 0) {
			strv_add(&r->in_use, item->path);
		} else if (r->failed++ == 0) {
			error_take(err, &why);
		}
	}
}

static void print_outcome(const struct options *o, const struct outcome *r, struct log *log)
{
	uint64_t bytes = sum(&r->removed, false);
	CLEANUP_FREE char *size = str_size(bytes);

	if (o->json) {
		json_t *in_use = json_array();

		for (size_t i = 0; i < r->in_use.count; i++) {
			CLEANUP_FREE char *path = str_printable(r->in_use.items[i], SIZE_MAX);

			json_array_append_new(in_use, json_string(path));
		}
		print_json(json_pack("{s:I, s:o, s:o}", "freed_bytes", (json_int_t)bytes, "removed",
		                     items_json(&r->removed), "in_use", in_use));
		return;
	}
	for (size_t i = 0; i < r->removed.count && o->level == LOG_VERBOSE; i++)
		print_item(o, &r->removed.items[i], false);
	for (size_t i = 0; i < r->in_use.count; i++)
		log_note(log, "in use, so it stays: '%s'", r->in_use.items[i]);
	printf("freed %s: %zu %s\n", size, r->removed.count, entries(r->removed.count));
}

/* Names in a directory of another user's may change while we remove by them. */
static int check_owner(const char *dir, struct error *err)
{
	struct stat st;

	if (stat(dir, &st) < 0 || st.st_uid == geteuid() || st.st_uid == 0)
		return 0;
	error_set(err, "cannot prune '%s': it belongs to another user (uid %u)", dir,
	          (unsigned)st.st_uid);
	error_hint(err, "run this as that user");
	return error_code(err, EXIT_HOST);
}

static int prune(const struct options *o, struct cache *cache, struct log *log, struct error *err)
{
	static const char *const shelf[] = {"base", "made-base", "appliance", "accelerator",
	                                    "digests"};
	CLEANUP_OUTCOME struct outcome r = {0};

	for (size_t i = 0; i < sizeof(shelf) / sizeof(shelf[0]) && !o->all; i++)
		if (str_equal(o->kind, shelf[i])) {
			error_set(err, "'%s' is no kind of result, which alone have a bound",
			          o->kind);
			error_hint(err, "pass --all to remove all of this kind");
			return error_code(err, EXIT_USAGE);
		}
	if (check_owner(o->cache_dir, err) < 0)
		return -1;
	if (cache_prune(cache, o->kind, o->all ? 0 : o->cache_bytes, &r.removed, err) < 0)
		r.failed++;
	if (o->all)
		prune_shelf(o, &r, err);
	print_outcome(o, &r, log);
	return r.failed ? -1 : 0;
}

enum exit_code command_cache(const struct options *o, struct error *err)
{
	CLEANUP_CACHE struct cache *cache = NULL;
	struct log *log = NULL;
	int result = -1;

	if (log_open(&log, NULL, o->level, err) == 0 && open_as_it_is(&cache, o, log, err) == 0)
		result = str_equal(o->action, "prune") ? prune(o, cache, log, err)
		                                       : list(o, cache, err);
	log_close(log);
	return result < 0 ? error_exit_code(err) : EXIT_OK;
}
