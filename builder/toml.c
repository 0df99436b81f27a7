/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text line by line: headers choose the table that the lines behind them go to. What TOML
 * forbids is refused where it is met: containerd's readers differ in what they make of it.
 */
#include <string.h>

#include "toml-internal.h"

/* One step of "[a.b.c]": a table, the last one of an array of tables, or a new table. */
static struct toml_node *step_into(struct toml_reader *r, struct toml_node *table, const char *key)
{
	struct toml_node *next = toml_get(table, key);

	if (!next)
		return toml_add(r, table, key);
	if (next->of_tables)
		return &next->children[next->count - 1];
	if (next->type == TOML_TABLE && !next->is_inline)
		return next;
	toml_refuse(r, "'%s' was defined before, in line %d, as something else", key, next->line);
	return NULL;
}

static struct toml_node *define_table(struct toml_reader *r, struct toml_node *in, const char *key)
{
	struct toml_node *table = toml_get(in, key);

	if (!table)
		return toml_add(r, in, key);
	if (table->type == TOML_TABLE && !table->is_inline && !table->has_header &&
	    !table->is_dotted)
		return table;
	toml_refuse(r, "'%s' was defined before, in line %d", key, table->line);
	return NULL;
}

static struct toml_node *define_item(struct toml_reader *r, struct toml_node *in, const char *key)
{
	struct toml_node *array = toml_get(in, key);

	if (array && !array->of_tables) {
		toml_refuse(r, "'%s' was defined before, in line %d", key, array->line);
		return NULL;
	}
	if (!array)
		array = toml_add(r, in, key);
	if (!array)
		return NULL;
	array->type = TOML_ARRAY;
	array->of_tables = true;
	return toml_add(r, array, NULL);
}

static struct toml_node *define(struct toml_reader *r, struct toml_node *root,
                                const struct strv *keys, bool is_item)
{
	struct toml_node *table = root;
	const char *last = keys->items[keys->count - 1];

	for (size_t i = 0; table && i + 1 < keys->count; i++)
		table = step_into(r, table, keys->items[i]);
	if (!table)
		return NULL;
	return is_item ? define_item(r, table, last) : define_table(r, table, last);
}

/* "[a.b]" or "[[a.b]]": ret_table is where the lines behind it go. */
static int read_header(struct toml_reader *r, struct toml_node *root, struct toml_node **ret_table)
{
	CLEANUP_STRV struct strv keys = {0};
	bool is_item = toml_starts(r, "[[");
	size_t begin = r->at;
	int line = r->line;
	struct toml_node *table;

	r->at += is_item ? 2 : 1;
	if (toml_read_keys(r, &keys) < 0)
		return -1;
	if (!toml_starts(r, is_item ? "]]" : "]"))
		return toml_refuse(r, "a header is never closed");
	r->at += is_item ? 2 : 1;
	table = define(r, root, &keys, is_item);
	if (!table || toml_end_line(r) < 0)
		return -1;
	table->has_header = true;
	table->line = line;
	table->begin = begin;
	table->end = table->body_end = r->at;
	*ret_table = table;
	return 0;
}

static int read_lines(struct toml_reader *r, struct toml_node *root)
{
	struct toml_node *table = root;

	for (;;) {
		toml_skip_lines(r);
		if (!r->text[r->at])
			return 0;
		if (r->text[r->at] == '[') {
			if (read_header(r, root, &table) < 0)
				return -1;
			continue;
		}
		if (toml_read_pair(r, table) < 0 || toml_end_line(r) < 0)
			return -1;
		table->body_end = r->at;
	}
}

int toml_parse(struct toml **ret, const char *text, const char *name, struct error *err)
{
	CLEANUP_TOML struct toml *toml = mem_alloc(sizeof(*toml));
	struct toml_reader r = {.name = name, .line = 1, .err = err};

	if (strlen(text) > TOML_MAX_BYTES) {
		error_set(err, "%s: more than %lu bytes", name, TOML_MAX_BYTES);
		return error_code(err, EXIT_INPUT);
	}
	toml->text = str_copy(text);
	toml->root.type = TOML_TABLE;
	toml->root.line = 1;
	r.text = toml->text;
	r.at = toml_bom(toml->text);
	if (toml_check_text(&r) < 0 || read_lines(&r, &toml->root) < 0)
		return -1;
	*ret = STEAL(toml);
	return 0;
}
