/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd: version, the runtimes that its configuration names with what it imports, and whether
 * "nvidia" would work. From files alone, merged as this containerd does (containerd-look.c):
 * nothing of an image that is inspected is run. What the profile does not want is a note at most,
 * since the GPU operator may still write a configuration of its own on the node.
 */
#include <string.h>

#include "containerd-internal.h"
#include "inspect-internal.h"
#include "json-text.h"
#include "packages.h"

#define DROPINS_MAX 64
#define SCHEMAS     3 /* versions from 3 on have one */

/* What is known of it. */
struct reading {
	struct inspect *in;
	struct containerd c; /* all NULL: there is none */
	struct containerd_files files;
	json_t *runtimes;
	const char *wanted; /* the runtime's name, or NULL */
	bool wants_default;
};

/* Bad where it is wanted, else a note. The cure is set later, by the id. */
__attribute__((format(printf, 3, 4))) static void tell(struct reading *r, const char *id,
                                                       const char *format, ...)
{
	va_list args;

	va_start(args, format);
	finding_vlack(&r->in->findings, r->wanted != NULL, id, NULL, format, args);
	va_end(args);
}

static const struct toml_node *runtimes_of(const struct toml *toml, const char *plugin)
{
	return toml ? toml_find(&toml->root, "plugins", plugin, "containerd", "runtimes", NULL)
	            : NULL;
}

/* --- What is told --- */

/* A section of the other schema is ignored without a word (boot case 22). */
static void tell_schema(struct reading *r, const struct containerd_file *file, const char *name,
                        const char *plugin)
{
	int version = file->version ? file->version : r->files.version;

	if (strcmp(plugin, containerd_plugin_key(version)) != 0)
		finding_note(&r->in->findings, "containerd.schema",
		             "'%s': the runtime '%s' stands under '%s', where version %d "
		             "looks under '%s'",
		             file->path, name, plugin, version, containerd_plugin_key(version));
}

static void list_runtimes(struct reading *r)
{
	for (size_t i = 0; i < r->files.count; i++)
		for (int version = 1; version <= SCHEMAS; version++) {
			const struct containerd_file *file = &r->files.items[i];
			const char *plugin = containerd_plugin_key(version);
			const struct toml_node *all = runtimes_of(file->toml, plugin);

			for (size_t n = 0; all && n < all->count; n++) {
				const char *name = all->children[n].key;

				json_array_append_new(r->runtimes,
				                      json_pack("{s:o, s:o, s:o}", "name",
				                                json_text(name), "plugin",
				                                json_text(plugin), "file",
				                                json_text(file->path)));
				tell_schema(r, file, name, plugin);
			}
		}
}

static bool is_loaded(const struct reading *r, const char *path)
{
	for (size_t i = 0; i < r->files.count; i++)
		if (strcmp(r->files.items[i].path, path) == 0)
			return true;
	return false;
}

/* Whether a file that is TOML names a runtime: any, or the one of this name. */
static bool names_runtime(struct reading *r, const char *path, const char *name)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *text = inspect_read(r->in, path, INSPECT_CONFIG_MAX_BYTES);
	CLEANUP_TOML struct toml *toml = NULL;

	if (!text || toml_parse(&toml, text, path, &ignored) < 0)
		return false;
	for (int version = 1; version <= SCHEMAS; version++) {
		const struct toml_node *all = runtimes_of(toml, containerd_plugin_key(version));

		if (all && (name ? toml_child(all, name) != NULL : all->count > 0))
			return true;
	}
	return false;
}

