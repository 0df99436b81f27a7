/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The version that a kernel module says it is. libkmod could tell, but this file comes from an
 * image that nobody vouches for, and the little that is needed is read here within bounds.
 */
#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <string.h>

#include "inspect-internal.h"

#define MODULE_MAX_BYTES (256UL * 1024 * 1024) /* nvidia.ko has about 100 MiB */
#define READ_BYTES       (1UL << 20)

struct buffer {
	unsigned char *data;
	size_t size;
};

static void free_buffer(struct buffer *b)
{
	free(b->data);
}

static void free_archive(struct archive **a)
{
	archive_read_free(*a);
}

/* .xz, .zst, .gz or none, whatever the name says; false: damaged, or larger than any module. */
static bool expand(struct buffer *ret, const void *data, size_t size)
{
	CLEANUP(free_archive) struct archive *a = archive_read_new();
	struct archive_entry *entry;
	size_t room = 0;

	archive_read_support_filter_xz(a);
	archive_read_support_filter_zstd(a);
	archive_read_support_filter_gzip(a);
	archive_read_support_format_raw(a);
	if (archive_read_open_memory(a, data, size) != ARCHIVE_OK ||
	    archive_read_next_header(a, &entry) != ARCHIVE_OK)
		return false;
	for (;;) {
		la_ssize_t got;

		if (ret->size == room) {
			room += room / 2 + READ_BYTES;
			ret->data = mem_grow(ret->data, room, 1);
		}
		got = archive_read_data(a, ret->data + ret->size, room - ret->size);
		if (got <= 0)
			return got == 0;
		ret->size += (size_t)got;
		if (ret->size > MODULE_MAX_BYTES)
			return false;
	}
}

static bool within(const struct buffer *b, uint64_t offset, uint64_t size)
{
	return offset <= b->size && size <= b->size - offset;
}

/* Section number 'index'; all modules that NVIDIA makes are 64-bit little-endian. */
static bool section(const struct buffer *b, const Elf64_Ehdr *head, unsigned index, Elf64_Shdr *ret)
{
	uint64_t at = (uint64_t)index * sizeof(*ret);

	if (index >= head->e_shnum || head->e_shentsize != sizeof(*ret) ||
	    head->e_shoff > b->size || !within(b, head->e_shoff + at, sizeof(*ret)))
		return false;
	memcpy(ret, b->data + head->e_shoff + at, sizeof(*ret));
	return ret->sh_type == SHT_NOBITS || within(b, ret->sh_offset, ret->sh_size);
}

/* Whether the name of a section, an offset in the table of names, is this one. */
static bool is_named(const struct buffer *b, const Elf64_Shdr *names, const Elf64_Shdr *s,
                     const char *name)
{
	size_t length = strlen(name) + 1;

	return names->sh_type != SHT_NOBITS && s->sh_name <= names->sh_size &&
	       length <= names->sh_size - s->sh_name &&
	       memcmp(b->data + names->sh_offset + s->sh_name, name, length) == 0;
}

static char *find_version(const unsigned char *text, size_t size)
{
	static const char key[] = "version=";

	for (size_t at = 0; at < size;) {
		const char *field = (const char *)text + at;
		size_t length = strnlen(field, size - at);

		if (length > strlen(key) && memcmp(field, key, strlen(key)) == 0)
			return mem_copy(field + strlen(key), length - strlen(key));
		at += length + 1;
	}
	return NULL;
}

char *inspect_module_version(const void *data, size_t size)
{
	CLEANUP(free_buffer) struct buffer b = {0};
	Elf64_Ehdr head;
	Elf64_Shdr names, s;

	if (!expand(&b, data, size) || b.size < sizeof(head))
		return NULL;
	memcpy(&head, b.data, sizeof(head));
	if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
	    head.e_ident[EI_DATA] != ELFDATA2LSB || !section(&b, &head, head.e_shstrndx, &names))
		return NULL;
	for (unsigned i = 0; i < head.e_shnum; i++)
		if (section(&b, &head, i, &s) && s.sh_type != SHT_NOBITS &&
		    is_named(&b, &names, &s, ".modinfo"))
			return find_version(b.data + s.sh_offset, s.sh_size);
	return NULL;
}
