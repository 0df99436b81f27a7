/* SPDX-License-Identifier: Apache-2.0 */
/* The qcow2 header: what QEMU would follow, ask for or choke on is refused before it sees it. */
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "qcow2_tables.h"
#include "str.h"

#define HEADER_V2_BYTES 72
#define HEADER_V3_BYTES 104
#define HEADER_BYTES    112 /* with the compression type and its padding */
#define MIN_BITS        9
#define MAX_BITS        21 /* QEMU's own limits, here and below */
#define MAX_SNAPSHOTS   65536
#define MAX_NAME_BYTES  1023
#define KNOWN_FEATURES  UINT64_C(0x1f)

int read_exactly(int fd, void *buffer, size_t size, uint64_t offset_bytes, struct error *err)
{
	char *to = buffer;

	while (size) {
		ssize_t n = pread(fd, to, size, (off_t)offset_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot read it at byte %" PRIu64,
			                   offset_bytes);
		if (n == 0)
			return error_set(err, "it became shorter while it was read");
		to += n;
		size -= (size_t)n;
		offset_bytes += (uint64_t)n;
	}
	return 0;
}

int qcow2_truncated(const struct qcow2 *q, const char *what, uint64_t where, struct error *err)
{
	error_hint(err, "the download or copy broke off: get it again and compare its checksum");
	return error_set(
		err, "it is truncated: the file ends at byte %" PRIu64 ", but %s at byte %" PRIu64,
		q->file_bytes, what, where);
}

