/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "changes-digest.h"
#include "reuse-internal.h"
#include "reuse.h"

#define DROPIN_MAX_BYTES (1UL << 20)

struct reuse *reuse_of(struct build *b)
{
	if (!b->reuse)
		b->reuse = mem_alloc(sizeof(*b->reuse));
	return b->reuse;
}

/* What comes from there is in no key. */
static bool uses_network(const struct build *b)
{
	return (b->options->network && b->options->run.count > 0) || build_uses_network_packages(b);
}

static bool has_digest(const json_t *manifest)
{
	return json_is_string(json_object_get(json_object_get(manifest, "image"), "sha256"));
}

/* An artifact like any other: readable by whom the umask lets, and on the disk before it is named.
 */
static int settle(const char *path, struct error *err)
{
	CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 || fsync(fd) < 0 ? error_errno(err, errno, "cannot write '%s'", path) : 0;
}

int reuse_image(struct build *b, const char *to, struct error *err)
{
	CLEANUP_CACHE_KEY struct cache_key *key = NULL;
	int found;

	if (uses_network(b))
		return 0;
	if (reuse_image_key(&key, b, err) < 0)
		return -1;
	found = cache_get(b->cache, key, to, &b->reused, err);
	/* Its SHA-256 was checked on the way; the manifest tells what that is. */
	if (found == 1 && !has_digest(b->reused)) {
		log_warn(b->log, "a remembered image has no manifest, ignoring");
		json_decref(STEAL(b->reused));
		unlink(to);
		return 0;
	}
	if (found == 1 && settle(to, err) < 0)
		return -1;
	if (found == 1)
		log_note(b->log, "this image was built and proven before: taken from the cache "
		                 "(--no-cache builds it anew)");
	return found;
}

void reuse_keep_image(struct build *b, const char *artifact, const char *sha256,
                      const json_t *manifest)
{
	CLEANUP_CACHE_KEY struct cache_key *key = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	json_t *meta;

	if (b->reused || uses_network(b))
		return;
	if (reuse_image_key(&key, b, &err) < 0) {
		log_warn(b->log, "cannot remember the image: %s, ignoring", err.message);
		return;
	}
	meta = json_deep_copy(manifest);
	json_object_set_new(meta, "boot_test", json_null());
	cache_put_linked(b->cache, key, artifact, sha256, meta);
	json_decref(meta);
}

static bool is_our_dropin(const struct build *b, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE void *text = NULL;

	return str_equal(path, b->dropin_path) &&
	       rootfs_read(b->root, path, DROPIN_MAX_BYTES, &text, NULL, &ignored) == 0 &&
	       str_equal(text, b->dropin_text);
}

/* What no generator reads: the parameters of the boot loader as we wrote them, and an id that is
 * new each time. */
static void drop_unread(const struct build *b, struct strv *changed)
{
	for (size_t i = changed->count; i-- > 0;)
		if (is_our_dropin(b, changed->items[i]) ||
		    str_equal(changed->items[i], "/etc/machine-id"))
			strv_remove(changed, i);
}

static int digest_changes(const struct build *b, char **ret, struct error *err)
{
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_STRV struct strv removed = {0};

	if (tree_changes(b->tree, &changed, &removed, err) < 0)
		return -1;
	drop_unread(b, &changed);
	return changes_digest(ret, b->tree, &changed, &removed, err);
}

int reuse_begin_initramfs(struct build *b, struct error *err)
{
	struct reuse *r = reuse_of(b);

	/* The sandbox knows what its scripts did; of the appliance's only what they were. */
	r->usable = b->options->cache && (b->sandbox || !uses_network(b));
	if (!r->usable || !b->sandbox)
		return 0;
	return digest_changes(b, &r->changes, err);
}

static int initramfs_key(struct cache_key **ret, const struct build *b, const char *kernel,
                         struct error *err)
{
	CLEANUP_CACHE_KEY struct cache_key *key = cache_key_new("initramfs");

