/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "disk-table.h"
#include "str.h"

#define MAX_SECTOR      4096u
#define GPT_MAX_ENTRIES 1024u
#define GPT_MAX_ENTRY   4096u

#define MBR_ENTRIES     446u
#define MBR_ENTRY_BYTES 16u
#define MBR_GPT         0xee

int disk_refuse(const struct disk *disk, struct error *err)
{
	error_prefix(err, "image '%s'", disk_path(disk));
	return error_code(err, EXIT_INPUT);
}

static int truncated(const struct disk *disk, struct error *err)
{
	disk_refuse(disk, err);
	return error_hint(err, "the image is truncated: fetch or copy it again, and compare its "
	                       "checksum");
}

bool mbr_valid(const uint8_t *sector)
{
	return sector[SECTOR - 2] == 0x55 && sector[SECTOR - 1] == 0xaa;
}

const uint8_t *mbr_entry(const uint8_t *sector, unsigned i)
{
	return sector + MBR_ENTRIES + (size_t)i * MBR_ENTRY_BYTES;
}

bool mbr_extended(uint8_t type)
{
	return type == 0x05 || type == 0x0f || type == 0x85;
}

static bool gpt_signature(const uint8_t *header)
{
	return memcmp(header, "EFI PART", 8) == 0;
}

/* Whether a GPT header stands in this sector; 'header' gets it. 1, 0, -1. */
static int read_gpt_header(struct raw_table *t, uint64_t lba, unsigned sector_bytes,
                           uint8_t *header, struct error *err)
{
	uint64_t sectors = disk_size_bytes(t->disk) / sector_bytes;

	if (lba >= sectors)
		return 0;
	if (disk_read(t->disk, header, GPT_HEADER_BYTES, lba * sector_bytes, err) < 0)
		return -1;
	return gpt_signature(header);
}

static int find_gpt(struct raw_table *t, struct error *err)
{
	const unsigned sizes[] = {SECTOR, MAX_SECTOR};

	t->sector_bytes = SECTOR;
	for (unsigned i = 0; i < 4 && mbr_valid(t->mbr); i++)
		t->protective = t->protective || mbr_entry(t->mbr, i)[4] == MBR_GPT;
	for (size_t i = 0; i < 2 && t->protective && !t->has_primary; i++) {
		int found = read_gpt_header(t, 1, sizes[i], t->gpt, err);

		if (found < 0)
			return -1;
		if (found)
			t->sector_bytes = sizes[i];
		t->has_primary = found > 0;
	}
	return 0;
}

/* A partition's last sector, as each entry says: libblkid drops those beyond the end silently. */
static int check_gpt_entries(struct raw_table *t, struct error *err)
{
	uint64_t sectors = disk_size_bytes(t->disk) / t->sector_bytes;
	uint64_t lba = le64(t->gpt + 72);
	uint32_t count = le32(t->gpt + 80), entry_size = le32(t->gpt + 84);
	CLEANUP_FREE uint8_t *entries = NULL;

	if (count > GPT_MAX_ENTRIES || entry_size < 128 || entry_size > GPT_MAX_ENTRY) {
		error_set(err, "its GPT has %u entries of %u bytes: damaged", count, entry_size);
		return disk_refuse(t->disk, err);
	}
	if (lba >= sectors || (uint64_t)count * entry_size > (sectors - lba) * t->sector_bytes) {
		error_set(err, "its GPT entries lie beyond the end");
		return truncated(t->disk, err);
	}
	entries = mem_alloc((size_t)count * entry_size + 1);
	if (disk_read(t->disk, entries, (size_t)count * entry_size, lba * t->sector_bytes, err) < 0)
		return -1;
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *entry = entries + (size_t)i * entry_size;

		if (all_zero(entry, 16) || le64(entry + 40) < sectors)
			continue;
		error_set(err, "partition %u ends at sector %llu, beyond the disk's %llu sectors",
		          i + 1, (unsigned long long)le64(entry + 40), (unsigned long long)sectors);
		return truncated(t->disk, err);
	}
	return 0;
}

static int check_gpt(struct raw_table *t, struct error *err)
{
	uint64_t sectors = disk_size_bytes(t->disk) / t->sector_bytes;
	uint8_t backup[GPT_HEADER_BYTES];
	uint64_t lba = t->has_primary ? le64(t->gpt + 32) : sectors - 1;
	int found = read_gpt_header(t, lba, t->sector_bytes, backup, err);

	if (found < 0)
		return -1;
	if (!found && lba >= sectors) {
		error_set(err,
		          "its GPT backup header belongs at sector %llu, beyond the disk's %llu "
		          "sectors",
		          (unsigned long long)lba, (unsigned long long)sectors);
		return truncated(t->disk, err);
	}
	if (!found && t->has_primary) {
		error_set(err, "its GPT backup header is missing at sector %llu",
		          (unsigned long long)lba);
		return truncated(t->disk, err);
	}
	if (!found) {
		error_set(err, "its MBR announces a GPT, but there is none at either end");
		return truncated(t->disk, err);
	}
	return t->has_primary ? check_gpt_entries(t, err) : 0;
}

int disk_table_check_bounds(const struct disk *disk, int number, uint64_t start, uint64_t count,
                            struct error *err)
{
	uint64_t sectors = disk_size_bytes(disk) / SECTOR;

	if (start <= sectors && count <= sectors - start)
		return 0;
	error_set(
		err,
		"partition %d (from sector %llu, %llu sectors) ends beyond the disk's %llu sectors",
		number, (unsigned long long)start, (unsigned long long)count,
		(unsigned long long)sectors);
	return truncated(disk, err);
}

int disk_table_read(struct raw_table *t, struct disk *disk, struct error *err)
{
	*t = (struct raw_table){.disk = disk};
	if (disk_size_bytes(disk) < 2 * (uint64_t)SECTOR) {
		error_set(err, "too small for a partition table");
		return disk_refuse(disk, err);
	}
	if (disk_read(disk, t->mbr, SECTOR, 0, err) < 0 || find_gpt(t, err) < 0)
		return -1;
	return t->protective ? check_gpt(t, err) : 0;
}
