/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rootfs backend over a directory of the host. The directory's content is untrusted: a
 * path is opened by openat2(2), confined to the directory, and its last name is then used
 * relative to that descriptor without following it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "fd.h"
#include "sandbox.h"
#include "tree-private.h"

#define LINK_MAX_BYTES 4096
#define COPY_BYTES     ((size_t)256 * 1024)
#define OPEN_TRIES     16

struct tree_rootfs {
	struct rootfs base;
	int root_fd;
	struct sandbox *sandbox; /* borrowed, may be NULL */
};

static int root_of(const struct rootfs *r)
{
	return ((const struct tree_rootfs *)r)->root_fd;
}

/* 'path' absolute, free of links. A descriptor, or -1 with errno. */
static int open_confined(int root_fd, const char *path, int flags)
{
	struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC | O_NOFOLLOW),
	                       .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS |
	                                  RESOLVE_NO_SYMLINKS};
	long fd = -1;

	/* EAGAIN: something was renamed on the host just now */
	for (int i = 0; i < OPEN_TRIES; i++) {
		fd = syscall(SYS_openat2, root_fd, *path ? path : "/", &how, sizeof(how));
		if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
			break;
	}
	return (int)fd;
}

int tree_open_parent(int root_fd, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	CLEANUP_FREE char *dir = mem_copy(path, (size_t)(slash - path));

	*ret_name = slash[1] ? slash + 1 : ".";
	return open_confined(root_fd, dir, O_PATH | O_DIRECTORY);
}

int tree_open_root(const char *dir, struct error *err)
{
	int fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	CLEANUP_CLOSE int probe = -1;

	if (fd < 0)
		return error_errno(err, errno, "cannot open the directory '%s'", dir);
	probe = open_confined(fd, "/", O_PATH | O_DIRECTORY);
	if (probe >= 0)
		return fd;
	error_errno(err, errno, "cannot open the directory '%s' confined (openat2)", dir);
	error_hint(err, "this needs Linux 5.6 or newer, and a container that allows openat2");
	error_code(err, EXIT_HOST);
	close(fd);
	return -1;
}

static int fail(struct error *err, const char *what, const char *path)
{
	return error_errno(err, errno, "cannot %s '%s' in the sandbox's tree", what, path);
}

static int op_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret, struct error *err)
{
	const char *name;
	CLEANUP_CLOSE int dir = tree_open_parent(root_of(r), path, &name);
	struct rootfs_stat found = {0};
	struct stat st;

	if (dir < 0 || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			return 0;
		return fail(err, "look up", path);
	}
	if (!tree_id_to_guest(st.st_uid, &found.uid) || !tree_id_to_guest(st.st_gid, &found.gid)) {
		error_set(err,
		          "'%s' in the sandbox's tree has an owner outside the mapped ids: %u:%u",
		          path, st.st_uid, st.st_gid);
		return error_code(err, EXIT_INPUT);
	}
	found.mode = st.st_mode;
	found.size_bytes = (uint64_t)st.st_size;
	found.mtime_s = st.st_mtim.tv_sec;
	found.mtime_ns = (uint32_t)st.st_mtim.tv_nsec;
	found.inode = st.st_ino;
	found.device = st.st_dev;
	*ret = found;
	return 1;
}

static int op_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	const char *name;
	CLEANUP_CLOSE int dir = tree_open_parent(root_of(r), path, &name);
	char target[LINK_MAX_BYTES + 1];
	ssize_t length = dir < 0 ? -1 : readlinkat(dir, name, target, sizeof(target));

	if (length < 0)
		return fail(err, "read the link", path);
	if (length > LINK_MAX_BYTES) {
		errno = ENAMETOOLONG;
		return fail(err, "read the link", path);
	}
	*ret = mem_copy(target, (size_t)length);
	return 0;
}

static int op_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	CLEANUP_CLOSE int fd = open_confined(root_of(r), path, O_RDONLY | O_DIRECTORY);
	CLEANUP_STRV struct strv names = {0};
	const struct dirent *entry;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);

	if (!dir)
		return fail(err, "list", path);
	steal_fd(&fd);
	errno = 0;
	while ((entry = readdir(dir))) {
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			strv_add(&names, entry->d_name);
		errno = 0;
	}
	if (errno) {
		fail(err, "list", path);
		closedir(dir);
		return -1;
	}
	closedir(dir);
	*ret = names;
	names = (struct strv){0};
	return 0;
}

