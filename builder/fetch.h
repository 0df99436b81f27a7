/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches a base image over http(s) with libcurl: resumes, retries with growing pauses, shows
 * progress, gives up on a stall. A file enters the cache (and leaves it) only with the right
 * digest; a wrong one is removed and both values are named.
 *
 * In the cache directory an image is called by its digest, "sha256-<hex>"; beside it stand,
 * while it is fetched, "….part" and "….part.from" (a later run goes on from there), and an
 * empty "….lock", so that two processes fetch it once. Deleting any of them is safe while no
 * gpuimg runs.
 */
#ifndef GPUIMG_FETCH_H
#define GPUIMG_FETCH_H

#include <stdbool.h>

#include "error.h"
#include "log.h"

struct fetch_options {
	const char *url;
	const char *sha256;   /* 64 hex digits; or NULL and then sums_url */
	const char *sums_url; /* a SHA256SUMS or SHA512SUMS file (GNU or BSD lines) naming the URL's
	                         last part */
	const char *cache_dir;    /* made if missing */
	unsigned retries;         /* 0: the default, 5 */
	unsigned stall_timeout_s; /* 0: the default, 60 */
	struct log *log; /* progress is drawn if the caller has begun a step; may be NULL */
};

bool fetch_is_url(const char *base); /* http:// or https:// */
/*
 * *ret_path: the checked file in the cache (owned by the caller); *ret_digest: "sha256:…", also
 * if the sums are SHA-512. The whole file is read for its digest each time, cached or not.
 * EXIT_USAGE: no or a malformed digest; EXIT_INPUT: the server says that there is no such file,
 * wrong checksum, no line for it in the sums; EXIT_HOST: network, cache directory, space.
 */
int fetch_base(const struct fetch_options *options, char **ret_path, char **ret_digest,
               struct error *err);

#endif
