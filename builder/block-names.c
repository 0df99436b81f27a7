/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "block-names.h"
#include "data.h"

void block_names_parse(const char *text, struct strv *ret)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\n");

	for (size_t i = 0; i < lines.count; i++) {
		CLEANUP_STRV struct strv words = strv_split(lines.items[i], " \t");

		if (words.count == 2 && strcmp(words.items[0], "blacklist") == 0 &&
		    !strv_has(ret, words.items[1]))
			strv_add(ret, words.items[1]);
	}
}

int block_names_read(struct strv *ret, const char *data_dir, struct error *err)
{
	CLEANUP_FREE char *text = NULL;

	if (data_read(data_dir, BLOCK_NAMES_DATA, &text, err) < 0)
		return -1;
	block_names_parse(text, ret);
	return 0;
}
