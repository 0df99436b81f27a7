/* SPDX-License-Identifier: Apache-2.0 */
/* PE files as ukify would make them, small, for tests of their readers. */
#ifndef GPUIMG_TESTS_PE_MAKER_H
#define GPUIMG_TESTS_PE_MAKER_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

#define PE_AT         0x80
#define COFF_AT       (PE_AT + 4)
#define OPTIONAL_AT   (COFF_AT + 20)
#define OPTIONAL_SIZE 240 /* PE32+ with its 16 directories */
#define TABLE_AT      (OPTIONAL_AT + OPTIONAL_SIZE)
#define DATA_AT       0x2000
#define ALIGNMENT     0x200
#define FILE_BYTES    0x20000

struct part {
	const char *name, *text;
	uint32_t in_memory; /* 0: as much as there is text */
};

struct image {
	uint8_t bytes[FILE_BYTES];
	size_t size;
};

static inline void put16(struct image *pe, size_t at, uint16_t value)
{
	value = htole16(value);
	memcpy(pe->bytes + at, &value, sizeof(value));
}

static inline void put32(struct image *pe, size_t at, uint32_t value)
{
	value = htole32(value);
	memcpy(pe->bytes + at, &value, sizeof(value));
}

static inline size_t section_at(size_t index)
{
	return TABLE_AT + index * 40;
}

static inline void put_section(struct image *pe, size_t index, const struct part *part)
{
	size_t at = section_at(index), length = strlen(part->text), name = strlen(part->name);

	memcpy(pe->bytes + at, part->name, name < 8 ? name : 8);
	put32(pe, at + 8, part->in_memory ? part->in_memory : (uint32_t)length);
	put32(pe, at + 12, (uint32_t)(0x10000 + index * 0x1000));
	put32(pe, at + 16, length ? ALIGNMENT : 0);
	put32(pe, at + 20, length ? (uint32_t)pe->size : 0);
	memcpy(pe->bytes + pe->size, part->text, length);
	pe->size += length ? ALIGNMENT : 0;
}

static inline void pe_make(struct image *pe, const struct part *parts, size_t count)
{
	memset(pe, 0, sizeof(*pe));
	pe->size = DATA_AT;
	memcpy(pe->bytes, "MZ", 2);
	put32(pe, 0x3c, PE_AT);
	memcpy(pe->bytes + PE_AT, "PE\0\0", 4);
	put16(pe, COFF_AT, 0x8664);
	put16(pe, COFF_AT + 2, (uint16_t)count);
	put16(pe, COFF_AT + 16, OPTIONAL_SIZE);
	put16(pe, OPTIONAL_AT, 0x20b);
	put32(pe, OPTIONAL_AT + 108, 16);
	for (size_t i = 0; i < count; i++)
		put_section(pe, i, &parts[i]);
}

#endif
