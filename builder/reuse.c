/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <ext2fs/ext2fs.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "data.h"
#include "digest.h"
#include "reuse.h"
#include "tools.h"

#define DROPIN_MAX_BYTES (1UL << 20)

/* One initramfs on its way to the cache. */
struct pending {
	struct cache_key *key;
	char *path; /* in the work directory */
	json_t *meta;
};

struct reuse {
	bool usable; /* the changes are known, so an initramfs has a key */
	char *changes;
	struct pending *items;
	size_t count;
	pthread_t thread;
	bool running;
};

static int add_data_files(struct cache_key *key, const char *parent, const char *name,
                          struct error *err)
{
	CLEANUP_FREE char *dir = str_format("%s/%s", parent, name);
	CLEANUP_STRV struct strv files = {0};

	if (data_list(dir, &files, err) < 0)
		return -1;
	for (size_t i = 0; i < files.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, files.items[i]);
		CLEANUP_FREE char *shown = str_format("data:%s/%s", name, files.items[i]);

		if (cache_key_add_file(key, shown, path, err) < 0)
			return -1;
	}
	return 0;
}

/* What shapes the guest's programs beside their own files. */
static int add_sandbox(struct cache_key *key, const struct build *b, struct error *err)
{
	CLEANUP_FREE char *parent = data_sandbox_parent(b->data_dir);
	CLEANUP_FREE char *bwrap = tools_version("bwrap");
	CLEANUP_FREE char *cpu = tools_cpu();

	/* Microcode hooks look at the processor that they run on. */
	cache_key_add(key, "cpu", cpu);
	cache_key_add(key, "bwrap", bwrap);
	return b->sandbox ? add_data_files(key, parent, "sandbox", err) : 0;
}

/* Our own files that go into images. */
static int add_data(struct cache_key *key, const struct build *b, struct error *err)
{
	if (add_data_files(key, b->data_dir, "boot/modprobe.d", err) < 0 ||
	    add_data_files(key, b->data_dir, "boot/grub.d", err) < 0)
		return -1;
	return add_data_files(key, b->data_dir, "cloud-init", err);
}

/* All that the content of an image depends on, the base and what the user asks for. */
static int add_inputs(struct cache_key *key, const struct build *b, struct error *err)
{
	const struct options *o = b->options;

	cache_key_add(key, "base", b->base_digest);
	cache_key_add(key, "base_format", image_format_name(b->base_info.format));
	cache_key_add(key, "backend", b->sandbox ? "sandbox" : "appliance");
	cache_key_add_int(key, "source_date_epoch", b->source_date_epoch);
	cache_key_add_int(key, "clamp_times", b->clamp_times);
	cache_key_add_list(key, "stages", &o->stages);
	cache_key_add_list(key, "cmdline_add", &o->cmdline.add);
	cache_key_add_list(key, "cmdline_remove", &o->cmdline.remove);
	cache_key_add_int(key, "nocrs", o->nocrs);
	cache_key_add_int(key, "realloc", o->realloc);
	cache_key_add_int(key, "module_blacklist", o->module_blacklist);
	cache_key_add_list(key, "block", &o->block);
	cache_key_add_list(key, "upload", &o->upload);
	cache_key_add_list(key, "run", &o->run);
	cache_key_add_list(key, "user_digests", &b->user_digests);
	/* A key that is another one makes another signature, even of the same name. */
	if (o->uki_key && (cache_key_add_file(key, "uki_key", o->uki_key, err) < 0 ||
	                   cache_key_add_file(key, "uki_cert", o->uki_cert, err) < 0))
		return -1;
	return add_sandbox(key, b, err) < 0 ? -1 : add_data(key, b, err);
}

static bool scripts_use_network(const struct build *b)
{
	return b->options->network && b->options->run.count > 0;
}

/* Libraries that write the image; of a shared one, our own digest knows nothing. */
static void add_libraries(struct cache_key *key, const struct build *b)
{
	/* XFS, btrfs and LVM are written by it, also where the guest's programs run elsewhere. */
	bool uses_appliance = !b->sandbox || !guest_in_user_space(b->guest);
	CLEANUP_FREE char *appliance = uses_appliance ? appliance_version() : NULL;
	CLEANUP_FREE char *sbsign = b->options->uki_key ? tools_version("sbsign") : NULL;
	const char *ext2fs = NULL;

	ext2fs_get_library_version(&ext2fs, NULL);
	cache_key_add(key, "libext2fs", ext2fs);
	cache_key_add(key, "zlib", zlibVersion());
	cache_key_add(key, "libzstd", ZSTD_versionString());
	cache_key_add(key, "libguestfs", appliance);
	cache_key_add(key, "sbsign", sbsign);
}

