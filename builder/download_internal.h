/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two halves of a download: tries and files (download.c), one request (…_request.c). */
#ifndef GPUIMG_DOWNLOAD_INTERNAL_H
#define GPUIMG_DOWNLOAD_INTERNAL_H

#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "download.h"

struct transfer {
	const struct download *d;
	struct error *err; /* set by a callback that ends the transfer */
	CURL *curl;        /* of the request that runs */

	/* Where it goes: a file, or memory. */
	int fd;
	const char *path;
	char *text;
	size_t max_text;

	uint64_t have; /* bytes that are there */
	char *version; /* of those: the ETag or date for If-Range; NULL: not told */
	bool resumed;

	/* The answer. */
	bool begun; /* its body goes to the file */
	uint64_t discarded, space_checked;
	char *etag, *modified, *range;

	int64_t begin_ms, moved_ms, drawn_ms;
	uint64_t begin_have, seen;
	bool stalled, restart;
};

/* One request. *ret_next: where it redirects to (owned by the caller), or NULL. On failure,
 * *ret_again: another try makes sense, in *ret_wait_s seconds if the server says so. */
int download_request(struct transfer *t, const char *url, char **ret_next, bool *ret_again,
                     long *ret_wait_s);

/* Drops the bytes that are there. */
int download_forget(struct transfer *t);
/* Notes URL and version of the bytes that come, for whoever resumes. */
void download_save_origin(const struct transfer *t);

/* Frees *where and puts 'what' there. */
void download_replace(char **where, char *what);

#endif
