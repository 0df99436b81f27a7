/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fd.h"
#include "uki.h"

#define MAX_SECTIONS   96 /* what Windows' loader takes, and what the PE specification names */
#define MAX_TEXT_BYTES ((uint64_t)1 << 20)
#define COPY_BYTES     ((size_t)256 << 10)

/* Offsets in the headers, by the PE/COFF specification. */
#define DOS_LFANEW         0x3c
#define COFF_SIZE          20
#define COFF_SECTIONS      2
#define COFF_OPTIONAL_SIZE 16
#define PE32_MAGIC         0x10b
#define PE32_PLUS_MAGIC    0x20b
#define PE32_DIRECTORIES   96
#define PE32_PLUS_DIRS     112
#define CERTIFICATE_TABLE  4
#define SECTION_SIZE       40

struct pe {
	int fd;
	const char *name;
	uint64_t size_bytes;
	uint64_t optional; /* where the optional header is */
	uint16_t optional_size, sections;
};

void uki_free(struct uki *u)
{
	free(u->sections);
	*u = (struct uki){0};
}

static int refuse(struct error *err, const char *name, const char *why)
{
	error_set(err, "cannot read EFI program '%s': %s", name, why);
	return error_code(err, EXIT_INPUT);
}

static uint16_t le16(const uint8_t *at)
{
	uint16_t value;

	memcpy(&value, at, sizeof(value));
	return le16toh(value);
}

static uint32_t le32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

/* All of it, or -1 with errno; 0 in errno: the file ends before. */
static int read_at(int fd, void *data, size_t size, uint64_t offset)
{
	uint8_t *at = data;

	while (size > 0) {
		ssize_t n = pread(fd, at, size, (off_t)offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n < 0 ? errno : 0;
			return -1;
		}
		at += n;
		offset += (uint64_t)n;
		size -= (size_t)n;
	}
	return 0;
}

static int read_part(int fd, void *data, size_t size, uint64_t offset, const char *name,
                     struct error *err)
{
	if (read_at(fd, data, size, offset) == 0)
		return 0;
	if (errno == 0)
		return refuse(err, name, "it ends inside of its headers or sections");
	return error_errno(err, errno, "cannot read EFI program '%s'", name);
}

static int read_headers(struct pe *pe, struct error *err)
{
	uint8_t dos[64], coff[4 + COFF_SIZE];
	uint64_t start;

	if (pe->size_bytes < sizeof(dos))
		return refuse(err, pe->name, "not a PE file");
	if (read_part(pe->fd, dos, sizeof(dos), 0, pe->name, err) < 0)
		return -1;
	start = le32(dos + DOS_LFANEW);
	if (memcmp(dos, "MZ", 2) != 0 || start > pe->size_bytes - sizeof(dos))
		return refuse(err, pe->name, "not a PE file");
	if (read_part(pe->fd, coff, sizeof(coff), start, pe->name, err) < 0)
		return -1;
	if (memcmp(coff, "PE\0\0", 4) != 0)
		return refuse(err, pe->name, "not a PE file");
	pe->sections = le16(coff + 4 + COFF_SECTIONS);
	pe->optional_size = le16(coff + 4 + COFF_OPTIONAL_SIZE);
	pe->optional = start + sizeof(coff);
	if (pe->sections == 0)
		return refuse(err, pe->name, "it has no sections");
	if (pe->sections > MAX_SECTIONS)
		return refuse(err, pe->name, "it has more than 96 sections");
	return 0;
}

/* Where the data directories begin in the optional header; 0: not one we know. */
static size_t directories_at(uint16_t magic)
{
	if (magic == PE32_MAGIC)
		return PE32_DIRECTORIES;
	return magic == PE32_PLUS_MAGIC ? PE32_PLUS_DIRS : 0;
}

