/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of an inode. All that one build writes, data and tables, is put side by side behind one
 * moving mark, and not near its directory as the kernel would: so it fills whole clusters of the
 * overlay, whose other blocks need not be fetched from the base.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "extfs-write-internal.h"
#include "str.h"

#define BUFFER_BYTES     ((uint64_t)4 << 20)
#define LARGE_FREE_BYTES ((uint64_t)16 << 20)
/* Of an initialised extent, in blocks. */
#define EXTENT_BLOCKS_MAX 32768u
/* How many free ranges are looked at for one that is large enough. */
#define RANGES_MAX      2048
#define FILE_BLOCKS_MAX (((uint64_t)1 << 32) - 1)

struct range {
	blk64_t start, count;
};

/* A free range of 'want' blocks, cut to them, at or behind 'from'; *best gets the largest one. */
static bool find_between(ext2_filsys fs, blk64_t from, blk64_t end, blk64_t want,
                         struct range *best)
{
	blk64_t free_block, used;

	for (int i = 0; i < RANGES_MAX && from < end; i++, from = used) {
		blk64_t limit;

		if (ext2fs_find_first_zero_block_bitmap2(fs->block_map, from, end - 1, &free_block))
			return false;
		limit = end - free_block < want ? end : free_block + want;
		if (ext2fs_find_first_set_block_bitmap2(fs->block_map, free_block, limit - 1,
		                                        &used))
			used = limit;
		if (used - free_block > best->count)
			*best = (struct range){free_block, used - free_block};
		if (best->count >= want)
			return true;
	}
	return false;
}

static errcode_t find_free(ext2_filsys fs, blk64_t from, blk64_t want, struct range *ret)
{
	blk64_t first = fs->super->s_first_data_block, end = ext2fs_blocks_count(fs->super);
	struct range best = {0};

	if (from < first || from >= end)
		from = first;
	if (!find_between(fs, from, end, want, &best))
		find_between(fs, first, from, want, &best);
	*ret = best;
	return best.count ? 0 : EXT2_ET_BLOCK_ALLOC_FAIL;
}

blk64_t volume_first_goal(ext2_filsys fs)
{
	struct range range;

	return find_free(fs, 0, LARGE_FREE_BYTES / fs->blocksize, &range) ? 0 : range.start;
}

/* What libext2fs calls for blocks of its own: of directories, maps, attributes. */
errcode_t volume_alloc_block(ext2_filsys fs, blk64_t goal, blk64_t *ret)
{
	struct write_volume *vol = fs->priv_data;
	struct range range;
	errcode_t code = find_free(fs, vol->next_block, 1, &range);

	(void)goal;
	if (code)
		return code;
	vol->next_block = range.start + 1;
	*ret = range.start;
	return 0;
}

static int damaged(const struct edit *e, struct error *err)
{
	return extfs_refuse(e->vol->v, "its blocks are not marked as in use (damaged file system)",
	                    "free", e->path, err);
}

static int free_block(ext2_filsys fs, blk64_t *block, e2_blkcnt_t logical, blk64_t ref_block,
                      int ref_offset, void *opaque)
{
	bool *failed = opaque;

	(void)logical;
	(void)ref_block;
	(void)ref_offset;
	if (*block < fs->super->s_first_data_block || *block >= ext2fs_blocks_count(fs->super) ||
	    !ext2fs_test_block_bitmap2(fs->block_map, *block)) {
		*failed = true;
		return BLOCK_ABORT;
	}
	ext2fs_block_alloc_stats2(fs, *block, -1);
	return 0;
}

