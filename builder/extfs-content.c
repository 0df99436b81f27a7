/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an inode holds. Data is read in runs of blocks, as long as the disk has them, and not
 * block by block: ext2fs_file_read() would look up the extent tree once per block.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "extfs-internal.h"
#include "str.h"

#define COPY_BYTES ((uint64_t)4 << 20)
/* No block has a higher number inside a file than 32 bits can tell. */
#define MAX_FILE_BLOCKS ((uint64_t)1 << 32)
#define ACL_TAG_USER    0x02
#define ACL_TAG_GROUP   0x08

/* 'count' blocks from 'logical' in the file stand from 'physical' on in the file system. */
struct run {
	uint64_t logical;
	uint64_t physical;
	uint64_t count;
};

struct walk {
	const struct extfs_node *node;
	int (*on_run)(struct walk *walk, const struct run *run, struct error *err);
	void *opaque;
	struct error *err;

	uint64_t next_logical; /* runs must come in order */
	uint64_t blocks;       /* all together: not more than the file system has */
	struct run pending;    /* of block_iterate, still growing */
	bool failed;           /* err is set */
};

static int damaged_map(const struct extfs_node *node, struct error *err)
{
	return extfs_refuse(node->volume, "its block map is damaged", "read", node->path, err);
}

uint64_t extfs_node_size(const struct extfs_node *node)
{
	return (uint64_t)node->inode.i_size | (uint64_t)node->inode.i_size_high << 32;
}

static int take_run(struct walk *walk, const struct run *run, bool has_data)
{
	ext2_filsys fs = walk->node->volume->fs;
	uint64_t blocks = ext2fs_blocks_count(fs->super);

	walk->blocks += run->count;
	if (run->count == 0 || run->logical < walk->next_logical ||
	    run->logical + run->count > MAX_FILE_BLOCKS ||
	    run->physical < fs->super->s_first_data_block || run->physical >= blocks ||
	    run->count > blocks - run->physical || walk->blocks > blocks)
		return damaged_map(walk->node, walk->err);
	walk->next_logical = run->logical + run->count;
	return has_data && walk->on_run ? walk->on_run(walk, run, walk->err) : 0;
}

/* Interior nodes come twice (down and up); each must be a block of its own, so their number
 * is bounded too. Preallocated extents have no data: they read as zeroes. */
static int walk_extent_tree(struct walk *walk, ext2_extent_handle_t handle)
{
	const struct extfs_volume *v = walk->node->volume;
	uint64_t steps_left = 3 * ext2fs_blocks_count(v->fs->super) + 16;
	struct ext2fs_extent extent;
	int op = EXT2_EXTENT_ROOT;

	for (; steps_left > 0; steps_left--, op = EXT2_EXTENT_NEXT) {
		errcode_t code = ext2fs_extent_get(handle, op, &extent);
		struct run run;

		if (code == EXT2_ET_EXTENT_NO_NEXT)
			return 0;
		if (code)
			return extfs_fail(v, code, "read", walk->node->path, walk->err);
		if (!(extent.e_flags & EXT2_EXTENT_FLAGS_LEAF))
			continue;
		run = (struct run){extent.e_lblk, extent.e_pblk, extent.e_len};
		if (take_run(walk, &run, !(extent.e_flags & EXT2_EXTENT_FLAGS_UNINIT)) < 0)
			return -1;
	}
	return damaged_map(walk->node, walk->err);
}

static int walk_extents(struct walk *walk)
{
	const struct extfs_node *node = walk->node;
	struct ext2_inode_large inode = node->inode;
	ext2_extent_handle_t handle;
	errcode_t code = ext2fs_extent_open2(node->volume->fs, node->number,
	                                     (struct ext2_inode *)&inode, &handle);
	int result;

	if (code)
		return extfs_fail(node->volume, code, "read", node->path, walk->err);
	result = walk_extent_tree(walk, handle);
	ext2fs_extent_free(handle);
	return result;
}

