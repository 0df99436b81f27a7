/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's kernel modules, by the names that the image gives them, and the firmware that they ask
 * for. Those that depmod has seen, and those that lie where packages, DKMS and the .run installer
 * put them without it: they cannot be loaded, and shall be told.
 */
#include <string.h>

#include "driver-facts-internal.h"
#include "modules.h"

#define DEP_MAX_BYTES (16UL * 1024 * 1024)
#define MODULES_MAX   64 /* of NVIDIA's, per kernel: more is no driver */

/* NVIDIA's own names, without "nvidia". */
static const char *const roles[] = {"nvidia_modeset", "nvidia_uvm", "nvidia_drm", "nvidia_peermem",
                                    "nvidia_vgpu_vfio"};

const char *driver_module_role(const struct driver_module *module)
{
	const char *name = module->info.name ? module->info.name : module->name;

	/* By the file's name: "nvidia_current_open_uvm" ends like "nvidia_uvm". */
	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		if (str_ends(name, roles[i] + strlen("nvidia")))
			return roles[i];
	return "nvidia";
}

/* "nvidia_drm" of "updates/dkms/nvidia-drm.ko.xz"; NULL: none of the driver. The backlight driver
 * of some laptops is none. Owned by the caller. */
static char *driver_name_of(const char *path)
{
	CLEANUP_FREE char *name = modules_file_name(path);

	if (!name || !modules_is_nvidia_driver(name) || strstr(path, "drivers/platform/"))
		return NULL;
	return STEAL(name);
}

/* What modules.dep names. */
static void find_listed(struct strv *ret, struct rootfs *root, const char *version)
{
	CLEANUP_FREE char *dep_path = str_format("/lib/modules/%s/modules.dep", version);
	CLEANUP_FREE char *dep = driver_facts_text(root, dep_path, DEP_MAX_BYTES);
	char *next;

	for (char *line = dep; line && ret->count < MODULES_MAX; line = next) {
		CLEANUP_FREE char *name = NULL;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (!strchr(line, ':'))
			continue;
		*strchr(line, ':') = '\0';
		name = driver_name_of(line);
		if (name && *line == '/')
			strv_add(ret, line);
		else if (name)
			strv_addf(ret, "/lib/modules/%s/%s", version, line);
	}
	strv_sort(ret);
}

static void find_in_dir(struct strv *ret, struct rootfs *root, const char *dir)
{
	CLEANUP_STRV struct strv names = driver_facts_list(root, dir);

	for (size_t i = 0; i < names.count && ret->count < MODULES_MAX; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names.items[i]);
		CLEANUP_FREE char *name = driver_name_of(path);

		if (name && !strv_has(ret, path) && rootfs_is_file(root, path))
			strv_add(ret, path);
	}
}

/* Where they are put: DKMS; packages for one kernel (Ubuntu: kernel/nvidia-535srv); EL's kmod
 * packages; the .run installer. */
static void find_on_disk(struct strv *ret, struct rootfs *root, const char *version)
{
	static const char *const dirs[] = {
		"updates",      "updates/dkms",         "extra",
		"extra/nvidia", "weak-updates",         "weak-updates/nvidia",
		"kernel",       "kernel/drivers/video", "kernel/drivers/video/nvidia"};
	CLEANUP_FREE char *kernel_dir = str_format("/lib/modules/%s/kernel", version);
	CLEANUP_STRV struct strv names = driver_facts_list(root, kernel_dir);

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		CLEANUP_FREE char *dir = str_format("/lib/modules/%s/%s", version, dirs[i]);

		find_in_dir(ret, root, dir);
	}
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *dir = str_format("%s/%s", kernel_dir, names.items[i]);

		if (str_starts(names.items[i], "nvidia"))
			find_in_dir(ret, root, dir);
	}
}

/* One at a time: the driver's core has up to 100 MiB. */
static void read_module(struct driver_module *m, struct rootfs *root)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE void *data = NULL;
	size_t size;

	m->unread = !rootfs_is_file(root, m->file) ||
	            rootfs_read(root, m->file, MODULE_FILE_MAX_BYTES, &data, &size, &ignored) < 0 ||
	            module_info_read(&m->info, data, size, &ignored) < 0;
}

static void read_kernel(struct driver_facts *facts, struct rootfs *root, const char *version)
{
	CLEANUP_STRV struct strv listed = {0};
	CLEANUP_STRV struct strv files = {0};

	find_listed(&listed, root, version);
	strv_add_all(&files, &listed);
	find_on_disk(&files, root, version);
	strv_sort(&files);
	for (size_t i = 0; i < files.count; i++) {
		struct driver_module m = {.kernel = str_copy(version),
		                          .file = str_copy(files.items[i]),
		                          .name = driver_name_of(files.items[i]),
		                          .listed = strv_has(&listed, files.items[i])};

		read_module(&m, root);
		facts->modules = mem_grow(facts->modules, facts->module_count + 1, sizeof(m));
		facts->modules[facts->module_count++] = m;
	}
}

void driver_facts_modules(struct driver_facts *facts, struct rootfs *root,
                          const struct guest *guest)
{
	for (size_t i = 0; i < guest->kernel_count; i++)
		if (!guest->kernels[i].rescue)
			read_kernel(facts, root, guest->kernels[i].version);
}

/* The kernel's own order (Documentation/driver-api/firmware/fw_search_path.rst), compressed ones
 * too. */
static bool has_firmware(struct rootfs *root, const char *version, const char *name)
{
	static const char *const suffixes[] = {"", ".zst", ".xz"};
	CLEANUP_STRV struct strv dirs = {0};

	strv_addf(&dirs, "/lib/firmware/updates/%s", version);
	strv_add(&dirs, "/lib/firmware/updates");
	strv_addf(&dirs, "/lib/firmware/%s", version);
	strv_add(&dirs, "/lib/firmware");
	for (size_t i = 0; i < dirs.count; i++)
		for (size_t j = 0; j < sizeof(suffixes) / sizeof(suffixes[0]); j++) {
			CLEANUP_FREE char *path =
				str_format("%s/%s%s", dirs.items[i], name, suffixes[j]);

			if (rootfs_is_file(root, path))
				return true;
		}
	return false;
}

void driver_facts_firmware(struct driver_facts *facts, struct rootfs *root)
{
	for (size_t i = 0; i < facts->module_count; i++) {
		const struct driver_module *m = &facts->modules[i];

		for (size_t j = 0; j < m->info.firmware.count; j++) {
			CLEANUP_FREE char *line =
				str_format("%s %s", m->kernel, m->info.firmware.items[j]);

			if (!strv_has(&facts->firmware_missing, line) &&
			    !has_firmware(root, m->kernel, m->info.firmware.items[j]))
				strv_add(&facts->firmware_missing, line);
		}
	}
}