int content_free(struct edit *e, struct error *err)
{
	ext2_filsys fs = e->vol->v->fs;
	struct extfs_node node = {.volume = e->vol->v, .path = e->path, .number = e->number};
	bool failed = false;

	if (ext2fs_inode_has_valid_blocks2(fs, edit_small(e))) {
		errcode_t code;

		memcpy(&node.inode, e->inode, EXT2_GOOD_OLD_INODE_SIZE);
		if (extfs_node_check_map(&node, err) < 0)
			return -1;
		code = ext2fs_block_iterate3(fs, e->number, BLOCK_FLAG_READ_ONLY, NULL, free_block,
		                             &failed);
		if (failed)
			return damaged(e, err);
		if (code)
			return extfs_fail(e->vol->v, code, "free", e->path, err);
	}
	memset(e->inode->i_block, 0, sizeof(e->inode->i_block));
	ext2fs_iblk_set(fs, edit_small(e), 0);
	return 0;
}

/* Also an inode without any blocks gets a header in its map so. */
static int open_map(struct edit *e, struct error *err)
{
	errcode_t code = 0;

	if ((e->inode->i_flags & EXT4_EXTENTS_FL) && !e->extents)
		code = ext2fs_extent_open2(e->vol->v->fs, e->number, edit_small(e), &e->extents);
	return code ? extfs_fail(e->vol->v, code, "write", e->path, err) : 0;
}

static errcode_t map_extent(struct edit *e, uint64_t logical, uint64_t want, struct range *ret)
{
	ext2_filsys fs = e->vol->v->fs;
	struct ext2fs_extent extent = {.e_lblk = logical};
	errcode_t code = find_free(fs, e->vol->next_block,
	                           want < EXTENT_BLOCKS_MAX ? want : EXTENT_BLOCKS_MAX, ret);

	if (code)
		return code;
	ext2fs_block_alloc_stats_range(fs, ret->start, (blk_t)ret->count, 1);
	e->vol->next_block = ret->start + ret->count;
	extent.e_pblk = ret->start;
	extent.e_len = (uint32_t)ret->count;
	code = ext2fs_extent_insert(e->extents, EXT2_EXTENT_INSERT_AFTER, &extent);
	if (!code)
		code = ext2fs_extent_fix_parents(e->extents);
	return code ? code : ext2fs_iblk_add_blocks(fs, edit_small(e), ret->count);
}

/* Allocates blocks for 'logical' and some behind it, at most 'want', side by side. */
static int map_blocks(struct edit *e, uint64_t logical, uint64_t want, struct range *ret,
                      struct error *err)
{
	errcode_t code;

	if (e->inode->i_flags & EXT4_EXTENTS_FL) {
		code = map_extent(e, logical, want, ret);
	} else {
		ret->count = 1;
		code = ext2fs_bmap2(e->vol->v->fs, e->number, edit_small(e), NULL, BMAP_ALLOC,
		                    logical, NULL, &ret->start);
	}
	return code ? write_fail(e->vol, code, e->path, err) : 0;
}

static int write_blocks(struct edit *e, blk64_t block, uint64_t count, const void *data,
                        struct error *err)
{
	errcode_t code = io_channel_write_blk64(e->vol->v->fs->io, block, (int)count, data);

	return code ? extfs_fail(e->vol->v, code, "write", e->path, err) : 0;
}

/* Where the next data is, at or behind 'from'. A file system that knows no holes has it all. */
static void next_data(int fd, uint64_t from, uint64_t size, uint64_t *ret_begin, uint64_t *ret_end)
{
	off_t begin = lseek(fd, (off_t)from, SEEK_DATA), end;

	if (begin < 0 && errno == ENXIO)
		begin = (off_t)size;
	if (begin < (off_t)from)
		begin = (off_t)from;
	end = begin < (off_t)size ? lseek(fd, begin, SEEK_HOLE) : (off_t)size;
	*ret_begin = begin < (off_t)size ? (uint64_t)begin : size;
	*ret_end = end > begin && end < (off_t)size ? (uint64_t)end : size;
}

