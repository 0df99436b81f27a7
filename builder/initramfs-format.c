/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What stands at a place of the image: a plain archive, or a stream of one of the compressions
 * that the kernel knows. libarchive is the decompressor only.
 *
 * Where a compressed stream ends is found before it is read for the formats whose blocks tell
 * their length (xz, zstd, lz4): libarchive's filters for these run on into what follows. For
 * the others (gzip, bzip2, lzma) the filter stops there by itself and its position is asked.
 */
#include <archive.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "initramfs-internal.h"
#include "str.h"

#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))
#define MAX_LZ4_CHUNK ((8U << 20) + (8U << 20) / 255 + 16) /* LZ4_compressBound(8 MiB) */

DEFINE_CLEANUP(archive_reader, struct archive *, archive_read_free)
#define CLEANUP_ARCHIVE CLEANUP(cleanup_archive_reader)

static uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* A zstd frame: header, blocks of known length, checksum (RFC 8878). */
static int find_zstd_end(struct reader *r, uint64_t at, uint64_t *ret, struct error *err)
{
	static const uint8_t dictionary[] = {0, 1, 2, 4}, content[] = {0, 2, 4, 8};
	uint8_t b[5] = {0};
	uint32_t block;
	bool single;

	if (initramfs_peek(r, at, b, 5, err) < 0)
		return -1;
	single = b[4] >> 5 & 1;
	at += 5 + !single + dictionary[b[4] & 3] + content[b[4] >> 6];
	if (single && b[4] >> 6 == 0)
		at++;
	for (;;) {
		uint8_t head[3] = {0};

		if (initramfs_peek(r, at, head, 3, err) < 0)
			return -1;
		block = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16;
		if ((block >> 1 & 3) == 3)
			return initramfs_refuse(err, r, "damaged: a zstd block of a reserved type");
		at += 3 + ((block >> 1 & 3) == 1 ? 1 : block >> 3);
		if (block & 1)
			break;
	}
	*ret = at + (b[4] >> 2 & 1 ? 4 : 0);
	return 0;
}

/* The legacy format has no end mark: chunks go on to the end of the image, or to a zero. */
static int find_lz4_end(struct reader *r, uint64_t at, uint64_t *ret, struct error *err)
{
	uint64_t start = at;

	while (at + 4 <= r->source->size) {
		uint8_t b[4] = {0};
		uint32_t chunk;

		if (initramfs_peek(r, at, b, 4, err) < 0)
			return -1;
		chunk = le32(b);
		if (chunk == 0)
			break;
		if (chunk == 0x184c2102)
			chunk = 0;
		else if (chunk > MAX_LZ4_CHUNK)
			return initramfs_refuse(
				err, r, "damaged: an lz4 chunk of %" PRIu32 " bytes", chunk);
		at += 4 + (uint64_t)chunk;
	}
	if (at == start + 4)
		return initramfs_refuse(err, r, "truncated: an lz4 header without content");
	*ret = at;
	return 0;
}

/* The chunks of LZMA2 data tell their length; a zero byte ends them. */
static int skip_lzma2(struct reader *r, uint64_t *at, struct error *err)
{
	for (;;) {
		uint8_t b[5] = {0};

		if (initramfs_peek(r, *at, b, 1, err) < 0)
			return -1;
		if (b[0] == 0) {
			(*at)++;
			return 0;
		}
		if (b[0] > 2 && b[0] < 0x80)
			return initramfs_refuse(err, r, "damaged: no LZMA2 chunk at byte %" PRIu64,
			                        *at);
		if (initramfs_peek(r, *at, b, b[0] < 0x80 ? 3 : 5, err) < 0)
			return -1;
		if (b[0] < 0x80)
			*at += 3 + ((uint64_t)b[1] << 8 | b[2]) + 1;
		else
			*at += (b[0] >= 0xc0 ? 6 : 5) + ((uint64_t)b[3] << 8 | b[4]) + 1;
	}
}

static int take_varint(struct reader *r, uint64_t *at, uint64_t *ret, struct error *err)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 63; shift += 7) {
		uint8_t b = 0;

		if (initramfs_peek(r, (*at)++, &b, 1, err) < 0)
			return -1;
		value |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80) {
			*ret = value;
			return 0;
		}
	}
	return initramfs_refuse(err, r, "damaged: a number in the xz index");
}

