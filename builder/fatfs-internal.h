/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the FAT reader, from below: the volume and its limits (fatfs-volume.c), the table
 * of clusters (fatfs-table.c), names (fatfs-name.c), directories (fatfs-dir.c), paths
 * (fatfs-walk.c), the rootfs (fatfs-rootfs.c), and the disk that it is usually read from
 * (fatfs.c). What the boot sector says is checked against the size first, so that no loop and no
 * allocation is larger than the file system itself.
 */
#ifndef GPUIMG_FATFS_INTERNAL_H
#define GPUIMG_FATFS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "error.h"
#include "rootfs.h"

#define FAT_SLOT_BYTES     32
#define FAT_SLOTS_MAX      ((size_t)65536) /* of one directory; the format's own limit */
#define FAT_DEPTH_MAX      128             /* of directories in each other */
#define FAT_FIRST_CLUSTER  2
#define FAT_NAME_UNITS_MAX 255 /* UTF-16 units in a long name */

#define FAT_ATTR_VOLUME    0x08
#define FAT_ATTR_DIRECTORY 0x10
#define FAT_ATTR_LONG_NAME 0x0f
#define FAT_ATTR_KIND      0x3f /* the bits that tell a long name's slot */

/* Where the bytes come from: a part of a disk, or memory. */
struct fat_source {
	/* All of the range, which lies inside the size, or -1. */
	int (*read)(void *opaque, void *buffer, size_t size, uint64_t offset_bytes,
	            struct error *err);
	void *opaque;        /* borrowed: must outlive the rootfs */
	uint64_t base_bytes; /* added to each offset */
	uint64_t size_bytes;
};

/* As fatfs_open(), from any source; name: for messages, copied. */
int fatfs_open_source(struct rootfs **ret, const struct fat_source *source, const char *name,
                      struct error *err);

struct fat_table; /* pieces of the table that were read lately */
struct fat_dirs;  /* directories that were read lately */

struct fat_volume {
	char *name; /* for messages: "image 'x', partition 1" */
	struct fat_source source;
	unsigned bits; /* of an entry in the table: 12, 16, 32 */
	uint32_t sector_bytes;
	uint32_t cluster_bytes;
	uint32_t cluster_count;             /* they are numbered from FAT_FIRST_CLUSTER on */
	uint64_t table_offset, table_bytes; /* of the one table that is in use */
	uint64_t root_offset;               /* FAT12 and FAT16: the root's own place */
	uint32_t root_slots;
	uint32_t root_cluster; /* FAT32: where the root begins; 0: it has a place of its own */
	uint64_t info_offset;  /* FAT32: of the sector with the number of free clusters; 0: none */
	uint64_t data_offset;  /* of the first cluster */
	struct fat_table *table;
	struct fat_dirs *dirs;
};

/* --- fatfs-volume.c --- */

int fat_volume_open(struct fat_volume **ret, const struct fat_source *source, const char *name,
                    struct error *err);
void fat_volume_close(struct fat_volume *v);
DEFINE_CLEANUP(fat_volume, struct fat_volume *, fat_volume_close)
#define CLEANUP_FAT_VOLUME CLEANUP(cleanup_fat_volume)

int fat_volume_read(const struct fat_volume *v, void *buffer, size_t size, uint64_t offset_bytes,
                    struct error *err);
uint64_t fat_cluster_offset(const struct fat_volume *v, uint32_t cluster);
/* "name: cannot <what> 'path': reason" (EXIT_INPUT). */
int fat_refuse(const struct fat_volume *v, const char *reason, const char *what, const char *path,
               struct error *err);

static inline uint16_t fat_le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t fat_le32(const uint8_t *p)
{
	return (uint32_t)fat_le16(p) | (uint32_t)fat_le16(p + 2) << 16;
}

/* --- fatfs-table.c --- */

struct fat_table *fat_table_new(void);
void fat_table_free(struct fat_table *table);

