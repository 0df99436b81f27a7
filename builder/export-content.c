/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "export-content.h"
#include "str.h"

#define RAW_CLUSTER_BITS 16 /* over a raw base: QEMU's own choice */

static int open_qcow2(struct source *s, const char *path, bool overlay, struct error *err)
{
	const struct qcow2 *q;

	if (qcow2_map_open(&s->map, path, overlay, err) < 0)
		return -1;
	q = qcow2_map_header(s->map);
	s->path = str_copy(path);
	s->fd = q->fd;
	s->file_bytes = q->file_bytes;
	s->virtual_bytes = q->virtual_bytes;
	s->cluster_bits = q->cluster_bits;
	s->compression = q->compression_type ? COMPRESSION_ZSTD : COMPRESSION_ZLIB;
	return 0;
}

static int open_raw(struct source *s, const char *path, struct error *err)
{
	struct stat st;

	s->path = str_copy(path);
	s->fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	if (s->fd < 0 || fstat(s->fd, &st) < 0) {
		error_code(err, EXIT_INPUT);
		return error_errno(err, errno, "cannot open image '%s'", path);
	}
	if (!S_ISREG(st.st_mode)) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot use image '%s': it is not a regular file", path);
	}
	s->file_bytes = (uint64_t)st.st_size;
	s->virtual_bytes = s->file_bytes;
	return 0;
}

int content_open(struct content **ret, const char *overlay, const char *base,
                 const char *base_format, struct error *err)
{
	CLEANUP_CONTENT struct content *c = mem_alloc(sizeof(*c));
	uint64_t size;
	bool raw = str_equal(base_format, "raw");
	int rc;

	c->overlay.fd = c->base.fd = -1;
	if (open_qcow2(&c->overlay, overlay, true, err) < 0)
		return -1;
	rc = raw ? open_raw(&c->base, base, err) : open_qcow2(&c->base, base, false, err);
	if (rc < 0)
		return -1;
	c->virtual_bytes = c->overlay.virtual_bytes;
	c->cluster_bits = raw ? RAW_CLUSTER_BITS : c->base.cluster_bits;
	size = UINT64_C(1) << c->cluster_bits;
	c->cluster_count = c->virtual_bytes / size + (c->virtual_bytes % size != 0);
	*ret = STEAL(c);
	return 0;
}

static void close_source(struct source *s)
{
	if (s->map)
		qcow2_map_close(s->map);
	else if (s->fd >= 0)
		close(s->fd);
	free(s->path);
}

void content_close(struct content *c)
{
	if (!c)
		return;
	close_source(&c->overlay);
	close_source(&c->base);
	free(c);
}

static void add_piece(struct pieces *p, const struct piece *piece)
{
	if (p->count == p->room) {
		p->room = p->room ? p->room * 2 : 64;
		p->items = mem_grow(p->items, p->room, sizeof(*p->items));
	}
	p->items[p->count++] = *piece;
}

/* Zeros behind zeros, data behind data of the same file: one piece. */
static bool joins(const struct piece *last, const struct piece *next)
{
	if (last->source != next->source || last->cluster.kind != next->cluster.kind ||
	    last->to + last->length != next->to)
		return false;
	if (next->cluster.kind == QCOW2_ZERO)
		return true;
	return next->cluster.kind == QCOW2_PLAIN && next->from == 0 &&
	       last->cluster.offset + last->from + last->length == next->cluster.offset;
}

/*
 * The overlay's part of a cluster: its clusters may be larger or smaller than those of the new
 * image. *ret_gap: somewhere the base shows through.
 */
static int plan_overlay(struct content *c, uint64_t start, uint64_t length, struct pieces *pieces,
                        bool *ret_gap, struct error *err)
{
	const struct source *s = &c->overlay;
	uint64_t size = UINT64_C(1) << s->cluster_bits;
	size_t first = pieces->count;

	*ret_gap = false;
	for (uint64_t at = start, n; at < start + length; at += n) {
		struct piece piece = {.source = s};

		piece.from = (uint32_t)(at % size);
		n = size - piece.from;
		if (n > start + length - at)
			n = start + length - at;
		piece.to = (uint32_t)(at - start);
		piece.length = (uint32_t)n;
		if (qcow2_map_lookup(s->map, at / size, &piece.cluster, err) < 0)
			return -1;
		if (piece.cluster.kind == QCOW2_NOTHING)
			*ret_gap = true;
		else if (pieces->count > first && joins(&pieces->items[pieces->count - 1], &piece))
			pieces->items[pieces->count - 1].length += piece.length;
		else
			add_piece(pieces, &piece);
	}
	return 0;
}

/* Whether a raw file has data in the range: holes of a sparse file are not read. */
static int raw_has_data(struct source *s, uint64_t start, uint64_t end, bool *ret,
                        struct error *err)
{
	off_t data, hole;

	if (start >= s->hole) {
		data = lseek(s->fd, (off_t)start, SEEK_DATA);
		if (data < 0 && errno == ENXIO) /* no data any more */
			data = hole = INT64_MAX;
		else
			hole = data < 0 ? -1 : lseek(s->fd, data, SEEK_HOLE);
		if (data < 0 || hole < 0)
			return error_errno(err, errno, "cannot read image '%s'", s->path);
		s->data = (uint64_t)data;
		s->hole = (uint64_t)hole;
	}
	*ret = s->data < end;
	return 0;
}

