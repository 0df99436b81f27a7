/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expensive results by the digest of all that they were made from. An entry is two files,
 * DIR/results/<kind>/<key>.data and <key>.json (inputs for people, size, SHA-256, time), written
 * under temporary names and renamed, the JSON last. Safe for several processes: a reader
 * has its files open before a prune can take their names. An entry whose data is not what its
 * JSON says is removed, told, and counts as missing. Nothing here is ever needed: a cache that
 * cannot be read or written costs a warning and time.
 */
#ifndef GPUIMG_CACHE_H
#define GPUIMG_CACHE_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cleanup.h"
#include "error.h"
#include "log.h"
#include "str.h"

struct cache;
struct cache_key;

/* dir: the options' cache directory, made if missing. max_bytes bounds DIR/results; 0: the
 * default, 10 GiB. disabled: every get misses, every put does nothing. Never fails: a directory
 * that cannot be used, or that belongs to another user, is told, and the cache is disabled. All
 * functions may be called from several threads, each with its own key. */
int cache_open(struct cache **ret, const char *dir, uint64_t max_bytes, bool disabled,
               struct log *log, struct error *err);
void cache_close(struct cache *cache);
DEFINE_CLEANUP(cache, struct cache *, cache_close)
#define CLEANUP_CACHE CLEANUP(cleanup_cache)

/*
 * A key: kind (lower case, digits, dashes), then named inputs, each with its length, so that no two
 * lists of inputs look alike. The program's own build (digest of the running executable) and the
 * format's version are always part of it. Beginnings of values stand in the entry's JSON, for
 * people: no secrets.
 */
struct cache_key *cache_key_new(const char *kind);
void cache_key_free(struct cache_key *key);
DEFINE_CLEANUP(cache_key, struct cache_key *, cache_key_free)
#define CLEANUP_CACHE_KEY CLEANUP(cleanup_cache_key)
void cache_key_add(struct cache_key *key, const char *name,
                   const char *value); /* NULL is a value */
void cache_key_add_int(struct cache_key *key, const char *name, int64_t value);
void cache_key_add_list(struct cache_key *key, const char *name, const struct strv *values);
/* The content's SHA-256. */
int cache_key_add_file(struct cache_key *key, const char *name, const char *path,
                       struct error *err);
/* 64 hex digits; borrowed from the key, which takes nothing more after that. */
const char *cache_key_hex(struct cache_key *key);

/*
 * 1: copied to the new file 'to' (by reflink where the file system can), its digest checked on the
 * way; *ret_meta (may be NULL; json_decref) is what was given to cache_put. 0: not there.
 * -1: 'to' cannot be written, nothing else. A hit is the entry's newest use.
 */
int cache_get(struct cache *cache, struct cache_key *key, const char *to, json_t **ret_meta,
              struct error *err);
/* Takes a copy of 'from' (which stays), with meta (borrowed; may be NULL), then prunes to the
 * bound. What fails is warned of: a build does not fail for it. */
void cache_put(struct cache *cache, struct cache_key *key, const char *from, json_t *meta);
/* The same for a large file that is done: taken by reflink, else as a hard link, and only then
 * copied. sha256: of its content, which the caller knows. Whoever changes 'from' later spoils the
 * entry, which the next cache_get sees by its digest. */
void cache_put_linked(struct cache *cache, struct cache_key *key, const char *from,
                      const char *sha256, json_t *meta);

/* SHA-256 of a file, remembered by device, inode, size, mtime and ctime, in DIR/digests.json or the
 * like; a file that was changed less than 2 s ago is read and not remembered. Given up when
 * another thread sets 'stop' (may be NULL). */
int cache_digest_file(struct cache *cache, const char *path, const atomic_bool *stop,
                      char **ret_hex, struct error *err);

/* Keeps 'gpuimg cache prune --all' from removing this file, until the descriptor that it returns
 * is closed. -1: it cannot be locked, which harms only if somebody prunes now. */
int cache_hold(const char *path);

#endif
