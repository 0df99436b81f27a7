/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k0s, k3s and RKE2: a containerd inside of one program, which writes its configuration at each
 * start. k3s and RKE2 find nvidia-container-runtime by themselves (k3s: pkg/agent/containerd), in
 * the GPU operator's directory and in /usr/bin in all releases, and name it 'nvidia'. A default
 * runtime is an option of theirs, whose text is in the program where they have it. k0s merges files
 * of /etc/k0s/containerd.d into its own CRI section, since 1.27.1
 * (docs.k0sproject.io/stable/runtime), in the schema of the containerd that it is built with, which
 * Go records in the program.
 */
#include <string.h>

#include "containerd-config-internal.h"
#include "containerd-internal.h"

#define K0S_DROPIN     CONTAINERD_K0S_DIR "/" CONTAINERD_DROPIN_NAME
#define RANCHER_DROPIN "99-gpuimg.yaml"
#define DEFAULT_OPTION "default-runtime"
/* The option's text in 'k3s agent --help'. */
#define DEFAULT_USAGE "Set the default runtime in containerd"

static int refuse(struct error *err, const char *hint)
{
	error_hint(err, "%s", hint);
	return error_code(err, EXIT_INPUT);
}

/* --- k3s and RKE2 --- */

static const char *rancher_word(const struct containerd *c)
{
	return c->manager == CONTAINERD_RKE2 ? "rke2" : "k3s";
}

/* "key: value" of a simple YAML file, quotes taken off; NULL: not in it. Owned by the caller. */
static char *yaml_value(const char *text, const char *key)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\r\n");
	CLEANUP_FREE char *found = NULL;
	size_t length = strlen(key);

	for (size_t i = 0; i < lines.count; i++) {
		char *line = str_trim(lines.items[i]);
		size_t quoted = *line == '"' || *line == '\'';
		char *value, *comment;

		if (strncmp(line + quoted, key, length) != 0 ||
		    (quoted && line[1 + length] != *line) || line[quoted + length + quoted] != ':')
			continue;
		value = line + quoted + length + quoted + 1;
		comment = strstr(value, " #");
		if (comment)
			*comment = '\0';
		value = str_trim(value);
		if ((*value == '"' || *value == '\'') && strlen(value) > 1) {
			value[strlen(value) - 1] = '\0';
			value++;
		}
		free(found);
		found = str_copy(value);
	}
	return STEAL(found);
}

/* config.yaml and what is in config.yaml.d, in the order in which they count. */
static int rancher_files(const struct containerd *c, struct rootfs *root, struct strv *ret,
                         struct error *err)
{
	CLEANUP_FREE char *dir = str_format("/etc/rancher/%s/config.yaml.d", rancher_word(c));
	CLEANUP_STRV struct strv names = {0};

