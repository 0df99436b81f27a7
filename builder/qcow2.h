/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks at an image file before any other program opens it. The file is untrusted.
 * Source: docs/interop/qcow2.rst of QEMU.
 */
#ifndef GPUIMG_QCOW2_H
#define GPUIMG_QCOW2_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"

enum image_format { IMAGE_RAW, IMAGE_QCOW2 };

struct image_info {
	enum image_format format;
	uint64_t file_bytes;
	uint64_t virtual_bytes;
	/* qcow2 only: */
	unsigned version;
	uint32_t cluster_bytes;
	const char *compression; /* "zlib" or "zstd", what the header says */
	bool has_compressed_clusters;
	bool dirty;         /* refcounts may be stale (lazy_refcounts): reading is fine */
	unsigned snapshots; /* internal ones; they do not reach an exported copy */
};

const char *image_format_name(enum image_format format); /* "raw", "qcow2": QEMU's words */

/*
 * Fills *ret, or refuses (EXIT_INPUT) with a message of its own for each: missing, not a
 * regular file, unreadable, empty; text, an archive or compressed file (named, with the
 * cure), another disk format (VMDK, VHD(X), VDI, QED, LUKS, ISO 9660…; named);
 * qcow2 of an unknown version or with an unknown incompatible feature, with a backing file,
 * an external data file, encryption, the corrupt bit, a header or tables out of bounds,
 * truncated (a table or a cluster that lies beyond the file's end). Raw: size not a multiple
 * of 512. Dirty refcounts and internal snapshots are allowed; the caller tells them.
 *
 * Every L2 table is read: a 1 TB image has 128 MB of them, and ends in well under a second.
 * The last cluster of a sound file may be shorter than a cluster: it is refused only if bytes
 * that the guest can read are missing. Memory: the L1 table (32 MiB at most) and one cluster.
 */
int image_check(struct image_info *ret, const char *path, struct error *err);

#endif
