/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k3s and RKE2: a containerd inside of one program, which writes its configuration at each start.
 * They find nvidia-container-runtime by themselves (k3s: pkg/agent/containerd), in the GPU
 * operator's directory and in /usr/bin in all releases, and name it 'nvidia'. A default runtime is
 * an option of theirs, whose text is in the program where they have it.
 */
#include <string.h>

#include "containerd-config-internal.h"
#include "containerd-internal.h"

#define RANCHER_DROPIN "99-gpuimg.yaml"
#define DEFAULT_OPTION "default-runtime"
/* The option's text in 'k3s agent --help'. */
#define DEFAULT_USAGE "Set the default runtime in containerd"

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

/* The value of a long option, or "true" where none follows it; NULL: it is not given. Owned by the
 * caller. */
static char *option_value(const struct strv *words, const char *key)
{
	CLEANUP_FREE char *option = str_format("--%s", key);
	CLEANUP_FREE char *with_value = str_format("--%s=", key);
	CLEANUP_FREE char *found = NULL;

	for (size_t i = 1; i < words->count; i++) {
		const char *word = words->items[i];
		const char *next = i + 1 < words->count ? words->items[i + 1] : "-";
		const char *value = NULL;

		if (str_starts(word, with_value))
			value = word + strlen(with_value);
		else if (strcmp(word, option) == 0 ||
		         (strcmp(word, "-d") == 0 && strcmp(key, "data-dir") == 0))
			value = *next == '-' ? "true" : next;
		if (!value)
			continue;
		free(found);
		found = str_copy(value);
	}
	return STEAL(found);
}

/* The units' command lines, which count more than all files. */
static int rancher_options(const struct containerd *c, struct rootfs *root, const char *key,
                           char **ret, char **ret_unit, struct error *err)
{
	static const char *const units[2][2] = {{"k3s.service", "k3s-agent.service"},
	                                        {"rke2-server.service", "rke2-agent.service"}};

	for (size_t i = 0; i < 2; i++) {
		const char *unit = units[c->manager == CONTAINERD_RKE2][i];
		CLEANUP_STRV struct strv words = {0};
		CLEANUP_FREE char *value = NULL;

		if (containerd_unit_command(&words, root, unit, err) < 0)
			return -1;
		value = option_value(&words, key);
		if (!value)
			continue;
		free(*ret);
		*ret = STEAL(value);
		free(*ret_unit);
		*ret_unit = str_copy(unit);
	}
	return 0;
}

/* The value of a key that counts, and the file or unit that has it; NULL: none has. */
static int rancher_value(const struct containerd *c, struct rootfs *root, const char *key,
                         char **ret, char **ret_from, struct error *err)
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
		free(*ret_from);
		*ret_from = str_copy(files.items[i]);
	}
	return rancher_options(c, root, key, ret, ret_from, err);
}

static int check_socket(const struct containerd *c, struct rootfs *root, struct error *err)
{
	static const char *const keys[] = {"container-runtime-endpoint", "docker"};

	for (size_t i = 0; i < 2; i++) {
		CLEANUP_FREE char *value = NULL;
		CLEANUP_FREE char *from = NULL;

		if (rancher_value(c, root, keys[i], &value, &from, err) < 0)
			return -1;
		if (!value || !*value || strcmp(value, "false") == 0)
			continue;
		error_set(err, "'%s' gives %s another container runtime: '%s: %s'", from,
		          containerd_manager_name(c->manager), keys[i], value);
		return containerd_refuse(err,
		                         "take it out, or set that runtime up by a script (--run)");
	}
	return 0;
}

/* Where it writes containerd's configuration, and templates and drop-ins lie; NULL: it cannot be
 * told. */
static int rancher_dir(const struct containerd *c, struct rootfs *root, char **ret,
                       struct error *err)
{
	CLEANUP_FREE char *data_dir = NULL;
	CLEANUP_FREE char *from = NULL;

	if (rancher_value(c, root, "data-dir", &data_dir, &from, err) < 0)
		return -1;
	if (!data_dir)
		data_dir = str_format("/var/lib/rancher/%s", rancher_word(c));
	if (*data_dir == '/')
		*ret = str_format("%s/agent/etc/containerd", data_dir);
	return 0;
}

