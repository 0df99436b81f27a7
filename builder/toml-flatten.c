/* SPDX-License-Identifier: Apache-2.0 */
/* The same for every way of writing the same: what two files are compared by. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "toml-internal.h"

static void print_escaped(FILE *f, unsigned char c)
{
	static const char from[] = "\b\t\n\f\r\"\\", to[] = "btnfr\"\\";
	const char *known = c ? strchr(from, c) : NULL;

	if (known)
		fprintf(f, "\\%c", to[known - from]);
	else if (c < ' ' || c == 0x7f)
		fprintf(f, "\\u%04X", c);
	else
		fputc(c, f);
}

static FILE *open_text(char **ret, size_t *size)
{
	FILE *f = open_memstream(ret, size);

	if (!f)
		abort(); /* out of memory ends the program */
	return f;
}

char *toml_quote(const char *text)
{
	char *quoted = NULL;
	size_t size = 0;
	FILE *f = open_text(&quoted, &size);

	fputc('"', f);
	for (; *text; text++)
		print_escaped(f, (unsigned char)*text);
	fputc('"', f);
	(void)fclose(f);
	return quoted;
}

static bool is_bare(const char *key)
{
	if (!*key)
		return false;
	for (; *key; key++)
		if (!isalnum((unsigned char)*key) && *key != '_' && *key != '-')
			return false;
	return true;
}

char *toml_quote_key(const char *key)
{
	return is_bare(key) ? str_copy(key) : toml_quote(key);
}

static char *show_integer(const char *text)
{
	long long number;

	toml_integer(text, &number); /* it fits: the reader has seen to that */
	return str_format("%lld", number);
}

static char *show_float(const char *text)
{
	CLEANUP_FREE char *plain = toml_plain_number(text);
	CLEANUP_FREE char *shown = str_format("%.17g", strtod(plain, NULL));

	/* 1.0 is not 1 */
	return str_format("%s%s", shown, strpbrk(shown, ".en") ? "" : ".0");
}

static char *show_date(const char *text)
{
	char *plain = str_copy(text);

	for (char *p = plain; (p = strpbrk(p, " tz")); p++)
		*p = *p == 'z' ? 'Z' : 'T';
	return plain;
}

static char *show_list(const struct toml_node *node)
{
	CLEANUP_STRV struct strv items = {0};
	CLEANUP_FREE char *joined = NULL;
	bool is_table = node->type == TOML_TABLE;

	for (size_t i = 0; i < node->count; i++) {
		CLEANUP_FREE char *value = toml_show(&node->children[i]);
		CLEANUP_FREE char *key = NULL;

		if (!is_table) {
			strv_add(&items, value);
			continue;
		}
		key = toml_quote_key(node->children[i].key);
		strv_addf(&items, "%s = %s", key, value);
	}
	if (is_table)
		strv_sort(&items);
	joined = strv_join(&items, ", ");
	return is_table ? str_format("{%s}", joined) : str_format("[%s]", joined);
}

char *toml_show(const struct toml_node *node)
{
	switch (node->type) {
	case TOML_STRING:
		return toml_quote(node->text);
	case TOML_INTEGER:
		return show_integer(node->text);
	case TOML_FLOAT:
		return show_float(node->text);
	case TOML_DATE:
		return show_date(node->text);
	case TOML_BOOL:
		return str_copy(node->text);
	default:
		return show_list(node);
	}
}

static void flatten(const struct toml_node *node, const char *path, struct strv *ret)
{
	for (size_t i = 0; i < node->count; i++) {
		const struct toml_node *child = &node->children[i];
		CLEANUP_FREE char *key = toml_quote_key(child->key);
		CLEANUP_FREE char *below = str_format("%s%s%s", path, *path ? "." : "", key);
		CLEANUP_FREE char *value = NULL;

		if (child->type == TOML_TABLE) {
			flatten(child, below, ret);
			continue;
		}
		value = toml_show(child);
		strv_addf(ret, "%s = %s", below, value);
	}
}

void toml_flatten(const struct toml_node *root, struct strv *ret)
{
	flatten(root, "", ret);
	strv_sort(ret);
}
