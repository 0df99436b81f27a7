/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libblkid reads files, not NBD. So it gets a sparse file in memory, as long as the disk, with
 * the few places filled in that it looks at: both ends of the disk and of each partition
 * (ZFS labels: the first and last 512 KiB; btrfs: 64 KiB; md, DDF: the last sectors), the chain
 * of logical partitions, and the root directory of FAT32, where the label is.
 */
#include <blkid/blkid.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "disk-internal.h"
#include "disk-table.h"
#include "str.h"

#define DISK_HEAD_BYTES     ((uint64_t)4 << 20)
#define VOLUME_HEAD_BYTES   ((uint64_t)2 << 20)
#define TAIL_BYTES          ((uint64_t)1 << 20)
#define FAT_ROOT_BYTES      ((uint64_t)64 << 10)
#define COPY_BYTES          ((size_t)1 << 20)
#define MAX_LOGICAL         128 /* libblkid stops at 100 */
#define MAX_VOLUMES         256
#define MBR_BOOT_CODE_BYTES 440u

#define GUID_BIOS_BOOT  "21686148-6449-6e6f-744e-656564454649"
#define GPT_LEGACY_BOOT (1ull << 2)

DEFINE_CLEANUP(probe, blkid_probe, blkid_free_probe)
#define CLEANUP_PROBE CLEANUP(cleanup_probe)

/* The state of one disk_probe(). */
struct probing {
	struct disk *disk;
	int copy_fd; /* the sparse copy */
	struct raw_table table;
};

static int write_all(int fd, const uint8_t *data, size_t size, uint64_t offset)
{
	while (size > 0) {
		ssize_t n = pwrite(fd, data, size, (off_t)offset);

		if (n < 0 && errno != EINTR)
			return -1;
		if (n > 0) {
			data += n;
			size -= (size_t)n;
			offset += (uint64_t)n;
		}
	}
	return 0;
}

/* The part of the range that lies on the disk; zeroes stay holes. */
static int copy_range(struct probing *p, uint64_t offset, uint64_t size, struct error *err)
{
	CLEANUP_FREE uint8_t *buffer = mem_alloc(COPY_BYTES);
	uint64_t end = disk_size_bytes(p->disk);

	if (offset >= end)
		return 0;
	if (size < end - offset)
		end = offset + size;
	while (offset < end) {
		size_t n = end - offset < COPY_BYTES ? (size_t)(end - offset) : COPY_BYTES;

		if (disk_read(p->disk, buffer, n, offset, err) < 0)
			return -1;
		if (!all_zero(buffer, n) && write_all(p->copy_fd, buffer, n, offset) < 0)
			return error_errno(err, errno,
			                   "cannot write to a temporary file in memory");
		offset += n;
	}
	return 0;
}

/* Both ends of a range. */
static int copy_ends(struct probing *p, uint64_t offset, uint64_t size, uint64_t head,
                     struct error *err)
{
	uint64_t tail = size < TAIL_BYTES ? size : TAIL_BYTES;

	if (copy_range(p, offset, size < head ? size : head, err) < 0)
		return -1;
	return copy_range(p, offset + size - tail, tail, err);
}

static int open_copy(struct probing *p, struct error *err)
{
	p->copy_fd = memfd_create("disk-probe", MFD_CLOEXEC);
	if (p->copy_fd < 0 || ftruncate(p->copy_fd, (off_t)disk_size_bytes(p->disk)) < 0)
		return error_errno(err, errno, "cannot make a temporary file in memory");
	return copy_ends(p, 0, disk_size_bytes(p->disk), DISK_HEAD_BYTES, err);
}

/* Each link of the chain is a sector anywhere in the extended partition, with one entry for
 * the logical partition and one for the next link, which counts from the chain's start. */
static int copy_logical_chain(struct probing *p, uint64_t start_lba, struct error *err)
{
	uint64_t lba = start_lba;
	uint8_t sector[SECTOR];

	for (int i = 0; i < MAX_LOGICAL; i++) {
		uint64_t next = 0;

		if (lba * SECTOR >= disk_size_bytes(p->disk))
			return 0; /* told as truncated by disk_table_check_bounds() */
		if (copy_range(p, lba * SECTOR, SECTOR, err) < 0 ||
		    disk_read(p->disk, sector, SECTOR, lba * SECTOR, err) < 0)
			return -1;
		for (unsigned j = 0; j < 4 && mbr_valid(sector) && !next; j++)
			if (mbr_extended(mbr_entry(sector, j)[4]))
				next = le32(mbr_entry(sector, j) + 8);
		if (!next)
			return 0;
		lba = start_lba + next;
	}
	return 0;
}

