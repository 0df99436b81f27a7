/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for the packages of a bake. What a driver that is taken out leaves free counts, since what
 * is gone is removed from the image before anything new is written to it.
 */
#include <sys/stat.h>

#include "bake.h"
#include "workdir.h"

#define MARGIN_BYTES (256ull * 1024 * 1024) /* objects of a compilation, and room to live */
#define BLOCK_BYTES  4096u
#define USR          "/usr"

/* Adds what one path of the base, which is gone from the tree, took on the file system 'device':
 * whole blocks of data only. What is in a directory goes to 'todo'. */
static int count_path(struct rootfs *base, const char *path, uint64_t device, struct strv *todo,
                      uint64_t *bytes, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	struct rootfs_stat st;
	int found = rootfs_lstat(base, path, &st, err);

	if (found <= 0 || st.device != device)
		return found;
	if (S_ISREG(st.mode))
		*bytes += st.size_bytes / BLOCK_BYTES * BLOCK_BYTES;
	if (!S_ISDIR(st.mode))
		return 0;
	if (rootfs_list(base, path, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++)
		strv_addf(todo, "%s/%s", path, names.items[i]);
	return 0;
}

/* Of the file system that /usr is on; all of a tree's files are on one of the host's. */
static int removed_bytes(const struct build *b, uint64_t *ret, struct error *err)
{
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_STRV struct strv todo = {0};
	struct rootfs_stat usr;
	int found;

	*ret = 0;
	found = rootfs_stat(b->base_root, USR, &usr, err);
	if (found <= 0)
		return found;
	if (tree_changes(b->tree, &changed, &todo, err) < 0)
		return -1;
	while (todo.count) {
		CLEANUP_FREE char *path = str_copy(todo.items[todo.count - 1]);

		strv_remove(&todo, todo.count - 1);
		if (count_path(b->base_root, path, usr.device, &todo, ret, err) < 0)
			return -1;
	}
	return 0;
}

/* The appliance has done to the image itself what was done; a tree's image is still the base. */
static int free_bytes_now(const struct build *b, uint64_t *ret, uint64_t *ret_removed,
                          struct error *err)
{
	uint64_t size_bytes;

	*ret_removed = 0;
	if (rootfs_statvfs(b->tree ? b->base_root : b->root, USR, ret, &size_bytes, err) < 0)
		return -1;
	return b->tree && b->driver_found ? removed_bytes(b, ret_removed, err) : 0;
}

static int refuse(const char *what, uint64_t free_bytes, uint64_t removed, uint64_t needed,
                  struct error *err)
{
	CLEANUP_FREE char *need = str_size(needed);
	CLEANUP_FREE char *have = str_size(free_bytes);
	CLEANUP_FREE char *gone = str_size(removed);
	CLEANUP_FREE char *more =
		removed ? str_format(", and %s of the driver that is taken out", gone)
			: str_copy("");

	error_set(err, "the image's root file system is too full for %s: %s free%s, %s needed",
	          what, have, more, need);
	error_hint(err, "enlarge the base first: qemu-img resize, then growpart and resize2fs, or "
	                "virt-resize");
	return error_code(err, EXIT_INPUT);
}

int bake_check_space(const struct build *b, const char *what, uint64_t bytes, struct error *err)
{
	const uint64_t needed = bytes + MARGIN_BYTES;
	uint64_t free_bytes, removed;

	if (free_bytes_now(b, &free_bytes, &removed, err) < 0)
		return -1;
	if (free_bytes + removed < needed)
		return refuse(what, free_bytes, removed, needed, err);
	return workdir_check_space(b->work_dir, needed, err);
}