static int grow_run(ext2_filsys fs, blk64_t *block, e2_blkcnt_t logical, blk64_t ref_block,
                    int ref_offset, void *opaque)
{
	struct walk *walk = opaque;
	struct run *run = &walk->pending;

	(void)fs;
	(void)ref_block;
	(void)ref_offset;
	if (run->count && run->logical + run->count == (uint64_t)logical &&
	    run->physical + run->count == *block) {
		run->count++;
		return 0;
	}
	if (run->count && take_run(walk, run, true) < 0) {
		walk->failed = true;
		return BLOCK_ABORT;
	}
	*run = (struct run){.logical = (uint64_t)logical, .physical = *block, .count = 1};
	return 0;
}

/* The older map of direct and indirect blocks. */
static int walk_indirect(struct walk *walk)
{
	const struct extfs_node *node = walk->node;
	errcode_t code = ext2fs_block_iterate3(node->volume->fs, node->number,
	                                       BLOCK_FLAG_READ_ONLY | BLOCK_FLAG_DATA_ONLY, NULL,
	                                       grow_run, walk);

	if (walk->failed)
		return -1;
	if (code)
		return extfs_fail(node->volume, code, "read", node->path, walk->err);
	return walk->pending.count ? take_run(walk, &walk->pending, true) : 0;
}

/*
 * Calls on_run for each run of blocks with data, in the file's order. Not for inline data. A
 * map that goes backwards, out of the file system, or has more blocks than it, is refused:
 * so a loop or a bomb in the map ends.
 */
static int walk_runs(struct walk *walk)
{
	if (walk->node->inode.i_flags & EXT4_EXTENTS_FL)
		return walk_extents(walk);
	return walk_indirect(walk);
}

int extfs_node_check_map(const struct extfs_node *node, struct error *err)
{
	struct walk walk = {.node = node, .err = err};

	if (node->inode.i_flags & EXT4_INLINE_DATA_FL)
		return 0;
	return walk_runs(&walk);
}

/* What content must be before it is read. */
static int check_content(const struct extfs_node *node, struct error *err)
{
	const struct extfs_volume *v = node->volume;

	if (node->inode.i_flags & EXT4_ENCRYPT_FL)
		return extfs_refuse(v, "it is encrypted", "read", node->path, err);
	if (node->inode.i_flags & EXT2_COMPRBLK_FL)
		return extfs_refuse(v, "it is compressed", "read", node->path, err);
	if (extfs_node_size(node) > MAX_FILE_BLOCKS * v->fs->blocksize)
		return extfs_refuse(v, "its size is not possible (damaged file system)", "read",
		                    node->path, err);
	return 0;
}

static int check_regular(const struct extfs_node *node, struct error *err)
{
	if (!LINUX_S_ISREG(node->inode.i_mode))
		return extfs_refuse(node->volume, "not a regular file", "read", node->path, err);
	return check_content(node, err);
}

static int read_blocks(const struct extfs_node *node, uint64_t block, uint64_t count, void *data,
                       struct error *err)
{
	errcode_t code = io_channel_read_blk64(node->volume->fs->io, block, (int)count, data);

	return code ? extfs_fail(node->volume, code, "read", node->path, err) : 0;
}

/*
 * Small content stands in the inode itself, and in an extended attribute of it. What is
 * missing up to the size reads as zeroes, as for the kernel: mke2fs -d makes such files.
 */
static int read_inline(const struct extfs_node *node, uint64_t size, char **ret, size_t *ret_size,
                       struct error *err)
{
	struct ext2_inode_large inode = node->inode;
	CLEANUP_FREE char *data = NULL;
	ext2_filsys fs = node->volume->fs;
	size_t have = 0;
	errcode_t code = ext2fs_inline_data_size(fs, node->number, &have);

	if (!code) {
		data = mem_alloc(have + 1);
		code = ext2fs_inline_data_get(fs, node->number, (struct ext2_inode *)&inode, data,
		                              &have);
	}
	if (code)
		return extfs_fail(node->volume, code, "read", node->path, err);
	*ret_size = have < size ? have : (size_t)size;
	*ret = STEAL(data);
	return 0;
}

/* The part of a run that lies before the end of the file, in blocks. */
static uint64_t blocks_inside(const struct extfs_node *node, const struct run *run)
{
	uint64_t block_size = node->volume->fs->blocksize;
	uint64_t blocks = (extfs_node_size(node) + block_size - 1) / block_size;
	uint64_t left = run->logical < blocks ? blocks - run->logical : 0;

	return run->count < left ? run->count : left;
}

