/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (and SHA-512) by libcrypto, as lower-case hex; results owned by the caller. */
#ifndef GPUIMG_DIGEST_H
#define GPUIMG_DIGEST_H

#include <stdatomic.h>
#include <stddef.h>

#include "error.h"

/* Of bytes that were made elsewhere. */
char *digest_hex(const unsigned char *digest, size_t size);
char *digest_memory(const void *data, size_t size); /* SHA-256 */
/* algorithm: "SHA256", "SHA512", "SHA1". The file is read once, from its beginning. */
int digest_file(const char *path, const char *algorithm, char **ret_hex, struct error *err);
/* The same, given up as soon as another thread sets 'stop' (may be NULL). */
int digest_file_until(const char *path, const char *algorithm, const atomic_bool *stop,
                      char **ret_hex, struct error *err);
/* SHA-256 of what is left to read; 'name' is for messages. */
int digest_fd(int fd, const char *name, char **ret_hex, struct error *err);

#endif
