/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHA256SUMS beside the artifact. The directory is the user's, and so is the file: it may hold
 * lines of other tools, comments, a signature. (sums.h reads the sums of distributions.)
 */
#ifndef GPUIMG_SUMS_FILE_H
#define GPUIMG_SUMS_FILE_H

#include <stddef.h>
#include <sys/types.h>

#include "error.h"
#include "str.h"

#define SUMS_FILE_NAME      "SHA256SUMS"
#define SUMS_FILE_LOCK      ".SHA256SUMS.lock"
#define SUMS_FILE_MAX_BYTES ((size_t)16 * 1024 * 1024)
#define SUMS_FILE_WAIT_MS   30000

/*
 * Puts the lines of the named files in DIR/SHA256SUMS, in place of those that are there; digests
 * NULL: takes them out. Every other line stays as it is, byte for byte. One process at a time
 * changes a directory's file: the others wait for DIR/.SHA256SUMS.lock, at most wait_ms. A file
 * that is empty then is removed; one that would stay the same is not written.
 */
int sums_file_update(const char *dir, const struct strv *names, const struct strv *digests,
                     unsigned wait_ms, struct error *err);

/*
 * Writes a file whole or not at all: under a name of its own in the same directory, mode 0644
 * under the umask, flushed, renamed. What stood under 'path' is replaced, a symlink too. On failure
 * errno says why.
 */
int whole_file_write(const char *path, const char *data, size_t size, struct error *err);
/* The same with another mode, 0600 for what is nobody else's. */
int whole_file_write_as(const char *path, mode_t mode, const char *data, size_t size,
                        struct error *err);
/* Removes what whole_file_write() left if it was killed; only for who alone may write 'path'. */
void whole_file_sweep(const char *path);

#endif
