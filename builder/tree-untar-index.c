/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of an extraction from a tar. Its members come in any order, so the index is taken from
 * the directory, merged with what was left out of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tree-untar.h"

void untar_add_left_out(struct untar *u, const char *path, uint32_t mode)
{
	const char *slash = strrchr(path, '/');

	if (u->left_out_count == u->left_out_room) {
		u->left_out_room = u->left_out_room ? u->left_out_room * 2 : 64;
		u->left_out = mem_grow(u->left_out, u->left_out_room, sizeof(*u->left_out));
	}
	u->left_out[u->left_out_count++] = (struct left_out){mem_copy(path, (size_t)(slash - path)),
	                                                     str_copy(slash + 1), mode};
}

void untar_add_dir(struct untar *u, const struct tree_place *p)
{
	if (u->dir_count == u->dir_room) {
		u->dir_room = u->dir_room ? u->dir_room * 2 : 256;
		u->dirs = mem_grow(u->dirs, u->dir_room, sizeof(*u->dirs));
	}
	u->dirs[u->dir_count++] =
		(struct dir_time){str_copy(p->path), {p->st.mtime_s, p->st.mtime_ns}};
}

static int compare_left_out(const void *a, const void *b)
{
	const struct left_out *x = a, *y = b;
	int by_dir = strcmp(x->dir, y->dir);

	return by_dir ? by_dir : strcmp(x->name, y->name);
}

/* Where names of this directory begin, or would. */
static size_t find_left_out(const struct untar *u, const char *dir)
{
	size_t low = 0, high = u->left_out_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(u->left_out[middle].dir, dir) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void sort_left_out(struct untar *u)
{
	if (u->left_out_count)
		qsort(u->left_out, u->left_out_count, sizeof(*u->left_out), compare_left_out);
}

/* Among the first 'known' ones, which are sorted; NULL: no such node. */
static const struct left_out *find_node(const struct untar *u, size_t known, const char *path)
{
	const char *slash = strrchr(path, '/');
	CLEANUP_FREE char *dir = mem_copy(path, (size_t)(slash - path));
	CLEANUP_FREE char *name = str_copy(slash + 1);
	const struct left_out wanted = {.dir = dir, .name = name};

	return known ? bsearch(&wanted, u->left_out, known, sizeof(wanted), compare_left_out)
	             : NULL;
}

int untar_place_orphans(struct untar *u, struct error *err)
{
	size_t known = u->left_out_count;

	sort_left_out(u);
	for (size_t i = 0; i + 1 < u->orphans.count; i += 2) {
		const struct left_out *node = find_node(u, known, u->orphans.items[i + 1]);

		if (!node)
			return tree_place_refuse(
				u->orphans.items[i],
				"the tar has it as another name of what it does not hold", err);
		untar_add_left_out(u, u->orphans.items[i], node->mode);
	}
	sort_left_out(u);
	return 0;
}

static int make_mount_points(const struct untar *u, struct error *err)
{
	static const char *const points[] = {"proc", "sys", "dev", "run", "tmp"};

	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		if (mkdirat(u->tree->root_fd, points[i], 0755) < 0) {
			if (errno == EEXIST)
				continue;
			return error_errno(err, errno, "cannot make '/%s' in the sandbox's tree",
			                   points[i]);
		}
		if (fchownat(u->tree->root_fd, points[i], TREE_UID_BASE, TREE_UID_BASE, 0) < 0 ||
		    fchmodat(u->tree->root_fd, points[i], 0755, 0) < 0)
			return error_errno(err, errno, "cannot give '/%s' to the guest's root",
			                   points[i]);
	}
	return 0;
}

/* A directory that a later member has replaced is none of these any more. */
void untar_set_dir_times(const struct untar *u)
{
	for (size_t i = 0; i < u->dir_count; i++) {
		const struct timespec times[2] = {u->dirs[i].mtime, u->dirs[i].mtime};
		const char *name;
		CLEANUP_CLOSE int fd = tree_open_parent(u->tree->root_fd, u->dirs[i].path, &name);

		if (fd >= 0)
			utimensat(fd, name, times, AT_SYMLINK_NOFOLLOW);
	}
}

