/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of a build: <name>.manifest.json, schema version 1, described in docs/manifest.md.
 * Written to a temporary name and renamed; for SHA256SUMS beside it see sums-file.h.
 */
#ifndef GPUIMG_MANIFEST_H
#define GPUIMG_MANIFEST_H

#include <jansson.h>

#include "build.h"
#include "error.h"

/* What is known at the end of a build. boot_test may be NULL (not run); references are not
 * taken over. */
json_t *manifest_make(const struct build *b, const char *artifact, const char *sha256,
                      const json_t *boot_test);
int manifest_write(const json_t *manifest, const char *path, struct error *err);

#endif
