/* SPDX-License-Identifier: Apache-2.0 */
/* A line as tokens, and tokens as names and values. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cmdline-internal.h"

/* No architecture reads more than 4096 bytes; what an image says beyond this is not looked at. */
#define MAX_LINE_LENGTH 16384

void cmdline_param_free(struct param *p)
{
	free(p->name);
	free(p->value);
}

static void drop_last_quote(char *s)
{
	size_t length = strlen(s);

	if (length && s[length - 1] == '"')
		s[length - 1] = '\0';
}

struct param cmdline_param_parse(const char *token)
{
	bool quoted = *token == '"';
	CLEANUP_FREE char *copy = str_copy(token + (quoted ? 1 : 0));
	struct param p = {0};
	char *equals;

	if (quoted)
		drop_last_quote(copy);
	/* a '=' in first place belongs to the name */
	equals = *copy ? strchr(copy + 1, '=') : NULL;
	if (equals) {
		char *value = equals + 1;

		*equals = '\0';
		if (*value == '"') {
			value++;
			drop_last_quote(value);
		}
		p.value = str_copy(value);
	}
	p.name = str_copy(copy);
	for (char *c = p.name; *c; c++)
		if (*c == '-')
			*c = '_';
	return p;
}

struct strv cmdline_split(const char *line)
{
	const char *end = line + strnlen(line, MAX_LINE_LENGTH);
	struct strv tokens = {0};

	while (line < end) {
		const char *start = line;
		bool in_quotes = false;

		while (line < end && (in_quotes || !isspace((unsigned char)*line)))
			if (*line++ == '"')
				in_quotes = !in_quotes;
		if (line > start)
			strv_take(&tokens, mem_copy(start, (size_t)(line - start)));
		else
			line++;
	}
	return tokens;
}

char *cmdline_join(const struct strv *tokens)
{
	return strv_join(tokens, " ");
}

size_t cmdline_kernel_part(const struct strv *tokens)
{
	for (size_t i = 0; i < tokens->count; i++)
		if (strcmp(tokens->items[i], "--") == 0)
			return i;
	return tokens->count;
}

size_t cmdline_count(const struct strv *tokens, const char *token)
{
	CLEANUP_PARAM struct param want = cmdline_param_parse(token);
	size_t end = cmdline_kernel_part(tokens), count = 0;

	for (size_t i = 0; i < end; i++) {
		CLEANUP_PARAM struct param p = cmdline_param_parse(tokens->items[i]);

		if (str_equal(p.name, want.name) && str_equal(p.value, want.value))
			count++;
	}
	return count;
}

ssize_t cmdline_last_index(const struct strv *tokens, const char *name, bool valued)
{
	for (size_t i = cmdline_kernel_part(tokens); i-- > 0;) {
		CLEANUP_PARAM struct param p = cmdline_param_parse(tokens->items[i]);

		if (str_equal(p.name, name) && (p.value || !valued))
			return (ssize_t)i;
	}
	return -1;
}

char *cmdline_value(const struct strv *tokens, const char *name)
{
	CLEANUP_PARAM struct param want = cmdline_param_parse(name);
	ssize_t at = cmdline_last_index(tokens, want.name, false);
	struct param p;

	if (at < 0)
		return NULL;
	p = cmdline_param_parse(tokens->items[at]);
	free(p.name);
	return p.value ? p.value : str_copy("");
}

struct strv cmdline_all_items(const struct strv *tokens, const char *name)
{
	size_t end = cmdline_kernel_part(tokens);
	struct strv items = {0};

	for (size_t i = 0; i < end; i++) {
		CLEANUP_PARAM struct param p = cmdline_param_parse(tokens->items[i]);
		CLEANUP_STRV struct strv some = {0};

		if (!p.value || !str_equal(p.name, name))
			continue;
		some = strv_split(p.value, ",");
		strv_add_all(&items, &some);
	}
	return items;
}

struct strv cmdline_module_blacklist(const struct strv *tokens)
{
	/* the kernel refuses a bare "module_blacklist", and keeps what it had */
	ssize_t at = cmdline_last_index(tokens, "module_blacklist", true);
	CLEANUP_PARAM struct param p = {0};

	if (at < 0)
		return (struct strv){0};
	p = cmdline_param_parse(tokens->items[at]);
	return strv_split(p.value, ",");
}
