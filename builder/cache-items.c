/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in the cache directory, as a list for people and for machines. */
#include <string.h>

#include "cache-internal.h"

#define LABEL_BYTES 60
#define PATH_BYTES  240
#define VALUE_BYTES 24
#define DIGEST_HEX  64
#define SHORT_HEX   12

struct cache_item *cache_items_add(struct cache_items *list)
{
	list->items = mem_grow(list->items, list->count + 1, sizeof(*list->items));
	list->items[list->count] = (struct cache_item){0};
	return &list->items[list->count++];
}

static int by_use(const void *a, const void *b)
{
	const struct cache_item *x = a, *y = b;

	if (x->used != y->used)
		return x->used < y->used ? -1 : 1;
	if (x->used_ns != y->used_ns)
		return x->used_ns < y->used_ns ? -1 : 1;
	return strcmp(x->key, y->key);
}

void cache_items_sort(struct cache_items *list, size_t from)
{
	if (list->count > from)
		qsort(list->items + from, list->count - from, sizeof(*list->items), by_use);
}

void cache_items_free(struct cache_items *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->items[i].kind);
		free(list->items[i].key);
		free(list->items[i].path);
		json_decref(list->items[i].inputs);
	}
	free(list->items);
	*list = (struct cache_items){0};
}

static char *short_value(const json_t *value)
{
	const char *text = json_string_value(value);

	if (json_is_integer(value))
		return str_format("%" JSON_INTEGER_FORMAT, json_integer_value(value));
	if (!text)
		return NULL;
	if (str_starts(text, "sha256:"))
		text += strlen("sha256:");
	if (strlen(text) == DIGEST_HEX && strspn(text, "0123456789abcdef") == DIGEST_HEX)
		return str_format("%.*s", SHORT_HEX, text);
	return str_printable(text, VALUE_BYTES);
}

/* Every result has these two, so they tell none from another. */
static bool tells_nothing(const char *name)
{
	return strcmp(name, "cache_format") == 0 || strcmp(name, "program") == 0;
}

char *cache_item_label(const struct cache_item *item)
{
	CLEANUP_STRV struct strv parts = {0};
	CLEANUP_FREE char *joined = NULL;
	const char *name;
	json_t *value;

	if (!item->is_result)
		return str_printable(item->path, PATH_BYTES);
	json_object_foreach(item->inputs, name, value)
	{
		CLEANUP_FREE char *shown = tells_nothing(name) ? NULL : short_value(value);

		if (shown && *shown)
			strv_addf(&parts, "%s=%s", name, shown);
	}
	joined = strv_join(&parts, " ");
	return str_printable(joined, LABEL_BYTES);
}
