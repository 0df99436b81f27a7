/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that are, or may hold, secrets: wiped before they are released. */
#ifndef GPUIMG_PUBLISH_SECRET_H
#define GPUIMG_PUBLISH_SECRET_H

#include <stdbool.h>
#include <stddef.h>

#include "builder/cleanup.h"
#include "builder/error.h"

void secret_free(char *text);
DEFINE_CLEANUP(secret, char *, secret_free)
#define CLEANUP_SECRET CLEANUP(cleanup_secret)

/* A small regular file, NUL added. *ret_open: whether everybody on this host can read it.
 * EXIT_USAGE. */
int secret_read_file(const char *path, size_t max_bytes, char **ret, bool *ret_open,
                     struct error *err);
/* The error of one that holds a secret and is open to everybody; EXIT_USAGE. */
int secret_refuse_open(const char *path, struct error *err);

#endif
