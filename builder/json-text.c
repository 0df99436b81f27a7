/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "json-text.h"

json_t *json_text(const char *text)
{
	CLEANUP_FREE char *shown = NULL;
	json_t *value;

	if (!text)
		return json_null();
	value = json_string(text);
	if (value)
		return value;
	/* as strict as jansson: no surrogates, no overlong forms */
	shown = str_printable(text, strlen(text));
	return json_string(shown);
}

json_t *json_text_list(const struct strv *v)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->count; i++)
		json_array_append_new(list, json_text(v->items[i]));
	return list;
}
