/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "manifest.h"
#include "packages.h"
#include "tools.h"

#define SCHEMA_VERSION 1
#define SUMS_MAX_BYTES (1024UL * 1024)

static json_t *string_list(const struct strv *v)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->count; i++)
		json_array_append_new(list, json_string(v->items[i]));
	return list;
}

static json_t *make_tools(void)
{
	static const char *const programs[] = {"qemu-img", "qemu-system-x86_64", "bwrap"};
	json_t *tools = json_pack("{s:s}", "gpuimg", GPUIMG_VERSION);

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		CLEANUP_FREE char *version = tools_version(programs[i]);

		json_object_set_new(tools, programs[i],
		                    version ? json_string(version) : json_null());
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
		                      json_pack("{s:s, s:s, s:s, s:I, s:s?}", "version", k->version,
		                                "image", k->image, "initramfs", k->initramfs,
		                                "initramfs_bytes", (json_int_t)k->initramfs_bytes,
		                                "initramfs_sha256", digest));
	}
	return list;
}

static json_t *make_entries(const struct build *b)
{
	json_t *list = json_array();

	for (size_t i = 0; i < b->after.grub.count; i++) {
		const struct grub_entry *e = &b->after.grub.entries[i];
		CLEANUP_FREE char *args = strv_join(&e->args, " ");

		json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:s, s:b}", "title",
		                                      e->title, "kernel", e->kernel, "initrd",
		                                      string_list(&e->initrds), "cmdline", args,
		                                      "recovery", e->recovery));
	}
	return list;
}

static json_t *make_boot_types(const struct build *b)
{
	json_t *list = json_array();

	if (disk_boots_bios(b->result_disk))
		json_array_append_new(list, json_string("bios"));
	if (disk_boots_uefi(b->result_disk))
		json_array_append_new(list, json_string("uefi"));
	return list;
}

static json_t *make_base(const struct build *b)
{
	return json_pack("{s:s, s:s?, s:s, s:I, s:s, s:s, s:s}", "path", b->base_path, "sha256",
	                 b->base_digest, "format", image_format_name(b->base_info.format),
	                 "virtual_bytes", (json_int_t)b->base_info.virtual_bytes, "os",
	                 b->guest->pretty_name, "arch", b->guest->arch, "generator",
	                 b->guest->generator);
}

static json_t *make_inputs(const struct build *b)
{
	const struct options *o = b->options;

	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "profile", o->profile,
	                 "stages", string_list(&o->stages), "parameters", string_list(&b->params),
	                 "parameters_removed", string_list(&o->cmdline.remove), "modules_blocked",
	                 string_list(&b->blocked), "uploads", string_list(&o->upload), "scripts",
	                 string_list(&o->run), "user_digests", string_list(&b->user_digests));
}

static json_t *make_packages(const struct build *b)
{
	CLEANUP_STRV struct strv added = packages_minus(&b->packages_after, &b->packages_before);
	CLEANUP_STRV struct strv gone = packages_minus(&b->packages_before, &b->packages_after);

	return json_pack("{s:o, s:o}", "added", string_list(&added), "removed", string_list(&gone));
}

static json_t *make_execution(const struct build *b)
{
	json_t *kvm = b->accel_known ? json_boolean(b->accel.kvm) : json_null();

	return json_pack("{s:s, s:o, s:s, s:b, s:o, s:I, s:I, s:I}", "backend",
	                 b->sandbox ? "sandbox" : "appliance", "kvm", kvm, "reason",
	                 b->accel.reason ? b->accel.reason : "", "image_from_cache",
	                 b->reused != NULL, "initramfs_from_cache",
	                 string_list(&b->initramfs_reused), "peak_memory_bytes",
	                 (json_int_t)usage_peak_memory_bytes(), "peak_disk_bytes",
	                 (json_int_t)usage_peak_disk_bytes(b->usage), "changed_bytes",
	                 (json_int_t)b->changed_bytes);
}

static json_t *make_export(const struct build *b)
{
	const struct export_stats *s = &b->export_stats;

	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I}", "method", s->method, "compression",
	                 s->compression, "cluster_bytes", (json_int_t)s->cluster_bytes,
	                 "clusters_taken_over", (json_int_t)s->taken_over, "clusters_compressed",
	                 (json_int_t)s->compressed, "clusters_plain", (json_int_t)s->plain, "bytes",
	                 (json_int_t)s->bytes);
}

