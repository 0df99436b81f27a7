/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How each kernel of the image gets its modules. "The newest kernel" and "the running one" are
 * never asked about: a node boots any of them, and the running one is the build host's.
 */
#include <stdlib.h>
#include <string.h>

#include "driver-kernel.h"
#include "driver-resolve-internal.h"
#include "packages.h"

void kernel_choices_free(struct kernel_choices *choices)
{
	size_t i;

	for (i = 0; i < choices->count; i++)
		free(choices->items[i].package);
	free(choices->items);
	*choices = (struct kernel_choices){0};
}

size_t kernel_choices_gaps(const struct kernel_choices *choices)
{
	size_t i, gaps = 0;

	for (i = 0; i < choices->count; i++)
		gaps += choices->items[i].gap != KERNEL_SERVED;
	return gaps;
}

/* 1: modules for this kernel of this driver are there, *ret is "name=version". */
static int find_prebuilt(struct resolution *r, const struct driver_set *set, const char *kernel,
                         const char *upstream, char **ret, struct error *err)
{
	CLEANUP_FREE char *name = NULL, *common = NULL;
	const struct known_package *p;
	size_t i;

	if (!set->prebuilt)
		return 0;
	name = driver_name(set->prebuilt, r->branch, r->wish->flavour, kernel);
	common = driver_name(set->prebuilt_of, r->branch, r->wish->flavour, kernel);
	p = resolution_package(r, name, err);
	if (!p)
		return -1;
	for (i = 0; i < p->count; i++) {
		CLEANUP_FREE char *of = dependency_at_least(&p->versions[i], common);

		/* newer user space than the modules would satisfy apt, and fail on the node */
		if (!of || !driver_version_is(of, upstream))
			continue;
		*ret = str_format("%s=%s", name, p->versions[i].version);
		return 1;
	}
	return 0;
}

/* The version of the kernel's own package, borrowed; NULL: dpkg does not know the kernel. */
static const char *kernel_package_version(struct resolution *r, const char *kernel)
{
	static const char *const kinds[] = {"linux-image", "linux-image-unsigned", "linux-modules"};
	size_t i, k;

	for (k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
		CLEANUP_FREE char *start = str_format("%s-%s=", kinds[k], kernel);

		for (i = 0; i < r->installed.count; i++)
			if (str_starts(r->installed.items[i], start))
				return r->installed.items[i] + strlen(start);
	}
	return NULL;
}

/* 1: its headers are on the image (*ret stays NULL) or can be had ("name=version"). */
static int find_headers(struct resolution *r, const char *kernel, char **ret, struct error *err)
{
	CLEANUP_FREE char *makefile = str_format("/lib/modules/%s/build/Makefile", kernel);
	CLEANUP_FREE char *name = str_format("linux-headers-%s", kernel);
	const struct apt_version *version;
	const struct known_package *p;

	if (driver_kernel_has_headers(r->root, kernel) && rootfs_exists(r->root, makefile))
		return 1;
	p = resolution_package(r, name, err);
	if (!p)
		return -1;
	version = known_find(p, DRIVER_MATCH_ANY, NULL, NULL, kernel_package_version(r, kernel));
	if (!version)
		return 0;
	*ret = str_format("%s=%s", name, version->version);
	return 1;
}

static int choose(struct kernel_choice *ret, struct resolution *r, const struct driver_set *set,
                  const char *upstream, bool have_dkms, struct error *err)
{
	int found = find_prebuilt(r, set, ret->version, upstream, &ret->package, err);

	if (found < 0)
		return -1;
	ret->how = found ? DRIVER_PREBUILT : DRIVER_DKMS;
	if (found)
		return 0;
	if (!have_dkms) {
		ret->gap = KERNEL_NO_MODULES;
		return 0;
	}
	if (r->wish->require_signed) {
		ret->gap = KERNEL_UNSIGNED;
		return 0;
	}
	found = find_headers(r, ret->version, &ret->package, err);
	if (found < 0)
		return -1;
	if (!found)
		ret->gap = KERNEL_NO_HEADERS;
	return 0;
}

int resolve_kernels(struct kernel_choices *ret, struct resolution *r, const struct driver_set *set,
                    const char *upstream, bool have_dkms, struct error *err)
{
	size_t i;

	ret->items = mem_grow(NULL, r->guest->kernel_count + 1, sizeof(*ret->items));
	for (i = 0; i < r->guest->kernel_count; i++) {
		struct kernel_choice *c = &ret->items[ret->count];

		if (r->guest->kernels[i].rescue)
			continue;
		*c = (struct kernel_choice){.version = r->guest->kernels[i].version};
		ret->count++;
		if (choose(c, r, set, upstream, have_dkms, err) < 0)
			return -1;
		if (c->how == DRIVER_DKMS)
			ret->dkms = true;
	}
	return 0;
}

/* What one kernel lacks, with the package that would be the cure. */
static char *tell_gap(struct resolution *r, const struct driver_set *set,
                      const struct kernel_choice *c)
{
	CLEANUP_FREE char *prebuilt =
		set->prebuilt ? driver_name(set->prebuilt, r->branch, r->wish->flavour, c->version)
			      : NULL;
	CLEANUP_FREE char *dkms = driver_name(set->dkms, r->branch, r->wish->flavour, NULL);

	switch (c->gap) {
	case KERNEL_NO_HEADERS:
		return str_format("'%s' has no headers to compile for: package "
		                  "'linux-headers-%s' is in no source",
		                  c->version, c->version);
	case KERNEL_UNSIGNED:
		if (!prebuilt)
			return str_format("'%s' would get modules that are compiled in the build "
			                  "and signed by nobody",
			                  c->version);
		return str_format("'%s' would get modules that are compiled in the build and "
		                  "signed by nobody: package '%s' is in no source at this version",
		                  c->version, prebuilt);
	default:
		return str_format(
			"'%s': neither package '%s' nor '%s' is in a source at this version",
			c->version, prebuilt ? prebuilt : "-", dkms);
	}
}

int kernels_refused(struct resolution *r, const struct driver_set *set,
                    const struct kernel_choices *choices, struct error *err)
{
	CLEANUP_STRV struct strv told = {0};
	CLEANUP_FREE char *text = NULL;
	bool headers = false;
	size_t i;

	for (i = 0; i < choices->count; i++) {
		if (choices->items[i].gap == KERNEL_SERVED)
			continue;
		strv_take(&told, tell_gap(r, set, &choices->items[i]));
		headers = headers || choices->items[i].gap == KERNEL_NO_HEADERS;
	}
	text = strv_join(&told, "; ");
	error_set(err,
	          "driver branch %s, %zu of %zu kernels of the image would be without modules: "
	          "kernel %s",
	          r->branch, told.count, choices->count, text);
	if (r->wish->require_signed)
		error_hint(
			err,
			"take the kernel out of the image, or build without "
			"--require-signed (Secure Boot then wants a key of your own on the node)");
	else if (headers)
		error_hint(err, "update the image to a kernel whose headers the archive still has, "
		                "take this kernel out of it, or name a repository that has "
		                "the package with --apt-repo");
	return error_code(err, EXIT_INPUT);
}