/* O_NONBLOCK: a FIFO put there must not hold us; the type is checked after the open. */
static int open_regular(struct rootfs *r, const char *path, struct stat *ret_st, struct error *err)
{
	CLEANUP_CLOSE int fd = open_confined(root_of(r), path, O_RDONLY | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, ret_st) < 0)
		return fail(err, "read", path);
	if (!S_ISREG(ret_st->st_mode))
		return error_set(err, "cannot read '%s' in the sandbox's tree: no regular file",
		                 path);
	return steal_fd(&fd);
}

static int op_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                   size_t *ret_size, struct error *err)
{
	struct stat st = {0};
	CLEANUP_CLOSE int fd = open_regular(r, path, &st, err);
	CLEANUP_FREE char *data = NULL;
	size_t size = 0;

	if (fd < 0)
		return -1;
	if ((uint64_t)st.st_size > max_bytes) {
		error_set(err, "cannot read '%s' in the sandbox's tree: larger than %zu bytes",
		          path, max_bytes);
		return error_code(err, EXIT_INPUT);
	}
	data = mem_alloc((size_t)st.st_size + 1);
	while (size < (size_t)st.st_size) {
		ssize_t n = read(fd, data + size, (size_t)st.st_size - size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail(err, "read", path);
		if (n == 0)
			break;
		size += (size_t)n;
	}
	data[size] = '\0';
	*ret = STEAL(data);
	*ret_size = size;
	return 0;
}

/* One run of data between two holes. */
static int copy_range(int from, int to, off_t at, off_t end, char *buffer)
{
	if (lseek(to, at, SEEK_SET) < 0)
		return -1;
	while (at < end) {
		size_t want = (size_t)(end - at) < COPY_BYTES ? (size_t)(end - at) : COPY_BYTES;
		ssize_t n = pread(from, buffer, want, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 || fd_write_all(to, buffer, (size_t)n) < 0)
			return -1;
		if (n == 0)
			return 0;
		at += n;
	}
	return 0;
}

static int copy_sparse(int from, int to, off_t size)
{
	CLEANUP_FREE char *buffer = mem_alloc(COPY_BYTES);
	off_t at = 0;

	while (at < size) {
		off_t data = lseek(from, at, SEEK_DATA);
		off_t end;

		if (data < 0 && errno == ENXIO)
			break; /* a hole up to the end */
		if (data < 0)
			data = at; /* this file system does not tell */
		end = lseek(from, data, SEEK_HOLE);
		if (end < 0 || end > size)
			end = size;
		if (copy_range(from, to, data, end, buffer) < 0)
			return -1;
		at = end;
	}
	return ftruncate(to, size);
}

static int op_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	struct stat st = {0};
	CLEANUP_CLOSE int from = open_regular(r, path, &st, err);

	if (from < 0)
		return -1;
	return copy_sparse(from, fd, st.st_size) < 0 ? fail(err, "copy", path) : 0;
}

static int op_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                      uint64_t *ret_size_bytes, struct error *err)
{
	const char *name;
	CLEANUP_CLOSE int dir = tree_open_parent(root_of(r), path, &name);
	struct statvfs st;

	if (dir < 0 || fstatvfs(dir, &st) < 0)
		return fail(err, "ask for the free space at", path);
	*ret_free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	*ret_size_bytes = (uint64_t)st.f_blocks * st.f_frsize;
	return 0;
}

static int own_and_mode(int fd, uint32_t mode)
{
	return fchown(fd, TREE_UID_BASE, TREE_UID_BASE) < 0 ? -1 : fchmod(fd, mode & 07777);
}

/* What a new file gets: bytes in memory, or (data NULL) those of a descriptor. */
struct content {
	const void *data;
	size_t size;
	int fd;
};

static int write_content(int to, const struct content *content)
{
	struct stat st;

	if (content->data)
		return fd_write_all(to, content->data, content->size);
	return fstat(content->fd, &st) < 0 ? -1 : copy_sparse(content->fd, to, st.st_size);
}

/* Under a temporary name first: the old file stays whole if anything fails. */
static int write_file(struct rootfs *r, const char *path, const struct content *content,
                      uint32_t mode, struct error *err)
{
	const char *name;
	CLEANUP_CLOSE int dir = tree_open_parent(root_of(r), path, &name);
	CLEANUP_FREE char *temporary = str_format(".gpuimg-%ld.new", (long)gettid());
	CLEANUP_CLOSE int fd = -1;

	if (dir >= 0) {
		unlinkat(dir, temporary, 0);
		fd = openat(dir, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		            0600);
	}
	if (fd < 0)
		return fail(err, "write", path);
	if (write_content(fd, content) == 0 && own_and_mode(fd, mode) == 0 &&
	    renameat(dir, temporary, dir, name) == 0)
		return 0;
	fail(err, "write", path);
	unlinkat(dir, temporary, 0);
	return -1;
}

