/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place that speaks HTTP for 'publish', over libcurl: one request at a time and thread,
 * with retries, stall detection, redaction and progress. A backend says what to ask; how often, how
 * long and what may be logged is known here.
 *
 * What is logged of a request: method, scheme, host, path, status, sizes, time; never a query, a
 * header or a body. Bodies of error replies are cut to HTTP_ERROR_BODY_MAX and scrubbed of known
 * secrets.
 */
#ifndef GPUIMG_PUBLISH_HTTP_H
#define GPUIMG_PUBLISH_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "builder/cleanup.h"
#include "builder/error.h"
#include "builder/log.h"
#include "builder/str.h"

#define HTTP_ERROR_BODY_MAX 512
#define HTTP_REPLY_MAX      (8UL * 1024 * 1024) /* of a reply that is kept in memory */

struct http_options {
	unsigned connect_timeout_s; /* 0: 30 */
	unsigned call_timeout_s;    /* of a request without a large body; 0: 60 */
	unsigned stall_timeout_s;   /* no byte of a body moved for so long; 0: 120 */
	unsigned reply_timeout_s;   /* from the last byte sent to the reply's first; 0: 900 */
	unsigned tries;             /* 0: 5 */
	const char *ca_file;        /* NULL: the system's */
	bool insecure;              /* a target's own 'verify: false'; told once */
	const struct strv *secrets; /* values that must never be shown; borrowed */
	const atomic_bool *stop;    /* set from elsewhere: give up soon; may be NULL */
	struct log *log;            /* may be NULL */
};

struct http;
int http_new(struct http **ret, const struct http_options *options, struct error *err);
/* Another connection with the same options, for another thread. */
int http_twin(struct http **ret, const struct http *http, struct error *err);
void http_free(struct http *http);
/* Other certificates from here on, as a cloud's own file says. ca_file: borrowed; NULL: as it was.
 */
void http_trust(struct http *http, const char *ca_file, bool insecure);
DEFINE_CLEANUP(http, struct http *, http_free)
#define CLEANUP_HTTP CLEANUP(cleanup_http)

/* Where a body comes from: a piece of a file, or memory, and before and behind it more memory
 * (a containerDisk's tar header and trailer). Read with pread(), so that a retry begins anew. */
struct http_body {
	const void *head;
	size_t head_size;
	int fd; /* -1: none */
	uint64_t fd_offset, fd_size;
	const void *tail;
	size_t tail_size;
};
uint64_t http_body_size(const struct http_body *body);

struct http_request {
	const char *method; /* "GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "MOVE", "MKCOL" */
	const char *url;    /* already escaped */
	const struct strv *headers; /* "Name: value" */
	/* Adds to them anew for each try, as a signature with its time in it. May be NULL. */
	void (*sign)(void *sign_opaque, struct strv *headers);
	void *sign_opaque;
	const struct http_body *body; /* NULL: none */
	/* It may be sent again after a lost reply, since doing it twice is doing it once. Where it
	 * is false only a connection that was never made is tried again: the caller probes what
	 * became of it. */
	bool idempotent;
	unsigned reply_timeout_s; /* 0: the options' */
	/* A long reply body goes here instead of into memory, piece by piece; -1 with err ends it.
	 */
	int (*on_data)(void *opaque, const void *data, size_t size, struct error *err);
	void *opaque;
	/* How much of the body is on its way, now and then; of a retry from 0 again. May be NULL.
	 */
	void (*on_sent)(void *sent_opaque, uint64_t sent_bytes);
	void *sent_opaque;
	bool follow; /* redirects, to the same host only, without credentials to another */
};

struct http_reply {
	int status;          /* 0: none came */
	struct strv headers; /* "name: value", names in lower case, of the last reply only */
	char *body;          /* NUL-terminated */
	size_t size;
	uint64_t sent_bytes; /* of the body, in all tries; also where no reply came */
	unsigned tries;
	bool elsewhere; /* another host than the request's, to which it was led */
};

/*
 * 0: a reply came, of whatever status (statuses that are worth another try, 408, 429 and 5xx of
 * idempotent requests, were tried again: Retry-After, else 1, 2, 4 … 60 s with jitter). -1: none
 * came; the error is EXIT_PUBLISH where running again may help, EXIT_HOST, EXIT_INPUT (the file got
 * shorter), or what on_data set; *ret_unknown (may be NULL) is true where the server may have done
 * it.
 */
int http_send(struct http *http, const struct http_request *request, struct http_reply *ret,
              bool *ret_unknown, struct error *err);
void http_reply_free(struct http_reply *reply);
#define CLEANUP_HTTP_REPLY CLEANUP(http_reply_free)
/* A header's value, or NULL; borrowed. name in lower case. */
const char *http_header(const struct http_reply *reply, const char *name);
bool http_is_ok(const struct http_reply *reply); /* 2xx */
/* Whether its Content-Length is there, and is this. */
bool http_has_length(const struct http_reply *reply, uint64_t bytes);
/* The error of a reply that was not what was hoped for: "PUT https://host/path: 503: first bytes of
 * the body, scrubbed". Sets EXIT_PUBLISH where trying again later may help (408, 429, 5xx),
 * EXIT_USAGE where the credentials do not do (401, 403: they are configuration), EXIT_BUILD else.
 */
int http_error(struct http *http, const struct http_request *request,
               const struct http_reply *reply, struct error *err);
/* Percent-encodes all but A-Z a-z 0-9 - . _ ~ (and '/', if keep_slash). Owned by the caller. */
char *http_escape(const char *text, bool keep_slash);
/* "Authorization: Basic …"; what it makes of them is a secret too. */
void http_add_basic(struct strv *headers, struct strv *secrets, const char *user,
                    const char *password);
/* URL (or path) without '/' at its end. Owned by the caller. */
char *http_trimmed(const char *url);
/* URL without query, fragment and user info, for people. Owned by the caller. */
char *http_shown(const char *url);
/* "host:port" of a URL, the scheme's own port left out; NULL: neither http nor https. Owned by the
 * caller. */
char *http_authority(const char *url);
bool http_same_origin(const char *a, const char *b); /* scheme, host and port of two URLs */
/* Text with every secret replaced by "***", control bytes by '?'. Owned by the caller. */
char *http_scrub(const struct http *http, const char *text, size_t size);
/* Sleeps; false: 'stop' (may be NULL) was set before it was over. */
bool http_pause_ms(const atomic_bool *stop, unsigned ms);

#endif
