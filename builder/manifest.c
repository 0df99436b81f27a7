/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "boot.h"
#include "json-text.h"
#include "manifest.h"
#include "packages.h"
#include "sums-file.h"
#include "tools.h"

#define SCHEMA_VERSION 1

static json_t *make_tools(void)
{
	static const char *const programs[] = {"qemu-img", "qemu-system-x86_64", "bwrap"};
	json_t *tools = json_pack("{s:s}", "gpuimg", GPUIMG_VERSION);

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		CLEANUP_FREE char *version = tools_version(programs[i]);

		json_object_set_new(tools, programs[i], json_text(version));
	}
	return tools;
}

static json_t *make_kernels(const struct build *b)
{
	json_t *list = json_array();

	for (size_t i = 0; i < b->result_guest->kernel_count; i++) {
		const struct guest_kernel *k = &b->result_guest->kernels[i];
		const char *digest =
			i < b->initramfs_digests.count ? b->initramfs_digests.items[i] : NULL;

		json_array_append_new(list,
		                      json_pack("{s:o, s:o, s:o, s:I, s:o}", "version",
		                                json_text(k->version), "image", json_text(k->image),
		                                "initramfs", json_text(k->initramfs),
		                                "initramfs_bytes", (json_int_t)k->initramfs_bytes,
		                                "initramfs_sha256", json_text(digest)));
	}
	return list;
}

static json_t *make_entries(const struct build *b)
{
	json_t *list = json_array();

	for (size_t i = 0; i < b->after.count; i++)
		json_array_append_new(list, bootchain_entry_json(&b->after.entries[i]));
	return list;
}

static json_t *make_boot_types(const struct build *b)
{
	json_t *list = json_array();

	if (disk_boots_bios(b->result_disk))
		json_array_append_new(list, json_string("bios"));
	if (disk_boots_uefi(b->result_disk) && b->has_uefi_loader)
		json_array_append_new(list, json_string("uefi"));
	return list;
}

static json_t *make_base(const struct build *b)
{
	return json_pack("{s:o, s:o, s:s, s:I, s:o, s:o, s:o, s:o, s:o}", "path",
	                 json_text(b->base_path), "sha256", json_text(b->base_digest), "format",
	                 image_format_name(b->base_info.format), "virtual_bytes",
	                 (json_int_t)b->base_info.virtual_bytes, "os",
	                 json_text(b->guest->pretty_name), "arch", json_text(b->guest->arch),
	                 "generator", json_text(b->guest->generator), "os_id",
	                 json_text(b->guest->id), "os_version_id", json_text(b->guest->version_id));
}

static json_t *make_inputs(const struct build *b)
{
	const struct options *o = b->options;

	return json_pack(
		"{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "profile", json_text(o->profile),
		"stages", json_text_list(&o->stages), "parameters", json_text_list(&b->params),
		"parameters_removed", json_text_list(&o->cmdline.remove), "modules_blocked",
		json_text_list(&b->blocked), "uploads", json_text_list(&o->upload), "scripts",
		json_text_list(&o->run), "user_digests", json_text_list(&b->user_digests));
}

static json_t *make_packages(const struct build *b)
{
	CLEANUP_STRV struct strv added = packages_minus(&b->packages_after, &b->packages_before);
	CLEANUP_STRV struct strv gone = packages_minus(&b->packages_before, &b->packages_after);

	return json_pack("{s:o, s:o}", "added", json_text_list(&added), "removed",
	                 json_text_list(&gone));
}

/* NULL members where nothing was baked. */
static json_t *make_driver(const struct build *b)
{
	json_t *driver;

	if (!b->driver.branch)
		return json_null();
	driver = driver_plan_json(&b->driver);
	json_object_set_new(driver, "replaced", json_text(b->driver_found));
	json_object_set_new(driver, "dkms",
	                    json_string(b->options->dkms_unregister ? "unregister" : "keep"));
	json_object_set_new(driver, "from_cache", json_boolean(b->baked_from_cache));
	if (b->driver_facts)
		json_object_set(driver, "found", b->driver_facts);
	return driver;
}

static json_t *make_containerd(const struct build *b)
{
	const struct containerd_result *r = &b->containerd_result;

	if (!b->options->containerd_runtime)
		return json_null();
	return json_pack("{s:s, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "runtime",
	                 b->options->containerd_runtime, "default", b->options->default_runtime,
	                 "version", json_text(b->containerd.version), "by", json_text(r->by),
	                 "edited", json_text_list(&r->edited), "files", json_text_list(&r->files),
	                 "toolkit", json_text_list(&b->toolkit_packages), "notes",
	                 json_text_list(&r->notes));
}

