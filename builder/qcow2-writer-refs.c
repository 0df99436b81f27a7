/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refcounts of a new qcow2. A block of them describes a range of the file; it is written behind
 * whatever is there when its range is full, so that few blocks are held at a time.
 */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "qcow2-writer-internal.h"
#include "str.h"

#define MAX_TABLE_BYTES (UINT64_C(8) << 20) /* QEMU's own limit */

int writer_put(struct qcow2_writer *w, const void *data, size_t size, uint64_t offset,
               struct error *err)
{
	const char *from = data;

	while (size) {
		ssize_t n = pwrite(w->fd, from, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return error_errno(err, n < 0 ? errno : ENOSPC, "cannot write '%s'",
			                   w->path);
		from += n;
		size -= (size_t)n;
		offset += (uint64_t)n;
	}
	return 0;
}

static uint64_t refs_per_block(const struct qcow2_writer *w)
{
	return w->cluster_bytes / sizeof(*w->refs);
}

uint16_t *writer_ref(struct qcow2_writer *w, uint64_t offset)
{
	uint64_t cluster = offset / w->cluster_bytes - w->refs_first * refs_per_block(w);
	size_t blocks = cluster / refs_per_block(w) + 1;

	if (blocks > w->refs_blocks) {
		w->refs = mem_grow(w->refs, blocks, w->cluster_bytes);
		memset((char *)w->refs + w->refs_blocks * w->cluster_bytes, 0,
		       (blocks - w->refs_blocks) * w->cluster_bytes);
		w->refs_blocks = blocks;
	}
	return &w->refs[cluster];
}

void writer_count(struct qcow2_writer *w, uint64_t offset, uint64_t bytes)
{
	for (uint64_t at = offset / w->cluster_bytes; at <= (offset + bytes - 1) / w->cluster_bytes;
	     at++)
		++*writer_ref(w, at * w->cluster_bytes);
}

uint64_t writer_allocate(struct qcow2_writer *w, uint64_t bytes)
{
	uint64_t offset = w->end;

	w->end += writer_round_up(bytes, w->cluster_bytes);
	writer_count(w, offset, w->end - offset);
	return offset;
}

/* Big endian in the file; the array is not looked at afterwards. */
static int write_block(struct qcow2_writer *w, uint16_t *refs, uint64_t offset, struct error *err)
{
	for (size_t i = 0; i < refs_per_block(w); i++)
		refs[i] = htobe16(refs[i]);
	return writer_put(w, refs, w->cluster_bytes, offset, err);
}

static void note_block(struct qcow2_writer *w, uint64_t block, uint64_t offset)
{
	if (block >= w->block_room) {
		w->block_room = block < 32 ? 64 : (size_t)block * 2;
		w->block_table = mem_grow(w->block_table, w->block_room, sizeof(*w->block_table));
	}
	w->block_table[block] = htobe64(offset);
}

/* Writes the first block out, whose counts nothing changes any more. */
static int retire_block(struct qcow2_writer *w, struct error *err)
{
	uint64_t offset = writer_allocate(w, w->cluster_bytes);

	if (write_block(w, w->refs, offset, err) < 0)
		return -1;
	note_block(w, w->refs_first, offset);
	w->refs_first++;
	w->refs_blocks--;
	memmove(w->refs, (char *)w->refs + w->cluster_bytes, w->refs_blocks * w->cluster_bytes);
	return 0;
}

int writer_retire(struct qcow2_writer *w, struct error *err)
{
	uint64_t span = refs_per_block(w) * w->cluster_bytes;
	int rc = 0;

	/* Room that is left a whole block behind is given up: it must not hold the block back. */
	if (w->packed != w->packed_end && w->packed / span + 1 < w->end / span)
		w->packed = w->packed_end;
	while (rc == 0 && w->refs_blocks > 1 && (w->refs_first + 1) * span <= w->end &&
	       (w->packed == w->packed_end || (w->refs_first + 1) * span <= w->packed))
		rc = retire_block(w, err);
	return rc;
}

/* Room for the table and the blocks that are left: both are counted by these blocks. */
int writer_finish_refs(struct qcow2_writer *w, uint64_t *ret_offset, uint64_t *ret_clusters,
                       struct error *err)
{
	uint64_t blocks = w->refs_blocks, bytes, offset, first;
	CLEANUP_FREE unsigned char *table = NULL;

	for (;;) {
		uint64_t needed, all;

		bytes = writer_round_up((w->refs_first + blocks) * 8, w->cluster_bytes);
		all = (w->end + bytes) / w->cluster_bytes + blocks;
		needed = (all + refs_per_block(w) - 1) / refs_per_block(w) - w->refs_first;
		if (needed <= blocks)
			break;
		blocks = needed;
	}
	if (bytes > MAX_TABLE_BYTES)
		return error_set(err,
		                 "cannot write '%s': its clusters of %" PRIu64
		                 " bytes are too small for so much data",
		                 w->path, w->cluster_bytes);
	offset = writer_allocate(w, bytes);
	first = writer_allocate(w, blocks * w->cluster_bytes);
	for (uint64_t i = 0; i < blocks; i++)
		note_block(w, w->refs_first + i, first + i * w->cluster_bytes);
	table = mem_alloc(bytes);
	memcpy(table, w->block_table, (w->refs_first + blocks) * 8);
	if (writer_put(w, table, bytes, offset, err) < 0)
		return -1;
	writer_ref(w, (w->refs_first + blocks - 1) * refs_per_block(w) * w->cluster_bytes);
	for (uint64_t i = 0; i < blocks; i++)
		if (write_block(w, w->refs + i * refs_per_block(w), first + i * w->cluster_bytes,
		                err) < 0)
			return -1;
	*ret_offset = offset;
	*ret_clusters = bytes / w->cluster_bytes;
	return 0;
}