static int run_to_memory(struct walk *walk, const struct run *run, struct error *err)
{
	uint64_t block_size = walk->node->volume->fs->blocksize;
	uint64_t count = blocks_inside(walk->node, run);
	uint64_t at_most = INT_MAX / block_size;

	for (uint64_t done = 0, n; done < count; done += n) {
		char *data = (char *)walk->opaque + (run->logical + done) * block_size;

		n = count - done < at_most ? count - done : at_most;
		if (read_blocks(walk->node, run->physical + done, n, data, err) < 0)
			return -1;
	}
	return 0;
}

/* 'size' bytes and a NUL; the caller has bounded the size. */
static int read_content(const struct extfs_node *node, uint64_t size, char **ret, struct error *err)
{
	uint64_t block_size = node->volume->fs->blocksize;
	/* Whole blocks, since runs are read as such. */
	CLEANUP_FREE char *data = mem_alloc((size + block_size) / block_size * block_size);
	struct walk walk = {.node = node, .on_run = run_to_memory, .opaque = data, .err = err};

	if (node->inode.i_flags & EXT4_INLINE_DATA_FL) {
		CLEANUP_FREE char *small = NULL;
		size_t have = 0;

		if (read_inline(node, size, &small, &have, err) < 0)
			return -1;
		if (have)
			memcpy(data, small, have);
	} else if (walk_runs(&walk) < 0) {
		return -1;
	}
	data[size] = '\0';
	*ret = STEAL(data);
	return 0;
}

int extfs_node_read(const struct extfs_node *node, size_t max_bytes, void **ret, size_t *ret_size,
                    struct error *err)
{
	uint64_t size = extfs_node_size(node);
	char *data;

	if (check_regular(node, err) < 0)
		return -1;
	if (size > max_bytes) {
		CLEANUP_FREE char *reason = str_format("it has %llu bytes, more than %zu",
		                                       (unsigned long long)size, max_bytes);

		return extfs_refuse(node->volume, reason, "read", node->path, err);
	}
	if (read_content(node, size, &data, err) < 0)
		return -1;
	*ret = data;
	*ret_size = (size_t)size;
	return 0;
}

/* What a copy needs. */
struct copy {
	int fd;
	char *buffer; /* COPY_BYTES */
};

