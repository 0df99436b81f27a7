/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes below FAT mounts, the ESP above all. The firmware starts from there: a build that has
 * nothing to do there leaves it alone, byte for byte.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "appliance-tar.h"
#include "backend-internal.h"

#define COMPARE_BYTES ((size_t)256 * 1024)

void changes_free(struct changes *c)
{
	strv_free(&c->changed);
	strv_free(&c->removed);
	strv_free(&c->fat_changed);
	strv_free(&c->fat_removed);
}

static bool has_below(const struct strv *paths, const char *dir)
{
	for (size_t i = 0; i < paths->count; i++)
		if (str_below(paths->items[i], dir))
			return true;
	return false;
}

bool backend_touches_fat(const struct changes *c, const struct guest_mount *m)
{
	return has_below(&c->fat_changed, m->path) || has_below(&c->fat_removed, m->path);
}

/* Two files of one size. 1, 0 or -1 with errno. */
static int same_bytes(int a, int b, uint64_t size)
{
	CLEANUP_FREE char *x = mem_alloc(COMPARE_BYTES);
	CLEANUP_FREE char *y = mem_alloc(COMPARE_BYTES);

	for (uint64_t at = 0; at < size;) {
		ssize_t n = pread(a, x, COMPARE_BYTES, (off_t)at);

		if (n <= 0)
			return n < 0 ? -1 : 0;
		if (pread(b, y, (size_t)n, (off_t)at) != n || memcmp(x, y, (size_t)n) != 0)
			return 0;
		at += (uint64_t)n;
	}
	return 1;
}

/* Whether the base has the very same: FAT has nothing but names and content. 1, 0 or -1. */
static int same_as_base(const struct build *b, const char *path, struct error *err)
{
	CLEANUP_CLOSE int ours = -1;
	CLEANUP_CLOSE int theirs = -1;
	struct rootfs_stat now, before;
	int found = rootfs_lstat(b->root, path, &now, err), same;

	if (found == 1)
		found = rootfs_lstat(b->base_root, path, &before, err);
	if (found != 1)
		return found;
	if (S_ISDIR(now.mode) && S_ISDIR(before.mode))
		return 1;
	if (!S_ISREG(now.mode) || !S_ISREG(before.mode) || now.size_bytes != before.size_bytes)
		return 0;
	ours = rootfs_open_copy(b->root, path, b->work_dir, err);
	if (ours < 0)
		return -1;
	theirs = rootfs_open_copy(b->base_root, path, b->work_dir, err);
	if (theirs < 0)
		return -1;
	same = same_bytes(ours, theirs, now.size_bytes);
	return same < 0 ? error_errno(err, errno, "cannot compare '%s' with the base's", path)
	                : same;
}

static void move_fat(const struct guest *guest, struct strv *from, struct strv *to)
{
	for (size_t i = from->count; i-- > 0;) {
		if (!guest_mount_is_fat(guest_mount_of(guest, from->items[i])))
			continue;
		strv_add(to, from->items[i]);
		strv_remove(from, i);
	}
	strv_sort(to);
}

int backend_split_fat(const struct build *b, struct changes *c, struct error *err)
{
	move_fat(b->guest, &c->changed, &c->fat_changed);
	move_fat(b->guest, &c->removed, &c->fat_removed);
	for (size_t i = c->fat_changed.count; i-- > 0;) {
		const char *path = c->fat_changed.items[i];
		int same = strv_has(&c->fat_removed, path) ? 0 : same_as_base(b, path, err);

		if (same < 0)
			return -1;
		if (same)
			strv_remove(&c->fat_changed, i);
	}
	return 0;
}

/* Finds out what the files take, then writes them. */
struct fat_sink {
	struct tree_sink sink; /* first */
	struct build *b;
	const struct guest_mount *only; /* count what lies below this one; NULL: write */
	uint64_t cluster_bytes, need_bytes;
};

static void count_node(struct fat_sink *s, const struct tree_node *node)
{
	uint64_t clusters = S_ISDIR(node->mode) ? 1 : node->size_bytes / s->cluster_bytes + 1;

	if (guest_mount_of(s->b->guest, node->path) == s->only)
		s->need_bytes += clusters * s->cluster_bytes;
}

static int put(struct tree_sink *sink, const struct tree_node *node, struct error *err)
{
	struct fat_sink *s = (struct fat_sink *)sink;
	CLEANUP_FREE char *shown = NULL;

	if (s->only) {
		count_node(s, node);
		return 0;
	}
	if (S_ISDIR(node->mode))
		return appliance_put_dir(s->b->appliance, node->path, err);
	if (S_ISREG(node->mode))
		return appliance_put_file(s->b->appliance, node->path, node->fd, node->mtime_s,
		                          err);
	shown = str_printable(node->path, 300);
	log_warn(s->b->log, "'%s' is a link or FIFO, which a FAT file system cannot hold, ignoring",
	         shown);
	return 0;
}

/* What is replaced is removed already. */
static int check_space(struct build *b, const struct changes *c, const struct guest_mount *m,
                       struct error *err)
{
	struct fat_sink s = {.sink.put = put, .b = b, .only = m};
	CLEANUP_FREE char *need = NULL;
	CLEANUP_FREE char *room = NULL;
	uint64_t free_bytes;

	if (appliance_free_space(b->appliance, m->path, &free_bytes, &s.cluster_bytes, err) < 0)
		return -1;
	if (s.cluster_bytes == 0)
		s.cluster_bytes = 512;
	if (tree_send(b->tree, &c->fat_changed, &s.sink, err) < 0)
		return -1;
	if (s.need_bytes <= free_bytes)
		return 0;
	need = str_size(s.need_bytes);
	room = str_size(free_bytes);
	error_set(err, "cannot write to '%s': the new files need %s, and %s are free (vfat)",
	          m->path, need, room);
	error_hint(err, "use a base whose partition for '%s' is larger, or remove files from it",
	           m->path);
	return error_code(err, EXIT_INPUT);
}

static int add_replaced(const struct build *b, const struct changes *c, struct strv *old,
                        struct error *err)
{
	for (size_t i = 0; i < c->fat_changed.count; i++) {
		struct rootfs_stat st;
		int found = rootfs_lstat(b->root, c->fat_changed.items[i], &st, err);

		if (found < 0)
			return -1;
		if (found == 1 && S_ISREG(st.mode))
			strv_add(old, c->fat_changed.items[i]);
	}
	return 0;
}

/*
 * Old files go first, so that the space is what it takes, and no more: the overlay is no image
 * before all of it was written, and a half written one is thrown away.
 */
int backend_write_fat(struct build *b, const struct changes *c, struct error *err)
{
	struct fat_sink s = {.sink.put = put, .b = b};
	CLEANUP_STRV struct strv old = {0};

	strv_add_all(&old, &c->fat_removed);
	if (add_replaced(b, c, &old, err) < 0 || appliance_remove(b->appliance, &old, err) < 0)
		return -1;
	for (size_t i = 0; i < b->guest->mount_count; i++)
		if (guest_mount_is_fat(&b->guest->mounts[i]) &&
		    has_below(&c->fat_changed, b->guest->mounts[i].path) &&
		    check_space(b, c, &b->guest->mounts[i], err) < 0)
			return -1;
	return tree_send(b->tree, &c->fat_changed, &s.sink, err);
}
