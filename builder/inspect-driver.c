/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a driver of NVIDIA's is on the image already, by any of the ways that people put it
 * there: packages, the .run installer, modules per kernel, and what DKMS still has registered. A
 * driver installed over another one ends in "NVML version mismatch" at first boot.
 */
#include <string.h>

#include "inspect-internal.h"
#include "json-text.h"
#include "modules.h"

#define MODULE_FILE_MAX_BYTES (256UL * 1024 * 1024)
#define DEP_MAX_BYTES         (16UL * 1024 * 1024)
#define MODULES_MAX           64 /* of NVIDIA's, per kernel: more is no driver */

/* By name; what only hands a driver through to containers is none. */
static bool is_driver_package(const char *name)
{
	static const char *const prefixes[] = {"nvidia-",
	                                       "libnvidia-",
	                                       "xserver-xorg-video-nvidia",
	                                       "linux-modules-nvidia-",
	                                       "linux-objects-nvidia-",
	                                       "cuda-drivers"};
	static const char *const others[] = {"nvidia-container-", "libnvidia-container",
	                                     "nvidia-detect", "nvidia-support",
	                                     "nvidia-installer-cleanup"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (str_starts(name, others[i]))
			return false;
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (str_starts(name, prefixes[i]))
			return true;
	return false;
}

static void find_packages(const struct inspect *in, struct strv *ret)
{
	for (size_t i = 0; i < in->packages.count; i++)
		if (is_driver_package(in->packages.items[i]))
			strv_add(ret, in->packages.items[i]);
}

/* The program in each directory of a usual PATH, each file once ("/bin" is a link today). */
static void find_programs(const struct inspect *in, const char *name, struct strv *ret)
{
	static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
	                                   "/usr/bin",        "/sbin",          "/bin",
	                                   "/opt/nvidia/bin", "/opt/bin"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		CLEANUP_FREE char *path = str_format("%s/%s", dirs[i], name);
		CLEANUP_FREE char *real = NULL;

		if (rootfs_resolve(in->root, path, true, &real, &ignored) == 1 &&
		    !strv_has(ret, real))
			strv_add(ret, real);
	}
}

/* "updates/dkms/nvidia-drm.ko.xz" is one; the backlight driver of some laptops is none. */
static bool is_driver_file(const char *path)
{
	const char *slash = strrchr(path, '/');
	CLEANUP_FREE char *name = str_copy(slash ? slash + 1 : path);
	char *end = strstr(name, ".ko");

	if (!end || (end[3] != '\0' && end[3] != '.') || strstr(path, "drivers/platform/"))
		return false;
	*end = '\0';
	return modules_is_nvidia_driver(name);
}

/* Files that depmod has seen; what was put there without it cannot be loaded either. */
static void find_module_files(struct inspect *in, const char *version, struct strv *ret)
{
	CLEANUP_FREE char *dep_path = str_format("/lib/modules/%s/modules.dep", version);
	CLEANUP_FREE char *dep = inspect_read(in, dep_path, DEP_MAX_BYTES);
	CLEANUP_STRV struct strv lines = {0};

	if (dep)
		lines = strv_split(dep, "\n");
	for (size_t i = 0; i < lines.count && ret->count < MODULES_MAX; i++) {
		char *colon = strchr(lines.items[i], ':');

		if (!colon)
			continue;
		*colon = '\0';
		if (!is_driver_file(lines.items[i]))
			continue;
		if (*lines.items[i] == '/')
			strv_add(ret, lines.items[i]);
		else
			strv_addf(ret, "/lib/modules/%s/%s", version, lines.items[i]);
	}
	strv_sort(ret);
}

static char *module_version(struct inspect *in, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE void *data = NULL;
	size_t size;

	if (!inspect_is_file(in, path))
		return NULL;
	if (rootfs_read(in->root, path, MODULE_FILE_MAX_BYTES, &data, &size, &err) < 0) {
		finding_note(&in->findings, "inspect.unread", "%s", err.message);
		return NULL;
	}
	return inspect_module_version(data, size);
}

/* One kernel's modules of the driver; *ret_version: of the first one that says it. */
static json_t *kernel_modules(struct inspect *in, const char *version, char **ret_version)
{
	CLEANUP_STRV struct strv files = {0};
	json_t *list = json_array();

	find_module_files(in, version, &files);
	for (size_t i = 0; i < files.count; i++) {
		CLEANUP_FREE char *says = module_version(in, files.items[i]);

		json_array_append_new(
			list, json_pack("{s:o, s:o, s:o}", "kernel", json_text(version), "file",
		                        json_text(files.items[i]), "version", json_text(says)));
		if (says && !*ret_version)
			*ret_version = STEAL(says);
	}
	if (files.count && !*ret_version)
		*ret_version = str_copy("unknown");
	return list;
}