/* The one directory whose address is a place in the file, not in memory. */
static int read_signature(bool *ret, const struct pe *pe, struct error *err)
{
	uint8_t header[PE32_PLUS_DIRS + (CERTIFICATE_TABLE + 1) * 8] = {0};
	size_t size = pe->optional_size < sizeof(header) ? pe->optional_size : sizeof(header);
	size_t at, entry;
	uint64_t table, table_size;

	if (read_part(pe->fd, header, size, pe->optional, pe->name, err) < 0)
		return -1;
	at = size >= 2 ? directories_at(le16(header)) : 0;
	if (!at || size < at)
		return refuse(err, pe->name, "its optional header is not one of an EFI program");
	entry = at + (size_t)CERTIFICATE_TABLE * 8;
	*ret = false;
	if (le32(header + at - 4) <= CERTIFICATE_TABLE || size < entry + 8)
		return 0;
	table = le32(header + entry);
	table_size = le32(header + entry + 4);
	if (table_size > 0 && table + table_size > pe->size_bytes)
		return refuse(err, pe->name, "its signature is not inside of the file");
	*ret = table_size > 0;
	return 0;
}

static int take_section(struct uki_section *ret, const uint8_t *header, const struct pe *pe,
                        struct error *err)
{
	uint64_t in_memory = le32(header + 8), in_file = le32(header + 16);
	uint64_t offset = le32(header + 20);

	memcpy(ret->name, header, sizeof(ret->name) - 1);
	if (in_file == 0)
		return 0; /* .bss */
	if (offset + in_file > pe->size_bytes)
		return refuse(err, pe->name, "it has a section that is not inside of the file");
	ret->offset = offset;
	/* an old linker leaves the size in memory out */
	ret->size_bytes = in_memory > 0 && in_memory < in_file ? in_memory : in_file;
	return 0;
}

static int read_sections(struct uki *u, const struct pe *pe, struct error *err)
{
	uint8_t headers[MAX_SECTIONS * SECTION_SIZE];
	size_t size = (size_t)pe->sections * SECTION_SIZE;

	if (read_part(pe->fd, headers, size, pe->optional + pe->optional_size, pe->name, err) < 0)
		return -1;
	u->sections = mem_alloc(pe->sections * sizeof(*u->sections));
	for (u->count = 0; u->count < pe->sections; u->count++) {
		struct uki_section *s = &u->sections[u->count];

		if (take_section(s, headers + u->count * SECTION_SIZE, pe, err) < 0)
			return -1;
		u->profiles += strcmp(s->name, ".profile") == 0;
	}
	return 0;
}

int uki_read(struct uki *ret, int fd, const char *name, struct error *err)
{
	CLEANUP_UKI struct uki u = {0};
	struct pe pe = {.fd = fd, .name = name};
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_errno(err, errno, "cannot read EFI program '%s'", name);
	if (!S_ISREG(st.st_mode))
		return refuse(err, name, "not a regular file");
	pe.size_bytes = (uint64_t)st.st_size;
	if (read_headers(&pe, err) < 0 || read_signature(&u.is_signed, &pe, err) < 0 ||
	    read_sections(&u, &pe, err) < 0)
		return -1;
	*ret = u;
	u = (struct uki){0};
	return 0;
}

static const struct uki_section *find_between(const struct uki *u, size_t from, size_t to,
                                              const char *name)
{
	for (size_t i = from; i < to; i++)
		if (strcmp(u->sections[i].name, name) == 0)
			return &u->sections[i];
	return NULL;
}

const struct uki_section *uki_find(const struct uki *u, const char *name)
{
	return find_between(u, 0, u->count, name);
}

/* The place of the .profile section with that number; 'count' if there are not so many. */
static size_t profile_start(const struct uki *u, unsigned profile)
{
	for (size_t i = 0; i < u->count; i++)
		if (strcmp(u->sections[i].name, ".profile") == 0 && profile-- == 0)
			return i;
	return u->count;
}

