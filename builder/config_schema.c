/* SPDX-License-Identifier: Apache-2.0 */
/* The table of keys that the caller gives: what it knows, allows, and what a typo was meant to be.
 */
#include <string.h>

#include "config_internal.h"
#include "str.h"

/* Levenshtein's distance, at most 255: how many letters to change, add or drop. */
static size_t distance(const char *a, const char *b)
{
	size_t row[CONFIG_SHOWN_LENGTH + 1], length = strlen(b);

	if (length > CONFIG_SHOWN_LENGTH || strlen(a) > CONFIG_SHOWN_LENGTH)
		return 255;
	for (size_t j = 0; j <= length; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= length; j++) {
			size_t best = corner + (a[i - 1] != b[j - 1]);

			best = row[j] + 1 < best ? row[j] + 1 : best;
			best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
			corner = row[j];
			row[j] = best;
		}
	}
	return row[length];
}

/* The first 'depth' + 1 parts of a dotted path. */
static char *head_of(const char *path, size_t depth)
{
	const char *end = path;

	for (size_t i = 0;; i++, end++) {
		end = strchrnul(end, '.');
		if (!*end || i == depth)
			return mem_copy(path, (size_t)(end - path));
	}
}

int config_suggest(const struct config_key *keys, const char *path, struct error *err)
{
	CLEANUP_FREE char *nearest = NULL;
	const char *leaf = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
	size_t depth = 0, best = strlen(path) / 3 + 2;

	for (const char *p = path; *p; p++)
		depth += *p == '.';
	for (const struct config_key *k = keys; k->path; k++) {
		char *head = head_of(k->path, depth);
		const char *key_leaf = strrchr(k->path, '.') ? strrchr(k->path, '.') + 1 : k->path;
		size_t far = distance(path, head);

		/* The right name in the wrong section is the likelier mistake. */
		if (str_equal(leaf, key_leaf)) {
			free(head);
			head = str_copy(k->path);
			far = 0;
		}
		if (far < best) {
			best = far;
			free(nearest);
			nearest = STEAL(head);
		}
		free(head);
	}
	if (nearest)
		error_hint(err, "did you mean '%s'?", nearest);
	return -1;
}

const struct config_key *config_find_key(const struct config_key *keys, const char *path)
{
	for (const struct config_key *k = keys; k->path; k++)
		if (str_equal(k->path, path))
			return k;
	return NULL;
}

bool config_is_section(const struct config_key *keys, const char *path)
{
	size_t length = strlen(path);

	for (const struct config_key *k = keys; k->path; k++)
		if (str_starts(k->path, path) && k->path[length] == '.')
			return true;
	return false;
}

bool config_is_allowed(const struct config_key *key, const char *text)
{
	CLEANUP_STRV struct strv choices = {0};

	if (!key->allowed)
		return true;
	choices = strv_split(key->allowed, "|");
	return strv_has(&choices, text);
}

const char *config_type_words(enum config_type type)
{
	switch (type) {
	case CONFIG_STRING:
		return "one value";
	case CONFIG_BOOL:
		return "true or false";
	case CONFIG_SIZE:
		return "a size like 4G, 512M or 65536";
	case CONFIG_UINT:
		return "a number";
	case CONFIG_LIST:
		return "a list, like [a, b]";
	}
	return "a value";
}

bool config_fits_type(enum config_type type, const char *text, bool plain)
{
	uint64_t number;

	switch (type) {
	case CONFIG_BOOL:
		return plain && (str_equal(text, "true") || str_equal(text, "false"));
	case CONFIG_SIZE:
		return str_parse_size(text, &number) == 0;
	case CONFIG_UINT:
		return str_parse_uint(text, UINT64_MAX, &number) == 0;
	case CONFIG_STRING:
	case CONFIG_LIST:
		break;
	}
	return true;
}

bool config_is_null(const char *text, bool plain)
{
	return plain && (!*text || str_equal(text, "~") || strcasecmp(text, "null") == 0);
}
