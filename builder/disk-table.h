/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The partition table as it stands in the disk's sectors. What libblkid forgives and we must
 * not, a table cut off by the end of the image, is checked here.
 */
#ifndef GPUIMG_DISK_TABLE_H
#define GPUIMG_DISK_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "disk.h"

#define SECTOR           512u
#define GPT_HEADER_BYTES 92u

struct raw_table {
	struct disk *disk;
	uint8_t mbr[SECTOR];
	unsigned sector_bytes; /* 512, or 4096 where the GPT says so */
	bool protective;       /* the MBR announces a GPT */
	bool has_primary;      /* GPT header at LBA 1 */
	uint8_t gpt[GPT_HEADER_BYTES];
};

/* Reads MBR and GPT; the GPT's headers and partitions must lie on the disk (EXIT_INPUT). */
int disk_table_read(struct raw_table *t, struct disk *disk, struct error *err);
/* Whether a partition of libblkid's lies on the disk; it counts in 512 bytes in any case. */
int disk_table_check_bounds(const struct disk *disk, int number, uint64_t start, uint64_t count,
                            struct error *err);
/* Names the image before the message; EXIT_INPUT. */
int disk_refuse(const struct disk *disk, struct error *err);

/* --- An MBR, or a link in the chain of logical partitions --- */

bool mbr_valid(const uint8_t *sector);
const uint8_t *mbr_entry(const uint8_t *sector, unsigned i);
bool mbr_extended(uint8_t type);

/* --- Bytes --- */

static inline uint16_t le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t le32(const uint8_t *p)
{
	return (uint32_t)le16(p) | (uint32_t)le16(p + 2) << 16;
}

static inline uint64_t le64(const uint8_t *p)
{
	return (uint64_t)le32(p) | (uint64_t)le32(p + 4) << 32;
}

static inline bool all_zero(const uint8_t *data, size_t size)
{
	return size == 0 || (data[0] == 0 && memcmp(data, data + 1, size - 1) == 0);
}

#endif
