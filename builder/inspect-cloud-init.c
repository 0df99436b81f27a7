/* SPDX-License-Identifier: Apache-2.0 */
/* Which datasources cloud-init asks on a node, which is where its first-boot data comes from. */
#include <string.h>

#include "inspect-internal.h"
#include "json-text.h"
#include "packages.h"

#define DATASOURCES_MAX 64

/* Words of a YAML list's text: separated by commas and blanks, perhaps quoted. */
static void add_words(struct strv *to, const char *text, size_t length)
{
	CLEANUP_FREE char *copy = mem_copy(text, length);
	CLEANUP_STRV struct strv words = {0};

	copy[strcspn(copy, "#")] = '\0';
	words = strv_split(copy, "[], \t\r\"'");
	for (size_t i = 0; i < words.count && to->count < DATASOURCES_MAX; i++)
		strv_add(to, words.items[i]);
}

/* "- NoCloud" lines, as far as they go. */
static void add_block(struct strv *to, const char *text)
{
	while (*text) {
		size_t length = strcspn(text, "\n");
		const char *item = text + strspn(text, " \t");

		if (*item == '-' && (item[1] == ' ' || item[1] == '\t'))
			add_words(to, item + 1, length - (size_t)(item + 1 - text));
		else if (*item != '#' && *item != '\n' && *item != '\r' && *item)
			return;
		text += length + (text[length] == '\n');
	}
}

bool inspect_datasources(const char *text, struct strv *ret)
{
	static const char key[] = "datasource_list:";
	const char *found = NULL;
	const char *value;

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (str_starts(line, key))
			found = line + strlen(key);
	}
	if (!found)
		return false;
	strv_free(ret);
	value = found + strspn(found, " \t");
	if (*value == '[') {
		CLEANUP_STRV struct strv lines = {0};
		CLEANUP_FREE char *list = mem_copy(value, strcspn(value, "]"));

		lines = strv_split(list, "\n");
		for (size_t i = 0; i < lines.count; i++)
			add_words(ret, lines.items[i], strlen(lines.items[i]));
	} else if (*value == '\n' || *value == '\r' || *value == '#') {
		add_block(ret, strchr(value, '\n') ? strchr(value, '\n') + 1 : "");
	} else {
		add_words(ret, value, strcspn(value, "\n"));
	}
	return true;
}

/* A later file wins, as cloud-init reads them; *ret_file: which one did. */
static void read_datasources(struct inspect *in, struct strv *ret, char **ret_file)
{
	CLEANUP_STRV struct strv names = inspect_list(in, "/etc/cloud/cloud.cfg.d");
	CLEANUP_STRV struct strv paths = {0};

	strv_add(&paths, "/etc/cloud/cloud.cfg");
	for (size_t i = 0; i < names.count; i++)
		if (str_ends(names.items[i], ".cfg"))
			strv_addf(&paths, "/etc/cloud/cloud.cfg.d/%s", names.items[i]);
	for (size_t i = 0; i < paths.count; i++) {
		CLEANUP_FREE char *text =
			inspect_read(in, paths.items[i], INSPECT_CONFIG_MAX_BYTES);

		if (!text || !inspect_datasources(text, ret))
			continue;
		free(*ret_file);
		*ret_file = str_copy(paths.items[i]);
	}
}

void inspect_cloud_init(struct inspect *in)
{
	const char *version = packages_version(&in->packages, "cloud-init");
	bool there = version || rootfs_is_file(in->root, "/usr/bin/cloud-init");
	bool disabled = rootfs_exists(in->root, "/etc/cloud/cloud-init.disabled");
	CLEANUP_STRV struct strv list = {0};
	CLEANUP_FREE char *file = NULL;

	if (there)
		read_datasources(in, &list, &file);
	if (!there)
		finding_note(&in->findings, "cloud-init.missing",
		             "cloud-init is not on the image: nothing reads a node's first-boot "
		             "data");
	else if (disabled)
		finding_note(&in->findings, "cloud-init.disabled",
		             "'/etc/cloud/cloud-init.disabled' turns cloud-init off");
	else if (list.count == 1 && strcmp(list.items[0], "None") == 0)
		finding_note(&in->findings, "cloud-init.datasources",
		             "'%s' leaves cloud-init no datasource but None", file);
	json_object_set_new(in->facts, "cloud_init",
	                    json_pack("{s:b, s:o, s:b, s:o, s:o}", "installed", there, "version",
	                              json_text(version), "disabled", disabled, "datasource_list",
	                              file ? json_text_list(&list) : json_null(), "file",
	                              json_text(file)));
}
