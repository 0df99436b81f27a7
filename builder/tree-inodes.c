/* SPDX-License-Identifier: Apache-2.0 */
#include "tree-private.h"

/* Any good mix will do: the keys are spread again by linear probing. */
static size_t slot_of(const struct inode_table *table, uint64_t device, uint64_t inode)
{
	uint64_t mixed = (inode ^ (device << 32) ^ (device >> 32)) * 0x9e3779b97f4a7c15u;

	return (size_t)(mixed >> 20) & (table->size - 1);
}

static struct inode_slot *find(const struct inode_table *table, uint64_t device, uint64_t inode)
{
	size_t at = slot_of(table, device, inode);

	while (table->slots[at].used &&
	       (table->slots[at].inode != inode || table->slots[at].device != device))
		at = (at + 1) & (table->size - 1);
	return &table->slots[at];
}

static void grow(struct inode_table *table)
{
	struct inode_table bigger = {.size = table->size ? table->size * 2 : 1024,
	                             .used = table->used};

	bigger.slots = mem_grow(NULL, bigger.size, sizeof(*bigger.slots));
	for (size_t i = 0; i < bigger.size; i++)
		bigger.slots[i] = (struct inode_slot){0};
	for (size_t i = 0; i < table->size; i++)
		if (table->slots[i].used)
			*find(&bigger, table->slots[i].device, table->slots[i].inode) =
				table->slots[i];
	free(table->slots);
	*table = bigger;
}

const uint32_t *inode_table_add(struct inode_table *table, uint64_t device, uint64_t inode,
                                uint32_t value)
{
	struct inode_slot *slot;

	if ((table->used + 1) * 4 > table->size * 3)
		grow(table);
	slot = find(table, device, inode);
	if (slot->used)
		return &slot->value;
	*slot = (struct inode_slot){.device = device, .inode = inode, .value = value, .used = true};
	table->used++;
	return NULL;
}

const uint32_t *inode_table_find(const struct inode_table *table, uint64_t device, uint64_t inode)
{
	const struct inode_slot *slot = table->size ? find(table, device, inode) : NULL;

	return slot && slot->used ? &slot->value : NULL;
}

void inode_table_free(struct inode_table *table)
{
	free(table->slots);
	*table = (struct inode_table){0};
}

const char *inode_map_add(struct inode_map *map, uint64_t device, uint64_t inode, const char *path)
{
	const uint32_t *first =
		inode_table_add(&map->table, device, inode, (uint32_t)map->paths.count);

	if (first)
		return map->paths.items[*first];
	strv_add(&map->paths, path);
	return NULL;
}

void inode_map_free(struct inode_map *map)
{
	inode_table_free(&map->table);
	strv_free(&map->paths);
}