/* A node boots any of the kernels, after an update mostly another one. */
static void judge_kernels(struct inspect *in, const struct strv *with, const struct strv *without,
                          const struct strv *versions)
{
	CLEANUP_FREE char *lacking = strv_join(without, ", ");
	CLEANUP_FREE char *having = strv_join(with, ", ");
	CLEANUP_FREE char *all = strv_join(versions, ", ");

	if (with->count && without->count)
		finding_bad(&in->findings, "driver.kernels", NULL,
		            "NVIDIA's modules are there for kernel %s, but not for %s", having,
		            lacking);
	if (versions->count > 1)
		finding_bad(&in->findings, "driver.versions", NULL,
		            "NVIDIA's modules are of different versions: %s", all);
}

static json_t *find_modules(struct inspect *in, struct strv *versions)
{
	CLEANUP_STRV struct strv with = {0};
	CLEANUP_STRV struct strv without = {0};
	json_t *all = json_array();

	for (size_t i = 0; i < in->guest->kernel_count; i++) {
		const struct guest_kernel *k = &in->guest->kernels[i];
		CLEANUP_FREE char *version = NULL;
		json_t *list;

		if (k->rescue)
			continue;
		list = kernel_modules(in, k->version, &version);
		strv_add(version ? &with : &without, k->version);
		if (version && !strv_has(versions, version))
			strv_add(versions, version);
		json_array_extend(all, list);
		json_decref(list);
	}
	judge_kernels(in, &with, &without, versions);
	return all;
}

/* /var/lib/dkms/NAME/VERSION: what DKMS builds anew for every kernel that comes. */
static void find_dkms(struct inspect *in, struct strv *ret)
{
	CLEANUP_STRV struct strv names = inspect_list(in, "/var/lib/dkms");

	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *dir = str_format("/var/lib/dkms/%s", names.items[i]);
		CLEANUP_STRV struct strv versions = inspect_list(in, dir);

		for (size_t j = 0; j < versions.count; j++) {
			CLEANUP_FREE char *path = str_format("%s/%s", dir, versions.items[j]);

			/* "kernel-6.1-x86_64" is a link to what was built. */
			if (rootfs_is_dir(in->root, path) &&
			    !str_starts(versions.items[j], "kernel-"))
				strv_addf(ret, "%s/%s", names.items[i], versions.items[j]);
		}
	}
}

static void tell_driver(struct inspect *in, const struct strv *packages, const struct strv *smi,
                        bool run, const struct strv *versions)
{
	CLEANUP_STRV struct strv parts = {0};
	CLEANUP_FREE char *text = NULL;

	if (versions->count) {
		CLEANUP_FREE char *all = strv_join(versions, ", ");

		strv_addf(&parts, "kernel modules (%s)", all);
	}
	if (smi->count)
		strv_addf(&parts, "'%s'", smi->items[0]);
	if (packages->count)
		strv_addf(&parts, "%zu packages ('%s'%s)", packages->count, packages->items[0],
		          packages->count > 1 ? "…" : "");
	if (run)
		strv_add(&parts, "the .run installer's 'nvidia-uninstall'");
	text = strv_join(&parts, ", ");
	if (parts.count)
		finding_note(&in->findings, "driver.host",
		             "a driver of NVIDIA's is on the image: %s", text);
}

void inspect_driver(struct inspect *in)
{
	CLEANUP_STRV struct strv packages = {0};
	CLEANUP_STRV struct strv smi = {0};
	CLEANUP_STRV struct strv uninstall = {0};
	CLEANUP_STRV struct strv versions = {0};
	CLEANUP_STRV struct strv dkms = {0};
	CLEANUP_FREE char *registered = NULL;
	json_t *modules;

	find_packages(in, &packages);
	find_programs(in, "nvidia-smi", &smi);
	find_programs(in, "nvidia-uninstall", &uninstall);
	find_programs(in, "nvidia-installer", &uninstall);
	modules = find_modules(in, &versions);
	find_dkms(in, &dkms);
	tell_driver(in, &packages, &smi, uninstall.count > 0, &versions);
	registered = strv_join(&dkms, ", ");
	if (dkms.count)
		finding_note(&in->findings, "driver.dkms",
		             "DKMS has %s registered, and builds it anew for each kernel that is "
		             "installed on a node",
		             registered);
	json_object_set_new(in->facts, "driver",
	                    json_pack("{s:o, s:o, s:o, s:o, s:o}", "packages",
	                              json_text_list(&packages), "nvidia_smi", json_text_list(&smi),
	                              "run_installer", json_text_list(&uninstall), "modules",
	                              modules, "dkms", json_text_list(&dkms)));
}
