/* SPDX-License-Identifier: Apache-2.0 */
/* The writer's life: its file systems are mounted, trimmed, and finished. */
#include <string.h>

#include "extfs-write-internal.h"
#include "str.h"

#define CLUSTER_BYTES ((uint64_t)64 << 10) /* of our overlays: less cannot be trimmed */

int extfs_writer_new(struct extfs_writer **ret, struct disk *disk, struct error *err)
{
	struct extfs_writer *w = mem_alloc(sizeof(*w));

	(void)err;
	w->sink.put = extfs_writer_put;
	w->disk = disk;
	*ret = w;
	return 0;
}

static void volume_free(struct write_volume *vol)
{
	extfs_volume_close(vol->v);
	free(vol->path);
	free(vol);
}

DEFINE_CLEANUP(volume, struct write_volume *, volume_free)
#define CLEANUP_VOLUME CLEANUP(cleanup_volume)

void extfs_writer_free(struct extfs_writer *w)
{
	if (!w)
		return;
	for (size_t i = 0; i < w->count; i++)
		volume_free(w->volumes[i]);
	free(w->volumes);
	free(w);
}

/* Bitmaps as arrays: a tree of ranges takes more memory the more a hostile one is fragmented. */
static int prepare(struct write_volume *vol, struct error *err)
{
	ext2_filsys fs = vol->v->fs;
	errcode_t code;

	fs->default_bitmap_type = EXT2FS_BMAP64_BITARRAY;
	code = ext2fs_read_bitmaps(fs);
	if (code)
		return extfs_fail(vol->v, code, "read the bitmaps of", vol->path, err);
	fs->now = fs->super->s_wtime ? (time_t)fs->super->s_wtime : 1;
	fs->priv_data = vol;
	vol->next_block = volume_first_goal(fs);
	ext2fs_set_alloc_block_callback(fs, volume_alloc_block, NULL);
	return 0;
}

int extfs_writer_mount(struct extfs_writer *w, const char *path, const struct volume *volume,
                       char **ret_reason, struct error *err)
{
	CLEANUP_VOLUME struct write_volume *vol = mem_alloc(sizeof(*vol));
	CLEANUP_FREE char *reason = NULL;
	int result;

	vol->path = str_copy(path);
	if (extfs_writer_check_mount(w, path, err) < 0)
		return -1;
	result = extfs_volume_open_writable(&vol->v, w->disk, volume, &reason, err);
	if (result != 0) {
		if (result > 0)
			*ret_reason = STEAL(reason);
		return result;
	}
	if (prepare(vol, err) < 0)
		return -1;
	w->volumes = mem_grow(w->volumes, w->count + 1, sizeof(struct write_volume *));
	w->volumes[w->count++] = STEAL(vol);
	return 0;
}

/* The whole clusters of a free range. */
static int trim_range(struct write_volume *vol, blk64_t first, blk64_t end, struct error *err)
{
	uint64_t block_size = vol->v->fs->blocksize;
	uint64_t base = extfs_io_offset(vol->v->io);
	uint64_t from = base + first * block_size, to = base + end * block_size;

	from = (from + CLUSTER_BYTES - 1) / CLUSTER_BYTES * CLUSTER_BYTES;
	to = to / CLUSTER_BYTES * CLUSTER_BYTES;
	return from < to ? extfs_io_trim(vol->v->io, to - from, from - base, err) : 0;
}

static int trim_volume(struct write_volume *vol, struct error *err)
{
	ext2_filsys fs = vol->v->fs;
	blk64_t at = fs->super->s_first_data_block, end = ext2fs_blocks_count(fs->super), used;

	for (; at < end; at = used) {
		blk64_t first;

		if (ext2fs_find_first_zero_block_bitmap2(fs->block_map, at, end - 1, &first))
			return 0;
		if (ext2fs_find_first_set_block_bitmap2(fs->block_map, first, end - 1, &used))
			used = end;
		if (trim_range(vol, first, used, err) < 0)
			return -1;
	}
	return 0;
}

int extfs_writer_trim(struct extfs_writer *w, struct error *err)
{
	for (size_t i = 0; i < w->count; i++) {
		struct extfs_io *io = w->volumes[i]->v->io;

		/* Before: what is in the cache would bring old data back. */
		if (extfs_io_forget(io, err) < 0 || trim_volume(w->volumes[i], err) < 0)
			return error_prefix(err, "cannot trim the file system at '%s'",
			                    w->volumes[i]->path);
	}
	return 0;
}

int extfs_writer_finish(struct extfs_writer *w, struct error *err)
{
	for (size_t i = 0; i < w->count; i++) {
		const struct write_volume *vol = w->volumes[i];
		ext2_filsys fs = vol->v->fs;
		errcode_t code = 0;

		if (fs->flags & EXT2_FLAG_DIRTY)
			code = ext2fs_flush2(fs, EXT2_FLAG_FLUSH_NO_SYNC);
		if (!code)
			code = io_channel_flush(fs->io);
		if (code)
			return extfs_fail(vol->v, code, "finish the file system at", vol->path,
			                  err);
	}
	return 0;
}
