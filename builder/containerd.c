/* SPDX-License-Identifier: Apache-2.0 */
/* Which containerd an image has, who manages it, and where its configuration is. */
#include <string.h>

#include "containerd-internal.h"
#include "packages.h"

/* Who brings a containerd inside of a program of its own. Where both are there, the first one
 * counts. */
struct manager {
	enum containerd_manager manager;
	const char *name;    /* for people */
	const char *program; /* its file's name */
	const char *units[2];
	const char *config_dir; /* that only it has */
	const char *config_path;
};

static const struct manager managers[] = {
	{CONTAINERD_K3S,
         "k3s",
         "k3s",
         {"k3s.service", "k3s-agent.service"},
         "/etc/rancher/k3s",
         "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"},
	{CONTAINERD_RKE2,
         "RKE2",
         "rke2",
         {"rke2-server.service", "rke2-agent.service"},
         "/etc/rancher/rke2",
         "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"},
	{CONTAINERD_K0S,
         "k0s",
         "k0s",
         {"k0scontroller.service", "k0sworker.service"},
         "/etc/k0s",
         "/etc/k0s/containerd.toml"},
};
#define MANAGERS (sizeof(managers) / sizeof(managers[0]))

const char *containerd_manager_name(enum containerd_manager manager)
{
	for (size_t i = 0; i < MANAGERS; i++)
		if (managers[i].manager == manager)
			return managers[i].name;
	return "containerd";
}

/* A program by its file's name, "/opt/bin/containerd-2.1" too: not a shell that starts it. */
static bool is_named(const char *program, const char *name)
{
	const char *slash = strrchr(program, '/');

	return strstr(slash ? slash + 1 : program, name) != NULL;
}

/* By its program, or by a unit that starts one which is not there yet. */
static int find_manager(const struct manager *m, struct rootfs *root, bool *ret_there,
                        char **ret_program, struct error *err)
{
	CLEANUP_FREE char *program = containerd_find_program(root, m->program);

	*ret_there = program != NULL;
	for (size_t i = 0; i < 2 && !program; i++) {
		CLEANUP_STRV struct strv words = {0};
		int found = containerd_unit_command(&words, root, m->units[i], err);

		if (found < 0)
			return -1;
		*ret_there = *ret_there || found;
		if (found && is_named(words.items[0], m->program) &&
		    containerd_is_program(root, words.items[0]))
			program = str_copy(words.items[0]);
	}
	*ret_program = STEAL(program);
	return 0;
}

static void take_manager(struct containerd *c, const struct manager *m, char *program)
{
	c->manager = m->manager;
	c->manager_program = program;
	c->config_path = str_copy(m->config_path);
}

/* 1: there is one. */
static int find_managed(struct containerd *c, struct rootfs *root, struct error *err)
{
	for (size_t i = 0; i < MANAGERS; i++) {
		char *program = NULL;
		bool there;

		if (find_manager(&managers[i], root, &there, &program, err) < 0)
			return -1;
		if (there) {
			take_manager(c, &managers[i], program);
			return 1;
		}
	}
	return 0;
}

/* The value of --config, or NULL. */
static const char *config_argument(const struct strv *words)
{
	for (size_t i = 1; i < words->count; i++) {
		const char *word = words->items[i];

		if (str_starts(word, "--config=") || str_starts(word, "-c="))
			return strchr(word, '=') + 1;
		if (strcmp(word, "--config") == 0 || strcmp(word, "-c") == 0)
			return i + 1 < words->count ? words->items[i + 1] : NULL;
	}
	return NULL;
}

static int take_unit(struct containerd *c, struct rootfs *root, struct log *log, struct error *err)
{
	CLEANUP_STRV struct strv words = {0};
	const char *config;
	int found = containerd_unit_command(&words, root, "containerd.service", err);

	if (found <= 0)
		return found;
	if (!is_named(words.items[0], "containerd")) {
		error_set(
			err,
			"cannot tell which containerd the image runs, and with which configuration: "
			"its unit starts '%s'",
			words.items[0]);
		error_hint(err, "name containerd itself in containerd.service's ExecStart=");
		return error_code(err, EXIT_INPUT);
	}
	config = config_argument(&words);
	if (config && (*config != '/' || strpbrk(config, "$%"))) {
		error_set(
			err,
			"cannot tell which configuration containerd reads: its unit says '--config "
			"%s'",
			config);
		error_hint(err, "name the file itself in containerd.service's ExecStart=");
		return error_code(err, EXIT_INPUT);
	}
	for (size_t i = 1; i < words.count; i++)
		if (str_starts(words.items[i], "$"))
			log_warn(log,
			         "containerd.service takes more arguments from '%s', which is not "
			         "followed",
			         words.items[i]);
	if (containerd_is_program(root, words.items[0]))
		c->program = str_copy(words.items[0]);
	if (config)
		c->config_path = str_copy(config);
	return 0;
}