static int copy_logical(struct probing *p, struct error *err)
{
	for (unsigned i = 0; i < 4 && mbr_valid(p->table.mbr); i++) {
		const uint8_t *entry = mbr_entry(p->table.mbr, i);

		if (mbr_extended(entry[4]) && copy_logical_chain(p, le32(entry + 8), err) < 0)
			return -1;
	}
	return 0;
}

static char *copy_or_null(const char *s)
{
	return s && *s ? str_copy(s) : NULL;
}

static char *lower(char *s)
{
	for (char *c = s; c && *c; c++)
		if (*c >= 'A' && *c <= 'Z')
			*c = (char)(*c - 'A' + 'a');
	return s;
}

static int add_partition(struct probing *p, blkid_partition part, struct error *err)
{
	const char *type = blkid_partition_get_type_string(part);
	uint64_t start = (uint64_t)blkid_partition_get_start(part);
	uint64_t count = (uint64_t)blkid_partition_get_size(part);
	int number = blkid_partition_get_partno(part);
	struct volume *v;

	if (disk_table_check_bounds(p->disk, number, start, count, err) < 0)
		return -1;
	if (blkid_partition_is_extended(part))
		return 0; /* holds the logical ones, nothing of its own */
	v = disk_new_volume(p->disk);
	v->number = number;
	v->offset_bytes = start * SECTOR;
	v->size_bytes = count * SECTOR;
	v->partuuid = lower(copy_or_null(blkid_partition_get_uuid(part)));
	v->partlabel = copy_or_null(blkid_partition_get_name(part));
	v->parttype = type ? lower(str_copy(type))
	                   : str_format("0x%02x", (unsigned)blkid_partition_get_type(part));
	if (str_equal(p->disk->table, "gpt"))
		p->disk->boots_bios |= str_equal(v->parttype, GUID_BIOS_BOOT) ||
		                       (blkid_partition_get_flags(part) & GPT_LEGACY_BOOT);
	return copy_ends(p, v->offset_bytes, v->size_bytes, VOLUME_HEAD_BYTES, err);
}

/* NULL: error. */
static blkid_probe new_probe(struct probing *p, uint64_t offset, uint64_t size, struct error *err)
{
	CLEANUP_PROBE blkid_probe probe = blkid_new_probe();

	if (!probe || blkid_probe_set_device(probe, p->copy_fd, (blkid_loff_t)offset,
	                                     (blkid_loff_t)size) < 0) {
		error_set(err, "image '%s': libblkid cannot read it", p->disk->path);
		return NULL;
	}
	blkid_probe_set_sectorsize(probe, p->table.sector_bytes);
	return STEAL(probe);
}

/* 'gpt' and 'dos' only: what else libblkid takes for a table (atari…) no cloud boots from. */
static int find_partitions(struct probing *p, struct error *err)
{
	char gpt[] = "gpt", dos[] = "dos";
	char *known[] = {gpt, dos, NULL};
	CLEANUP_PROBE blkid_probe probe = new_probe(p, 0, disk_size_bytes(p->disk), err);
	blkid_partlist list;
	int count;

	if (!probe)
		return -1;
	blkid_probe_enable_superblocks(probe, 0);
	blkid_probe_enable_partitions(probe, 1);
	blkid_probe_filter_partitions_type(probe, BLKID_FLTR_ONLYIN, known);
	list = blkid_probe_get_partitions(probe);
	if (!list)
		return 0;
	p->disk->table = str_copy(blkid_parttable_get_type(blkid_partlist_get_table(list)));
	count = blkid_partlist_numof_partitions(list);
	if (count > MAX_VOLUMES) {
		error_set(err, "it has %d partitions, more than %d", count, MAX_VOLUMES);
		return disk_refuse(p->disk, err);
	}
	for (int i = 0; i < count; i++)
		if (add_partition(p, blkid_partlist_get_partition(list, i), err) < 0)
			return -1;
	return 0;
}

