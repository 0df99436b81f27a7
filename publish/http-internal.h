/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the transport share. */
#ifndef GPUIMG_PUBLISH_HTTP_INTERNAL_H
#define GPUIMG_PUBLISH_HTTP_INTERNAL_H

#include <curl/curl.h>

#include "publish/http.h"

struct http {
	struct http_options options;
	CURL *curl;
	char curl_message[CURL_ERROR_SIZE];
};

/* Why we ended a transfer ourselves. */
enum http_cut { CUT_NONE, CUT_STOPPED, CUT_STALLED, CUT_NO_REPLY, CUT_CALLER, CUT_TOO_LARGE };

/* One try of one request. */
struct transfer {
	struct http *http;
	const struct http_request *request;
	struct http_reply reply;
	uint64_t body_bytes, body_at;
	uint64_t header_bytes; /* of all replies, "100 Continue" too */
	uint64_t moved;        /* bytes both ways when something last moved */
	int64_t moved_ms;
	bool body_failed; /* the file could not be read */
	enum http_cut cut;
	struct error caller_error; /* of on_data() */
};

/* http-transfer.c: one try. *ret_code as libcurl says; what came is in t->reply. */
int http_transfer(struct transfer *t, const char *url, const struct strv *headers,
                  CURLcode *ret_code, struct error *err);
/* http-body.c */
size_t http_body_read(char *to, size_t size, size_t count, void *transfer);
int http_body_seek(void *transfer, curl_off_t offset, int origin);

#endif
