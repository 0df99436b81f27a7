/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libext2fs asks for single blocks, and neighbours soon after; each request over NBD costs a
 * round trip, and for a compressed image a whole cluster to inflate. So reads go through
 * chunks of 512 KiB; what is larger than some chunks goes straight to the disk.
 *
 * Writes stay in the chunks until one is needed for something else, or until a flush. Inodes
 * and directories are strewn over the whole file system: a writer has smaller chunks, and more
 * of them. What goes back are whole segments as large as a qcow2 cluster, since a part of one
 * would make QEMU read the rest of it from the backing file, which we have here already.
 */
#include <inttypes.h>
#include <string.h>

#include "extfs-io.h"
#include "str.h"

#define CHUNK_BYTES   ((uint64_t)128 << 10)
#define READER_CHUNKS 128
#define WRITER_CHUNKS 192
#define SEGMENT_BYTES ((uint64_t)64 << 10)
#define DIRECT_BYTES  ((uint64_t)1 << 20)

struct chunk {
	char *data; /* NULL: never used */
	uint64_t index;
	uint64_t last_used;
	uint32_t changed; /* one bit for each segment that the disk does not have yet */
};

struct extfs_io {
	struct struct_io_manager manager;
	struct disk *disk;
	uint64_t offset_bytes;
	uint64_t size_bytes;
	char *name;
	bool writable;
	struct error error; /* of the last request */
	struct chunk *chunks;
	size_t chunk_count;
	uint64_t chunk_bytes;
	uint64_t clock;
};

static struct extfs_io *io_of(io_channel channel)
{
	return channel->private_data;
}

/* open() gets a name and nothing else: the name is our address. */
static errcode_t io_open(const char *name, int flags, io_channel *ret)
{
	uintptr_t address = (uintptr_t)strtoumax(name, NULL, 16);
	struct extfs_io *io = (void *)address; /* NOLINT(performance-no-int-to-ptr) */
	io_channel channel;

	if ((flags & IO_FLAG_RW) && !io->writable)
		return EXT2_ET_RO_FILSYS;
	channel = mem_alloc(sizeof(*channel));
	channel->magic = EXT2_ET_MAGIC_IO_CHANNEL;
	channel->private_data = io;
	channel->manager = &io->manager;
	channel->name = str_copy(name);
	channel->block_size = 1024;
	channel->refcount = 1;
	*ret = channel;
	return 0;
}

static errcode_t io_close(io_channel channel)
{
	if (--channel->refcount > 0)
		return 0;
	free(channel->name);
	free(channel);
	return 0;
}

static errcode_t io_set_blksize(io_channel channel, int blksize)
{
	if (blksize <= 0)
		return EXT2_ET_INVALID_ARGUMENT;
	channel->block_size = blksize;
	return 0;
}

/* -1: io->error is set. */
static int write_back(struct extfs_io *io, struct chunk *chunk)
{
	uint64_t start = chunk->index * io->chunk_bytes;
	uint64_t left = io->size_bytes - start;
	uint64_t size = left < io->chunk_bytes ? left : io->chunk_bytes;

	for (uint64_t at = 0, end; at < size; at = end) {
		end = at + SEGMENT_BYTES;
		if (!(chunk->changed & (1u << (at / SEGMENT_BYTES))))
			continue;
		while (end < size && (chunk->changed & (1u << (end / SEGMENT_BYTES))))
			end += SEGMENT_BYTES;
		if (end > size)
			end = size;
		if (disk_write(io->disk, chunk->data + at, end - at, io->offset_bytes + start + at,
		               &io->error) < 0)
			return -1;
	}
	chunk->changed = 0;
	return 0;
}

static struct chunk *oldest_chunk(struct extfs_io *io)
{
	struct chunk *oldest = &io->chunks[0];

	for (size_t i = 0; i < io->chunk_count; i++) {
		struct chunk *chunk = &io->chunks[i];

		if (!chunk->data)
			return chunk;
		if (chunk->last_used < oldest->last_used)
			oldest = chunk;
	}
	return oldest;
}

static struct chunk *find_chunk(struct extfs_io *io, uint64_t index)
{
	for (size_t i = 0; i < io->chunk_count; i++)
		if (io->chunks[i].data && io->chunks[i].index == index)
			return &io->chunks[i];
	return NULL;
}

static struct chunk *load_chunk(struct extfs_io *io, uint64_t index)
{
	struct chunk *chunk = oldest_chunk(io);
	uint64_t start = index * io->chunk_bytes;
	uint64_t left = io->size_bytes - start;
	CLEANUP_FREE char *data = NULL;

