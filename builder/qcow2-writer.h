/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a new qcow2 (version 3), front to back: data as it comes, each L2 table when the disk's
 * clusters leave its range, refcounts as their clusters get full, the header last. So memory
 * does not grow with the image, and an unfinished file is no image. Compressed clusters are
 * packed byte by byte, as QEMU packs them.
 */
#ifndef GPUIMG_QCOW2_WRITER_H
#define GPUIMG_QCOW2_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "error.h"

struct qcow2_layout {
	uint64_t virtual_bytes;
	uint32_t cluster_bits;    /* 9..21 */
	uint8_t compression_type; /* as in the header: 0 zlib, 1 zstd */
};

struct qcow2_writer;

/* The file must not exist. */
int qcow2_writer_open(struct qcow2_writer **ret, const char *path,
                      const struct qcow2_layout *layout, struct error *err);
/* Removes a file that was not finished. */
void qcow2_writer_close(struct qcow2_writer *w);
DEFINE_CLEANUP(qcow2_writer, struct qcow2_writer *, qcow2_writer_close)
#define CLEANUP_QCOW2_WRITER CLEANUP(cleanup_qcow2_writer)

/* What an entry can count, wherever the data comes to stand; more than a cluster has. */
uint32_t qcow2_writer_max_compressed(const struct qcow2_writer *w);

/* Clusters come in ascending order of 'index'; those left out read as zeros. */
int qcow2_writer_plain(struct qcow2_writer *w, uint64_t index, const void *data, struct error *err);
int qcow2_writer_compressed(struct qcow2_writer *w, uint64_t index, const void *data,
                            uint32_t bytes, struct error *err);
/* Completes the file and flushes it to the disk. */
int qcow2_writer_finish(struct qcow2_writer *w, uint64_t *ret_bytes, struct error *err);

#endif
