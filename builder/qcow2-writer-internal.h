/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two halves of the writer: what goes into the file, and who counts it. */
#ifndef GPUIMG_QCOW2_WRITER_INTERNAL_H
#define GPUIMG_QCOW2_WRITER_INTERNAL_H

#include <stdbool.h>

#include "qcow2-writer.h"

#define NO_TABLE UINT64_MAX

struct qcow2_writer {
	int fd;
	char *path;
	bool finished;
	struct qcow2_layout layout;
	uint64_t cluster_bytes;
	uint64_t clusters; /* of the disk */
	uint64_t next;     /* of them, the first that may still come */
	uint64_t l1_offset, l1_count;

	uint64_t end; /* of what is allocated; whole clusters */
	/* Room for packed data, begun by the last compressed cluster; empty if both are equal. */
	uint64_t packed, packed_end;
	/* Packed data that is not in the file yet. */
	unsigned char *buffer;
	size_t buffered;
	uint64_t buffer_offset;

	uint64_t *l2;
	uint64_t l2_index; /* NO_TABLE: there is nothing in 'l2' */

	/* Refcounts of the clusters from block 'refs_first' on; older blocks are in the file. */
	uint16_t *refs;
	uint64_t refs_first;
	size_t refs_blocks;    /* in 'refs' */
	uint64_t *block_table; /* offsets of the blocks in the file, refs_first of them */
	size_t block_room;     /* of block_table */
};

static inline uint64_t writer_round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

int writer_put(struct qcow2_writer *w, const void *data, size_t size, uint64_t offset,
               struct error *err);
/* The refcount of a cluster of the file, which is not retired yet. */
uint16_t *writer_ref(struct qcow2_writer *w, uint64_t offset);
/* One more reference to each cluster that these bytes touch. */
void writer_count(struct qcow2_writer *w, uint64_t offset, uint64_t bytes);
/* Whole clusters at the end, that one owner refers to. */
uint64_t writer_allocate(struct qcow2_writer *w, uint64_t bytes);
/* Writes full blocks of refcounts; to be called where the next allocation need not follow the
 * last one. */
int writer_retire(struct qcow2_writer *w, struct error *err);
/* The table and the blocks that are left. */
int writer_finish_refs(struct qcow2_writer *w, uint64_t *ret_offset, uint64_t *ret_clusters,
                       struct error *err);

#endif
