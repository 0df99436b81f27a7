/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads as the kernel does (init/initramfs.c): at each place there are zeros, a plain newc
 * archive on a 4-byte boundary, or a compressed stream that holds whole archives. libarchive
 * is the decompressor only. Its cpio reader stops at the first archive, takes a missing end
 * record for the end, and reads formats that the kernel does not; a newc header is 14 numbers.
 *
 * Where a compressed stream ends is found before it is read for the formats whose blocks tell
 * their length (xz, zstd, lz4): libarchive's filters for these run on into what follows. For
 * the others (gzip, bzip2, lzma) the filter stops there by itself and its position is asked.
 */
#include <archive.h>
#include <errno.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "initramfs.h"
#include "str.h"

#define MAX_FILE_BYTES     (UINT64_C(1) << 30)
#define MAX_EXPANDED_BYTES (UINT64_C(8) << 30)
#define MAX_KEPT_BYTES     (UINT64_C(512) << 20)
#define MAX_MEMBERS        1000000
#define MAX_NAME_BYTES     4096 /* PATH_MAX; the kernel steps over longer ones */
#define MAX_NAMES_BYTES    (UINT64_C(64) << 20)
#define MAX_TODO_BYTES     8192 /* of a path with its links put in */
#define MAX_LINKS          40
#define MAX_STEPS          UINT64_C(50000000) /* path components looked up for one image */
#define PIECE_BYTES        65536
#define COUNT(array)       (sizeof(array) / sizeof((array)[0]))
#define HEADER_BYTES       110
#define MAX_LZ4_CHUNK      ((8U << 20) + (8U << 20) / 255 + 16) /* LZ4_compressBound(8 MiB) */

DEFINE_CLEANUP(archive_reader, struct archive *, archive_read_free)
#define CLEANUP_ARCHIVE CLEANUP(cleanup_archive_reader)

/* The image: a file or memory, with a window for reads of a few bytes. */
struct source {
	int fd; /* -1: memory */
	const uint8_t *memory;
	uint64_t size;
	uint64_t window_at;
	size_t window_size;
	uint8_t window[PIECE_BYTES];
};

/* Hard links of one file inside one archive: GNU cpio writes the content with the last. */
struct link_group {
	uint32_t ino, dev_major, dev_minor;
	bool wanted;   /* 'keep' said yes for one of the names */
	bool has_data; /* 'data_member' is set */
	size_t data_member;
};

struct linked {
	size_t member;
	bool wanted;
	struct link_group *group;
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

struct header {
	uint32_t ino, mode, link_count, size, dev_major, dev_minor, name_size;
};

/* Places in the tree 'by_path': what stands under a path after unpacking. */
struct place {
	char *path; /* without links, no leading slash */
	size_t member;
};

__attribute__((format(printf, 3, 4))) static int refuse(struct error *err, const struct reader *r,
                                                        const char *format, ...)
{
	va_list args;

	va_start(args, format);
	CLEANUP_FREE char *why = str_vformat(format, args);
	va_end(args);
	error_code(err, EXIT_INPUT);
	return error_set(err, "cannot read initramfs '%s': archive %zu (%s): %s", r->name,
	                 r->out->archive_count + 1, r->compression, why);
}

/* Bytes read, fewer than asked for only at the end; -1 with errno set. */
static ssize_t source_read(const struct source *s, uint64_t offset, uint8_t *to, size_t size)
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

/* Exactly 'size' bytes (a few) at a place of the image. */
static int peek(struct reader *r, uint64_t offset, uint8_t *to, size_t size, struct error *err)
{
	struct source *s = r->source;

	if (offset < s->window_at || offset + size > s->window_at + s->window_size) {
		ssize_t n = source_read(s, offset, s->window, sizeof(s->window));

		if (n < 0)
			return error_errno(err, errno, "cannot read initramfs '%s'", r->name);
		s->window_at = offset;
		s->window_size = (size_t)n;
	}
	if (offset + size > s->window_at + s->window_size)
		return refuse(err, r, "truncated: it ends at byte %" PRIu64, s->size);
	memcpy(to, s->window + (offset - s->window_at), size);
	return 0;
}

static uint32_t le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
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
		n = source_read(r->source, s->position, s->piece, sizeof(s->piece));
		if (n < 0)
			return error_errno(err, errno, "cannot read initramfs '%s'", r->name);
		return n;
	}
	n = archive_read_data(s->archive, s->piece, sizeof(s->piece));
	if (n < 0)
		return refuse(err, r, "damaged or truncated: %s", archive_error_string(s->archive));
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
		return refuse(err, r, "it expands to more than %" PRIu64 " bytes",
		              (uint64_t)MAX_EXPANDED_BYTES);
	return (ssize_t)n;
}