static int read_all(const struct tree_node *node, char *data, uint64_t size, uint64_t offset,
                    struct error *err)
{
	while (size > 0) {
		ssize_t n = pread(node->fd, data, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read the new '%s'", node->path);
		if (n == 0)
			return error_set(err, "the new '%s' shrank while it was read", node->path);
		data += n;
		offset += (uint64_t)n;
		size -= (uint64_t)n;
	}
	return 0;
}

static int write_range(struct edit *e, const struct tree_node *node, const struct range *range,
                       uint64_t logical, char *buffer, struct error *err)
{
	uint64_t block_size = e->vol->v->fs->blocksize, most = BUFFER_BYTES / block_size;

	for (uint64_t done = 0, n; done < range->count; done += n) {
		uint64_t offset = (logical + done) * block_size, bytes;

		n = range->count - done < most ? range->count - done : most;
		bytes = n * block_size;
		if (bytes > node->size_bytes - offset) {
			memset(buffer + (bytes - block_size), 0, block_size);
			bytes = node->size_bytes - offset;
		}
		if (read_all(node, buffer, bytes, offset, err) < 0 ||
		    write_blocks(e, range->start + done, n, buffer, err) < 0)
			return -1;
	}
	return 0;
}

/* Data from block 'first' to 'end' of the file. */
static int write_data(struct edit *e, const struct tree_node *node, uint64_t first, uint64_t end,
                      char *buffer, struct error *err)
{
	struct range range = {0};

	for (; first < end; first += range.count)
		if (map_blocks(e, first, end - first, &range, err) < 0 ||
		    write_range(e, node, &range, first, buffer, err) < 0)
			return -1;
	return 0;
}

static uint64_t file_blocks_max(const struct edit *e)
{
	uint64_t n = e->vol->v->fs->blocksize / sizeof(uint32_t);
	uint64_t indirect = EXT2_NDIR_BLOCKS + n + n * n + n * n * n;

	if (e->inode->i_flags & EXT4_EXTENTS_FL || indirect > FILE_BLOCKS_MAX)
		return FILE_BLOCKS_MAX;
	return indirect;
}

static int set_size(struct edit *e, uint64_t size, struct error *err)
{
	errcode_t code = ext2fs_inode_size_set(e->vol->v->fs, edit_small(e), (ext2_off64_t)size);

	return code ? extfs_fail(e->vol->v, code, "write", e->path, err) : 0;
}

int content_from_fd(struct edit *e, const struct tree_node *node, struct error *err)
{
	uint64_t block_size = e->vol->v->fs->blocksize;
	uint64_t size = node->size_bytes, done = 0, begin, end = 0;
	uint64_t want = size < BUFFER_BYTES ? size + block_size : BUFFER_BYTES;
	CLEANUP_FREE char *buffer = mem_alloc((size_t)want);

	if (size / block_size >= file_blocks_max(e))
		return extfs_refuse(e->vol->v, "it is too large for this file system", "write",
		                    e->path, err);
	if (set_size(e, size, err) < 0 || open_map(e, err) < 0)
		return -1;
	while (end < size) {
		uint64_t first;

		next_data(node->fd, end, size, &begin, &end);
		first = begin / block_size > done ? begin / block_size : done;
		done = (end + block_size - 1) / block_size;
		if (begin < end && write_data(e, node, first, done, buffer, err) < 0)
			return -1;
	}
	return 0;
}

int content_one_block(struct edit *e, blk64_t *ret_block, struct error *err)
{
	struct range range = {0};

	if (set_size(e, e->vol->v->fs->blocksize, err) < 0 || open_map(e, err) < 0 ||
	    map_blocks(e, 0, 1, &range, err) < 0)
		return -1;
	*ret_block = range.start;
	return 0;
}

int content_from_memory(struct edit *e, const void *data, size_t size, struct error *err)
{
	size_t block_size = e->vol->v->fs->blocksize;
	CLEANUP_FREE char *buffer = mem_alloc(block_size);
	blk64_t block;

	if (size >= block_size)
		return extfs_refuse(e->vol->v, "it is too long for this file system", "write",
		                    e->path, err);
	memcpy(buffer, data, size);
	if (content_one_block(e, &block, err) < 0 || write_blocks(e, block, 1, buffer, err) < 0)
		return -1;
	return set_size(e, size, err);
}
