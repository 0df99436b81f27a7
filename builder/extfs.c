/* SPDX-License-Identifier: Apache-2.0 */
/* The rootfs backend: one file system at the root, others at directories of it. */
#include <string.h>

#include "extfs-internal.h"
#include "extfs.h"
#include "str.h"

struct mount {
	char *path; /* "/", "/boot" */
	struct extfs_volume *volume;
};

struct extfs {
	struct rootfs rootfs; /* first */
	struct disk *disk;
	struct mount *mounts;
	size_t count;
};

const char *extfs_path_below(const char *mount, const char *path)
{
	size_t length = strcmp(mount, "/") == 0 ? 0 : strlen(mount);

	if (strncmp(path, mount, length) != 0)
		return NULL;
	return path[length] == '/' || path[length] == '\0' ? path + length : NULL;
}

/* The longest mount that holds the path; of equal ones the last, as for the kernel. */
static size_t find_mount(const struct extfs *x, const char *path, const char **ret_below)
{
	size_t best = 0, best_length = 0;

	*ret_below = path;
	for (size_t i = 0; i < x->count; i++) {
		const char *below = extfs_path_below(x->mounts[i].path, path);

		if (!below || strlen(x->mounts[i].path) < best_length)
			continue;
		best = i;
		best_length = strlen(x->mounts[i].path);
		*ret_below = below;
	}
	return best;
}

/* 1, 0, -1. *ret_mount (may be NULL): index of the mount. */
static int find(struct rootfs *r, const char *path, struct extfs_node *ret, size_t *ret_mount,
                struct error *err)
{
	struct extfs *x = (struct extfs *)r;
	const char *below;
	size_t mount = find_mount(x, path, &below);
	int found = extfs_find(x->mounts[mount].volume, below, ret, err);

	if (found > 0)
		ret->path = path;
	if (found > 0 && ret_mount)
		*ret_mount = mount;
	return found;
}

/* As find(), where missing is an error. */
static int must_find(struct rootfs *r, const char *path, struct extfs_node *ret, struct error *err)
{
	struct extfs *x = (struct extfs *)r;
	int found = find(r, path, ret, NULL, err);
	const char *below;

	if (found < 0)
		return -1;
	if (found == 0)
		return extfs_refuse(x->mounts[find_mount(x, path, &below)].volume,
		                    "no such file or directory", "find", path, err);
	return 0;
}

/* Seconds have 34 bits where the inode is large enough: two more stand with the nanoseconds. */
static void read_mtime(const struct ext2_inode_large *inode, struct rootfs_stat *ret)
{
	size_t end =
		offsetof(struct ext2_inode_large, i_mtime_extra) + sizeof(inode->i_mtime_extra);

	ret->mtime_s = (int32_t)inode->i_mtime;
	if (EXT2_GOOD_OLD_INODE_SIZE + (size_t)inode->i_extra_isize < end)
		return;
	ret->mtime_s += (int64_t)(inode->i_mtime_extra & 3) << 32;
	ret->mtime_ns = inode->i_mtime_extra >> 2;
	if (ret->mtime_ns >= 1000000000)
		ret->mtime_ns = 0;
}

static int ext_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret, struct error *err)
{
	struct extfs_node node;
	size_t mount;
	int found = find(r, path, &node, &mount, err);

	if (found <= 0)
		return found;
	*ret = (struct rootfs_stat){
		.mode = node.inode.i_mode,
		.uid = inode_uid(node.inode),
		.gid = inode_gid(node.inode),
		.size_bytes = extfs_node_size(&node),
		.inode = node.number,
		.device = mount + 1,
	};
	read_mtime(&node.inode, ret);
	return found;
}

static int ext_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	struct extfs_node node;

	return must_find(r, path, &node, err) < 0 ? -1 : extfs_node_link(&node, ret, err);
}

static int ext_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	struct extfs_node node;

	return must_find(r, path, &node, err) < 0 ? -1 : extfs_names(&node, ret, err);
}

