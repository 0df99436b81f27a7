/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What any image is, and whether a GPU would work on a node from it: read only, for a profile. The
 * points are those of the proof (proof.h), with what the profile wants in place of what a build
 * wrote. docs/inspect.md describes the JSON and every point.
 */
#ifndef GPUIMG_INSPECT_H
#define GPUIMG_INSPECT_H

#include <jansson.h>

#include "bootchain.h"
#include "disk.h"
#include "error.h"
#include "finding.h"
#include "guest.h"
#include "proof-driver.h"
#include "qcow2.h"
#include "rootfs.h"

#define INSPECT_SCHEMA_VERSION 1

/* What an image is to be held against; borrowed. */
struct inspect_want {
	const char *profile;       /* its name, for the report; may be NULL */
	const struct strv *params; /* every entry must hold; may be empty */
	const struct strv
		*blocked; /* modules that must not be loadable by name, besides all claimants */
	bool module_blacklist; /* "module_blacklist=" with 'blocked' is wanted in every entry */
	const char *containerd_runtime; /* "nvidia": it must be there; NULL: not wanted */
	bool default_runtime;           /* and be the default */
	bool sealed;                    /* machine-id and the like shall be empty */
	/* NULL: none; one that is there is told, and bad only where it contradicts itself. */
	const struct driver_want *driver;
};

struct inspect {
	const char *path;
	struct image_info info;
	struct disk *disk;
	struct guest *guest;
	struct rootfs *root;
	struct bootchain chain;
	struct strv packages; /* "name=version" */
	const char *work_dir; /* of ours, for copies */
	bool verbose;         /* inspect_print(): points that hold, too */
	struct findings findings;
	json_t *facts; /* what is neither in guest nor in chain: see docs/inspect.md */
};

/* Looks at all points. An error is for what could not be read at all; 'in' is filled by the caller
 * up to and with 'work_dir'. */
int inspect_run(struct inspect *in, const struct inspect_want *want, struct error *err);
/* All of it, for machines; json_decref(). */
json_t *inspect_json(const struct inspect *in);
/* For people, to stdout. */
void inspect_print(const struct inspect *in);
/* Releases what inspect_run() put into it, and nothing of the caller's. */
void inspect_free(struct inspect *in);

#endif
