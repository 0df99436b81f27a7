/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blobs. An upload lives at a Location that changes with every reply. It goes on only from the end
 * of a whole chunk that was answered, and only if the registry says the same end: a chunk that
 * broke off is never sent again in its place, since registries count its first half or forget the
 * upload.
 */
#include <string.h>

#include "publish/oci.h"

#define ROUNDS        4
#define CHUNK_MIN     (64ull * 1024)
#define REPLY_LARGE_S 1800 /* a registry may digest a whole layer before it answers */

/* What one round came to; with PUSH_AGAIN the error says why. */
enum push { PUSH_FAILED = -1, PUSH_DONE, PUSH_AGAIN };

struct upload {
	struct publish_job *job;
	const struct oci_blob *blob;
	char *location;
	uint64_t size, done;
	uint64_t chunk_min;
	bool resumed;
};

bool oci_pause(const struct publish_job *job, unsigned round)
{
	return http_pause_ms(job->stop, 1000u << (round - 1));
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct http_body oci_slice(const struct http_body *b, uint64_t at, uint64_t count)
{
	uint64_t file = b->fd >= 0 ? b->fd_size : 0, skipped;
	struct http_body s = {.fd = -1};

	if (at < b->head_size) {
		s.head = (const char *)b->head + at;
		s.head_size = (size_t)smaller(count, b->head_size - at);
		count -= s.head_size;
		at = b->head_size;
	}
	skipped = at - b->head_size;
	if (count && skipped < file) {
		s.fd = b->fd;
		s.fd_offset = b->fd_offset + skipped;
		s.fd_size = smaller(count, file - skipped);
		count -= s.fd_size;
		skipped = file;
	}
	skipped -= smaller(skipped, file);
	if (count && skipped < b->tail_size) {
		s.tail = (const char *)b->tail + skipped;
		s.tail_size = (size_t)smaller(count, b->tail_size - skipped);
	}
	return s;
}

int oci_has_blob(struct publish_job *job, const char *digest, uint64_t size, bool *ret,
                 struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *url = oci_url(job->own, "blobs/", digest);
	const struct http_request request = {
		.method = "HEAD", .url = url, .idempotent = true, .follow = true};

	if (oci_send(job, &request, &reply, NULL, err) < 0)
		return -1;
	if (reply.status != 200 && reply.status != 404)
		return http_error(job->http, &request, &reply, err);
	*ret = reply.status == 200 &&
	       (!http_header(&reply, "content-length") || http_has_length(&reply, size));
	return 0;
}

void oci_cancel(struct publish_job *job, const char *location)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	const struct http_request request = {
		.method = "DELETE", .url = location, .idempotent = true};

	if (oci_send(job, &request, &reply, NULL, &ignored) < 0)
		log_detail(job->log, "%s, ignoring", ignored.message);
}

/* --- What is remembered --- */

static void forget(struct upload *u)
{
	json_t *slot = publish_slot(u->job);

	json_object_del(slot, "upload");
	json_object_del(slot, "done");
}

/* A Location elsewhere may be signed: it is of no use to us later, and a secret. */
static int remember(struct upload *u, struct error *err)
{
	const struct oci *o = u->job->own;
	json_t *slot = publish_slot(u->job);

	if (!u->blob->large)
		return 0;
	forget(u);
	if (http_same_origin(o->origin, u->location)) {
		json_object_set_new(slot, "upload", json_string(u->location));
		json_object_set_new(slot, "done", json_integer((json_int_t)u->done));
	}
	return publish_remember(u->job, err);
}

static int take_location(struct upload *u, const char *url, const struct http_reply *reply,
                         struct error *err)
{
	const char *header = http_header(reply, "location");
	char *location = oci_join_location(url, header);

	if (!location) {
		error_set(err, "the registry gives no usable place for the upload%s%s",
		          header ? ": " : "", header ? header : "");
		error_hint(err,
		           "behind a proxy that ends TLS, tell the registry its outer address");
		return error_code(err, EXIT_BUILD);
	}
	free(u->location);
	u->location = location;
	return 0;
}

/* --- An upload's begin, and its going on --- */

