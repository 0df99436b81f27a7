/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "toml-internal.h"

struct toml_node *toml_get(struct toml_node *table, const char *key)
{
	for (size_t i = 0; i < table->count; i++)
		if (str_equal(table->children[i].key, key))
			return &table->children[i];
	return NULL;
}

const struct toml_node *toml_child(const struct toml_node *table, const char *key)
{
	for (size_t i = 0; i < table->count; i++)
		if (str_equal(table->children[i].key, key))
			return &table->children[i];
	return NULL;
}

const struct toml_node *toml_find_path(const struct toml_node *node, const char *const *keys)
{
	for (; node && *keys; keys++)
		node = node->type == TOML_TABLE ? toml_child(node, *keys) : NULL;
	return node;
}

static int check_bounds(struct toml_reader *r, const struct toml_node *node)
{
	if (++r->nodes > TOML_MAX_NODES)
		return toml_refuse(r, "more than %d keys and values", TOML_MAX_NODES);
	if (node->depth > TOML_MAX_DEPTH)
		return toml_refuse(r, "nested more than %d deep", TOML_MAX_DEPTH);
	if (node->path_bytes > TOML_MAX_PATH)
		return toml_refuse(r, "keys of more than %d bytes", TOML_MAX_PATH);
	return 0;
}

struct toml_node *toml_add(struct toml_reader *r, struct toml_node *parent, const char *key)
{
	struct toml_node node = {
		.type = TOML_TABLE,
		.line = r->line,
		.depth = parent->depth + 1,
		.path_bytes = parent->path_bytes + (key ? strlen(key) : 0) + 1,
	};

	if (check_bounds(r, &node) < 0)
		return NULL;
	/* doubled when it is full, which is at the powers of two */
	if ((parent->count & (parent->count - 1)) == 0)
		parent->children = mem_grow(parent->children, parent->count ? parent->count * 2 : 1,
		                            sizeof(node));
	node.key = key ? str_copy(key) : NULL;
	parent->children[parent->count] = node;
	return &parent->children[parent->count++];
}

void toml_node_free(struct toml_node *node)
{
	for (size_t i = 0; i < node->count; i++)
		toml_node_free(&node->children[i]);
	free(node->children);
	free(node->key);
	free(node->text);
}

void toml_free(struct toml *toml)
{
	if (!toml)
		return;
	toml_node_free(&toml->root);
	free(toml->text);
	free(toml);
}
