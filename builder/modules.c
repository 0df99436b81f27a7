/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkmod answers, as modprobe on the node will: it finds the module of an alias, drops what is
 * blacklisted and knows install lines. It gets copies of the guest's files, made safe before
 * (modules-copy.c). But it reads the /proc/cmdline of this host too, which must not count for
 * the guest: see guest_blacklists().
 */
#include <errno.h>
#include <fnmatch.h>
#include <libkmod.h>
#include <stdio.h>
#include <string.h>

#include "modules-internal.h"
#include "str.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* An L4 both ways (a board may be a VGA controller when a display is enabled), then Kepler,
 * Pascal, Volta, Turing, Ampere, Hopper and Blackwell boards of data centres. */
const char *const modules_gpu_aliases[] = {
	"pci:v000010DEd000027B8sv000010DEsd000016CAbc03sc02i00", /* L4 */
	"pci:v000010DEd000027B8sv000010DEsd000016CAbc03sc00i00",
	"pci:v000010DEd0000102Dsv000010DEsd0000106Cbc03sc02i00", /* K80 */
	"pci:v000010DEd00001B38sv000010DEsd000011D9bc03sc02i00", /* P40 */
	"pci:v000010DEd00001DB6sv000010DEsd0000124Abc03sc02i00", /* V100 */
	"pci:v000010DEd00001EB8sv000010DEsd000012A2bc03sc02i00", /* T4 */
	"pci:v000010DEd000020B2sv000010DEsd00001463bc03sc02i00", /* A100 */
	"pci:v000010DEd000026B9sv000010DEsd00001851bc03sc02i00", /* L40S */
	"pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00", /* H100 */
	"pci:v000010DEd00002901sv000010DEsd00001999bc03sc02i00", /* B200 */
	"pci:v000010DEd00002684sv000010DEsd0000165Bbc03sc00i00", /* RTX 4090 */
	NULL,
};

DEFINE_CLEANUP(kmod_modules, struct kmod_list *, kmod_module_unref_list)
#define CLEANUP_KMOD_LIST CLEANUP(cleanup_kmod_modules)

void modules_oracle_close(struct oracle *o)
{
	kmod_unref(o->guest);
	kmod_unref(o->none);
}

char *modules_normal_name(const char *name)
{
	char *copy = str_copy(name);

	for (char *c = copy; *c; c++)
		if (*c == '-')
			*c = '_';
	return copy;
}

char *modules_file_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	CLEANUP_FREE char *name = modules_normal_name(slash ? slash + 1 : path);
	char *end = strstr(name, ".ko");

	if (!end || (end[3] != '\0' && end[3] != '.'))
		return NULL;
	*end = '\0';
	return STEAL(name);
}

static void ignore_log(void *data, int priority, const char *file, int line, const char *fn,
                       const char *format, va_list args)
{
	(void)data;
	(void)priority;
	(void)file;
	(void)line;
	(void)fn;
	(void)format;
	(void)args;
}

int modules_oracle_open(struct oracle *ret, const struct modules *m, struct error *err)
{
	/* Not NULL: that would stand for this host's own directories. */
	static const char *const no_config[] = {NULL};
	const char *const *config =
		m->config_dirs.count ? (const char *const *)m->config_dirs.items : no_config;

	ret->guest = kmod_new(m->dir, config);
	ret->none = kmod_new(m->dir, no_config);
	if (!ret->guest || !ret->none)
		return error_set(err, "cannot open the modules of '%s' with libkmod", m->dir);
	kmod_set_log_fn(ret->guest, ignore_log, NULL);
	kmod_set_log_fn(ret->none, ignore_log, NULL);
	return 0;
}

static size_t count_blacklists(struct kmod_ctx *ctx, const char *name)
{
	struct kmod_config_iter *iter = kmod_config_get_blacklists(ctx);
	size_t count = 0;

	while (kmod_config_iter_next(iter))
		count += strcmp(kmod_config_iter_get_key(iter), name) == 0;
	kmod_config_iter_free_iter(iter);
	return count;
}

/* What both contexts have comes from modprobe.blacklist= on this host's command line. */
static bool guest_blacklists(const struct oracle *o, const char *name)
{
	return count_blacklists(o->guest, name) > count_blacklists(o->none, name);
}