/* Exactly 'size' bytes; 'what' names them if the end comes first. */
static int stream_take(struct stream *s, uint8_t *to, uint64_t size, const char *what,
                       struct error *err)
{
	for (uint64_t done = 0; done < size;) {
		ssize_t n = stream_some(s, to ? to + done : NULL, size - done, err);

		if (n < 0)
			return -1;
		if (n == 0) {
			CLEANUP_FREE char *shown = str_printable(what, 200);

			return refuse(err, s->reader, "truncated in %s, at byte %" PRIu64, shown,
			              s->position);
		}
		done += (uint64_t)n;
	}
	return 0;
}

/* Zeros up to the next multiple of 4. */
static int stream_align(struct stream *s, const char *what, struct error *err)
{
	return stream_take(s, NULL, -s->position & 3, what, err);
}

/* Steps over zeros. 1: another byte follows, in *ret; 0: the end; -1: error. */
static int stream_skip_zeros(struct stream *s, uint8_t *ret, struct error *err)
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

static bool parse_hex(const uint8_t *p, uint32_t *ret)
{
	uint32_t value = 0;

	for (size_t i = 0; i < 8; i++) {
		uint8_t c = p[i] | 0x20; /* lower case; digits have this bit anyway */

		if (p[i] >= '0' && p[i] <= '9')
			value = value << 4 | (uint32_t)(p[i] - '0');
		else if (c >= 'a' && c <= 'f')
			value = value << 4 | (uint32_t)(c - 'a' + 10);
		else
			return false;
	}
	*ret = value;
	return true;
}

static int parse_header(struct reader *r, const uint8_t *raw, uint64_t at, struct header *ret,
                        struct error *err)
{
	uint32_t fields[13];

	if (memcmp(raw, "070707", 6) == 0) {
		refuse(err, r, "the old portable cpio format, which the kernel refuses");
		return error_hint(err, "write it with 'cpio -o -H newc'");
	}
	if (memcmp(raw, "070701", 6) != 0 && memcmp(raw, "070702", 6) != 0)
		return refuse(err, r, "no cpio header at byte %" PRIu64, at);
	for (size_t i = 0; i < 13; i++)
		if (!parse_hex(raw + 6 + 8 * i, &fields[i]))
			return refuse(err, r, "damaged cpio header at byte %" PRIu64, at);
	*ret = (struct header){
		.ino = fields[0],
		.mode = fields[1],
		.link_count = fields[4],
		.size = fields[6],
		.dev_major = fields[7],
		.dev_minor = fields[8],
		.name_size = fields[11],
	};
	if (ret->name_size < 2 || ret->name_size > MAX_NAME_BYTES)
		return refuse(err, r, "a member's name of %" PRIu32 " bytes at byte %" PRIu64,
		              ret->name_size, at);
	return 0;
}

static int compare_groups(const void *a, const void *b)
{
	const struct link_group *x = a, *y = b;

	if (x->ino != y->ino)
		return x->ino < y->ino ? -1 : 1;
	if (x->dev_major != y->dev_major)
		return x->dev_major < y->dev_major ? -1 : 1;
	if (x->dev_minor != y->dev_minor)
		return x->dev_minor < y->dev_minor ? -1 : 1;
	return 0;
}

