/* SPDX-License-Identifier: Apache-2.0 */
/* The base of a build: a file of the user's, one that is fetched, or the default one. */
#ifndef GPUIMG_BASE_H
#define GPUIMG_BASE_H

#include "build.h"
#include "error.h"

/* Sets b->base_path; steps of the build where it takes time. */
int base_get(struct build *b, struct error *err);
/* Fails (EXIT_INPUT) if the file is not the one, as it was, that base_get() found: it is opened by
 * several programs, one after the other. */
int base_check_same(const struct build *b, struct error *err);
#endif