/*
 * Whether an install line loads nothing: true, false, ":" or exit, alone or with plain
 * arguments or a comment. Any other command may load the module (modprobe -i), and counts so.
 * With CRLF the shell does not even find the program.
 */
bool modules_command_is_inert(const char *command)
{
	static const char *const words[] = {"false", "true", ":", "exit"};
	CLEANUP_FREE char *copy = str_copy(command);
	char *word = str_trim(copy), *rest = word + strcspn(word, " \t");

	if (*rest)
		*rest++ = '\0';
	rest += strspn(rest, " \t");
	if (*rest != '#' && strpbrk(rest, ";&|`$<>(){}\"'\\\n\r"))
		return false;
	if (word[0] == '/')
		word = strrchr(word, '/') + 1;
	for (size_t i = 0; i < COUNT(words); i++)
		if (strcmp(word, words[i]) == 0)
			return true;
	return false;
}

FILE *modules_open_text(const struct modules *m, const char *name)
{
	CLEANUP_FREE char *path = str_format("%s/%s", m->dir, name);

	return fopen(path, "re");
}

/* Whether modules.dep or modules.builtin has a line for the module. */
bool modules_list_has(const struct modules *m, const char *file, const char *name)
{
	CLEANUP_FCLOSE FILE *f = modules_open_text(m, file);
	CLEANUP_FREE char *line = NULL;
	size_t capacity = 0;
	bool found = false;

	while (f && !found && getline(&line, &capacity, f) > 0) {
		CLEANUP_FREE char *module = NULL;
		char *base, *ko;

		line[strcspn(line, ":\n")] = '\0';
		base = strrchr(line, '/') ? strrchr(line, '/') + 1 : line;
		ko = strstr(base, ".ko");
		if (!ko)
			continue;
		*ko = '\0';
		module = modules_normal_name(base);
		found = strcmp(module, name) == 0;
	}
	return found;
}

/* The same from the binary indexes, for images that carry nothing else. */
static bool index_has(const struct modules *m, const char *name, bool *ret_builtin)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_ORACLE struct oracle o = {0};
	CLEANUP_KMOD_LIST struct kmod_list *list = NULL, *files = NULL;
	struct kmod_list *item;
	bool found = false;

	if (modules_oracle_open(&o, m, &ignored) < 0 ||
	    kmod_module_new_from_lookup(o.none, name, &list) < 0)
		return false;
	*ret_builtin = list &&
	               kmod_module_apply_filter(o.none, KMOD_FILTER_BUILTIN, list, &files) == 0 &&
	               !files;
	kmod_list_foreach(item, list)
	{
		struct kmod_module *module = kmod_module_get_module(item);

		found |= strcmp(kmod_module_get_name(module), name) == 0 &&
		         (*ret_builtin || kmod_module_get_path(module));
		kmod_module_unref(module);
	}
	*ret_builtin &= found;
	return found;
}

bool modules_have(const struct modules *m, const char *name, bool *ret_builtin)
{
	CLEANUP_FREE char *normal = modules_normal_name(name);
	bool builtin = false, found = false;

	if (modules_list_has(m, "modules.builtin", normal))
		builtin = found = true;
	else if (modules_have_file(m, "modules.dep"))
		found = modules_list_has(m, "modules.dep", normal);
	if (!found)
		found = index_has(m, normal, &builtin);
	if (ret_builtin)
		*ret_builtin = builtin;
	return found;
}

bool modules_is_nvidia_driver(const char *name)
{
	/* Of the kernel itself, and GPUDirect Storage, which is not made with the driver. */
	static const char *const others[] = {"nvidia_wmi_ec_backlight", "nvidia_cspmu",
	                                     "nvidia_fs"};
	CLEANUP_FREE char *normal = modules_normal_name(name);

	for (size_t i = 0; i < COUNT(others); i++)
		if (strcmp(normal, others[i]) == 0)
			return false;
	return strcmp(normal, "nvidia") == 0 || str_starts(normal, "nvidia_");
}

/* What one lookup is about. */
struct question {
	const struct modules *m;
	const struct oracle *oracle;
	const char *asked; /* an alias or a name */
	bool use_blacklist;
};

