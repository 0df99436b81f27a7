/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a request: memory, a piece of a file, memory; read at any place, so that it can be
 * sent anew. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "publish/http-internal.h"

uint64_t http_body_size(const struct http_body *b)
{
	return b ? b->head_size + (b->fd >= 0 ? b->fd_size : 0) + b->tail_size : 0;
}

static size_t copy_piece(char *to, size_t room, const void *piece, size_t size, uint64_t at)
{
	size_t left = size - (size_t)at;
	size_t count = left < room ? left : room;

	memcpy(to, (const char *)piece + at, count);
	return count;
}

static ssize_t read_file(const struct http_body *b, char *to, size_t room, uint64_t at)
{
	uint64_t left = b->fd_size - at;
	ssize_t got;

	do
		got = pread(b->fd, to, left < room ? (size_t)left : room,
		            (off_t)(b->fd_offset + at));
	while (got < 0 && errno == EINTR);
	return got;
}

size_t http_body_read(char *to, size_t size, size_t count, void *opaque)
{
	struct transfer *t = opaque;
	const struct http_body *b = t->request->body;
	uint64_t file_size = b && b->fd >= 0 ? b->fd_size : 0, at = t->body_at;
	size_t room = size * count;
	ssize_t got;

	if (!b || at >= t->body_bytes)
		return 0;
	if (at < b->head_size) {
		got = (ssize_t)copy_piece(to, room, b->head, b->head_size, at);
	} else if (at - b->head_size < file_size) {
		got = read_file(b, to, room, at - b->head_size);
	} else {
		got = (ssize_t)copy_piece(to, room, b->tail, b->tail_size,
		                          at - b->head_size - file_size);
	}
	if (got <= 0) { /* the file got shorter, or cannot be read: never send less than was said */
		t->body_failed = true;
		return CURL_READFUNC_ABORT;
	}
	t->body_at += (uint64_t)got;
	if (t->request->on_sent)
		t->request->on_sent(t->request->sent_opaque, t->body_at);
	return (size_t)got;
}

int http_body_seek(void *opaque, curl_off_t offset, int origin)
{
	struct transfer *t = opaque;

	if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > t->body_bytes)
		return CURL_SEEKFUNC_FAIL;
	t->body_at = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}
