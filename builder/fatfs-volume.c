/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boot sector of a FAT file system, and where it says that everything is. What is refused
 * here is what Linux' own driver refuses, and a file system larger than the place that it has.
 */
#include <inttypes.h>

#include "fatfs-internal.h"
#include "str.h"

/* Offsets in the boot sector, by the names of Microsoft's specification. */
enum {
	BPB_BytsPerSec = 11,
	BPB_SecPerClus = 13,
	BPB_RsvdSecCnt = 14,
	BPB_NumFATs = 16,
	BPB_RootEntCnt = 17,
	BPB_TotSec16 = 19,
	BPB_Media = 21,
	BPB_FATSz16 = 22,
	BPB_TotSec32 = 32,
	BPB_FATSz32 = 36,
	BPB_ExtFlags = 40,
	BPB_FSVer = 42,
	BPB_RootClus = 44,
	BPB_FSInfo = 48,
	BOOT_SECTOR_BYTES = 512,
};

#define EXT_FLAGS_ONE_TABLE 0x80 /* only the table of the number in the low bits is kept */

/* The most clusters that can be told apart by entries of that many bits. */
#define FAT12_CLUSTERS_MAX 4084u
#define FAT16_CLUSTERS_MAX 65524u
#define FAT32_CLUSTERS_MAX 0x0ffffff5u

/* The boot sector in numbers. */
struct layout {
	uint32_t sector_bytes, cluster_sectors, reserved, tables, root_slots, table_sectors;
	uint64_t total_sectors;
	bool is_fat32;
};

int fat_refuse(const struct fat_volume *v, const char *reason, const char *what, const char *path,
               struct error *err)
{
	CLEANUP_FREE char *shown = str_printable(path, 1000);

	error_set(err, "%s: cannot %s '%s': %s", v->name, what, shown, reason);
	return error_code(err, EXIT_INPUT);
}

/* "name: cannot read the FAT file system: reason" (EXIT_INPUT). */
__attribute__((format(printf, 3, 4))) static int
refuse_volume(const struct fat_volume *v, struct error *err, const char *format, ...)
{
	CLEANUP_FREE char *reason = NULL;
	va_list args;

	va_start(args, format);
	reason = str_vformat(format, args);
	va_end(args);
	error_set(err, "%s: cannot read the FAT file system: %s", v->name, reason);
	return error_code(err, EXIT_INPUT);
}

int fat_volume_read(const struct fat_volume *v, void *buffer, size_t size, uint64_t offset_bytes,
                    struct error *err)
{
	const struct fat_source *s = &v->source;

	if (offset_bytes > s->size_bytes || size > s->size_bytes - offset_bytes)
		return refuse_volume(v, err, "offset %" PRIu64 " is outside of it", offset_bytes);
	if (s->read(s->opaque, buffer, size, s->base_bytes + offset_bytes, err) < 0)
		return error_prefix(err, "%s: cannot read the FAT file system", v->name);
	return 0;
}

uint64_t fat_cluster_offset(const struct fat_volume *v, uint32_t cluster)
{
	return v->data_offset + (uint64_t)(cluster - FAT_FIRST_CLUSTER) * v->cluster_bytes;
}