/* Whether this module, found for the question, would be loaded. */
static bool would_load(const struct question *q, const char *name, const char *install)
{
	bool builtin = false;

	if (q->use_blacklist && guest_blacklists(q->oracle, name))
		return false;
	if (install && modules_command_is_inert(install))
		return false;
	/* 'alias … off' gives a module of that name; a built-in one is there already. */
	return modules_have(q->m, name, &builtin) && !builtin;
}

static bool is_same_module(const char *asked, const char *name)
{
	CLEANUP_FREE char *normal = modules_normal_name(asked);

	return strcmp(normal, name) == 0;
}

/* modprobe leaves a module that it found by an alias alone if it is blacklisted, with or
 * without -b; the blacklist does not count for a module asked for by its own name. */
static void add_loadable(struct question *q, struct kmod_module *module, struct strv *ret)
{
	const char *name = kmod_module_get_name(module);

	q->use_blacklist = !is_same_module(q->asked, name);
	if (would_load(q, name, kmod_module_get_install_commands(module)) && !strv_has(ret, name))
		strv_add(ret, name);
}

static void add_loadable_named(struct question *q, const char *name, struct strv *ret)
{
	struct kmod_module *module = NULL;

	if (kmod_module_new_from_name(q->oracle->guest, name, &module) < 0)
		return;
	add_loadable(q, module, ret);
	kmod_module_unref(module);
}

/* By text, for images without modules.alias.bin (busybox reads no binary index). */
static void add_loadable_by_text(struct question *q, struct strv *ret)
{
	CLEANUP_FCLOSE FILE *f = modules_open_text(q->m, "modules.alias");
	CLEANUP_FREE char *line = NULL;
	size_t capacity = 0;

	if (modules_have(q->m, q->asked, NULL))
		add_loadable_named(q, q->asked, ret);
	while (f && getline(&line, &capacity, f) > 0) {
		char pattern[256], name[256];

		if (sscanf(line, "alias %255s %255s", pattern, name) == 2 &&
		    fnmatch(pattern, q->asked, 0) == 0)
			add_loadable_named(q, name, ret);
	}
}

static int lookup_loadable(const struct modules *m, const struct oracle *o, const char *asked,
                           struct strv *ret, struct error *err)
{
	CLEANUP_KMOD_LIST struct kmod_list *list = NULL;
	struct question q = {.m = m, .oracle = o, .asked = asked};
	struct kmod_list *item;
	int rc = kmod_module_new_from_lookup(o->guest, asked, &list);

	if (rc < 0 && rc != -ENOSYS && rc != -ENOENT)
		return error_errno(err, -rc, "cannot look '%s' up in '%s'", asked, m->dir);
	kmod_list_foreach(item, list)
	{
		struct kmod_module *module = kmod_module_get_module(item);

		add_loadable(&q, module, ret);
		kmod_module_unref(module);
	}
	if (!list && !modules_have_file(m, "modules.alias.bin"))
		add_loadable_by_text(&q, ret);
	return 0;
}

int modules_loadable_by_alias(const struct modules *m, struct strv *ret, struct error *err)
{
	CLEANUP_ORACLE struct oracle o = {0};
	CLEANUP_STRV struct strv all = {0};

	if (modules_oracle_open(&o, m, err) < 0)
		return -1;
	for (size_t i = 0; modules_gpu_aliases[i]; i++)
		if (lookup_loadable(m, &o, modules_gpu_aliases[i], &all, err) < 0)
			return -1;
	strv_sort(&all);
	for (size_t i = 0; i < all.count; i++)
		if (!modules_is_nvidia_driver(all.items[i]))
			strv_add(ret, all.items[i]);
	return 0;
}

int modules_loadable_by_name(const struct modules *m, const char *name, struct error *err)
{
	CLEANUP_ORACLE struct oracle o = {0};
	CLEANUP_STRV struct strv loadable = {0};
	CLEANUP_FREE char *normal = modules_normal_name(name);

	if (modules_oracle_open(&o, m, err) < 0 ||
	    lookup_loadable(m, &o, normal, &loadable, err) < 0)
		return -1;
	return strv_has(&loadable, normal);
}
