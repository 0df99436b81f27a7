/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether libkmod can be given a modules.*.bin of the guest: its index reader trusts every
 * offset in it.
 */
#include <stdint.h>
#include <string.h>

#include "modules-internal.h"

#define MAX_KEY_LENGTH  4096
#define MAX_INDEX_DEPTH 1024
#define MAX_INDEX_TEXT  (UINT64_C(256) << 20)

/* The node reference of a modules.*.bin: flags above, offset below (kmod's libkmod-index.c). */
#define NODE_PREFIX 0x80000000U
#define NODE_VALUES 0x40000000U
#define NODE_CHILDS 0x20000000U
#define NODE_OFFSET 0x0fffffffU

struct index_walk {
	const uint8_t *data;
	size_t size;
	uint64_t nodes; /* visited so far */
	uint64_t text;  /* what a dump of all keys would be long */
};

static bool walk_u32(const struct index_walk *w, size_t *at, uint32_t *ret)
{
	const uint8_t *p = w->data + *at;

	if (*at > w->size || w->size - *at < 4)
		return false;
	*ret = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
	*at += 4;
	return true;
}

/* Steps over a string with its NUL. */
static bool walk_string(const struct index_walk *w, size_t *at, size_t *ret_length)
{
	size_t length;

	if (*at >= w->size)
		return false;
	length = strnlen((const char *)w->data + *at, w->size - *at);
	*at += length + 1;
	*ret_length = length;
	return *at <= w->size;
}

static bool walk_values(struct index_walk *w, size_t at, size_t key_length)
{
	uint32_t count, priority;
	size_t length;

	if (!walk_u32(w, &at, &count))
		return false;
	for (; count > 0; count--) {
		if (!walk_u32(w, &at, &priority) || !walk_string(w, &at, &length))
			return false;
		w->text += key_length + length;
		if (w->text > MAX_INDEX_TEXT)
			return false;
	}
	return true;
}

/* Everything that libkmod could reach from this node lies inside the file, and is a tree. */
static bool walk_node(struct index_walk *w, uint32_t node, size_t key_length, unsigned depth)
{
	size_t at = node & NODE_OFFSET, length = 0, children;
	unsigned first = 0, count = 0;

	if (at == 0)
		return true; /* no child for this byte */
	if (++w->nodes > w->size || depth > MAX_INDEX_DEPTH)
		return false;
	if (node & NODE_PREFIX && !walk_string(w, &at, &length))
		return false;
	key_length += length;
	if (key_length > MAX_KEY_LENGTH)
		return false;
	if (node & NODE_CHILDS) {
		if (at > w->size || w->size - at < 2 || w->data[at] > w->data[at + 1] ||
		    w->data[at + 1] > 127)
			return false;
		first = w->data[at];
		count = w->data[at + 1] - first + 1U;
		at += 2;
	}
	children = at;
	if (node & NODE_VALUES && !walk_values(w, at + 4 * (size_t)count, key_length))
		return false;
	for (unsigned i = 0; i < count; i++) {
		uint32_t child;

		if (!walk_u32(w, &children, &child) ||
		    !walk_node(w, child, key_length + 1, depth + 1))
			return false;
	}
	return true;
}

bool modules_index_is_sound(const void *data, size_t size)
{
	struct index_walk w = {.data = data, .size = size};
	size_t at = 0;
	uint32_t magic, version, root;

	return walk_u32(&w, &at, &magic) && walk_u32(&w, &at, &version) &&
	       walk_u32(&w, &at, &root) && magic == 0xb007f457 && version >> 16 == 2 &&
	       walk_node(&w, root, 0, 0);
}
