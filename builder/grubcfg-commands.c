/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of a grub.cfg mean: boot entries, their initrds, and what else it loads. */
#include <string.h>
#include <strings.h>

#include "grubcfg-internal.h"

#define MAX_ENTRIES     4096
#define MAX_INITRDS     16384 /* of all entries together: one command may serve many */
#define MAX_PATH_LENGTH 4096
#define MAX_ARGS_LENGTH 16384 /* no kernel reads more than 4096 */

static bool is_recovery(const struct strv *args)
{
	return strv_has(args, "single") || strv_has(args, "recovery") || strv_has(args, "rescue");
}

/* "linux", "linuxefi", "linux16", and names chosen at boot: "$linux", "linux$efi". */
static bool is_loader(const char *command, const char *base)
{
	size_t skip = strspn(command, "${"), length = strlen(base);
	const char *rest;

	if (strncmp(command + skip, base, length) != 0)
		return false;
	rest = command + skip + length;
	if (skip)
		return !*rest || str_equal(rest, "}");
	return !*rest || str_equal(rest, "efi") || str_equal(rest, "16") || *rest == '$';
}

/* GRUB's root device says nothing that the path alone does not. */
static const char *path_of(const char *word)
{
	if (str_starts(word, "($root)"))
		return word + strlen("($root)");
	if (str_starts(word, "(${root})"))
		return word + strlen("(${root})");
	return word;
}

static int check_lengths(const struct parser *p, const struct strv *words, int line,
                         struct error *err)
{
	size_t total = 0;

	for (size_t i = 0; i < words->count; i++)
		total += strlen(words->items[i]) + 1;
	if (total > MAX_ARGS_LENGTH)
		return grubcfg_refuse(p, line, err, "the command is longer than %d bytes",
		                      MAX_ARGS_LENGTH);
	return 0;
}

/* words[at] is the kernel, its arguments follow. */
static int add_entry(struct parser *p, struct scope *scope, const struct strv *words, size_t at,
                     int line, struct error *err)
{
	struct grub_config *config = p->config;
	struct grub_entry *entry;

	if (at >= words->count)
		return 0; /* GRUB would say "filename expected" and boot nothing */
	if (config->count >= MAX_ENTRIES)
		return grubcfg_refuse(p, line, err, "more than %d boot entries", MAX_ENTRIES);
	if (check_lengths(p, words, line, err) < 0)
		return -1;
	config->entries = mem_grow(config->entries, config->count + 1, sizeof(*config->entries));
	entry = &config->entries[config->count];
	*entry = (struct grub_entry){.line = line};
	entry->title = str_copy(scope->title);
	entry->kernel = str_copy(path_of(words->items[at]));
	for (size_t i = at + 1; i < words->count; i++)
		if (*words->items[i])
			strv_add(&entry->args, words->items[i]);
	entry->recovery = is_recovery(&entry->args);
	scope->first = config->count++;
	scope->end = config->count;
	return 0;
}

/* "newc:name:path" puts a file into the initramfs under a name. */
static const char *initrd_path(const char *word)
{
	const char *path = str_starts(word, "newc:") ? strchr(word + 5, ':') : NULL;

	return path_of(path ? path + 1 : word);
}

static int add_initrd(struct parser *p, const struct scope *scope, const char *word, int line,
                      struct error *err)
{
	const char *path = initrd_path(word);

	if (str_starts(word, "--") || !*path)
		return 0;
	if (strlen(path) > MAX_PATH_LENGTH)
		return grubcfg_refuse(p, line, err, "a path is longer than %d bytes",
		                      MAX_PATH_LENGTH);
	for (size_t i = scope->first; i < scope->end; i++) {
		if (p->initrd_count++ >= MAX_INITRDS)
			return grubcfg_refuse(p, line, err, "more than %d initrd images",
			                      MAX_INITRDS);
		strv_add(&p->config->entries[i].initrds, path);
	}
	return 0;
}

static int add_initrds(struct parser *p, const struct scope *scope, const struct strv *words,
                       int line, struct error *err)
{
	for (size_t i = 1; i < words->count; i++)
		if (add_initrd(p, scope, words->items[i], line, err) < 0)
			return -1;
	return 0;
}

static bool is_xen(const char *path)
{
	const char *slash = strrchr(path, '/');

	return str_starts(slash ? slash + 1 : path, "xen");
}

/* Index of the first word after the options of a command. */
static size_t first_operand(const struct strv *words)
{
	size_t i = 1;

	while (i < words->count && str_starts(words->items[i], "--"))
		i++;
	return i;
}

/* The first module of a Xen hypervisor is the kernel, what follows is its initrd. */
static int add_module(struct parser *p, struct scope *scope, const struct strv *words, int line,
                      struct error *err)
{
	size_t at = first_operand(words);
	struct strv *args;

	if (!scope->xen)
		return scope->first < scope->end && p->config->entries[scope->first].xen
		               ? add_initrds(p, scope, words, line, err)
		               : 0;
	scope->xen = false;
	if (at >= words->count)
		return 0;
	if (add_entry(p, scope, words, at, line, err) < 0)
		return -1;
	p->config->entries[scope->first].xen = true;
	/* 20_linux_xen puts this where multiboot had the name of the file */
	args = &p->config->entries[scope->first].args;
	if (args->count && str_equal(args->items[0], "placeholder"))
		strv_remove(args, 0);
	return 0;
}

static bool is_module(const char *command)
{
	return str_equal(command, "module") || str_equal(command, "module2") ||
	       str_equal(command, "xen_module");
}

static bool is_hypervisor(const char *command)
{
	return str_equal(command, "multiboot") || str_equal(command, "multiboot2") ||
	       str_equal(command, "xen_hypervisor");
}

static void note_chainloader(struct grub_config *config, const struct strv *words)
{
	for (size_t i = 1; i < words->count; i++) {
		const char *word = words->items[i];

		if (strcasestr(word, "/EFI/Linux/") && strlen(word) > 4 &&
		    strcasecmp(word + strlen(word) - 4, ".efi") == 0)
			config->loads_uki = true;
	}
}

/* Commands that load configuration from elsewhere. */
static void note_elsewhere(struct grub_config *config, const struct strv *words)
{
	const char *command = words->items[0];

	if (str_equal(command, "blscfg"))
		config->loads_blscfg = true;
	else if (str_equal(command, "uki"))
		config->loads_uki = true;
	else if (str_equal(command, "chainloader"))
		note_chainloader(config, words);
	else if (words->count > 1 && (str_equal(command, "source") || str_equal(command, ".") ||
	                              str_equal(command, "configfile")))
		strv_add(&config->sources, words->items[1]);
}

int grubcfg_run_command(struct parser *p, struct scope *scope, const struct strv *words, int line,
                        struct error *err)
{
	const char *command = words->items[0];

	if (is_loader(command, "linux"))
		return add_entry(p, scope, words, first_operand(words), line, err);
	if (is_loader(command, "initrd"))
		return add_initrds(p, scope, words, line, err);
	if (is_module(command))
		return add_module(p, scope, words, line, err);
	if (is_hypervisor(command)) {
		size_t at = first_operand(words);

		scope->xen = at < words->count && is_xen(words->items[at]);
	}
	note_elsewhere(p->config, words);
	return 0;
}
