/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths. Directories that were read are kept for a while, since a walk looks up each name from
 * the root. A directory is at one place of the tree only: a second entry that leads to it is
 * damage, and would make a walk of a few clusters endless.
 */
#include <search.h>
#include <string.h>

#include "fatfs-internal.h"
#include "str.h"

#define CACHED_DIRS_MAX  256
#define CACHED_SLOTS_MAX (4 * FAT_SLOTS_MAX)
#define ROOT_POSITION    1 /* in the boot sector, where no entry can be */

/* Through which entry a directory was reached. */
struct home {
	uint32_t cluster;
	uint32_t parent;
	uint64_t position;
};

struct cached {
	struct fat_dir *dir;
	uint64_t last_used;
};

struct fat_dirs {
	struct cached items[CACHED_DIRS_MAX];
	size_t count;
	size_t slots; /* of all */
	uint64_t clock;
	void *homes; /* of tsearch(3), by cluster */
};

struct fat_dirs *fat_dirs_new(void)
{
	return mem_alloc(sizeof(struct fat_dirs));
}

void fat_dirs_free(struct fat_dirs *dirs)
{
	if (!dirs)
		return;
	for (size_t i = 0; i < dirs->count; i++)
		fat_dir_free(dirs->items[i].dir);
	tdestroy(dirs->homes, free);
	free(dirs);
}

static int compare_homes(const void *a, const void *b)
{
	const struct home *x = a, *y = b;

	return (x->cluster > y->cluster) - (x->cluster < y->cluster);
}

static int check_home(const struct fat_volume *v, const struct fat_node *node, const char *path,
                      struct error *err)
{
	CLEANUP_FREE struct home *home = mem_alloc(sizeof(*home));
	struct home *const *found;

	*home = (struct home){node->cluster, node->parent, node->position};
	if (!node->is_root && node->cluster == 0)
		return fat_refuse(v, "it has no clusters", "list", path, err);
	found = tsearch(home, &v->dirs->homes, compare_homes);
	if (!found)
		abort(); /* out of memory, as mem_alloc() */
	if (*found == home)
		STEAL(home);
	else if ((*found)->position != home->position || (*found)->parent != home->parent)
		return fat_refuse(v, "it is also at another place of the tree", "list", path, err);
	return 0;
}

static void drop_oldest(struct fat_dirs *dirs)
{
	size_t oldest = 0;

	for (size_t i = 1; i < dirs->count; i++)
		if (dirs->items[i].last_used < dirs->items[oldest].last_used)
			oldest = i;
	dirs->slots -= fat_dir_slots(dirs->items[oldest].dir);
	fat_dir_free(dirs->items[oldest].dir);
	dirs->items[oldest] = dirs->items[--dirs->count];
}

static void keep(struct fat_dirs *dirs, struct fat_dir *dir)
{
	size_t slots = fat_dir_slots(dir);

	while (dirs->count == CACHED_DIRS_MAX ||
	       (dirs->count > 0 && dirs->slots + slots > CACHED_SLOTS_MAX))
		drop_oldest(dirs);
	dirs->slots += slots;
	dirs->items[dirs->count++] = (struct cached){dir, ++dirs->clock};
}

/* Valid until the next call. */
static int get_dir(const struct fat_dir **ret, const struct fat_volume *v,
                   const struct fat_node *node, const char *path, struct error *err)
{
	struct fat_dirs *dirs = v->dirs;
	struct fat_dir *dir = NULL;

	if (check_home(v, node, path, err) < 0)
		return -1;
	for (size_t i = 0; i < dirs->count; i++) {
		if (fat_dir_cluster(dirs->items[i].dir) != node->cluster)
			continue;
		dirs->items[i].last_used = ++dirs->clock;
		*ret = dirs->items[i].dir;
		return 0;
	}
	if (fat_dir_read(&dir, v, node->cluster, path, err) < 0)
		return -1;
	keep(dirs, dir);
	*ret = dir;
	return 0;
}

static struct fat_node root_node(const struct fat_volume *v)
{
	return (struct fat_node){
		.position = ROOT_POSITION,
		.cluster = v->root_cluster,
		.is_dir = true,
		.is_root = true,
	};
}

/* One component, which ends at 'end': 'node' becomes its child. 1, 0, -1. */
static int step(const struct fat_volume *v, struct fat_node *node, const char *path,
                const char *begin, const char *end, struct error *err)
{
	CLEANUP_FREE char *name = mem_copy(begin, (size_t)(end - begin));
	CLEANUP_FREE char *where =
		begin - path > 1 ? mem_copy(path, (size_t)(begin - path) - 1) : str_copy("/");
	const struct fat_node *child;
	const struct fat_dir *dir;

	if (!node->is_dir)
		return 0;
	if (get_dir(&dir, v, node, where, err) < 0)
		return -1;
	child = fat_dir_find(dir, name);
	if (child)
		*node = *child;
	return child != NULL;
}

int fat_find(const struct fat_volume *v, const char *path, struct fat_node *ret, struct error *err)
{
	struct fat_node node = root_node(v);
	const char *begin = path + strspn(path, "/");

	for (size_t depth = 0; *begin; depth++) {
		const char *end = begin + strcspn(begin, "/");
		int found;

		if (depth == FAT_DEPTH_MAX)
			return fat_refuse(v, "too many directories are in each other", "find", path,
			                  err);
		found = step(v, &node, path, begin, end, err);
		if (found <= 0)
			return found;
		begin = end + strspn(end, "/");
	}
	*ret = node;
	return 1;
}

int fat_names(const struct fat_volume *v, const struct fat_node *dir, const char *path,
              struct strv *ret, struct error *err)
{
	const struct fat_dir *d;

	if (!dir->is_dir)
		return fat_refuse(v, "not a directory", "list", path, err);
	if (get_dir(&d, v, dir, path, err) < 0)
		return -1;
	fat_dir_names(d, ret);
	return 0;
}
