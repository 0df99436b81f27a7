/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "toml-edit-internal.h"
#include "toml-internal.h"

char *toml_splice(const char *text, size_t begin, size_t end, const char *insert)
{
	return str_format("%.*s%s%s", (int)begin, text, insert, text + end);
}

size_t toml_line_start(const char *text, size_t at)
{
	size_t first = toml_bom(text);

	while (at > first && text[at - 1] != '\n')
		at--;
	return at;
}

size_t toml_line_end(const char *text, size_t at)
{
	at += strcspn(text + at, "\n");
	return at + (text[at] == '\n');
}

char *toml_indent(const char *text, size_t at)
{
	size_t start = toml_line_start(text, at);

	return mem_copy(text + start, strspn(text + start, " \t"));
}

char *toml_insert_line(const struct toml_edit *e, size_t at, const char *line)
{
	bool open = at > toml_bom(e->text) && e->text[at - 1] != '\n';
	CLEANUP_FREE char *whole = str_format("%s%s%s", open ? e->newline : "", line, e->newline);

	return toml_splice(e->text, at, at, whole);
}

int toml_edit_start(struct toml_edit *e, struct toml **ret_toml)
{
	const char *newline = strchr(e->text, '\n');

	if (toml_parse(ret_toml, e->text, e->name, e->err) < 0)
		return -1;
	e->toml = *ret_toml;
	e->newline = newline && newline > e->text && newline[-1] == '\r' ? "\r\n" : "\n";
	return 0;
}

int toml_edit_find(struct toml_place *ret, const struct toml_edit *e)
{
	struct toml_place p = {.node = &e->toml->root, .owner = &e->toml->root};

	while (p.depth < e->path->count) {
		const struct toml_node *next;

		if (p.node->type != TOML_TABLE)
			return toml_edit_refuse(e, p.node->line, "'%s' is no table", p.node->key);
		if (p.node->is_inline)
			return toml_edit_refuse(
				e, p.node->line,
				"'%s' is a table in braces, which is not edited; write it with a header",
				p.node->key);
		next = toml_child(p.node, e->path->items[p.depth]);
		if (!next)
			break;
		p.node = next;
		p.depth++;
		if (next->has_header) {
			p.owner = next;
			p.owner_depth = p.depth;
		}
	}
	*ret = p;
	return 0;
}

/* All lines of a text but that of the path. */
static int list_others(struct strv *ret, const struct toml_node *root, const char *path)
{
	CLEANUP_FREE char *own = str_format("%s = ", path);
	int found = 0;

	toml_flatten(root, ret);
	for (size_t i = ret->count; i-- > 0;) {
		if (!str_starts(ret->items[i], own))
			continue;
		strv_remove(ret, i);
		found++;
	}
	return found;
}

static bool same_lists(const struct strv *a, const struct strv *b)
{
	for (size_t i = 0; i < a->count && i < b->count; i++)
		if (strcmp(a->items[i], b->items[i]) != 0)
			return false;
	return a->count == b->count;
}

static char *show_path(const struct strv *path)
{
	CLEANUP_STRV struct strv keys = {0};

	for (size_t i = 0; i < path->count; i++)
		strv_take(&keys, toml_quote_key(path->items[i]));
	return strv_join(&keys, ".");
}

int toml_edit_show(char **ret, const struct toml_edit *e, const char *value)
{
	CLEANUP_FREE char *line = str_format("v = %s\n", value);
	CLEANUP_TOML struct toml *toml = NULL;

	if (toml_parse(&toml, line, "the new value", e->err) < 0)
		return -1;
	if (toml->root.count != 1)
		return toml_edit_refuse(e, 1, "'%s' is more than a value", value);
	*ret = toml_show(&toml->root.children[0]);
	return 0;
}

int toml_edit_check(const struct toml_edit *e, const char *text, const char *want)
{
	CLEANUP_TOML struct toml *after = NULL;
	CLEANUP_STRV struct strv others = {0}, others_after = {0};
	CLEANUP_FREE char *path = show_path(e->path), *value = NULL;
	struct toml_edit again = *e;
	struct toml_place p = {0};

	if (toml_parse(&after, text, e->name, e->err) < 0)
		return error_prefix(e->err, "the edit of '%s' cannot be read", path);
	list_others(&others, &e->toml->root, path);
	if (list_others(&others_after, &after->root, path) != 1 ||
	    !same_lists(&others, &others_after))
		return toml_edit_refuse(e, 1, "setting '%s' would change more than that", path);
	again.toml = after;
	if (toml_edit_find(&p, &again) < 0)
		return -1;
	value = toml_show(p.node);
	if (strcmp(value, want) != 0)
		return toml_edit_refuse(e, p.node->line, "'%s' would be %s and not %s", path, value,
		                        want);
	return 0;
}

int toml_set(char **text, const struct strv *path, const char *value, const char *name,
             struct error *err)
{
	struct toml_edit e = {.text = *text, .path = path, .name = name, .err = err};
	CLEANUP_TOML struct toml *toml = NULL;
	CLEANUP_FREE char *edited = NULL, *want = NULL;
	struct toml_place p = {0};

	if (toml_edit_start(&e, &toml) < 0 || toml_edit_show(&want, &e, value) < 0 ||
	    toml_edit_find(&p, &e) < 0)
		return -1;
	if (p.depth < path->count)
		edited = toml_edit_add(&e, &p, value);
	else if (p.node->type == TOML_TABLE || p.node->of_tables)
		return toml_edit_refuse(&e, p.node->line, "'%s' is a table", p.node->key);
	else
		edited = toml_splice(*text, p.node->begin, p.node->end, value);
	if (toml_edit_check(&e, edited, want) < 0)
		return -1;
	free(*text);
	*text = STEAL(edited);
	return 0;
}

#undef toml_edit_refuse /* what the analyzer is told of it */
int toml_edit_refuse(const struct toml_edit *e, int line, const char *format, ...)
{
	const struct toml_reader r = {.line = line, .name = e->name, .err = e->err};
	CLEANUP_FREE char *why = NULL;
	va_list args;

	va_start(args, format);
	why = str_vformat(format, args);
	va_end(args);
	return toml_refuse(&r, "%s", why);
}
