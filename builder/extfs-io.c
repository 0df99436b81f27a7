/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libext2fs asks for single blocks, and neighbours soon after; each request over NBD costs a
 * round trip, and for a compressed image a whole cluster to inflate. So reads go through
 * chunks of 512 KiB; what is larger than some chunks goes straight to the disk.
 */
#include <inttypes.h>
#include <string.h>

#include "extfs-io.h"
#include "str.h"

#define CHUNK_BYTES  ((uint64_t)512 << 10)
#define CHUNKS       32
#define DIRECT_BYTES (2 * CHUNK_BYTES)

struct chunk {
	char *data; /* NULL: never used */
	uint64_t index;
	uint64_t last_used;
};

struct extfs_io {
	struct struct_io_manager manager;
	struct disk *disk;
	uint64_t offset_bytes;
	uint64_t size_bytes;
	char *name;
	struct error error; /* of the last read */
	struct chunk chunks[CHUNKS];
	uint64_t clock;
};

static struct extfs_io *io_of(io_channel channel)
{
	return channel->private_data;
}

/* open() gets a name and nothing else: the name is our address. */
static errcode_t io_open(const char *name, int flags, io_channel *ret)
{
	io_channel channel;
	uintptr_t address;

	if (flags & IO_FLAG_RW)
		return EXT2_ET_RO_FILSYS;
	address = (uintptr_t)strtoumax(name, NULL, 16);
	channel = mem_alloc(sizeof(*channel));
	channel->magic = EXT2_ET_MAGIC_IO_CHANNEL;
	channel->private_data = (void *)address; /* NOLINT(performance-no-int-to-ptr) */
	channel->manager = &io_of(channel)->manager;
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

static struct chunk *oldest_chunk(struct extfs_io *io)
{
	struct chunk *oldest = &io->chunks[0];

	for (size_t i = 0; i < CHUNKS; i++) {
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
	for (size_t i = 0; i < CHUNKS; i++)
		if (io->chunks[i].data && io->chunks[i].index == index)
			return &io->chunks[i];
	return NULL;
}

static struct chunk *load_chunk(struct extfs_io *io, uint64_t index)
{
	struct chunk *chunk = oldest_chunk(io);
	uint64_t start = index * CHUNK_BYTES;
	uint64_t left = io->size_bytes - start;

	/* Unused until it is filled: a failed read must not leave stale bytes to be found. */
	CLEANUP_FREE char *data = STEAL(chunk->data);

	if (!data)
		data = mem_alloc(CHUNK_BYTES);
	if (disk_read(io->disk, data, left < CHUNK_BYTES ? left : CHUNK_BYTES,
	              io->offset_bytes + start, &io->error) < 0)
		return NULL;
	chunk->data = STEAL(data);
	chunk->index = index;
	return chunk;
}

static errcode_t read_cached(struct extfs_io *io, char *data, uint64_t size, uint64_t offset)
{
	while (size > 0) {
		uint64_t in_chunk = offset % CHUNK_BYTES;
		uint64_t n = CHUNK_BYTES - in_chunk < size ? CHUNK_BYTES - in_chunk : size;
		struct chunk *chunk = find_chunk(io, offset / CHUNK_BYTES);

		if (!chunk)
			chunk = load_chunk(io, offset / CHUNK_BYTES);
		if (!chunk)
			return EXT2_ET_SHORT_READ;
		chunk->last_used = ++io->clock;
		memcpy(data, chunk->data + in_chunk, n);
		data += n;
		offset += n;
		size -= n;
	}
	return 0;
}

/* A negative count is in bytes, as everywhere in libext2fs. */
static errcode_t io_read_blk64(io_channel channel, unsigned long long block, int count, void *data)
{
	struct extfs_io *io = io_of(channel);
	uint64_t block_size = (uint64_t)channel->block_size;
	uint64_t size = count < 0 ? (uint64_t) - (int64_t)count : (uint64_t)count * block_size;
	uint64_t offset;

	error_free(&io->error);
	if (__builtin_mul_overflow((uint64_t)block, block_size, &offset) ||
	    offset > io->size_bytes || size > io->size_bytes - offset) {
		error_set(&io->error, "block %llu lies beyond the end of the partition", block);
		return EXT2_ET_SHORT_READ;
	}
	if (size < DIRECT_BYTES)
		return read_cached(io, data, size, offset);
	if (disk_read(io->disk, data, size, io->offset_bytes + offset, &io->error) < 0)
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
	(void)channel;
	(void)block;
	(void)count;
	(void)data;
	return EXT2_ET_RO_FILSYS;
}

static errcode_t io_write_blk(io_channel channel, unsigned long block, int count, const void *data)
{
	return io_write_blk64(channel, block, count, data);
}

static errcode_t io_write_byte(io_channel channel, unsigned long offset, int count,
                               const void *data)
{
	return io_write_blk64(channel, offset, count, data);
}

static errcode_t io_flush(io_channel channel)
{
	(void)channel;
	return 0;
}

static errcode_t io_set_option(io_channel channel, const char *option, const char *arg)
{
	(void)channel;
	(void)option;
	(void)arg;
	return EXT2_ET_INVALID_ARGUMENT;
}

struct extfs_io *extfs_io_new(struct disk *disk, uint64_t offset_bytes, uint64_t size_bytes)
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
		.set_option = io_set_option,
	};
	io->disk = disk;
	io->offset_bytes = offset_bytes;
	io->size_bytes = size_bytes;
	io->name = str_format("%" PRIxPTR, (uintptr_t)io);
	return io;
}

void extfs_io_free(struct extfs_io *io)
{
	if (!io)
		return;
	for (size_t i = 0; i < CHUNKS; i++)
		free(io->chunks[i].data);
	error_free(&io->error);
	free(io->name);
	free(io);
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