static int ext_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                    size_t *ret_size, struct error *err)
{
	struct extfs_node node;
	size_t size;

	if (must_find(r, path, &node, err) < 0 ||
	    extfs_node_read(&node, max_bytes, ret, &size, err) < 0)
		return -1;
	if (ret_size)
		*ret_size = size;
	return 0;
}

static int ext_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	struct extfs_node node;

	return must_find(r, path, &node, err) < 0 ? -1 : extfs_node_copy(&node, fd, err);
}

static int ext_xattrs(struct rootfs *r, const char *path, struct rootfs_xattr **ret,
                      size_t *ret_count, struct error *err)
{
	struct extfs_node node;

	if (must_find(r, path, &node, err) < 0)
		return -1;
	return extfs_node_xattrs(&node, ret, ret_count, err);
}

/* Free for root, reserved blocks included: who asks writes as root. */
static int ext_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                       uint64_t *ret_size_bytes, struct error *err)
{
	struct extfs_node node;
	ext2_filsys fs;

	if (must_find(r, path, &node, err) < 0)
		return -1;
	fs = node.volume->fs;
	*ret_free_bytes = ext2fs_free_blocks_count(fs->super) * (uint64_t)fs->blocksize;
	*ret_size_bytes = ext2fs_blocks_count(fs->super) * (uint64_t)fs->blocksize;
	return 0;
}

static void ext_close(struct rootfs *r)
{
	struct extfs *x = (struct extfs *)r;

	for (size_t i = 0; i < x->count; i++) {
		extfs_volume_close(x->mounts[i].volume);
		free(x->mounts[i].path);
	}
	free(x->mounts);
	free(x);
}

static const struct rootfs_ops ext_ops = {
	.name = "ext",
	.lstat = ext_lstat,
	.readlink = ext_readlink,
	.list = ext_list,
	.read = ext_read,
	.copy_out = ext_copy_out,
	.statvfs = ext_statvfs,
	.close = ext_close,
	.xattrs = ext_xattrs,
};

static int add_mount(struct extfs *x, const char *path, const struct volume *volume,
                     struct error *err)
{
	struct extfs_volume *v;

	if (!extfs_supports(volume)) {
		error_set(err,
		          "image '%s': cannot read the file system of partition %d: it is '%s'",
		          disk_path(x->disk), volume->number,
		          volume->type ? volume->type : "unknown");
		return error_code(err, EXIT_INPUT);
	}
	if (extfs_volume_open(&v, x->disk, volume, err) < 0)
		return -1;
	x->mounts = mem_grow(x->mounts, x->count + 1, sizeof(*x->mounts));
	x->mounts[x->count++] = (struct mount){.path = str_copy(path), .volume = v};
	return 0;
}

bool extfs_supports(const struct volume *volume)
{
	if (volume->lv)
		return false; /* where it lies on the disk only LVM knows */
	return str_equal(volume->type, "ext2") || str_equal(volume->type, "ext3") ||
	       str_equal(volume->type, "ext4");
}

int extfs_open(struct rootfs **ret, struct disk *disk, const struct volume *volume,
               struct error *err)
{
	struct extfs *x = mem_alloc(sizeof(*x));

	x->rootfs.ops = &ext_ops;
	x->disk = disk;
	if (add_mount(x, "/", volume, err) < 0) {
		ext_close(&x->rootfs);
		return -1;
	}
	*ret = &x->rootfs;
	return 0;
}

int extfs_mount(struct rootfs *r, const char *path, const struct volume *volume, struct error *err)
{
	struct extfs *x = (struct extfs *)r;
	struct extfs_node node;
	size_t length = strlen(path);

	if (path[0] != '/' || length < 2 || path[length - 1] == '/')
		return error_set(err,
		                 "cannot mount partition %d at '%s': not a plain absolute path",
		                 volume->number, path);
	if (must_find(r, path, &node, err) < 0)
		return error_prefix(err, "cannot mount partition %d", volume->number);
	if (!LINUX_S_ISDIR(node.inode.i_mode))
		return extfs_refuse(node.volume, "not a directory", "mount a file system at", path,
		                    err);
	return add_mount(x, path, volume, err);
}