static int write_all(const struct extfs_node *node, int fd, const char *data, uint64_t size,
                     uint64_t offset, struct error *err)
{
	while (size > 0) {
		ssize_t n = pwrite(fd, data, size, (off_t)offset);

		if (n < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot write a copy of '%s'", node->path);
		if (n > 0) {
			data += n;
			size -= (uint64_t)n;
			offset += (uint64_t)n;
		}
	}
	return 0;
}

static int run_to_file(struct walk *walk, const struct run *run, struct error *err)
{
	const struct copy *copy = walk->opaque;
	uint64_t block_size = walk->node->volume->fs->blocksize;
	uint64_t count = blocks_inside(walk->node, run);
	uint64_t size = extfs_node_size(walk->node);

	for (uint64_t done = 0, n; done < count; done += n) {
		uint64_t offset = (run->logical + done) * block_size;
		uint64_t bytes;

		n = COPY_BYTES / block_size < count - done ? COPY_BYTES / block_size : count - done;
		bytes = n * block_size < size - offset ? n * block_size : size - offset;
		if (read_blocks(walk->node, run->physical + done, n, copy->buffer, err) < 0 ||
		    write_all(walk->node, copy->fd, copy->buffer, bytes, offset, err) < 0)
			return -1;
	}
	return 0;
}

static int copy_runs(const struct extfs_node *node, int fd, struct error *err)
{
	uint64_t size = extfs_node_size(node), block_size = node->volume->fs->blocksize;
	uint64_t whole = (size + block_size - 1) / block_size * block_size;
	CLEANUP_FREE char *buffer = mem_alloc(whole < COPY_BYTES ? whole : COPY_BYTES);
	struct copy copy = {.fd = fd, .buffer = buffer};
	struct walk walk = {.node = node, .on_run = run_to_file, .opaque = &copy, .err = err};

	return walk_runs(&walk);
}

static int copy_inline(const struct extfs_node *node, int fd, struct error *err)
{
	CLEANUP_FREE char *data = NULL;
	size_t have = 0;

	if (read_inline(node, extfs_node_size(node), &data, &have, err) < 0)
		return -1;
	return write_all(node, fd, data, have, 0, err);
}

int extfs_node_copy(const struct extfs_node *node, int fd, struct error *err)
{
	uint64_t size = extfs_node_size(node);
	int result;

	if (check_regular(node, err) < 0)
		return -1;
	if (size == 0)
		return 0;
	if (node->inode.i_flags & EXT4_INLINE_DATA_FL)
		result = copy_inline(node, fd, err);
	else
		result = copy_runs(node, fd, err);
	/* Holes were never written; one may be at the end. */
	if (result == 0 && ftruncate(fd, (off_t)size) < 0)
		return error_errno(err, errno, "cannot write a copy of '%s'", node->path);
	return result;
}

int extfs_node_link(const struct extfs_node *node, char **ret, struct error *err)
{
	struct ext2_inode_large inode = node->inode;
	uint64_t size = extfs_node_size(node);
	CLEANUP_FREE char *text = NULL;

	if (!LINUX_S_ISLNK(node->inode.i_mode))
		return extfs_refuse(node->volume, "not a symbolic link", "read", node->path, err);
	if (check_content(node, err) < 0)
		return -1;
	if (size == 0 || size >= PATH_MAX)
		return extfs_refuse(node->volume, "a link of this length is not possible", "read",
		                    node->path, err);
	if (!(inode.i_flags & EXT4_INLINE_DATA_FL) &&
	    ext2fs_is_fast_symlink((struct ext2_inode *)&inode))
		text = mem_copy(inode.i_block, size);
	else if (read_content(node, size, &text, err) < 0)
		return -1;
	if (strlen(text) != size)
		return extfs_refuse(node->volume, "the link holds a NUL", "read", node->path, err);
	*ret = STEAL(text);
	return 0;
}

struct xattr_list {
	struct ext2_xattr_handle *handle;
	struct rootfs_xattr *items;
	size_t count;
	errcode_t code;
};

static void append_xattr(struct xattr_list *list, const char *name, const void *value, size_t size)
{
	list->items = mem_grow(list->items, list->count + 1, sizeof(*list->items));
	list->items[list->count++] = (struct rootfs_xattr){
		.name = str_copy(name), .value = mem_copy(value, size), .size = size};
}

/*
 * ACLs stand on the disk in a shorter form than getxattr(2) gives. libext2fs converts them in
 * ext2fs_xattr_get() only, and there leaves 0 where the kernel says "no id".
 */
static int append_acl(struct xattr_list *list, const char *name)
{
	const size_t head = 4, entry_size = 8;
	void *converted = NULL;
	uint8_t *acl;
	size_t size = 0;

	list->code = ext2fs_xattr_get(list->handle, name, &converted, &size);
	if (list->code)
		return XATTR_ABORT;
	acl = converted;
	for (size_t at = head; at + entry_size <= size; at += entry_size)
		if (acl[at] != ACL_TAG_USER && acl[at] != ACL_TAG_GROUP)
			memset(acl + at + 4, 0xff, 4);
	append_xattr(list, name, acl, size);
	ext2fs_free_mem(&converted);
	return 0;
}

static int add_xattr(char *name, char *value, size_t size, void *opaque)
{
	if (strcmp(name, "system.data") == 0)
		return 0; /* inline content, no attribute that getxattr(2) knows */
	if (str_starts(name, "system.posix_acl_"))
		return append_acl(opaque, name);
	append_xattr(opaque, name, value, size);
	return 0;
}

int extfs_node_xattrs(const struct extfs_node *node, struct rootfs_xattr **ret, size_t *ret_count,
                      struct error *err)
{
	struct xattr_list list = {0};
	errcode_t code = ext2fs_xattrs_open(node->volume->fs, node->number, &list.handle);

	if (!code)
		code = ext2fs_xattrs_read(list.handle);
	if (!code)
		code = ext2fs_xattrs_iterate(list.handle, add_xattr, &list);
	if (!code)
		code = list.code;
	if (list.handle)
		ext2fs_xattrs_close(&list.handle);
	if (code) {
		rootfs_xattrs_free(list.items, list.count);
		return extfs_fail(node->volume, code, "read the attributes of", node->path, err);
	}
	*ret = list.items;
	*ret_count = list.count;
	return 0;
}
