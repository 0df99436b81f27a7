/* SPDX-License-Identifier: Apache-2.0 */
/* One directory, read up to its end mark, as the firmware does, and sorted. */
#include <string.h>

#include "fatfs-internal.h"
#include "str.h"

#define PIECE_BYTES ((uint64_t)64 << 10)

/* Offsets in an entry. */
enum {
	DIR_Name = 0,
	DIR_Attr = 11,
	DIR_FstClusHI = 20,
	DIR_WrtTime = 22,
	DIR_WrtDate = 24,
	DIR_FstClusLO = 26,
	DIR_FileSize = 28,
	MARK_END = 0x00,
	MARK_DELETED = 0xe5,
};

struct fat_entry {
	char *name;
	char *alias; /* the short name of one that has a long one; may be NULL */
	struct fat_node node;
};

struct key {
	const char *name;
	size_t entry;
};

struct fat_dir {
	uint32_t cluster;          /* its first; 0: the root's own place */
	struct fat_entry *entries; /* as they stand on the disk */
	size_t count;
	struct key *keys; /* names and aliases, sorted; of equal ones the first entry first */
	size_t key_count;
	size_t slots; /* that were read */
};

void fat_dir_free(struct fat_dir *dir)
{
	for (size_t i = 0; i < dir->count; i++) {
		free(dir->entries[i].name);
		free(dir->entries[i].alias);
	}
	free(dir->entries);
	free(dir->keys);
	free(dir);
}

/* A directory while it is read. */
struct reader {
	const struct fat_volume *volume;
	const char *path;
	struct fat_dir *dir;
	size_t room; /* for entries */
	struct fat_long_name long_name;
};

static int refuse_entry(const struct reader *r, const char *reason, struct error *err)
{
	CLEANUP_FREE char *text =
		str_format("the name of entry %zu cannot be: %s", r->dir->slots, reason);

	return fat_refuse(r->volume, text, "list", r->path, err);
}

static struct fat_node node_of(const struct reader *r, const uint8_t *slot, uint64_t position)
{
	uint32_t high = r->volume->bits == 32 ? fat_le16(slot + DIR_FstClusHI) : 0;

	return (struct fat_node){
		.position = position,
		.cluster = high << 16 | fat_le16(slot + DIR_FstClusLO),
		.size_bytes = fat_le32(slot + DIR_FileSize),
		.time = fat_le16(slot + DIR_WrtTime),
		.date = fat_le16(slot + DIR_WrtDate),
		.is_dir = slot[DIR_Attr] & FAT_ATTR_DIRECTORY,
		.parent = r->dir->cluster,
	};
}

static int add_entry(struct reader *r, const uint8_t *slot, uint64_t position, struct error *err)
{
	struct fat_dir *dir = r->dir;
	const char *wrong, *wrong_alias;
	CLEANUP_FREE char *name = fat_long_name_take(&r->long_name, slot, &wrong);
	CLEANUP_FREE char *alias = NULL;

	if (wrong)
		return refuse_entry(r, wrong, err);
	alias = fat_short_name(slot, &wrong_alias);
	if (!name && !alias)
		return refuse_entry(r, wrong_alias, err);
	if (dir->count == r->room) {
		r->room = r->room ? 2 * r->room : 16;
		dir->entries = mem_grow(dir->entries, r->room, sizeof(*dir->entries));
	}
	if (!name)
		name = STEAL(alias);
	dir->entries[dir->count++] = (struct fat_entry){
		.name = STEAL(name),
		.alias = STEAL(alias),
		.node = node_of(r, slot, position),
	};
	return 0;
}

static bool is_dot(const uint8_t *slot)
{
	return memcmp(slot + DIR_Name, ".          ", 11) == 0 ||
	       memcmp(slot + DIR_Name, "..         ", 11) == 0;
}

