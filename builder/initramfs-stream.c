/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes that the parser sees: a few at a place of the image, or one after the other, be
 * they the image's own or what a decompressor makes of them. What it expands to is bounded here.
 */
#include <archive.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "initramfs-internal.h"
#include "str.h"

#define MAX_EXPANDED_BYTES (UINT64_C(8) << 30)

int initramfs_refuse(struct error *err, const struct reader *r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	CLEANUP_FREE char *why = str_vformat(format, args);
	va_end(args);
	error_code(err, EXIT_INPUT);
	return error_set(err, "cannot read initramfs '%s': archive %zu (%s): %s", r->name,
	                 r->out->archive_count + 1, r->compression, why);
}

ssize_t initramfs_source_read(const struct source *s, uint64_t offset, uint8_t *to, size_t size)
{
	size_t done = 0;

	if (offset >= s->size)
		return 0;
	if (size > s->size - offset)
		size = (size_t)(s->size - offset);
	if (s->fd < 0) {
		memcpy(to, s->memory + offset, size);
		return (ssize_t)size;
	}
	while (done < size) {
		ssize_t n = pread(s->fd, to + done, size - done, (off_t)(offset + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

int initramfs_peek(struct reader *r, uint64_t offset, uint8_t *to, size_t size, struct error *err)
{
	struct source *s = r->source;

	if (offset < s->window_at || offset + size > s->window_at + s->window_size) {
		ssize_t n = initramfs_source_read(s, offset, s->window, sizeof(s->window));

		if (n < 0)
			return error_errno(err, errno, "cannot read initramfs '%s'", r->name);
		s->window_at = offset;
		s->window_size = (size_t)n;
	}
	if (offset + size > s->window_at + s->window_size)
		return initramfs_refuse(err, r, "truncated: it ends at byte %" PRIu64, s->size);
	memcpy(to, s->window + (offset - s->window_at), size);
	return 0;
}

static uint32_t crc_add(uint32_t crc, const uint8_t *data, size_t size)
{
	static const uint32_t table[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
		0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
		0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
	};

	crc = ~crc;
	for (size_t i = 0; i < size; i++) {
		crc ^= data[i];
		crc = crc >> 4 ^ table[crc & 15];
		crc = crc >> 4 ^ table[crc & 15];
	}
	return ~crc;
}

static ssize_t stream_produce(struct stream *s, struct error *err)
{
	struct reader *r = s->reader;
	ssize_t n;

	if (!s->archive) {
		n = initramfs_source_read(r->source, s->position, s->piece, sizeof(s->piece));
		if (n < 0)
			return error_errno(err, errno, "cannot read initramfs '%s'", r->name);
		return n;
	}
	n = archive_read_data(s->archive, s->piece, sizeof(s->piece));
	if (n < 0)
		return initramfs_refuse(err, r, "damaged or truncated: %s",
		                        archive_error_string(s->archive));
	s->produced += (uint64_t)n;
	if (s->want_crc)
		s->crc = crc_add(s->crc, s->piece, (size_t)n);
	return n;
}

/* 1: there is a byte to take, 0: the end, -1: error. */
static int stream_fill(struct stream *s, struct error *err)
{
	ssize_t n;

	if (s->at < s->have)
		return 1;
	n = stream_produce(s, err);
	if (n < 0)
		return -1;
	s->at = 0;
	s->have = (size_t)n;
	return n > 0;
}

/* At most 'size' bytes, at least one: to 'to', or nowhere if that is NULL. 0: the end. */
static ssize_t stream_some(struct stream *s, uint8_t *to, uint64_t size, struct error *err)
{
	struct reader *r = s->reader;
	int more = stream_fill(s, err);
	size_t n = s->have - s->at;

	if (more <= 0)
		return more;
	if (n > size)
		n = (size_t)size;
	if (to)
		memcpy(to, s->piece + s->at, n);
	s->at += n;
	s->position += n;
	r->out->expanded_bytes += n;
	if (r->out->expanded_bytes > MAX_EXPANDED_BYTES)
		return initramfs_refuse(err, r, "it expands to more than %" PRIu64 " bytes",
		                        (uint64_t)MAX_EXPANDED_BYTES);
	return (ssize_t)n;
}

/* Exactly 'size' bytes; 'what' names them if the end comes first. */
int initramfs_stream_take(struct stream *s, uint8_t *to, uint64_t size, const char *what,
                          struct error *err)
{
	for (uint64_t done = 0; done < size;) {
		ssize_t n = stream_some(s, to ? to + done : NULL, size - done, err);

		if (n < 0)
			return -1;
		if (n == 0) {
			CLEANUP_FREE char *shown = str_printable(what, 200);

			return initramfs_refuse(err, s->reader, "truncated in %s, at byte %" PRIu64,
			                        shown, s->position);
		}
		done += (uint64_t)n;
	}
	return 0;
}

int initramfs_stream_align(struct stream *s, const char *what, struct error *err)
{
	return initramfs_stream_take(s, NULL, -s->position & 3, what, err);
}

int initramfs_stream_skip_zeros(struct stream *s, uint8_t *ret, struct error *err)
{
	for (;;) {
		int more = stream_fill(s, err);
		size_t zeros = 0;

		if (more <= 0)
			return more;
		while (s->at + zeros < s->have && !s->piece[s->at + zeros])
			zeros++;
		if (zeros == 0) {
			*ret = s->piece[s->at];
			return 1;
		}
		if (stream_some(s, NULL, zeros, err) < 0)
			return -1;
	}
}