	strv_addf(ret, "/etc/rancher/%s/config.yaml", rancher_word(c));
	if (rootfs_is_dir(root, dir) && rootfs_list(root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++)
		if (str_ends(names.items[i], ".yaml") || str_ends(names.items[i], ".yml"))
			strv_addf(ret, "%s/%s", dir, names.items[i]);
	return 0;
}

/* The last value of a key in them, and the file that has it; NULL: none has. */
static int rancher_value(const struct containerd *c, struct rootfs *root, const char *key,
                         char **ret, char **ret_file, struct error *err)
{
	CLEANUP_STRV struct strv files = {0};

	if (rancher_files(c, root, &files, err) < 0)
		return -1;
	for (size_t i = 0; i < files.count; i++) {
		CLEANUP_FREE char *text = NULL;
		CLEANUP_FREE char *value = NULL;

		if (containerd_read_text(&text, root, files.items[i], err) < 0)
			return -1;
		value = text ? yaml_value(text, key) : NULL;
		if (!value)
			continue;
		free(*ret);
		*ret = STEAL(value);
		if (ret_file) {
			free(*ret_file);
			*ret_file = str_copy(files.items[i]);
		}
	}
	return 0;
}

static int check_socket(const struct containerd *c, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *socket = NULL;
	CLEANUP_FREE char *file = NULL;

	if (rancher_value(c, root, "container-runtime-endpoint", &socket, &file, err) < 0)
		return -1;
	if (!socket || !*socket)
		return 0;
	error_set(err, "'%s' gives %s another container runtime: '%s'", file,
	          containerd_manager_name(c->manager), socket);
	return refuse(err, "take the line out, or set that runtime up by a script (--run)");
}

/* A template of the user's own takes the place of all that is written for the runtimes that were
 * found. */
static int check_template(const struct containerd *c, struct rootfs *root, struct error *err)
{
	static const char *const names[] = {"config-v3.toml.tmpl", "config.toml.tmpl"};
	CLEANUP_FREE char *data_dir = NULL;

	if (rancher_value(c, root, "data-dir", &data_dir, NULL, err) < 0)
		return -1;
	if (!data_dir)
		data_dir = str_format("/var/lib/rancher/%s", rancher_word(c));
	for (size_t i = 0; i < 2 && *data_dir == '/'; i++) {
		CLEANUP_FREE char *path =
			str_format("%s/agent/etc/containerd/%s", data_dir, names[i]);
		CLEANUP_FREE char *text = NULL;

		if (containerd_read_text(&text, root, path, err) < 0)
			return -1;
		if (!text || strstr(text, "template \"base\""))
			continue;
		error_set(err,
		          "'%s' takes the place of %s's own template, and with it of the runtimes "
		          "that %s finds",
		          path, containerd_manager_name(c->manager),
		          containerd_manager_name(c->manager));
		return refuse(err, "begin it with '{{ template \"base\" . }}', or remove it");
	}
	return 0;
}

/* Only where every release looks: some search PATH, some /usr/bin. */
static int check_place(const struct containerd *c, struct error *err)
{
	if (!c->runtime_binary || str_starts(c->runtime_binary, "/usr/bin/") ||
	    str_starts(c->runtime_binary, CONTAINERD_TOOLKIT_DIR "/"))
		return 0;
	error_set(err, "%s does not look for a runtime at '%s'",
	          containerd_manager_name(c->manager), c->runtime_binary);
	return refuse(err, "put it, or a link to it, into /usr/bin");
}

static char *rancher_dropin(const struct containerd *c)
{
	return str_format("/etc/rancher/%s/config.yaml.d/" RANCHER_DROPIN, rancher_word(c));
}

/* Whether the option is there, and nothing that is read later says otherwise. */
static int check_default(const struct containerd *c, struct rootfs *root, struct error *err)
{
	const char *name = containerd_manager_name(c->manager);
	CLEANUP_FREE char *ours = rancher_dropin(c);
	CLEANUP_FREE char *value = NULL;
	CLEANUP_FREE char *file = NULL;

	if (!c->manager_program ||
	    !containerd_program_has(root, c->manager_program, DEFAULT_USAGE)) {
		error_set(err, "cannot make '" CONTAINERD_RUNTIME_NAME "' the default runtime: %s",
		          c->manager_program ? "this release has no option for it"
		                             : "the image does not have the program yet");
		error_prefix(err, "%s", name);
		return refuse(err, "leave --default-runtime out, and name the runtime in pods "
		                   "(runtimeClassName: " CONTAINERD_RUNTIME_NAME ")");
	}
	if (rancher_value(c, root, DEFAULT_OPTION, &value, &file, err) < 0)
		return -1;
	if (!value || strcmp(value, CONTAINERD_RUNTIME_NAME) == 0 || strcmp(file, ours) < 0)
		return 0;
	error_set(err, "'%s' makes '%s' the default runtime, and is read after ours", file, value);
	return refuse(err, "take the line out, or leave --default-runtime out");
}

static int check_rancher(const struct containerd *c, struct rootfs *root, bool make_default,
                         struct error *err)
{
	if (check_socket(c, root, err) < 0 || check_template(c, root, err) < 0 ||
	    check_place(c, err) < 0)
		return -1;
	return make_default ? check_default(c, root, err) : 0;
}

static int set_up_rancher(struct containerd_result *r, const struct containerd_setup *setup,
                          struct error *err)
{
	static const char text[] =
		"# gpuimg: --default-runtime\n" DEFAULT_OPTION ": " CONTAINERD_RUNTIME_NAME "\n";
	const struct containerd *c = setup->containerd;
	CLEANUP_FREE char *path = rancher_dropin(c);

