/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the OCI backend share: names and addresses of a registry, who we are to it, the
 * documents around the image, the way a blob gets there (OCI Distribution Specification).
 */
#ifndef GPUIMG_PUBLISH_OCI_H
#define GPUIMG_PUBLISH_OCI_H

#include "publish/publish.h"

/* --- oci-url.c: names and addresses --- */

/* "registry.example:5000/team/gpu-node" */
struct oci_place {
	char *host; /* "registry.example:5000", as it was written */
	char *api;  /* where its protocol is spoken; another one for docker.io alone */
	char *path; /* "team/gpu-node" */
};
int oci_place_parse(struct oci_place *ret, const char *repository, struct error *err);
void oci_place_free(struct oci_place *place);
#define CLEANUP_OCI_PLACE CLEANUP(oci_place_free)
bool oci_is_loopback(const char *host); /* with or without a port */
/* Whether credentials for the registry at 'origin' may go to a token server: over https, or in
 * plain text where the registry itself is spoken to so, on its own host. */
bool oci_realm_is_safe(const char *origin, const char *realm);
/* The URL that a Location of a reply to 'url' means. NULL: none that we would follow, as of another
 * scheme, with credentials in it, or from https down to http. Owned by the caller. */
char *oci_join_location(const char *url, const char *location);
/* The URL with "name=value" at the end of its query. Owned by the caller. */
char *oci_add_query(const char *url, const char *name, const char *value);
bool oci_is_tag(const char *text);
/* A version made valid as a tag. Owned by the caller. */
char *oci_clean_tag(const char *version);

/* --- oci-login.c: credentials --- */

struct oci_login {
	char *user, *password;
	char *identity_token; /* of a token server: exchanged for a registry's token */
	char *bearer;         /* a registry's token itself */
};
/* From the targets file, else from docker's configuration; all NULL: nowhere, we are anonymous. */
int oci_login_find(struct publish_job *job, const struct oci_place *place, struct oci_login *ret,
                   struct error *err);
/* The same from the text of docker's configuration; 'name' is for messages. *ret_found: it had an
 * entry. EXIT_USAGE: it has only the name of a program that would know. */
int oci_login_parse(const char *text, const char *name, const struct oci_place *place,
                    struct oci_login *ret, bool *ret_found, struct error *err);
void oci_login_free(struct oci_login *login); /* wipes them */

/* --- oci-challenge.c: WWW-Authenticate --- */

struct oci_challenge {
	bool basic, bearer;
	char *realm, *service; /* of bearer; may be NULL */
	struct strv scopes;
};
/* Adds what one header says; several of a reply may be read after each other. */
void oci_challenge_read(struct oci_challenge *c, const char *header);
void oci_challenge_free(struct oci_challenge *c);
#define CLEANUP_OCI_CHALLENGE CLEANUP(oci_challenge_free)

/* --- oci-manifest.c: the documents, the same for the same image and settings, always --- */

#define OCI_INDEX    "application/vnd.oci.image.index.v1+json"
#define OCI_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define OCI_CONFIG   "application/vnd.oci.image.config.v1+json"
#define OCI_LAYER    "application/vnd.oci.image.layer.v1.tar"

struct oci_documents {
	char *config, *manifest, *index;
	/* "sha256:…" */
	char *layer_digest, *config_digest, *manifest_digest, *index_digest;
	uint64_t layer_bytes;
};
/* env: "NAME=value", sorted. */
int oci_documents_make(struct oci_documents *ret, const struct publish_image *image,
                       const char *boot_type, const struct strv *env, struct error *err);
void oci_documents_free(struct oci_documents *docs);

/* --- The backend's own, and its requests --- */

struct oci {
	struct oci_place place;
	char *origin; /* "https://host:port" */
	char *tag;
	uint64_t chunk_bytes; /* 0: a blob goes as one body */
	struct oci_login login;
	bool accepted;                  /* in this run a request that writes was done with it */
	struct oci_challenge challenge; /* the last one */
	char *token;                    /* for bearer */
	int64_t token_until_ms;         /* clock_ms() */
	struct oci_documents docs;
};

/* "/v2/<path>/<what><reference>" at the registry. Owned by the caller. */
char *oci_url(const struct oci *o, const char *what, const char *reference);
/* oci-auth.c: http_send() with credentials, to the registry only; a 401 is answered once. What was
 * sent is counted. */
int oci_send(struct publish_job *job, const struct http_request *request, struct http_reply *ret,
             bool *ret_unknown, struct error *err);

/* --- oci-push.c: blobs --- */

struct oci_blob {
	const char *digest; /* "sha256:…" */
	struct http_body body;
	bool large; /* its upload is remembered, and drawn */
};
int oci_has_blob(struct publish_job *job, const char *digest, uint64_t size, bool *ret,
                 struct error *err);
/* Only what is missing. */
int oci_push(struct publish_job *job, const struct oci_blob *blob, struct error *err);
/* Piece of a body, 'count' bytes from 'at' on. */
struct http_body oci_slice(const struct http_body *body, uint64_t at, uint64_t count);
/* Ends an upload that we remember. Whether the registry minds is not asked. */
void oci_cancel(struct publish_job *job, const char *location);
/* Sleeps before another round; false: the run is to stop. */
bool oci_pause(const struct publish_job *job, unsigned round);

#endif
