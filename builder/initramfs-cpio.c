/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cpio archives of the newc format, read as the kernel does (init/initramfs.c). libarchive's
 * cpio reader is of no use here: it stops at the first archive, takes a missing end record for
 * the end, and reads formats that the kernel does not; a newc header is 14 numbers.
 */
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "initramfs-internal.h"
#include "str.h"

#define MAX_KEPT_BYTES  (UINT64_C(512) << 20)
#define MAX_MEMBERS     1000000
#define MAX_NAMES_BYTES (UINT64_C(64) << 20)
#define HEADER_BYTES    110

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

struct header {
	uint32_t ino, mode, link_count, size, dev_major, dev_minor, name_size;
};

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
		initramfs_refuse(err, r, "the old portable cpio format, which the kernel refuses");
		return error_hint(err, "write it with 'cpio -o -H newc'");
	}
	if (memcmp(raw, "070701", 6) != 0 && memcmp(raw, "070702", 6) != 0)
		return initramfs_refuse(err, r, "no cpio header at byte %" PRIu64, at);
	for (size_t i = 0; i < 13; i++)
		if (!parse_hex(raw + 6 + 8 * i, &fields[i]))
			return initramfs_refuse(err, r, "damaged cpio header at byte %" PRIu64, at);
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
		return initramfs_refuse(err, r,
		                        "a member's name of %" PRIu32 " bytes at byte %" PRIu64,
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
		return initramfs_refuse(err, r,
		                        "more than %" PRIu64 " bytes of members that are needed",
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
		if (initramfs_stream_take(s, data + done, step, m->path, err) < 0)
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
		return initramfs_refuse(err, s->reader,
		                        "a link of %" PRIu64 " bytes at byte %" PRIu64,
		                        m->size_bytes, s->position);
	if (initramfs_stream_take(s, target, m->size_bytes, m->path, err) < 0)
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
			return initramfs_refuse(
				err, r, "content where no file is, at byte %" PRIu64, s->position);
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
	return initramfs_stream_take(s, NULL, m->size_bytes, m->path, err);
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
		return initramfs_refuse(
			err, r, "more than %d members, or names of more than %" PRIu64 " bytes",
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

	if (initramfs_stream_take(s, raw, sizeof(raw), "a member's header or before the end record",
	                          err) < 0 ||
	    parse_header(r, raw, at, &h, err) < 0 ||
	    initramfs_stream_take(s, (uint8_t *)name, h.name_size, "a member's name", err) < 0)
		return -1;
	if (name[h.name_size - 1])
		return initramfs_refuse(err, r, "a member's name without its end at byte %" PRIu64,
		                        at);
	if (strcmp(name, "TRAILER!!!") == 0 && h.size)
		return initramfs_refuse(err, r, "an end record with content at byte %" PRIu64, at);
	if (strcmp(name, "TRAILER!!!") == 0)
		return 0; /* its padding is zeros like those that may follow */
	if (initramfs_stream_align(s, name, err) < 0 || add_member(r, &h, name, err) < 0 ||
	    read_body(s, &h, r->out->count - 1, err) < 0 ||
	    initramfs_stream_align(s, name, err) < 0)
		return -1;
	return 1;
}

int initramfs_read_archive(struct stream *s, struct error *err)
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

int initramfs_read_archives(struct stream *s, struct error *err)
{
	size_t before = s->reader->out->archive_count;
	uint8_t next = 0;
	int more;

	while ((more = initramfs_stream_skip_zeros(s, &next, err)) > 0) {
		if (next != '0' || s->position & 3)
			return initramfs_refuse(
				err, s->reader,
				"garbage at byte %" PRIu64 " of its expanded content", s->position);
		if (initramfs_read_archive(s, err) < 0)
			return -1;
	}
	if (more < 0)
		return -1;
	if (s->reader->out->archive_count == before)
		return initramfs_refuse(err, s->reader, "it holds no cpio archive");
	return 0;
}