static json_t *make_execution(const struct build *b)
{
	json_t *kvm = b->accel_known ? json_boolean(b->accel.kvm) : json_null();

	return json_pack("{s:s, s:o, s:o, s:b, s:o, s:I, s:I, s:I}", "backend",
	                 b->sandbox ? "sandbox" : "appliance", "kvm", kvm, "reason",
	                 json_text(b->accel.reason ? b->accel.reason : ""), "image_from_cache",
	                 b->reused != NULL, "initramfs_from_cache",
	                 json_text_list(&b->initramfs_reused), "peak_memory_bytes",
	                 (json_int_t)usage_peak_memory_bytes(), "peak_disk_bytes",
	                 (json_int_t)usage_peak_disk_bytes(b->usage), "changed_bytes",
	                 (json_int_t)b->changed_bytes);
}

static json_t *make_export(const struct build *b)
{
	const struct export_stats *s = &b->export_stats;

	return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "method", json_text(s->method),
	                 "compression", json_text(s->compression), "cluster_bytes",
	                 (json_int_t)s->cluster_bytes, "clusters_taken_over",
	                 (json_int_t)s->taken_over, "clusters_compressed",
	                 (json_int_t)s->compressed, "clusters_plain", (json_int_t)s->plain, "bytes",
	                 (json_int_t)s->bytes);
}

static bool passed_with(const json_t *boot_test, const char *firmware)
{
	const json_t *runs = json_object_get(boot_test, "runs");

	for (size_t i = 0; i < json_array_size(runs); i++) {
		const json_t *run = json_array_get(runs, i);
		const char *of = json_string_value(json_object_get(run, "firmware"));
		const char *verdict = json_string_value(json_object_get(run, "verdict"));

		if (str_equal(of, firmware) && str_equal(verdict, verdict_name(VERDICT_PASSED)))
			return true;
	}
	return false;
}

/*
 * What the disk offers is in the list already. Whether signatures hold, no look at files tells: it
 * is claimed of an image whose pair passed in this run's boot test. That may have taken facts of an
 * earlier boot from the cache: of the same bytes, by the same recipe, and marked 'remembered'. What
 * the manifest of an earlier run claims does not count.
 */
static void set_secure_boot(json_t *manifest, const json_t *boot_test)
{
	const char *name = boot_firmware_name(FIRMWARE_UEFI_SECURE_BOOT);
	json_t *types = json_object_get(json_object_get(manifest, "image"), "boot_types");

	for (size_t i = json_array_size(types); i-- > 0;)
		if (str_equal(json_string_value(json_array_get(types, i)), name))
			json_array_remove(types, i);
	if (passed_with(boot_test, name))
		json_array_append_new(types, json_string(name));
}

/* The manifest of the build that made the image; names, costs and boot test are this run's. */
static json_t *make_reused(const struct build *b, const char *file)
{
	json_t *manifest = json_deep_copy(b->reused);

	json_object_set_new(json_object_get(manifest, "image"), "file", json_text(file));
	json_object_set_new(json_object_get(manifest, "base"), "path", json_text(b->base_path));
	json_object_set_new(manifest, "execution", make_execution(b));
	json_object_set(manifest, "steps", b->steps);
	return manifest;
}

static json_t *make_new(const struct build *b, const char *file, const char *sha256)
{
	json_t *manifest = json_pack(
		"{s:i, s:{s:o, s:o, s:o}, s:o, s:o, s:o, s:O, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
		"schema", SCHEMA_VERSION, "image", "file", json_text(file), "sha256",
		json_text(sha256), "boot_types", make_boot_types(b), "base", make_base(b), "inputs",
		make_inputs(b), "execution", make_execution(b), "steps", b->steps, "kernels",
		make_kernels(b), "entries", make_entries(b), "proof", findings_json(&b->findings),
		"driver", make_driver(b), "containerd", make_containerd(b), "tools", make_tools(),
		"export", make_export(b), "packages", make_packages(b));

	return manifest;
}

json_t *manifest_make(const struct build *b, const char *artifact, const char *sha256,
                      const json_t *boot_test)
{
	const char *slash = strrchr(artifact, '/');
	const char *file = slash ? slash + 1 : artifact;
	json_t *manifest = b->reused ? make_reused(b, file) : make_new(b, file, sha256);

	set_secure_boot(manifest, boot_test);
	json_object_set_new(manifest, "boot_test",
	                    boot_test ? json_deep_copy(boot_test) : json_null());
	return manifest;
}

int manifest_write(const json_t *manifest, const char *path, struct error *err)
{
	CLEANUP_FREE char *text = json_dumps(manifest, JSON_INDENT(2));
	CLEANUP_FREE char *lines = NULL;

	if (!text)
		return error_set(err, "cannot write '%s': a value is not UTF-8", path);
	lines = str_format("%s\n", text);
	return whole_file_write(path, lines, strlen(lines), err);
}