/* Drop-ins that name a runtime, in a directory that nothing imports (boot case 21). */
static void tell_unread(struct reading *r)
{
	static const char *const dirs[] = {"/etc/containerd/conf.d", "/etc/containerd/config.d"};

	for (size_t d = 0; d < sizeof(dirs) / sizeof(dirs[0]); d++) {
		CLEANUP_STRV struct strv names = inspect_list(r->in, dirs[d]);

		for (size_t i = 0; i < names.count && i < DROPINS_MAX; i++) {
			CLEANUP_FREE char *path = str_format("%s/%s", dirs[d], names.items[i]);

			if (str_ends(path, ".toml") && !is_loaded(r, path) &&
			    names_runtime(r, path, NULL))
				finding_note(&r->in->findings, "containerd.unread",
				             "'%s' names a runtime, but '%s' does not import it",
				             path, r->files.main_path);
		}
	}
}

/* --- What is judged --- */

static void judge_default(struct reading *r)
{
	CLEANUP_FREE char *name = containerd_look_default(&r->files, r->c.major);

	if (r->wants_default && !str_equal(name, r->wanted))
		tell(r, "containerd.runtime", "'%s' is not the default runtime, '%s' is", r->wanted,
		     name ? name : "runc");
}

/* By its own containerd's files. */
static void judge_plain(struct reading *r)
{
	static const char cgroup[] = "SystemdCgroup = true";
	const char *name = r->wanted ? r->wanted : CONTAINERD_RUNTIME_NAME;
	CLEANUP_CONTAINERD_LOOK struct containerd_look look = {0};
	CLEANUP_CONTAINERD_LOOK struct containerd_look runc = {0};

	containerd_look_at(&look, &r->files, r->c.major, name);
	containerd_look_at(&runc, &r->files, r->c.major, "runc");
	if (!look.file && !r->wanted)
		return;
	if (!look.file)
		tell(r, "containerd.runtime", "containerd has no runtime '%s'", name);
	else if (!look.type)
		tell(r, "containerd.runtime", "'%s': the runtime '%s' has no runtime_type",
		     look.file, name);
	else if (r->wanted && containerd_cri_disabled(&r->files))
		tell(r, "containerd.runtime",
		     "the runtime '%s' is of no use: the CRI plugin is disabled", name);
	else
		finding_ok(&r->in->findings, "containerd.runtime", "'%s' has the runtime '%s'",
		           look.file, name);
	judge_default(r);
	if (look.file && strv_has(&runc.options, cgroup) && !strv_has(&look.options, cgroup))
		tell(r, "containerd.cgroup",
		     "'%s': runc has SystemdCgroup = true, and the runtime '%s' has not: its pods are "
		     "killed",
		     look.file, name);
	containerd_judge_binary(&r->in->findings, r->in->root,
	                        look.binary && *look.binary == '/' ? look.binary
	                                                           : r->c.runtime_binary,
	                        r->wanted != NULL);
}

static void judge_k0s(struct reading *r)
{
	CLEANUP_STRV struct strv names = inspect_list(r->in, CONTAINERD_K0S_DIR);

	for (size_t i = 0; i < names.count && i < DROPINS_MAX; i++) {
		CLEANUP_FREE char *path = str_format(CONTAINERD_K0S_DIR "/%s", names.items[i]);

		if (str_ends(path, ".toml") && names_runtime(r, path, r->wanted)) {
			finding_ok(&r->in->findings, "containerd.runtime",
			           "'%s' has the runtime '%s'", path, r->wanted);
			return;
		}
	}
	tell(r, "containerd.runtime", "nothing in '" CONTAINERD_K0S_DIR "' has the runtime '%s'",
	     r->wanted);
}

static void judge_managed(struct reading *r)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const char *manager = containerd_manager_name(r->c.manager);

	if (!r->wanted)
		return;
	if (containerd_check(&r->c, r->in->root, r->wants_default, &err) < 0)
		tell(r, "containerd.runtime", "%s", err.message);
	else if (r->c.manager == CONTAINERD_K0S)
		judge_k0s(r);
	else
		finding_ok(&r->in->findings, "containerd.runtime",
		           "%s makes '" CONTAINERD_RUNTIME_PROGRAM "' the runtime '%s' by itself",
		           manager, r->wanted);
	containerd_judge_binary(&r->in->findings, r->in->root, r->c.runtime_binary, true);
}