/* A chain of clusters, followed once from its begin. */
struct fat_chain {
	const struct fat_volume *volume;
	const char *path; /* whose it is, for messages */
	uint32_t pending; /* the next one; 0: not known yet */
	uint32_t last;    /* the one that was taken last; 0: none */
	uint8_t *seen;    /* a bit for each cluster */
};

/* 'first' need not be sound. 'path' must outlive the chain. */
struct fat_chain fat_chain_begin(const struct fat_volume *v, uint32_t first, const char *path);
void fat_chain_end(struct fat_chain *chain);
#define CLEANUP_FAT_CHAIN CLEANUP(fat_chain_end)

/* Up to max_count clusters that follow each other on the disk too: 1, 0 (the chain is at its
 * end), -1 (EXIT_INPUT: it leads outside, to a free or bad cluster, or in a circle). */
int fat_chain_run(struct fat_chain *chain, uint32_t max_count, uint32_t *ret_first,
                  uint32_t *ret_count, struct error *err);
/* -1 also where counting would mean to read more of the table than is reasonable, and the file
 * system does not tell either. */
int fat_count_free(const struct fat_volume *v, uint32_t *ret, struct error *err);

/* --- fatfs-name.c --- */

/* The slots of a long name, which stand before the entry that it is for, its end first. */
struct fat_long_name {
	uint16_t units[20 * 13];
	unsigned left; /* slots that are still to come */
	bool valid;
	uint8_t checksum; /* of the short name that it belongs to */
};

void fat_long_name_add(struct fat_long_name *n, const uint8_t *slot);
/* The long name for an entry in UTF-8; NULL: it has none, or one that belongs elsewhere.
 * *ret_wrong: NULL, or why the name is none. */
char *fat_long_name_take(struct fat_long_name *n, const uint8_t *entry, const char **ret_wrong);
/* The short name as it is listed, NULL (and why) where it is none. */
char *fat_short_name(const uint8_t *entry, const char **ret_wrong);
/* As strcmp, without regard to the case of ASCII letters. */
int fat_name_compare(const char *a, const char *b);

/* --- fatfs-dir.c --- */

/* A file or directory, and what its entry says. */
struct fat_node {
	uint64_t
		position; /* of the entry, in slots from the begin of the volume: unique; root: 1 */
	uint32_t cluster;
	uint32_t size_bytes;
	uint16_t time, date;
	bool is_dir;
	bool is_root;
	uint32_t parent; /* first cluster of the directory that it is in; 0: the root's own place */
};

/* A directory as it was read. */
struct fat_dir;

/* cluster: its first; 0: the root's own place. path: for messages. */
int fat_dir_read(struct fat_dir **ret, const struct fat_volume *v, uint32_t cluster,
                 const char *path, struct error *err);
void fat_dir_free(struct fat_dir *dir);
DEFINE_CLEANUP(fat_dir, struct fat_dir *, fat_dir_free)
#define CLEANUP_FAT_DIR CLEANUP(cleanup_fat_dir)

uint32_t fat_dir_cluster(const struct fat_dir *dir);
size_t fat_dir_slots(const struct fat_dir *dir); /* entries of all kinds that were read */
/* By its long or its short name; NULL: there is none. */
const struct fat_node *fat_dir_find(const struct fat_dir *dir, const char *name);
void fat_dir_names(const struct fat_dir *dir, struct strv *ret);

/* --- fatfs-walk.c --- */

struct fat_dirs *fat_dirs_new(void);
void fat_dirs_free(struct fat_dirs *dirs);

/* Walks from the root. 1: found, 0: does not exist, -1: error. */
int fat_find(const struct fat_volume *v, const char *path, struct fat_node *ret, struct error *err);
/* 'path' is where 'dir' was found. */
int fat_names(const struct fat_volume *v, const struct fat_node *dir, const char *path,
              struct strv *ret, struct error *err);

#endif
