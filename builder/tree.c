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
#include <string.h>
#include <sys/stat.h>

#include "tree-private.h"

/* Longer than one tick of the clock that stamps files: what changes later gets a later ctime. */
#define TICK_MS     20
#define DEVICES_MAX 16

struct extraction {
	struct tree *tree;
	struct rootfs *from;
	struct inode_map seen; /* regular files, for hard links; directories, for loops */
	struct log *log;
	uint64_t lost_xattrs;
	/* Data comes from somewhere: more than the file systems hold is a damaged image, whose
	 * files share blocks. */
	uint64_t devices[DEVICES_MAX]; /* file systems that were seen so far */
	size_t device_count;
	uint64_t source_bytes; /* of these together */
	uint64_t written_bytes;
};

/* One name that is being made: where, and what it is in the source. */
struct place {
	int dir_fd;
	const char *name;
	const char *path; /* of the guest */
	struct rootfs_stat st;
	bool made_up; /* the source does not have it */
};

static int make_fail(const struct place *p, struct error *err)
{
	return error_errno(err, errno, "cannot make '%s' in the sandbox's tree", p->path);
}

static int refuse(const char *path, const char *why, struct error *err)
{
	error_set(err, "cannot copy '%s' out of the image: %s", path, why);
	return error_code(err, EXIT_INPUT);
}

