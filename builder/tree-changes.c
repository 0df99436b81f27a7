/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changed in a tree, without reading it: the index of what was put there, merged with
 * what is there now. A guest program can set every time but ctime, so that one tells.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "tree-lazy.h"

static int scan_fail(const char *path, struct error *err)
{
	return error_errno(err, errno, "cannot look through '%s' in the sandbox's tree", path);
}

struct comparison;
static int compare_entry(struct comparison *c, int dir_fd, const char *name, const char *path,
                         const struct stat *st, struct error *err);

int tree_list_names(int dir_fd, struct strv *names)
{
	int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int result;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	errno = 0;
	while ((entry = readdir(dir))) {
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			strv_add(names, entry->d_name);
		errno = 0;
	}
	result = errno ? -1 : 0;
	closedir(dir);
	strv_sort(names);
	return result;
}

static int scan_dir(struct comparison *c, int fd, const char *path, unsigned depth,
                    struct error *err);

static int scan_entry(struct comparison *c, int dir_fd, const char *name, const char *path,
                      unsigned depth, struct error *err)
{
	CLEANUP_CLOSE int fd = -1;
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return scan_fail(path, err);
	if (compare_entry(c, dir_fd, name, path, &st, err) < 0)
		return -1;
	if (!S_ISDIR(st.st_mode))
		return 0;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? scan_fail(path, err) : scan_dir(c, fd, path, depth + 1, err);
}

/* Compares everything in the directory, in the order of the index. 'path' is "" for the root. */
static int scan_dir(struct comparison *c, int fd, const char *path, unsigned depth,
                    struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (depth > TREE_DEPTH_MAX) {
		errno = ENAMETOOLONG;
		return scan_fail(path, err);
	}
	if (tree_list_names(fd, &names) < 0)
		return scan_fail(path, err);
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *child = str_format("%s/%s", path, names.items[i]);

		if (!tree_is_skipped(child) &&
		    scan_entry(c, fd, names.items[i], child, depth, err) < 0)
			return -1;
	}
	return 0;
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

static bool is_below(const char *path, const char *dir)
{
	return dir && str_below(path, dir);
}

/* The merge of the index with the directory. */
struct comparison {
	const struct tree *tree;
	uint32_t next;   /* entry of the index that nothing was compared with yet */
	char *next_path; /* its path; NULL: there is none left */
	char *gone;      /* what was reported last stands for all that was below it */
	struct strv *changed, *removed;
};

static void set_next(struct comparison *c, uint32_t next)
{
	free(c->next_path);
	c->next = next;
	c->next_path = next < c->tree->index.count ? tree_index_path(&c->tree->index, next) : NULL;
}

static void add_removed(struct comparison *c, const char *path)
{
	if (is_below(path, c->gone))
		return;
	strv_add(c->removed, path);
	free(c->gone);
	c->gone = str_copy(path);
}

/* Entries of the index that come before 'path' (NULL: the end) are not there any more. */
static void pass_removed(struct comparison *c, const char *path)
{
	while (c->next_path && (!path || compare_paths(c->next_path, path) < 0)) {
		if (c->tree->index.entries[c->next].inode)
			add_removed(c, c->next_path);
		set_next(c, c->next + 1);
	}
}

/* The same type on both sides. 1, 0, or -1 with errno. */
static int dir_changed(const struct tree_entry *before, int dir_fd, const char *name)
{
	CLEANUP_CLOSE int fd =
		openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	uint64_t hash;

	if (fd < 0 || tree_hash_xattrs(fd, &hash) < 0)
		return -1;
	return hash != before->size_bytes;
}

/* A placeholder that we have filled has another ctime since: ours is not a change. */
static int filled_changed(const struct tree_fill *fill, const struct stat *now, int dir_fd,
                          const char *name)
{
	CLEANUP_CLOSE int fd = -1;
	uint64_t hash;

	if (fill->changed || fill->ctime_ns != tree_time_ns(&now->st_ctim) ||
	    fill->mtime_ns != tree_time_ns(&now->st_mtim) || fill->links != now->st_nlink)
		return 1;
	/* The clock that stamps files is coarse: a change right after the fill has its ctime. */
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || tree_hash_xattrs(fd, &hash) < 0)
		return -1;
	return hash != fill->xattr_hash;
}

static int entry_changed(const struct comparison *c, const struct stat *now, int dir_fd,
                         const char *name)
{
	const struct tree_entry *before = &c->tree->index.entries[c->next];
	const struct tree_fill *fill;

	if (before->mode != now->st_mode || before->uid != now->st_uid ||
	    before->gid != now->st_gid)
		return 1;
	if (S_ISDIR(now->st_mode))
		return dir_changed(before, dir_fd, name);
	if (before->inode != now->st_ino || before->size_bytes != (uint64_t)now->st_size)
		return 1;
	fill = c->tree->lazy ? lazy_fill_of(c->tree->lazy, now->st_ino) : NULL;
	if (fill)
		return filled_changed(fill, now, dir_fd, name);
	return before->ctime_ns != tree_time_ns(&now->st_ctim);
}

/* Opening it is what fills it. What is no placeholder, or was filled, takes no harm. */
static int need_content(const struct comparison *c, int dir_fd, const char *name, const char *path,
                        const struct stat *st, struct error *err)
{
	CLEANUP_CLOSE int fd = -1;

	if (!S_ISREG(st->st_mode) || !c->tree->lazy ||
	    !lazy_is_placeholder(c->tree->lazy, st->st_ino))
		return 0;
	fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		return 0;
	scan_fail(path, err);
	lazy_check(c->tree->lazy, err); /* knows it better, if it is ours */
	return -1;
}

static int compare_entry(struct comparison *c, int dir_fd, const char *name, const char *path,
                         const struct stat *st, struct error *err)
{
	uint32_t before_mode;
	int changed = 1;

	if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode) &&
	    !S_ISFIFO(st->st_mode))
		return 0; /* a socket that a program left: nothing to bring back */
	pass_removed(c, path);
	if (c->next_path && str_equal(c->next_path, path)) {
		before_mode = c->tree->index.entries[c->next].mode;
		if ((before_mode & S_IFMT) != (st->st_mode & S_IFMT))
			add_removed(c, path);
		else
			changed = entry_changed(c, st, dir_fd, name);
		set_next(c, c->next + 1);
	}
	if (changed < 0)
		return scan_fail(path, err);
	if (changed == 0)
		return 0;
	strv_add(c->changed, path);
	return need_content(c, dir_fd, name, path, st, err);
}

int tree_changes(const struct tree *tree, struct strv *ret_changed, struct strv *ret_removed,
                 struct error *err)
{
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_STRV struct strv removed = {0};
	struct comparison c = {.tree = tree, .changed = &changed, .removed = &removed};
	int result;

	*ret_changed = (struct strv){0};
	*ret_removed = (struct strv){0};
	if (tree->lazy)
		lazy_sync(tree->lazy);
	set_next(&c, 0);
	result = scan_dir(&c, tree->root_fd, "", 0, err);
	pass_removed(&c, NULL);
	free(c.next_path);
	free(c.gone);
	if (result == 0 && tree->lazy)
		result = lazy_check(tree->lazy, err);
	if (result < 0)
		return error_prefix(err, "cannot find out what changed in '%s'", tree->dir);
	strv_sort(&changed);
	strv_sort(&removed);
	*ret_changed = changed;
	*ret_removed = removed;
	changed = removed = (struct strv){0};
	return 0;
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