const struct uki_section *uki_find_in_profile(const struct uki *u, unsigned profile,
                                              const char *name)
{
	size_t start = profile_start(u, profile);
	const struct uki_section *own = NULL;

	if (start == u->count && profile > 0)
		return NULL;
	if (start < u->count)
		own = find_between(u, start, profile_start(u, profile + 1), name);
	return own ? own : find_between(u, 0, profile_start(u, 0), name);
}

bool uki_is_unified(const struct uki *u)
{
	return uki_find(u, ".linux") != NULL;
}

int uki_text(char **ret, const struct uki_section *s, int fd, const char *name, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	size_t length;

	if (s->size_bytes > MAX_TEXT_BYTES)
		return refuse(err, name, "a section that should hold text is larger than 1 MiB");
	text = mem_alloc(s->size_bytes + 1);
	if (read_part(fd, text, s->size_bytes, s->offset, name, err) < 0)
		return -1;
	length = strlen(text);
	while (length > 0 && strchr("\r\n", text[length - 1]))
		text[--length] = '\0';
	*ret = STEAL(text);
	return 0;
}

int uki_copy(const struct uki_section *s, int fd, int to, const char *name, struct error *err)
{
	CLEANUP_FREE uint8_t *buffer = mem_alloc(COPY_BYTES);
	uint64_t at = s->offset, left = s->size_bytes;

	while (left > 0) {
		size_t part = left < COPY_BYTES ? (size_t)left : COPY_BYTES;

		if (read_part(fd, buffer, part, at, name, err) < 0)
			return -1;
		if (fd_write_all(to, buffer, part) < 0)
			return error_errno(err, errno, "cannot write a copy of a section of '%s'",
			                   name);
		at += part;
		left -= part;
	}
	return 0;
}

/* The begin of a section as text; "" if it is not there or cannot be read. */
static void read_begin(char *ret, size_t size, const struct uki *u, int fd, const char *name)
{
	const struct uki_section *s = uki_find(u, name);
	size_t wanted = size - 1;

	memset(ret, 0, size);
	if (!s)
		return;
	if (wanted > s->size_bytes)
		wanted = (size_t)s->size_bytes;
	if (read_at(fd, ret, wanted, s->offset) < 0)
		*ret = '\0';
}

/* "#### LoaderInfo: systemd-boot 257.7 ####": the sign that systemd looks for itself. */
static const char *identify_by_magic(const struct uki *u, int fd)
{
	static const char *const known[] = {"systemd-boot", "systemd-stub", "systemd-addon"};
	static const char prefix[] = "#### LoaderInfo: ";
	const char *name;
	char magic[64];

	read_begin(magic, sizeof(magic), u, fd, ".sdmagic");
	if (!str_starts(magic, prefix))
		return NULL;
	name = magic + sizeof(prefix) - 1;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (str_starts(name, known[i]) && name[strlen(known[i])] == ' ')
			return known[i];
	return NULL;
}

/* Lines of "component,generation,vendor…": the programs name themselves there for revocation. */
static const char *identify_by_sbat(const struct uki *u, int fd)
{
	CLEANUP_STRV struct strv lines = {0};
	char sbat[4096];

	read_begin(sbat, sizeof(sbat), u, fd, ".sbat");
	lines = strv_split(sbat, "\r\n");
	for (size_t i = 0; i < lines.count; i++) {
		if (str_starts(lines.items[i], "grub,"))
			return "grub";
		if (str_starts(lines.items[i], "shim,"))
			return "shim";
	}
	return NULL;
}

const char *uki_identify(const struct uki *u, int fd)
{
	const char *name;

	if (uki_is_unified(u))
		return "uki";
	if ((name = identify_by_magic(u, fd)) || (name = identify_by_sbat(u, fd)))
		return name;
	if (uki_find(u, "mods")) /* what grub-mkimage puts the modules into */
		return "grub";
	if (uki_find(u, ".setup")) /* of every x86 kernel with an EFI stub */
		return "linux";
	return "unknown";
}
