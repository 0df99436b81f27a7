/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "compress.h"
#include "str.h"

/* What QEMU asks of zlib (block/qcow2-threads.c); a larger window it would not read. */
#define WINDOW_BITS  (-12)
#define MEMORY_LEVEL 9

struct codec {
	z_stream deflate, inflate;
	bool deflate_ready, inflate_ready;
	ZSTD_CCtx *zstd_in;
	ZSTD_DCtx *zstd_out;
};

static const char *const names[] = {
	[COMPRESSION_ZLIB] = "zlib",
	[COMPRESSION_ZSTD] = "zstd",
	[COMPRESSION_NONE] = "none",
};

int compression_parse(const char *name, enum compression *ret)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (str_equal(name, names[i])) {
			*ret = (enum compression)i;
			return 0;
		}
	}
	return -1;
}

const char *compression_name(enum compression type)
{
	return names[type];
}

struct codec *codec_new(void)
{
	return mem_alloc(sizeof(struct codec));
}

void codec_free(struct codec *c)
{
	if (!c)
		return;
	if (c->deflate_ready)
		deflateEnd(&c->deflate);
	if (c->inflate_ready)
		inflateEnd(&c->inflate);
	ZSTD_freeCCtx(c->zstd_in);
	ZSTD_freeDCtx(c->zstd_out);
	free(c);
}

static int zlib_compress(struct codec *c, const void *data, size_t size, void *to, size_t room,
                         size_t *ret_size, struct error *err)
{
	z_stream *z = &c->deflate;
	int rc = c->deflate_ready ? deflateReset(z)
	                          : deflateInit2(z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, WINDOW_BITS,
	                                         MEMORY_LEVEL, Z_DEFAULT_STRATEGY);

	if (rc != Z_OK)
		return error_set(err, "cannot start zlib: error %d", rc);
	c->deflate_ready = true;
	z->next_in = (z_const Bytef *)data;
	z->avail_in = (uInt)size;
	z->next_out = to;
	z->avail_out = (uInt)room;
	*ret_size = deflate(z, Z_FINISH) == Z_STREAM_END ? room - z->avail_out : 0;
	return 0;
}

static int zstd_compress(struct codec *c, const void *data, size_t size, void *to, size_t room,
                         size_t *ret_size, struct error *err)
{
	size_t n;

	if (!c->zstd_in)
		c->zstd_in = ZSTD_createCCtx();
	if (!c->zstd_in)
		return error_set(err, "cannot start zstd: out of memory");
	n = ZSTD_compress2(c->zstd_in, to, room, data, size);
	if (ZSTD_isError(n) && ZSTD_getErrorCode(n) != ZSTD_error_dstSize_tooSmall)
		return error_set(err, "cannot compress with zstd: %s", ZSTD_getErrorName(n));
	*ret_size = ZSTD_isError(n) ? 0 : n;
	return 0;
}

int codec_compress(struct codec *c, enum compression type, const void *data, size_t size, void *to,
                   size_t room, size_t *ret_size, struct error *err)
{
	*ret_size = 0;
	if (type == COMPRESSION_ZLIB)
		return zlib_compress(c, data, size, to, room, ret_size, err);
	if (type == COMPRESSION_ZSTD)
		return zstd_compress(c, data, size, to, room, ret_size, err);
	return 0;
}

static int zlib_expand(struct codec *c, const void *data, size_t size, void *to, size_t want,
                       struct error *err)
{
	z_stream *z = &c->inflate;
	int rc = c->inflate_ready ? inflateReset(z) : inflateInit2(z, WINDOW_BITS);

	if (rc != Z_OK)
		return error_set(err, "cannot start zlib: error %d", rc);
	c->inflate_ready = true;
	z->next_in = (z_const Bytef *)data;
	z->avail_in = (uInt)size;
	z->next_out = to;
	z->avail_out = (uInt)want;
	rc = inflate(z, Z_FINISH);
	/* Z_BUF_ERROR: all room is used, and the mark of the end stands behind it. */
	if ((rc == Z_STREAM_END || rc == Z_BUF_ERROR) && z->avail_out == 0)
		return 0;
	return error_set(err, "its zlib data is damaged");
}

/*
 * Other writers split a cluster into several frames. Frames are expanded in one go, straight to
 * where they belong: a stream decoder would first allocate whatever window a frame asks for.
 */
static int zstd_expand(struct codec *c, const void *data, size_t size, void *to, size_t want,
                       struct error *err)
{
	const char *in = data;
	char *out = to;

	if (!c->zstd_out)
		c->zstd_out = ZSTD_createDCtx();
	if (!c->zstd_out)
		return error_set(err, "cannot start zstd: out of memory");
	while (want) {
		size_t frame = ZSTD_findFrameCompressedSize(in, size), n;

		if (ZSTD_isError(frame) || frame == 0)
			return error_set(err, "its zstd data is damaged");
		n = ZSTD_decompressDCtx(c->zstd_out, out, want, in, frame);
		if (ZSTD_isError(n))
			return error_set(err, "its zstd data is damaged: %s", ZSTD_getErrorName(n));
		in += frame;
		size -= frame;
		out += n;
		want -= n;
	}
	return 0;
}

int codec_expand(struct codec *c, enum compression type, const void *data, size_t size, void *to,
                 size_t want, struct error *err)
{
	if (type == COMPRESSION_ZLIB)
		return zlib_expand(c, data, size, to, want, err);
	if (type == COMPRESSION_ZSTD)
		return zstd_expand(c, data, size, to, want, err);
	return error_set(err, "it is not compressed");
}