/* The group that a member with several links belongs to, made if new; remembers the member. */
static struct link_group *join_group(struct reader *r, const struct header *h, size_t member,
                                     bool wanted)
{
	struct link_group key = {h->ino, h->dev_major, h->dev_minor, false, false, 0};
	struct link_group **found = tsearch(&key, &r->groups, compare_groups);

	if (!found)
		abort(); /* out of memory */
	if (*found == &key)
		*found = mem_copy(&key, sizeof(key));
	if (r->linked_count == r->linked_capacity) {
		r->linked_capacity = r->linked_capacity ? 2 * r->linked_capacity : 64;
		r->linked = mem_grow(r->linked, r->linked_capacity, sizeof(*r->linked));
	}
	r->linked[r->linked_count++] = (struct linked){member, wanted, *found};
	(*found)->wanted |= wanted;
	return *found;
}

static int count_kept(struct reader *r, uint64_t size, struct error *err)
{
	r->kept_bytes += size;
	if (r->kept_bytes > MAX_KEPT_BYTES)
		return refuse(err, r, "more than %" PRIu64 " bytes of members that are needed",
		              (uint64_t)MAX_KEPT_BYTES);
	return 0;
}

/* All names of a file get what the one with the data brought. */
static int share_links(struct reader *r, struct error *err)
{
	for (size_t i = 0; i < r->linked_count; i++) {
		const struct linked *l = &r->linked[i];
		const struct initramfs_member *from = &r->out->members[l->group->data_member];
		struct initramfs_member *to = &r->out->members[l->member];

		if (!l->group->has_data || from == to)
			continue;
		free(to->data); /* an earlier content that the later one replaced */
		to->data = NULL;
		to->size_bytes = from->size_bytes;
		if (!l->wanted || !from->data)
			continue;
		if (count_kept(r, from->size_bytes, err) < 0)
			return -1;
		to->data = mem_copy(from->data, from->size_bytes);
	}
	for (size_t i = 0; i < r->linked_count; i++) {
		struct initramfs_member *m = &r->out->members[r->linked[i].member];

		if (r->linked[i].wanted)
			continue;
		free(m->data);
		m->data = NULL;
	}
	r->linked_count = 0;
	tdestroy(STEAL(r->groups), free);
	return 0;
}

/* The buffer grows with what really comes: a header of 110 bytes may claim 4 GiB. */
static int keep_body(struct stream *s, struct initramfs_member *m, struct error *err)
{
	uint64_t capacity = m->size_bytes < (1U << 20) ? m->size_bytes : (1U << 20);
	CLEANUP_FREE uint8_t *data = mem_alloc(capacity + 1);

	if (count_kept(s->reader, m->size_bytes, err) < 0)
		return -1;
	for (uint64_t done = 0; done < m->size_bytes;) {
		uint64_t step;

		if (done == capacity) {
			capacity = 2 * capacity < m->size_bytes ? 2 * capacity : m->size_bytes;
			data = mem_grow(data, capacity + 1, 1);
		}
		step = capacity - done;
		if (stream_take(s, data + done, step, m->path, err) < 0)
			return -1;
		done += step;
	}
	data[m->size_bytes] = '\0';
	m->data = STEAL(data);
	return 0;
}

static int read_link(struct stream *s, struct initramfs_member *m, struct error *err)
{
	uint8_t target[MAX_NAME_BYTES + 1] = {0};

	if (m->size_bytes == 0 || m->size_bytes > MAX_NAME_BYTES)
		return refuse(err, s->reader, "a link of %" PRIu64 " bytes at byte %" PRIu64,
		              m->size_bytes, s->position);
	if (stream_take(s, target, m->size_bytes, m->path, err) < 0)
		return -1;
	m->link = str_copy((const char *)target);
	return 0;
}

static int read_body(struct stream *s, const struct header *h, size_t index, struct error *err)
{
	struct reader *r = s->reader;
	struct initramfs_member *m = &r->out->members[index];
	bool wanted;

	if (S_ISLNK(m->mode))
		return read_link(s, m, err);
	if (!S_ISREG(m->mode)) {
		if (m->size_bytes)
			return refuse(err, r, "content where no file is, at byte %" PRIu64,
			              s->position);
		return 0;
	}
	wanted = r->keep && r->keep(r->opaque, m->path, m->size_bytes);
	if (h->link_count >= 2) {
		struct link_group *group = join_group(r, h, index, wanted);

		wanted = group->wanted;
		if (m->size_bytes) {
			group->has_data = true;
			group->data_member = index;
		}
	}
	if (wanted)
		return keep_body(s, m, err);
	return stream_take(s, NULL, m->size_bytes, m->path, err);
}

