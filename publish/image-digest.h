/* SPDX-License-Identifier: Apache-2.0 */
/* All digests of one file in one reading of it, each in a thread of its own. */
#ifndef GPUIMG_PUBLISH_IMAGE_DIGEST_H
#define GPUIMG_PUBLISH_IMAGE_DIGEST_H

#include <stdint.h>

#include "builder/error.h"
#include "builder/str.h"

struct image_digest {
	const char *algorithm; /* "MD5", "SHA256", "SHA512" */
	uint64_t part_bytes;   /* a digest of each part, a multiple of 1 MiB; 0: one of the file */
	/* With part_bytes 0: also digested, before and behind the file. */
	const void *head, *tail;
	size_t head_size, tail_size;
	struct strv hex; /* results */
};

/* size_bytes: what the file must have; shorter or longer is EXIT_INPUT (it changes now). on_read
 * (may be NULL) is told how far it is. */
int image_digest_all(struct image_digest *digests, size_t count, int fd, uint64_t size_bytes,
                     void (*on_read)(void *opaque, uint64_t done), void *opaque, struct error *err);

#endif
