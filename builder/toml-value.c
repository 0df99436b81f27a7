/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "toml-internal.h"

static int read_items(struct toml_reader *r, struct toml_node *array)
{
	for (;;) {
		struct toml_node *item;

		toml_skip_lines(r);
		if (r->text[r->at] == ']')
			return 0;
		item = toml_add(r, array, NULL);
		if (!item || toml_read_value(r, item) < 0)
			return -1;
		toml_skip_lines(r);
		if (r->text[r->at] == ']')
			return 0;
		if (r->text[r->at] != ',')
			return toml_refuse(r, "an array goes on with neither ',' nor ']'");
		r->at++;
	}
}

static int read_inline_pairs(struct toml_reader *r, struct toml_node *table)
{
	toml_skip_blanks(r);
	if (r->text[r->at] == '}')
		return 0;
	for (;;) {
		if (toml_read_pair(r, table) < 0)
			return -1;
		toml_skip_blanks(r);
		if (r->text[r->at] == '}')
			return 0;
		if (r->text[r->at] != ',')
			return toml_refuse(r, "an inline table goes on with neither ',' nor '}'");
		r->at++;
	}
}

static void mark_inline(struct toml_node *node)
{
	if (node->type != TOML_TABLE && node->type != TOML_ARRAY)
		return;
	node->is_inline = true;
	for (size_t i = 0; i < node->count; i++)
		mark_inline(&node->children[i]);
}

static int read_brackets(struct toml_reader *r, struct toml_node *node)
{
	bool is_array = r->text[r->at] == '[';

	node->type = is_array ? TOML_ARRAY : TOML_TABLE;
	r->at++;
	if ((is_array ? read_items(r, node) : read_inline_pairs(r, node)) < 0)
		return -1;
	r->at++;
	mark_inline(node);
	return 0;
}

int toml_read_value(struct toml_reader *r, struct toml_node *node)
{
	char c = r->text[r->at];
	int rc;

	node->begin = r->at;
	node->line = r->line;
	if (c == '"' || c == '\'') {
		node->type = TOML_STRING;
		rc = toml_read_string(r, true, &node->text);
	} else if (c == '[' || c == '{') {
		rc = read_brackets(r, node);
	} else {
		rc = toml_read_scalar(r, node);
	}
	node->end = r->at;
	return rc;
}

/* One step of "a.b.c = 1" into a table that such a key may add to. */
static struct toml_node *step_into(struct toml_reader *r, struct toml_node *table, const char *key)
{
	struct toml_node *next = toml_get(table, key);

	if (!next)
		next = toml_add(r, table, key);
	else if (next->type != TOML_TABLE || next->is_inline || next->has_header)
		next = (toml_refuse(r, "'%s' was defined before, in line %d", key, next->line),
		        NULL);
	if (next)
		next->is_dotted = true;
	return next;
}

int toml_read_pair(struct toml_reader *r, struct toml_node *table)
{
	CLEANUP_STRV struct strv keys = {0};
	struct toml_node *node;

	if (toml_read_keys(r, &keys) < 0)
		return -1;
	for (size_t i = 0; table && i + 1 < keys.count; i++)
		table = step_into(r, table, keys.items[i]);
	if (!table)
		return -1;
	node = toml_get(table, keys.items[keys.count - 1]);
	if (node)
		return toml_refuse(r, "'%s' was defined before, in line %d", node->key, node->line);
	if (r->text[r->at] != '=')
		return toml_refuse(r, "a key without '='");
	r->at++;
	toml_skip_blanks(r);
	node = toml_add(r, table, keys.items[keys.count - 1]);
	return node ? toml_read_value(r, node) : -1;
}
