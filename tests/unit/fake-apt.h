/* SPDX-License-Identifier: Apache-2.0 */
/*
 * apt that is a table of packages: for what asks by struct driver_apt. Versions of one name stand
 * in the order that apt_versions() would give, the candidate first. A simulation takes what is
 * asked for and, by name, what it depends on.
 */
#ifndef GPUIMG_TESTS_FAKE_APT_H
#define GPUIMG_TESTS_FAKE_APT_H

#include <fnmatch.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "builder/driver-resolve-internal.h"

struct fake_deb {
	const char *name; /* NULL ends the table */
	const char *version, *depends;
};

struct fake_apt {
	const struct fake_deb *debs;
	const char *removes;      /* a package that any transaction takes out; NULL: none */
	struct strv components;   /* what was added */
	struct strv pinned, pins; /* "URL SUITE KEY-PATH KEY-URL FINGERPRINT"; "GLOB VERSION" */
	unsigned questions;
};

static inline struct fake_apt *fake_of(struct apt *apt)
{
	return (struct fake_apt *)(void *)apt;
}

static inline int fake_add_components(struct apt *apt, const struct strv *components,
                                      struct error *err)
{
	(void)err;
	strv_add_all(&fake_of(apt)->components, components);
	return 0;
}

static inline int fake_add_pinned(struct apt *apt, const struct apt_pinned *p, struct error *err)
{
	(void)err;
	strv_addf(&fake_of(apt)->pinned, "%s %s %s %s %s", p->url, p->suite,
	          p->key_path ? p->key_path : "-", p->key_url ? p->key_url : "-",
	          p->fingerprint ? p->fingerprint : "-");
	return 0;
}

static inline int fake_pin(struct apt *apt, const char *glob, const char *version,
                           struct error *err)
{
	(void)err;
	strv_addf(&fake_of(apt)->pins, "%s %s", glob, version);
	return 0;
}

static inline int fake_versions(struct apt *apt, const char *package, struct apt_version **ret,
                                size_t *ret_count, struct error *err)
{
	const struct fake_deb *d;
	struct apt_version *list = NULL;
	size_t count = 0;

	(void)err;
	fake_of(apt)->questions++;
	for (d = fake_of(apt)->debs; d->name; d++) {
		CLEANUP_STRV struct strv depends = {0};
		size_t i;

		if (strcmp(d->name, package) != 0)
			continue;
		list = mem_grow(list, count + 1, sizeof(*list));
		list[count] = (struct apt_version){.version = str_copy(d->version),
		                                   .description = str_copy("")};
		depends = strv_split(d->depends, ",");
		for (i = 0; i < depends.count; i++)
			strv_add(&list[count].depends, str_trim(depends.items[i]));
		count++;
	}
	*ret = list;
	*ret_count = count;
	return 0;
}

static inline int fake_names(struct apt *apt, const char *pattern, struct strv *ret,
                             struct error *err)
{
	const struct fake_deb *d;
	regex_t regex;

	if (regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB) != 0)
		return error_set(err, "bad pattern '%s'", pattern);
	for (d = fake_of(apt)->debs; d->name; d++)
		if (regexec(&regex, d->name, 0, NULL, 0) == 0 && !strv_has(ret, d->name))
			strv_add(ret, d->name);
	regfree(&regex);
	strv_sort(ret);
	return 0;
}

static inline const struct fake_deb *fake_find_deb(const struct fake_deb *d, const char *name,
                                                   const char *version)
{
	for (; d->name; d++)
		if (strcmp(d->name, name) == 0 && (!version || strcmp(d->version, version) == 0))
			return d;
	return NULL;
}

static inline bool fake_has_item(const struct apt_transaction *t, const char *name)
{
	size_t i;

	for (i = 0; i < t->count; i++)
		if (strcmp(t->items[i].name, name) == 0)
			return true;
	return false;
}

/* The version that apt would choose: a pinned one, else the candidate. */
static inline const struct fake_deb *fake_candidate(const struct fake_apt *fake, const char *name)
{
	const struct fake_deb *d;
	size_t i;

	for (d = fake->debs; d->name; d++)
		for (i = 0; strcmp(d->name, name) == 0 && i < fake->pins.count; i++) {
			CLEANUP_STRV struct strv pin = strv_split(fake->pins.items[i], " ");

			if (fnmatch(pin.items[0], name, 0) == 0 &&
			    fnmatch(pin.items[1], d->version, 0) == 0)
				return d;
		}
	return fake_find_deb(fake->debs, name, NULL);
}

static inline void fake_take(const struct fake_apt *fake, const struct fake_deb *d,
                             struct apt_transaction *t)
{
	CLEANUP_STRV struct strv depends = strv_split(d->depends, ",");
	size_t i;

	if (fake_has_item(t, d->name))
		return;
	t->items = mem_grow(t->items, t->count + 1, sizeof(*t->items));
	t->items[t->count++] =
		(struct apt_item){.name = str_copy(d->name), .version = str_copy(d->version)};
	t->download_bytes += 100;
	t->installed_bytes += 1000;
	for (i = 0; i < depends.count; i++) {
		CLEANUP_FREE char *name = dependency_name(str_trim(depends.items[i]));
		const struct fake_deb *other = fake_candidate(fake, name);

		if (other)
			fake_take(fake, other, t);
	}
}

static inline int fake_simulate(struct apt *apt, const struct strv *install,
                                struct apt_transaction *ret, struct error *err)
{
	struct fake_apt *fake = fake_of(apt);
	size_t i;

	for (i = 0; i < install->count; i++) {
		CLEANUP_STRV struct strv parts = strv_split(install->items[i], "=");
		const struct fake_deb *d = fake_find_deb(fake->debs, parts.items[0],
		                                         parts.count > 1 ? parts.items[1] : NULL);

		if (!d) {
			error_set(err, "no '%s'", install->items[i]);
			return error_code(err, EXIT_INPUT);
		}
		fake_take(fake, d, ret);
	}
	if (fake->removes) {
		ret->items = mem_grow(ret->items, ret->count + 1, sizeof(*ret->items));
		ret->items[ret->count++] =
			(struct apt_item){.name = str_copy(fake->removes), .removed = true};
	}
	return 0;
}

static inline void fake_apt_free(struct fake_apt *fake)
{
	strv_free(&fake->components);
	strv_free(&fake->pinned);
	strv_free(&fake->pins);
}

static const struct driver_apt fake_apt_table = {
	.add_components = fake_add_components,
	.add_pinned = fake_add_pinned,
	.pin = fake_pin,
	.versions = fake_versions,
	.names = fake_names,
	.simulate = fake_simulate,
};

#endif
