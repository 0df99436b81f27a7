/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a unified kernel image of a guest anew, with the guest's own ukify(1): kernel, initramfs
 * and command line of now, all else (splash, microcode, device trees) as the old one had it.
 */
#ifndef GPUIMG_UKI_BUILD_H
#define GPUIMG_UKI_BUILD_H

#include "bootchain.h"
#include "error.h"
#include "guest.h"
#include "rootfs.h"

struct uki_job {
	const char *path;                  /* of the UKI in the guest */
	const struct guest_kernel *kernel; /* which it boots */
	const struct strv *args;           /* its new command line */
	const char *key, *cert; /* host files to sign it with, PEM; NULL: it is not signed */
	const char *scratch;    /* a directory of ours */
	int64_t source_date_epoch;
};

/* The guest's ukify, or NULL. */
const char *uki_find_builder(struct rootfs *root);
/*
 * Whether this one can be built anew: an error (EXIT_INPUT) for what a new one would lose: a
 * signature without a key, a signed PCR policy, several profiles, no ukify in the image.
 */
int uki_check_buildable(struct rootfs *root, const char *path, bool has_key, const char *scratch,
                        struct error *err);
int uki_rebuild(struct rootfs *root, const struct uki_job *job, struct error *err);

#endif
