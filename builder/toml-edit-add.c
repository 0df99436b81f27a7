/* SPDX-License-Identifier: Apache-2.0 */
/* Where a new line or a new table goes, and how its neighbours are indented and quoted. */
#include <string.h>

#include "toml-edit-internal.h"
#include "toml-internal.h"

/* As the file quotes the names of plugins: "…" or '…'. */
static char *quote_key(const struct toml_edit *e, const char *key)
{
	CLEANUP_FREE char *quoted = toml_quote_key(key);
	bool literal = strstr(e->text, "plugins.'") != NULL;

	if (quoted[0] != '"' || !literal || strpbrk(key, "'\n\r\t") ||
	    strlen(quoted) != strlen(key) + 2)
		return STEAL(quoted);
	return str_format("'%s'", key);
}

/* Keys [from, to) of the path with dots between them. */
static char *join_keys(const struct toml_edit *e, size_t from, size_t to)
{
	CLEANUP_STRV struct strv keys = {0};

	for (size_t i = from; i < to; i++)
		strv_take(&keys, quote_key(e, e->path->items[i]));
	return strv_join(&keys, ".");
}

/* Indentation of the lines in a table's body. */
static char *body_indent(const struct toml_edit *e, const struct toml_node *table)
{
	CLEANUP_FREE char *header = NULL;

	for (size_t i = 0; i < table->count; i++)
		if (table->children[i].end > 0 && !table->children[i].has_header)
			return toml_indent(e->text, table->children[i].begin);
	if (!table->has_header)
		return str_copy("");
	header = toml_indent(e->text, table->begin);
	/* where headers are indented, bodies are by one step more */
	return str_format("%s%s", header, *header == '\t' ? "\t" : *header ? "  " : "");
}

static bool is_comment(const char *text, size_t line)
{
	return text[line + strspn(text + line, " \t")] == '#';
}

static bool is_blank(const char *text, size_t line)
{
	const char *s = text + line + strspn(text + line, " \t");

	return !*s || *s == '\n' || *s == '\r';
}

/* Behind the comment lines that stand here, if a blank line or the end sets them off. */
static size_t skip_comments(const char *text, size_t at)
{
	size_t end = at;

	while (text[end] && is_comment(text, end))
		end = toml_line_end(text, end);
	return is_blank(text, end) ? end : at;
}

/* A key at the top of a file that has none there yet: behind the comment that the file begins with.
 */
static char *add_first_line(const struct toml_edit *e, const char *line)
{
	size_t first = toml_bom(e->text), at = skip_comments(e->text, first);
	bool apart = e->text[at] && !is_blank(e->text, at);
	CLEANUP_FREE char *lines =
		str_format("%s%s%s", at > first ? e->newline : "", line, apart ? e->newline : "");

	return toml_insert_line(e, at, lines);
}

/* A line in the body of the table that the place's lines stand in. */
static char *add_line(const struct toml_edit *e, const struct toml_place *p, const char *value)
{
	CLEANUP_FREE char *keys = join_keys(e, p->owner_depth, e->path->count);
	CLEANUP_FREE char *indent = body_indent(e, p->owner);
	CLEANUP_FREE char *line = str_format("%s%s = %s", indent, keys, value);

	if (p->owner->body_end == 0)
		return add_first_line(e, line);
	return toml_insert_line(e, p->owner->body_end, line);
}

/* Behind the last line of a table and of all tables below it. */
static size_t tree_end(const struct toml_node *node)
{
	size_t end = node->has_header ? node->body_end : 0;

	for (size_t i = 0; i < node->count; i++) {
		size_t below = tree_end(&node->children[i]);

		end = below > end ? below : end;
	}
	return end;
}

static size_t header_place(const struct toml_edit *e, const struct toml_place *p)
{
	size_t end = tree_end(p->node);

	if (p->depth == 0)
		return strlen(e->text);
	return skip_comments(e->text, end > 0 ? end : p->owner->body_end);
}

static const struct toml_node *last_header_below(const struct toml_node *table)
{
	for (size_t i = table->count; i-- > 0;)
		if (table->children[i].has_header && table->children[i].type == TOML_TABLE)
			return &table->children[i];
	return NULL;
}

/* Indentation of the header and of the lines of a new table below 'table'. */
static void choose_indents(const struct toml_edit *e, const struct toml_node *table,
                           char **ret_header, char **ret_body)
{
	const struct toml_node *like = last_header_below(table);
	CLEANUP_FREE char *above = table->has_header ? toml_indent(e->text, table->begin) : NULL;

	if (like) {
		*ret_header = toml_indent(e->text, like->begin);
		*ret_body = body_indent(e, like);
	} else if (above && *above) {
		*ret_header = body_indent(e, table);
		*ret_body = str_format("%s%s", *ret_header, *above == '\t' ? "\t" : "  ");
	} else {
		CLEANUP_FREE char *body = table->has_header ? body_indent(e, table) : str_copy("");

		*ret_header = str_copy("");
		*ret_body = STEAL(body);
	}
}

static char *add_table(const struct toml_edit *e, const struct toml_place *p, const char *value)
{
	size_t count = e->path->count, at = header_place(e, p);
	size_t before = at > 0 ? toml_line_start(e->text, at - 1) : 0;
	CLEANUP_FREE char *header = NULL, *body = NULL, *lines = NULL;
	CLEANUP_FREE char *table = join_keys(e, 0, count - 1);
	CLEANUP_FREE char *key = join_keys(e, count - 1, count);

	choose_indents(e, p->node, &header, &body);
	lines = str_format("%s%s[%s]%s%s%s = %s%s",
	                   at > 0 && !is_blank(e->text, before) ? e->newline : "", header, table,
	                   e->newline, body, key, value, is_blank(e->text, at) ? "" : e->newline);
	return toml_insert_line(e, at, lines);
}

char *toml_edit_add(const struct toml_edit *e, const struct toml_place *p, const char *value)
{
	bool has_table = p->depth + 1 == e->path->count;
	bool has_body = p->depth == 0 || p->node->has_header || p->node->is_dotted;

	/* a table that only the headers below it imply gets a header of its own */
	return has_table && has_body ? add_line(e, p, value) : add_table(e, p, value);
}