static int start(struct upload *u, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *url = oci_url(u->job->own, "blobs/uploads/", "");
	/* One that nobody knows of is dropped by the registry: to begin twice does no harm. */
	const struct http_request request = {.method = "POST", .url = url, .idempotent = true};
	const char *least;

	if (oci_send(u->job, &request, &reply, NULL, err) < 0)
		return -1;
	if (reply.status != 202)
		return http_error(u->job->http, &request, &reply, err);
	least = http_header(&reply, "oci-chunk-min-length");
	if (least && str_parse_uint(least, INT64_MAX, &u->chunk_min) < 0)
		u->chunk_min = 0;
	u->done = 0;
	u->resumed = false;
	return take_location(u, url, &reply, err) < 0 ? -1 : remember(u, err);
}

/* "0-1023", with or without "bytes=": 1024 bytes are there. */
static bool is_range(const char *text, uint64_t bytes)
{
	CLEANUP_FREE char *want = str_format("0-%llu", (unsigned long long)(bytes - 1));

	if (!text)
		return false;
	if (str_starts(text, "bytes=") || str_starts(text, "bytes "))
		text += 6;
	return strcmp(text, want) == 0;
}

/* 1: it goes on where we left it; 0: it is gone, or not as we left it. */
static int resume(struct upload *u, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *known = str_copy(publish_recalled(u->job, "upload"));
	json_int_t done = json_integer_value(json_object_get(publish_slot(u->job), "done"));
	const struct http_request request = {.method = "GET", .url = known, .idempotent = true};

	if (done <= 0 || (uint64_t)done > u->size) {
		oci_cancel(u->job, known);
		return 0;
	}
	if (oci_send(u->job, &request, &reply, NULL, err) < 0)
		return -1;
	if (reply.status != 204 || !is_range(http_header(&reply, "range"), (uint64_t)done)) {
		oci_cancel(u->job, known);
		return 0;
	}
	free(u->location);
	u->location = oci_join_location(known, http_header(&reply, "location"));
	if (!u->location)
		u->location = STEAL(known);
	u->done = (uint64_t)done;
	u->resumed = true;
	u->job->resumed_from = u->done;
	return 1;
}

static int open_upload(struct upload *u, struct error *err)
{
	const struct oci *o = u->job->own;
	const char *known = u->blob->large ? publish_recalled(u->job, "upload") : NULL;
	int result = 0;

	if (known && http_same_origin(o->origin, known) && (result = resume(u, err)) < 0)
		return -1;
	return result ? 0 : start(u, err);
}

/* --- The bytes --- */

/* The registry has digested other bytes than ours. */
static enum push other_bytes(const struct upload *u, struct error *err)
{
	if (publish_image_check(u->job->image, err) < 0)
		return PUSH_FAILED;
	error_set(err, "the registry got other bytes than were sent: not digest %s",
	          u->blob->digest);
	error_code(err, u->resumed ? EXIT_PUBLISH : EXIT_PROOF);
	return u->resumed ? PUSH_AGAIN : PUSH_FAILED;
}

static bool has_code(const struct http_reply *reply, const char *code)
{
	return reply->body && strstr(reply->body, code);
}

static enum push judge(const struct upload *u, const struct http_request *request,
                       const struct http_reply *reply, struct error *err)
{
	if (reply->status == 400 && has_code(reply, "DIGEST_INVALID"))
		return other_bytes(u, err);
	if (reply->status == 413)
		error_hint(err, "something before the registry takes no body of this size: set "
		                "'chunk_bytes', or raise its limit");
	http_error(u->job->http, request, reply, err);
	/* an upload that the registry forgot is begun anew */
	if (error_exit_code(err) == EXIT_PUBLISH || reply->status == 404 || reply->status == 416 ||
	    (reply->status == 400 && has_code(reply, "BLOB_UPLOAD_"))) {
		err->code = EXIT_PUBLISH;
		return PUSH_AGAIN;
	}
	return PUSH_FAILED;
}

/* A request with a body, or the empty one that closes an upload. 'good' is the status wanted. */
static enum push transfer(struct upload *u, const struct http_request *like, int good,
                          struct http_reply *ret, struct error *err)
{
	struct publish_telling telling = {
		.job = u->job, .before_bytes = u->done, .all_bytes = u->size};
	struct http_request request = *like;

	request.on_sent = u->blob->large ? publish_on_sent : NULL;
	request.sent_opaque = &telling;
	request.reply_timeout_s = u->blob->large ? REPLY_LARGE_S : 0;
	if (oci_send(u->job, &request, ret, NULL, err) < 0)
		return error_exit_code(err) == EXIT_PUBLISH ? PUSH_AGAIN : PUSH_FAILED;
	return ret->status == good ? PUSH_DONE : judge(u, &request, ret, err);
}