	r->by = str_copy(containerd_manager_name(c->manager));
	strv_addf(&r->notes, "%s finds '%s' at each start, and makes it the runtime '%s'", r->by,
	          c->runtime_binary, CONTAINERD_RUNTIME_NAME);
	if (!setup->make_default)
		return 0;
	if (rootfs_write(setup->root, path, text, strlen(text), 0644, err) < 0)
		return -1;
	strv_add(&r->edited, path);
	return containerd_add_digest(&r->files, setup->root, path, err);
}

/* --- k0s --- */

/* The version of the schema; 0: it cannot be told. */
static int k0s_schema(const struct containerd *c, struct rootfs *root)
{
	bool one, two;

	if (!c->manager_program)
		return 0;
	one = containerd_program_has(root, c->manager_program,
	                             "\tgithub.com/containerd/containerd\tv1.");
	two = containerd_program_has(root, c->manager_program,
	                             "\tgithub.com/containerd/containerd/v2\tv2.");
	return one == two ? 0 : one ? 2 : 3;
}

static bool k0s_merges(const struct containerd *c, struct rootfs *root)
{
	CLEANUP_FREE char *version = containerd_version_before(root, c->manager_program, "+k0s.");
	int v[3];

	return version && containerd_version_numbers(version, v) &&
	       (v[0] > 1 || v[1] > 27 || (v[1] == 27 && v[2] >= 1));
}

static int check_k0s(const struct containerd *c, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *text = NULL;

	if (containerd_read_text(&text, root, c->config_path, err) < 0)
		return -1;
	if (text && !strstr(text, "k0s_managed=true")) {
		error_set(err,
		          "'%s' is not k0s's own any more, so that k0s merges no drop-in into it",
		          c->config_path);
		return refuse(err,
		              "remove it, so that k0s writes it anew, or add the runtime to it "
		              "by hand");
	}
	if (!c->manager_program) {
		error_set(err,
		          "cannot tell which containerd k0s will bring: the image does not have "
		          "the program yet");
		return refuse(err, "put the k0s program into the image before, or write "
		                   "'" CONTAINERD_K0S_DIR "/nvidia.toml' by a script (--run)");
	}
	if (!k0s_merges(c, root)) {
		error_set(err, "'%s' is no k0s of 1.27.1 or later, which merges drop-ins",
		          c->manager_program);
		return refuse(err, "give the image a newer k0s");
	}
	if (k0s_schema(c, root))
		return 0;
	error_set(err, "cannot tell which containerd '%s' brings", c->manager_program);
	return refuse(err, "write '" CONTAINERD_K0S_DIR "/nvidia.toml' by a script (--run)");
}

/* Drop-ins as k0s merges them: by name, each value for itself. */
static int k0s_dropins(struct containerd_files *ret, struct rootfs *root, int version,
                       struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_is_dir(root, CONTAINERD_K0S_DIR) &&
	    rootfs_list(root, CONTAINERD_K0S_DIR, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *path = str_format(CONTAINERD_K0S_DIR "/%s", names.items[i]);
		CLEANUP_FREE char *quoted = str_format("'%s'", path);
		struct containerd_file *file;

		if (!str_ends(path, ".toml") || strcmp(path, K0S_DROPIN) == 0)
			continue;
		ret->items = mem_grow(ret->items, ret->count + 1, sizeof(*ret->items));
		file = &ret->items[ret->count++];
		*file = (struct containerd_file){.path = str_copy(path), .version = version};
		if (containerd_read_text(&file->text, root, path, err) < 0 ||
		    (file->text && toml_parse(&file->toml, file->text, quoted, err) < 0))
			return -1;
	}
	return 0;
}

static char *k0s_text(const struct containerd_setup *setup, int version, const struct strv *options)
{
	const char *key = containerd_plugin_key(version);
	CLEANUP_FREE char *binary = toml_quote(setup->containerd->runtime_binary);
	CLEANUP_FREE char *more = strv_join(options, "\n    ");

	return str_format(
		"# gpuimg: k0s merges this file into its own configuration of containerd.\n"
		"version = %d\n\n"
		"[plugins.\"%s\".containerd]\n%s"
		"  [plugins.\"%s\".containerd.runtimes." CONTAINERD_RUNTIME_NAME "]\n"
		"    runtime_type = \"" CONTAINERD_DEFAULT_RUNTIME_TYPE "\"\n"
		"  [plugins.\"%s\".containerd.runtimes." CONTAINERD_RUNTIME_NAME
		".options]\n    BinaryName = %s\n%s%s%s",
		version, key,
		setup->make_default ? "  default_runtime_name = \"" CONTAINERD_RUNTIME_NAME "\"\n"
				    : "",
		key, key, binary, *more ? "    " : "", more, *more ? "\n" : "");
}

static int set_up_k0s(struct containerd_result *r, const struct containerd_setup *setup,
                      struct error *err)
{
	int version = k0s_schema(setup->containerd, setup->root);
	CLEANUP_CONTAINERD_FILES struct containerd_files dropins = {.version = version};
	CLEANUP_CONTAINERD_LOOK struct containerd_look runc = {0};
	CLEANUP_FREE char *text = NULL;

