/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One way to name a driver, held against what apt has: the newest version at which user space,
 * modules and firmware are all there, and every kernel is served.
 */
#include <stdlib.h>
#include <string.h>

#include "driver-resolve-internal.h"

void set_choice_free(struct set_choice *choice)
{
	free(choice->upstream);
	strv_free(&choice->install);
	kernel_choices_free(&choice->kernels);
	*choice = (struct set_choice){0};
}

/* The branch that a version of a package with the branch in its name hands on to; NULL: it is real.
 * Ubuntu's transitional packages keep the version of their own branch, or have that of the new one:
 * the dependency tells, and the version where there is none. */
static char *forwards_to(struct resolution *r, const char *pattern, const struct apt_version *v)
{
	char *other = NULL;
	size_t i;

	if (!strstr(pattern, "{N}"))
		return NULL;
	for (i = 0; i < v->depends.count && !other; i++) {
		CLEANUP_FREE char *name = dependency_name(v->depends.items[i]);

		other = driver_name_branch(pattern, r->wish->flavour, NULL, name);
		if (str_equal(other, r->branch)) {
			free(other);
			other = NULL;
		}
	}
	if (other)
		return other;
	other = driver_branch_of(v->version);
	if (str_equal(other, r->branch)) {
		free(other);
		return NULL;
	}
	return other;
}

static const struct known_package *by_pattern(struct resolution *r, const char *pattern,
                                              struct error *err)
{
	CLEANUP_FREE char *name = driver_name(pattern, r->branch, r->wish->flavour, NULL);

	return resolution_package(r, name, err);
}

/* 1: the candidate of this package is a transitional one. */
static int check_forward(struct resolution *r, const char *pattern, char **ret_branch,
                         struct error *why, struct error *err)
{
	const struct known_package *p = by_pattern(r, pattern, err);
	CLEANUP_FREE char *other = NULL;

	if (!p)
		return -1;
	if (p->count > 0)
		other = forwards_to(r, pattern, &p->versions[0]);
	if (!other)
		return 0;
	error_set(why, "%s is a transitional package to branch %s (it is at version %s)", p->name,
	          other, p->versions[0].version);
	*ret_branch = STEAL(other);
	return 1;
}

/* 1: the set forwards to another branch. */
static int set_forwards(struct resolution *r, const struct driver_set *set, char **ret_branch,
                        struct error *why, struct error *err)
{
	const struct driver_member *m;

	for (m = set->members; m->pattern; m++) {
		int forward = check_forward(r, m->pattern, ret_branch, why, err);

		if (forward != 0)
			return forward;
	}
	return check_forward(r, set->dkms, ret_branch, why, err);
}

static bool is_needed(const struct driver_member *m, const char *branch)
{
	uint64_t number;

	return m->needed_from != DRIVER_MEMBER_OPTIONAL &&
	       (str_parse_uint(branch, UINT_MAX, &number) < 0 || number >= m->needed_from);
}

/* Versions of the driver that the first member has, newest first. */
static int list_versions(struct strv *ret, struct resolution *r, const struct driver_set *set,
                         struct error *err)
{
	const struct known_package *p = by_pattern(r, set->members[0].pattern, err);
	size_t i, k;

	if (!p)
		return -1;
	for (i = 0; i < p->count; i++) {
		CLEANUP_FREE char *forward =
			forwards_to(r, set->members[0].pattern, &p->versions[i]);
		CLEANUP_FREE char *upstream = driver_upstream_version(p->versions[i].version);

		if (!forward && upstream &&
		    driver_version_of_branch(p->versions[i].version, r->branch) &&
		    !strv_has(ret, upstream))
			strv_add(ret, upstream);
	}
	for (i = 0; i < ret->count; i++)
		for (k = i; k > 0; k--) {
			char *above = ret->items[k - 1];

			if (driver_version_compare(above, ret->items[k]) >= 0)
				break;
			ret->items[k - 1] = ret->items[k];
			ret->items[k] = above;
		}
	return 0;
}