/* An xz stream: header, blocks of LZMA2 chunks, index, footer (xz-file-format.txt). */
static int find_xz_end(struct reader *r, uint64_t start, uint64_t *ret, struct error *err)
{
	static const uint8_t check_bytes[] = {0,  4,  4,  4,  8,  8,  8,  16,
	                                      16, 16, 32, 32, 32, 64, 64, 64};
	uint64_t at = start + 12, blocks = 0, records = 0, ignored;
	uint8_t b[12] = {0};

	if (initramfs_peek(r, start, b, 12, err) < 0)
		return -1;
	for (uint8_t check = check_bytes[b[7] & 15];; blocks++) {
		if (initramfs_peek(r, at, b, 1, err) < 0)
			return -1;
		if (b[0] == 0)
			break;
		at += 4 * ((uint64_t)b[0] + 1);
		if (skip_lzma2(r, &at, err) < 0)
			return -1;
		at += (start - at) & 3;
		at += check;
	}
	at++;
	if (take_varint(r, &at, &records, err) < 0)
		return -1;
	if (records != blocks)
		return initramfs_refuse(err, r, "damaged: the xz index does not fit the blocks");
	for (uint64_t i = 0; i < records; i++)
		if (take_varint(r, &at, &ignored, err) < 0 ||
		    take_varint(r, &at, &ignored, err) < 0)
			return -1;
	at += (start - at) & 3;
	*ret = at + 4 + 12;
	return 0;
}

typedef int find_end(struct reader *r, uint64_t start, uint64_t *ret, struct error *err);

struct format {
	const char *name;
	find_end *find_end; /* NULL: ask the filter where it stopped */
	size_t magic_size;
	uint8_t magic[4];
	int filter; /* ARCHIVE_FILTER_… */
};

/* The magics that the kernel looks for (lib/decompress.c). */
static const struct format formats[] = {
	{"gzip", NULL, 2, {0x1f, 0x8b}, ARCHIVE_FILTER_GZIP},
	{"bzip2", NULL, 3, {'B', 'Z', 'h'}, ARCHIVE_FILTER_BZIP2},
	{"lzma", NULL, 2, {0x5d, 0x00}, ARCHIVE_FILTER_LZMA},
	{"xz", find_xz_end, 4, {0xfd, '7', 'z', 'X'}, ARCHIVE_FILTER_XZ},
	{"zstd", find_zstd_end, 4, {0x28, 0xb5, 0x2f, 0xfd}, ARCHIVE_FILTER_ZSTD},
	{"lz4", find_lz4_end, 4, {0x02, 0x21, 0x4c, 0x18}, ARCHIVE_FILTER_LZ4},
};

/* What people mistake for these, and what only the kernel reads. */
struct refusal {
	const char *name;
	uint8_t magic[4];
	size_t magic_size;
	const char *why, *hint;
};

static const struct refusal refusals[] = {
	{"lz4 frame",
         {0x04, 0x22, 0x4d, 0x18},
         4,
         "the kernel reads only lz4's legacy format",
         "compress it with 'lz4 -l'"},
	{"lzo",
         {0x89, 'L', 'Z', 'O'},
         4,
         "gpuimg does not read lzo",
         "set another compression in the image's initramfs configuration"},
	{"binary cpio",
         {0xc7, 0x71},
         2,
         "the old binary cpio format, which the kernel refuses",
         "write it with 'cpio -o -H newc'"},
};

/* What the decompressor reads: a part of the image. */
struct feed {
	const struct source *source;
	uint64_t at, end;
	uint8_t piece[PIECE_BYTES];
};

static la_ssize_t feed_read(struct archive *a, void *opaque, const void **ret)
{
	struct feed *f = opaque;
	uint64_t size = f->end - f->at < sizeof(f->piece) ? f->end - f->at : sizeof(f->piece);
	ssize_t n = initramfs_source_read(f->source, f->at, f->piece, (size_t)size);

	if (n < 0) {
		archive_set_error(a, errno, "%s", strerror(errno));
		return ARCHIVE_FATAL;
	}
	f->at += (uint64_t)n;
	*ret = f->piece;
	return n;
}

static int open_decompressor(struct reader *r, const struct format *format, struct feed *feed,
                             struct archive **ret, struct error *err)
{
	CLEANUP_ARCHIVE struct archive *a = archive_read_new();
	struct archive_entry *entry;

	/* Anything but OK: it would run a program of the host's instead. */
	if (!a || archive_read_support_format_raw(a) != ARCHIVE_OK ||
	    archive_read_support_filter_by_code(a, format->filter) != ARCHIVE_OK) {
		error_code(err, EXIT_HOST);
		return error_set(err, "cannot read initramfs '%s': libarchive has no %s here",
		                 r->name, format->name);
	}
	if (archive_read_open(a, feed, NULL, feed_read, NULL) != ARCHIVE_OK ||
	    archive_read_next_header(a, &entry) != ARCHIVE_OK) {
		const char *why = archive_error_string(a);

		return initramfs_refuse(err, r, "damaged or truncated: %s",
		                        why ? why : "it is empty");
	}
	/* A header that the filter does not know is handed through; and one level is enough. */
	if (archive_filter_count(a) != 2 || archive_filter_code(a, 0) != format->filter)
		return initramfs_refuse(err, r, "damaged or truncated %s header", format->name);
	*ret = STEAL(a);
	return 0;
}

