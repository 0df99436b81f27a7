/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a qcow2 file: header and tables, read-only. For image_check() and qcow2-map. */
#ifndef GPUIMG_QCOW2_TABLES_H
#define GPUIMG_QCOW2_TABLES_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "error.h"
#include "qcow2.h"

enum qcow2_feature { /* bits of 'incompatible' */
	             QCOW2_DIRTY = 1 << 0,
	             QCOW2_CORRUPT = 1 << 1,
	             QCOW2_DATA_FILE = 1 << 2,
	             QCOW2_COMPRESSION = 1 << 3,
	             QCOW2_EXTENDED_L2 = 1 << 4,
};

struct qcow2 {
	int fd; /* the caller's */
	uint64_t file_bytes;
	bool allow_backing; /* the caller's: a name of a backing file is no reason to refuse */
	uint64_t virtual_bytes;
	uint32_t version;
	uint32_t cluster_bits;
	uint32_t crypt_method;
	uint64_t backing_offset;
	uint32_t backing_length;
	uint32_t l1_count;
	uint64_t l1_offset;
	uint64_t refcount_offset;
	uint32_t refcount_clusters;
	uint32_t snapshot_count;
	uint64_t snapshot_offset;
	uint64_t incompatible;
	uint32_t refcount_order;
	uint32_t header_length;
	uint8_t compression_type;
};

/* Reads all 'size' bytes at 'offset_bytes', or fails: the file got shorter meanwhile. */
int read_exactly(int fd, void *buffer, size_t size, uint64_t offset_bytes, struct error *err);

/* Messages are about "it"; the caller puts the path before them. */
int qcow2_read_header(struct qcow2 *q, struct error *err);
int qcow2_check_tables(const struct qcow2 *q, struct image_info *info, struct error *err);
/* Sets the error "it is truncated: the file ends at byte N, but 'what' at byte 'where'". */
int qcow2_truncated(const struct qcow2 *q, const char *what, uint64_t where, struct error *err);

static inline uint64_t qcow2_be64(const unsigned char *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

#endif
