/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a kernel's configuration excludes a module: known before anything is compiled. */
#include <string.h>

#include "driver-dkms.h"

#define DIRECTIVE      "BUILD_EXCLUSIVE_CONFIG="
#define CONF_MAX_BYTES (1024UL * 1024)

static int read_text(char **ret, struct rootfs *root, const char *path, struct error *err)
{
	void *text = NULL;

	if (rootfs_exists(root, path) &&
	    rootfs_read(root, path, CONF_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	*ret = text;
	return 0;
}

/* Words of the last such line; a value that a shell would have to make up gives none. */
static struct strv directive_words(const char *conf)
{
	CLEANUP_STRV struct strv lines = strv_split(conf, "\r\n");
	struct strv words = {0};

	for (size_t i = 0; i < lines.count; i++) {
		const char *line = str_trim(lines.items[i]);

		if (!str_starts(line, DIRECTIVE))
			continue;
		strv_free(&words);
		words = (struct strv){0};
		if (!strpbrk(line, "$`\\"))
			words = strv_split(line + strlen(DIRECTIVE), "\"' \t");
	}
	return words;
}

static bool is_set(const char *config, const char *option)
{
	CLEANUP_FREE char *yes = str_format("\n%s=y\n", option);
	CLEANUP_FREE char *module = str_format("\n%s=m\n", option);

	return strstr(config, yes) || strstr(config, module);
}

int driver_dkms_excluded(struct rootfs *root, const char *name_version, const char *kernel,
                         char **ret_why, struct error *err)
{
	CLEANUP_FREE char *conf_path =
		str_format("/var/lib/dkms/%s/source/dkms.conf", name_version);
	CLEANUP_FREE char *config_path = str_format("/lib/modules/%s/build/.config", kernel);
	CLEANUP_FREE char *conf = NULL;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *config = NULL;
	CLEANUP_STRV struct strv words = {0};

	if (read_text(&conf, root, conf_path, err) < 0 ||
	    read_text(&text, root, config_path, err) < 0)
		return -1;
	if (!conf || !text)
		return 0;
	config = str_format("\n%s\n", text);
	words = directive_words(conf);
	for (size_t i = 0; i < words.count; i++) {
		const char *word = words.items[i];
		const bool forbidden = *word == '!';

		if (is_set(config, word + forbidden) != forbidden)
			continue;
		*ret_why = str_printable(word, 100);
		return 1;
	}
	return 0;
}
