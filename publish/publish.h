/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publishing a finished image: one job for each location of each target. What an image is, what a
 * backend must offer, what is remembered between runs, what is told at the end.
 */
#ifndef GPUIMG_PUBLISH_H
#define GPUIMG_PUBLISH_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "builder/error.h"
#include "builder/log.h"
#include "builder/str.h"
#include "publish/http.h"

/* --- The image (image.c) --- */

struct publish_image {
	char *path;
	int fd;         /* open for reading, all the time */
	struct stat st; /* when it was opened: publish_image_check() compares */
	char *name;     /* of the file without ".qcow2", or --name */
	char *version;  /* --version, else the first 12 digits of the digest */
	uint64_t size_bytes, virtual_bytes;
	char *md5, *sha256, *sha512;       /* hex */
	uint64_t part_bytes;               /* max(16 MiB, size / 9000 rounded up to 1 MiB) */
	struct strv part_md5, part_sha256; /* hex, one for each part */
	/* Of the containerDisk's layer, an uncompressed tar around the image. */
	void *tar_head, *tar_tail;
	size_t tar_head_size, tar_tail_size;
	char *layer_sha256;
	json_t *manifest;             /* gpuimg's own record beside it; NULL: there is none */
	struct strv boot_types;       /* "bios", "uefi", "uefi-secure-boot": what it supports */
	char *arch;                   /* "amd64", "arm64" */
	char *os_distro, *os_version; /* "debian", "12" */
};

/* Digests that not every backend needs. SHA-256 of the file is always made. */
enum publish_digests {
	DIGEST_MD5 = 1,
	DIGEST_SHA512 = 2,
	DIGEST_PARTS = 4, /* part_md5 and part_sha256 */
	DIGEST_LAYER = 8, /* layer_sha256 */
};

/*
 * Opens and reads it once for all digests, each in a thread of its own. wanted: of enum
 * publish_digests; what was not asked for stays NULL. EXIT_INPUT: no qcow2, one with a backing or
 * external data file, encrypted, marked corrupt or dirty, or other bytes than its manifest or
 * SHA256SUMS says.
 */
int publish_image_open(struct publish_image *ret, const char *path, const char *name,
                       const char *version, unsigned wanted, struct log *log, struct error *err);
/* Whether it is still the file that was digested; EXIT_INPUT: it was changed meanwhile. */
int publish_image_check(const struct publish_image *image, struct error *err);
void publish_image_free(struct publish_image *image);
#define CLEANUP_PUBLISH_IMAGE CLEANUP(publish_image_free)

/* --- Targets (config.c): docs/publish.md describes the file --- */

/* One location of one target, with all that is said of it. Values by key as in the file ("url",
 * "bucket", "region"…), those of the location over those of the target. */
struct publish_location {
	char *target, *type, *location; /* names; type is a backend's */
	char *boot_type;                /* that it asks for; NULL: the image's first */
	/* Object of strings, booleans, lists and objects; no secrets. A whole number is the string
	 * that stands in the file (a tag or a bucket may be one: publish_number() reads it), and a
	 * number only within a list or an object. */
	json_t *settings;
	/* Secrets by key, read from environment or file when they are needed: publish_secret(). */
	json_t *secrets; /* key → {"env": NAME} or {"file": PATH} */
};
struct publish_targets {
	struct publish_location *items;
	size_t count;
};
/* EXIT_USAGE, with file:line: unknown keys and types, a secret in the file itself, two locations of
 * one name, a secret file that others can read. */
int publish_targets_read(struct publish_targets *ret, const char *path, struct error *err);
void publish_targets_free(struct publish_targets *targets);
/* What all backends of these locations need together. */
unsigned publish_targets_digests(const struct publish_targets *targets);
#define CLEANUP_PUBLISH_TARGETS CLEANUP(publish_targets_free)
const char *publish_setting(const struct publish_location *l, const char *key); /* string or NULL */
bool publish_flag(const struct publish_location *l, const char *key, bool otherwise);
uint64_t publish_number(const struct publish_location *l, const char *key, uint64_t otherwise);
/* Owned by the caller (which wipes it). Added to the job's secrets, so that it is never shown. NULL
 * with no error: the location names none under this key. */
struct publish_job;
struct progress_row;
int publish_secret(struct publish_job *job, const char *key, char **ret, struct error *err);

/* --- State (state.c) --- */

/* One location's memory of one image, between runs: upload ids, parts with etags, created ids. No
 * credentials, no signed URLs. Written (0600, temporary name, fsync, rename) at each
 * publish_remember(). */
struct publish_state;
/* One file for each image: "<image>.publish-state.json", locked (flock) for the run; EXIT_HOST:
 * another run holds it. */
int publish_state_open(struct publish_state **ret, const struct publish_image *image,
                       struct error *err);
void publish_state_close(struct publish_state *state);
/* The job's own copy of its location's memory, an object; borrowed, to be changed by the job's
 * thread alone. */
json_t *publish_slot(struct publish_job *job);
/* Text or number of it; NULL, or 'otherwise': it is not there. */
const char *publish_recalled(struct publish_job *job, const char *key);
/* Writes it down. To be called as soon as a server gave an id, before the next request. */
int publish_remember(struct publish_job *job, struct error *err);
/* A part's ETag, by its number from 1 on, in the slot's object "parts"; NULL: it was not taken. */
const char *publish_part(struct publish_job *job, uint64_t number);
int publish_remember_part(struct publish_job *job, uint64_t number, const char *etag,
                          struct error *err);
