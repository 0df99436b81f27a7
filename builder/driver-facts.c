/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver by any of the ways that people put it there: packages, the .run installer, modules per
 * kernel, and what DKMS still has registered. One that is installed over another ends in "NVML
 * version mismatch" at first boot, so all that may be one counts.
 */
#include <string.h>

#include "driver-facts-internal.h"
#include "driver.h"
#include "json-text.h"
#include "packages.h"

struct strv driver_facts_list(struct rootfs *root, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct strv names = {0};

	if (rootfs_is_dir(root, path) && rootfs_list(root, path, &names, &ignored) < 0)
		strv_free(&names);
	return names;
}

char *driver_facts_text(struct rootfs *root, const char *path, size_t max_bytes)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	void *text = NULL;

	if (!rootfs_is_file(root, path) ||
	    rootfs_read(root, path, max_bytes, &text, NULL, &ignored) < 0)
		return NULL;
	return text;
}

static void find_packages(struct driver_facts *facts, const struct strv *packages)
{
	for (size_t i = 0; i < packages->count; i++)
		if (driver_is_package(packages->items[i]))
			strv_add(&facts->packages, packages->items[i]);
	strv_sort(&facts->packages);
}

/* "Status: hold ok installed", one paragraph each. */
static int find_held(struct driver_facts *facts, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *status = NULL;
	CLEANUP_FREE char *name = NULL;
	char *next;

	if (packages_read_status(&status, root, err) < 0)
		return -1;
	for (char *line = status; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		if (str_starts(line, "Package: ")) {
			free(name);
			name = str_copy(line + strlen("Package: "));
		} else if (name && str_starts(line, "Status: hold ") &&
		           !strv_has(&facts->held, name)) {
			strv_add(&facts->held, name);
		}
	}
	strv_sort(&facts->held);
	return 0;
}

/* The program in each directory of a usual PATH, each file once ("/bin" is a link today). */
static void find_programs(struct strv *ret, struct rootfs *root, const char *name)
{
	static const char *const dirs[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
	                                   "/usr/bin",        "/sbin",          "/bin",
	                                   "/opt/nvidia/bin", "/opt/bin"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		CLEANUP_FREE char *path = str_format("%s/%s", dirs[i], name);
		CLEANUP_FREE char *real = NULL;

		if (rootfs_resolve(root, path, true, &real, &ignored) == 1 && !strv_has(ret, real))
			strv_add(ret, real);
	}
}

/* /var/lib/dkms/NAME/VERSION: what DKMS builds anew for every kernel that comes. */
static void find_dkms(struct driver_facts *facts, struct rootfs *root)
{
	CLEANUP_STRV struct strv names = driver_facts_list(root, "/var/lib/dkms");

	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *dir = str_format("/var/lib/dkms/%s", names.items[i]);
		CLEANUP_STRV struct strv versions = driver_facts_list(root, dir);

		for (size_t j = 0; j < versions.count; j++) {
			CLEANUP_FREE char *path = str_format("%s/%s", dir, versions.items[j]);

			/* "kernel-6.1-x86_64" is a link to what was built; "original_module" has
			 * what was there before. */
			if (rootfs_is_dir(root, path) &&
			    !str_starts(versions.items[j], "kernel-") &&
			    strcmp(versions.items[j], "original_module") != 0)
				strv_addf(&facts->dkms, "%s/%s", names.items[i], versions.items[j]);
		}
	}
}

bool driver_facts_is_dkms(const char *entry)
{
	return str_starts(entry, "nvidia") && !str_starts(entry, "nvidia-fs/");
}

int driver_facts_read(struct driver_facts *ret, struct rootfs *root, const struct guest *guest,
                      const struct strv *packages, struct error *err)
{
	CLEANUP_DRIVER_FACTS struct driver_facts facts = {0};

	find_packages(&facts, packages);
	if (find_held(&facts, root, err) < 0)
		return error_prefix(err, "which packages are on hold");
	find_programs(&facts.smi, root, "nvidia-smi");
	find_programs(&facts.run_installers, root, "nvidia-uninstall");
	find_programs(&facts.run_installers, root, "nvidia-installer");
	driver_facts_modules(&facts, root, guest);
	driver_facts_firmware(&facts, root);
	find_dkms(&facts, root);
	driver_facts_libraries(&facts, root);
	*ret = facts;
	facts = (struct driver_facts){0};
	return 0;
}

bool driver_facts_any(const struct driver_facts *facts)
{
	for (size_t i = 0; i < facts->dkms.count; i++)
		if (driver_facts_is_dkms(facts->dkms.items[i]))
			return true;
	return facts->packages.count || facts->smi.count || facts->run_installers.count ||
	       facts->module_count || facts->libraries.count;
}

static json_t *modules_json(const struct driver_facts *facts)
{
	json_t *list = json_array();

	for (size_t i = 0; i < facts->module_count; i++) {
		const struct driver_module *m = &facts->modules[i];
		json_t *json =
			json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b}", "kernel",
		                  json_text(m->kernel), "file", json_text(m->file), "name",
		                  json_text(m->name), "version", json_text(m->info.version),
		                  "vermagic", json_text(m->info.vermagic), "license",
		                  json_text(m->info.license), "signer", json_text(m->info.signer),
		                  "signed", m->info.has_signature, "listed", m->listed);

		json_object_set_new(json, "firmware", json_text_list(&m->info.firmware));
		json_array_append_new(list, json);
	}
	return list;
}

json_t *driver_facts_json(const struct driver_facts *facts)
{
	json_t *json = json_object();

	json_object_set_new(json, "packages", json_text_list(&facts->packages));
	json_object_set_new(json, "nvidia_smi", json_text_list(&facts->smi));
	json_object_set_new(json, "run_installer", json_text_list(&facts->run_installers));
	json_object_set_new(json, "modules", modules_json(facts));
	json_object_set_new(json, "dkms", json_text_list(&facts->dkms));
	json_object_set_new(json, "libraries", json_text_list(&facts->libraries));
	json_object_set_new(json, "held", json_text_list(&facts->held));
	json_object_set_new(json, "firmware_missing", json_text_list(&facts->firmware_missing));
	return json;
}

void driver_facts_free(struct driver_facts *facts)
{
	strv_free(&facts->packages);
	strv_free(&facts->held);
	strv_free(&facts->smi);
	strv_free(&facts->run_installers);
	for (size_t i = 0; i < facts->module_count; i++) {
		free(facts->modules[i].kernel);
		free(facts->modules[i].file);
		free(facts->modules[i].name);
		module_info_free(&facts->modules[i].info);
	}
	free(facts->modules);
	strv_free(&facts->dkms);
	strv_free(&facts->libraries);
	strv_free(&facts->firmware_missing);
	*facts = (struct driver_facts){0};
}
