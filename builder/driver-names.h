/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a driver's packages are called, by distribution, source and flavour: a table, and nothing
 * else knows a name. docs/driver.md shows it to people.
 *
 * Patterns: "{N}" is the branch ("580"), "{F}" the flavour ("-open" or nothing), "{K}" a kernel's
 * version.
 */
#ifndef GPUIMG_DRIVER_NAMES_H
#define GPUIMG_DRIVER_NAMES_H

#include <limits.h>

#include "driver.h"

/* Which version of a package goes with a driver. */
enum driver_match {
	DRIVER_MATCH_VERSION, /* the driver's own: NVML refuses another one */
	DRIVER_MATCH_BRANCH,  /* one of the branch: tools that are released on their own */
	DRIVER_MATCH_ANY,     /* has versions of its own */
};

#define DRIVER_MEMBER_OPTIONAL UINT_MAX

struct driver_member {
	const char *pattern; /* NULL ends a list */
	enum driver_match match;
	/* Branches from this one on cannot do without it; in others it is taken where it is there.
	 */
	unsigned needed_from;
};

/* One way to name a whole driver. */
struct driver_set {
	const char *title;        /* "Ubuntu's packages for servers" */
	const char *distribution; /* ID of os-release */
	unsigned sources;         /* bits 1 << enum driver_source */
	const char *dkms;         /* pattern: the modules' source */
	const char
		*prebuilt; /* pattern with {K}: modules for just one kernel; NULL: there are none */
	/* Pattern: a dependency of 'prebuilt', whose version is that of the driver inside (the
	 * package itself has the kernel's). */
	const char *prebuilt_of;
	const struct driver_member *members; /* user space; the first one stands for all */
};

/* The sets of a source for a distribution, best first: those at or after 'from' (NULL: the first).
 * NULL: no more. */
const struct driver_set *driver_set_next(const struct driver_set *from, const char *distribution,
                                         enum driver_source source);

/* What --driver-extra may be given instead of names: names to look for, in this order. */
struct driver_extra {
	const char *word;
	const char *patterns[4]; /* NULL ends */
	enum driver_match match;
};
/* By word, or by a name that one of its patterns comes to; NULL: none. */
const struct driver_extra *driver_extra_find(const char *word, const char *branch);
char *driver_extra_words(void); /* "fabricmanager, imex, …" */

/* branch, kernel: NULL leaves "{N}", "{K}" as they are. Owned by the caller. */
char *driver_name(const char *pattern, const char *branch, enum driver_flavour flavour,
                  const char *kernel);
/* The branch in a name that this pattern could come to; NULL: it could not. Owned by the caller. */
char *driver_name_branch(const char *pattern, enum driver_flavour flavour, const char *kernel,
                         const char *name);
/* An extended regular expression of all names that the pattern can come to. */
char *driver_name_regex(const char *pattern, enum driver_flavour flavour);

#endif
