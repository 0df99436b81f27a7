/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the S3 backend share. */
#ifndef GPUIMG_PUBLISH_S3_H
#define GPUIMG_PUBLISH_S3_H

#include "publish/layout.h"

#define S3_LANES     4 /* more than one connection fills most ways */
#define S3_LANES_MAX 16

struct s3 {
	char *scheme_host; /* "https://host:port" */
	char *host, *base; /* base: path of the bucket, encoded, "" or "/bucket" */
	char *region;
	char *access_key, *secret_key, *session_token;
	char *key, *sums_key, *index_key; /* with the prefix, not encoded */
	char *etag;                       /* as it should be: a hint */
	bool etag_as_predicted;           /* of the last look */
	uint64_t parts;
	size_t lanes;         /* parts that are under way at the same time */
	atomic_bool accepted; /* the credentials were good for a request of this run */
};

/* One signed request. */
struct s3_request {
	const char *method, *key; /* key NULL: of the bucket */
	const struct strv *query;
	const struct strv *headers; /* more, to be signed */
	const struct http_body *body;
	const char *payload_sha256; /* NULL: of no body */
	bool idempotent;
	unsigned reply_timeout_s;
	/* As in http_request; a body with it counts as sent bytes of the image. */
	void (*on_sent)(void *sent_opaque, uint64_t sent_bytes);
	void *sent_opaque;
};
/* 0: a reply, of whatever status. *ret_unknown may be NULL. */
int s3_send(struct publish_job *job, const struct s3_request *request, struct http_reply *ret,
            bool *ret_unknown, struct error *err);
/* The same, where anything but 2xx (and 404, if it may be missing) is an error. */
int s3_call(struct publish_job *job, const struct s3_request *request, bool may_miss,
            struct http_reply *ret, struct error *err);
/* Temporary credentials that were good in this run: with fresh ones the next run goes on. */
bool s3_has_run_out(const struct publish_job *job, const struct http_reply *reply);
int s3_error(struct publish_job *job, const struct s3_request *request,
             const struct http_reply *reply, struct error *err);
/* Small objects. *ret NULL: it is not there. */
int s3_get_text(struct publish_job *job, const char *key, char **ret, struct error *err);
int s3_put_text(struct publish_job *job, const char *key, const char *text, const char *type,
                struct error *err);
/* Whether the object is there with the image's length. */
int s3_is_whole(struct publish_job *job, bool *ret, struct error *err);

/* s3-upload.c: the object itself, in one piece or in parts. */
int s3_begin(struct publish_job *job, struct error *err);
int s3_send_image(struct publish_job *job, struct error *err);
int s3_complete(struct publish_job *job, struct error *err);
int s3_leftovers(struct publish_job *job, bool remove, struct strv *ret, struct error *err);
/* s3-parts.c: sends the parts that are missing; each is remembered as soon as it was taken. */
int s3_send_parts(struct publish_job *job, struct error *err);
uint64_t s3_part_size(const struct publish_image *image, uint64_t number); /* number: from 1 on */
/* Servers write "abc", &quot;abc&quot; or abc. Owned by the caller. */
char *s3_bare_etag(const char *etag);

#endif
