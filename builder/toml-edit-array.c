/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "toml-edit-internal.h"

/* Behind blanks, comments and newlines. */
static size_t skip_between(const char *text, size_t at)
{
	for (;;) {
		at += strspn(text + at, " \t\r\n");
		if (text[at] != '#')
			return at;
		at += strcspn(text + at, "\n");
	}
}

static char *add_on_new_line(const struct toml_edit *e, const struct toml_node *last,
                             const char *value)
{
	size_t next = skip_between(e->text, last->end), comma = e->text[next] == ',' ? next : 0;
	size_t at = toml_line_end(e->text, comma ? comma : last->end);
	CLEANUP_FREE char *indent = toml_indent(e->text, last->begin);
	CLEANUP_FREE char *line =
		str_format("%s%s%s%s", indent, value, comma ? "," : "", e->newline);
	CLEANUP_FREE char *added = toml_splice(e->text, at, at, line);

	return comma ? STEAL(added) : toml_splice(added, last->end, last->end, ",");
}

static char *add_item(const struct toml_edit *e, const struct toml_node *array, const char *value)
{
	const struct toml_node *last = array->count ? &array->children[array->count - 1] : NULL;
	size_t close = array->end - 1, line;
	CLEANUP_FREE char *more = str_format(", %s", value);

	if (!last)
		return toml_splice(e->text, close, close, value);
	line = toml_line_start(e->text, close);
	/* each item has a line of its own, and so has the bracket */
	if (line > last->end && line + strspn(e->text + line, " \t") == close &&
	    toml_line_end(e->text, last->end) <= close)
		return add_on_new_line(e, last, value);
	return toml_splice(e->text, last->end, last->end, more);
}

static int find_array(const struct toml_edit *e, struct toml_place *ret)
{
	if (toml_edit_find(ret, e) < 0)
		return -1;
	if (ret->depth == e->path->count && (ret->node->type != TOML_ARRAY || ret->node->of_tables))
		return toml_edit_refuse(e, ret->node->line, "'%s' is no list", ret->node->key);
	return 0;
}

static int finish(const struct toml_edit *e, char **text, char **edited, const struct strv *want)
{
	CLEANUP_FREE char *items = strv_join(want, ", ");
	CLEANUP_FREE char *shown = str_format("[%s]", items);

	if (toml_edit_check(e, *edited, shown) < 0)
		return -1;
	free(*text);
	*text = STEAL(*edited);
	return 0;
}

int toml_add_item(char **text, const struct strv *path, const char *value, const char *name,
                  struct error *err)
{
	struct toml_edit e = {.text = *text, .path = path, .name = name, .err = err};
	CLEANUP_TOML struct toml *toml = NULL;
	CLEANUP_FREE char *edited = NULL, *item = NULL, *list = str_format("[%s]", value);
	CLEANUP_STRV struct strv want = {0};
	struct toml_place p = {0};

	if (toml_edit_start(&e, &toml) < 0 || toml_edit_show(&item, &e, value) < 0 ||
	    find_array(&e, &p) < 0)
		return -1;
	if (p.depth < path->count)
		return toml_set(text, path, list, name, err);
	for (size_t i = 0; i < p.node->count; i++)
		strv_take(&want, toml_show(&p.node->children[i]));
	strv_take(&want, STEAL(item));
	edited = add_item(&e, p.node, value);
	return finish(&e, text, &edited, &want);
}

/* The text without one item and the comma that parts it from the next one. */
static char *without_item(const struct toml_edit *e, const struct toml_node *array, size_t index)
{
	const struct toml_node *item = &array->children[index];
	size_t begin = item->begin, end = item->end, start = toml_line_start(e->text, begin);
	size_t next = skip_between(e->text, end);
	bool is_last = index + 1 == array->count;

	if (next < array->end && e->text[next] == ',') {
		/* a comment before the comma stays where it is */
		end = memchr(e->text + end, '#', next - end) ? end : next + 1;
		if (end == item->end)
			return NULL;
	}
	if (start > array->begin && start + strspn(e->text + start, " \t") == begin &&
	    (e->text[end + strspn(e->text + end, " \t\r")] == '\n'))
		return toml_splice(e->text, start, toml_line_end(e->text, end), "");
	if (is_last && end == item->end && index > 0 &&
	    !memchr(e->text + item[-1].end, '#', begin - item[-1].end))
		begin = item[-1].end; /* with the comma before it */
	else if (!is_last)
		end += strspn(e->text + end, " \t");
	return toml_splice(e->text, begin, end, "");
}

int toml_remove_item(char **text, const struct strv *path, const char *item, const char *name,
                     struct error *err)
{
	for (;;) {
		struct toml_edit e = {.text = *text, .path = path, .name = name, .err = err};
		CLEANUP_TOML struct toml *toml = NULL;
		CLEANUP_FREE char *edited = NULL;
		CLEANUP_STRV struct strv want = {0};
		struct toml_place p = {0};
		size_t found;

		if (toml_edit_start(&e, &toml) < 0 || find_array(&e, &p) < 0)
			return -1;
		if (p.depth < path->count)
			return 0;
		for (found = 0; found < p.node->count; found++)
			if (p.node->children[found].type == TOML_STRING &&
			    strcmp(p.node->children[found].text, item) == 0)
				break;
		if (found == p.node->count)
			return 0;
		for (size_t i = 0; i < p.node->count; i++)
			if (i != found)
				strv_take(&want, toml_show(&p.node->children[i]));
		edited = without_item(&e, p.node, found);
		if (!edited)
			return toml_edit_refuse(&e, p.node->children[found].line,
			                        "'%s' has a comment before its comma, which is "
			                        "not edited",
			                        item);
		if (finish(&e, text, &edited, &want) < 0)
			return -1;
	}
}
