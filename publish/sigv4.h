/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AWS Signature Version 4 (docs.aws.amazon.com, "Signing AWS API requests") for S3: the path is
 * encoded once. Our own, since libcurl's signs other bytes in each of its versions: 7.88 takes the
 * query as it stands, 8.21 encodes user names, and what one version's requests pass with, another's
 * do not.
 */
#ifndef GPUIMG_PUBLISH_SIGV4_H
#define GPUIMG_PUBLISH_SIGV4_H

#include <time.h>

#include "builder/str.h"

struct sigv4 {
	const char *access_key, *secret_key;
	const char *region, *service; /* "s3" */
	const char *method;
	const char *host;         /* with its port, as in the Host header */
	const char *path;         /* encoded, from '/' on */
	const struct strv *query; /* "name=value", both encoded, any order; may be NULL */
	const struct strv
		*headers; /* "Name: value" to be signed beside host and the dates; may be NULL */
	const char *payload_sha256; /* hex, or "UNSIGNED-PAYLOAD" */
	const char *session_token;  /* NULL: none */
	time_t now;
};

/* Adds the headers of a signed request: Host is left to the transport, x-amz-date,
 * x-amz-content-sha256, x-amz-security-token, those of 'headers', Authorization. */
void sigv4_sign(const struct sigv4 *s, struct strv *ret_headers);
/* The query in the order that was signed, "a=1&b=2"; owned by the caller. */
char *sigv4_query(const struct strv *query);

#endif
