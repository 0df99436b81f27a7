/* SPDX-License-Identifier: Apache-2.0 */
/* Which packages an image has, from dpkg's own record (dpkg(1), /var/lib/dpkg/status). */
#ifndef GPUIMG_PACKAGES_H
#define GPUIMG_PACKAGES_H

#include <stdbool.h>

#include "error.h"
#include "rootfs.h"
#include "str.h"

/* The text of the record, to be freed; NULL for an image without dpkg. */
int packages_read_status(char **ret, struct rootfs *root, struct error *err);
/* Whether that text has this package as installed, on hold or not. */
bool packages_has(const char *status, const char *name);
/* "name=version" of each installed package, sorted. An image without dpkg has none. */
int packages_read(struct strv *ret, struct rootfs *root, struct error *err);
/* The version of 'name' in such a list, borrowed from it; NULL: it is not in it, or there is
 * no list. */
const char *packages_version(const struct strv *packages, const char *name);
/* What 'a' has and 'b' has not; both sorted. */
struct strv packages_minus(const struct strv *a, const struct strv *b);

#endif
