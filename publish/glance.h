/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the backend 'glance' share. glance-image.c: what an image shall look like
 * there, and whether it does; no requests. glance-api.c: the requests. glance-send.c: the bytes,
 * and waiting for them. glance.c: the order of all this.
 */
#ifndef GPUIMG_GLANCE_H
#define GPUIMG_GLANCE_H

#include "publish/keystone.h"
#include "publish/publish.h"

#define GLANCE_GENERATIONS_MAX 100
#define GLANCE_UNFINISHED      ".unfinished" /* behind the name until the image is whole */

struct glance {
	struct cloud cloud;
	struct keystone *keystone;
	char *base; /* "https://host/image/v2" */
	char *region;
	char *name; /* that it gets at the end */
	char *id;
	unsigned generation;
	json_t *wanted; /* glance_wanted() */
	json_t *seen;   /* the image as it was last seen; NULL: it is not there */
};

/* --- glance-image.c --- */

/* UUIDv5 (RFC 9562) of a name in a namespace of 16 bytes. Owned by the caller. */
char *uuid5(const unsigned char name_space[16], const char *name);
/*
 * The id of an image: always the same for the same bytes and boot type, so that creating it twice
 * is creating it once. One that was deleted can never be used again there: then the next
 * generation.
 */
char *glance_id(const char *sha256, const char *boot_type, unsigned generation);
/* All properties at the end, name and visibility too. EXIT_USAGE: settings that cannot be. */
int glance_wanted(const struct publish_image *image, const struct publish_location *where,
                  const char *boot_type, json_t **ret, struct error *err);
/* What it is made with: under its unfinished name, seen by nobody else, not protected. */
json_t *glance_begin_with(const json_t *wanted, const char *id);
/* The JSON patch (array, maybe empty) that makes 'seen' what is wanted. Tags are only added. */
json_t *glance_patch(const json_t *wanted, const json_t *seen);
/* Whether the server's own size and digest are the image's. *ret_how: "server-sha512"… EXIT_PROOF:
 * they are not. */
int glance_stored(const struct publish_image *image, const json_t *seen, const char **ret_how,
                  struct error *err);

enum glance_state {
	GLANCE_ABSENT,
	GLANCE_QUEUED,  /* made, without bytes */
	GLANCE_WORKING, /* takes or imports bytes */
	GLANCE_ACTIVE,
	GLANCE_BURNT, /* its id is of no use any more */
	GLANCE_OTHER, /* deactivated, or what we do not know */
};
enum glance_state glance_state(const json_t *seen);
const char *glance_text(const json_t *image, const char *key); /* "" if it has none */

/* --- glance-api.c: all paths below g->base --- */

struct glance_call {
	const char *method, *path, *content_type;
	const struct http_body *body;
	bool idempotent, tell;
	unsigned reply_timeout_s;
};
/* With a token that lives; 401 is answered once by a new one. */
int glance_call(struct publish_job *job, const struct glance_call *call, struct http_reply *ret,
                bool *ret_unknown, struct error *err);
int glance_error(struct publish_job *job, const struct glance_call *call,
                 const struct http_reply *reply, struct error *err);
/* GET of g->id: g->seen is what came, NULL for 404. */
int glance_look(struct publish_job *job, struct error *err);
/* *ret_status: 201, 409 or any other that is not an error to be told here. */
int glance_create(struct publish_job *job, int *ret_status, struct error *err);
/* An image by id. Whether it took place where the reply was lost is asked by the caller. *ret_done
 * false: it may not have. */
int glance_change(struct publish_job *job, const char *id, const json_t *patch, bool *ret_done,
                  struct error *err);
int glance_delete(struct publish_job *job, const char *id, struct error *err);
/* All images for a query ("name=…"), as an array. */
int glance_list(struct publish_job *job, const char *query, json_t **ret, struct error *err);

/* --- glance-send.c --- */

int glance_send_image(struct publish_job *job, struct error *err);
/* Until it is active; sends anew what another publisher left undone. */
int glance_wait_active(struct publish_job *job, struct error *err);

#endif