static int image_key(struct cache_key **ret, const struct build *b, struct error *err)
{
	CLEANUP_CACHE_KEY struct cache_key *key = cache_key_new("image");
	CLEANUP_FREE char *qemu = tools_version("qemu-img");

	add_libraries(key, b);

	cache_key_add(key, "compression", b->options->compression);
	cache_key_add_int(key, "compact", b->options->compact);
	cache_key_add(key, "qemu_img", qemu);
	if (add_inputs(key, b, err) < 0)
		return -1;
	*ret = STEAL(key);
	return 0;
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

	if (scripts_use_network(b))
		return 0;
	if (image_key(&key, b, err) < 0)
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

	if (b->reused || scripts_use_network(b))
		return;
	if (image_key(&key, b, &err) < 0) {
		log_warn(b->log, "cannot remember the image: %s, ignoring", err.message);
		return;
	}
	meta = json_deep_copy(manifest);
	json_object_set_new(meta, "boot_test", json_null());
	cache_put_linked(b->cache, key, artifact, sha256, meta);
	json_decref(meta);
}

/* A sink that writes down what it is given, times left out: those of our own files are new in each
 * build, and generators clamp them to SOURCE_DATE_EPOCH. */
struct listing {
	struct tree_sink sink;
	struct strv lines;
};

static int list_node(struct tree_sink *sink, const struct tree_node *n, struct error *err)
{
	struct listing *l = (struct listing *)sink;
	CLEANUP_FREE char *content = NULL;

	if (n->fd >= 0 && digest_fd(n->fd, n->path, &content, err) < 0)
		return -1;
	strv_addf(&l->lines, "%s\n%o %u %u\n%s\n%s\n%s", n->path, n->mode, n->uid, n->gid,
	          content ? content : "-", n->link_target ? n->link_target : "-",
	          n->same_as ? n->same_as : "-");
	for (size_t i = 0; i < n->xattr_count; i++) {
		CLEANUP_FREE char *value = digest_memory(n->xattrs[i].value, n->xattrs[i].size);

		strv_addf(&l->lines, "%s=%s", n->xattrs[i].name, value);
	}
	return 0;
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
	struct listing l = {.sink = {.put = list_node}};
	int result = -1;

	if (tree_changes(b->tree, &changed, &removed, err) < 0)
		return -1;
	drop_unread(b, &changed);
	if (tree_send(b->tree, &changed, &l.sink, err) == 0) {
		CLEANUP_FREE char *put = strv_join(&l.lines, "\n");
		CLEANUP_FREE char *gone = strv_join(&removed, "\n");
		CLEANUP_FREE char *both = str_format("%s\n\n%s", put, gone);

		*ret = digest_memory(both, strlen(both));
		result = 0;
	}
	strv_free(&l.lines);
	return result;
}

int reuse_begin_initramfs(struct build *b, struct error *err)
{
	b->reuse = mem_alloc(sizeof(*b->reuse));
	*b->reuse = (struct reuse){0};
	/* The sandbox knows what its scripts did; of the appliance's only what they were. */
	b->reuse->usable = b->options->cache && (b->sandbox || !scripts_use_network(b));
	if (!b->reuse->usable || !b->sandbox)
		return 0;
	return digest_changes(b, &b->reuse->changes, err);
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
	if ((b->sandbox ? add_sandbox(key, b, err) : add_inputs(key, b, err)) < 0)
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

static void pending_free(struct pending *p)
{
	if (p->path)
		unlink(p->path);
	cache_key_free(p->key);
	json_decref(p->meta);
	free(p->path);
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
		pending_free(&p);
		return;
	}
	r->items = mem_grow(r->items, r->count + 1, sizeof(*r->items));
	r->items[r->count++] = p;
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
		pending_free(&r->items[i]);
	free(r->items);
	free(r->changes);
	free(STEAL(b->reuse));
}