/* FAT32 has its root directory, and in it the label, behind both tables: anywhere. */
static int copy_fat_root(struct probing *p, const struct volume *v, struct error *err)
{
	uint8_t boot[SECTOR];
	uint64_t sector, cluster, reserved, tables, root;

	if (v->size_bytes < SECTOR)
		return 0;
	if (disk_read(p->disk, boot, sizeof(boot), v->offset_bytes, err) < 0)
		return -1;
	if (!mbr_valid(boot) || memcmp(boot + 82, "FAT32", 5) != 0)
		return 0;
	sector = le16(boot + 11);
	cluster = boot[13];
	reserved = le16(boot + 14);
	tables = (uint64_t)boot[16] * le32(boot + 36);
	root = le32(boot + 44);
	if (root < 2)
		return 0;
	root = (reserved + tables + (root - 2) * cluster) * sector;
	if (root >= v->size_bytes)
		return 0;
	return copy_range(
		p, v->offset_bytes + root,
		v->size_bytes - root < FAT_ROOT_BYTES ? v->size_bytes - root : FAT_ROOT_BYTES, err);
}

static char *probe_value(blkid_probe probe, const char *name)
{
	const char *value = NULL;

	if (blkid_probe_lookup_value(probe, name, &value, NULL) < 0)
		return NULL;
	return copy_or_null(value);
}

/* Several signatures at once count as none, as for udev: nobody can say which one holds. */
static int probe_content(struct probing *p, struct volume *v, struct error *err)
{
	CLEANUP_PROBE blkid_probe probe = NULL;

	if (v->size_bytes == 0)
		return 0; /* libblkid would read on to the end of the disk */
	if (copy_fat_root(p, v, err) < 0)
		return -1;
	probe = new_probe(p, v->offset_bytes, v->size_bytes, err);
	if (!probe)
		return -1;
	blkid_probe_enable_superblocks(probe, 1);
	blkid_probe_set_superblocks_flags(probe, BLKID_SUBLKS_LABEL | BLKID_SUBLKS_UUID |
	                                                 BLKID_SUBLKS_TYPE | BLKID_SUBLKS_USAGE);
	if (blkid_do_safeprobe(probe) != 0)
		return 0;
	v->type = probe_value(probe, "TYPE");
	v->usage = probe_value(probe, "USAGE");
	v->uuid = probe_value(probe, "UUID");
	v->label = probe_value(probe, "LABEL");
	return 0;
}

static int probe_whole_disk(struct probing *p, struct error *err)
{
	struct volume *v = disk_new_volume(p->disk);

	v->size_bytes = disk_size_bytes(p->disk);
	if (probe_content(p, v, err) < 0)
		return -1;
	if (v->type)
		return 0;
	if (p->disk->table)
		error_set(err, "its partition table ('%s') is empty", p->disk->table);
	else if (p->table.protective)
		error_set(err, "its GPT is damaged (checksum or bounds)");
	else
		error_set(err, "neither a partition table nor a file system that we know");
	return disk_refuse(p->disk, err);
}

/* Once the volumes are known. */
static void find_boot_types(struct probing *p)
{
	struct disk *disk = p->disk;
	bool code = mbr_valid(p->table.mbr) && !all_zero(p->table.mbr, MBR_BOOT_CODE_BYTES);

	if (!code)
		disk->boots_bios = false;
	else if (!str_equal(disk->table, "gpt"))
		disk->boots_bios = true;
	for (size_t i = 0; i < disk->volume_count; i++) {
		const struct volume *v = disk->volumes[i];

		disk->boots_uefi |= volume_is_esp(v);
	}
}

static int probe_disk(struct probing *p, struct error *err)
{
	struct disk *disk = p->disk;

	if (disk_table_read(&p->table, disk, err) < 0 || open_copy(p, err) < 0 ||
	    copy_logical(p, err) < 0 || find_partitions(p, err) < 0)
		return -1;
	for (size_t i = 0; i < disk->volume_count; i++)
		if (probe_content(p, disk->volumes[i], err) < 0)
			return -1;
	if (disk->volume_count == 0 && probe_whole_disk(p, err) < 0)
		return -1;
	find_boot_types(p);
	return 0;
}

int disk_probe(struct disk *disk, struct error *err)
{
	struct probing p = {.disk = disk, .copy_fd = -1};
	int result;

	disk_forget_volumes(disk);
	result = probe_disk(&p, err);
	if (p.copy_fd >= 0)
		close(p.copy_fd);
	if (result < 0)
		disk_forget_volumes(disk);
	return result;
}
