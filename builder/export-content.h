/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an overlay and its base hold together, cluster by cluster of a new image. Planning looks
 * at tables alone and belongs to one thread; the reading of what was planned may go to others.
 */
#ifndef GPUIMG_EXPORT_CONTENT_H
#define GPUIMG_EXPORT_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "compress.h"
#include "error.h"
#include "qcow2-map.h"

struct source {
	char *path;
	int fd;
	uint64_t file_bytes, virtual_bytes;
	struct qcow2_map *map; /* owns 'fd'; NULL: raw */
	unsigned cluster_bits; /* qcow2 only, both */
	enum compression compression;
	uint64_t data, hole; /* raw only: data stands from here to here, as far as known */
};

struct content {
	struct source overlay, base;
	uint64_t virtual_bytes;
	unsigned cluster_bits; /* of the new image */
	uint64_t cluster_count;
};

/* A part of a cluster of the new image; later pieces cover earlier ones. */
struct piece {
	const struct source *source;
	struct qcow2_cluster cluster; /* where it comes from */
	uint32_t from;                /* this many bytes into that */
	uint32_t to, length;          /* place in the new one */
};

struct pieces {
	struct piece *items;
	size_t count, room;
};

enum content_kind {
	CONTENT_NOTHING, /* zeros */
	CONTENT_STORED,  /* the base's compressed cluster, and nothing over it */
	CONTENT_PIECES,
};

int content_open(struct content **ret, const char *overlay, const char *base,
                 const char *base_format, struct error *err);
void content_close(struct content *c);
DEFINE_CLEANUP(content, struct content *, content_close)
#define CLEANUP_CONTENT CLEANUP(cleanup_content)

/*
 * Pieces are added to 'pieces', for every kind but CONTENT_NOTHING: for CONTENT_STORED, one
 * that holds the whole cluster. Ask in ascending order; *ret_next is the one to ask for next:
 * it lies behind what is empty, so a sparse disk costs no more than its tables.
 */
int content_plan(struct content *c, uint64_t index, struct pieces *pieces,
                 enum content_kind *ret_kind, uint64_t *ret_next, struct error *err);

/* 'scratch' holds what a cluster of a source can take up, twice (content_scratch_bytes()). */
int content_read(const struct piece *pieces, size_t count, struct codec *codec,
                 unsigned char *scratch, unsigned char *to, size_t size, struct error *err);
size_t content_scratch_bytes(const struct content *c);

#endif
