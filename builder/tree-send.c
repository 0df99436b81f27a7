/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changed files, one after the other, to whatever takes them into the image. A file's other
 * names are sent as such: a change of the file changes the ctime of all its names, so they are
 * all in the list.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "tree-private.h"

#define FILE_BYTES_MAX ((off_t)64 << 30)
#define SELINUX_XATTR  "security.selinux"

struct sending {
	const struct tree *tree;
	struct tree_sink *sink;
	struct inode_map sent; /* regular files with more than one name */
};

static int file_fail(const char *path, struct error *err)
{
	return error_errno(err, errno, "cannot read '%s' from the sandbox's tree", path);
}

static int set_owner(struct tree_node *node, const struct stat *st, struct error *err)
{
	if (tree_id_to_guest(st->st_uid, &node->uid) && tree_id_to_guest(st->st_gid, &node->gid))
		return 0;
	error_set(err, "'%s' in the sandbox's tree has an owner outside the mapped ids: %u:%u",
	          node->path, st->st_uid, st->st_gid);
	return error_code(err, EXIT_INPUT);
}

static int send_regular(struct sending *s, struct tree_node *node, int dir_fd, const char *name,
                        struct error *err)
{
	CLEANUP_CLOSE int fd =
		openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return file_fail(node->path, err);
	if (!S_ISREG(st.st_mode))
		return error_set(err, "'%s' in the sandbox's tree was replaced while it was read",
		                 node->path);
	if (st.st_size > FILE_BYTES_MAX)
		return error_set(err, "'%s' in the sandbox's tree is larger than %lld GiB",
		                 node->path, (long long)(FILE_BYTES_MAX >> 30));
	if (st.st_nlink > 1)
		node->same_as = inode_map_add(&s->sent, st.st_dev, st.st_ino, node->path);
	node->fd = fd;
	node->size_bytes = (uint64_t)st.st_size;
	return s->sink->put(s->sink, node, err);
}

static int send_link(struct sending *s, struct tree_node *node, int dir_fd, const char *name,
                     struct error *err)
{
	char target[PATH_MAX];
	ssize_t length = readlinkat(dir_fd, name, target, sizeof(target) - 1);

	if (length < 0)
		return file_fail(node->path, err);
	target[length] = '\0';
	node->link_target = target;
	return s->sink->put(s->sink, node, err);
}

static int send_node(struct sending *s, struct tree_node *node, int dir_fd, const char *name,
                     struct error *err)
{
	if (S_ISREG(node->mode))
		return send_regular(s, node, dir_fd, name, err);
	if (S_ISLNK(node->mode))
		return send_link(s, node, dir_fd, name, err);
	return s->sink->put(s->sink, node, err);
}

static bool has_label(const struct rootfs_xattr *xattrs, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (str_equal(xattrs[i].name, SELINUX_XATTR))
			return true;
	return false;
}

/* What the guest's kernel would have given to a new file; with its NUL, as restorecon(8) does. */
static int add_label(const struct tree *tree, const char *path, uint32_t mode,
                     struct rootfs_xattr **xattrs, size_t *count, struct error *err)
{
	char *label = NULL;

	if (!tree->labeler || has_label(*xattrs, *count))
		return 0;
	if (tree->labeler(tree->labeler_opaque, path, mode, &label, err) < 0)
		return -1;
	if (!label)
		return 0;
	*xattrs = mem_grow(*xattrs, *count + 1, sizeof(**xattrs));
	(*xattrs)[(*count)++] =
		(struct rootfs_xattr){str_copy(SELINUX_XATTR), label, strlen(label) + 1};
	return 0;
}

static int get_xattrs(const struct tree *tree, int dir_fd, const char *name, struct tree_node *node,
                      struct rootfs_xattr **ret, struct error *err)
{
	if (tree_xattrs_get(dir_fd, name, ret, &node->xattr_count) < 0)
		return error_errno(err, errno, "cannot read the extended attributes of '%s'",
		                   node->path);
	return add_label(tree, node->path, node->mode, ret, &node->xattr_count, err);
}

static int send_path(struct sending *s, const char *path, struct error *err)
{
	struct tree_node node = {.path = path, .fd = -1};
	struct rootfs_xattr *xattrs = NULL;
	const char *name;
	CLEANUP_CLOSE int dir_fd = tree_open_parent(s->tree->root_fd, path, &name);
	struct stat st;
	int result;

	if (dir_fd < 0 || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return file_fail(path, err);
	if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode) &&
	    !S_ISFIFO(st.st_mode)) {
		log_detail(s->tree->log, "'%s' is a socket or device node, left out", path);
		return 0;
	}
	node.mode = st.st_mode;
	node.mtime_s = st.st_mtim.tv_sec;
	node.mtime_ns = (uint32_t)st.st_mtim.tv_nsec;
	if (s->tree->clamps_times && node.mtime_s >= s->tree->clamp_s) {
		node.mtime_s = s->tree->clamp_s;
		node.mtime_ns = 0;
	}
	if (set_owner(&node, &st, err) < 0)
		return -1;
	result = get_xattrs(s->tree, dir_fd, name, &node, &xattrs, err);
	node.xattrs = xattrs;
	if (result == 0)
		result = send_node(s, &node, dir_fd, name, err);
	rootfs_xattrs_free(xattrs, node.xattr_count);
	return result;
}

int tree_send(const struct tree *tree, const struct strv *changed, struct tree_sink *sink,
              struct error *err)
{
	struct sending s = {.tree = tree, .sink = sink};
	int result = 0;

	for (size_t i = 0; i < changed->count && result == 0; i++)
		result = send_path(&s, changed->items[i], err);
	inode_map_free(&s.sent);
	return result;
}
