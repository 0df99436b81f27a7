/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the initramfs reader share: the image and its bytes (initramfs-stream.c),
 * the cpio parser above them (initramfs-cpio.c), and what tells the compressions apart and
 * feeds their content to that parser (initramfs-format.c). initramfs.c puts them together.
 */
#ifndef GPUIMG_INITRAMFS_INTERNAL_H
#define GPUIMG_INITRAMFS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "error.h"
#include "initramfs.h"

struct archive; /* libarchive's */

#define MAX_NAME_BYTES 4096 /* PATH_MAX; the kernel steps over longer ones */
#define PIECE_BYTES    65536

/* The image: a file or memory, with a window for reads of a few bytes. */
struct source {
	int fd; /* -1: memory */
	const uint8_t *memory;
	uint64_t size;
	uint64_t window_at;
	size_t window_size;
	uint8_t window[PIECE_BYTES];
};

struct reader {
	struct initramfs *out;
	const char *name;
	initramfs_keep *keep;
	void *opaque;
	struct source *source;
	const char *compression; /* of the archive at hand */
	size_t capacity;
	uint64_t kept_bytes, names_bytes;
	void *groups; /* tree of struct link_group */
	struct linked *linked;
	size_t linked_count, linked_capacity;
};

/* The bytes of cpio archives: the image's own, or what comes out of a decompressor. */
struct stream {
	struct reader *reader;
	struct archive *archive; /* NULL: the image's own bytes */
	uint64_t position;       /* of the next byte to hand out; plain: its place in the image */
	uint64_t produced;       /* by the decompressor */
	bool want_crc;           /* of all that it produced, as gzip counts it: */
	uint32_t crc;
	size_t at, have;
	uint8_t piece[PIECE_BYTES];
};

/* --- Bytes (initramfs-stream.c) --- */

/* "cannot read initramfs 'x': archive 2 (zstd): …", exit code EXIT_INPUT; returns -1. */
int initramfs_refuse(struct error *err, const struct reader *r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Bytes read, fewer than asked for only at the end; -1 with errno set. */
ssize_t initramfs_source_read(const struct source *s, uint64_t offset, uint8_t *to, size_t size);
/* Exactly 'size' bytes (a few) at a place of the image. */
int initramfs_peek(struct reader *r, uint64_t offset, uint8_t *to, size_t size, struct error *err);

/* Exactly 'size' bytes, to nowhere if 'to' is NULL; 'what' names them if the end comes first. */
int initramfs_stream_take(struct stream *s, uint8_t *to, uint64_t size, const char *what,
                          struct error *err);
/* Zeros up to the next multiple of 4. */
int initramfs_stream_align(struct stream *s, const char *what, struct error *err);
/* Steps over zeros. 1: another byte follows, in *ret; 0: the end; -1: error. */
int initramfs_stream_skip_zeros(struct stream *s, uint8_t *ret, struct error *err);

/* --- cpio (initramfs-cpio.c) --- */

/* One cpio archive, up to and with its end record. */
int initramfs_read_archive(struct stream *s, struct error *err);
/* Everything that a decompressor gives: whole archives, zeros between them. */
int initramfs_read_archives(struct stream *s, struct error *err);

/* --- Compressions (initramfs-format.c) --- */

/* What begins at *at, which is not a zero; *at moves behind it. */
int initramfs_read_segment(struct reader *r, uint64_t *at, struct error *err);

#endif
