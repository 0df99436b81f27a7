/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's modules by the names that an image gives them, which no generator shall pack. */
#include <string.h>

#include "generator.h"
#include "modules.h"

#define MODULES_DIR   "/lib/modules"
#define DEP_MAX_BYTES (64UL * 1024 * 1024)

static void add_file(struct strv *to, const char *path)
{
	CLEANUP_FREE char *name = modules_file_name(path);

	/* GPUDirect Storage is not of the driver, but takes it along. */
	if (name && (modules_is_nvidia_driver(name) || str_equal(name, "nvidia_fs")) &&
	    !strv_has(to, name))
		strv_take(to, STEAL(name));
}

/* What depmod has not seen, no generator finds. */
static int add_kernel(struct strv *to, struct rootfs *root, const char *version, struct error *err)
{
	CLEANUP_FREE char *path = str_format(MODULES_DIR "/%s/modules.dep", version);
	CLEANUP_FREE void *text = NULL;
	CLEANUP_STRV struct strv lines = {0};

	if (!rootfs_exists(root, path))
		return 0;
	if (rootfs_read(root, path, DEP_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	lines = strv_split(text, "\n");
	for (size_t i = 0; i < lines.count; i++) {
		char *colon = strchr(lines.items[i], ':');

		if (colon)
			*colon = '\0';
		add_file(to, lines.items[i]);
	}
	return 0;
}

int generator_gpu_modules(struct strv *ret, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv versions = {0};
	CLEANUP_STRV struct strv found = {0};

	if (!rootfs_is_dir(root, MODULES_DIR))
		return 0;
	if (rootfs_list(root, MODULES_DIR, &versions, err) < 0)
		return -1;
	for (size_t i = 0; i < versions.count; i++)
		if (add_kernel(&found, root, versions.items[i], err) < 0)
			return -1;
	strv_sort(&found);
	strv_add_all(ret, &found);
	return 0;
}
