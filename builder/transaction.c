/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file: zstd over a head (a line that says what it is, the bytes of a list, the list of paths
 * to be removed, each ended by a NUL) and the tar of what is new or changed. Paths are bytes, which
 * JSON does not take; so the list is not in the entry's meta.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "changes-digest.h"
#include "fd.h"
#include "reuse-internal.h"
#include "transaction.h"
#include "zstd-pipe.h"

#define HEAD_FORMAT    "gpuimg transaction 1 %020zu\n"
#define HEAD_BYTES     42
#define LIST_MAX_BYTES ((size_t)64 << 20)
/* 1.1 GB of libraries: 299 MB, and 339 MB at level 1, in the same 5 s. */
#define LEVEL           3
#define MACHINE_ID_PATH "/etc/machine-id"

void reuse_transaction_free(struct reuse_transaction *t)
{
	cache_key_free(t->key);
	strv_free(&t->before);
	*t = (struct reuse_transaction){0};
}

/* --- What changed, and the key --- */

/* New in each build, and of no use to another. */
static bool is_of_this_build(const char *path)
{
	return str_equal(path, MACHINE_ID_PATH) || str_equal(path, APT_DIR) ||
	       str_below(path, APT_DIR);
}

/* Nothing that is installed depends on these, and they hold times and inode numbers; what an older
 * driver's removal left there is no reason to do all anew. */
