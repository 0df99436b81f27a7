/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the clusters of a qcow2 stand in its file. Two L2 tables are held at most, so memory
 * does not grow with the image: ask in ascending order. Nothing in the file is trusted, also if
 * image_check() has seen it. A map belongs to one thread; its descriptor may be read by others.
 */
#ifndef GPUIMG_QCOW2_MAP_H
#define GPUIMG_QCOW2_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "cleanup.h"
#include "error.h"
#include "qcow2_tables.h"

enum qcow2_kind {
	QCOW2_NOTHING, /* not in this file: what lies beneath it, or zeros */
	QCOW2_ZERO,
	QCOW2_PLAIN,
	QCOW2_COMPRESSED,
};

struct qcow2_cluster {
	enum qcow2_kind kind;
	uint64_t offset; /* in the file; plain and compressed ones */
	uint32_t bytes; /* from there on, inside the file; the rest of a plain one reads as zeros */
	/* Compressed: the entry counts whole sectors, where the next one may have begun already.
	 * These are the bytes up to the next one, if this L2 table or the next one has that. */
	uint32_t own_bytes;
};

struct qcow2_map;

/* 'overlay': it may name a backing file, which is not looked at. Messages begin with the path. */
int qcow2_map_open(struct qcow2_map **ret, const char *path, bool overlay, struct error *err);
void qcow2_map_close(struct qcow2_map *m);
DEFINE_CLEANUP(qcow2_map, struct qcow2_map *, qcow2_map_close)
#define CLEANUP_QCOW2_MAP CLEANUP(cleanup_qcow2_map)

const struct qcow2 *qcow2_map_header(const struct qcow2_map *m); /* with the descriptor */
/* A feature of this file that lookups do not know, for people; NULL if there is none. */
const char *qcow2_map_unknown(const struct qcow2_map *m);

/* 'index' counts clusters of the disk; behind its end there is nothing. */
int qcow2_map_lookup(struct qcow2_map *m, uint64_t index, struct qcow2_cluster *ret,
                     struct error *err);
/* After a lookup: from 'index' up to this one there is nothing, if there was nothing at 'index'.
 * A whole table that is missing is stepped over so. */
uint64_t qcow2_map_nothing_until(const struct qcow2_map *m, uint64_t index);
/* Reads tables up to the first compressed cluster. */
int qcow2_map_has_compressed(struct qcow2_map *m, bool *ret, struct error *err);

#endif