	if (k0s_dropins(&dropins, setup->root, version, err) < 0)
		return -1;
	containerd_look_at(&runc, &dropins, 2, "runc"); /* k0s merges as 2.x does */
	text = k0s_text(setup, version, &runc.options);
	if (rootfs_write(setup->root, K0S_DROPIN, text, strlen(text), 0644, err) < 0)
		return -1;
	r->by = str_copy("gpuimg");
	strv_add(&r->edited, K0S_DROPIN);
	strv_addf(&r->notes,
	          "'" K0S_DROPIN "' is in version %d, that of k0s's containerd, which cannot be "
	          "asked in the build",
	          version);
	return containerd_add_digest(&r->files, setup->root, K0S_DROPIN, err);
}

/* --- All of them --- */

int containerd_managed_check(const struct containerd *c, struct rootfs *root, bool make_default,
                             struct error *err)
{
	return c->manager == CONTAINERD_K0S ? check_k0s(c, root, err)
	                                    : check_rancher(c, root, make_default, err);
}

int containerd_managed_set_up(struct containerd_result *ret, const struct containerd_setup *setup,
                              struct error *err)
{
	CLEANUP_CONTAINERD_RESULT struct containerd_result r = {0};
	const struct containerd *c = setup->containerd;

	if ((c->manager == CONTAINERD_K0S ? set_up_k0s(&r, setup, err)
	                                  : set_up_rancher(&r, setup, err)) < 0)
		return -1;
	r.binary = str_copy(c->runtime_binary);
	for (size_t i = 0; i < r.notes.count; i++)
		log_note(setup->log, "containerd: %s", r.notes.items[i]);
	*ret = r;
	r = (struct containerd_result){0};
	return 0;
}

int containerd_managed_look_again(struct containerd_result *result,
                                  const struct containerd_setup *setup, struct error *err)
{
	CLEANUP_STRV struct strv files = {0};

	if (containerd_managed_check(setup->containerd, setup->root, setup->make_default, err) < 0)
		return -1;
	for (size_t i = 0; i < result->edited.count; i++)
		if (containerd_add_digest(&files, setup->root, result->edited.items[i], err) < 0)
			return error_code(err, EXIT_PROOF);
	for (size_t i = 0; i < files.count; i++)
		if (!strv_has(&result->files, files.items[i])) {
			error_set(err, "'%s' was changed", result->edited.items[i]);
			return error_code(err, EXIT_PROOF);
		}
	return 0;
}
