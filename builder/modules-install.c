/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a name loads in the end, where install lines stand before it. Debian gives the driver's
 * modules other names, so that several can be installed, and loads the one that was chosen by
 * 'install nvidia modprobe -i nvidia-current'. The line is a shell's: here it is read for the
 * commands 'modprobe' in it, each taken as run.
 */
#include <libkmod.h>
#include <string.h>

#include "modules-internal.h"
#include "str.h"

#define DEPTH_MAX 8
#define STEPS_MAX 128 /* of one question: install lines may ask for each other */

DEFINE_CLEANUP(kmod_modules, struct kmod_list *, kmod_module_unref_list)
#define CLEANUP_KMOD_LIST CLEANUP(cleanup_kmod_modules)

struct chase {
	const struct modules *m;
	const struct oracle *oracle;
	struct strv *found;
	size_t steps;
};

/* A 'modprobe' inside an install line. */
struct request {
	const char *name; /* NULL: loads nothing */
	bool ignore_install;
};

static void chase_name(struct chase *c, const char *name, bool ignore_install, unsigned depth);

/* "-qi": whether one of the letters stands in a word of short options. */
static bool has_letter(const char *word, const char *letters)
{
	return word[0] == '-' && word[1] != '-' && strpbrk(word, letters);
}

static bool takes_value(const char *word)
{
	static const char *const options[] = {"-C",       "-d",        "-S",
	                                      "--config", "--dirname", "--set-version"};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (strcmp(word, options[i]) == 0)
			return true;
	return false;
}

static bool loads_nothing(const char *word)
{
	static const char *const options[] = {"--remove",          "--dry-run",    "--show",
	                                      "--resolve-alias",   "--showconfig", "--show-depends",
	                                      "--dump-modversions"};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (strcmp(word, options[i]) == 0)
			return true;
	return has_letter(word, "rnRcD");
}

/* The words of one simple command. */
static struct request read_request(const struct strv *words)
{
	struct request r = {0};
	size_t i = 0;

	/* "LANG=C exec modprobe …" */
	while (i < words->count &&
	       (strchr(words->items[i], '=') || strcmp(words->items[i], "exec") == 0))
		i++;
	if (i >= words->count ||
	    (strcmp(words->items[i], "modprobe") != 0 && !str_ends(words->items[i], "/modprobe")))
		return r;
	for (i++; i < words->count; i++) {
		const char *word = words->items[i];

		if (word[0] != '-') {
			r.name = word;
			return r;
		}
		if (loads_nothing(word))
			return r;
		if (takes_value(word))
			i++;
		else if (has_letter(word, "i") || strcmp(word, "--ignore-install") == 0)
			r.ignore_install = true;
	}
	return r;
}

static void chase_command(struct chase *c, const char *command, unsigned depth)
{
	CLEANUP_STRV struct strv parts = {0};

	if (modules_command_is_inert(command))
		return;
	parts = strv_split(command, ";&|(){}\n");
	for (size_t i = 0; i < parts.count; i++) {
		CLEANUP_STRV struct strv words = strv_split(parts.items[i], " \t\r\"'");
		struct request r = read_request(&words);

		if (r.name)
			chase_name(c, r.name, r.ignore_install, depth + 1);
	}
}

static void chase_module(struct chase *c, struct kmod_module *module, bool ignore_install,
                         unsigned depth)
{
	const char *name = kmod_module_get_name(module);
	const char *install = ignore_install ? NULL : kmod_module_get_install_commands(module);
	bool builtin = false;

	if (install)
		chase_command(c, install, depth);
	else if (modules_have(c->m, name, &builtin) && !builtin && !strv_has(c->found, name))
		strv_add(c->found, name);
}

static void chase_name(struct chase *c, const char *name, bool ignore_install, unsigned depth)
{
	CLEANUP_KMOD_LIST struct kmod_list *list = NULL;
	CLEANUP_FREE char *normal = modules_normal_name(name);
	struct kmod_module *module = NULL;
	struct kmod_list *item;

	if (depth > DEPTH_MAX || c->steps++ > STEPS_MAX)
		return;
	(void)kmod_module_new_from_lookup(c->oracle->guest, normal, &list);
	kmod_list_foreach(item, list)
	{
		module = kmod_module_get_module(item);
		chase_module(c, module, ignore_install, depth);
		kmod_module_unref(module);
	}
	/* Without modules.dep.bin: busybox reads the text. */
	if (!list && kmod_module_new_from_name(c->oracle->guest, normal, &module) == 0) {
		chase_module(c, module, ignore_install, depth);
		kmod_module_unref(module);
	}
}

int modules_loaded_for(const struct modules *m, const char *name, struct strv *ret,
                       struct error *err)
{
	CLEANUP_ORACLE struct oracle o = {0};
	struct chase c = {.m = m, .oracle = &o, .found = ret};

	if (modules_oracle_open(&o, m, err) < 0)
		return -1;
	chase_name(&c, name, false, 0);
	return 0;
}