	if (chunk->changed && write_back(io, chunk) < 0)
		return NULL;
	/* Unused until it is filled: a failed read must not leave stale bytes to be found. */
	data = STEAL(chunk->data);
	if (!data)
		data = mem_alloc(io->chunk_bytes);
	if (disk_read(io->disk, data, left < io->chunk_bytes ? left : io->chunk_bytes,
	              io->offset_bytes + start, &io->error) < 0)
		return NULL;
	chunk->data = STEAL(data);
	chunk->index = index;
	return chunk;
}

static struct chunk *get_chunk(struct extfs_io *io, uint64_t index)
{
	struct chunk *chunk = find_chunk(io, index);

	if (!chunk)
		chunk = load_chunk(io, index);
	if (chunk)
		chunk->last_used = ++io->clock;
	return chunk;
}

/* What is written as it was (bitmaps of other groups, most of them) does not count as changed. */
static void change_chunk(struct chunk *chunk, const char *data, uint64_t size, uint64_t at)
{
	if (memcmp(chunk->data + at, data, size) == 0)
		return;
	memcpy(chunk->data + at, data, size);
	for (uint64_t i = at / SEGMENT_BYTES; i <= (at + size - 1) / SEGMENT_BYTES; i++)
		chunk->changed |= 1u << i;
}

/* The chunk that holds 'offset'; of the bytes from there on, *ret_size are in it, at *ret_at. */
static struct chunk *chunk_at(struct extfs_io *io, uint64_t offset, uint64_t size, uint64_t *ret_at,
                              uint64_t *ret_size)
{
	*ret_at = offset % io->chunk_bytes;
	*ret_size = io->chunk_bytes - *ret_at < size ? io->chunk_bytes - *ret_at : size;
	return get_chunk(io, offset / io->chunk_bytes);
}

static errcode_t read_cached(struct extfs_io *io, char *data, uint64_t size, uint64_t offset)
{
	for (uint64_t done = 0, n, at; done < size; done += n) {
		const struct chunk *chunk = chunk_at(io, offset + done, size - done, &at, &n);

		if (!chunk)
			return EXT2_ET_SHORT_READ;
		memcpy(data + done, chunk->data + at, n);
	}
	return 0;
}

static errcode_t write_cached(struct extfs_io *io, const char *data, uint64_t size, uint64_t offset)
{
	for (uint64_t done = 0, n, at; done < size; done += n) {
		struct chunk *chunk = chunk_at(io, offset + done, size - done, &at, &n);

		if (!chunk)
			return EXT2_ET_SHORT_WRITE;
		change_chunk(chunk, data + done, n, at);
	}
	return 0;
}

/* Chunks that overlap what goes past them: the disk gets what they have; then they are dropped
 * (drop) or may stay, since the disk is only read. */
static int settle_chunks(struct extfs_io *io, uint64_t size, uint64_t offset, bool drop)
{
	for (size_t i = 0; i < io->chunk_count; i++) {
		struct chunk *chunk = &io->chunks[i];
		uint64_t start = chunk->index * io->chunk_bytes;

		if (!chunk->data || start >= offset + size || offset >= start + io->chunk_bytes)
			continue;
		if (chunk->changed && write_back(io, chunk) < 0)
			return -1;
		if (drop)
			free(STEAL(chunk->data));
	}
	return 0;
}

/* A negative count is in bytes, as everywhere in libext2fs. False: beyond the end. */
static bool find_range(io_channel channel, unsigned long long block, int count, uint64_t *ret_size,
                       uint64_t *ret_offset)
{
	struct extfs_io *io = io_of(channel);
	uint64_t block_size = (uint64_t)channel->block_size;
	uint64_t size = count < 0 ? (uint64_t) - (int64_t)count : (uint64_t)count * block_size;

	error_free(&io->error);
	*ret_size = size;
	if (!__builtin_mul_overflow((uint64_t)block, block_size, ret_offset) &&
	    *ret_offset <= io->size_bytes && size <= io->size_bytes - *ret_offset)
		return true;
	error_set(&io->error, "block %llu lies beyond the end of the partition", block);
	return false;
}

static errcode_t io_read_blk64(io_channel channel, unsigned long long block, int count, void *data)
{
	struct extfs_io *io = io_of(channel);
	uint64_t size, offset;

	if (!find_range(channel, block, count, &size, &offset))
		return EXT2_ET_SHORT_READ;
	if (size < DIRECT_BYTES)
		return read_cached(io, data, size, offset);
	if (settle_chunks(io, size, offset, false) < 0 ||
	    disk_read(io->disk, data, size, io->offset_bytes + offset, &io->error) < 0)
		return EXT2_ET_SHORT_READ;
	return 0;
}

static errcode_t io_read_blk(io_channel channel, unsigned long block, int count, void *data)
{
	return io_read_blk64(channel, block, count, data);
}