static bool is_power_of_two(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

static void read_layout(const uint8_t *boot, struct layout *ret)
{
	*ret = (struct layout){
		.sector_bytes = fat_le16(boot + BPB_BytsPerSec),
		.cluster_sectors = boot[BPB_SecPerClus],
		.reserved = fat_le16(boot + BPB_RsvdSecCnt),
		.tables = boot[BPB_NumFATs],
		.root_slots = fat_le16(boot + BPB_RootEntCnt),
		.table_sectors = fat_le16(boot + BPB_FATSz16),
		.total_sectors = fat_le16(boot + BPB_TotSec16),
	};
	/* As Linux and EDK II decide: small ESPs are FAT32 with fewer clusters than the
	 * specification says, since mkfs.vfat -F 32 makes them so. */
	ret->is_fat32 = ret->table_sectors == 0;
	if (ret->is_fat32)
		ret->table_sectors = fat_le32(boot + BPB_FATSz32);
	if (ret->total_sectors == 0)
		ret->total_sectors = fat_le32(boot + BPB_TotSec32);
}

static int check_layout(const struct fat_volume *v, const uint8_t *boot, const struct layout *l,
                        struct error *err)
{
	if (!is_power_of_two(l->sector_bytes) || l->sector_bytes < 512 || l->sector_bytes > 4096)
		return refuse_volume(v, err, "its sectors have %u bytes", l->sector_bytes);
	if (!is_power_of_two(l->cluster_sectors))
		return refuse_volume(v, err, "its clusters have %u sectors", l->cluster_sectors);
	if (l->reserved == 0 || l->tables == 0 || l->table_sectors == 0)
		return refuse_volume(v, err, "it says that it has no allocation table");
	if (boot[BPB_Media] < 0xf8 && boot[BPB_Media] != 0xf0)
		return refuse_volume(v, err, "its media type is 0x%02x", boot[BPB_Media]);
	if ((uint64_t)l->root_slots * FAT_SLOT_BYTES % l->sector_bytes != 0 ||
	    (!l->is_fat32 && l->root_slots == 0))
		return refuse_volume(v, err, "its root directory has %u entries", l->root_slots);
	if (l->total_sectors * l->sector_bytes > v->source.size_bytes)
		return refuse_volume(v, err,
		                     "it has %" PRIu64 " bytes, more than the partition's %" PRIu64,
		                     l->total_sectors * l->sector_bytes, v->source.size_bytes);
	return 0;
}

/* How many clusters the tables can tell of: what lies beyond is never used. */
static uint64_t clusters_in_table(const struct fat_volume *v)
{
	uint64_t entries = v->table_bytes * 8 / v->bits;

	return entries > FAT_FIRST_CLUSTER ? entries - FAT_FIRST_CLUSTER : 0;
}

static int set_clusters(struct fat_volume *v, uint64_t count, bool is_fat32, struct error *err)
{
	uint64_t at_most = is_fat32 ? FAT32_CLUSTERS_MAX : FAT16_CLUSTERS_MAX;

	if (is_fat32)
		v->bits = 32;
	else
		v->bits = count <= FAT12_CLUSTERS_MAX ? 12 : 16;
	if (count == 0 || count > at_most)
		return refuse_volume(v, err, "it has %" PRIu64 " clusters", count);
	if (count > clusters_in_table(v))
		count = clusters_in_table(v);
	v->cluster_count = (uint32_t)count;
	return 0;
}

/* What only FAT32 has. */
static int set_fat32(struct fat_volume *v, const uint8_t *boot, const struct layout *l,
                     struct error *err)
{
	uint32_t flags = fat_le16(boot + BPB_ExtFlags), info = fat_le16(boot + BPB_FSInfo);
	uint32_t active = flags & EXT_FLAGS_ONE_TABLE ? flags & 0x0f : 0;

	if (fat_le16(boot + BPB_FSVer) != 0)
		return refuse_volume(v, err, "its version is 0x%04x", fat_le16(boot + BPB_FSVer));
	if (active >= l->tables)
		return refuse_volume(v, err, "its allocation table %u is in use, of %u", active,
		                     l->tables);
	v->table_offset += active * v->table_bytes;
	v->root_cluster = fat_le32(boot + BPB_RootClus);
	if (v->root_cluster < FAT_FIRST_CLUSTER ||
	    v->root_cluster - FAT_FIRST_CLUSTER >= v->cluster_count)
		return refuse_volume(v, err, "its root directory is in cluster %u of %u",
		                     v->root_cluster, v->cluster_count);
	if (info != 0 && info < l->reserved)
		v->info_offset = (uint64_t)info * l->sector_bytes;
	return 0;
}

static int read_boot_sector(struct fat_volume *v, struct error *err)
{
	uint8_t boot[BOOT_SECTOR_BYTES];
	struct layout l;
	uint64_t root, data; /* in sectors */

	if (v->source.size_bytes < sizeof(boot))
		return refuse_volume(v, err, "it has only %" PRIu64 " bytes", v->source.size_bytes);
	if (fat_volume_read(v, boot, sizeof(boot), 0, err) < 0)
		return -1;
	read_layout(boot, &l);
	if (check_layout(v, boot, &l, err) < 0)
		return -1;
	root = l.reserved + (uint64_t)l.tables * l.table_sectors;
	data = root + (uint64_t)l.root_slots * FAT_SLOT_BYTES / l.sector_bytes;
	if (data > l.total_sectors)
		return refuse_volume(v, err, "its data begins at sector %" PRIu64 " of %" PRIu64,
		                     data, l.total_sectors);
	v->sector_bytes = l.sector_bytes;
	v->cluster_bytes = l.cluster_sectors * l.sector_bytes;
	v->table_offset = (uint64_t)l.reserved * l.sector_bytes;
	v->table_bytes = (uint64_t)l.table_sectors * l.sector_bytes;
	v->root_offset = root * l.sector_bytes;
	v->root_slots = l.root_slots;
	v->data_offset = data * l.sector_bytes;
	if (set_clusters(v, (l.total_sectors - data) / l.cluster_sectors, l.is_fat32, err) < 0)
		return -1;
	return l.is_fat32 ? set_fat32(v, boot, &l, err) : 0;
}

int fat_volume_open(struct fat_volume **ret, const struct fat_source *source, const char *name,
                    struct error *err)
{
	CLEANUP_FAT_VOLUME struct fat_volume *v = mem_alloc(sizeof(*v));

	v->name = str_copy(name);
	v->source = *source;
	if (read_boot_sector(v, err) < 0)
		return -1;
	v->table = fat_table_new();
	v->dirs = fat_dirs_new();
	*ret = STEAL(v);
	return 0;
}

void fat_volume_close(struct fat_volume *v)
{
	fat_dirs_free(v->dirs);
	fat_table_free(v->table);
	free(v->name);
	free(v);
}