static char *normal_path(const char *raw)
{
	while (raw[0] == '/' || (raw[0] == '.' && raw[1] == '/'))
		raw++;
	return str_copy(*raw ? raw : ".");
}

static int add_member(struct reader *r, const struct header *h, const char *name, struct error *err)
{
	struct initramfs *out = r->out;

	r->names_bytes += h->name_size;
	if (S_ISLNK(h->mode))
		r->names_bytes += h->size;
	if (out->count >= MAX_MEMBERS || r->names_bytes > MAX_NAMES_BYTES)
		return refuse(err, r,
		              "more than %d members, or names of more than %" PRIu64 " bytes",
		              MAX_MEMBERS, (uint64_t)MAX_NAMES_BYTES);
	if (out->count == r->capacity) {
		r->capacity = r->capacity ? 2 * r->capacity : 256;
		out->members = mem_grow(out->members, r->capacity, sizeof(*out->members));
	}
	out->members[out->count++] = (struct initramfs_member){
		.path = normal_path(name),
		.mode = h->mode,
		.size_bytes = h->size,
		.archive = out->archive_count,
	};
	return 0;
}

/* 1: a member was read, 0: the end record, -1: error. */
static int read_member(struct stream *s, struct error *err)
{
	struct reader *r = s->reader;
	uint64_t at = s->position;
	uint8_t raw[HEADER_BYTES] = {0};
	char name[MAX_NAME_BYTES] = {0};
	struct header h = {0};

	if (stream_take(s, raw, sizeof(raw), "a member's header or before the end record", err) <
	            0 ||
	    parse_header(r, raw, at, &h, err) < 0 ||
	    stream_take(s, (uint8_t *)name, h.name_size, "a member's name", err) < 0)
		return -1;
	if (name[h.name_size - 1])
		return refuse(err, r, "a member's name without its end at byte %" PRIu64, at);
	if (strcmp(name, "TRAILER!!!") == 0 && h.size)
		return refuse(err, r, "an end record with content at byte %" PRIu64, at);
	if (strcmp(name, "TRAILER!!!") == 0)
		return 0; /* its padding is zeros like those that may follow */
	if (stream_align(s, name, err) < 0 || add_member(r, &h, name, err) < 0 ||
	    read_body(s, &h, r->out->count - 1, err) < 0 || stream_align(s, name, err) < 0)
		return -1;
	return 1;
}

/* One cpio archive, up to and with its end record. */
static int read_archive(struct stream *s, struct error *err)
{
	struct reader *r = s->reader;
	int more;

	do
		more = read_member(s, err);
	while (more > 0);
	if (more < 0 || share_links(r, err) < 0)
		return -1;
	strv_add(&r->out->compressions, r->compression);
	r->out->archive_count++;
	return 0;
}

/* Everything that a decompressor gives: whole archives, zeros between them. */
static int read_archives(struct stream *s, struct error *err)
{
	size_t before = s->reader->out->archive_count;
	uint8_t next = 0;
	int more;

	while ((more = stream_skip_zeros(s, &next, err)) > 0) {
		if (next != '0' || s->position & 3)
			return refuse(err, s->reader,
			              "garbage at byte %" PRIu64 " of its expanded content",
			              s->position);
		if (read_archive(s, err) < 0)
			return -1;
	}
	if (more < 0)
		return -1;
	if (s->reader->out->archive_count == before)
		return refuse(err, s->reader, "it holds no cpio archive");
	return 0;
}