/* The members at one version. 1: all that are needed are there. */
static int list_members(struct strv *install, struct resolution *r, const struct driver_set *set,
                        const char *upstream, struct error *err)
{
	const struct driver_member *m;
	const char *like = NULL;

	for (m = set->members; m->pattern; m++) {
		const struct known_package *p = by_pattern(r, m->pattern, err);
		const struct apt_version *v;

		if (!p)
			return -1;
		v = known_find(p, m->match, upstream, r->branch, like);
		if (!v && is_needed(m, r->branch))
			return 0;
		if (!v)
			continue;
		if (!like)
			like = v->version;
		strv_addf(install, "%s=%s", p->name, v->version);
	}
	return 1;
}

static int add_modules(struct set_choice *choice, const struct apt_version *dkms, const char *name)
{
	size_t i;

	if (choice->kernels.dkms && dkms)
		strv_addf(&choice->install, "%s=%s", name, dkms->version);
	for (i = 0; i < choice->kernels.count; i++)
		if (choice->kernels.items[i].package)
			strv_add(&choice->install, choice->kernels.items[i].package);
	return 1;
}

/* 1: this version it is. 0: not this one; told is counted up if there was something of the modules,
 * and 'why' is the first such reason. */
static int try_version(struct set_choice *choice, struct resolution *r,
                       const struct driver_set *set, const char *upstream, unsigned *told,
                       struct error *why, struct error *err)
{
	const struct known_package *p = by_pattern(r, set->dkms, err);
	const struct apt_version *dkms;
	size_t gaps;
	int whole;

	set_choice_free(choice);
	if (!p)
		return -1;
	whole = list_members(&choice->install, r, set, upstream, err);
	if (whole <= 0)
		return whole;
	dkms = known_find(p, DRIVER_MATCH_VERSION, upstream, r->branch, NULL);
	if (resolve_kernels(&choice->kernels, r, set, upstream, dkms != NULL, err) < 0)
		return -1;
	gaps = kernel_choices_gaps(&choice->kernels);
	if (gaps == 0) {
		choice->set = set;
		choice->upstream = str_copy(upstream);
		return add_modules(choice, dkms, p->name);
	}
	/* without any modules at this version it is the set that does not fit, not the kernels */
	if ((dkms || gaps < choice->kernels.count) && (*told)++ == 0)
		kernels_refused(r, set, &choice->kernels, why);
	return 0;
}

/* What there is of the packages that should have been of one version. */
static int tell_incomplete(struct resolution *r, const struct driver_set *set, struct error *why,
                           struct error *err)
{
	CLEANUP_STRV struct strv list = {0};
	CLEANUP_FREE char *text = NULL, *have = NULL;
	const struct known_package *p = by_pattern(r, set->dkms, err);
	const struct driver_member *m;

	if (!p)
		return -1;
	have = known_versions(p);
	strv_addf(&list, "%s: %s", p->name, have);
	for (m = set->members; m->pattern; m++) {
		CLEANUP_FREE char *versions = NULL;

		if (!is_needed(m, r->branch))
			continue;
		p = by_pattern(r, m->pattern, err);
		if (!p)
			return -1;
		versions = known_versions(p);
		strv_addf(&list, "%s: %s", p->name, versions);
	}
	text = strv_join(&list, "; ");
	error_set(why,
	          "modules, user space and firmware of branch %s (%s) are not there at one "
	          "version: %s",
	          r->branch, driver_flavour_name(r->wish->flavour), text);
	error_code(why, EXIT_INPUT);
	return 0;
}

int resolve_set(enum set_outcome *ret, struct set_choice *choice, char **ret_branch,
                struct resolution *r, const struct driver_set *set, struct error *why,
                struct error *err)
{
	CLEANUP_STRV struct strv versions = {0};
	unsigned told = 0;
	size_t i;
	int result = set_forwards(r, set, ret_branch, why, err);

	if (result < 0)
		return -1;
	*ret = SET_FORWARD;
	if (result > 0)
		return error_code(why, EXIT_INPUT), 0;
	if (list_versions(&versions, r, set, err) < 0)
		return -1;
	*ret = SET_ABSENT;
	if (versions.count == 0)
		return 0;
	for (i = 0; i < versions.count; i++) {
		result = try_version(choice, r, set, versions.items[i], &told, why, err);
		*ret = SET_GOOD;
		if (result != 0)
			return result < 0 ? -1 : 0;
	}
	*ret = told > 0 ? SET_KERNELS : SET_INCOMPLETE;
	return told > 0 ? 0 : tell_incomplete(r, set, why, err);
}