	cache_key_add(key, "kernel", kernel);
	cache_key_add(key, "generator", b->guest->generator);
	if (b->sandbox) {
		cache_key_add(key, "base", b->base_digest);
		cache_key_add(key, "changes", b->reuse->changes);
		cache_key_add_int(key, "source_date_epoch", b->source_date_epoch);
	}
	if ((b->sandbox ? reuse_add_sandbox(key, b, err) : reuse_add_inputs(key, b, err)) < 0)
		return -1;
	*ret = STEAL(key);
	return 0;
}

static int copy_in(struct build *b, const char *from, const char *to, const json_t *meta,
                   struct error *err)
{
	CLEANUP_CLOSE int fd = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	uint32_t mode = (uint32_t)json_integer_value(json_object_get(meta, "mode"));

	if (fd < 0)
		return error_errno(err, errno, "cannot read '%s'", from);
	return rootfs_copy_in(b->root, to, fd, mode & 0777, err);
}

int reuse_initramfs(struct build *b, const char *kernel, const char *path, struct error *err)
{
	CLEANUP_CACHE_KEY struct cache_key *key = NULL;
	CLEANUP_FREE char *copy = str_format("%s/cached-%s", b->work_dir, kernel);
	json_t *meta = NULL;
	int found;

	if (!b->reuse->usable)
		return 0;
	if (initramfs_key(&key, b, kernel, err) < 0)
		return -1;
	found = cache_get(b->cache, key, copy, &meta, err);
	if (found == 1 && copy_in(b, copy, path, meta, err) < 0)
		found = -1;
	if (found != 0)
		unlink(copy);
	if (found == 1) {
		log_note(b->log, "kernel '%s': the initramfs is one of the cache's", kernel);
		strv_add(&b->initramfs_reused, kernel);
	}
	json_decref(meta);
	return found;
}

void reuse_pending_free(struct pending *p)
{
	if (p->path)
		unlink(p->path);
	cache_key_free(p->key);
	json_decref(p->meta);
	free(p->path);
}

void reuse_add_pending(struct build *b, struct pending *p)
{
	struct reuse *r = reuse_of(b);

	r->items = mem_grow(r->items, r->count + 1, sizeof(*r->items));
	r->items[r->count++] = *p;
	*p = (struct pending){0};
}

static int copy_out(struct build *b, const char *from, struct pending *p, struct error *err)
{
	CLEANUP_CLOSE int fd = open(p->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	struct rootfs_stat st;

	if (fd < 0)
		return error_errno(err, errno, "cannot make '%s'", p->path);
	if (rootfs_lstat(b->root, from, &st, err) != 1 ||
	    rootfs_copy_out(b->root, from, fd, err) < 0)
		return -1;
	p->meta = json_pack("{s:i}", "mode", (int)(st.mode & 07777));
	return 0;
}

static void *keep_thread(void *opaque)
{
	struct build *b = opaque;

	for (size_t i = 0; i < b->reuse->count; i++)
		cache_put(b->cache, b->reuse->items[i].key, b->reuse->items[i].path,
		          b->reuse->items[i].meta);
	return NULL;
}

void reuse_keep_initramfs(struct build *b, const char *kernel, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct reuse *r = b->reuse;
	struct pending p = {.path = str_format("%s/keep-%s", b->work_dir, kernel)};

	if (!r->usable || initramfs_key(&p.key, b, kernel, &err) < 0 ||
	    copy_out(b, path, &p, &err) < 0) {
		if (err.message)
			log_warn(b->log, "cannot remember an initramfs: %s, ignoring", err.message);
		reuse_pending_free(&p);
		return;
	}
	reuse_add_pending(b, &p);
}

void reuse_start_keeping(struct build *b)
{
	struct reuse *r = b->reuse;

	if (!r)
		return;
	r->running = r->count && pthread_create(&r->thread, NULL, keep_thread, b) == 0;
}

void reuse_finish(struct build *b)
{
	struct reuse *r = b->reuse;

	if (!r)
		return;
	if (r->running)
		pthread_join(r->thread, NULL);
	for (size_t i = 0; i < r->count; i++)
		reuse_pending_free(&r->items[i]);
	free(r->items);
	free(r->changes);
	reuse_transaction_free(&r->transaction);
	free(STEAL(b->reuse));
}