/* A zstd frame: header, blocks of known length, checksum (RFC 8878). */
static int find_zstd_end(struct reader *r, uint64_t at, uint64_t *ret, struct error *err)
{
	static const uint8_t dictionary[] = {0, 1, 2, 4}, content[] = {0, 2, 4, 8};
	uint8_t b[5] = {0};
	uint32_t block;
	bool single;

	if (peek(r, at, b, 5, err) < 0)
		return -1;
	single = b[4] >> 5 & 1;
	at += 5 + !single + dictionary[b[4] & 3] + content[b[4] >> 6];
	if (single && b[4] >> 6 == 0)
		at++;
	for (;;) {
		uint8_t head[3] = {0};

		if (peek(r, at, head, 3, err) < 0)
			return -1;
		block = (uint32_t)head[0] | (uint32_t)head[1] << 8 | (uint32_t)head[2] << 16;
		if ((block >> 1 & 3) == 3)
			return refuse(err, r, "damaged: a zstd block of a reserved type");
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

		if (peek(r, at, b, 4, err) < 0)
			return -1;
		chunk = le32(b);
		if (chunk == 0)
			break;
		if (chunk == 0x184c2102)
			chunk = 0;
		else if (chunk > MAX_LZ4_CHUNK)
			return refuse(err, r, "damaged: an lz4 chunk of %" PRIu32 " bytes", chunk);
		at += 4 + (uint64_t)chunk;
	}
	if (at == start + 4)
		return refuse(err, r, "truncated: an lz4 header without content");
	*ret = at;
	return 0;
}

/* The chunks of LZMA2 data tell their length; a zero byte ends them. */
static int skip_lzma2(struct reader *r, uint64_t *at, struct error *err)
{
	for (;;) {
		uint8_t b[5] = {0};

		if (peek(r, *at, b, 1, err) < 0)
			return -1;
		if (b[0] == 0) {
			(*at)++;
			return 0;
		}
		if (b[0] > 2 && b[0] < 0x80)
			return refuse(err, r, "damaged: no LZMA2 chunk at byte %" PRIu64, *at);
		if (peek(r, *at, b, b[0] < 0x80 ? 3 : 5, err) < 0)
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

		if (peek(r, (*at)++, &b, 1, err) < 0)
			return -1;
		value |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80) {
			*ret = value;
			return 0;
		}
	}
	return refuse(err, r, "damaged: a number in the xz index");
}