/* The manifest of the build that made the image; names, costs and boot test are this run's. */
static json_t *make_reused(const struct build *b, const char *file)
{
	json_t *manifest = json_deep_copy(b->reused);

	json_object_set_new(json_object_get(manifest, "image"), "file", json_string(file));
	json_object_set_new(json_object_get(manifest, "base"), "path", json_string(b->base_path));
	json_object_set_new(manifest, "execution", make_execution(b));
	json_object_set(manifest, "steps", b->steps);
	return manifest;
}

static json_t *make_new(const struct build *b, const char *file, const char *sha256)
{
	json_t *manifest = json_pack(
		"{s:i, s:{s:s, s:s, s:o}, s:o, s:o, s:o, s:O, s:o, s:o, s:o, s:o, s:o, s:o}",
		"schema", SCHEMA_VERSION, "image", "file", file, "sha256", sha256, "boot_types",
		make_boot_types(b), "base", make_base(b), "inputs", make_inputs(b), "execution",
		make_execution(b), "steps", b->steps, "kernels", make_kernels(b), "entries",
		make_entries(b), "proof", findings_json(&b->findings), "tools", make_tools(),
		"export", make_export(b), "packages", make_packages(b));

	return manifest;
}

json_t *manifest_make(const struct build *b, const char *artifact, const char *sha256,
                      const json_t *boot_test)
{
	const char *slash = strrchr(artifact, '/');
	const char *file = slash ? slash + 1 : artifact;
	json_t *manifest = b->reused ? make_reused(b, file) : make_new(b, file, sha256);

	json_object_set_new(manifest, "boot_test",
	                    boot_test ? json_deep_copy(boot_test) : json_null());
	return manifest;
}

/* Whole or not at all: a temporary name in the same directory, flushed, renamed. */
static int write_whole(const char *path, const char *text, struct error *err)
{
	CLEANUP_FREE char *temporary = str_format("%s.partial", path);
	FILE *file = fopen(temporary, "we");
	bool ok = file && fputs(text, file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;
	int errnum = errno;

	if (file && fclose(file) != 0 && ok) {
		errnum = errno;
		ok = false;
	}
	if (!ok || rename(temporary, path) < 0) {
		if (ok)
			errnum = errno;
		unlink(temporary);
		return error_errno(err, errnum, "cannot write '%s'", path);
	}
	return 0;
}

int manifest_write(const json_t *manifest, const char *path, struct error *err)
{
	CLEANUP_FREE char *text = json_dumps(manifest, JSON_INDENT(2));
	CLEANUP_FREE char *lines = NULL;

	if (!text)
		return error_set(err, "cannot write '%s': a value is not UTF-8", path);
	lines = str_format("%s\n", text);
	return write_whole(path, lines, err);
}

static char *read_sums(const char *path)
{
	CLEANUP_FCLOSE FILE *file = fopen(path, "re");
	CLEANUP_FREE char *text = NULL;
	size_t size;

	if (!file)
		return str_copy("");
	text = mem_alloc(SUMS_MAX_BYTES + 1);
	size = fread(text, 1, SUMS_MAX_BYTES, file);
	text[size] = '\0';
	return STEAL(text);
}

int manifest_update_sums(const char *dir, const struct strv *names, const struct strv *digests,
                         struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/SHA256SUMS", dir);
	CLEANUP_FREE char *old = read_sums(path);
	CLEANUP_STRV struct strv lines = strv_split(old, "\n");
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *ended = NULL;

	for (size_t i = lines.count; i-- > 0;) {
		const char *name = strstr(lines.items[i], "  ");

		if (!name || strv_has(names, name + 2))
			strv_remove(&lines, i);
	}
	if (!digests && !*old)
		return 0;
	for (size_t i = 0; digests && i < names->count; i++)
		strv_addf(&lines, "%s  %s", digests->items[i], names->items[i]);
	text = strv_join(&lines, "\n");
	ended = str_format("%s\n", text);
	return write_whole(path, ended, err);
}
