/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one work directory: everything temporary of a run lies in it. A lock file inside tells
 * a later run whether its owner still lives; what an ended run (kill -9, power) left behind is
 * removed by the next one.
 */
#ifndef GPUIMG_WORKDIR_H
#define GPUIMG_WORKDIR_H

#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "log.h"

/* parent: --work-dir, or NULL for $TMPDIR, else /var/tmp. The lock is held by *ret_lock_fd. */
int workdir_make(char **ret, int *ret_lock_fd, const char *parent, struct error *err);
/* A directory with all above it, as mkdir -p; one that is there is fine. EXIT_HOST, named is the
 * first one that cannot be made, and errno says why. */
int workdir_make_parents(const char *path, struct error *err);
/* The same behind the first 'there' bytes of path, which are there, or must not be made. */
int workdir_make_below(size_t there, const char *path, struct error *err);
/* Errors (EXIT_HOST) with the directory's name, what is free and what is needed. */
int workdir_check_space(const char *dir, uint64_t needed_bytes, struct error *err);
uint64_t workdir_free_bytes(const char *dir);
/* Removes a tree below 'dir' and itself, however deep; symbolic links are not followed. What
 * cannot be removed is told on stderr. */
void workdir_remove(const char *dir);
/* Takes its lock file away, so that no later run takes it for left behind and removes it. */
void workdir_keep(const char *dir);

#endif
