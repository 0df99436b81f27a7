/* SPDX-License-Identifier: Apache-2.0 */
/* Packages and their versions, as far as a driver's are concerned. */
#include <stdlib.h>
#include <string.h>

#include "driver-resolve-internal.h"

#define DIGITS "0123456789"

void resolution_free(struct resolution *r)
{
	size_t i;

	for (i = 0; i < r->known_count; i++) {
		apt_versions_free(r->known[i]->versions, r->known[i]->count);
		free(r->known[i]->name);
		free(r->known[i]);
	}
	free((void *)r->known);
	strv_free(&r->installed);
	*r = (struct resolution){0};
}

const struct known_package *resolution_package(struct resolution *r, const char *name,
                                               struct error *err)
{
	struct apt_version *versions = NULL;
	struct known_package *p;
	size_t count = 0, i;

	for (i = 0; i < r->known_count; i++)
		if (strcmp(r->known[i]->name, name) == 0)
			return r->known[i];
	if (r->ask->versions(r->apt, name, &versions, &count, err) < 0)
		return NULL;
	p = mem_alloc(sizeof(*p));
	p->name = str_copy(name);
	p->versions = versions;
	p->count = count;
	r->known = mem_grow((void *)r->known, r->known_count + 1, sizeof(struct known_package *));
	r->known[r->known_count++] = p;
	return p;
}

char *known_versions(const struct known_package *p)
{
	CLEANUP_STRV struct strv list = {0};
	size_t i;

	for (i = 0; i < p->count; i++)
		strv_add(&list, p->versions[i].version);
	return list.count > 0 ? strv_join(&list, ", ") : str_copy("not there");
}

bool driver_version_like(const char *upstream)
{
	size_t part = strspn(upstream, DIGITS);
	unsigned dots = 0;

	if (part != 3)
		return false;
	for (upstream += part; *upstream; upstream += part) {
		if (*upstream != '.' || ++dots > 2)
			return false;
		upstream++;
		part = strspn(upstream, DIGITS);
		if (part == 0)
			return false;
	}
	return dots > 0;
}

/* The number at *text, which moves behind it and a dot; without leading zeros as text, since a
 * version is not ours and may have any number of digits. */
static size_t next_number(const char **text, const char **ret)
{
	size_t length;

	*text += strspn(*text, "0");
	*ret = *text;
	length = strspn(*text, DIGITS);
	*text += length;
	if (**text == '.')
		(*text)++;
	return length;
}

int driver_version_compare(const char *a, const char *b)
{
	while (strspn(a, DIGITS) > 0 && strspn(b, DIGITS) > 0) {
		const char *x, *y;
		size_t m = next_number(&a, &x), n = next_number(&b, &y);
		int order = m == n ? strncmp(x, y, n) : m < n ? -1 : 1;

		if (order != 0)
			return order;
	}
	return strcmp(a, b);
}

bool driver_version_is(const char *package_version, const char *upstream)
{
	CLEANUP_FREE char *have = driver_upstream_version(package_version);

	return str_equal(have, upstream);
}

bool driver_version_of_branch(const char *package_version, const char *branch)
{
	CLEANUP_FREE char *have = driver_branch_of(package_version);

	return str_equal(have, branch);
}

char *dependency_name(const char *dependency)
{
	return mem_copy(dependency, strcspn(dependency, " \t(:|<["));
}

char *dependency_at_least(const struct apt_version *version, const char *package)
{
	size_t i;

	for (i = 0; i < version->depends.count; i++) {
		const char *text = version->depends.items[i], *at = strstr(text, ">=");
		CLEANUP_FREE char *name = dependency_name(text);

		if (!at || strchr(text, '|') || strcmp(name, package) != 0)
			continue;
		at += 2 + strspn(at + 2, " \t");
		return mem_copy(at, strcspn(at, " \t)"));
	}
	return NULL;
}

const struct apt_version *known_find(const struct known_package *p, enum driver_match match,
                                     const char *upstream, const char *branch, const char *like)
{
	const struct apt_version *found = NULL;
	size_t i;

	for (i = 0; i < p->count; i++) {
		const struct apt_version *v = &p->versions[i];
		bool fits =
			match == DRIVER_MATCH_ANY ||
			(match == DRIVER_MATCH_BRANCH ? driver_version_of_branch(v->version, branch)
		                                      : driver_version_is(v->version, upstream));

		if (fits && like && strcmp(v->version, like) == 0)
			return v;
		/* a tool of the very same version is better than the newest of its branch */
		if (fits && match == DRIVER_MATCH_BRANCH && driver_version_is(v->version, upstream))
			return v;
		if (fits && !found)
			found = v;
	}
	return found;
}
