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
#include "proc.h"

#define SCHEMA_VERSION  1
#define SUMS_MAX_BYTES  (1024UL * 1024)
#define VERSION_TIMEOUT 20000

static json_t *string_list(const struct strv *v)
{
	json_t *list = json_array();

	for (size_t i = 0; i < v->count; i++)
		json_array_append_new(list, json_string(v->items[i]));
	return list;
}

/* First line of 'PROGRAM --version', null if it does not say. */
static json_t *tool_version(const char *program)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *out = NULL;
	const char *const argv[] = {program, "--version", NULL};
	const struct proc_options options = {.timeout_ms = VERSION_TIMEOUT};

	if (proc_run(argv, &options, &out, 65536, &ignored) < 0)
		return json_null();
	out[strcspn(out, "\n")] = '\0';
	return json_string(out);
}

static json_t *make_tools(void)
{
	static const char *const programs[] = {"qemu-img", "qemu-system-x86_64", "bwrap"};
	json_t *tools = json_pack("{s:s}", "gpuimg", GPUIMG_VERSION);

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		json_object_set_new(tools, programs[i], tool_version(programs[i]));
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

json_t *manifest_make(const struct build *b, const char *artifact, const char *sha256,
                      const json_t *boot_test)
{
	const char *slash = strrchr(artifact, '/');
	json_t *manifest = json_pack(
		"{s:i, s:{s:s, s:s, s:o}, s:o, s:o, s:{s:s, s:b, s:s}, s:O, s:o, s:o, s:o, s:o}",
		"schema", SCHEMA_VERSION, "image", "file", slash ? slash + 1 : artifact, "sha256",
		sha256, "boot_types", make_boot_types(b), "base", make_base(b), "inputs",
		make_inputs(b), "execution", "backend", b->sandbox ? "sandbox" : "appliance", "kvm",
		b->accel.kvm, "reason", b->accel.reason ? b->accel.reason : "", "steps", b->steps,
		"kernels", make_kernels(b), "entries", make_entries(b), "proof",
		findings_json(&b->findings), "tools", make_tools());

	json_object_set_new(manifest, "packages", make_packages(b));
	if (boot_test)
		json_object_set_new(manifest, "boot_test", json_deep_copy(boot_test));
	else
		json_object_set_new(manifest, "boot_test", json_null());
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
