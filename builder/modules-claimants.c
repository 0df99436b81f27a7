/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which modules have an alias for NVIDIA's display devices: by libkmod's indexes, and by the
 * text that images without those have.
 */
#include <errno.h>
#include <fnmatch.h>
#include <libkmod.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "modules-internal.h"
#include "str.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* For kernels without modules.builtin.modinfo (before 5.2), where only names are known. */
static const char *const known_claimants[] = {"nouveau", "nova_core", "nvidiafb", "rivafb"};

/* The same card from a vendor that does not exist. */
static bool matches_any_vendor(const char *pattern, const char *alias)
{
	CLEANUP_FREE char *other = str_copy(alias);

	memcpy(other + strlen("pci:v"), "0000FFFE", 8);
	return fnmatch(pattern, other, 0) == 0;
}

/*
 * Whether the pattern is for NVIDIA's display devices. Either it names vendor and class (any
 * device: a driver may list single boards), or it matches one of our boards and would not
 * match the same board of another vendor: nova_core's first versions took every function of
 * the vendor. Patterns for a class of any vendor are not about NVIDIA; those for one device id
 * of the vendor without a class are its chipsets' network, disk and sound controllers.
 */
static bool is_display_pattern(const char *pattern)
{
	if (str_starts(pattern, "pci:v000010DE") && strstr(pattern, "bc03"))
		return true;
	for (size_t i = 0; modules_gpu_aliases[i]; i++)
		if (fnmatch(pattern, modules_gpu_aliases[i], 0) == 0 &&
		    !matches_any_vendor(pattern, modules_gpu_aliases[i]))
			return true;
	return false;
}

static void add_claimant(struct strv *to, const char *pattern, const char *name)
{
	CLEANUP_FREE char *normal = modules_normal_name(name);

	if (str_starts(pattern, "pci:") && strlen(pattern) <= 255 && is_display_pattern(pattern) &&
	    !strv_has(to, normal))
		strv_add(to, normal);
}

/* Lines "alias PATTERN MODULE", as in modules.alias and in the dump of an index. */
static void add_claimants_from(FILE *f, struct strv *to)
{
	CLEANUP_FREE char *line = NULL;
	size_t capacity = 0;

	while (f && getline(&line, &capacity, f) > 0) {
		char pattern[256], name[256];

		if (sscanf(line, "alias %255s %255s", pattern, name) == 2)
			add_claimant(to, pattern, name);
	}
}

static int add_claimants_of_index(const struct oracle *o, enum kmod_index type, struct strv *to,
                                  struct error *err)
{
	CLEANUP_CLOSE int fd = memfd_create("aliases", MFD_CLOEXEC);
	CLEANUP_FCLOSE FILE *f = NULL;
	int rc;

	if (fd < 0)
		return error_errno(err, errno, "cannot make a file in memory");
	rc = kmod_dump_index(o->none, type, fd);
	if (rc == -ENOSYS || rc == -ENOENT)
		return 0;
	if (rc < 0)
		return error_errno(err, -rc, "cannot list the module aliases with libkmod");
	if (lseek(fd, 0, SEEK_SET) < 0 || !(f = fdopen(fd, "re")))
		return error_errno(err, errno, "cannot read the module aliases back");
	(void)steal_fd(&fd);
	add_claimants_from(f, to);
	return 0;
}

/* modules.builtin.modinfo: "nouveau.alias=pci:…", each ended by a NUL. */
static void add_claimants_of_modinfo(const struct modules *m, struct strv *to)
{
	CLEANUP_FCLOSE FILE *f = modules_open_text(m, "modules.builtin.modinfo");
	CLEANUP_FREE char *entry = NULL;
	size_t capacity = 0;

	while (f && getdelim(&entry, &capacity, '\0', f) > 0) {
		char *alias = strstr(entry, ".alias=");

		if (!alias || alias != strchr(entry, '.'))
			continue;
		*alias = '\0';
		add_claimant(to, alias + strlen(".alias="), entry);
	}
}

int modules_claimants(const struct modules *m, struct strv *ret, struct strv *ret_builtin,
                      struct error *err)
{
	CLEANUP_ORACLE struct oracle o = {0};
	CLEANUP_STRV struct strv all = {0}, builtin = {0};
	CLEANUP_FCLOSE FILE *text = modules_open_text(m, "modules.alias");

	if (modules_oracle_open(&o, m, err) < 0 ||
	    add_claimants_of_index(&o, KMOD_INDEX_MODULES_ALIAS, &all, err) < 0 ||
	    add_claimants_of_index(&o, KMOD_INDEX_MODULES_BUILTIN_ALIAS, &builtin, err) < 0)
		return -1;
	add_claimants_from(text, &all);
	add_claimants_of_modinfo(m, &builtin);
	for (size_t i = 0; i < COUNT(known_claimants); i++)
		if (modules_list_has(m, "modules.builtin", known_claimants[i]) &&
		    !strv_has(&builtin, known_claimants[i]))
			strv_add(&builtin, known_claimants[i]);
	strv_sort(&all);
	strv_sort(&builtin);
	strv_add_all(ret, &all);
	if (ret_builtin)
		strv_add_all(ret_builtin, &builtin);
	return 0;
}