/* An xz stream: header, blocks of LZMA2 chunks, index, footer (xz-file-format.txt). */
static int find_xz_end(struct reader *r, uint64_t start, uint64_t *ret, struct error *err)
{
	static const uint8_t check_bytes[] = {0,  4,  4,  4,  8,  8,  8,  16,
	                                      16, 16, 32, 32, 32, 64, 64, 64};
	uint64_t at = start + 12, blocks = 0, records = 0, ignored;
	uint8_t b[12] = {0};

	if (peek(r, start, b, 12, err) < 0)
		return -1;
	for (uint8_t check = check_bytes[b[7] & 15];; blocks++) {
		if (peek(r, at, b, 1, err) < 0)
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
		return refuse(err, r, "damaged: the xz index does not fit the blocks");
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
	ssize_t n = source_read(f->source, f->at, f->piece, (size_t)size);

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

		return refuse(err, r, "damaged or truncated: %s", why ? why : "it is empty");
	}
	/* A header that the filter does not know is handed through; and one level is enough. */
	if (archive_filter_count(a) != 2 || archive_filter_code(a, 0) != format->filter)
		return refuse(err, r, "damaged or truncated %s header", format->name);
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

	if (peek(r, end - 8, trailer, 8, err) < 0)
		return -1;
	if (le32(trailer + 4) == (uint32_t)s->produced) {
		if (le32(trailer) != s->crc)
			return refuse(err, r, "damaged: its gzip checksum does not fit");
		return 0;
	}
	if (archives < 2 || le32(trailer + 4) > s->produced)
		return refuse(err, r, "damaged: its gzip length does not fit");
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
		return refuse(err, r, "truncated: it ends at byte %" PRIu64, r->source->size);
	*feed = (struct feed){.source = r->source, .at = *at, .end = end};
	if (open_decompressor(r, format, feed, &a, err) < 0)
		return -1;
	s->reader = r;
	s->archive = a;
	s->want_crc = format->filter == ARCHIVE_FILTER_GZIP;
	if (read_archives(s, err) < 0)
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
	if (read_archive(s, err) < 0)
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
		refuse(err, r, "%s", refusals[i].why);
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
static int read_segment(struct reader *r, uint64_t *at, struct error *err)
{
	uint64_t left = r->source->size - *at;
	uint8_t magic[4] = {0};

	if (peek(r, *at, magic, left < 4 ? (size_t)left : 4, err) < 0)
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

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return strcmp(x->path, y->path);
}

static void free_place(void *p)
{
	struct place *place = p;

	free(place->path);
	free(place);
}

static const struct initramfs_member *member_at(const struct initramfs *i, char *path)
{
	struct place key = {path, 0};
	struct place *const *found = tfind(&key, &i->by_path, compare_places);

	return found ? &i->members[(*found)->member] : NULL;
}

/* Takes the next component off the front of *rest; NULL at the end. */
static char *next_component(char **rest)
{
	char *start = *rest + strspn(*rest, "/");
	size_t length = strcspn(start, "/");

	if (length == 0)
		return NULL;
	*rest = start + length;
	if (**rest)
		*(*rest)++ = '\0';
	return start;
}

/* Appends a component to 'path' (of MAX_NAME_BYTES); ".." takes one away. False: too long. */
static bool step_path(char *path, const char *component)
{
	size_t length = strlen(path);

	if (strcmp(component, ".") == 0)
		return true;
	if (strcmp(component, "..") == 0) {
		char *slash = strrchr(path, '/');

		*(slash ? slash : path) = '\0';
		return true;
	}
	if (length + strlen(component) + 2 > MAX_NAME_BYTES)
		return false;
	if (length)
		path[length++] = '/';
	memcpy(path + length, component, strlen(component) + 1);
	return true;
}

/*
 * The path without links, as the kernel would find it in what is unpacked so far; "" is the
 * top. NULL: links in a circle, too long, or more steps than 'steps' has left.
 */
static char *resolve(const struct initramfs *i, const char *path, bool follow_last, uint64_t *steps)
{
	CLEANUP_FREE char *done = mem_alloc(MAX_NAME_BYTES);
	CLEANUP_FREE char *todo = str_copy(path);
	char *rest = todo, *component;
	size_t links = 0;

	while ((component = next_component(&rest))) {
		const struct initramfs_member *m;
		char *again;

		if (*steps == 0 || !step_path(done, component))
			return NULL;
		(*steps)--;
		if (!follow_last && !rest[strspn(rest, "/")])
			break;
		m = member_at(i, done);
		if (!m || !m->link)
			continue;
		if (++links > MAX_LINKS || strlen(m->link) + strlen(rest) > MAX_TODO_BYTES)
			return NULL;
		again = str_format("%s/%s", m->link, rest);
		step_path(done, "..");
		if (m->link[0] == '/')
			*done = '\0';
		free(todo);
		todo = rest = again;
	}
	return STEAL(done);
}

/* The kernel's own rootfs has /dev and /root before anything is unpacked. */
static bool is_directory(const struct initramfs *i, char *path)
{
	const struct initramfs_member *m = member_at(i, path);

	if (!*path)
		return true;
	if (!m)
		return strcmp(path, "dev") == 0 || strcmp(path, "root") == 0;
	return S_ISDIR(m->mode);
}

/* Puts one member where unpacking would put it; one whose directory is missing goes nowhere. */
static void place_member(struct initramfs *i, size_t index, uint64_t *steps)
{
	CLEANUP_FREE char *path = resolve(i, i->members[index].path, false, steps);
	CLEANUP_FREE char *parent = path ? str_copy(path) : NULL;
	struct place key = {path, index};
	struct place **found;

	if (!path || !*path)
		return;
	step_path(parent, "..");
	if (!is_directory(i, parent))
		return;
	found = tsearch(&key, &i->by_path, compare_places);
	if (!found)
		abort(); /* out of memory */
	if (*found == &key) {
		*found = mem_copy(&key, sizeof(key));
		path = NULL; /* given to the new place */
	}
	(*found)->member = index;
}

static int place_members(struct reader *r, struct error *err)
{
	uint64_t steps = MAX_STEPS;

	for (size_t i = 0; i < r->out->count; i++)
		place_member(r->out, i, &steps);
	if (steps == 0) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot read initramfs '%s': its links are too entangled",
		                 r->name);
	}
	return 0;
}

