/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keystone v3: from a cloud's credentials to a token and the address of a service. The token is
 * made anew before it runs out; password, secret and tokens are added to the job's secrets, so that
 * they are never shown.
 */
#ifndef GPUIMG_KEYSTONE_H
#define GPUIMG_KEYSTONE_H

#include <jansson.h>

#include "publish/clouds-yaml.h"
#include "publish/http.h"

#define KEYSTONE_MARGIN_S 60 /* a token that lives shorter is not used for what follows */

struct keystone;
/* cloud: borrowed, until keystone_free(). EXIT_USAGE: what is missing or not known to us. */
int keystone_new(struct keystone **ret, const struct cloud *cloud, struct http *http,
                 struct strv *secrets, struct error *err);
void keystone_free(struct keystone *k);
/* A token that lives for another KEYSTONE_MARGIN_S; made anew if need be, or if 'fresh'. Borrowed
 * until the next call. */
int keystone_token(struct keystone *k, bool fresh, const char **ret, struct error *err);
const char *keystone_project_id(const struct keystone *k); /* of the token; NULL: none was told */
const json_t *keystone_catalog(const struct keystone *k);

/* The body of POST /v3/auth/tokens. */
int keystone_body(const struct cloud *cloud, json_t **ret, struct error *err);

struct keystone_wanted {
	const char *type;      /* "image" */
	const char *interface; /* "public", "internal", "admin" */
	const char *region;    /* must be it; NULL: see below */
	const char *location;  /* if there is a region of this name, it is the one; may be NULL */
	const char *otherwise; /* the region if there is none of that name; NULL: the only one */
};
/* Results are owned by the caller. EXIT_USAGE: none, or several and nothing says which. */
int keystone_endpoint(const json_t *catalog, const struct keystone_wanted *wanted, char **ret_url,
                      char **ret_region, struct error *err);

#endif
