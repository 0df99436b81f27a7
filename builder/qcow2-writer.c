/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "qcow2-writer-internal.h"
#include "str.h"

#define SECTOR_BYTES 512
#define HEADER_BYTES 112
#define BUFFER_BYTES ((size_t)1 << 20)
#define MAX_L1_BYTES (UINT64_C(32) << 20) /* QEMU's own limit */
#define MAX_REFCOUNT UINT16_MAX
#define COPIED       (UINT64_C(1) << 63) /* nobody else refers to it: QEMU may write there */
#define COMPRESSED   (UINT64_C(1) << 62)

static int create(struct qcow2_writer *w, struct error *err)
{
	uint64_t per_table = w->cluster_bytes / 8;

	w->clusters = w->layout.virtual_bytes / w->cluster_bytes +
	              (w->layout.virtual_bytes % w->cluster_bytes != 0);
	w->l1_count = w->clusters / per_table + (w->clusters % per_table != 0);
	if (w->l1_count > MAX_L1_BYTES / 8)
		return error_set(err,
		                 "cannot write '%s': a disk of %" PRIu64
		                 " bytes is too large for clusters of %" PRIu64,
		                 w->path, w->layout.virtual_bytes, w->cluster_bytes);
	w->fd = open(w->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (w->fd < 0)
		return error_errno(err, errno, "cannot create '%s'", w->path);
	writer_allocate(w, w->cluster_bytes); /* of the header */
	w->l1_offset = writer_allocate(w, w->l1_count * 8);
	return 0;
}

int qcow2_writer_open(struct qcow2_writer **ret, const char *path,
                      const struct qcow2_layout *layout, struct error *err)
{
	CLEANUP_QCOW2_WRITER struct qcow2_writer *w = mem_alloc(sizeof(*w));

	w->fd = -1;
	w->path = str_copy(path);
	w->layout = *layout;
	w->cluster_bytes = UINT64_C(1) << layout->cluster_bits;
	w->l2_index = NO_TABLE;
	w->l2 = mem_alloc(w->cluster_bytes);
	w->buffer = mem_alloc(BUFFER_BYTES);
	if (create(w, err) < 0)
		return -1;
	*ret = STEAL(w);
	return 0;
}

void qcow2_writer_close(struct qcow2_writer *w)
{
	if (!w)
		return;
	if (w->fd >= 0) {
		close(w->fd);
		if (!w->finished)
			unlink(w->path);
	}
	free(w->path);
	free(w->buffer);
	free(w->l2);
	free(w->refs);
	free(w->block_table);
	free(w);
}

uint32_t qcow2_writer_max_compressed(const struct qcow2_writer *w)
{
	uint32_t most_sectors = (uint32_t)1 << (w->layout.cluster_bits - 8);

	/* It may begin at the last byte of its first sector. */
	return (most_sectors - 1) * SECTOR_BYTES + 1;
}

static int write_l2(struct qcow2_writer *w, struct error *err)
{
	uint64_t offset, entry;

	if (w->l2_index == NO_TABLE)
		return 0;
	if (writer_retire(w, err) < 0)
		return -1;
	offset = writer_allocate(w, w->cluster_bytes);
	entry = htobe64(offset | COPIED);
	if (writer_put(w, w->l2, w->cluster_bytes, offset, err) < 0)
		return -1;
	memset(w->l2, 0, w->cluster_bytes);
	if (writer_put(w, &entry, sizeof(entry), w->l1_offset + w->l2_index * 8, err) < 0)
		return -1;
	w->l2_index = NO_TABLE;
	return 0;
}

static int begin_cluster(struct qcow2_writer *w, uint64_t index, struct error *err)
{
	uint64_t table = index / (w->cluster_bytes / 8);

	if (index >= w->clusters || index < w->next)
		return error_set(err, "cannot write '%s': cluster %" PRIu64 " is out of order",
		                 w->path, index);
	if (table != w->l2_index && write_l2(w, err) < 0)
		return -1;
	w->l2_index = table;
	w->next = index + 1;
	return writer_retire(w, err);
}

static void set_entry(struct qcow2_writer *w, uint64_t index, uint64_t entry)
{
	w->l2[index % (w->cluster_bytes / 8)] = htobe64(entry);
}

int qcow2_writer_plain(struct qcow2_writer *w, uint64_t index, const void *data, struct error *err)
{
	uint64_t offset;

	if (begin_cluster(w, index, err) < 0)
		return -1;
	offset = writer_allocate(w, w->cluster_bytes);
	set_entry(w, index, offset | COPIED);
	return writer_put(w, data, w->cluster_bytes, offset, err);
}

static int flush_buffer(struct qcow2_writer *w, struct error *err)
{
	size_t size = w->buffered;

	w->buffered = 0;
	return writer_put(w, w->buffer, size, w->buffer_offset, err);
}

/* The place of packed data: behind the last one, or in clusters of its own. */
static uint64_t allocate_packed(struct qcow2_writer *w, uint32_t bytes)
{
	uint64_t offset;

	if (w->packed != w->packed_end && *writer_ref(w, w->packed) == MAX_REFCOUNT)
		w->packed = w->packed_end;
	if (w->packed_end - w->packed < bytes && w->packed_end != w->end)
		w->packed = w->packed_end = w->end;
	if (w->packed_end - w->packed < bytes) {
		w->end += writer_round_up(bytes - (w->packed_end - w->packed), w->cluster_bytes);
		w->packed_end = w->end;
	}
	offset = w->packed;
	w->packed += bytes;
	writer_count(w, offset, bytes);
	return offset;
}

int qcow2_writer_compressed(struct qcow2_writer *w, uint64_t index, const void *data,
                            uint32_t bytes, struct error *err)
{
	uint64_t offset, sectors;

	if (bytes == 0 || bytes > qcow2_writer_max_compressed(w) || bytes > BUFFER_BYTES * 4)
		return error_set(err, "cannot write '%s': compressed data of %" PRIu32 " bytes",
		                 w->path, bytes);
	if (begin_cluster(w, index, err) < 0)
		return -1;
	offset = allocate_packed(w, bytes);
	sectors = (offset + bytes - 1) / SECTOR_BYTES - offset / SECTOR_BYTES;
	set_entry(w, index, COMPRESSED | sectors << (62 - (w->layout.cluster_bits - 8)) | offset);
	if ((offset != w->buffer_offset + w->buffered || bytes > BUFFER_BYTES - w->buffered) &&
	    flush_buffer(w, err) < 0)
		return -1;
	if (bytes > BUFFER_BYTES)
		return writer_put(w, data, bytes, offset, err);
	if (w->buffered == 0)
		w->buffer_offset = offset;
	memcpy(w->buffer + w->buffered, data, bytes);
	w->buffered += bytes;
	return 0;
}

static void put32(unsigned char *at, uint32_t v)
{
	v = htobe32(v);
	memcpy(at, &v, sizeof(v));
}

static void put64(unsigned char *at, uint64_t v)
{
	v = htobe64(v);
	memcpy(at, &v, sizeof(v));
}

static int write_header(struct qcow2_writer *w, uint64_t table, uint64_t table_clusters,
                        struct error *err)
{
	unsigned char h[HEADER_BYTES + 8] = "QFI\xfb"; /* with the end of the extensions */

	put32(h + 4, 3);
	put32(h + 20, w->layout.cluster_bits);
	put64(h + 24, w->layout.virtual_bytes);
	put32(h + 36, (uint32_t)w->l1_count);
	put64(h + 40, w->l1_offset);
	put64(h + 48, table);
	put32(h + 56, (uint32_t)table_clusters);
	put64(h + 72, w->layout.compression_type ? 1 << 3 : 0);
	put32(h + 96, 4); /* refcounts of 2^4 bits */
	put32(h + 100, HEADER_BYTES);
	h[104] = w->layout.compression_type;
	return writer_put(w, h, sizeof(h), 0, err);
}

int qcow2_writer_finish(struct qcow2_writer *w, uint64_t *ret_bytes, struct error *err)
{
	uint64_t table = 0, clusters = 0;

	if (flush_buffer(w, err) < 0 || write_l2(w, err) < 0 ||
	    writer_finish_refs(w, &table, &clusters, err) < 0 ||
	    write_header(w, table, clusters, err) < 0)
		return -1;
	if (fsync(w->fd) < 0)
		return error_errno(err, errno, "cannot write '%s'", w->path);
	w->finished = true;
	*ret_bytes = w->end;
	return 0;
}
