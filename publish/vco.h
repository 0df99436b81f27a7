/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the VCO backend share. */
#ifndef GPUIMG_PUBLISH_VCO_H
#define GPUIMG_PUBLISH_VCO_H

#include "publish/publish.h"

struct vco {
	char *api;    /* "https://HOST/api/1" */
	char *images; /* URL of this location's vm-images */
	char *iam;    /* where the token is refreshed; NULL: nowhere */
	char *token;  /* the JWT */
	char *name;   /* NAME-VERSION-SHA12 */
	char *tags;
	bool by_url;     /* the platform fetches it from 'source_url' */
	bool seen;       /* an image of ours was there, or its id was told */
	bool accepted;   /* the token was good for a call of this run */
	bool noted;      /* on what little the image was taken for ours was told */
	char *status;    /* of the image that vco_look() found; NULL: none was told */
	bool can_be_set; /* 'status' is all of it, and can stand in a targets file as it is */
};

/* What an image's record says of it; of several the last one here counts. */
enum vco_verdict {
	VCO_ABSENT,   /* failed, or deleted: no more than if it were not there */
	VCO_OTHER,    /* another boot type or content */
	VCO_DISABLED, /* ours, and somebody keeps it from being used */
	VCO_UNKNOWN,  /* ours, in a state that we know nothing of */
	VCO_WORKING,
	VCO_READY,
};

/* One call below 'images'. path and query are escaped already; may be "" and NULL. */
struct vco_call {
	const char *method, *path;
	const struct strv *query;
	const struct http_body *body;
	const char *content_type;
	bool idempotent;
	void (*on_sent)(void *opaque, uint64_t sent);
	void *opaque;
	unsigned reply_timeout_s;
	const char *url; /* another address of the API than below 'images'; else NULL */
};
/* 0: a reply, of whatever status; a token that ends soon, or was refused, is refreshed once.
 * EXIT_PUBLISH: it was good in this run and has run out, EXIT_USAGE: it never was. */
int vco_send(struct publish_job *job, const struct vco_call *call, struct http_reply *ret,
             bool *ret_unknown, struct error *err);
/* The same with the reply as JSON (json_decref); another status than 2xx is an error. */
int vco_json(struct publish_job *job, const struct vco_call *call, json_t **ret, struct error *err);
int vco_error(struct publish_job *job, const struct vco_call *call, const struct http_reply *reply,
              struct error *err);
void vco_add_query(struct strv *query, const char *name, const char *value);
/* Whether a token may be sent there: https, or plain http on this host itself. */
bool vco_is_safe_url(const char *url);

/* vco-reply.c: what replies mean; nothing is asked here. */
/* The bare token, or JSON that holds it under one of several names. Owned by the caller; NULL: it
 * is none, or has bytes that no header can hold. */
char *vco_read_token(const char *body);
/* A part's ETag, without quotes. Owned by the caller; NULL: there is none. */
char *vco_read_etag(const struct http_reply *reply);
/* ready_status: one more word for a ready image; NULL: none. */
enum vco_verdict vco_judge(const json_t *image, const char *boot_type, const char *sha256,
                           const char *ready_status);
/* Whether the size that the platform tells can be that of this image: its file's or its disk's, in
 * bytes, MiB or GiB, since no description says which. 1: it can, 0: none is told, -1: it cannot. */
int vco_compare_size(const json_t *image, uint64_t file_bytes, uint64_t virtual_bytes);
/* Whether its tags name this content. */
bool vco_is_tagged(const json_t *image, const char *sha256);
/* The platform's own name of an operating system from its list, "Linux - other" if it has none.
 * Borrowed from the list. */
const char *vco_pick_os(const json_t *reply, const char *distro, const char *version);
/* 'source_url' with its {name}, {version} and {sha256} filled in. Owned by the caller. */
char *vco_fill_in(const char *url, const struct publish_image *image);

/* vco-upload.c: the bytes. */
int vco_begin(struct publish_job *job, struct error *err);
int vco_send_parts(struct publish_job *job, struct error *err);
/* vco-finish.c: the image is made of them, or fetched by the platform. */
int vco_finish(struct publish_job *job, struct error *err);
bool vco_is_finished(struct publish_job *job);
/* vco.c: looks for the image by its name. */
int vco_look(struct publish_job *job, enum vco_verdict *ret, struct error *err);
void vco_take_id(struct publish_job *job, json_int_t id);

#endif