static uint32_t be32(const unsigned char *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static void decode_header(struct qcow2 *q, const unsigned char *h)
{
	q->version = be32(h + 4);
	q->backing_offset = qcow2_be64(h + 8);
	q->backing_length = be32(h + 16);
	q->cluster_bits = be32(h + 20);
	q->virtual_bytes = qcow2_be64(h + 24);
	q->crypt_method = be32(h + 32);
	q->l1_count = be32(h + 36);
	q->l1_offset = qcow2_be64(h + 40);
	q->refcount_offset = qcow2_be64(h + 48);
	q->refcount_clusters = be32(h + 56);
	q->snapshot_count = be32(h + 60);
	q->snapshot_offset = qcow2_be64(h + 64);
	q->refcount_order = 4;
	q->header_length = HEADER_V2_BYTES;
	if (q->version < 3)
		return;
	q->incompatible = qcow2_be64(h + 72);
	q->refcount_order = be32(h + 96);
	q->header_length = be32(h + 100);
	if (q->header_length > HEADER_V3_BYTES)
		q->compression_type = h[104];
}

static int check_sizes(const struct qcow2 *q, struct error *err)
{
	if (q->cluster_bits < MIN_BITS || q->cluster_bits > MAX_BITS)
		return error_set(err, "its header is damaged: clusters of 2^%" PRIu32 " bytes",
		                 q->cluster_bits);
	if (q->version >= 3 && (q->header_length < HEADER_V3_BYTES || q->header_length % 8 ||
	                        q->header_length > UINT32_C(1) << q->cluster_bits))
		return error_set(err, "its header is damaged: a header of %" PRIu32 " bytes",
		                 q->header_length);
	if (q->refcount_order > 6)
		return error_set(err, "its header is damaged: refcounts of 2^%" PRIu32 " bits",
		                 q->refcount_order);
	if (q->virtual_bytes == 0)
		return error_set(err, "the disk in it has a size of 0 bytes");
	if (q->virtual_bytes > INT64_MAX)
		return error_set(err, "its header is damaged: a disk of %" PRIu64 " bytes",
		                 q->virtual_bytes);
	if (q->snapshot_count > MAX_SNAPSHOTS)
		return error_set(err, "its header is damaged: %" PRIu32 " snapshots",
		                 q->snapshot_count);
	return 0;
}

static int check_features(const struct qcow2 *q, struct error *err)
{
	uint64_t unknown = q->incompatible & ~KNOWN_FEATURES;

	if (unknown) {
		error_hint(err, "convert it with the QEMU that made it: qemu-img convert -O qcow2");
		return error_set(
			err, "it needs an incompatible feature that gpuimg does not know (bit %d)",
			__builtin_ctzll(unknown));
	}
	if (q->incompatible & QCOW2_CORRUPT) {
		error_hint(err, "try 'qemu-img check -r all' on a copy, or get the image again");
		return error_set(err, "it is marked as corrupt");
	}
	if (q->incompatible & QCOW2_DATA_FILE) {
		error_hint(err, "join them, if you trust it: qemu-img convert -O qcow2");
		return error_set(err, "its data stands in another file (data_file)");
	}
	if (q->compression_type > 1)
		return error_set(err, "its compression type %u is unknown", q->compression_type);
	if (!(q->incompatible & QCOW2_COMPRESSION) != !q->compression_type)
		return error_set(err, "its header is damaged: the compression type and the "
		                      "feature bits contradict each other");
	if ((q->incompatible & QCOW2_EXTENDED_L2) && q->cluster_bits < 14)
		return error_set(err,
		                 "its header is damaged: subclusters in clusters of 2^%" PRIu32
		                 " bytes",
		                 q->cluster_bits);
	return 0;
}

static int check_backing(const struct qcow2 *q, struct error *err)
{
	char name[MAX_NAME_BYTES + 1] = "";
	CLEANUP_FREE char *shown = NULL;

	if (q->allow_backing || q->backing_offset == 0 || q->backing_length == 0)
		return 0;
	if (q->backing_length > MAX_NAME_BYTES ||
	    q->backing_offset > (UINT64_C(1) << q->cluster_bits) - q->backing_length)
		return error_set(err, "its header is damaged: the name of the backing file");
	if (q->backing_offset + q->backing_length > q->file_bytes)
		return qcow2_truncated(q, "the name of its backing file stands", q->backing_offset,
		                       err);
	if (read_exactly(q->fd, name, q->backing_length, q->backing_offset, err) < 0)
		return -1;
	shown = str_printable(name, MAX_NAME_BYTES);
	error_hint(err, "join the two, if you trust them: qemu-img convert -O qcow2");
	return error_set(err, "it holds only changes to a backing file, '%s'", shown);
}

static int check_encryption(const struct qcow2 *q, struct error *err)
{
	if (q->crypt_method == 0)
		return 0;
	if (q->crypt_method > 2)
		return error_set(err, "its encryption method %" PRIu32 " is unknown",
		                 q->crypt_method);
	error_hint(err, "decrypt it first with qemu-img convert; gpuimg asks for no passphrase");
	return error_set(err, "it is encrypted (%s)", q->crypt_method == 1 ? "AES" : "LUKS");
}

/* Known ones are of no interest; but QEMU refuses a file whose extensions run out of bounds. */
static int check_extensions(const struct qcow2 *q, struct error *err)
{
	uint64_t end = UINT64_C(1) << q->cluster_bits, at = q->header_length;
	CLEANUP_FREE unsigned char *area = NULL;

	if (end > q->file_bytes)
		end = q->file_bytes;
	area = mem_alloc(end);
	if (read_exactly(q->fd, area, end, 0, err) < 0)
		return -1;
	while (at + 8 <= end && be32(area + at)) {
		uint32_t length = be32(area + at + 4);

		if (length > end - at - 8)
			return error_set(err,
			                 "its header is damaged: the extension at byte %" PRIu64
			                 " is %" PRIu32 " bytes long",
			                 at, length);
		at += 8 + (((uint64_t)length + 7) & ~UINT64_C(7));
	}
	return 0;
}

int qcow2_read_header(struct qcow2 *q, struct error *err)
{
	unsigned char h[HEADER_BYTES] = {0};
	size_t size = q->file_bytes < sizeof(h) ? q->file_bytes : sizeof(h);

	if (read_exactly(q->fd, h, size, 0, err) < 0)
		return -1;
	if (size < HEADER_V2_BYTES || (be32(h + 4) >= 3 && size < HEADER_V3_BYTES))
		return qcow2_truncated(q, "the qcow2 header stands", 0, err);
	decode_header(q, h);
	if (q->version < 2 || q->version > 3) {
		error_hint(err, "convert it first: qemu-img convert -O qcow2 FILE base.qcow2");
		return error_set(err, "it is a qcow image of version %" PRIu32 ", not 2 or 3",
		                 q->version);
	}
	if (check_features(q, err) < 0 || check_sizes(q, err) < 0)
		return -1;
	if (check_backing(q, err) < 0 || check_encryption(q, err) < 0)
		return -1;
	return check_extensions(q, err);
}