/* A template of the user's own takes the place of all that is written for the runtimes that were
 * found, unless it has k3s's own inside, or k3s's loop over them. The one of version 3 counts since
 * containerd 2 (1.31.6, 1.32.2), the other one where that is missing. */
static int check_template(const struct containerd *c, struct rootfs *root, const char *dir,
                          struct error *err)
{
	static const char *const names[] = {"config-v3.toml.tmpl", "config.toml.tmpl"};
	const char *name = containerd_manager_name(c->manager);

	for (size_t i = 0; i < 2; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names[i]);
		CLEANUP_FREE char *text = NULL;

		if (containerd_read_text(&text, root, path, err) < 0)
			return -1;
		if (!text || strstr(text, "template \"base\"") || strstr(text, ".ExtraRuntimes"))
			continue;
		error_set(err,
		          "'%s' takes the place of %s's own template, and with it of the runtimes "
		          "that %s finds",
		          path, name, name);
		return containerd_refuse(err,
		                         "begin it with '{{ template \"base\" . }}', or remove "
		                         "it");
	}
	return 0;
}

/* Its own file imports these since February 2026: they are read after it. */
static int check_dropins(const struct containerd *c, struct rootfs *root, const char *dir,
                         bool make_default, struct error *err)
{
	static const char *const names[] = {"config-v3.toml.d", "config.toml.d"};

	for (size_t i = 0; i < 2; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names[i]);
		CLEANUP_CONTAINERD_FILES struct containerd_files files = {0};

		if (containerd_dropins_read(&files, root, path, NULL, err) < 0)
			return -1;
		for (size_t k = 0; k < files.count; k++)
			if (containerd_dropin_check(&files.items[k], c, make_default, err) < 0)
				return -1;
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
	return containerd_refuse(err, "put it, or a link to it, into /usr/bin");
}

static char *rancher_dropin(const struct containerd *c)
{
	return str_format("/etc/rancher/%s/config.yaml.d/" RANCHER_DROPIN, rancher_word(c));
}

/* Whether the option is there, and nothing that is read later says otherwise. */
static int check_default(const struct containerd *c, struct rootfs *root, bool has_option,
                         struct error *err)
{
	const char *name = containerd_manager_name(c->manager);
	CLEANUP_FREE char *ours = rancher_dropin(c);
	CLEANUP_FREE char *value = NULL;
	CLEANUP_FREE char *file = NULL;

	if (!has_option) {
		error_set(err, "cannot make '" CONTAINERD_RUNTIME_NAME "' the default runtime: %s",
		          c->manager_program ? "this release has no option for it"
		                             : "the image does not have the program yet");
		error_prefix(err, "%s", name);
		return containerd_refuse(
			err, "leave --default-runtime out, and name the runtime in pods "
			     "(runtimeClassName: " CONTAINERD_RUNTIME_NAME ")");
	}
	if (rancher_value(c, root, DEFAULT_OPTION, &value, &file, err) < 0)
		return -1;
	if (!value || strcmp(value, CONTAINERD_RUNTIME_NAME) == 0 || strcmp(file, ours) < 0)
		return 0;
	error_set(err, "'%s' makes '%s' the default runtime, and is read after ours", file, value);
	return containerd_refuse(err, "take the line out, or leave --default-runtime out");
}

/* --- Releases --- */

/* October 2023: the runtimes that are found get SystemdCgroup since then, as runc has it. */
static const int with_cgroup[][3] = {{1, 25, 15}, {1, 26, 10}, {1, 27, 7}, {1, 28, 3}};
#define WITH_CGROUP (sizeof(with_cgroup) / sizeof(with_cgroup[0]))

/* The first builds of these stop at each start once they have found a runtime (k3s issue 8754). */
static int check_release(const struct containerd *c, const struct containerd_bytes *bytes,
                         struct error *err)
{
	const char *suffix = c->manager == CONTAINERD_RKE2 ? "rke2r1" : "k3s1";