static enum push send_chunk(struct upload *u, uint64_t count, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = str_copy(u->location);
	const struct http_body body = oci_slice(&u->blob->body, u->done, count);
	const struct http_request request = {
		.method = "PATCH", .url = url, .headers = &headers, .body = &body};
	enum push result;

	strv_add(&headers, "Content-Type: application/octet-stream");
	strv_addf(&headers, "Content-Range: %llu-%llu", (unsigned long long)u->done,
	          (unsigned long long)(u->done + count - 1));
	result = transfer(u, &request, 202, &reply, err);
	if (result != PUSH_DONE)
		return result;
	if (!is_range(http_header(&reply, "range"), u->done + count)) {
		forget(u);
		error_set(err, "the registry has kept another length of a chunk than was sent");
		error_code(err, EXIT_PUBLISH);
		return PUSH_AGAIN;
	}
	u->done += count;
	if (take_location(u, url, &reply, err) < 0 || remember(u, err) < 0)
		return PUSH_FAILED;
	return PUSH_DONE;
}

static enum push send_chunks(struct upload *u, uint64_t chunk, struct error *err)
{
	if (chunk < u->chunk_min)
		chunk = u->chunk_min;
	if (chunk < CHUNK_MIN)
		chunk = CHUNK_MIN;
	while (u->done < u->size) {
		enum push result = send_chunk(u, smaller(chunk, u->size - u->done), err);

		if (result != PUSH_DONE)
			return result;
	}
	return PUSH_DONE;
}

/* PUT ends an upload, with the whole blob or with nothing left to send. */
static enum push close_upload(struct upload *u, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = oci_add_query(u->location, "digest", u->blob->digest);
	const struct http_request request = {
		.method = "PUT",
		.url = url,
		.headers = &headers,
		.body = u->done ? NULL : &u->blob->body,
	};
	enum push result;

	strv_add(&headers, "Content-Type: application/octet-stream");
	result = transfer(u, &request, 201, &reply, err);
	if (result != PUSH_AGAIN || !u->resumed || reply.status != 400)
		return result;
	forget(u); /* what was there before was not ours: from its beginning */
	return result;
}

static enum push push_once(struct upload *u, struct error *err)
{
	const struct oci *o = u->job->own;
	uint64_t chunk = u->blob->large ? o->chunk_bytes : 0;
	enum push result = PUSH_DONE;

	if (open_upload(u, err) < 0)
		return PUSH_FAILED;
	if (chunk || u->done)
		result = send_chunks(u, chunk ? chunk : u->size, err);
	return result == PUSH_DONE ? close_upload(u, err) : result;
}

/* The blob is there, by whichever way. */
static int done(struct upload *u, bool cancel, struct error *err)
{
	CLEANUP_FREE char *known = NULL;

	if (!u->blob->large)
		return 0;
	publish_progress(u->job, u->size, u->size);
	if (!publish_recalled(u->job, "upload"))
		return 0;
	known = str_copy(publish_recalled(u->job, "upload"));
	if (cancel)
		oci_cancel(u->job, known);
	forget(u);
	return publish_remember(u->job, err);
}

static int push_rounds(struct upload *u, struct error *err)
{
	for (unsigned round = 1;; round++) {
		enum push result = push_once(u, err);
		bool there = false;

		if (result == PUSH_DONE)
			return done(u, false, err);
		if (result == PUSH_FAILED || round == ROUNDS || !oci_pause(u->job, round))
			return -1;
		log_note(u->job->log, "%s/%s: %s; again", u->job->where->target,
		         u->job->where->location, err->message);
		error_free(err);
		/* The reply may be what got lost, not the blob. */
		if (oci_has_blob(u->job, u->blob->digest, u->size, &there, err) < 0)
			return -1;
		if (there)
			return done(u, true, err);
	}
}

int oci_push(struct publish_job *job, const struct oci_blob *blob, struct error *err)
{
	struct upload u = {.job = job, .blob = blob, .size = http_body_size(&blob->body)};
	bool there = false;
	int result;

	if (oci_has_blob(job, blob->digest, u.size, &there, err) < 0)
		return -1;
	if (there) {
		if (blob->large)
			job->resumed_from = u.size;
		return done(&u, true, err);
	}
	result = push_rounds(&u, err);
	free(u.location);
	return result;
}
