/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cluster of a qcow2, compressed and expanded as QEMU does it, so that QEMU reads it: zlib
 * is raw deflate in a window of 4 KiB, zstd is one frame. The bytes depend on the data and the
 * library alone. A codec belongs to one thread; its memory does not grow with hostile data.
 */
#ifndef GPUIMG_COMPRESS_H
#define GPUIMG_COMPRESS_H

#include <stddef.h>

#include "cleanup.h"
#include "error.h"

/* The first two: as numbered in the header of a qcow2. */
enum compression {
	COMPRESSION_ZLIB = 0,
	COMPRESSION_ZSTD = 1,
	COMPRESSION_NONE,
};

/* "zlib", "zstd", "none"; 0 or -1. */
int compression_parse(const char *name, enum compression *ret);
const char *compression_name(enum compression type);

struct codec;

struct codec *codec_new(void);
void codec_free(struct codec *c);
DEFINE_CLEANUP(codec, struct codec *, codec_free)
#define CLEANUP_CODEC CLEANUP(cleanup_codec)

/* *ret_size 0: it would not fit into 'room' bytes. Fails only if out of memory. */
int codec_compress(struct codec *c, enum compression type, const void *data, size_t size, void *to,
                   size_t room, size_t *ret_size, struct error *err);
/* Exactly 'want' bytes come out, or it fails. Bytes behind the compressed data do no harm. */
int codec_expand(struct codec *c, enum compression type, const void *data, size_t size, void *to,
                 size_t want, struct error *err);

#endif
