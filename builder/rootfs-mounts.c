/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several file systems as one tree. A backend sees only paths without links, so a path belongs
 * to the mount point that is its longest beginning; links between them are followed above, in
 * rootfs.c, which asks here again for each part.
 */
#include <string.h>

#include "rootfs-mounts.h"
#include "str.h"

struct mount {
	char *path; /* where it begins, without links; "/" for the first one */
	struct rootfs *fs;
};

/* A device as a backend numbers it, of which several may say the same. */
struct device {
	size_t mount;
	uint64_t number;
};

struct mounts {
	struct rootfs rootfs; /* first */
	struct mount *items;
	size_t count;
	struct device *devices; /* our number is the place in here, and one */
	size_t device_count;
};

/* The part of 'path' below a mount point, "/" for itself; NULL: not below it. */
static const char *path_below(const char *mount, const char *path)
{
	size_t length = str_equal(mount, "/") ? 0 : strlen(mount);

	if (strncmp(path, mount, length) != 0)
		return NULL;
	if (path[length] == '\0')
		return "/";
	return path[length] == '/' ? path + length : NULL;
}

/* The longest mount point wins, of equal ones the last. */
static size_t find_mount(const struct mounts *m, const char *path, const char **ret_below)
{
	size_t best = 0;

	*ret_below = path;
	for (size_t i = 0; i < m->count; i++) {
		const char *below = path_below(m->items[i].path, path);

		if (!below || strlen(m->items[i].path) < strlen(m->items[best].path))
			continue;
		best = i;
		*ret_below = below;
	}
	return best;
}

static struct rootfs *find_fs(struct rootfs *r, const char *path, const char **ret_below)
{
	const struct mounts *m = (const struct mounts *)r;

	return m->items[find_mount(m, path, ret_below)].fs;
}

static uint64_t device_of(struct mounts *m, size_t mount, uint64_t number)
{
	for (size_t i = 0; i < m->device_count; i++)
		if (m->devices[i].mount == mount && m->devices[i].number == number)
			return i + 1;
	m->devices = mem_grow(m->devices, m->device_count + 1, sizeof(*m->devices));
	m->devices[m->device_count++] = (struct device){mount, number};
	return m->device_count;
}

static int mounts_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                        struct error *err)
{
	struct mounts *m = (struct mounts *)r;
	const char *below;
	size_t mount = find_mount(m, path, &below);
	struct rootfs *fs = m->items[mount].fs;
	int found = fs->ops->lstat(fs, below, ret, err);

	if (found > 0)
		ret->device = device_of(m, mount, ret->device);
	return found;
}

static int mounts_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	const char *below;
	struct rootfs *fs = find_fs(r, path, &below);

	return fs->ops->readlink(fs, below, ret, err);
}

static int mounts_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	const char *below;
	struct rootfs *fs = find_fs(r, path, &below);

	return fs->ops->list(fs, below, ret, err);
}

static int mounts_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                       size_t *ret_size, struct error *err)
{
	const char *below;
	struct rootfs *fs = find_fs(r, path, &below);

	return fs->ops->read(fs, below, max_bytes, ret, ret_size, err);
}

static int mounts_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	const char *below;
	struct rootfs *fs = find_fs(r, path, &below);

	return fs->ops->copy_out(fs, below, fd, err);
}

static int mounts_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                          uint64_t *ret_size_bytes, struct error *err)
{
	const char *below;
	struct rootfs *fs = find_fs(r, path, &below);

	return fs->ops->statvfs(fs, below, ret_free_bytes, ret_size_bytes, err);
}

static int mounts_xattrs(struct rootfs *r, const char *path, struct rootfs_xattr **ret,
                         size_t *ret_count, struct error *err)
{
	const char *below;
	struct rootfs *fs = find_fs(r, path, &below);

	if (fs->ops->xattrs)
		return fs->ops->xattrs(fs, below, ret, ret_count, err);
	*ret = NULL;
	*ret_count = 0;
	return 0;
}

static void mounts_close(struct rootfs *r)
{
	struct mounts *m = (struct mounts *)r;

	for (size_t i = m->count; i > 0; i--) {
		rootfs_close(m->items[i - 1].fs);
		free(m->items[i - 1].path);
	}
	free(m->items);
	free(m->devices);
	free(m);
}

static const struct rootfs_ops mounts_ops = {
	.name = "mounts",
	.lstat = mounts_lstat,
	.readlink = mounts_readlink,
	.list = mounts_list,
	.read = mounts_read,
	.copy_out = mounts_copy_out,
	.statvfs = mounts_statvfs,
	.close = mounts_close,
	.xattrs = mounts_xattrs,
};

/* Takes both. */
static void add_mount(struct mounts *m, char *path, struct rootfs *fs)
{
	m->items = mem_grow(m->items, m->count + 1, sizeof(*m->items));
	m->items[m->count++] = (struct mount){path, fs};
}

struct rootfs *rootfs_mounts_new(struct rootfs *root)
{
	struct mounts *m = mem_alloc(sizeof(*m));

	m->rootfs.ops = &mounts_ops;
	add_mount(m, str_copy("/"), root);
	return &m->rootfs;
}

int rootfs_mounts_add(struct rootfs *r, const char *path, struct rootfs *mounted, struct error *err)
{
	CLEANUP_ROOTFS struct rootfs *fs = mounted;
	CLEANUP_FREE char *real = NULL;
	struct rootfs_stat st = {0};
	int found;

	if (*path != '/') {
		error_set(err, "cannot mount a file system at '%s': not an absolute path", path);
		return error_code(err, EXIT_INPUT);
	}
	found = rootfs_resolve(r, path, true, &real, err);
	if (found > 0)
		found = rootfs_lstat(r, real, &st, err);
	if (found < 0)
		return error_prefix(err, "cannot mount a file system at '%s'", path);
	if (found == 0 || !S_ISDIR(st.mode)) {
		error_set(err, "cannot mount a file system at '%s' in the image: %s", path,
		          found ? "not a directory" : "no such directory");
		error_hint(err, "make the directory in the image, or take the line out of its "
		                "/etc/fstab");
		return error_code(err, EXIT_INPUT);
	}
	add_mount((struct mounts *)r, STEAL(real), STEAL(fs));
	return 0;
}