static bool is_without_effect(const char *path)
{
	static const char *const dirs[] = {"/var/log", "/var/cache/ldconfig", "/var/cache/apt"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (str_equal(path, dirs[i]) || str_below(path, dirs[i]))
			return true;
	return false;
}

static void drop(struct strv *paths, bool (*is_dropped)(const char *path))
{
	for (size_t i = paths->count; i-- > 0;)
		if (is_dropped(paths->items[i]))
			strv_remove(paths, i);
}

static int get_changes(const struct build *b, struct strv *changed, struct strv *removed,
                       struct error *err)
{
	if (tree_changes(b->tree, changed, removed, err) < 0)
		return -1;
	drop(changed, is_of_this_build);
	drop(removed, is_of_this_build);
	return 0;
}

/* "branch=535" as an input of its own: 'gpuimg cache ls' shows the first ones. */
static void add_line(struct cache_key *key, const char *line)
{
	const char *equals = strchr(line, '=');
	CLEANUP_FREE char *name = mem_copy(line, equals ? (size_t)(equals - line) : strlen(line));

	cache_key_add(key, name, equals ? equals + 1 : NULL);
}

static int make_key(struct cache_key **ret, const struct build *b, const char *name,
                    const struct strv *inputs, const char *changes, struct error *err)
{
	CLEANUP_CACHE_KEY struct cache_key *key = cache_key_new(name);

	cache_key_add_int(key, "inputs", (int64_t)inputs->count);
	for (size_t i = 0; i < inputs->count; i++)
		add_line(key, inputs->items[i]);
	cache_key_add(key, "base", b->base_digest);
	cache_key_add(key, "changes", changes);
	cache_key_add_int(key, "source_date_epoch", b->source_date_epoch);
	cache_key_add_int(key, "clamp_times", b->clamp_times);
	if (reuse_add_sandbox(key, b, err) < 0)
		return -1;
	*ret = STEAL(key);
	return 0;
}

/* What is there before the transaction is remembered until it is kept. */
static int begin(struct build *b, const char *name, const struct strv *inputs, struct error *err)
{
	struct reuse_transaction *t = &reuse_of(b)->transaction;
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_STRV struct strv removed = {0};
	CLEANUP_FREE char *digest = NULL;

	reuse_transaction_free(t);
	if (get_changes(b, &changed, &removed, err) < 0)
		return -1;
	strv_add_all(&t->before, &changed);
	drop(&changed, is_without_effect);
	drop(&removed, is_without_effect);
	if (changes_digest(&digest, b->tree, &changed, &removed, err) < 0)
		return -1;
	return make_key(&t->key, b, name, inputs, digest, err);
}

/* --- Taking it --- */

/* 0, or -1: it ends before that. */
static int read_exactly(int fd, char *to, size_t size)
{
	while (size > 0) {
		ssize_t n = read(fd, to, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		to += n;
		size -= (size_t)n;
	}
	return 0;
}

static int garbled(struct error *err)
{
	return error_set(err, "the list of removed files is garbled");
}

/* The removed paths, from the head; what follows it is the tar. */
static int read_head(int fd, struct strv *ret, struct error *err)
{
	char head[HEAD_BYTES + 1] = "";
	CLEANUP_FREE char *list = NULL;
	CLEANUP_FREE char *again = NULL;
	size_t size;

	if (read_exactly(fd, head, HEAD_BYTES) < 0 || sscanf(head, HEAD_FORMAT, &size) != 1)
		return garbled(err);
	again = str_format(HEAD_FORMAT, size);
	if (!str_equal(again, head) || size > LIST_MAX_BYTES)
		return garbled(err);
	list = mem_alloc(size + 1);
	if (read_exactly(fd, list, size) < 0 || (size > 0 && list[size - 1]))
		return garbled(err);
	for (const char *at = list; at < list + size; at += strlen(at) + 1) {
		if (at[0] != '/' || !at[1])
			return garbled(err);
		strv_add(ret, at);
	}
	return 0;
}

static int remove_paths(const struct build *b, const struct strv *removed, struct error *err)
{
	for (size_t i = 0; i < removed->count; i++)
		if (rootfs_remove(b->root, removed->items[i], err) < 0)
			return -1;
	return 0;
}

static int unpack(const struct build *b, int fd, uint64_t max_bytes, struct error *err)
{
	CLEANUP_STRV struct strv removed = {0};

	if (read_head(fd, &removed, err) < 0 || remove_paths(b, &removed, err) < 0)
		return -1;
	return tree_apply_tar(b->tree, fd, max_bytes, err);
}

static int restore(const struct build *b, const char *copy, const json_t *meta, struct error *err)
{
	const json_int_t bytes = json_integer_value(json_object_get(meta, "bytes"));
	CLEANUP_CLOSE int file = open(copy, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	CLEANUP_ERROR struct error why = ERROR_INIT;
	struct zstd_pipe *pipe = NULL;
	int result;

	if (file < 0)
		return error_errno(err, errno, "cannot read '%s'", copy);
	if (zstd_pipe_expand(&pipe, file, copy, err) < 0)
		return -1;
	result = unpack(b, zstd_pipe_fd(pipe), bytes > 0 ? (uint64_t)bytes : 0, err);
	/* Where it was cut off, that is the reason for what the tar's reader says. */
	if (zstd_pipe_end(pipe, &why) < 0)
		result = error_take(err, &why);
	return result;
}

static int take(struct build *b, const char *copy, const json_t *meta, struct error *err)
{
	/* Its own files are none that the result knows. */
	if (build_close_apt(b, err) < 0)
		return -1;
	if (restore(b, copy, meta, err) == 0)
		return 0;
	error_prefix(err, "cannot take over what an earlier build has installed");
	return error_hint(err, "--no-cache installs it anew");
}

int transaction_reuse(struct build *b, const char *name, const struct strv *inputs,
                      struct error *err)
{
	CLEANUP_FREE char *copy = str_format("%s/cached-%s", b->work_dir, name);
	struct reuse_transaction *t;
	json_t *meta = NULL;
	int found;

	if (!b->sandbox || !b->options->cache)
		return 0;
	t = &reuse_of(b)->transaction;
	if (begin(b, name, inputs, err) < 0)
		return -1;
	found = cache_get(b->cache, t->key, copy, &meta, err);
	if (found == 1 && take(b, copy, meta, err) < 0)
		found = -1;
	if (found != 0) {
		unlink(copy);
		reuse_transaction_free(t);
	}
	json_decref(meta);
	return found;
}

/* --- Keeping it --- */

/*
 * What was changed before and is not among the changes any more: removed, though the base never had
 * it; or a directory that is again as the base has it.
 */
static int add_taken_back(const struct build *b, const struct strv *before, struct strv *changed,
                          struct strv *removed, struct error *err)
{
	CLEANUP_STRV struct strv back = {0};
	struct rootfs_stat st;

	for (size_t i = 0; i < before->count; i++) {
		const char *path = before->items[i];
		int there;

		if (strv_has(changed, path) || strv_has(removed, path))
			continue;
		there = rootfs_lstat(b->root, path, &st, err);
		if (there < 0)
			return -1;
		strv_add(there ? &back : removed, path);
	}
	strv_add_all(changed, &back);
	strv_sort(changed);
	return 0;
}

/* Of the files, holes too: no more than this will come out of the tar again. */
static int sum_bytes(const struct build *b, const struct strv *changed, uint64_t *ret,
                     struct error *err)
{
	struct rootfs_stat st;

	*ret = 0;
	for (size_t i = 0; i < changed->count; i++) {
		int found = rootfs_lstat(b->root, changed->items[i], &st, err);

		if (found < 0)
			return -1;
		if (found == 1 && S_ISREG(st.mode) &&
		    __builtin_add_overflow(*ret, st.size_bytes, ret))
			return error_set(err, "'%s' is too large", changed->items[i]);
	}
	return 0;
}

static int write_head(int fd, const struct strv *removed, struct error *err)
{
	CLEANUP_FREE char *head = NULL;
	size_t size = 0;

	for (size_t i = 0; i < removed->count; i++)
		size += strlen(removed->items[i]) + 1;
	if (size > LIST_MAX_BYTES)
		return error_set(err, "too many files were removed");
	head = str_format(HEAD_FORMAT, size);
	if (fd_write_all(fd, head, HEAD_BYTES) < 0)
		return error_errno(err, errno, "cannot write the list of removed files");
	for (size_t i = 0; i < removed->count; i++)
		if (fd_write_all(fd, removed->items[i], strlen(removed->items[i]) + 1) < 0)
			return error_errno(err, errno, "cannot write the list of removed files");
	return 0;
}

static int pack(const struct build *b, const char *path, const struct strv *changed,
                const struct strv *removed, struct error *err)
{
	CLEANUP_CLOSE int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CLEANUP_ERROR struct error why = ERROR_INIT;
	struct zstd_pipe *pipe = NULL;
	int result;

	if (file < 0)
		return error_errno(err, errno, "cannot make '%s'", path);
	if (zstd_pipe_compress(&pipe, file, LEVEL, path, err) < 0)
		return -1;
	result = write_head(zstd_pipe_fd(pipe), removed, err);
	if (result == 0)
		result = tree_write_tar(b->tree, changed, zstd_pipe_fd(pipe), err);
	if (zstd_pipe_end(pipe, &why) < 0 && result == 0)
		result = error_take(err, &why);
	return result;
}

static int make_copy(struct build *b, const struct strv *before, struct pending *p,
                     struct error *err)
{
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_STRV struct strv removed = {0};
	uint64_t bytes;

	if (get_changes(b, &changed, &removed, err) < 0 ||
	    add_taken_back(b, before, &changed, &removed, err) < 0 ||
	    sum_bytes(b, &changed, &bytes, err) < 0 ||
	    pack(b, p->path, &changed, &removed, err) < 0)
		return -1;
	p->meta = json_pack("{s:I}", "bytes", (json_int_t)bytes);
	return 0;
}

void transaction_keep(struct build *b)
{
	struct reuse_transaction *t = b->reuse ? &b->reuse->transaction : NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct pending p = {0};

	if (!t || !t->key)
		return;
	p.key = STEAL(t->key);
	p.path = str_format("%s/keep-transaction", b->work_dir);
	if (make_copy(b, &t->before, &p, &err) == 0)
		reuse_add_pending(b, &p);
	else
		log_warn(b->log, "cannot remember what was installed: %s, ignoring", err.message);
	reuse_pending_free(&p);
	reuse_transaction_free(t);
}
