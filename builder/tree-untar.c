/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tree out of a tar, for roots that only the appliance reads. The tar is as untrusted as the
 * image: every member is made relative to its own directory, which is opened without following
 * any link, so that no earlier member can lead a later one outside.
 */
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <string.h>
#include <sys/stat.h>

#include "fd.h"
#include "tree-untar.h"

#define READ_BYTES  ((size_t)256 * 1024)
#define HOLE_BYTES  ((size_t)4096) /* what tar filled up with zeros becomes a hole again */
#define PAD_BYTES   ((uint64_t)16 << 20)
#define MEMBERS_MAX (16u << 20)

static int tar_fail(struct untar *u, struct error *err)
{
	const char *why = archive_error_string(u->archive);
	CLEANUP_FREE char *shown = str_printable(why ? why : "unknown error", 300);

	return error_set(err, "cannot read the tar of the image's files: %s", shown);
}

/* "./etc/passwd" as "/etc/passwd"; NULL if it leads outside or is none. */
static char *plain_path(const char *name)
{
	CLEANUP_STRV struct strv parts = {0};
	CLEANUP_FREE char *joined = NULL;

	if (!name || name[0] == '/')
		return NULL;
	parts = strv_split(name, "/");
	if (parts.count > (size_t)2 * TREE_DEPTH_MAX) /* "././." and so on, too */
		return NULL;
	for (size_t i = parts.count; i-- > 0;) {
		if (str_equal(parts.items[i], "..") || strlen(parts.items[i]) > NAME_MAX)
			return NULL;
		if (str_equal(parts.items[i], "."))
			strv_remove(&parts, i);
	}
	if (parts.count > TREE_DEPTH_MAX)
		return NULL;
	joined = strv_join(&parts, "/");
	return str_format("/%s", joined);
}

static int member_path(char **ret, const char *name, struct error *err)
{
	CLEANUP_FREE char *shown = str_printable(name ? name : "", 300);

	*ret = plain_path(name);
	return *ret ? 0
	            : tree_place_refuse(shown,
	                                "the tar has a member whose name leads outside, or is too "
	                                "long or too deep",
	                                err);
}

static bool is_below_skipped(const char *path)
{
	const char *slash = strchr(path + 1, '/');
	CLEANUP_FREE char *top = slash ? mem_copy(path, (size_t)(slash - path)) : NULL;

	return top && tree_is_skipped(top);
}

/* Makes the directories on the way to 'path' that no member has made (yet). */
static int make_parents(const struct untar *u, const char *path, struct error *err)
{
	for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		CLEANUP_FREE char *dir = mem_copy(path, (size_t)(slash - path));
		const char *name;
		CLEANUP_CLOSE int parent = tree_open_parent(u->tree->root_fd, dir, &name);

		if (parent < 0)
			return error_errno(err, errno, "cannot open the directory of '%s'", dir);
		if (mkdirat(parent, name, 0755) < 0) {
			if (errno == EEXIST)
				continue;
			return error_errno(err, errno, "cannot make '%s' in the sandbox's tree",
			                   dir);
		}
		if (fchownat(parent, name, TREE_UID_BASE, TREE_UID_BASE, AT_SYMLINK_NOFOLLOW) < 0)
			return error_errno(err, errno, "cannot give '%s' to the guest's root", dir);
	}
	return 0;
}

/* The open directory of a member. */
static int open_parent(const struct untar *u, const char *path, const char **ret_name,
                       struct error *err)
{
	int fd = tree_open_parent(u->tree->root_fd, path, ret_name);

	if (fd < 0 && errno == ENOENT) {
		if (make_parents(u, path, err) < 0)
			return -1;
		fd = tree_open_parent(u->tree->root_fd, path, ret_name);
	}
	if (fd >= 0)
		return fd;
	if (errno == ELOOP || errno == ENOTDIR)
		return tree_place_refuse(path, "the tar has it behind a link or file", err);
	return error_errno(err, errno, "cannot open the directory of '%s' in the sandbox's tree",
	                   path);
}

static int set_attributes(struct untar *u, const struct tree_place *p, struct archive_entry *e,
                          struct error *err)
{
	struct stat st;
	const char *name;
	const void *value;
	size_t size;

	if (tree_place_set_owner(p, err) < 0)
		return -1;
	archive_entry_xattr_reset(e);
	while (archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK) {
		/* what is only read is not written: the structure is also used for own copies */
		const struct rootfs_xattr xattr = {(char *)name, (void *)value, size};

		if (tree_place_set_xattr(p, &xattr, u->tree->log, &u->lost_xattrs, err) < 0)
			return -1;
	}
	return tree_place_finish(p, &st, err);
}

