/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "builder/str.h"
#include "publish/xml-tags.h"

static void replace_entities(char *text)
{
	static const struct {
		const char *entity;
		char letter;
	} known[] = {
		{"&quot;", '"'}, {"&apos;", '\''}, {"&lt;", '<'}, {"&gt;", '>'}, {"&amp;", '&'}};
	char *to = text;

	while (*text) {
		size_t i = 0, count = sizeof(known) / sizeof(known[0]);

		while (i < count && !str_starts(text, known[i].entity))
			i++;
		*to++ = (char)(i < count ? known[i].letter : *text);
		text += i < count ? strlen(known[i].entity) : 1;
	}
	*to = '\0';
}

char *xml_tag(const char *text, const char *name, const char **at)
{
	CLEANUP_FREE char *open = str_format("<%s", name);
	CLEANUP_FREE char *close = str_format("</%s>", name);
	const char *from = at && *at ? *at : text;

	while ((from = strstr(from, open))) {
		const char *end = from + strlen(open);
		const char *body, *stop;
		char *content;

		if (*end != '>' && *end != ' ' && *end != '\n') {
			from = end; /* the beginning of a longer name */
			continue;
		}
		body = strchr(end, '>');
		stop = body ? strstr(body, close) : NULL;
		if (!stop)
			return NULL;
		content = mem_copy(body + 1, (size_t)(stop - body - 1));
		replace_entities(content);
		if (at)
			*at = stop + strlen(close);
		return content;
	}
	return NULL;
}
