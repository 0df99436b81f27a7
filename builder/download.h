/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One GET over http(s): redirects, retries, resuming, stalls, bounds. What comes is not checked
 * here (see fetch.h). Redirects are followed by hand, so that https never falls back to http,
 * and a user name in the URL never reaches another host.
 */
#ifndef GPUIMG_DOWNLOAD_H
#define GPUIMG_DOWNLOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"
#include "log.h"

struct download {
	const char *url;
	unsigned retries;         /* after the first try */
	unsigned stall_timeout_s; /* without a byte */
	struct log *log;
};

/* At most max_bytes, and no NUL byte: a text. *ret is owned by the caller. */
int download_text(const struct download *d, size_t max_bytes, char **ret, struct error *err);

/*
 * Into 'path', going on where an earlier try (or process) has left it: "path.from" tells from
 * where that came, and which version. *ret_resumed: not all of it came in one piece, so it may be
 * made of two versions where the server tells none. On failure both files stay. The caller sees to
 * it that nobody else writes there, and removes "path.from" when it is done with 'path'.
 */
int download_file(const struct download *d, const char *path, bool *ret_resumed, struct error *err);

/* For messages and logs: without user name, password, query and fragment. */
char *download_show_url(const char *url);
/* The URL's path, unescaped; "/" if it has none. */
char *download_url_path(const char *url);
/*
 * Where a redirect leads, if it may be followed: *ret_url is 'to', with the user name and password
 * of 'from' if it is the same scheme, host and port.
 */
int download_follow(const char *from, const char *to, char **ret_url, struct error *err);

#endif