	for (size_t i = 0; i < WITH_CGROUP; i++) {
		CLEANUP_FREE char *version =
			str_format("v%d.%d.%d+%s", with_cgroup[i][0], with_cgroup[i][1],
		                   with_cgroup[i][2], suffix);

		if (!containerd_bytes_have(bytes, version))
			continue;
		error_set(err, "%s %s does not start where 'nvidia-container-runtime' is there",
		          containerd_manager_name(c->manager), version);
		return containerd_refuse(err, "give the image a later release of it");
	}
	return 0;
}

/* Its program's bytes; none where it is not there yet. Read anew for each check: a script may have
 * put another one there. */
static int read_bytes(struct containerd_bytes *ret, const struct containerd *c, struct rootfs *root,
                      struct error *err)
{
	if (!c->manager_program || containerd_bytes_read(ret, root, c->manager_program, err) == 0)
		return 0;
	return error_hint(err, "give the image a release of it as it is published");
}

/* What its program alone tells. */
static int check_program(const struct containerd *c, struct rootfs *root, bool *ret_has_default,
                         struct error *err)
{
	CLEANUP_CONTAINERD_BYTES struct containerd_bytes bytes = {0};

	if (read_bytes(&bytes, c, root, err) < 0 || check_release(c, &bytes, err) < 0)
		return -1;
	*ret_has_default = containerd_bytes_have(&bytes, DEFAULT_USAGE);
	return 0;
}

static bool lacks_cgroup(const int v[3])
{
	if (v[0] != 1 || v[1] < with_cgroup[0][1])
		return v[0] <= 1;
	for (size_t i = 0; i < WITH_CGROUP; i++)
		if (v[1] == with_cgroup[i][1])
			return v[2] < with_cgroup[i][2];
	return false;
}

static int note_release(struct containerd_result *r, const struct containerd *c,
                        struct rootfs *root, struct error *err)
{
	const char *mark = c->manager == CONTAINERD_RKE2 ? "+rke2r" : "+k3s";
	CLEANUP_CONTAINERD_BYTES struct containerd_bytes bytes = {0};
	CLEANUP_FREE char *version = NULL;
	int v[3];

	if (read_bytes(&bytes, c, root, err) < 0)
		return -1;
	version = containerd_version_before(&bytes, mark);
	if (version && containerd_version_numbers(version, v) && lacks_cgroup(v))
		strv_addf(
			&r->notes,
			"%s %s gives the runtime no SystemdCgroup: where systemd makes the cgroups, "
			"its pods are killed; later releases do",
			containerd_manager_name(c->manager), version);
	return 0;
}

/* --- All of it --- */

int containerd_rancher_check(const struct containerd *c, struct rootfs *root, bool make_default,
                             struct error *err)
{
	CLEANUP_FREE char *dir = NULL;
	bool has_default;

	if (check_program(c, root, &has_default, err) < 0 || check_socket(c, root, err) < 0 ||
	    rancher_dir(c, root, &dir, err) < 0)
		return -1;
	if (dir && (check_template(c, root, dir, err) < 0 ||
	            check_dropins(c, root, dir, make_default, err) < 0))
		return -1;
	if (check_place(c, err) < 0)
		return -1;
	return make_default ? check_default(c, root, has_default, err) : 0;
}

int containerd_rancher_set_up(struct containerd_result *r, const struct containerd_setup *setup,
                              struct error *err)
{
	static const char text[] =
		"# gpuimg: --default-runtime\n" DEFAULT_OPTION ": " CONTAINERD_RUNTIME_NAME "\n";
	const struct containerd *c = setup->containerd;
	CLEANUP_FREE char *path = rancher_dropin(c);

	r->by = str_copy(containerd_manager_name(c->manager));
	strv_addf(&r->notes, "%s finds '%s' at each start, and makes it the runtime '%s'", r->by,
	          c->runtime_binary, CONTAINERD_RUNTIME_NAME);
	if (note_release(r, c, setup->root, err) < 0)
		return -1;
	if (!setup->make_default)
		return 0;
	if (rootfs_write(setup->root, path, text, strlen(text), 0644, err) < 0)
		return -1;
	strv_add(&r->edited, path);
	return containerd_add_digest(&r->files, setup->root, path, err);
}
