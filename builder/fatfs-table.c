/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocation table, which tells for each cluster which one follows it. It is read in blocks
 * that are kept, since a chain asks for neighbours.
 */
#include <string.h>

#include "fatfs-internal.h"
#include "str.h"

#define BLOCK_BYTES ((uint64_t)64 << 10)
#define BLOCKS      16
/* The largest table that is counted through: a file system of 16 GiB in clusters of 4 KiB. */
#define COUNT_BYTES_MAX ((uint64_t)16 << 20)

/* Offsets in FAT32's sector of hints. */
enum {
	FSI_LeadSig = 0,
	FSI_StrucSig = 484,
	FSI_Free_Count = 488,
	FSI_BYTES = 512,
};

struct fat_table {
	uint8_t *blocks[BLOCKS]; /* each index has one place where it can be */
	uint64_t indexes[BLOCKS];
	bool counted; /* then 'free_clusters' is known */
	uint32_t free_clusters;
};

struct fat_table *fat_table_new(void)
{
	return mem_alloc(sizeof(struct fat_table));
}

void fat_table_free(struct fat_table *table)
{
	for (size_t i = 0; table && i < BLOCKS; i++)
		free(table->blocks[i]);
	free(table);
}

/* The table's block; valid until the next call. */
static const uint8_t *get_block(const struct fat_volume *v, uint64_t index, struct error *err)
{
	struct fat_table *t = v->table;
	size_t place = index % BLOCKS;
	uint64_t offset = index * BLOCK_BYTES;
	uint64_t left = v->table_bytes - offset;
	CLEANUP_FREE uint8_t *block = NULL;

	if (t->blocks[place] && t->indexes[place] == index)
		return t->blocks[place];
	block = mem_alloc(BLOCK_BYTES);
	if (fat_volume_read(v, block, left < BLOCK_BYTES ? left : BLOCK_BYTES,
	                    v->table_offset + offset, err) < 0)
		return NULL;
	free(t->blocks[place]);
	t->blocks[place] = STEAL(block);
	t->indexes[place] = index;
	return t->blocks[place];
}

/* What the table says of a cluster that there is; in the low 28 bits for FAT32. An entry of
 * FAT12 never crosses a block: all of them fit into the first one. */
static int get_entry(const struct fat_volume *v, uint32_t cluster, uint32_t *ret, struct error *err)
{
	uint64_t offset = (uint64_t)cluster * v->bits / 8;
	const uint8_t *block = get_block(v, offset / BLOCK_BYTES, err);
	const uint8_t *p;

	if (!block)
		return -1;
	p = block + offset % BLOCK_BYTES;
	if (v->bits == 12)
		*ret = cluster % 2 ? fat_le16(p) >> 4 : fat_le16(p) & 0x0fff;
	else if (v->bits == 16)
		*ret = fat_le16(p);
	else
		*ret = fat_le32(p) & 0x0fffffff;
	return 0;
}

static bool is_end(const struct fat_volume *v, uint32_t entry)
{
	static const uint32_t all[] = {[12] = 0xfff, [16] = 0xffff, [32] = 0x0fffffff};

	return entry >= all[v->bits] - 7;
}

static bool is_cluster(const struct fat_volume *v, uint32_t n)
{
	return n >= FAT_FIRST_CLUSTER && n - FAT_FIRST_CLUSTER < v->cluster_count;
}

struct fat_chain fat_chain_begin(const struct fat_volume *v, uint32_t first, const char *path)
{
	return (struct fat_chain){
		.volume = v,
		.path = path,
		.pending = first,
		.seen = mem_alloc((size_t)v->cluster_count / 8 + 1),
	};
}

void fat_chain_end(struct fat_chain *chain)
{
	free(chain->seen);
}

static int refuse_chain(const struct fat_chain *chain, uint32_t cluster, const char *what,
                        struct error *err)
{
	CLEANUP_FREE char *reason =
		str_format("its chain of clusters leads to cluster %u, %s", cluster, what);

	return fat_refuse(chain->volume, reason, "read", chain->path, err);
}

static bool was_seen(const struct fat_chain *chain, uint32_t cluster)
{
	uint32_t n = cluster - FAT_FIRST_CLUSTER;

	return chain->seen[n / 8] & 1u << n % 8;
}

/* Sets 'pending', sound: 1; 0 at the end. */
static int find_pending(struct fat_chain *chain, struct error *err)
{
	const struct fat_volume *v = chain->volume;
	uint32_t next = chain->pending;

	if (chain->last) {
		if (get_entry(v, chain->last, &next, err) < 0)
			return -1;
		if (is_end(v, next))
			return 0;
	}
	if (!is_cluster(v, next))
		return refuse_chain(chain, next, "which is not one that holds data", err);
	if (was_seen(chain, next))
		return refuse_chain(chain, next, "where it was before", err);
	chain->pending = next;
	return 1;
}

static void take_pending(struct fat_chain *chain)
{
	uint32_t n = chain->pending - FAT_FIRST_CLUSTER;

	chain->seen[n / 8] |= (uint8_t)(1u << n % 8);
	chain->last = chain->pending;
	chain->pending = 0;
}

int fat_chain_run(struct fat_chain *chain, uint32_t max_count, uint32_t *ret_first,
                  uint32_t *ret_count, struct error *err)
{
	uint32_t first = 0, count = 0;

	while (count < max_count) {
		int more = find_pending(chain, err);

		if (more < 0)
			return -1;
		if (more == 0 || (count > 0 && chain->pending != first + count))
			break;
		if (count == 0)
			first = chain->pending;
		take_pending(chain);
		count++;
	}
	*ret_first = first;
	*ret_count = count;
	return count > 0;
}

/* The number that FAT32 keeps of its free clusters; 0: it does not, or one that cannot be. */
static int read_hint(const struct fat_volume *v, uint32_t *ret, struct error *err)
{
	uint8_t info[FSI_BYTES];

	if (v->info_offset == 0)
		return 0;
	if (fat_volume_read(v, info, sizeof(info), v->info_offset, err) < 0)
		return -1;
	*ret = fat_le32(info + FSI_Free_Count);
	return memcmp(info + FSI_LeadSig, "RRaA", 4) == 0 &&
	       memcmp(info + FSI_StrucSig, "rrAa", 4) == 0 && *ret <= v->cluster_count;
}

static int count_entries(const struct fat_volume *v, uint32_t *ret, struct error *err)
{
	uint32_t count = 0, entry;

	for (uint32_t i = 0; i < v->cluster_count; i++) {
		if (get_entry(v, FAT_FIRST_CLUSTER + i, &entry, err) < 0)
			return -1;
		count += entry == 0;
	}
	*ret = count;
	return 0;
}

int fat_count_free(const struct fat_volume *v, uint32_t *ret, struct error *err)
{
	struct fat_table *t = v->table;
	int known;

	if (!t->counted && (uint64_t)v->cluster_count * v->bits / 8 <= COUNT_BYTES_MAX) {
		if (count_entries(v, &t->free_clusters, err) < 0)
			return -1;
	} else if (!t->counted) {
		known = read_hint(v, &t->free_clusters, err);
		if (known < 0)
			return -1;
		if (known == 0)
			return fat_refuse(v, "it is not kept, and the table too large to count",
			                  "tell the free space at", "/", err);
	}
	t->counted = true;
	*ret = t->free_clusters;
	return 0;
}
