/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upload to VCO in parts. The API has no list of parts and no way to end an upload, so what was
 * sent is known from our own state alone, each part as soon as it was taken.
 */
#include <string.h>

#include "publish/vco.h"

#define PART_MIN_BYTES (1024ll * 1024)
#define PART_MAX_BYTES (5ll * 1024 * 1024 * 1024)
#define PARTS_MAX      10000 /* of an upload to the MinIO that stands behind it */

static uint64_t part_bytes(struct publish_job *job)
{
	return (uint64_t)json_integer_value(json_object_get(publish_slot(job), "part_size"));
}

static int start(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;
	CLEANUP_STRV struct strv query = {0};
	CLEANUP_FREE char *file = str_format("%s.qcow2", v->name);
	/* Twice only leaves an upload more, which the platform forgets by itself. */
	const struct vco_call call = {
		.method = "POST", .path = "/upload-vm-image", .query = &query, .idempotent = true};
	json_t *reply = NULL, *slot = publish_slot(job);
	const char *id, *object;
	json_int_t size;

	vco_add_query(&query, "file_name", file);
	if (vco_json(job, &call, &reply, err) < 0)
		return -1;
	id = json_string_value(json_object_get(reply, "upload_id"));
	object = json_string_value(json_object_get(reply, "object_name"));
	size = json_integer_value(json_object_get(reply, "part_size"));
	if (!id || !*id || !object || size < PART_MIN_BYTES || size > PART_MAX_BYTES) {
		json_decref(reply);
		return error_set(err,
		                 "the server began an upload and did not tell its id, object and "
		                 "part size");
	}
	json_object_set_new(slot, "upload_id", json_string(id));
	json_object_set_new(slot, "object_name", json_string(object));
	json_object_set_new(slot, "part_size", json_integer(size));
	json_object_set_new(slot, "parts", json_object());
	json_decref(reply);
	return publish_remember(job, err);
}

/* An image of the size that no count of parts can hold. */
static int check_parts(struct publish_job *job, struct error *err)
{
	if ((job->image->size_bytes - 1) / part_bytes(job) < PARTS_MAX)
		return 0;
	error_set(err, "the server wants parts of %llu bytes: the image has more than %d of them",
	          (unsigned long long)part_bytes(job), PARTS_MAX);
	error_hint(err, "import it by address instead: 'source_url'");
	return error_code(err, EXIT_INPUT);
}

static bool is_begun(struct publish_job *job)
{
	return publish_recalled(job, "upload_id") && publish_recalled(job, "object_name") &&
	       part_bytes(job) >= (uint64_t)PART_MIN_BYTES &&
	       json_is_object(json_object_get(publish_slot(job), "parts"));
}

int vco_begin(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;

	/* Its image was there, and is no more, or was never seen: it is not waited for twice. */
	if (vco_is_finished(job) && json_object_get(publish_slot(job), "image_id")) {
		log_note(job->log, "%s: the image of an earlier run is gone; it is sent anew",
		         job->where->location);
		publish_forget(job);
	}
	if (v->by_url || vco_is_finished(job))
		return 0;
	if (!is_begun(job) && start(job, err) < 0)
		return -1;
	return check_parts(job, err);
}

/* 1: taken, 0: the platform has forgotten the upload. */
static int send_part(struct publish_job *job, uint64_t number, uint64_t offset, uint64_t size,
                     struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv query = {0};
	CLEANUP_FREE char *id = http_escape(publish_recalled(job, "upload_id"), false);
	CLEANUP_FREE char *path =
		str_format("/%s/upload-part/%llu", id, (unsigned long long)number);
	CLEANUP_FREE char *key = str_format("%llu", (unsigned long long)number);
	CLEANUP_FREE char *etag = NULL;
	struct publish_telling telling = {
		.job = job, .before_bytes = offset, .all_bytes = job->image->size_bytes};
	const struct http_body body = {.fd = job->image->fd, .fd_offset = offset, .fd_size = size};
	const struct vco_call call = {.method = "PUT",
	                              .path = path,
	                              .query = &query,
	                              .body = &body,
	                              .content_type = "application/octet-stream",
	                              .idempotent = true,
	                              .on_sent = publish_on_sent,
	                              .opaque = &telling};
	int result;

	vco_add_query(&query, "object_name", publish_recalled(job, "object_name"));
	result = vco_send(job, &call, &reply, NULL, err);
	job->sent_bytes += reply.sent_bytes;
	if (result < 0)
		return error_prefix(err, "part %s", key);
	if (!http_is_ok(&reply)) {
		vco_error(job, &call, &reply, err);
		error_prefix(err, "part %s", key);
		return reply.status == 404 ? 0 : -1;
	}
	etag = vco_read_etag(&reply);
	if (!etag)
		return error_set(err, "part %s: the server took it and gave no ETag", key);
	return publish_remember_part(job, number, etag, err) < 0 ? -1 : 1;
}

/* 1: all are there, 0: the platform has forgotten the upload. */
static int send_missing(struct publish_job *job, struct error *err)
{
	uint64_t size = part_bytes(job), number = 1;

	for (uint64_t at = 0; at < job->image->size_bytes; at += size, number++) {
		uint64_t left = job->image->size_bytes - at, bytes = left < size ? left : size;
		int result = 1;

		if (publish_check_stop(job, err) < 0)
			return -1;
		if (publish_part(job, number))
			job->resumed_from += bytes;
		else
			result = send_part(job, number, at, bytes, err);
		if (result <= 0)
			return result;
		publish_progress(job, at + bytes, job->image->size_bytes);
	}
	return 1;
}

int vco_send_parts(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;
	int result;

	if (v->by_url || vco_is_finished(job))
		return 0;
	result = send_missing(job, err);
	if (result != 0)
		return result < 0 ? -1 : 0;
	/* One that was left alone for too long: from its beginning, once. */
	log_note(job->log, "%s: %s; the upload begins anew", job->where->location, err->message);
	error_free(err);
	publish_forget(job);
	job->resumed_from = 0;
	if (start(job, err) < 0)
		return -1;
	result = send_missing(job, err);
	if (result == 0) {
		publish_forget(job);
		error_hint(err,
		           "the platform forgets uploads that were just begun: ask who runs it");
	}
	return result == 1 ? 0 : -1;
}