static int op_write(struct rootfs *r, const char *path, const void *data, size_t size,
                    uint32_t mode, struct error *err)
{
	return write_file(r, path, &(struct content){.data = data ? data : "", .size = size}, mode,
	                  err);
}

static int op_copy_in(struct rootfs *r, const char *path, int fd, uint32_t mode, struct error *err)
{
	return write_file(r, path, &(struct content){.fd = fd}, mode, err);
}

static int op_mkdir(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	const char *name;
	CLEANUP_CLOSE int dir = tree_open_parent(root_of(r), path, &name);
	CLEANUP_CLOSE int fd = -1;

	if (dir < 0 || mkdirat(dir, name, 0700) < 0)
		return fail(err, "make the directory", path);
	fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || own_and_mode(fd, mode) < 0)
		return fail(err, "make the directory", path);
	return 0;
}

static int op_symlink(struct rootfs *r, const char *target, const char *path, struct error *err)
{
	const char *name;
	CLEANUP_CLOSE int dir = tree_open_parent(root_of(r), path, &name);

	if (dir < 0 || symlinkat(target, dir, name) < 0 ||
	    fchownat(dir, name, TREE_UID_BASE, TREE_UID_BASE, AT_SYMLINK_NOFOLLOW) < 0)
		return fail(err, "make the link", path);
	return 0;
}

static int op_rename(struct rootfs *r, const char *from, const char *to, struct error *err)
{
	const char *from_name;
	const char *to_name;
	CLEANUP_CLOSE int from_dir = tree_open_parent(root_of(r), from, &from_name);
	CLEANUP_CLOSE int to_dir = -1;

	if (from_dir < 0)
		return fail(err, "rename", from);
	to_dir = tree_open_parent(root_of(r), to, &to_name);
	if (to_dir < 0 || renameat(from_dir, from_name, to_dir, to_name) < 0)
		return error_errno(err, errno, "cannot rename '%s' to '%s' in the sandbox's tree",
		                   from, to);
	return 0;
}

static int op_remove(struct rootfs *r, const char *path, struct error *err)
{
	const char *name;
	CLEANUP_CLOSE int top = tree_open_parent(root_of(r), path, &name);
	CLEANUP_CLOSE int dir = -1;

	if (top >= 0)
		dir = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return errno == ENOENT ? 0 : fail(err, "remove", path);
	return tree_remove_at(dir, name) < 0 ? fail(err, "remove", path) : 0;
}

static int op_chmod(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	const char *name;
	CLEANUP_CLOSE int dir = tree_open_parent(root_of(r), path, &name);

	if (dir < 0 || fchmodat(dir, name, mode & 07777, AT_SYMLINK_NOFOLLOW) < 0)
		return fail(err, "change the mode of", path);
	return 0;
}

static int op_run(struct rootfs *r, const struct guest_command *command, struct error *err)
{
	struct sandbox *sandbox = ((struct tree_rootfs *)r)->sandbox;

	if (!sandbox)
		return error_set(err, "cannot run '%s': this tree has no sandbox",
		                 command->argv[0]);
	return sandbox_run(sandbox, command, err);
}

static int op_xattrs(struct rootfs *r, const char *path, struct rootfs_xattr **ret,
                     size_t *ret_count, struct error *err)
{
	const char *name;
	CLEANUP_CLOSE int dir = tree_open_parent(root_of(r), path, &name);

	if (dir < 0 || tree_xattrs_get(dir, name, ret, ret_count) < 0)
		return fail(err, "read the extended attributes of", path);
	return 0;
}

static void op_close(struct rootfs *r)
{
	close(root_of(r));
	free(r);
}

static const struct rootfs_ops tree_ops = {
	.name = "tree",
	.lstat = op_lstat,
	.readlink = op_readlink,
	.list = op_list,
	.read = op_read,
	.copy_out = op_copy_out,
	.statvfs = op_statvfs,
	.write = op_write,
	.copy_in = op_copy_in,
	.mkdir = op_mkdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.remove = op_remove,
	.chmod = op_chmod,
	.run = op_run,
	.close = op_close,
	.xattrs = op_xattrs,
};

int tree_rootfs(struct rootfs **ret, const char *dir, struct sandbox *sandbox, struct error *err)
{
	int root_fd = tree_open_root(dir, err);
	struct tree_rootfs *t;

	if (root_fd < 0)
		return -1;
	t = mem_alloc(sizeof(*t));
	*t = (struct tree_rootfs){.base.ops = &tree_ops, .root_fd = root_fd, .sandbox = sandbox};
	*ret = &t->base;
	return 0;
}
