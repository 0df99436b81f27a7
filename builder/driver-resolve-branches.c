/* SPDX-License-Identifier: Apache-2.0 */
/* What a source has instead of the branch that was asked for: only read on the way to an error. */
#include <string.h>

#include "driver-resolve-internal.h"

#define MAX_PACKAGES 64 /* to be looked at; each costs a question to apt */

/* "535 open", once. */
static void add_branch(struct strv *list, const char *branch, enum driver_flavour flavour)
{
	CLEANUP_FREE char *text = str_format("%s %s", branch, driver_flavour_name(flavour));

	if (!strv_has(list, text))
		strv_add(list, text);
}

/* A transitional package stands for no branch of its own. */
static bool is_real(const struct apt_version *v, const char *pattern, enum driver_flavour flavour,
                    const char *branch)
{
	size_t i;

	if (!driver_version_of_branch(v->version, branch))
		return false;
	for (i = 0; i < v->depends.count; i++) {
		CLEANUP_FREE char *name = dependency_name(v->depends.items[i]);
		CLEANUP_FREE char *other = driver_name_branch(pattern, flavour, NULL, name);

		if (other && strcmp(other, branch) != 0)
			return false;
	}
	return true;
}

static int add_package(struct strv *list, struct resolution *r, const char *pattern,
                       enum driver_flavour flavour, const char *name, struct error *err)
{
	CLEANUP_FREE char *named = driver_name_branch(pattern, flavour, NULL, name);
	const struct known_package *p = resolution_package(r, name, err);
	size_t i;

	if (!p)
		return -1;
	for (i = 0; i < p->count; i++) {
		CLEANUP_FREE char *branch = driver_branch_of(p->versions[i].version);

		if (!branch || (named && i > 0))
			continue;
		if (!named || is_real(&p->versions[i], pattern, flavour, named))
			add_branch(list, branch, flavour);
	}
	return 0;
}

static int add_set(struct strv *list, struct resolution *r, const struct driver_set *set,
                   enum driver_flavour flavour, struct error *err)
{
	CLEANUP_FREE char *regex = driver_name_regex(set->dkms, flavour);
	CLEANUP_STRV struct strv names = {0};
	size_t i;

	if (r->ask->names(r->apt, regex, &names, err) < 0)
		return -1;
	for (i = 0; i < names.count && r->known_count < MAX_PACKAGES; i++)
		if (add_package(list, r, set->dkms, flavour, names.items[i], err) < 0)
			return -1;
	return 0;
}

int resolve_there_is(char **ret, struct resolution *r, struct error *err)
{
	CLEANUP_STRV struct strv list = {0};
	const struct driver_set *set = NULL;

	while ((set = driver_set_next(set ? set + 1 : NULL, r->guest->id, r->wish->source)))
		if (add_set(&list, r, set, DRIVER_OPEN, err) < 0 ||
		    add_set(&list, r, set, DRIVER_PROPRIETARY, err) < 0)
			return -1;
	strv_sort(&list);
	*ret = list.count > 0 ? strv_join(&list, ", ") : str_copy("none at all");
	return 0;
}