static int plan_base(struct content *c, uint64_t index, uint64_t start, uint64_t length,
                     struct piece *ret, struct error *err)
{
	struct source *s = &c->base;
	bool data = false;

	*ret = (struct piece){.source = s};
	if (start >= s->virtual_bytes)
		return 0;
	if (length > s->virtual_bytes - start)
		length = s->virtual_bytes - start;
	ret->length = (uint32_t)length;
	if (s->map)
		return qcow2_map_lookup(s->map, index, &ret->cluster, err);
	if (raw_has_data(s, start, start + length, &data, err) < 0)
		return -1;
	if (data) {
		ret->cluster.kind = QCOW2_PLAIN;
		ret->cluster.offset = start;
		ret->cluster.bytes = ret->length;
	}
	return 0;
}

static bool has_data(const struct piece *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (pieces[i].cluster.kind == QCOW2_PLAIN ||
		    pieces[i].cluster.kind == QCOW2_COMPRESSED)
			return true;
	return false;
}

/* Nothing is at 'index': the first cluster behind it where something may be. */
static uint64_t next_index(const struct content *c, uint64_t index, uint64_t start, uint64_t length)
{
	const struct source *o = &c->overlay, *b = &c->base;
	uint64_t last = (start + length - 1) >> o->cluster_bits;
	uint64_t end = qcow2_map_nothing_until(o->map, last) << o->cluster_bits;
	uint64_t base_end = c->virtual_bytes;

	if (start < b->virtual_bytes)
		base_end = b->map ? qcow2_map_nothing_until(b->map, index) << c->cluster_bits
		                  : b->data;
	end = (end < base_end ? end : base_end) >> c->cluster_bits;
	return end > index ? end : index + 1;
}

int content_plan(struct content *c, uint64_t index, struct pieces *pieces,
                 enum content_kind *ret_kind, uint64_t *ret_next, struct error *err)
{
	uint64_t start = index << c->cluster_bits, length = UINT64_C(1) << c->cluster_bits;
	struct piece base = {.source = &c->base};
	size_t first = pieces->count;
	bool gap;

	if (length > c->virtual_bytes - start)
		length = c->virtual_bytes - start;
	*ret_next = index + 1;
	add_piece(pieces, &base); /* its place is the lowest */
	if (plan_overlay(c, start, length, pieces, &gap, err) < 0)
		return -1;
	if (gap && plan_base(c, index, start, length, &pieces->items[first], err) < 0)
		return -1;
	if (!has_data(pieces->items + first, pieces->count - first)) {
		if (gap && pieces->count == first + 1)
			*ret_next = next_index(c, index, start, length);
		pieces->count = first;
		*ret_kind = CONTENT_NOTHING;
		return 0;
	}
	/* A base that ends inside the cluster hides what stands behind its end. */
	*ret_kind = pieces->count == first + 1 &&
	                            pieces->items[first].cluster.kind == QCOW2_COMPRESSED &&
	                            pieces->items[first].length == length
	                    ? CONTENT_STORED
	                    : CONTENT_PIECES;
	return 0;
}

size_t content_scratch_bytes(const struct content *c)
{
	unsigned bits = c->cluster_bits > c->overlay.cluster_bits ? c->cluster_bits
	                                                          : c->overlay.cluster_bits;

	return (size_t)3 << bits; /* stored data, of two clusters at most, and one expanded */
}

static int read_plain(const struct piece *p, unsigned char *to, struct error *err)
{
	uint64_t offset = p->cluster.offset + p->from, n = p->length;
	uint64_t rest = offset < p->source->file_bytes ? p->source->file_bytes - offset : 0;

	if (n > rest) { /* a last cluster need not be whole */
		memset(to + rest, 0, n - rest);
		n = rest;
	}
	return read_exactly(p->source->fd, to, n, offset, err);
}

static int read_compressed(const struct piece *p, struct codec *codec, unsigned char *scratch,
                           unsigned char *to, struct error *err)
{
	size_t size = (size_t)1 << p->source->cluster_bits;
	unsigned char *expanded = scratch + 2 * size;

	if (read_exactly(p->source->fd, scratch, p->cluster.bytes, p->cluster.offset, err) < 0)
		return -1;
	if (codec_expand(codec, p->source->compression, scratch, p->cluster.bytes, expanded, size,
	                 err) < 0)
		return error_prefix(err, "the compressed cluster at byte %" PRIu64,
		                    p->cluster.offset);
	memcpy(to, expanded + p->from, p->length);
	return 0;
}

int content_read(const struct piece *pieces, size_t count, struct codec *codec,
                 unsigned char *scratch, unsigned char *to, size_t size, struct error *err)
{
	memset(to, 0, size);
	for (size_t i = 0; i < count; i++) {
		const struct piece *p = &pieces[i];
		int rc = 0;

		if (p->cluster.kind == QCOW2_ZERO)
			memset(to + p->to, 0, p->length);
		else if (p->cluster.kind == QCOW2_PLAIN)
			rc = read_plain(p, to + p->to, err);
		else if (p->cluster.kind == QCOW2_COMPRESSED)
			rc = read_compressed(p, codec, scratch, to + p->to, err);
		if (rc < 0) {
			error_code(err, EXIT_INPUT);
			return error_prefix(err, "cannot read image '%s'", p->source->path);
		}
	}
	return 0;
}