static void count_file(struct untar *u, const struct stat *st)
{
	if (st->st_nlink > 1 && inode_table_add(&u->seen, st->st_dev, st->st_ino, 0))
		return;
	u->tree->file_count++;
	u->tree->data_bytes += (uint64_t)st->st_size;
}

static int index_dir(struct untar *u, int fd, const char *path, uint32_t entry, unsigned depth,
                     struct error *err);

static int index_name(struct untar *u, int dir_fd, const char *name, const char *path,
                      uint32_t parent, unsigned depth, struct error *err)
{
	CLEANUP_CLOSE int fd = -1;
	uint32_t entry;
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return error_errno(err, errno, "cannot look at '%s' in the sandbox's tree", path);
	entry = tree_index_add(&u->tree->index, parent, name, st.st_mode);
	if (S_ISDIR(st.st_mode)) {
		fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (fd < 0)
			return error_errno(err, errno, "cannot open '%s' in the sandbox's tree",
			                   path);
	}
	if (tree_index_set(&u->tree->index, entry, &st, fd) < 0)
		return error_errno(err, errno, "cannot read the extended attributes of '%s'", path);
	if (S_ISREG(st.st_mode))
		count_file(u, &st);
	return fd < 0 ? 0 : index_dir(u, fd, path, entry, depth + 1, err);
}

/* Enters what was left out of 'path' up to a name that is there (NULL: all the rest). */
static void index_left_out(struct untar *u, const char *path, uint32_t entry, const char *name,
                           size_t *next)
{
	for (; *next < u->left_out_count && str_equal(u->left_out[*next].dir, path); (*next)++) {
		const struct left_out *l = &u->left_out[*next];

		if (name && strcmp(l->name, name) > 0)
			return;
		/* its place was taken by a later member, or it had two */
		if (str_equal(l->name, name) || (*next > 0 && compare_left_out(l - 1, l) == 0))
			continue;
		tree_index_add(&u->tree->index, entry, l->name, l->mode);
	}
}

/* Names that are there and names that were left out, merged. 'path' is "" for the root. */
static int index_dir(struct untar *u, int fd, const char *path, uint32_t entry, unsigned depth,
                     struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	size_t next = find_left_out(u, path);

	if (depth > TREE_DEPTH_MAX)
		return tree_place_refuse(path, "directories are nested too deep", err);
	if (tree_list_names(fd, &names) < 0)
		return error_errno(err, errno, "cannot list '%s' in the sandbox's tree", path);
	for (size_t i = 0; i <= names.count; i++) {
		const char *name = i < names.count ? names.items[i] : NULL;
		CLEANUP_FREE char *child = NULL;

		index_left_out(u, path, entry, name, &next);
		if (!name)
			break;
		child = str_format("%s/%s", path, name);
		if (!tree_is_skipped(child) &&
		    index_name(u, fd, name, child, entry, depth, err) < 0)
			return -1;
	}
	return 0;
}

int untar_finish(struct untar *u, struct error *err)
{
	CLEANUP_CLOSE int fd = -1;

	if (untar_place_orphans(u, err) < 0 || make_mount_points(u, err) < 0)
		return -1;
	untar_set_dir_times(u);
	fd = openat(u->tree->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", u->tree->dir);
	if (index_dir(u, fd, "", TREE_NO_ENTRY, 0, err) < 0)
		return -1;
	tree_await_tick();
	return 0;
}

void untar_free(struct untar *u)
{
	for (size_t i = 0; i < u->left_out_count; i++) {
		free(u->left_out[i].dir);
		free(u->left_out[i].name);
	}
	free(u->left_out);
	for (size_t i = 0; i < u->dir_count; i++)
		free(u->dirs[i].path);
	free(u->dirs);
	strv_free(&u->orphans);
	inode_table_free(&u->seen);
}
