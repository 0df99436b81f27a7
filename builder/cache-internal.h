/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the cache share: keys (cache-key.c), entries (cache.c, cache-put.c), files that
 * no other user may have made (cache-file.c), the bound (cache-prune.c), remembered digests
 * (cache-digest.c), what other parts keep in the directory (cache-shelf.c).
 */
#ifndef GPUIMG_CACHE_INTERNAL_H
#define GPUIMG_CACHE_INTERNAL_H

#include <sys/stat.h>
#include <time.h>

#include "cache.h"

#define CACHE_FORMAT      1       /* of keys and entries: a new one makes the old ones unknown */
#define CACHE_LOCK        ".lock" /* held for renames, removals and counting */
#define CACHE_DIGESTS     "digests.json" /* in the directory of results, which is ours alone */
#define CACHE_DIGEST_LOCK ".digests.lock"
#define CACHE_JSON_MAX    (4u << 20)

struct cache {
	char *dir;  /* the cache directory */
	char *path; /* the results in it */
	int fd;     /* of the results; -1: disabled */
	uint64_t max_bytes;
	struct log *log;
};

struct cache_key {
	char *kind;
	unsigned char *bytes; /* what is digested */
	size_t size;
	json_t *inputs; /* for people */
	char *hex;      /* NULL until asked for */
	char *unusable; /* why nothing can be kept under this key; NULL: it can */
};

/* cache-key.c: of an entry's file, in the directory of its kind. */
char *cache_file_name(struct cache_key *key, const char *suffix);

/* cache-file.c. 'at' and 'name' say where, 'shown' is for messages. */

/* A directory that is no link and belongs to us or root; no other user may write into it. */
int cache_open_dir(int *ret, int at, const char *name, const char *shown, bool make,
                   struct error *err);
/* A regular file of us or root. 1, 0: not there, -1. */
int cache_open_file(int *ret, int at, const char *name, const char *shown, struct stat *st,
                    struct error *err);
/* A new file, locked by us as long as it is open: so prune knows that its writer lives. */
int cache_make_temporary(int *ret, char **ret_name, int at, const char *shown, struct error *err);
/* operation: LOCK_SH or LOCK_EX; waits for some seconds. Ends when *ret is closed. */
int cache_lock(int *ret, const struct cache *cache, const char *name, int operation,
               struct error *err);
/* The shared CACHE_LOCK. Where nobody can write, nobody renames: then *ret may stay -1. */
int cache_lock_to_read(int *ret, const struct cache *cache, struct error *err);
/* The whole file as one JSON object. */
int cache_read_json(json_t **ret, int fd, const char *shown, struct error *err);
int cache_write_json(int fd, const json_t *json, const char *shown, struct error *err);
/* Opens the results; with 'make' after making them. */
int cache_open_results(struct cache *cache, bool make, struct error *err);

enum cache_copied { CACHE_COPIED, CACHE_SOURCE_BAD, CACHE_TARGET_BAD };
/* Whether 'to' shares the content of 'from' now. */
bool cache_clone(int from, int to);
/* By reflink, else byte by byte; *ret_hex is the digest of what 'to' holds then. */
enum cache_copied cache_copy(int from, int to, char **ret_hex, struct error *err);

/* A kind or key as part of a file's name. */
bool cache_good_kind(const char *kind);

/*
 * What lies in the cache directory: results, and what other parts keep there.
 */
struct cache_item {
	char *kind;
	char *key;  /* of a result; else the name of the file */
	char *path; /* for people, and to find what is not a result */
	uint64_t size_bytes;
	int64_t used; /* seconds since the epoch */
	long used_ns; /* beyond those */
	bool is_result;
	json_t *inputs; /* of a result; may be NULL */
};

struct cache_items {
	struct cache_item *items;
	size_t count;
};

struct cache_item *cache_items_add(struct cache_items *list);
/* Oldest use first, from this index on. */
void cache_items_sort(struct cache_items *list, size_t from);
void cache_items_free(struct cache_items *list);
#define CLEANUP_CACHE_ITEMS CLEANUP(cache_items_free)
/* What a result was made from, in at most some sixty letters; owned by the caller. */
char *cache_item_label(const struct cache_item *item);

/* cache-prune.c */
/* Oldest use first; inputs are read only if asked for. A disabled cache has none. */
int cache_list(struct cache *cache, bool with_inputs, struct cache_items *ret, struct error *err);
/*
 * Removes results, oldest use first, until those of 'kind' (NULL: all) are at most max_bytes,
 * and what dead processes left. ret_removed (may be NULL) gets them. The caller holds no lock.
 */
int cache_prune(struct cache *cache, const char *kind, uint64_t max_bytes,
                struct cache_items *ret_removed, struct error *err);
/* The same to the cache's bound, under a lock that the caller holds; the entry 'keep' stays. */
int cache_prune_locked(struct cache *cache, const struct cache_key *keep, struct error *err);

/* cache-shelf.c */
void cache_list_shelf(const char *dir, struct cache_items *ret);
/* 1: gone, 0: in use, so it stays, -1. */
int cache_remove_from_shelf(const struct cache_item *item, struct error *err);

#endif
