/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changed in a tree, without reading it: two lists of all its files, merged. A guest
 * program can set every time but ctime, so that one tells.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "tree-private.h"

bool tree_is_skipped(const char *path)
{
	static const char *const skipped[] = {"/proc", "/sys", "/dev", "/run", "/tmp"};

	for (size_t i = 0; i < sizeof(skipped) / sizeof(*skipped); i++)
		if (str_equal(path, skipped[i]))
			return true;
	return false;
}

static void add_entry(struct tree_index *index, const struct tree_entry *entry)
{
	if (index->count == index->room) {
		index->room = index->room ? index->room * 2 : 4096;
		index->entries = mem_grow(index->entries, index->room, sizeof(*index->entries));
	}
	index->entries[index->count++] = *entry;
}

void tree_index_add_absent(struct tree_index *index, const char *path, uint32_t mode)
{
	add_entry(index,
	          &(struct tree_entry){.path = str_copy(path), .mode = mode, .absent = true});
}

void tree_index_free(struct tree_index *index)
{
	for (size_t i = 0; i < index->count; i++)
		free(index->entries[i].path);
	free(index->entries);
	*index = (struct tree_index){0};
}

/* FNV-1a: tells a change, not a forgery; a guest can only hide its own work from itself. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u;
	return hash;
}

static int hash_xattrs(int dir_fd, const char *name, uint64_t *ret)
{
	struct rootfs_xattr *xattrs = NULL;
	uint64_t hash = 0xcbf29ce484222325u;
	size_t count = 0;

	if (tree_xattrs_get(dir_fd, name, &xattrs, &count) < 0)
		return -1;
	for (size_t i = 0; i < count; i++) {
		hash = hash_bytes(hash, xattrs[i].name, strlen(xattrs[i].name) + 1);
		hash = hash_bytes(hash, &xattrs[i].size, sizeof(xattrs[i].size));
		hash = hash_bytes(hash, xattrs[i].value, xattrs[i].size);
	}
	rootfs_xattrs_free(xattrs, count);
	*ret = hash;
	return 0;
}

static int scan_fail(const char *path, struct error *err)
{
	return error_errno(err, errno, "cannot look through '%s' in the sandbox's tree", path);
}

static int scan_dir(struct tree_index *index, int fd, const char *path, unsigned depth,
                    struct error *err);

static int scan_entry(struct tree_index *index, int dir_fd, const char *path, const char *name,
                      unsigned depth, struct error *err)
{
	struct tree_entry entry = {0};
	struct stat st;
	int fd;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return scan_fail(path, err);
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode) &&
	    !S_ISFIFO(st.st_mode))
		return 0; /* a socket that a program left: nothing to bring back */
	entry = (struct tree_entry){
		.inode = st.st_ino,
		.ctime_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec,
		.size_bytes = (uint64_t)st.st_size,
		.mode = st.st_mode,
		.uid = st.st_uid,
		.gid = st.st_gid,
	};
	if (S_ISDIR(st.st_mode) && hash_xattrs(dir_fd, name, &entry.xattr_hash) < 0)
		return scan_fail(path, err);
	entry.path = str_copy(path);
	add_entry(index, &entry);
	if (!S_ISDIR(st.st_mode))
		return 0;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? scan_fail(path, err) : scan_dir(index, fd, path, depth + 1, err);
}

/* Takes the descriptor. 'path' is "" for the root. */
static int scan_dir(struct tree_index *index, int fd, const char *path, unsigned depth,
                    struct error *err)
{
	const struct dirent *entry;
	DIR *dir = fdopendir(fd);
	int result = 0;

	if (!dir) {
		close(fd);
		return scan_fail(path, err);
	}
	if (depth > TREE_DEPTH_MAX) {
		closedir(dir);
		errno = ENAMETOOLONG;
		return scan_fail(path, err);
	}
	errno = 0;
	while (result == 0 && (entry = readdir(dir))) {
		CLEANUP_FREE char *child = str_format("%s/%s", path, entry->d_name);

		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, "..") &&
		    !tree_is_skipped(child))
			result = scan_entry(index, fd, child, entry->d_name, depth, err);
		errno = 0;
	}
	if (result == 0 && errno)
		result = scan_fail(path, err);
	closedir(dir);
	return result;
}

/* '/' sorts before all other bytes, so that what is in a directory follows right behind it. */
static int compare_paths(const char *a, const char *b)
{
	unsigned char x, y;

	while (*a && *a == *b) {
		a++;
		b++;
	}
	x = (unsigned char)*a;
	y = (unsigned char)*b;
	x = x == '/' ? 1 : x > 0 && x < '/' ? x + 1 : x;
	y = y == '/' ? 1 : y > 0 && y < '/' ? y + 1 : y;
	return x < y ? -1 : x > y;
}

