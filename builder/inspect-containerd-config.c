/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A light reading of containerd's configuration: section headers, and four keys of one line
 * (imports and disabled_plugins may take several). It knows no more TOML than that: keys with dots,
 * runtimes written as inline tables and multi-line strings are not seen.
 */
#include <string.h>

#include "inspect-internal.h"

#define LISTED_MAX 256 /* of anything in one file */

static void add_bounded(struct strv *to, const char *text)
{
	if (to->count < LISTED_MAX && !strv_has(to, text))
		strv_add(to, text);
}

/* Cuts a comment off, but not inside of quotes. */
static void cut_comment(char *line)
{
	for (char *p = line; *p; p++) {
		const char *end = *p == '"' || *p == '\'' ? strchr(p + 1, *p) : NULL;

		if (end) {
			p += end - p;
		} else if (*p == '#') {
			*p = '\0';
			return;
		}
	}
}

/* "plugins.'io.containerd.cri.v1.runtime'.containerd" into its keys. */
static struct strv split_keys(const char *text)
{
	struct strv keys = {0};

	while (*text && keys.count < LISTED_MAX) {
		bool quoted = *text == '"' || *text == '\'';
		const char *ends = !quoted ? ". \t" : *text == '"' ? "\"" : "'";
		size_t length = strcspn(text + quoted, ends);

		strv_take(&keys, mem_copy(text + quoted, length));
		text += quoted + length;
		text += quoted && *text;
		text += strspn(text, ". \t");
	}
	return keys;
}

/* The strings of a list, of any number of lines. */
static void add_strings(struct strv *to, const char *text)
{
	while ((text = strpbrk(text, "\"'"))) {
		const char *end = strchr(text + 1, *text);
		CLEANUP_FREE char *word = NULL;

		if (!end)
			return;
		word = mem_copy(text + 1, (size_t)(end - text - 1));
		add_bounded(to, word);
		text = end + 1;
	}
}

static void take_header(struct containerd_config *c, const char *line)
{
	CLEANUP_FREE char *inner = str_copy(line + 1);
	CLEANUP_STRV struct strv keys = {0};

	if (!str_ends(inner, "]"))
		return;
	inner[strlen(inner) - 1] = '\0';
	keys = split_keys(str_trim(inner));
	if (keys.count == 5 && strcmp(keys.items[0], "plugins") == 0 &&
	    strcmp(keys.items[2], "containerd") == 0 && strcmp(keys.items[3], "runtimes") == 0) {
		CLEANUP_FREE char *runtime = str_format("%s %s", keys.items[4], keys.items[1]);

		add_bounded(&c->runtimes, runtime);
	}
}

/* The value of "key = value", or NULL. */
static char *value_of(char *line, const char *key)
{
	size_t length = strlen(key);

	if (strncmp(line, key, length) != 0)
		return NULL;
	line += length;
	line += strspn(line, " \t");
	return *line == '=' ? str_trim(line + 1) : NULL;
}

/* A list that goes on in the next line. */
enum open_list { NO_LIST, IMPORTS, DISABLED };

/* More of a list, or its begin; what is open after this line. */
static enum open_list take_list(struct containerd_config *c, enum open_list list, const char *text)
{
	add_strings(list == IMPORTS ? &c->imports : &c->disabled, text);
	return strchr(text, ']') ? NO_LIST : list;
}

static enum open_list take_key(struct containerd_config *c, char *line)
{
	const char *imports = value_of(line, "imports");
	const char *disabled = value_of(line, "disabled_plugins");
	const char *runtime = value_of(line, "default_runtime_name");
	const char *version = value_of(line, "version");
	CLEANUP_STRV struct strv name = {0};
	uint64_t number;

	if (imports || disabled)
		return take_list(c, imports ? IMPORTS : DISABLED, imports ? imports : disabled);
	if (version && !c->version && str_parse_uint(version, 1000, &number) == 0)
		c->version = (int)number;
	if (runtime)
		add_strings(&name, runtime);
	if (name.count) {
		free(c->default_runtime);
		c->default_runtime = str_copy(name.items[0]);
	}
	return NO_LIST;
}

void inspect_containerd_parse(struct containerd_config *ret, const char *text)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\r\n");
	enum open_list list = NO_LIST;

	for (size_t i = 0; i < lines.count; i++) {
		char *line;

		cut_comment(lines.items[i]);
		line = str_trim(lines.items[i]);
		if (list != NO_LIST)
			list = take_list(ret, list, line);
		else if (*line == '[')
			take_header(ret, line);
		else
			list = take_key(ret, line);
	}
}

void inspect_containerd_free(struct containerd_config *c)
{
	strv_free(&c->imports);
	strv_free(&c->runtimes);
	strv_free(&c->disabled);
	free(c->default_runtime);
	*c = (struct containerd_config){0};
}