static int read_segments(struct reader *r, struct error *err)
{
	uint64_t at = 0;

	r->compression = "none";
	while (at < r->source->size) {
		uint8_t b = 0;

		if (peek(r, at, &b, 1, err) < 0)
			return -1;
		if (b == 0)
			at++;
		else if (read_segment(r, &at, err) < 0)
			return -1;
	}
	if (r->out->archive_count == 0) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "'%s' is not an initramfs: %s", r->name,
		                 r->source->size ? "nothing but zeros" : "it is empty");
	}
	return place_members(r, err);
}

static int read_source(struct initramfs *ret, struct source *source, const char *name,
                       initramfs_keep *keep, void *opaque, struct error *err)
{
	CLEANUP_INITRAMFS struct initramfs i = {0};
	struct reader r = {
		.out = &i, .name = name, .keep = keep, .opaque = opaque, .source = source};
	int rc = read_segments(&r, err);

	tdestroy(r.groups, free);
	free(r.linked);
	if (rc < 0)
		return -1;
	*ret = i;
	i = (struct initramfs){0};
	return 0;
}

int initramfs_read_file(struct initramfs *ret, int fd, const char *name, initramfs_keep *keep,
                        void *opaque, struct error *err)
{
	CLEANUP_FREE struct source *source = mem_alloc(sizeof(*source));
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read initramfs '%s'", name);
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > MAX_FILE_BYTES) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot read initramfs '%s': %s", name,
		                 S_ISREG(st.st_mode) ? "larger than 1 GiB" : "not a regular file");
	}
	source->fd = fd;
	source->size = (uint64_t)st.st_size;
	return read_source(ret, source, name, keep, opaque, err);
}

int initramfs_read_memory(struct initramfs *ret, const void *data, size_t size, const char *name,
                          initramfs_keep *keep, void *opaque, struct error *err)
{
	CLEANUP_FREE struct source *source = mem_alloc(sizeof(*source));

	if (size > MAX_FILE_BYTES) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot read initramfs '%s': larger than 1 GiB", name);
	}
	source->fd = -1;
	source->memory = data;
	source->size = size;
	return read_source(ret, source, name, keep, opaque, err);
}

void initramfs_free(struct initramfs *i)
{
	for (size_t n = 0; n < i->count; n++) {
		free(i->members[n].path);
		free(i->members[n].link);
		free(i->members[n].data);
	}
	free(i->members);
	strv_free(&i->compressions);
	tdestroy(i->by_path, free_place);
	*i = (struct initramfs){0};
}

static const struct initramfs_member *find(const struct initramfs *i, const char *path,
                                           bool follow_last)
{
	uint64_t steps = MAX_NAME_BYTES * UINT64_C(41); /* each link, and the path itself */
	CLEANUP_FREE char *real = resolve(i, path, follow_last, &steps);

	return real && *real ? member_at(i, real) : NULL;
}

const struct initramfs_member *initramfs_find(const struct initramfs *i, const char *path)
{
	return find(i, path, false);
}

const struct initramfs_member *initramfs_find_target(const struct initramfs *i, const char *path)
{
	return find(i, path, true);
}

/* Whether the file name is that of the module, in any of the compressions that kmod reads. */
static bool is_module_file(const char *file, const char *name)
{
	static const char *const suffixes[] = {".ko",     ".ko.gz",  ".ko.xz",
	                                       ".ko.zst", ".ko.lz4", ".ko.bz2"};

	for (; *name; file++, name++)
		if (*file != *name &&
		    !((*file == '-' || *file == '_') && (*name == '-' || *name == '_')))
			return false;
	for (size_t i = 0; i < COUNT(suffixes); i++)
		if (strcmp(file, suffixes[i]) == 0)
			return true;
	return false;
}

const struct initramfs_member *initramfs_find_module(const struct initramfs *i, const char *name)
{
	const struct initramfs_member *members = i->members;

	for (size_t n = 0; n < i->count; n++) {
		const struct initramfs_member *m = &members[n], *found;
		const char *slash = strrchr(m->path, '/');

		if (!slash || !strstr(m->path, "lib/modules/") || !is_module_file(slash + 1, name))
			continue;
		found = initramfs_find(i, m->path);
		if (found && (S_ISREG(found->mode) || found->link))
			return found;
	}
	return NULL;
}