/* 1: go on, 0: this was the end mark, -1. */
static int read_slot(struct reader *r, const uint8_t *slot, uint64_t position, struct error *err)
{
	unsigned attributes = slot[DIR_Attr];

	if (slot[DIR_Name] == MARK_END)
		return 0;
	if (r->dir->slots++ == FAT_SLOTS_MAX)
		return fat_refuse(r->volume, "it has more than 65536 entries", "list", r->path,
		                  err);
	if (slot[DIR_Name] != MARK_DELETED && (attributes & FAT_ATTR_KIND) == FAT_ATTR_LONG_NAME) {
		fat_long_name_add(&r->long_name, slot);
		return 1;
	}
	if (slot[DIR_Name] == MARK_DELETED || attributes & FAT_ATTR_VOLUME || is_dot(slot)) {
		r->long_name.valid = false;
		return 1;
	}
	return add_entry(r, slot, position, err) < 0 ? -1 : 1;
}

/* The slots in a range of the volume: 1, 0, -1 as above. */
static int read_range(struct reader *r, uint64_t offset, uint64_t size, struct error *err)
{
	CLEANUP_FREE uint8_t *data = mem_alloc(PIECE_BYTES);
	int more = 1;

	for (uint64_t done = 0, n; done < size && more > 0; done += n) {
		n = size - done < PIECE_BYTES ? size - done : PIECE_BYTES;
		if (fat_volume_read(r->volume, data, n, offset + done, err) < 0)
			return -1;
		for (uint64_t at = 0; at < n && more > 0; at += FAT_SLOT_BYTES)
			more = read_slot(r, data + at, (offset + done + at) / FAT_SLOT_BYTES, err);
	}
	return more;
}

static int read_chain(struct reader *r, uint32_t cluster, struct error *err)
{
	const struct fat_volume *v = r->volume;
	struct fat_chain chain CLEANUP_FAT_CHAIN = fat_chain_begin(v, cluster, r->path);
	uint32_t at_once = PIECE_BYTES < v->cluster_bytes ? 1 : PIECE_BYTES / v->cluster_bytes;
	uint32_t first, count;
	int more = 1;

	while (more > 0) {
		more = fat_chain_run(&chain, at_once, &first, &count, err);
		if (more > 0)
			more = read_range(r, fat_cluster_offset(v, first),
			                  (uint64_t)count * v->cluster_bytes, err);
	}
	return more;
}

static int compare_keys(const void *a, const void *b)
{
	const struct key *x = a, *y = b;
	int order = fat_name_compare(x->name, y->name);

	return order ? order : (x->entry > y->entry) - (x->entry < y->entry);
}

static void sort_keys(struct fat_dir *dir)
{
	if (dir->count == 0)
		return;
	dir->keys = mem_grow(NULL, 2 * dir->count, sizeof(*dir->keys));
	for (size_t i = 0; i < dir->count; i++) {
		dir->keys[dir->key_count++] = (struct key){dir->entries[i].name, i};
		if (dir->entries[i].alias)
			dir->keys[dir->key_count++] = (struct key){dir->entries[i].alias, i};
	}
	qsort(dir->keys, dir->key_count, sizeof(*dir->keys), compare_keys);
}

int fat_dir_read(struct fat_dir **ret, const struct fat_volume *v, uint32_t cluster,
                 const char *path, struct error *err)
{
	CLEANUP_FAT_DIR struct fat_dir *dir = mem_alloc(sizeof(*dir));
	struct reader r = {.volume = v, .path = path, .dir = dir};
	int more;

	dir->cluster = cluster;
	if (cluster == 0)
		more = read_range(&r, v->root_offset, (uint64_t)v->root_slots * FAT_SLOT_BYTES,
		                  err);
	else
		more = read_chain(&r, cluster, err);
	if (more < 0)
		return -1;
	sort_keys(dir);
	*ret = STEAL(dir);
	return 0;
}

uint32_t fat_dir_cluster(const struct fat_dir *dir)
{
	return dir->cluster;
}

size_t fat_dir_slots(const struct fat_dir *dir)
{
	return dir->slots;
}

const struct fat_node *fat_dir_find(const struct fat_dir *dir, const char *name)
{
	size_t low = 0, high = dir->key_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (fat_name_compare(dir->keys[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == dir->key_count || fat_name_compare(dir->keys[low].name, name) != 0)
		return NULL;
	return &dir->entries[dir->keys[low].entry].node;
}

void fat_dir_names(const struct fat_dir *dir, struct strv *ret)
{
	for (size_t i = 0; i < dir->count; i++)
		strv_add(ret, dir->entries[i].name);
}