static int compare_entries(const void *a, const void *b)
{
	return compare_paths(((const struct tree_entry *)a)->path,
	                     ((const struct tree_entry *)b)->path);
}

int tree_index_scan(struct tree_index *index, int root_fd, struct error *err)
{
	int fd = openat(root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return scan_fail("/", err);
	if (scan_dir(index, fd, "", 0, err) < 0)
		return -1;
	if (index->count)
		qsort(index->entries, index->count, sizeof(*index->entries), compare_entries);
	return 0;
}

/* The same type on both sides. Of a directory only its own attributes count. */
static bool entry_changed(const struct tree_entry *before, const struct tree_entry *now)
{
	if (before->mode != now->mode || before->uid != now->uid || before->gid != now->gid)
		return true;
	if (S_ISDIR(now->mode))
		return before->xattr_hash != now->xattr_hash;
	return before->inode != now->inode || before->ctime_ns != now->ctime_ns ||
	       before->size_bytes != now->size_bytes;
}

static bool is_below(const char *path, const char *dir)
{
	return dir && str_starts(path, dir) && path[strlen(dir)] == '/';
}

/* gone: the directory that was reported last, and stands for all that was below it. */
static void add_removed(struct strv *removed, const struct tree_entry *before, const char **gone)
{
	if (is_below(before->path, *gone))
		return;
	strv_add(removed, before->path);
	*gone = before->path;
}

/* The same path on both sides. */
static void compare_entry(const struct tree_entry *before, const struct tree_entry *now,
                          struct strv *changed, struct strv *removed, const char **gone)
{
	if ((before->mode & S_IFMT) != (now->mode & S_IFMT))
		add_removed(removed, before, gone);
	if (entry_changed(before, now))
		strv_add(changed, now->path);
}

static int compare_at(const struct tree_index *old, size_t i, const struct tree_index *new,
                      size_t j)
{
	if (i == old->count)
		return 1;
	if (j == new->count)
		return -1;
	return compare_paths(old->entries[i].path, new->entries[j].path);
}

static void compare_indexes(const struct tree_index *old, const struct tree_index *new,
                            struct strv *changed, struct strv *removed)
{
	const char *gone = NULL;
	size_t i = 0, j = 0;

	while (i < old->count || j < new->count) {
		int order = compare_at(old, i, new, j);

		if (order < 0 && !old->entries[i].absent)
			add_removed(removed, &old->entries[i], &gone);
		else if (order > 0)
			strv_add(changed, new->entries[j].path);
		else if (order == 0)
			compare_entry(&old->entries[i], &new->entries[j], changed, removed, &gone);
		i += order <= 0;
		j += order >= 0;
	}
	strv_sort(changed);
	strv_sort(removed);
}

static bool is_at_or_below(const char *path, const char *dir)
{
	return str_equal(path, dir) || is_below(path, dir);
}

static bool is_at_mount(const struct strv *mounts, const char *path)
{
	for (size_t i = 0; i < mounts->count; i++)
		if (is_at_or_below(path, mounts->items[i]))
			return true;
	return false;
}

static bool is_above_mount(const struct strv *mounts, const char *path)
{
	for (size_t i = 0; i < mounts->count; i++)
		if (is_below(mounts->items[i], path))
			return true;
	return false;
}

static void drop(struct strv *from, size_t index, struct strv *dropped)
{
	if (!strv_has(dropped, from->items[index]))
		strv_add(dropped, from->items[index]);
	strv_remove(from, index);
}

void tree_spare_mounts(const struct strv *mounts, struct strv *changed, struct strv *removed,
                       struct strv *ret_dropped)
{
	struct strv dropped = {0};

	for (size_t i = removed->count; i-- > 0;)
		if (is_at_mount(mounts, removed->items[i]) ||
		    is_above_mount(mounts, removed->items[i]))
			drop(removed, i, &dropped);
	/* A directory that only got another mode was not removed, and may change. */
	for (size_t i = changed->count; i-- > 0;)
		if (is_at_mount(mounts, changed->items[i]) ||
		    (is_above_mount(mounts, changed->items[i]) &&
		     strv_has(&dropped, changed->items[i])))
			drop(changed, i, &dropped);
	strv_sort(&dropped);
	*ret_dropped = dropped;
}

int tree_changes(const struct tree *tree, struct strv *ret_changed, struct strv *ret_removed,
                 struct error *err)
{
	struct tree_index now CLEANUP(tree_index_free) = {0};

	*ret_changed = (struct strv){0};
	*ret_removed = (struct strv){0};
	if (tree_index_scan(&now, tree->root_fd, err) < 0)
		return error_prefix(err, "cannot find out what changed in '%s'", tree->dir);
	compare_indexes(&tree->index, &now, ret_changed, ret_removed);
	return 0;
}
