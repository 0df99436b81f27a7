/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Getting a guest's root out of its image into a directory. The source is untrusted: names
 * are checked, loops of directories refused, and everything is made relative to an open
 * directory that we have made ourselves.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tree-lazy.h"

/* Longer than one tick of the clock that stamps files. */
#define TICK_MS     20
#define DEVICES_MAX 16

struct extraction {
	struct tree *tree;
	struct rootfs *from;
	struct inode_table seen; /* regular files, for hard links; directories, for loops */
	struct log *log;
	uint64_t lost_xattrs;
	bool marks_failed; /* told once */
	/* Names of files with several: each link(2) gives all of them another ctime. */
	uint32_t *linked;
	size_t linked_count, linked_room;
	/* Data comes from somewhere: more than the file systems hold is a damaged image, whose
	 * files share blocks. */
	uint64_t devices[DEVICES_MAX]; /* file systems that were seen so far */
	size_t device_count;
	uint64_t source_bytes; /* of these together */
};

static int set_xattrs(struct extraction *x, const struct tree_place *p, struct error *err)
{
	struct rootfs_xattr *xattrs = NULL;
	size_t count = 0;
	int result = 0;

	if (!x->from->ops->xattrs || p->made_up)
		return 0;
	if (x->from->ops->xattrs(x->from, p->path, &xattrs, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count && result == 0; i++)
		result = tree_place_set_xattr(p, &xattrs[i], x->log, &x->lost_xattrs, err);
	rootfs_xattrs_free(xattrs, count);
	return result;
}

/* Owner first: chown drops capabilities and setuid bits. */
static int set_attributes(struct extraction *x, const struct tree_place *p, struct error *err)
{
	struct stat st;

	if (tree_place_set_owner(p, err) < 0 || set_xattrs(x, p, err) < 0 ||
	    tree_place_finish(p, &st, err) < 0)
		return -1;
	if (p->entry != TREE_NO_ENTRY && tree_index_set(&x->tree->index, p->entry, &st, p->fd) < 0)
		return tree_place_fail(p, err);
	return 0;
}

static int add_source_size(struct extraction *x, const struct tree_place *p, struct error *err)
{
	uint64_t free_bytes, size_bytes;

	for (size_t i = 0; i < x->device_count; i++)
		if (x->devices[i] == p->st.device)
			return 0;
	if (x->device_count == DEVICES_MAX)
		return 0;
	if (x->from->ops->statvfs(x->from, p->path, &free_bytes, &size_bytes, err) < 0)
		return -1;
	x->devices[x->device_count++] = p->st.device;
	if (__builtin_add_overflow(x->source_bytes, size_bytes, &x->source_bytes))
		x->source_bytes = UINT64_MAX;
	return 0;
}

static int check_written(struct extraction *x, const struct tree_place *p, struct error *err)
{
	uint64_t bytes;
	struct stat st;

	if (fstat(p->fd, &st) < 0)
		return tree_place_fail(p, err);
	/* Holes take no blocks; the last block is not all the file's. */
	bytes = (uint64_t)st.st_blocks * 512;
	x->tree->copied_bytes += bytes < (uint64_t)st.st_size ? bytes : (uint64_t)st.st_size;
	return x->tree->copied_bytes > x->source_bytes
	               ? tree_place_refuse(
				 p->path,
				 "the files hold more data than their file systems, which are damaged",
				 err)
	               : 0;
}

/* 1: it will be filled when it is opened, 0: it needs its content now, -1: error. */
static int make_placeholder(struct extraction *x, const struct tree_place *p, struct error *err)
{
	struct stat st;

	if (!x->tree->lazy || p->st.size_bytes == 0)
		return 0;
	if (p->st.size_bytes > INT64_MAX || ftruncate(p->fd, (off_t)p->st.size_bytes) < 0 ||
	    fstat(p->fd, &st) < 0)
		return tree_place_fail(p, err);
	if (lazy_mark(x->tree->lazy, p->fd, st.st_ino, p->entry) == 0)
		return 1;
	if (!x->marks_failed)
		log_detail(x->log, "'%s' is copied at once, and others may be (fanotify: %s)",
		           p->path, strerror(errno));
	x->marks_failed = true;
	return ftruncate(p->fd, 0) < 0 ? tree_place_fail(p, err) : 0;
}

static int put_content(struct extraction *x, const struct tree_place *p, struct error *err)
{
	int made = make_placeholder(x, p, err);

	if (made < 0 || (made == 0 && x->from->ops->copy_out(x->from, p->path, p->fd, err) < 0) ||
	    add_source_size(x, p, err) < 0)
		return -1;
	return made ? 0 : check_written(x, p, err);
}

static void note_linked(struct extraction *x, uint32_t entry)
{
	if (x->linked_count == x->linked_room) {
		x->linked_room = x->linked_room ? x->linked_room * 2 : 256;
		x->linked = mem_grow(x->linked, x->linked_room, sizeof(*x->linked));
	}
	x->linked[x->linked_count++] = entry;
}

/* Once all names are there: what each of them is to be compared with. */
static int index_linked(struct extraction *x, struct error *err)
{
	for (size_t i = 0; i < x->linked_count; i++) {
		CLEANUP_FREE char *path = tree_index_path(&x->tree->index, x->linked[i]);
		struct stat st;

		if (fstatat(x->tree->root_fd, path + 1, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    tree_index_set(&x->tree->index, x->linked[i], &st, -1) < 0)
			return error_errno(err, errno, "cannot look at '%s' in the sandbox's tree",
			                   path);
	}
	return 0;
}

/* A further name of a file that was made before. */
static int make_hard_link(struct extraction *x, const struct tree_place *p, uint32_t first,
                          struct error *err)
{
	CLEANUP_FREE char *path = tree_index_path(&x->tree->index, first);

	if (linkat(x->tree->root_fd, path + 1, p->dir_fd, p->name, 0) < 0)
		return tree_place_fail(p, err);
	note_linked(x, first);
	note_linked(x, p->entry);
	return 0;
}

static int extract_regular(struct extraction *x, struct tree_place *p, struct error *err)
{
	const uint32_t *first = inode_table_add(&x->seen, p->st.device, p->st.inode, p->entry);
	CLEANUP_CLOSE int fd = -1;

	if (first)
		return make_hard_link(x, p, *first, err);
	fd = openat(p->dir_fd, p->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
	            p->st.mode & 0777);
	if (fd < 0)
		return tree_place_fail(p, err);
	p->fd = fd;
	if (put_content(x, p, err) < 0)
		return -1;
	x->tree->file_count++;
	x->tree->data_bytes += p->st.size_bytes;
	return set_attributes(x, p, err);
}

static int extract_link(struct extraction *x, const struct tree_place *p, struct error *err)
{
	CLEANUP_FREE char *target = NULL;

	if (x->from->ops->readlink(x->from, p->path, &target, err) < 0)
		return -1;
	if (symlinkat(target, p->dir_fd, p->name) < 0)
		return tree_place_fail(p, err);
	return set_attributes(x, p, err);
}

static int extract_dir(struct extraction *x, const struct tree_place *dir, unsigned depth,
                       struct error *err);

static int make_dir(struct extraction *x, struct tree_place *p, unsigned depth, struct error *err)
{
	CLEANUP_CLOSE int fd = -1;

	if (depth > TREE_DEPTH_MAX)
		return tree_place_refuse(p->path, "directories are nested too deep", err);
	if (mkdirat(p->dir_fd, p->name, 0700) < 0)
		return tree_place_fail(p, err);
	fd = openat(p->dir_fd, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return tree_place_fail(p, err);
	p->fd = fd;
	if (!tree_is_skipped(p->path)) {
		if (inode_table_add(&x->seen, p->st.device, p->st.inode, p->entry))
			return tree_place_refuse(p->path,
			                         "the directory is there twice, the file system is "
			                         "damaged",
			                         err);
		if (extract_dir(x, p, depth, err) < 0)
			return -1;
	}
	return set_attributes(x, p, err);
}

static int extract_entry(struct extraction *x, struct tree_place *p, unsigned depth,
                         struct error *err)
{
	switch (p->st.mode & S_IFMT) {
	case S_IFDIR:
		return make_dir(x, p, depth + 1, err);
	case S_IFREG:
		return extract_regular(x, p, err);
	case S_IFLNK:
		return extract_link(x, p, err);
	case S_IFIFO:
		if (mknodat(p->dir_fd, p->name, S_IFIFO | 0600, 0) < 0)
			return tree_place_fail(p, err);
		return set_attributes(x, p, err);
	default:
		return 0; /* a device node or socket: its entry says that it is not there */
	}
}

static bool good_name(const char *name)
{
	return *name && !strchr(name, '/') && strlen(name) <= NAME_MAX && !str_equal(name, ".") &&
	       !str_equal(name, "..");
}

/* 'dir' is open; its path is "" for the root. */
static int extract_dir(struct extraction *x, const struct tree_place *dir, unsigned depth,
                       struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (x->from->ops->list(x->from, *dir->path ? dir->path : "/", &names, err) < 0)
		return -1;
	strv_sort(&names); /* the index wants them so */
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *child = str_format("%s/%s", dir->path, names.items[i]);
		struct tree_place p = {
			.dir_fd = dir->fd, .name = names.items[i], .path = child, .fd = -1};
		int found;

		if (!good_name(p.name))
			return tree_place_refuse(dir->path, "it holds a file whose name is none",
			                         err);
		if (tree_is_skipped(child))
			continue; /* made by make_mount_points */
		found = x->from->ops->lstat(x->from, child, &p.st, err);
		if (found < 0)
			return -1;
		if (found == 0)
			return tree_place_refuse(child, "it is listed, but not there", err);
		p.entry = tree_index_add(&x->tree->index, dir->entry, p.name, p.st.mode);
		if (extract_entry(x, &p, depth, err) < 0)
			return -1;
	}
	return 0;
}

/* What the sandbox mounts over must be a directory, whatever the image has there. */
static int make_mount_points(struct extraction *x, struct error *err)
{
	static const char *const points[] = {"/proc", "/sys", "/dev", "/run", "/tmp"};

	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		struct tree_place p = {.dir_fd = x->tree->root_fd,
		                       .name = points[i] + 1,
		                       .path = points[i],
		                       .entry = TREE_NO_ENTRY,
		                       .fd = -1};
		int found = x->from->ops->lstat(x->from, p.path, &p.st, err);

		if (found < 0)
			return -1;
		p.made_up = found == 0 || !S_ISDIR(p.st.mode);
		if (p.made_up)
			p.st = (struct rootfs_stat){.mode = S_IFDIR | 0755};
		if (make_dir(x, &p, 1, err) < 0)
			return -1;
	}
	return 0;
}

int tree_make_root(struct tree *tree, struct error *err)
{
	if (mkdir(tree->dir, 0700) < 0)
		return error_errno(err, errno, "cannot make the directory '%s'", tree->dir);
	tree->root_fd = tree_open_root(tree->dir, err);
	if (tree->root_fd < 0)
		return -1;
	if (fchownat(tree->root_fd, "", TREE_UID_BASE, TREE_UID_BASE, AT_EMPTY_PATH) == 0 &&
	    chmod(tree->dir, 0755) == 0)
		return 0;
	error_errno(err, errno, "cannot give the directory '%s' to user id %u", tree->dir,
	            TREE_UID_BASE);
	error_hint(err, "the sandbox needs root, on a file system that keeps owners");
	return error_code(err, EXIT_HOST);
}

void tree_await_tick(void)
{
	poll(NULL, 0, TICK_MS);
}

static int extract_all(struct extraction *x, struct error *err)
{
	struct tree *tree = x->tree;
	struct tree_place root = {.path = "", .entry = TREE_NO_ENTRY};

	if (tree_make_root(tree, err) < 0 || make_mount_points(x, err) < 0)
		return -1;
	root.fd = tree->root_fd;
	if (extract_dir(x, &root, 0, err) < 0 || index_linked(x, err) < 0)
		return -1;
	tree_await_tick();
	return tree->lazy ? lazy_start(tree->lazy, &tree->index, x->source_bytes, err) : 0;
}

void tree_tell_copied(const struct tree *tree, uint64_t lost_xattrs)
{
	if (lost_xattrs)
		log_warn(tree->log, "%llu extended attributes cannot be kept in '%s', ignoring",
		         (unsigned long long)lost_xattrs, tree->dir);
	log_detail(tree->log, "copied %llu files to '%s', %llu of %llu bytes of data",
	           (unsigned long long)tree->file_count, tree->dir,
	           (unsigned long long)tree->copied_bytes, (unsigned long long)tree->data_bytes);
}

static int extract(struct tree **ret, struct tree *new_tree, struct rootfs *from, struct error *err)
{
	CLEANUP_TREE struct tree *tree = new_tree;
	struct extraction x = {.tree = tree, .from = from, .log = tree->log};
	int result = extract_all(&x, err);

	inode_table_free(&x.seen);
	free(x.linked);
	if (result < 0)
		return error_prefix(err, "cannot copy the image's root to '%s'", tree->dir);
	tree_tell_copied(tree, x.lost_xattrs);
	*ret = STEAL(tree);
	return 0;
}

struct tree *tree_new(const char *dir, struct log *log)
{
	struct tree *tree = mem_alloc(sizeof(*tree));

	*tree = (struct tree){.dir = str_copy(dir), .root_fd = -1, .log = log};
	return tree;
}

int tree_extract(struct tree **ret, struct rootfs *from, const char *dir, struct log *log,
                 struct error *err)
{
	return extract(ret, tree_new(dir, log), from, err);
}

int tree_extract_lazy(struct tree **ret, struct rootfs *from, struct rootfs *filler,
                      const char *dir, struct log *log, struct error *err)
{
	CLEANUP_ERROR struct error not_here = ERROR_INIT;
	struct tree *tree = tree_new(dir, log);

	if (lazy_new(&tree->lazy, filler, &not_here) < 0)
		log_detail(log, "%s: all data is copied now", not_here.message);
	return extract(ret, tree, from, err);
}

void tree_free(struct tree *tree)
{
	if (!tree)
		return;
	lazy_free(tree->lazy);
	if (tree->root_fd >= 0)
		close(tree->root_fd);
	tree_index_free(&tree->index);
	free(tree->dir);
	free(tree);
}

bool tree_can_be_lazy(void)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct lazy *lazy = NULL;

	if (lazy_new(&lazy, NULL, &ignored) < 0)
		return false;
	lazy_free(lazy);
	return true;
}

bool tree_is_lazy(const struct tree *tree)
{
	return tree->lazy && lazy_count(tree->lazy) > 0;
}

int tree_check(struct tree *tree, struct error *err)
{
	return tree->lazy ? lazy_check(tree->lazy, err) : 0;
}

uint64_t tree_filled_bytes(const struct tree *tree)
{
	return tree->copied_bytes + (tree->lazy ? lazy_filled_bytes(tree->lazy) : 0);
}

const char *tree_dir(const struct tree *tree)
{
	return tree->dir;
}

uint64_t tree_file_count(const struct tree *tree)
{
	return tree->file_count;
}

uint64_t tree_data_bytes(const struct tree *tree)
{
	return tree->data_bytes;
}

void tree_clamp_times(struct tree *tree, int64_t epoch_s)
{
	tree->clamps_times = true;
	tree->clamp_s = epoch_s;
}

void tree_set_labeler(struct tree *tree, tree_labeler *labeler, void *opaque)
{
	tree->labeler = labeler;
	tree->labeler_opaque = opaque;
}