/* What the linker left in the program; NULL: nothing, or it cannot be read. */
static char *version_in(struct rootfs *root, const char *program)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_CONTAINERD_BYTES struct containerd_bytes bytes = {0};

	if (containerd_bytes_read(&bytes, root, program, &ignored) < 0)
		return NULL;
	return containerd_version_behind(&bytes, "/version.Version=");
}

static void find_version(struct containerd *c, struct rootfs *root, const struct strv *packages,
                         bool may_run)
{
	static const char *const names[] = {"containerd.io", "containerd", "containerd-app"};

	for (size_t i = 0; strcmp(c->program, "/usr/bin/containerd") == 0 && !c->version &&
	                   i < sizeof(names) / sizeof(names[0]);
	     i++)
		if (packages_version(packages, names[i]))
			c->version = str_copy(packages_version(packages, names[i]));
	if (!c->version && may_run)
		c->version = containerd_ask_version(root, c->program);
	if (!c->version)
		c->version = version_in(root, c->program);
}

static int find_plain(struct containerd *c, struct rootfs *root, const struct strv *packages,
                      bool may_run, struct log *log, struct error *err)
{
	if (take_unit(c, root, log, err) < 0)
		return -1;
	if (!c->program)
		c->program = containerd_find_program(root, "containerd");
	if (!c->program)
		return 0;
	find_version(c, root, packages, may_run);
	if (!c->config_path)
		c->config_path = str_copy(CONTAINERD_MAIN_PATH);
	return 1;
}

/* containerd's RELEASES: "Fix config import relative path glob" in 1.6.30 and 1.7.16. */
static bool has_old_globs(const int v[3])
{
	if (v[0] != 1 || v[1] > 7)
		return v[0] < 1;
	return v[1] < 6 || v[2] < (v[1] == 6 ? 30 : 16);
}

static void take_numbers(struct containerd *c)
{
	const char *version = c->version ? c->version : "";
	int numbers[3];

	if (!containerd_version_numbers(version + (*version == 'v'), numbers))
		return;
	c->major = numbers[0];
	c->minor = numbers[1];
	c->globs = has_old_globs(numbers) ? CONTAINERD_GLOBS_FROM_ROOT : CONTAINERD_GLOBS_FROM_FILE;
}

static void find_toolkit(struct containerd *c, struct rootfs *root, const struct strv *packages,
                         bool may_run)
{
	static const char *const names[] = {"nvidia-container-toolkit-base",
	                                    "nvidia-container-toolkit"};

	c->runtime_binary = containerd_find_program(root, CONTAINERD_RUNTIME_PROGRAM);
	c->ctk = containerd_find_program(root, "nvidia-ctk");
	if (!c->ctk)
		return;
	for (size_t i = 0; i < 2 && !c->ctk_version && str_starts(c->ctk, "/usr/bin/"); i++)
		if (packages_version(packages, names[i]))
			c->ctk_version = str_copy(packages_version(packages, names[i]));
	if (!c->ctk_version && may_run)
		c->ctk_version = containerd_ask_version(root, c->ctk);
}

/* Configuration alone, of one that is installed at first boot. */
static bool find_configured(struct containerd *c, struct rootfs *root)
{
	for (size_t i = 0; i < MANAGERS; i++)
		if (rootfs_is_dir(root, managers[i].config_dir)) {
			take_manager(c, &managers[i], NULL);
			return true;
		}
	return false;
}

int containerd_find(struct containerd *ret, struct rootfs *root, const struct strv *packages,
                    bool may_run, struct log *log, struct error *err)
{
	CLEANUP(containerd_free) struct containerd c = {0};
	int found = find_managed(&c, root, err);

	if (found < 0)
		return error_prefix(err, "cannot look for containerd");
	if (found) {
		CLEANUP_FREE char *other = containerd_find_program(root, "containerd");

		if (other)
			log_note(log,
			         "the image has '%s' beside %s: %s's own containerd is what nodes "
			         "use",
			         other, containerd_manager_name(c.manager),
			         containerd_manager_name(c.manager));
	} else {
		found = find_plain(&c, root, packages, may_run, log, err);
	}
	if (found < 0)
		return error_prefix(err, "cannot look for containerd");
	if (!found && !find_configured(&c, root))
		return 0;
	take_numbers(&c);
	find_toolkit(&c, root, packages, may_run);
	*ret = c;
	c = (struct containerd){0};
	return 1;
}

void containerd_free(struct containerd *c)
{
	free(c->program);
	free(c->manager_program);
	free(c->version);
	free(c->config_path);
	free(c->runtime_binary);
	free(c->ctk);
	free(c->ctk_version);
	*c = (struct containerd){0};
}

int containerd_check(const struct containerd *c, struct rootfs *root, bool make_default,
                     struct error *err)
{
	return c->manager == CONTAINERD_PLAIN
	               ? 0
	               : containerd_managed_check(c, root, make_default, err);
}