/*
 * libarchive does not look at gzip's checksum. Several members end to end come out as one
 * stream, whose checksum is nowhere: then the last length does not fit, and only that is told.
 */
static int check_gzip_trailer(struct reader *r, const struct stream *s, uint64_t end,
                              size_t archives, struct error *err)
{
	uint8_t trailer[8] = {0};

	if (initramfs_peek(r, end - 8, trailer, 8, err) < 0)
		return -1;
	if (le32(trailer + 4) == (uint32_t)s->produced) {
		if (le32(trailer) != s->crc)
			return initramfs_refuse(err, r, "damaged: its gzip checksum does not fit");
		return 0;
	}
	if (archives < 2 || le32(trailer + 4) > s->produced)
		return initramfs_refuse(err, r, "damaged: its gzip length does not fit");
	return 0;
}

static int read_compressed(struct reader *r, const struct format *format, uint64_t *at,
                           struct error *err)
{
	CLEANUP_FREE struct feed *feed = mem_alloc(sizeof(*feed));
	CLEANUP_FREE struct stream *s = mem_alloc(sizeof(*s));
	CLEANUP_ARCHIVE struct archive *a = NULL;
	uint64_t end = r->source->size;
	size_t before = r->out->archive_count;

	r->compression = format->name;
	if (format->find_end && format->find_end(r, *at, &end, err) < 0)
		return -1;
	if (end > r->source->size)
		return initramfs_refuse(err, r, "truncated: it ends at byte %" PRIu64,
		                        r->source->size);
	*feed = (struct feed){.source = r->source, .at = *at, .end = end};
	if (open_decompressor(r, format, feed, &a, err) < 0)
		return -1;
	s->reader = r;
	s->archive = a;
	s->want_crc = format->filter == ARCHIVE_FILTER_GZIP;
	if (initramfs_read_archives(s, err) < 0)
		return -1;
	if (!format->find_end)
		end = *at + (uint64_t)archive_filter_bytes(a, -1);
	if (s->want_crc && check_gzip_trailer(r, s, end, r->out->archive_count - before, err) < 0)
		return -1;
	*at = end;
	return 0;
}

static int read_plain(struct reader *r, uint64_t *at, struct error *err)
{
	CLEANUP_FREE struct stream *s = mem_alloc(sizeof(*s));

	r->compression = "none";
	s->reader = r;
	s->position = *at;
	if (initramfs_read_archive(s, err) < 0)
		return -1;
	*at = s->position;
	return 0;
}

static int read_unknown(struct reader *r, const uint8_t *magic, uint64_t at, struct error *err)
{
	for (size_t i = 0; i < COUNT(refusals); i++) {
		if (memcmp(magic, refusals[i].magic, refusals[i].magic_size) != 0)
			continue;
		r->compression = refusals[i].name;
		initramfs_refuse(err, r, "%s", refusals[i].why);
		return error_hint(err, "%s", refusals[i].hint);
	}
	error_code(err, EXIT_INPUT);
	if (r->out->archive_count == 0)
		return error_set(err, "'%s' is not an initramfs: unknown content at byte %" PRIu64,
		                 r->name, at);
	return error_set(err,
	                 "cannot read initramfs '%s': garbage after archive %zu, at byte %" PRIu64,
	                 r->name, r->out->archive_count, at);
}

/* What begins at this place, which is not a zero. */
int initramfs_read_segment(struct reader *r, uint64_t *at, struct error *err)
{
	uint64_t left = r->source->size - *at;
	uint8_t magic[4] = {0};

	if (initramfs_peek(r, *at, magic, left < 4 ? (size_t)left : 4, err) < 0)
		return -1;
	if (magic[0] == '0') {
		/* The kernel looks for a header on 4-byte boundaries only. */
		if (*at & 3 || memcmp(magic, "0707", left < 4 ? (size_t)left : 4) != 0)
			return read_unknown(r, magic, *at, err);
		return read_plain(r, at, err);
	}
	for (size_t i = 0; i < COUNT(formats); i++)
		if (memcmp(magic, formats[i].magic, formats[i].magic_size) == 0)
			return read_compressed(r, &formats[i], at, err);
	return read_unknown(r, magic, *at, err);
}
