/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which packages a driver branch comes to on this image, before anything is changed: names differ
 * by distribution and source, metapackages forward retired branches to newer ones, a repository may
 * have modules built for some kernels only, and Debian's open modules and user space may be of
 * different versions at the same time. docs/driver.md has the table.
 */
#ifndef GPUIMG_DRIVER_RESOLVE_H
#define GPUIMG_DRIVER_RESOLVE_H

#include "apt.h"
#include "driver.h"
#include "guest.h"

struct driver_wish {
	enum driver_source source; /* not DRIVER_RUN: driver-run.h */
	enum driver_flavour flavour;
	const char *branch;
	const struct strv
		*extra;      /* further packages, as "fabricmanager", "persistenced", or names */
	bool require_signed; /* refuse what would have to be compiled here */
	bool allow_forward;  /* another branch than 'branch' is taken, and told */
	/* NVIDIA's repository: NULL: its own address for this distribution, and its own key. */
	const char *repo_url, *repo_key;
};

/* Adds to a session that was just opened what this source needs: components, NVIDIA's repository.
 * Before apt_update(). */
int driver_add_sources(struct apt *apt, const struct guest *guest, const struct driver_wish *wish,
                       struct error *err);
/*
 * After apt_update(). EXIT_INPUT, naming what there is instead: no such branch, a forwarded one, a
 * kernel for which there are neither modules nor headers (all such kernels are named), versions
 * that do not fit together, an extra package of another version than the driver.
 */
int driver_resolve(struct driver_plan *ret, struct apt *apt, struct rootfs *root,
                   const struct guest *guest, const struct driver_wish *wish, struct error *err);
/* Whether what apt would do with one package goes with a driver of this version ("535.261.03").
 * EXIT_INPUT: it removes what is no driver from the image, or is of another version. */
int driver_check_item(const struct apt_item *item, const char *upstream, struct error *err);

#endif
