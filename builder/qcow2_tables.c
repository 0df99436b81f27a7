/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A qcow2 header is followed by two levels of tables: L1 entries point to L2 tables, L2 entries
 * to clusters of guest data. A download that broke off keeps header and L1 and loses clusters at
 * the end, where QEMU reads zeros without a word; so every L2 entry is compared with the file's
 * length. Where a sound file ends was learnt from QEMU: its last cluster need not be whole, and
 * compressed data ends anywhere in the last sector that its entry counts.
 */
#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <string.h>

#include "qcow2_tables.h"
#include "str.h"

/* QEMU's own limits. */
#define MAX_L1_BYTES  (UINT64_C(32) << 20)
#define MAX_REF_BYTES (UINT64_C(8) << 20)

#define SECTOR_BYTES 512

/* L2 tables that we are ready to read; 4 GiB describe 32 TiB in clusters of 64 KiB. */
#define MAX_L2_BYTES (UINT64_C(4) << 30)
/* Compressed clusters that can begin in the file's last sector. */
#define MAX_TAILS SECTOR_BYTES

#define OFFSET_MASK UINT64_C(0x00fffffffffffe00)
#define COMPRESSED  (UINT64_C(1) << 62)
#define ZERO        UINT64_C(1)

struct scan {
	const struct qcow2 *q;
	uint64_t cluster_bytes;
	bool extended;     /* two words per L2 entry: subclusters */
	size_t l2_entries; /* per table */
	bool compressed;   /* one was seen */
	unsigned tails;    /* compressed clusters in the last sector, decoded so far */
};

/* A table of whole clusters, of which the last one may be cut short ('used_bytes' count). */
static int check_table_place(const struct qcow2 *q, const char *what, uint64_t offset,
                             uint64_t used_bytes, struct error *err)
{
	CLEANUP_FREE char *stands = str_format("%s stands", what);

	if (offset & ((UINT64_C(1) << q->cluster_bits) - 1) || offset == 0 || offset > INT64_MAX)
		return error_set(err, "its header is damaged: %s at byte %" PRIu64, what, offset);
	if (offset >= q->file_bytes || used_bytes > q->file_bytes - offset)
		return qcow2_truncated(q, stands, offset, err);
	return 0;
}

/* Refcounts matter to writers only, and nobody writes to a base: it is enough that the blocks
 * begin inside the file. */
static int check_refcounts(const struct qcow2 *q, struct error *err)
{
	uint64_t bytes = (uint64_t)q->refcount_clusters << q->cluster_bits;
	CLEANUP_FREE unsigned char *table = NULL;

	if (bytes == 0 || bytes > MAX_REF_BYTES)
		return error_set(err,
		                 "its header is damaged: a refcount table of %" PRIu32 " clusters",
		                 q->refcount_clusters);
	if (check_table_place(q, "its refcount table", q->refcount_offset, 1, err) < 0)
		return -1;
	if (bytes > q->file_bytes - q->refcount_offset) {
		uint64_t missing = bytes - (q->file_bytes - q->refcount_offset);

		if (missing >= UINT64_C(1) << q->cluster_bits)
			return qcow2_truncated(q, "its refcount table stands", q->refcount_offset,
			                       err);
		bytes -= missing;
	}
	table = mem_alloc(bytes);
	if (read_exactly(q->fd, table, bytes, q->refcount_offset, err) < 0)
		return -1;
	for (uint64_t i = 0; i + 8 <= bytes; i += 8) {
		uint64_t block = qcow2_be64(table + i) & ~UINT64_C(0x1ff);

		if (block && check_table_place(q, "a block of refcounts", block, 1, err) < 0)
			return -1;
	}
	return 0;
}

static struct archive *open_decoder(const unsigned char *data, size_t size)
{
	struct archive *a = archive_read_new();
	struct archive_entry *entry;

	if (a && archive_read_support_filter_gzip(a) >= ARCHIVE_WARN &&
	    archive_read_support_filter_zstd(a) >= ARCHIVE_WARN &&
	    archive_read_support_format_raw(a) == ARCHIVE_OK &&
	    archive_read_open_memory(a, data, size) == ARCHIVE_OK &&
	    archive_read_next_header(a, &entry) == ARCHIVE_OK)
		return a;
	archive_read_free(a);
	return NULL;
}

