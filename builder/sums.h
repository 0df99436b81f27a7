/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checksum files as distributions publish them: SHA256SUMS (GNU: "hash  name", "hash *name"),
 * CHECKSUM (BSD: "SHA256 (name) = hash"), each also inside an inline PGP signature, or the hash
 * alone. The text is untrusted; who serves it can name any digest, so where it came from counts.
 */
#ifndef GPUIMG_SUMS_H
#define GPUIMG_SUMS_H

#include <stddef.h>

#include "error.h"

/*
 * The digest of 'name', in lower case, with its algorithm, "SHA256" or "SHA512" (a constant);
 * SHA-256 where both are there. A line's directories count only as far as 'path' (of the URL, say
 * "/images/x/disk.qcow2") ends with them. Two lines that contradict each other are an error.
 */
int sums_find(const char *text, const char *path, const char **ret_algorithm, char **ret_hex,
              struct error *err);

/* Lower-case copy if it is that many hex digits and nothing else; else NULL. */
char *sums_parse_hex(const char *s, size_t digits);

#endif
