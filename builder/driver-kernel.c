/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "driver-kernel.h"

#define DEP_MAX_BYTES (64UL * 1024 * 1024)

bool driver_kernel_has_headers(struct rootfs *root, const char *version)
{
	CLEANUP_FREE char *include = str_format("/lib/modules/%s/build/include", version);

	return rootfs_is_dir(root, include);
}

int driver_kernel_no_headers(const struct strv *versions, struct error *err)
{
	CLEANUP_FREE char *names = strv_join(versions, "', '");
	CLEANUP_FREE char *packages = strv_join(versions, " linux-headers-");

	error_set(err,
	          "kernel '%s': no headers, so modules cannot be compiled for %s "
	          "('/lib/modules/VERSION/build/include' is missing)",
	          names, versions->count == 1 ? "it" : "them");
	error_hint(err,
	           "install its headers in the base (on Debian and Ubuntu: apt-get install "
	           "linux-headers-%s), or remove the kernel from the base",
	           packages);
	return error_code(err, EXIT_INPUT);
}

int driver_kernel_depmod(struct rootfs *root, const char *version, struct error *err)
{
	const char *const argv[] = {"depmod", "-a", version, NULL};

	if (rootfs_run(root, &(struct guest_command){.argv = argv}, err) < 0)
		return error_prefix(err, "kernel '%s'", version);
	return 0;
}

/* Whether a line of modules.dep is of this module: "updates/dkms/nvidia.ko.xz: kernel/…". */
static bool is_module(const char *line, size_t length, const char *name)
{
	const char *slash = memrchr(line, '/', length);
	const char *base = slash ? slash + 1 : line;
	size_t left = length - (size_t)(base - line), size = strlen(name);

	return left >= size + 3 && strncmp(base, name, size) == 0 &&
	       strncmp(base + size, ".ko", 3) == 0 && (left == size + 3 || base[size + 3] == '.');
}

static char *path_in_dep(const char *dep, const char *version, const char *name)
{
	for (const char *line = dep; *line;) {
		size_t length = strcspn(line, ":\n");

		if (line[length] == ':' && is_module(line, length, name)) {
			CLEANUP_FREE char *path = mem_copy(line, length);

			return *path == '/' ? STEAL(path)
			                    : str_format("/lib/modules/%s/%s", version, path);
		}
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	return NULL;
}

int driver_kernel_find(struct rootfs *root, const char *version, const char *name, char **ret,
                       struct error *err)
{
	CLEANUP_FREE char *dep_path = str_format("/lib/modules/%s/modules.dep", version);
	CLEANUP_FREE char *path = NULL;
	struct rootfs_stat st;
	void *dep = NULL;
	int found;

	if (!rootfs_exists(root, dep_path))
		return 0;
	if (rootfs_read(root, dep_path, DEP_MAX_BYTES, &dep, NULL, err) < 0)
		return -1;
	path = path_in_dep(dep, version, name);
	free(dep);
	if (!path)
		return 0;
	found = rootfs_lstat(root, path, &st, err);
	if (found < 0)
		return -1;
	if (found == 0 || !S_ISREG(st.mode))
		return 0;
	*ret = STEAL(path);
	return 1;
}