/* Whether the data is a whole stream of 'want' bytes; 'framed': and an end that was checked. */
static bool decodes(const unsigned char *data, size_t size, size_t want, bool framed)
{
	struct archive *a = open_decoder(data, size);
	CLEANUP_FREE unsigned char *out = mem_alloc(want + 1);
	size_t got = 0;
	ssize_t n = 1;

	while (a && got < want && n > 0) {
		n = archive_read_data(a, out + got, want - got);
		got += n > 0 ? (size_t)n : 0;
	}
	if (got == want && framed)
		n = archive_read_data(a, out + want, 1);
	archive_read_free(a);
	return got == want && (!framed || n == 0);
}

/*
 * The file ends in the last sector of this compressed cluster: whole or not? Decode it, with
 * libarchive, which knows deflate in a gzip wrapper only. The wrapper's last 8 bytes are for the
 * checksum, unchecked there: a stream that was cut eats some of them, and then they are missing.
 */
static int check_tail(struct scan *s, uint64_t guest, uint64_t offset, struct error *err)
{
	static const unsigned char gzip_head[10] = {0x1f, 0x8b, 8};
	const struct qcow2 *q = s->q;
	bool deflate = q->compression_type == 0;
	size_t size = q->file_bytes - offset;
	size_t before = deflate ? sizeof(gzip_head) : 0, after = deflate ? 8 : 0;
	CLEANUP_FREE unsigned char *data = NULL;

	if (s->tails++ >= MAX_TAILS)
		return error_set(err, "its tables are damaged: clusters overlap at byte %" PRIu64,
		                 offset);
	data = mem_alloc(before + size + after);
	memcpy(data, gzip_head, before);
	if (read_exactly(q->fd, data + before, size, offset, err) < 0)
		return -1;
	if (!decodes(data, before + size + after, s->cluster_bytes, deflate)) {
		CLEANUP_FREE char *what = str_format(
			"the compressed data of the disk's byte %" PRIu64 ", cut short, begins",
			guest);

		return qcow2_truncated(q, what, offset, err);
	}
	return 0;
}

static int check_compressed(struct scan *s, uint64_t guest, uint64_t entry, struct error *err)
{
	const struct qcow2 *q = s->q;
	unsigned count_bits = q->cluster_bits - 8, shift = 62 - count_bits;
	uint64_t offset = entry & ((UINT64_C(1) << shift) - 1);
	uint64_t sectors = ((entry >> shift) & ((UINT64_C(1) << count_bits) - 1)) + 1;
	uint64_t end = (offset & ~(uint64_t)(SECTOR_BYTES - 1)) + sectors * SECTOR_BYTES;
	CLEANUP_FREE char *what = NULL;

	s->compressed = true;
	if (end <= q->file_bytes)
		return 0;
	/* The last sector that is counted holds one byte of the data or more. */
	if (offset < q->file_bytes && end - SECTOR_BYTES < q->file_bytes)
		return check_tail(s, guest, offset, err);
	what = str_format("the compressed data of the disk's byte %" PRIu64 " stands", guest);
	return qcow2_truncated(q, what, offset, err);
}

/* How many bytes of a cluster the guest can ever read: QEMU leaves out the rest at the end. */
static uint64_t needed_bytes(const struct scan *s, uint64_t guest, uint64_t entry, uint64_t bitmap)
{
	uint64_t bytes = s->cluster_bytes;
	uint32_t allocated = (uint32_t)bitmap;

	if (s->extended)
		bytes = allocated ? (bytes / 32) * (32 - (unsigned)__builtin_clz(allocated)) : 0;
	else if (s->q->version >= 3 && entry & ZERO)
		return 0;
	if (guest >= s->q->virtual_bytes)
		return 0;
	return bytes < s->q->virtual_bytes - guest ? bytes : s->q->virtual_bytes - guest;
}

static int check_entry(struct scan *s, uint64_t guest, uint64_t entry, uint64_t bitmap,
                       struct error *err)
{
	uint64_t offset = entry & OFFSET_MASK;
	CLEANUP_FREE char *what = NULL;

