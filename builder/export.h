/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the overlay and its base as one qcow2 without a backing file. Compressed clusters of
 * the base that the overlay does not hide are taken over as they are; trimmed ones go; what
 * changed, or is not compressed the way that was asked for, is compressed on all cores. The
 * bytes depend on the inputs alone, not on time or the number of threads.
 */
#ifndef GPUIMG_EXPORT_H
#define GPUIMG_EXPORT_H

#include <stdint.h>

#include "error.h"
#include "log.h"

struct export_options {
	const char *overlay;     /* qcow2, made by export_overlay() */
	const char *base;        /* what it lies over; image_check() has accepted it */
	const char *base_format; /* QEMU's word */
	const char *to;          /* must not exist; it is flushed to the disk */
	const char *compression; /* "zlib", "zstd", "none"; NULL: as the base has it, else zstd */
	bool compact;            /* read and compress all anew */
	struct log *log;         /* progress goes to the step that was begun; may be NULL */
};

struct export_stats {
	const char *method; /* "clusters": ours; "qemu-img": a feature that we do not know */
	const char *compression;
	uint64_t cluster_bytes;
	/* Clusters of the new image, by how they came to it; method "clusters" only. */
	uint64_t taken_over, compressed, plain; /* plain: did not get smaller, or "none" */
	uint64_t bytes;                         /* of the file */
};

int export_image(const struct export_options *options, struct export_stats *ret, struct error *err);
/* A qcow2 overlay over a base of a known format. Paths may hold any byte but NUL. */
int export_overlay(const char *overlay, const char *base, const char *base_format, struct log *log,
                   struct error *err);

#endif
