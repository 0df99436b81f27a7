/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "packages.h"

#define STATUS_PATH      "/var/lib/dpkg/status"
#define STATUS_MAX_BYTES (64UL * 1024 * 1024)

int packages_read_status(char **ret, struct rootfs *root, struct error *err)
{
	void *status = NULL;

	if (rootfs_exists(root, STATUS_PATH) &&
	    rootfs_read(root, STATUS_PATH, STATUS_MAX_BYTES, &status, NULL, err) < 0)
		return -1;
	*ret = status;
	return 0;
}

bool packages_has(const char *status, const char *name)
{
	CLEANUP_FREE char *header = str_format("Package: %s\n", name);
	const char *at = status;

	while ((at = strstr(at, header))) {
		const char *end = strstr(at, "\n\n");
		const char *state = strstr(at, "\nStatus: ");

		if ((at == status || at[-1] == '\n') && state && (!end || state < end))
			return strncmp(state + 9, "install ok installed", 20) == 0 ||
			       strncmp(state + 9, "hold ok installed", 17) == 0;
		at += strlen(header);
	}
	return false;
}

/* One line of a paragraph: the value of "Field: value", else NULL. */
static const char *field(const char *line, const char *name)
{
	size_t length = strlen(name);

	return strncmp(line, name, length) == 0 && line[length] == ':' && line[length + 1] == ' '
	               ? line + length + 2
	               : NULL;
}

int packages_read(struct strv *ret, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *status = NULL;
	const char *name = NULL, *version = NULL;
	bool installed = false;
	char *line;

	if (packages_read_status(&status, root, err) < 0)
		return -1;
	if (!status)
		return 0;
	for (line = status; line;) {
		char *end = strchr(line, '\n');

		if (end)
			*end = '\0';
		if (field(line, "Package"))
			name = field(line, "Package");
		else if (field(line, "Version"))
			version = field(line, "Version");
		else if (field(line, "Status"))
			installed = str_ends(line, " ok installed");
		if (!*line || !end) {
			if (name && version && installed)
				strv_addf(ret, "%s=%s", name, version);
			name = version = NULL;
			installed = false;
		}
		line = end ? end + 1 : NULL;
	}
	strv_sort(ret);
	return 0;
}

const char *packages_version(const struct strv *packages, const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; packages && i < packages->count; i++)
		if (strncmp(packages->items[i], name, length) == 0 &&
		    packages->items[i][length] == '=')
			return packages->items[i] + length + 1;
	return NULL;
}

struct strv packages_minus(const struct strv *a, const struct strv *b)
{
	struct strv only = {0};
	size_t j = 0;

	for (size_t i = 0; i < a->count; i++) {
		while (j < b->count && strcmp(b->items[j], a->items[i]) < 0)
			j++;
		if (j == b->count || strcmp(b->items[j], a->items[i]) != 0)
			strv_add(&only, a->items[i]);
	}
	return only;
}