static int set_owner(const struct place *p, struct error *err)
{
	uint32_t uid, gid;

	if (!tree_id_to_host(p->st.uid, &uid) || !tree_id_to_host(p->st.gid, &gid)) {
		error_set(err,
		          "cannot copy '%s' out of the image: its owner %u:%u is outside the ids "
		          "that the sandbox maps (0 to %u)",
		          p->path, p->st.uid, p->st.gid, TREE_UID_COUNT - 1);
		error_hint(err, "--exec=appliance needs no such mapping");
		return error_code(err, EXIT_INPUT);
	}
	return fchownat(p->dir_fd, p->name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 ? make_fail(p, err)
	                                                                       : 0;
}

static int set_xattrs(struct extraction *x, const struct place *p, struct error *err)
{
	struct rootfs_xattr *xattrs = NULL;
	size_t count = 0;
	int result = 0;

	if (!x->from->ops->xattrs || p->made_up)
		return 0;
	if (x->from->ops->xattrs(x->from, p->path, &xattrs, &count, err) < 0)
		return -1;
	for (size_t i = 0; i < count && result == 0; i++) {
		if (tree_xattr_set(p->dir_fd, p->name, &xattrs[i]) == 0)
			continue;
		if (errno == ENOTSUP || errno == EPERM || errno == ENOSPC) {
			log_detail(x->log, "'%s': this host cannot keep '%s', ignoring", p->path,
			           xattrs[i].name);
			x->lost_xattrs++;
		} else {
			result = error_errno(err, errno, "cannot set '%s' of '%s'", xattrs[i].name,
			                     p->path);
		}
	}
	rootfs_xattrs_free(xattrs, count);
	return result;
}

/* Owner first: chown drops capabilities and setuid bits. The times last. */
static int set_attributes(struct extraction *x, const struct place *p, struct error *err)
{
	const struct timespec times[2] = {{.tv_sec = p->st.mtime_s}, {.tv_sec = p->st.mtime_s}};

	if (set_owner(p, err) < 0 || set_xattrs(x, p, err) < 0)
		return -1;
	if (!S_ISLNK(p->st.mode) && fchmodat(p->dir_fd, p->name, p->st.mode & 07777, 0) < 0)
		return make_fail(p, err);
	if (utimensat(p->dir_fd, p->name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return make_fail(p, err);
	return 0;
}

static int add_source_size(struct extraction *x, const struct place *p, struct error *err)
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

static int check_written(struct extraction *x, const struct place *p, int fd, struct error *err)
{
	uint64_t bytes;
	struct stat st;

	if (add_source_size(x, p, err) < 0)
		return -1;
	if (fstat(fd, &st) < 0)
		return make_fail(p, err);
	/* Holes take no blocks; the last block is not all the file's. */
	bytes = (uint64_t)st.st_blocks * 512;
	x->written_bytes += bytes < (uint64_t)st.st_size ? bytes : (uint64_t)st.st_size;
	return x->written_bytes > x->source_bytes
	               ? refuse(p->path,
	                        "the files hold more data than their file systems, which are damaged",
	                        err)
	               : 0;
}

static int extract_regular(struct extraction *x, const struct place *p, struct error *err)
{
	const char *first = inode_map_add(&x->seen, p->st.device, p->st.inode, p->path);
	CLEANUP_CLOSE int fd = -1;

	if (first)
		return linkat(x->tree->root_fd, first + 1, p->dir_fd, p->name, 0) < 0
		               ? make_fail(p, err)
		               : 0;
	fd = openat(p->dir_fd, p->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return make_fail(p, err);
	if (x->from->ops->copy_out(x->from, p->path, fd, err) < 0 ||
	    check_written(x, p, fd, err) < 0)
		return -1;
	x->tree->file_count++;
	x->tree->data_bytes += p->st.size_bytes;
	return set_attributes(x, p, err);
}

static int extract_link(struct extraction *x, const struct place *p, struct error *err)
{
	CLEANUP_FREE char *target = NULL;

	if (x->from->ops->readlink(x->from, p->path, &target, err) < 0)
		return -1;
	if (symlinkat(target, p->dir_fd, p->name) < 0)
		return make_fail(p, err);
	return set_attributes(x, p, err);
}

static int extract_dir(struct extraction *x, int fd, const char *path, unsigned depth,
                       struct error *err);

static int make_dir(struct extraction *x, const struct place *p, unsigned depth, struct error *err)
{
	CLEANUP_CLOSE int fd = -1;

	if (depth > TREE_DEPTH_MAX)
		return refuse(p->path, "directories are nested too deep", err);
	if (mkdirat(p->dir_fd, p->name, 0700) < 0)
		return make_fail(p, err);
	fd = openat(p->dir_fd, p->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return make_fail(p, err);
	if (!tree_is_skipped(p->path)) {
		if (inode_map_add(&x->seen, p->st.device, p->st.inode, p->path))
			return refuse(p->path,
			              "the directory is there twice, the file system is "
			              "damaged",
			              err);
		if (extract_dir(x, fd, p->path, depth, err) < 0)
			return -1;
	}
	return set_attributes(x, p, err);
}

static int extract_entry(struct extraction *x, const struct place *p, unsigned depth,
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
			return make_fail(p, err);
		return set_attributes(x, p, err);
	default:
		tree_index_add_absent(&x->tree->index, p->path, p->st.mode);
		return 0;
	}
}

static bool good_name(const char *name)
{
	return *name && !strchr(name, '/') && strlen(name) <= NAME_MAX && !str_equal(name, ".") &&
	       !str_equal(name, "..");
}

static int extract_dir(struct extraction *x, int fd, const char *path, unsigned depth,
                       struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (x->from->ops->list(x->from, *path ? path : "/", &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *child = str_format("%s/%s", path, names.items[i]);
		struct place p = {.dir_fd = fd, .name = names.items[i], .path = child};
		int found;

		if (!good_name(p.name))
			return refuse(path, "it holds a file whose name is none", err);
		if (tree_is_skipped(child))
			continue; /* made by make_mount_points */
		found = x->from->ops->lstat(x->from, child, &p.st, err);
		if (found < 0)
			return -1;
		if (found == 0)
			return refuse(child, "it is listed, but not there", err);
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
		struct place p = {
			.dir_fd = x->tree->root_fd, .name = points[i] + 1, .path = points[i]};
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

static int make_root(struct tree *tree, struct error *err)
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

static int extract_all(struct extraction *x, struct error *err)
{
	if (make_root(x->tree, err) < 0 || make_mount_points(x, err) < 0 ||
	    extract_dir(x, x->tree->root_fd, "", 0, err) < 0)
		return -1;
	poll(NULL, 0, TICK_MS);
	return tree_index_scan(&x->tree->index, x->tree->root_fd, err);
}

int tree_extract(struct tree **ret, struct rootfs *from, const char *dir, struct log *log,
                 struct error *err)
{
	CLEANUP_TREE struct tree *tree = mem_alloc(sizeof(*tree));
	struct extraction x = {.tree = tree, .from = from, .log = log};
	int result;

	*tree = (struct tree){.dir = str_copy(dir), .root_fd = -1, .log = log};
	result = extract_all(&x, err);
	inode_map_free(&x.seen);
	if (result < 0)
		return error_prefix(err, "cannot copy the image's root to '%s'", dir);
	if (x.lost_xattrs)
		log_warn(log, "%llu extended attributes cannot be kept in '%s', ignoring",
		         (unsigned long long)x.lost_xattrs, dir);
	log_detail(log, "copied %llu files, %llu bytes of data to '%s'",
	           (unsigned long long)tree->file_count, (unsigned long long)tree->data_bytes, dir);
	*ret = STEAL(tree);
	return 0;
}

void tree_free(struct tree *tree)
{
	if (!tree)
		return;
	if (tree->root_fd >= 0)
		close(tree->root_fd);
	tree_index_free(&tree->index);
	free(tree->dir);
	free(tree);
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
