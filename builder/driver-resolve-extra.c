/* SPDX-License-Identifier: Apache-2.0 */
/* --driver-extra: services beside the driver, most of which work with just its own version. */
#include <string.h>

#include "driver-resolve-internal.h"
#include "packages.h"

/* A package that is part of the plan already. */
static int refuse(const char *word, const struct strv *seen, const char *branch,
                  const char *upstream, enum driver_match match, struct error *err)
{
	CLEANUP_FREE char *words = driver_extra_words(), *text = strv_join(seen, "; ");

	if (match == DRIVER_MATCH_BRANCH)
		error_set(err, "--driver-extra '%s': no version of branch %s is there (%s)", word,
		          branch, text);
	else
		error_set(
			err,
			"--driver-extra '%s': its version must be %s, as the driver's, and is not "
			"there (%s)",
			word, upstream, text);
	error_hint(err,
	           "known words are %s, else the name of a package; --apt-repo adds a "
	           "repository that has it",
	           words);
	return error_code(err, EXIT_INPUT);
}

/* What goes for a package that we know nothing of: one that is versioned as a driver is must fit.
 */
static enum driver_match match_of(const struct known_package *p)
{
	size_t i;

	for (i = 0; driver_is_package(p->name) && i < p->count; i++) {
		CLEANUP_FREE char *upstream = driver_upstream_version(p->versions[i].version);

		if (upstream && driver_version_like(upstream))
			return DRIVER_MATCH_VERSION;
	}
	return DRIVER_MATCH_ANY;
}

static int add_named(struct strv *install, struct resolution *r, const char *name,
                     const char *upstream, struct error *err)
{
	const struct known_package *p = resolution_package(r, name, err);
	CLEANUP_STRV struct strv seen = {0};
	CLEANUP_FREE char *have = NULL;
	const struct apt_version *v;
	enum driver_match match;

	if (!p)
		return -1;
	match = match_of(p);
	v = known_find(p, match, upstream, r->branch, NULL);
	if (v) {
		strv_addf(install, "%s=%s", name, v->version);
		return 0;
	}
	have = known_versions(p);
	strv_addf(&seen, "%s: %s", name, have);
	if (p->count > 0)
		return refuse(name, &seen, r->branch, upstream, match, err);
	error_set(err, "--driver-extra '%s': no source has a package of this name", name);
	error_hint(err, "--apt-repo adds a repository that has it");
	return error_code(err, EXIT_INPUT);
}

static int add_known(struct strv *install, struct resolution *r, const char *word,
                     const struct driver_extra *extra, const char *upstream, struct error *err)
{
	CLEANUP_STRV struct strv seen = {0};
	const char *const *pattern;

	for (pattern = extra->patterns; *pattern; pattern++) {
		CLEANUP_FREE char *name = driver_name(*pattern, r->branch, r->wish->flavour, NULL);

		if (packages_version(install, name))
			return 0;
	}
	for (pattern = extra->patterns; *pattern; pattern++) {
		CLEANUP_FREE char *name = driver_name(*pattern, r->branch, r->wish->flavour, NULL);
		const struct known_package *p = resolution_package(r, name, err);
		CLEANUP_FREE char *have = NULL;
		const struct apt_version *v;

		if (!p)
			return -1;
		v = known_find(p, extra->match, upstream, r->branch, NULL);
		if (v) {
			strv_addf(install, "%s=%s", name, v->version);
			return 0;
		}
		have = known_versions(p);
		strv_addf(&seen, "%s: %s", name, have);
	}
	return refuse(word, &seen, r->branch, upstream, extra->match, err);
}

int resolve_extras(struct strv *install, struct resolution *r, const char *upstream,
                   struct error *err)
{
	size_t i;

	for (i = 0; r->wish->extra && i < r->wish->extra->count; i++) {
		const char *word = r->wish->extra->items[i];
		const struct driver_extra *extra = driver_extra_find(word, r->branch);

		if (packages_version(install, word))
			continue;
		if (extra ? add_known(install, r, word, extra, upstream, err) < 0
		          : add_named(install, r, word, upstream, err) < 0)
			return -1;
	}
	return 0;
}