/* All of it: done, or of no use. What cannot be written is told. */
void publish_forget(struct publish_job *job);
/* Whether an earlier run left a memory of this location: it did not get to its end. */
bool publish_was_begun(struct publish_job *job);

/* --- Jobs and backends --- */

enum publish_found {
	FOUND_ABSENT,
	FOUND_SAME,      /* it is there, whole, under its name, with the properties it shall have */
	FOUND_DIFFERENT, /* other content under the name: refused without --replace */
	FOUND_PARTIAL,   /* ours, begun and not done */
	FOUND_BUSY,      /* the server works on it: wait */
};
enum publish_verify { VERIFY_NONE, VERIFY_QUICK, VERIFY_FULL };

struct publish_job {
	const struct publish_image *image;
	const struct publish_location *where;
	const struct publish_backend *backend;
	struct publish_state *state;
	struct http *http;    /* the job's own */
	struct strv *secrets; /* that http scrubs */
	struct log *log;
	const atomic_bool *stop;
	bool replace, plan;
	enum publish_verify verify;
	bool verify_asked;     /* --verify: also of what is there already, if "full" */
	const char *boot_type; /* "bios", "uefi", "uefi-secure-boot": of this location */
	void *own;             /* the backend's, made by check(), released by end() */
	/* What becomes of it. */
	char *id; /* native id; JSON number if id_is_number */
	bool id_is_number;
	char *ref;      /* for people and consumers: URL, repo@sha256:…, location/id */
	char *verified; /* "read back", "server-sha512", "registry-digest", "server-md5", "none" …
	                 */
	uint64_t sent_bytes, resumed_from;
	json_t *extra; /* object: more for the result's row (tag, digest…); NULL: nothing */
	struct progress_row *row;
	json_t *slot; /* see publish_slot() */
};

/*
 * Called in this order by the runner (run.c); each may be NULL but check, probe and send.
 * Every function leaves what it learned in the slot before the next request. An error's code:
 * EXIT_PUBLISH where running again may help, EXIT_USAGE and EXIT_INPUT for what will not get
 * better, EXIT_PROOF where what was stored is not what was sent.
 */
struct publish_backend {
	const char *type;
	enum publish_verify verify_default;
	unsigned digests; /* enum publish_digests: what it needs of the image */
	/* Settings it knows, NULL at the end, each a text; one mark may stand before it: "!" it is
	 * needed, "#" a whole number, "?" true or false, "*" whatever: the backend looks itself. */
	const char *const *keys;
	const char *const *secret_keys;
	int (*check)(struct publish_job *job,
	             struct error *err); /* settings, credentials; no side effects */
	int (*probe)(struct publish_job *job, enum publish_found *ret, struct error *err);
	int (*begin)(struct publish_job *job,
	             struct error *err); /* the record or session, or the slot's */
	int (*send)(struct publish_job *job,
	            struct error *err); /* bytes; only those that are missing */
	int (*commit)(struct publish_job *job,
	              struct error *err); /* complete; the visible name last */
	int (*wait)(struct publish_job *job, struct error *err); /* until it is ready */
	int (*verify)(struct publish_job *job, enum publish_verify how, struct error *err);
	/* The index entry by which others find it, where that is a request of its own: only what
	 * was verified gets it. */
	int (*name)(struct publish_job *job, struct error *err);
	/* The error of a reply that is none of what was hoped for; NULL: http_error(). */
	int (*refused)(struct publish_job *job, const struct http_request *request,
	               const struct http_reply *reply, struct error *err);
	/* --abort: what is left over at this location; removed if 'remove'. One line each to ret.
	 */
	int (*leftovers)(struct publish_job *job, bool remove, struct strv *ret, struct error *err);
	void (*end)(struct publish_job *job);
};
extern const struct publish_backend publish_dir, publish_http, publish_s3, publish_oci,
	publish_glance, publish_vco;
extern const struct publish_backend *const publish_backends[];        /* NULL at the end */
const struct publish_backend *publish_backend_find(const char *type); /* NULL: there is none */

/* --- read-back.c --- */

/* SHA-256 of what a GET brings, which 'send' (as http_send(), with the job's credentials) is to
 * send. EXIT_PROOF: more than 'bytes' come. */
int publish_digest_back(struct publish_job *job, const struct http_request *like,
                        int (*send)(struct publish_job *, const struct http_request *,
                                    struct http_reply *, bool *ret_unknown, struct error *),
                        uint64_t bytes, char **ret_hex, struct error *err);
/* Gets what was stored and compares its SHA-256; 'like' is the GET. EXIT_PROOF: other bytes, which
 * the slot remembers as "damaged", so that the next run sends anew. Sets job->verified. */
int publish_read_back(struct publish_job *job, const struct http_request *like, struct error *err);
bool publish_is_damaged(struct publish_job *job);
/* To be remembered instead of all that the slot held. */
int publish_set_damaged(struct publish_job *job, struct error *err);
/* Told by backends while they send; draws the location's line. */
void publish_progress(struct publish_job *job, uint64_t done_bytes, uint64_t all_bytes);
void publish_phase(struct publish_job *job, const char *what); /* "waits for the server" */
/* The same for http_request.on_sent, whose opaque is this. */
struct publish_telling {
	struct publish_job *job;
	uint64_t before_bytes; /* of the image, or layer: what lies before this body */
	uint64_t all_bytes;
};
void publish_on_sent(void *telling, uint64_t sent_bytes);
/* Fails where the run is to stop; EXIT_PUBLISH. */
int publish_check_stop(const struct publish_job *job, struct error *err);

#endif