/* Where it could not be told whether there is one (-1), nothing more is said of it. */
static void judge(struct reading *r, int found)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (found == 0 && r->wanted && containerd_none(r->in->root, &err) < 0)
		tell(r, "containerd.runtime", "%s", err.message);
	else if (found > 0 && r->c.manager == CONTAINERD_PLAIN)
		judge_plain(r);
	else if (found > 0)
		judge_managed(r);
	if (containerd_judge_cdi(&r->in->findings, r->in->root, r->wanted != NULL, &err) < 0)
		finding_note(&r->in->findings, "inspect.unread", "%s", err.message);
}

/* --- Reading --- */

/* A containerd by its program, or by who brings it: 1, 0: there is none, -1: it cannot be told,
 * which is said. */
static int find(struct reading *r)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int found = containerd_find(&r->c, r->in->root, &r->in->packages, false, NULL, &err);

	if (found < 0)
		tell(r, "inspect.unread", "%s", err.message);
	return found;
}

static void read_files(struct reading *r)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	bool plain = r->c.config_path && r->c.manager == CONTAINERD_PLAIN;

	r->files.globs = r->c.globs;
	if (containerd_files_read(&r->files, r->in->root,
	                          plain ? r->c.config_path : CONTAINERD_MAIN_PATH, &err) == 0)
		return;
	if (plain && r->wanted)
		tell(r, "containerd.runtime", "%s", err.message);
	else
		finding_note(&r->in->findings, "inspect.unread", "%s", err.message);
}

/* Where its version is known from: a package, or the program itself. */
static const char *version_from(const struct reading *r, const char **ret_version)
{
	static const char *const names[] = {"containerd.io", "containerd"};

	for (size_t i = 0; r->c.manager == CONTAINERD_PLAIN && i < 2; i++) {
		const char *version = packages_version(&r->in->packages, names[i]);

		if (version && (!r->c.version || strcmp(version, r->c.version) == 0)) {
			*ret_version = version;
			return names[i];
		}
	}
	*ret_version = r->c.version;
	return r->c.program ? r->c.program : r->c.manager_program;
}

static json_t *facts(const struct reading *r, int found)
{
	CLEANUP_STRV struct strv files = {0};
	CLEANUP_FREE char *name = containerd_look_default(&r->files, r->c.major);
	const char *version = NULL;
	const char *from = version_from(r, &version);

	for (size_t i = 0; i < r->files.count; i++)
		strv_add(&files, r->files.items[i].path);
	return json_pack("{s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o}", "version", json_text(version),
	                 "from", json_text(from), "manager",
	                 json_text(found > 0 ? containerd_manager_name(r->c.manager) : NULL),
	                 "files", json_text_list(&files), "config_version", r->files.version,
	                 "default_runtime", json_text(name), "runtime_binary",
	                 json_text(r->c.runtime_binary), "runtimes", json_incref(r->runtimes));
}

void inspect_containerd(struct inspect *in, const struct inspect_want *want)
{
	struct reading r = {.in = in,
	                    .runtimes = json_array(),
	                    .wanted = want->containerd_runtime,
	                    .wants_default = want->containerd_runtime && want->default_runtime};
	int found = find(&r);

	read_files(&r);
	list_runtimes(&r);
	if (r.files.main_path)
		tell_unread(&r);
	if (containerd_cri_disabled(&r.files))
		finding_note(
			&in->findings, "containerd.cri-disabled",
			"'%s' disables the CRI plugin: no kubelet can use this containerd, and "
			"no runtime of it counts",
			r.files.main_path);
	judge(&r, found);
	json_object_set_new(in->facts, "containerd", facts(&r, found));
	json_decref(r.runtimes);
	containerd_files_free(&r.files);
	containerd_free(&r.c);
}
