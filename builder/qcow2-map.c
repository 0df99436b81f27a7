/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "qcow2-map.h"
#include "str.h"

#define SECTOR_BYTES 512
#define OFFSET_MASK  UINT64_C(0x00fffffffffffe00)
#define COMPRESSED   (UINT64_C(1) << 62)
#define ZERO         UINT64_C(1)
#define L1_WINDOW    512 /* entries that are read at once */
#define NO_TABLE     UINT64_MAX

struct qcow2_map {
	char *path;
	struct qcow2 q;
	uint64_t cluster_bytes;
	unsigned l2_bits; /* 2^this entries in an L2 table */

	unsigned char l1[L1_WINDOW * 8];
	uint64_t l1_first; /* NO_TABLE: nothing read yet */
	unsigned char *l2;
	uint64_t l2_index; /* of the table in 'l2' */
	bool l2_empty;     /* there is no such table */

	/* Where compressed clusters of this L2 table and the next one begin, ascending; made when
	 * first asked. */
	uint64_t *starts;
	size_t start_count;
	bool starts_ready;
	unsigned char *next_l2;
};

static int open_file(const char *path, int *ret_fd, uint64_t *ret_bytes, struct error *err)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot open it");
	if (!S_ISREG(st.st_mode))
		return error_set(err, "it is not a regular file");
	*ret_bytes = (uint64_t)st.st_size;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static int read_header(struct qcow2_map *m, bool overlay, struct error *err)
{
	unsigned char magic[4];

	m->q.allow_backing = overlay;
	if (open_file(m->path, &m->q.fd, &m->q.file_bytes, err) < 0)
		return -1;
	if (read_exactly(m->q.fd, magic, sizeof(magic), 0, err) < 0)
		return -1;
	if (memcmp(magic, "QFI\xfb", 4) != 0)
		return error_set(err, "it is not a qcow2 image");
	if (qcow2_read_header(&m->q, err) < 0)
		return -1;
	m->cluster_bytes = UINT64_C(1) << m->q.cluster_bits;
	m->l2_bits = m->q.cluster_bits - 3;
	m->l2 = mem_alloc(m->cluster_bytes);
	return 0;
}

int qcow2_map_open(struct qcow2_map **ret, const char *path, bool overlay, struct error *err)
{
	CLEANUP_QCOW2_MAP struct qcow2_map *m = mem_alloc(sizeof(*m));

	m->path = str_copy(path);
	m->q.fd = -1;
	m->l1_first = NO_TABLE;
	m->l2_index = NO_TABLE;
	if (read_header(m, overlay, err) < 0) {
		error_code(err, EXIT_INPUT);
		return error_prefix(err, "cannot use image '%s'", path);
	}
	*ret = STEAL(m);
	return 0;
}

void qcow2_map_close(struct qcow2_map *m)
{
	if (!m)
		return;
	if (m->q.fd >= 0)
		close(m->q.fd);
	free(m->path);
	free(m->l2);
	free(m->next_l2);
	free(m->starts);
	free(m);
}

const struct qcow2 *qcow2_map_header(const struct qcow2_map *m)
{
	return &m->q;
}

const char *qcow2_map_unknown(const struct qcow2_map *m)
{
	return m->q.incompatible & QCOW2_EXTENDED_L2 ? "subclusters (extended_l2)" : NULL;
}

/* *ret 0: there is no such table. */
static int table_offset(struct qcow2_map *m, uint64_t index, uint64_t *ret, struct error *err)
{
	uint64_t first = index - index % L1_WINDOW, offset;

	*ret = 0;
	if (index >= m->q.l1_count)
		return 0;
	if (m->l1_first != first) {
		uint64_t count = m->q.l1_count - first;

		m->l1_first = NO_TABLE;
		if (m->q.l1_offset > INT64_MAX)
			return error_set(err, "its header is damaged: its L1 table");
		if (read_exactly(m->q.fd, m->l1, (count < L1_WINDOW ? count : L1_WINDOW) * 8,
		                 m->q.l1_offset + first * 8, err) < 0)
			return -1;
		m->l1_first = first;
	}
	offset = qcow2_be64(m->l1 + (index - first) * 8) & OFFSET_MASK;
	if (offset & (m->cluster_bytes - 1))
		return error_set(err, "its tables are damaged: an L2 table at byte %" PRIu64,
		                 offset);
	*ret = offset;
	return 0;
}

static int read_table(struct qcow2_map *m, uint64_t index, unsigned char *to, bool *ret_empty,
                      struct error *err)
{
	uint64_t offset;

	if (table_offset(m, index, &offset, err) < 0)
		return -1;
	if (offset && read_exactly(m->q.fd, to, m->cluster_bytes, offset, err) < 0)
		return -1;
	*ret_empty = offset == 0;
	return 0;
}

static int load_table(struct qcow2_map *m, uint64_t index, struct error *err)
{
	if (m->l2_index == index)
		return 0;
	m->l2_index = NO_TABLE;
	m->starts_ready = false;
	if (read_table(m, index, m->l2, &m->l2_empty, err) < 0)
		return -1;
	m->l2_index = index;
	return 0;
}

static uint64_t table_entry(const struct qcow2_map *m, size_t i)
{
	return m->l2_empty ? 0 : qcow2_be64(m->l2 + i * 8);
}

static unsigned count_shift(const struct qcow2_map *m)
{
	return 62 - (m->q.cluster_bits - 8);
}

