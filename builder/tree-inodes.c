/* SPDX-License-Identifier: Apache-2.0 */
#include "tree-private.h"

/* Any good mix will do: the keys are spread again by linear probing. */
static size_t slot_of(const struct inode_map *map, uint64_t device, uint64_t inode)
{
	uint64_t mixed = (inode ^ (device << 32) ^ (device >> 32)) * 0x9e3779b97f4a7c15u;

	return (size_t)(mixed >> 20) & (map->size - 1);
}

static struct inode_slot *find(const struct inode_map *map, uint64_t device, uint64_t inode)
{
	size_t at = slot_of(map, device, inode);

	while (map->slots[at].path &&
	       (map->slots[at].inode != inode || map->slots[at].device != device))
		at = (at + 1) & (map->size - 1);
	return &map->slots[at];
}

static void grow(struct inode_map *map)
{
	struct inode_map bigger = {.size = map->size ? map->size * 2 : 1024, .used = map->used};

	bigger.slots = mem_grow(NULL, bigger.size, sizeof(*bigger.slots));
	for (size_t i = 0; i < bigger.size; i++)
		bigger.slots[i] = (struct inode_slot){0};
	for (size_t i = 0; i < map->size; i++)
		if (map->slots[i].path)
			*find(&bigger, map->slots[i].device, map->slots[i].inode) = map->slots[i];
	free(map->slots);
	*map = bigger;
}

const char *inode_map_add(struct inode_map *map, uint64_t device, uint64_t inode, const char *path)
{
	struct inode_slot *slot;

	if ((map->used + 1) * 4 > map->size * 3)
		grow(map);
	slot = find(map, device, inode);
	if (slot->path)
		return slot->path;
	*slot = (struct inode_slot){.device = device, .inode = inode, .path = str_copy(path)};
	map->used++;
	return NULL;
}

void inode_map_free(struct inode_map *map)
{
	for (size_t i = 0; i < map->size; i++)
		free(map->slots[i].path);
	free(map->slots);
	*map = (struct inode_map){0};
}
