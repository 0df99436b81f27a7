/* SPDX-License-Identifier: Apache-2.0 */
#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <string.h>

#include "module-info.h"

#define READ_BYTES       (1UL << 20)
#define VALUE_MAX_LENGTH 512
#define FIRMWARE_MAX     64
#define SECTIONS_MAX     65280U /* SHN_LORESERVE: more are counted elsewhere, in no module */

/* The module's bytes; 'owned' if they had to be expanded. */
struct bytes {
	const unsigned char *data;
	size_t size;
	unsigned char *owned;
};

static void free_bytes(struct bytes *b)
{
	free(b->owned);
}

static void free_archive(struct archive **a)
{
	archive_read_free(*a);
}

static int refuse(struct error *err, const char *why)
{
	error_code(err, EXIT_INPUT);
	return error_set(err, "it is no kernel module: %s", why);
}

static int expand_all(struct bytes *ret, struct archive *a, struct error *err)
{
	size_t room = 0;

	for (;;) {
		la_ssize_t got;

		if (ret->size == room) {
			room += room / 2 + READ_BYTES;
			ret->owned = mem_grow(ret->owned, room, 1);
			ret->data = ret->owned;
		}
		got = archive_read_data(a, ret->owned + ret->size, room - ret->size);
		if (got < 0)
			return refuse(err, "its compression is damaged");
		if (got == 0)
			return 0;
		ret->size += (size_t)got;
		if (ret->size > MODULE_FILE_MAX_BYTES)
			return refuse(err, "it is larger than any module when expanded");
	}
}

/* .xz, .zst, .gz or none, whatever the name says. */
static int expand(struct bytes *ret, const void *data, size_t size, struct error *err)
{
	CLEANUP(free_archive) struct archive *a = NULL;
	struct archive_entry *entry;

	if (size >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0) {
		ret->data = data;
		ret->size = size;
		return 0;
	}
	a = archive_read_new();
	archive_read_support_filter_xz(a);
	archive_read_support_filter_zstd(a);
	archive_read_support_filter_gzip(a);
	archive_read_support_format_raw(a);
	if (archive_read_open_memory(a, data, size) != ARCHIVE_OK ||
	    archive_read_next_header(a, &entry) != ARCHIVE_OK)
		return refuse(err, "it is empty or damaged");
	return expand_all(ret, a, err);
}

static bool within(const struct bytes *b, uint64_t offset, uint64_t size)
{
	return offset <= b->size && size <= b->size - offset;
}

/* Section number 'index' as a header; one with content lies inside the file. */
static bool section(const struct bytes *b, const Elf64_Ehdr *head, unsigned index, Elf64_Shdr *ret)
{
	uint64_t at = (uint64_t)index * sizeof(*ret);

	if (index >= head->e_shnum || head->e_shentsize != sizeof(*ret) ||
	    head->e_shoff > b->size || !within(b, head->e_shoff + at, sizeof(*ret)))
		return false;
	memcpy(ret, b->data + head->e_shoff + at, sizeof(*ret));
	return ret->sh_type == SHT_NOBITS || within(b, ret->sh_offset, ret->sh_size);
}

/* Whether the name of a section, an offset in the table of names, is this one. */
static bool is_named(const struct bytes *b, const Elf64_Shdr *names, const Elf64_Shdr *s,
                     const char *name)
{
	size_t length = strlen(name) + 1;

	return names->sh_type != SHT_NOBITS && s->sh_name <= names->sh_size &&
	       length <= names->sh_size - s->sh_name &&
	       memcmp(b->data + names->sh_offset + s->sh_name, name, length) == 0;
}

/* The module's machine is one that a node can have, and its sections can be found. */
static int read_head(Elf64_Ehdr *ret, const struct bytes *b, struct error *err)
{
	if (b->size < sizeof(*ret) || memcmp(b->data, ELFMAG, SELFMAG) != 0)
		return refuse(err, "it is no ELF file");
	memcpy(ret, b->data, sizeof(*ret));
	if (ret->e_ident[EI_CLASS] != ELFCLASS64 || ret->e_ident[EI_DATA] != ELFDATA2LSB ||
	    (ret->e_machine != EM_X86_64 && ret->e_machine != EM_AARCH64))
		return refuse(err, "it is for another machine than x86-64 or AArch64");
	if (ret->e_type != ET_REL || ret->e_shnum >= SECTIONS_MAX)
		return refuse(err, "it is an ELF file of another kind");
	return 0;
}

/* One "key=value"; the first of a key counts, but of firmware. */
static void take_field(struct module_info *info, const char *field, size_t length)
{
	const struct {
		const char *key;
		char **to; /* NULL: firmware */
	} fields[] = {{"name=", &info->name},
	              {"version=", &info->version},
	              {"vermagic=", &info->vermagic},
	              {"license=", &info->license},
	              {"firmware=", NULL}};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		size_t start = strlen(fields[i].key);
		CLEANUP_FREE char *value = NULL;

		if (length <= start || memcmp(field, fields[i].key, start) != 0)
			continue;
		value = mem_copy(field + start, length - start);
		if (!fields[i].to && info->firmware.count < FIRMWARE_MAX)
			strv_take(&info->firmware, str_printable(value, VALUE_MAX_LENGTH));
		else if (fields[i].to && !*fields[i].to)
			*fields[i].to = str_printable(value, VALUE_MAX_LENGTH);
	}
}

/* Each ended by a NUL, or by the section's end. */
static void read_fields(struct module_info *info, const unsigned char *text, size_t size)
{
	for (size_t at = 0; at < size;) {
		const char *field = (const char *)text + at;
		size_t length = strnlen(field, size - at);

		take_field(info, field, length);
		at += length + 1;
	}
}

static int read_modinfo(struct module_info *info, const struct bytes *b, struct error *err)
{
	Elf64_Ehdr head;
	Elf64_Shdr names, s;

	if (read_head(&head, b, err) < 0)
		return -1;
	if (!section(b, &head, head.e_shstrndx, &names))
		return refuse(err, "its sections cannot be found");
	for (unsigned i = 0; i < head.e_shnum; i++)
		if (section(b, &head, i, &s) && s.sh_type != SHT_NOBITS &&
		    is_named(b, &names, &s, ".modinfo")) {
			read_fields(info, b->data + s.sh_offset, s.sh_size);
			return 0;
		}
	return refuse(err, "it has no section .modinfo");
}

int module_info_read(struct module_info *ret, const void *data, size_t size, struct error *err)
{
	CLEANUP(free_bytes) struct bytes b = {0};
	CLEANUP_MODULE_INFO struct module_info info = {0};

	if (expand(&b, data, size, err) < 0 || read_modinfo(&info, &b, err) < 0)
		return -1;
	info.has_signature = module_signature_read(b.data, b.size, &info.signer);
	*ret = info;
	info = (struct module_info){0};
	return 0;
}

void module_info_free(struct module_info *info)
{
	free(info->name);
	free(info->version);
	free(info->vermagic);
	free(info->license);
	free(info->signer);
	strv_free(&info->firmware);
	*info = (struct module_info){0};
}