static uint64_t compressed_start(const struct qcow2_map *m, uint64_t entry)
{
	return entry & ((UINT64_C(1) << count_shift(m)) - 1);
}

static int by_start(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* Returns whether they stand in the file as they do on the disk: as QEMU writes them. */
static bool add_starts(struct qcow2_map *m, const unsigned char *table)
{
	bool ascending = true;

	for (size_t i = 0; i < (size_t)1 << m->l2_bits; i++) {
		uint64_t entry = qcow2_be64(table + i * 8), start = compressed_start(m, entry);

		if (!(entry & COMPRESSED))
			continue;
		if (m->start_count && m->starts[m->start_count - 1] > start)
			ascending = false;
		m->starts[m->start_count++] = start;
	}
	return ascending;
}

static int collect_starts(struct qcow2_map *m, struct error *err)
{
	bool next_empty, ascending;

	if (!m->starts) {
		m->starts = mem_alloc(2 * sizeof(*m->starts) << m->l2_bits);
		m->next_l2 = mem_alloc(m->cluster_bytes);
	}
	if (read_table(m, m->l2_index + 1, m->next_l2, &next_empty, err) < 0)
		return -1;
	m->start_count = 0;
	ascending = add_starts(m, m->l2);
	if (!next_empty)
		ascending = add_starts(m, m->next_l2) && ascending;
	if (!ascending)
		qsort(m->starts, m->start_count, sizeof(*m->starts), by_start);
	m->starts_ready = true;
	return 0;
}

/* The first start behind 'offset', but 'end' if there is none before it. */
static uint64_t next_start(const struct qcow2_map *m, uint64_t offset, uint64_t end)
{
	size_t low = 0, high = m->start_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (m->starts[middle] > offset)
			high = middle;
		else
			low = middle + 1;
	}
	return low < m->start_count && m->starts[low] < end ? m->starts[low] : end;
}

static int decode_compressed(struct qcow2_map *m, uint64_t entry, struct qcow2_cluster *c,
                             struct error *err)
{
	unsigned shift = count_shift(m);
	uint64_t offset = compressed_start(m, entry);
	uint64_t sectors = ((entry >> shift) & ((UINT64_C(1) << (m->q.cluster_bits - 8)) - 1)) + 1;
	uint64_t end = (offset & ~(uint64_t)(SECTOR_BYTES - 1)) + sectors * SECTOR_BYTES;

	if (end > m->q.file_bytes)
		end = m->q.file_bytes;
	if (offset >= end)
		return error_set(err,
		                 "its tables are damaged: compressed data at byte %" PRIu64
		                 ", behind the end of the file",
		                 offset);
	if (!m->starts_ready && collect_starts(m, err) < 0)
		return -1;
	c->kind = QCOW2_COMPRESSED;
	c->offset = offset;
	c->bytes = (uint32_t)(end - offset);
	c->own_bytes = (uint32_t)(next_start(m, offset, end) - offset);
	return 0;
}

static int decode_entry(struct qcow2_map *m, uint64_t entry, struct qcow2_cluster *c,
                        struct error *err)
{
	uint64_t offset = entry & OFFSET_MASK;

	if (entry & COMPRESSED)
		return decode_compressed(m, entry, c, err);
	if (entry & ZERO && m->q.version < 3)
		return error_set(err, "its tables are damaged: version 2 has no zero clusters");
	if (entry & ZERO) {
		c->kind = QCOW2_ZERO;
		return 0;
	}
	if (offset == 0)
		return 0;
	if (offset & (m->cluster_bytes - 1) || offset >= m->q.file_bytes)
		return error_set(err, "its tables are damaged: a cluster at byte %" PRIu64, offset);
	c->kind = QCOW2_PLAIN;
	c->offset = offset;
	c->bytes = (uint32_t)(m->q.file_bytes - offset < m->cluster_bytes ? m->q.file_bytes - offset
	                                                                  : m->cluster_bytes);
	return 0;
}

int qcow2_map_lookup(struct qcow2_map *m, uint64_t index, struct qcow2_cluster *ret,
                     struct error *err)
{
	size_t i = index & ((UINT64_C(1) << m->l2_bits) - 1);
	struct qcow2_cluster c = {0};

	if (load_table(m, index >> m->l2_bits, err) < 0 ||
	    decode_entry(m, table_entry(m, i), &c, err) < 0) {
		error_code(err, EXIT_INPUT);
		return error_prefix(err, "cannot read image '%s'", m->path);
	}
	*ret = c;
	return 0;
}

uint64_t qcow2_map_nothing_until(const struct qcow2_map *m, uint64_t index)
{
	bool missing = m->l2_empty && m->l2_index == index >> m->l2_bits;

	return missing ? (m->l2_index + 1) << m->l2_bits : index + 1;
}

int qcow2_map_has_compressed(struct qcow2_map *m, bool *ret, struct error *err)
{
	size_t entries = (size_t)1 << m->l2_bits;

	*ret = false;
	for (uint64_t table = 0; table < m->q.l1_count && !*ret; table++) {
		if (load_table(m, table, err) < 0) {
			error_code(err, EXIT_INPUT);
			return error_prefix(err, "cannot read image '%s'", m->path);
		}
		for (size_t i = 0; !m->l2_empty && i < entries && !*ret; i++)
			*ret = table_entry(m, i) & COMPRESSED;
	}
	return 0;
}
