/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd's version, and the runtimes that its configuration names, with what it imports. Only
 * told, never judged bad: the GPU operator may still write a configuration of its own on the node.
 */
#include <fnmatch.h>
#include <string.h>

#include "inspect-internal.h"
#include "json-text.h"

#define MAIN_PATH         "/etc/containerd/config.toml"
#define PROGRAM_MAX_BYTES (256UL * 1024 * 1024)
#define IMPORTS_MAX       64

/* What has been read, the main file first. */
struct reading {
	struct inspect *in;
	struct strv files;
	json_t *runtimes;
	struct strv names; /* of runtimes, each once */
	char *default_runtime;
	int version; /* of the main file */
	bool cri_disabled;
};

/* The linker's record of "-X …/version.Version=1.7.12" in a Go program. */
static char *version_of_program(struct inspect *in, const char *path)
{
	static const char mark[] = "/version.Version=";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE void *data = NULL;
	const char *at;
	size_t size, length;

	if (!inspect_is_file(in, path))
		return NULL;
	if (rootfs_read(in->root, path, PROGRAM_MAX_BYTES, &data, &size, &err) < 0) {
		finding_note(&in->findings, "inspect.unread", "%s", err.message);
		return NULL;
	}
	at = memmem(data, size, mark, strlen(mark));
	if (!at)
		return NULL;
	at += strlen(mark);
	length = strspn(at, "0123456789abcdefghijklmnopqrstuvwxyz.+~-"); /* a NUL ends the data */
	return length > 0 && length < 64 ? mem_copy(at, length) : NULL;
}

static void add_runtimes(struct reading *r, const struct containerd_config *c, const char *path)
{
	for (size_t i = 0; i < c->runtimes.count; i++) {
		const char *key = strchr(c->runtimes.items[i], ' ') + 1;
		CLEANUP_FREE char *name =
			mem_copy(c->runtimes.items[i], (size_t)(key - c->runtimes.items[i] - 1));

		json_array_append_new(r->runtimes,
		                      json_pack("{s:o, s:o, s:o}", "name", json_text(name),
		                                "plugin", json_text(key), "file", json_text(path)));
		if (!strv_has(&r->names, name))
			strv_add(&r->names, name);
	}
}

static void read_config(struct reading *r, const char *path, struct strv *ret_imports)
{
	CLEANUP_CONTAINERD_CONFIG struct containerd_config c = {0};
	CLEANUP_FREE char *text = inspect_read(r->in, path, INSPECT_CONFIG_MAX_BYTES);

	if (!text)
		return;
	strv_add(&r->files, path);
	inspect_containerd_parse(&c, text);
	if (r->files.count == 1)
		r->version = c.version ? c.version : 1;
	add_runtimes(r, &c, path);
	if (c.default_runtime) {
		free(r->default_runtime);
		r->default_runtime = STEAL(c.default_runtime);
	}
	if (strv_has(&c.disabled, "cri") || strv_has(&c.disabled, "io.containerd.grpc.v1.cri"))
		r->cri_disabled = true;
	strv_add_all(ret_imports, &c.imports);
}

/* An import as an absolute path; relative ones count from the main file's directory. */
static void expand_import(struct reading *r, const char *import, struct strv *ret)
{
	CLEANUP_FREE char *path =
		*import == '/' ? str_copy(import) : str_format("/etc/containerd/%s", import);
	char *slash = strrchr(path, '/');
	CLEANUP_FREE char *dir = mem_copy(path, (size_t)(slash - path));
	CLEANUP_STRV struct strv names = {0};

	if (!strpbrk(path, "*?[")) {
		strv_add(ret, path);
		return;
	}
	names = inspect_list(r->in, dir);
	for (size_t i = 0; i < names.count && ret->count < IMPORTS_MAX; i++)
		if (fnmatch(slash + 1, names.items[i], FNM_PERIOD) == 0)
			strv_addf(ret, "%s/%s", dir, names.items[i]);
}

