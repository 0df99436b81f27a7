/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our own data files (boot/, profiles/, sandbox/): from --data-dir, GPUIMG_DATA_DIR, the source
 * tree that the program was built in, or where 'make install' put them.
 */
#ifndef GPUIMG_DATA_H
#define GPUIMG_DATA_H

#include "error.h"
#include "str.h"

/* wish: --data-dir or NULL. Owned by the caller. */
int data_find_dir(char **ret, const char *wish, struct error *err);
/* A text file below it, NUL-terminated. */
int data_read(const char *data_dir, const char *name, char **ret, struct error *err);
/* Names of the regular files in a directory, sorted; a missing one is empty. */
int data_list(const char *dir, struct strv *ret, struct error *err);
/* The directory that holds sandbox/ (the stand-ins for grub-probe) and make-base.sh: they lie
 * elsewhere in a source tree. Owned by the caller. */
char *data_sandbox_parent(const char *data_dir);
char *data_make_base(const char *data_dir);

#endif