static errcode_t io_write_blk64(io_channel channel, unsigned long long block, int count,
                                const void *data)
{
	struct extfs_io *io = io_of(channel);
	uint64_t size, offset;

	if (!io->writable)
		return EXT2_ET_RO_FILSYS;
	if (!find_range(channel, block, count, &size, &offset))
		return EXT2_ET_SHORT_WRITE;
	if (size < DIRECT_BYTES)
		return write_cached(io, data, size, offset);
	if (settle_chunks(io, size, offset, true) < 0 ||
	    disk_write(io->disk, data, size, io->offset_bytes + offset, &io->error) < 0)
		return EXT2_ET_SHORT_WRITE;
	return 0;
}

static errcode_t io_write_blk(io_channel channel, unsigned long block, int count, const void *data)
{
	return io_write_blk64(channel, block, count, data);
}

/* Some bytes of the superblock. */
static errcode_t io_write_byte(io_channel channel, unsigned long offset, int count,
                               const void *data)
{
	struct extfs_io *io = io_of(channel);

	error_free(&io->error);
	if (!io->writable)
		return EXT2_ET_RO_FILSYS;
	if (count < 0 || offset > io->size_bytes || (uint64_t)count > io->size_bytes - offset)
		return EXT2_ET_SHORT_WRITE;
	return write_cached(io, data, (uint64_t)count, offset);
}

static errcode_t io_zeroout(io_channel channel, unsigned long long block, unsigned long long count)
{
	CLEANUP_FREE char *zeros = mem_alloc((size_t)channel->block_size);

	for (unsigned long long i = 0; i < count; i++) {
		errcode_t code = io_write_blk64(channel, block + i, 1, zeros);

		if (code)
			return code;
	}
	return 0;
}

static int compare_chunks(const void *a, const void *b)
{
	uint64_t x = ((const struct chunk *)a)->index, y = ((const struct chunk *)b)->index;

	return x < y ? -1 : x > y;
}

/* In the order of the disk. */
static errcode_t io_flush(io_channel channel)
{
	struct extfs_io *io = io_of(channel);

	error_free(&io->error);
	qsort(io->chunks, io->chunk_count, sizeof(*io->chunks), compare_chunks);
	for (size_t i = 0; i < io->chunk_count; i++)
		if (io->chunks[i].changed && write_back(io, &io->chunks[i]) < 0)
			return EXT2_ET_SHORT_WRITE;
	return 0;
}

static errcode_t io_set_option(io_channel channel, const char *option, const char *arg)
{
	(void)channel;
	(void)option;
	(void)arg;
	return EXT2_ET_INVALID_ARGUMENT;
}

struct extfs_io *extfs_io_new(struct disk *disk, uint64_t offset_bytes, uint64_t size_bytes,
                              bool writable)
{
	struct extfs_io *io = mem_alloc(sizeof(*io));

	io->manager = (struct struct_io_manager){
		.magic = EXT2_ET_MAGIC_IO_MANAGER,
		.name = "gpuimg disk",
		.open = io_open,
		.close = io_close,
		.set_blksize = io_set_blksize,
		.read_blk = io_read_blk,
		.read_blk64 = io_read_blk64,
		.write_blk = io_write_blk,
		.write_blk64 = io_write_blk64,
		.write_byte = io_write_byte,
		.flush = io_flush,
		.zeroout = io_zeroout,
		.set_option = io_set_option,
	};
	io->disk = disk;
	io->offset_bytes = offset_bytes;
	io->size_bytes = size_bytes;
	io->writable = writable;
	io->chunk_bytes = CHUNK_BYTES;
	io->chunk_count = writable ? WRITER_CHUNKS : READER_CHUNKS;
	io->chunks = mem_alloc(io->chunk_count * sizeof(*io->chunks));
	io->name = str_format("%" PRIxPTR, (uintptr_t)io);
	return io;
}

void extfs_io_free(struct extfs_io *io)
{
	if (!io)
		return;
	for (size_t i = 0; i < io->chunk_count; i++)
		free(io->chunks[i].data);
	free(io->chunks);
	error_free(&io->error);
	free(io->name);
	free(io);
}

uint64_t extfs_io_offset(const struct extfs_io *io)
{
	return io->offset_bytes;
}

int extfs_io_trim(struct extfs_io *io, uint64_t size_bytes, uint64_t offset_bytes,
                  struct error *err)
{
	return disk_trim(io->disk, size_bytes, io->offset_bytes + offset_bytes, err);
}

int extfs_io_forget(struct extfs_io *io, struct error *err)
{
	error_free(&io->error);
	return settle_chunks(io, io->size_bytes, 0, true) < 0 ? error_take(err, &io->error) : 0;
}

const char *extfs_io_name(const struct extfs_io *io)
{
	return io->name;
}

io_manager extfs_io_manager(struct extfs_io *io)
{
	return &io->manager;
}

const struct error *extfs_io_error(const struct extfs_io *io)
{
	return io->error.message ? &io->error : NULL;
}