static void read_all(struct reading *r)
{
	CLEANUP_STRV struct strv todo = {0}; /* globs and paths, in the order they are met */

	read_config(r, MAIN_PATH, &todo);
	for (size_t i = 0; i < todo.count && i < IMPORTS_MAX; i++) {
		CLEANUP_STRV struct strv paths = {0};

		expand_import(r, todo.items[i], &paths);
		for (size_t j = 0; j < paths.count; j++)
			if (!strv_has(&r->files, paths.items[j]))
				read_config(r, paths.items[j], &todo);
	}
}

/* Drop-ins that name the runtime, in a directory that nothing imports (boot case 21). */
static void tell_unread(struct reading *r)
{
	static const char *const dirs[] = {"/etc/containerd/conf.d", "/etc/containerd/config.d"};

	for (size_t d = 0; d < sizeof(dirs) / sizeof(dirs[0]); d++) {
		CLEANUP_STRV struct strv names = inspect_list(r->in, dirs[d]);

		for (size_t i = 0; i < names.count && i < IMPORTS_MAX; i++) {
			CLEANUP_CONTAINERD_CONFIG struct containerd_config c = {0};
			CLEANUP_FREE char *path = str_format("%s/%s", dirs[d], names.items[i]);
			CLEANUP_FREE char *text = NULL;

			if (!str_ends(path, ".toml") || strv_has(&r->files, path))
				continue;
			text = inspect_read(r->in, path, INSPECT_CONFIG_MAX_BYTES);
			if (text)
				inspect_containerd_parse(&c, text);
			if (c.runtimes.count)
				finding_note(&r->in->findings, "containerd.unread",
				             "'%s' names a runtime, but '" MAIN_PATH
				             "' does not import it",
				             path);
		}
	}
}

/* A section of the other schema is ignored without a word (boot case 22). */
static void tell_schema(struct reading *r)
{
	const char *right = r->version >= 3   ? "io.containerd.cri.v1.runtime"
	                    : r->version == 2 ? "io.containerd.grpc.v1.cri"
	                                      : "cri";
	const json_t *item;
	size_t i;

	json_array_foreach(r->runtimes, i, item)
	{
		const char *plugin = json_string_value(json_object_get(item, "plugin"));

		if (r->version > 0 && plugin && strcmp(plugin, right) != 0)
			finding_note(&r->in->findings, "containerd.schema",
			             "'%s': the runtime '%s' stands under '%s', where version %d "
			             "of '" MAIN_PATH "' looks under '%s'",
			             json_string_value(json_object_get(item, "file")),
			             json_string_value(json_object_get(item, "name")), plugin,
			             r->version, right);
	}
}

static void find_version(struct inspect *in, char **ret_version, const char **ret_from)
{
	static const char *const packages[] = {"containerd.io", "containerd"};
	static const char *const programs[] = {"/usr/bin/containerd", "/usr/local/bin/containerd"};

	for (size_t i = 0; i < 2 && !*ret_version; i++)
		if (inspect_package(in, packages[i])) {
			*ret_version = str_copy(inspect_package(in, packages[i]));
			*ret_from = packages[i];
		}
	for (size_t i = 0; i < 2 && !*ret_version; i++)
		if (inspect_is_file(in, programs[i])) {
			*ret_version = version_of_program(in, programs[i]);
			*ret_from = programs[i];
		}
}

void inspect_containerd(struct inspect *in)
{
	struct reading r = {.in = in, .runtimes = json_array()};
	CLEANUP_FREE char *version = NULL;
	const char *from = NULL;

	find_version(in, &version, &from);
	read_all(&r);
	tell_unread(&r);
	tell_schema(&r);
	if (r.cri_disabled)
		finding_note(&in->findings, "containerd.cri-disabled",
		             "'" MAIN_PATH "' disables the CRI plugin: no kubelet can use this "
		             "containerd, and no runtime of it counts");
	json_object_set_new(in->facts, "containerd",
	                    json_pack("{s:o, s:o, s:o, s:i, s:o, s:o}", "version",
	                              json_text(version), "from", json_text(from), "files",
	                              json_text_list(&r.files), "config_version", r.version,
	                              "default_runtime", json_text(r.default_runtime), "runtimes",
	                              r.runtimes));
	strv_free(&r.files);
	strv_free(&r.names);
	free(r.default_runtime);
}
