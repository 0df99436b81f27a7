/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directories of configuration as they were, to take back byte for byte what an edit of ours or a
 * program of the guest did there. Bounded: a configuration is small.
 */
#include <string.h>
#include <sys/stat.h>

#include "containerd-internal.h"

#define ITEMS_MAX 4096
#define DEPTH_MAX 16
#define BYTES_MAX (64UL * 1024 * 1024)

/* Being filled. */
struct filling {
	struct containerd_snapshot *s;
	size_t bytes;
};

static int too_much(const char *what, const char *path, struct error *err)
{
	error_set(err, "cannot keep '%s' as it is while containerd is set up: %s", path, what);
	return error_code(err, EXIT_INPUT);
}

static const struct containerd_saved *find_saved(const struct containerd_snapshot *s,
                                                 const char *path)
{
	for (size_t i = 0; i < s->count; i++)
		if (strcmp(s->items[i].path, path) == 0)
			return &s->items[i];
	return NULL;
}

static int save_content(struct filling *f, struct containerd_saved *item, size_t size,
                        struct error *err)
{
	struct rootfs *root = f->s->root;
	char *target = NULL;

	if (S_ISLNK(item->mode)) {
		if (rootfs_readlink(root, item->path, &target, err) < 0)
			return -1;
		item->data = target;
		item->size = strlen(target);
		return 0;
	}
	if (!S_ISREG(item->mode))
		return 0;
	if (size > BYTES_MAX || f->bytes + size > BYTES_MAX)
		return too_much("there is more than 64 MiB", item->path, err);
	f->bytes += size;
	return rootfs_read(root, item->path, BYTES_MAX, &item->data, &item->size, err);
}

static int save(struct filling *f, const char *path, int depth, struct error *err);

static int save_children(struct filling *f, const char *path, int depth, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (depth >= DEPTH_MAX)
		return too_much("directories are nested too deeply", path, err);
	if (rootfs_list(f->s->root, path, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *child = str_format("%s/%s", path, names.items[i]);

		if (save(f, child, depth + 1, err) < 0)
			return -1;
	}
	return 0;
}

static int save(struct filling *f, const char *path, int depth, struct error *err)
{
	struct containerd_snapshot *s = f->s;
	struct rootfs_stat st;
	int found = rootfs_lstat(s->root, path, &st, err);

	if (found <= 0 || find_saved(s, path))
		return found < 0 ? -1 : 0;
	if (s->count >= ITEMS_MAX)
		return too_much("there are too many files", path, err);
	s->items = mem_grow(s->items, s->count + 1, sizeof(*s->items));
	s->items[s->count] = (struct containerd_saved){.path = str_copy(path), .mode = st.mode};
	s->count++;
	if (S_ISDIR(st.mode))
		return save_children(f, path, depth, err);
	return save_content(f, &s->items[s->count - 1], (size_t)st.size_bytes, err);
}

int containerd_snapshot_take(struct containerd_snapshot *ret, struct rootfs *root,
                             const struct strv *places, struct error *err)
{
	CLEANUP_CONTAINERD_SNAPSHOT struct containerd_snapshot s = {.root = root};
	struct filling f = {.s = &s};

	strv_add_all(&s.places, places);
	for (size_t i = 0; i < places->count; i++)
		if (save(&f, places->items[i], 0, err) < 0)
			return -1;
	*ret = s;
	s = (struct containerd_snapshot){0};
	return 0;
}

static bool is_same(const struct containerd_saved *a, const struct containerd_saved *b)
{
	return a->mode == b->mode && a->size == b->size &&
	       (a->size == 0 || memcmp(a->data, b->data, a->size) == 0);
}

static void compare(const struct containerd_snapshot *s, const struct containerd_snapshot *now,
                    struct strv *ret_new, struct strv *ret_changed)
{
	for (size_t i = 0; i < now->count; i++) {
		const struct containerd_saved *old = find_saved(s, now->items[i].path);

		if (!old)
			strv_add(ret_new, now->items[i].path);
		else if (!is_same(old, &now->items[i]))
			strv_add(ret_changed, now->items[i].path);
	}
	for (size_t i = 0; i < s->count; i++)
		if (!find_saved(now, s->items[i].path))
			strv_add(ret_changed, s->items[i].path);
}

int containerd_snapshot_changes(const struct containerd_snapshot *s, struct strv *ret,
                                struct error *err)
{
	CLEANUP_CONTAINERD_SNAPSHOT struct containerd_snapshot now = {0};

	if (containerd_snapshot_take(&now, s->root, &s->places, err) < 0)
		return -1;
	compare(s, &now, ret, ret);
	strv_sort(ret);
	return 0;
}

static int put_back(const struct containerd_snapshot *s, const struct containerd_saved *item,
                    struct error *err)
{
	struct rootfs_stat st;
	int found = rootfs_lstat(s->root, item->path, &st, err);

	if (found < 0)
		return -1;
	if (found && (st.mode & S_IFMT) != (item->mode & S_IFMT) &&
	    rootfs_remove(s->root, item->path, err) < 0)
		return -1;
	if (S_ISLNK(item->mode))
		return rootfs_symlink(s->root, item->data, item->path, err);
	if (S_ISREG(item->mode))
		return rootfs_write(s->root, item->path, item->data, item->size, item->mode & 07777,
		                    err);
	if (!S_ISDIR(item->mode))
		return 0; /* a socket or the like: nothing that configures */
	if (rootfs_mkdir(s->root, item->path, item->mode & 07777, err) < 0)
		return -1;
	return rootfs_chmod(s->root, item->path, item->mode & 07777, err);
}

int containerd_snapshot_restore(const struct containerd_snapshot *s, struct error *err)
{
	CLEANUP_CONTAINERD_SNAPSHOT struct containerd_snapshot now = {0};
	CLEANUP_STRV struct strv new = {0};
	CLEANUP_STRV struct strv changed = {0};

	if (containerd_snapshot_take(&now, s->root, &s->places, err) < 0)
		return error_prefix(err, "cannot take back what was done");
	compare(s, &now, &new, &changed);
	for (size_t i = new.count; i-- > 0;)
		if (rootfs_remove(s->root, new.items[i], err) < 0)
			return error_prefix(err, "cannot take back what was done");
	/* in the order of 's': directories come before what is in them */
	for (size_t i = 0; i < s->count; i++)
		if (strv_has(&changed, s->items[i].path) && put_back(s, &s->items[i], err) < 0)
			return error_prefix(err, "cannot take back what was done");
	return 0;
}

void containerd_snapshot_free(struct containerd_snapshot *s)
{
	for (size_t i = 0; i < s->count; i++) {
		free(s->items[i].path);
		free(s->items[i].data);
	}
	free(s->items);
	strv_free(&s->places);
	*s = (struct containerd_snapshot){0};
}