	if (entry & COMPRESSED)
		return check_compressed(s, guest, entry, err);
	if (offset == 0)
		return 0;
	if (offset & (s->cluster_bytes - 1))
		return error_set(err,
		                 "its tables are damaged: the disk's byte %" PRIu64
		                 " at byte %" PRIu64 ", in the middle of a cluster",
		                 guest, offset);
	if (offset + s->cluster_bytes <= s->q->file_bytes)
		return 0;
	if (offset < s->q->file_bytes &&
	    needed_bytes(s, guest, entry, bitmap) <= s->q->file_bytes - offset)
		return 0;
	what = str_format("the cluster of the disk's byte %" PRIu64 " stands", guest);
	return qcow2_truncated(s->q, what, offset, err);
}

static int check_l2(struct scan *s, uint64_t l1_index, uint64_t offset, unsigned char *table,
                    struct error *err)
{
	size_t width = s->extended ? 16 : 8;
	uint64_t guest = 0, span = s->l2_entries * s->cluster_bytes;
	int rc = 0;

	if (__builtin_mul_overflow(l1_index, span, &guest) || guest > INT64_MAX - span)
		return error_set(err,
		                 "its tables are damaged: more L2 tables than a disk can have");
	if (read_exactly(s->q->fd, table, s->cluster_bytes, offset, err) < 0)
		return -1;
	for (size_t i = 0; i < s->l2_entries && rc == 0; i++) {
		uint64_t entry = qcow2_be64(table + i * width);

		if (entry)
			rc = check_entry(s, guest + i * s->cluster_bytes, entry,
			                 s->extended ? qcow2_be64(table + i * width + 8) : 0, err);
	}
	return rc;
}

static int check_l1(struct scan *s, const unsigned char *l1, struct error *err)
{
	CLEANUP_FREE unsigned char *table = mem_alloc(s->cluster_bytes);
	uint64_t total = 0;

	for (uint32_t i = 0; i < s->q->l1_count; i++) {
		uint64_t offset = qcow2_be64(l1 + (size_t)i * 8) & OFFSET_MASK;

		if (offset == 0)
			continue;
		if (check_table_place(s->q, "an L2 table", offset, s->cluster_bytes, err) < 0)
			return -1;
		/* Each table has a place of its own, so together they fit into the file. */
		total += s->cluster_bytes;
		if (total > s->q->file_bytes || total > MAX_L2_BYTES)
			return error_set(err, "its tables are damaged: %" PRIu64 " bytes of them",
			                 total);
		if (check_l2(s, i, offset, table, err) < 0)
			return -1;
	}
	return 0;
}

int qcow2_check_tables(const struct qcow2 *q, struct image_info *info, struct error *err)
{
	struct scan s = {.q = q, .cluster_bytes = UINT64_C(1) << q->cluster_bits};
	uint64_t l1_bytes = (uint64_t)q->l1_count * 8, covered;
	CLEANUP_FREE unsigned char *l1 = NULL;

	s.extended = q->incompatible & QCOW2_EXTENDED_L2;
	s.l2_entries = s.cluster_bytes / (s.extended ? 16 : 8);
	covered = s.l2_entries * s.cluster_bytes;
	if (l1_bytes > MAX_L1_BYTES || (q->virtual_bytes - 1) / covered >= q->l1_count)
		return error_set(err,
		                 "its header is damaged: an L1 table of %" PRIu32
		                 " entries for a disk of %" PRIu64 " bytes",
		                 q->l1_count, q->virtual_bytes);
	if (check_table_place(q, "its L1 table", q->l1_offset, l1_bytes, err) < 0)
		return -1;
	if (q->snapshot_count &&
	    check_table_place(q, "its table of snapshots", q->snapshot_offset, 1, err) < 0)
		return -1;
	if (check_refcounts(q, err) < 0)
		return -1;
	l1 = mem_alloc(l1_bytes);
	if (read_exactly(q->fd, l1, l1_bytes, q->l1_offset, err) < 0)
		return -1;
	if (check_l1(&s, l1, err) < 0)
		return -1;
	info->has_compressed_clusters = s.compressed;
	return 0;
}
