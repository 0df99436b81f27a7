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
	shown = str_printable(text, strlen(text));
	value = json_string(shown);
	if (value)
		return value;
	/* jansson is the stricter one: it takes no surrogates and no overlong forms. */
	for (char *p = shown; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	return json_string(shown);
}

json_t *json_text_list(const struct strv *v)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->count; i++)
		json_array_append_new(list, json_text(v->items[i]));
	return list;
}