/* The later of two members wins, as with tar(1). 1: a directory is there, and stays. */
static int clear_place(const struct tree_place *p, struct error *err)
{
	struct stat st;

	if (fstatat(p->dir_fd, p->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : tree_place_fail(p, err);
	if (S_ISDIR(st.st_mode) && S_ISDIR(p->st.mode))
		return 1;
	if (unlinkat(p->dir_fd, p->name, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) == 0)
		return 0;
	if (errno == ENOTEMPTY || errno == EEXIST)
		return tree_place_refuse(
			p->path, "the tar has it as a directory first, then as something else",
			err);
	return tree_place_fail(p, err);
}

static int put_dir(struct untar *u, struct tree_place *p, struct archive_entry *e, bool is_there,
                   struct error *err)
{
	CLEANUP_CLOSE int fd = -1;

	if (!is_there && mkdirat(p->dir_fd, p->name, 0700) < 0)
		return tree_place_fail(p, err);
	fd = openat(p->dir_fd, p->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return tree_place_fail(p, err);
	p->fd = fd;
	untar_add_dir(u, p);
	if (is_there && u->over_tree && untar_drop_xattrs(p, err) < 0)
		return -1;
	return set_attributes(u, p, e, err);
}

static bool is_zero(const char *data, size_t size)
{
	return data[0] == 0 && memcmp(data, data + 1, size - 1) == 0;
}

static int write_block(struct untar *u, const struct tree_place *p, const char *data, size_t size,
                       off_t at, struct error *err)
{
	while (size > 0) {
		/* pieces that end where the file system's blocks do */
		size_t n = HOLE_BYTES - (size_t)at % HOLE_BYTES;

		if (n > size)
			n = size;
		if (!is_zero(data, n)) {
			u->tree->copied_bytes += n;
			if (lseek(p->fd, at, SEEK_SET) < 0 || fd_write_all(p->fd, data, n) < 0)
				return tree_place_fail(p, err);
		}
		data += n;
		size -= n;
		at += (off_t)n;
	}
	return 0;
}

static int put_content(struct untar *u, const struct tree_place *p, struct error *err)
{
	const void *data;
	size_t size;
	la_int64_t at;
	int status;

	if (p->st.size_bytes > INT64_MAX || ftruncate(p->fd, (off_t)p->st.size_bytes) < 0)
		return tree_place_fail(p, err);
	while ((status = archive_read_data_block(u->archive, &data, &size, &at)) == ARCHIVE_OK) {
		if (at < 0 || (uint64_t)at > p->st.size_bytes ||
		    size > p->st.size_bytes - (uint64_t)at)
			return tree_place_refuse(p->path, "the tar has data behind the file's end",
			                         err);
		if (write_block(u, p, data, size, at, err) < 0)
			return -1;
	}
	return status == ARCHIVE_EOF ? 0 : tar_fail(u, err);
}

/* Holes count too: the tar has them as zeros, and a file of many terabytes of them is easily made.
 */
static int take_size(struct untar *u, struct tree_place *p, struct archive_entry *e,
                     struct error *err)
{
	p->st.size_bytes = (uint64_t)archive_entry_size(e);
	if (p->st.size_bytes <= u->max_bytes - u->member_bytes) {
		u->member_bytes += p->st.size_bytes;
		return 0;
	}
	tree_place_refuse(p->path,
	                  "the files, with their holes, are far larger than their file systems",
	                  err);
	return error_hint(err, "take sparse files out of the base (often '/var/log/lastlog'), or "
	                       "build with --exec=appliance");
}

static int put_regular(struct untar *u, struct tree_place *p, struct archive_entry *e,
                       struct error *err)
{
	CLEANUP_CLOSE int fd = openat(p->dir_fd, p->name,
	                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return tree_place_fail(p, err);
	p->fd = fd;
	if (take_size(u, p, e, err) < 0 || put_content(u, p, err) < 0)
		return -1;
	return set_attributes(u, p, e, err);
}

static int put_symlink(struct untar *u, const struct tree_place *p, struct archive_entry *e,
                       struct error *err)
{
	const char *target = archive_entry_symlink(e);

	if (!target || !*target)
		return tree_place_refuse(p->path, "the tar has it as a link to nothing", err);
	if (symlinkat(target, p->dir_fd, p->name) < 0)
		return tree_place_fail(p, err);
	return set_attributes(u, p, e, err);
}

/*
 * A further name. One of a device node is left out like the node; but whether the target is one
 * can be looked up only when all are known.
 */
static int put_hard_link(struct untar *u, const struct tree_place *p, const char *target_name,
                         struct error *err)
{
	CLEANUP_FREE char *target = NULL;
	CLEANUP_CLOSE int dir_fd = -1;
	const char *name;
	struct stat st;

	if (member_path(&target, target_name, err) < 0)
		return -1;
	if (str_equal(target, p->path))
		return 0;
	dir_fd = tree_open_parent(u->tree->root_fd, target, &name);
	if (dir_fd < 0 || fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno != ENOENT)
			return tree_place_refuse(
				p->path, "the tar has it as another name of what it does not hold",
				err);
		strv_add(&u->orphans, p->path);
		strv_add(&u->orphans, target);
		return clear_place(p, err) < 0 ? -1 : 0;
	}
	if (S_ISDIR(st.st_mode))
		return tree_place_refuse(p->path, "the tar has it as another name of a directory",
		                         err);
	if (clear_place(p, err) < 0)
		return -1;
	return linkat(dir_fd, name, p->dir_fd, p->name, 0) < 0 ? tree_place_fail(p, err) : 0;
}

static int put_place(struct untar *u, struct tree_place *p, struct archive_entry *e,
                     struct error *err)
{
	const char *hard_link = archive_entry_hardlink(e);
	int is_there;

	if (hard_link)
		return put_hard_link(u, p, hard_link, err);
	is_there = clear_place(p, err);
	if (is_there < 0)
		return -1;
	switch (p->st.mode & S_IFMT) {
	case S_IFDIR:
		return put_dir(u, p, e, is_there == 1, err);
	case S_IFREG:
		return put_regular(u, p, e, err);
	case S_IFLNK:
		return put_symlink(u, p, e, err);
	case S_IFIFO:
		if (mknodat(p->dir_fd, p->name, S_IFIFO | 0600, 0) < 0)
			return tree_place_fail(p, err);
		return set_attributes(u, p, e, err);
	default:
		untar_add_left_out(u, p->path, p->st.mode);
		return 0;
	}
}

static bool owner_fits(const struct archive_entry *e)
{
	la_int64_t uid = archive_entry_uid((struct archive_entry *)e);
	la_int64_t gid = archive_entry_gid((struct archive_entry *)e);

	return uid >= 0 && uid <= UINT32_MAX && gid >= 0 && gid <= UINT32_MAX;
}

static int put_member(struct untar *u, struct archive_entry *e, struct error *err)
{
	CLEANUP_FREE char *path = NULL;
	struct tree_place p = {.entry = TREE_NO_ENTRY, .fd = -1};
	CLEANUP_CLOSE int dir_fd = -1;

	if (member_path(&path, archive_entry_pathname(e), err) < 0)
		return -1;
	if (++u->member_count > MEMBERS_MAX)
		return tree_place_refuse(path, "the tar has too many members", err);
	p.st.mode = (uint32_t)archive_entry_mode(e);
	/* What the sandbox mounts over is a directory, whatever the image has there. */
	if (!path[1] || is_below_skipped(path) || (tree_is_skipped(path) && !S_ISDIR(p.st.mode)))
		return 0;
	if (!owner_fits(e))
		return tree_place_refuse(path, "the tar has it with an owner that is none", err);
	p.path = path;
	p.st.uid = (uint32_t)archive_entry_uid(e);
	p.st.gid = (uint32_t)archive_entry_gid(e);
	p.st.mtime_s = archive_entry_mtime(e);
	p.st.mtime_ns = (uint32_t)archive_entry_mtime_nsec(e);
	dir_fd = open_parent(u, path, &p.name, err);
	if (dir_fd < 0)
		return -1;
	p.dir_fd = dir_fd;
	return put_place(u, &p, e, err);
}

static int open_tar(struct untar *u, struct error *err)
{
	if (archive_read_support_format_tar(u->archive) != ARCHIVE_OK ||
	    archive_read_open_fd(u->archive, u->fd, READ_BYTES) != ARCHIVE_OK)
		return tar_fail(u, err);
	return 0;
}

/* tar pads its end, and whoever writes shall not break on that. */
static int drain(const struct untar *u, struct error *err)
{
	CLEANUP_FREE char *buffer = mem_alloc(READ_BYTES);
	uint64_t total = 0;
	ssize_t n;

	while ((n = read(u->fd, buffer, READ_BYTES)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read the tar to its end");
		total += (uint64_t)n;
		if (total > PAD_BYTES) {
			error_set(err, "there is more behind the end of the tar of the image's "
			               "files");
			return error_code(err, EXIT_INPUT);
		}
	}
	return 0;
}

static int put_members(struct untar *u, struct error *err)
{
	struct archive_entry *e;
	int status;

	if (open_tar(u, err) < 0)
		return -1;
	/* a warning: a name or owner's name that is no UTF-8, or a keyword that is not known */
	while ((status = archive_read_next_header(u->archive, &e)) == ARCHIVE_OK ||
	       status == ARCHIVE_WARN)
		if (put_member(u, e, err) < 0)
			return -1;
	return status == ARCHIVE_EOF ? drain(u, err) : tar_fail(u, err);
}

int untar_members(struct untar *u, struct error *err)
{
	/* see tree_write_tar() */
	locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
	locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
	int result;

	u->archive = archive_read_new();
	result = put_members(u, err);
	archive_read_free(STEAL(u->archive));
	if (utf8) {
		uselocale(before);
		freelocale(utf8);
	}
	return result;
}

int tree_extract_tar(struct tree **ret, int fd, uint64_t max_bytes, const char *dir,
                     struct log *log, struct error *err)
{
	CLEANUP_TREE struct tree *tree = tree_new(dir, log);
	struct untar u = {.tree = tree, .fd = fd, .max_bytes = max_bytes};
	int result = tree_make_root(tree, err);

	if (result == 0)
		result = untar_members(&u, err);
	if (result == 0)
		result = untar_finish(&u, err);
	untar_free(&u);
	if (result < 0)
		return error_prefix(err, "cannot unpack the image's root to '%s'", dir);
	tree_tell_copied(tree, u.lost_xattrs);
	*ret = STEAL(tree);
	return 0;
}
