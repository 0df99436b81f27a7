/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one request that makes an image, of the parts that were sent or of what the platform fetches
 * itself. It is never repeated blindly: made twice, a name would have two images. Where nobody
 * knows what became of it, the image is looked for.
 */
#include <string.h>

#include "builder/clock.h"
#include "publish/vco.h"

#define FINISH_TIMEOUT_S 3600
#define LOOK_MS          60000 /* what goes on behind a gateway that gave up shows by then */
#define LOOK_PAUSE_MS    2000
#define GIB              (1024ull * 1024 * 1024)
#define MEMORY_MIB       2048 /* the least that a VM of it may have, unless told otherwise */

bool vco_is_finished(struct publish_job *job)
{
	return json_is_true(json_object_get(publish_slot(job), "finished"));
}

static void add_number(struct strv *query, const char *name, uint64_t value)
{
	strv_addf(query, "%s=%llu", name, (unsigned long long)value);
}

/* The platform's list of names changes, and one that it does not know is refused. That it cannot be
 * had is no reason to give up: there is a name for all others. */
static void add_os(struct publish_job *job, struct strv *query)
{
	const struct vco *v = job->own;
	const char *name = publish_setting(job->where, "os_name");
	CLEANUP_FREE char *url = str_format("%s/customers/vm-images/os-names", v->api);
	CLEANUP_ERROR struct error why = ERROR_INIT;
	const struct vco_call call = {.method = "GET", .path = "", .url = url, .idempotent = true};
	json_t *reply = NULL;

	if (!name && vco_json(job, &call, &reply, &why) < 0)
		log_note(job->log, "%s: %s, ignoring", job->where->location, why.message);
	vco_add_query(query, "os_type", "Linux");
	vco_add_query(query, "os_name",
	              name ? name
	                   : vco_pick_os(reply, job->image->os_distro, job->image->os_version));
	json_decref(reply);
}

/* What both ways of making an image take. */
static void describe(struct publish_job *job, struct strv *query)
{
	const struct vco *v = job->own;
	const struct publish_location *w = job->where;

	vco_add_query(query, "name", v->name);
	add_number(query, "memory", publish_number(w, "memory", MEMORY_MIB));
	add_number(
		query, "boot_disk_size",
		publish_number(w, "boot_disk_size", (job->image->virtual_bytes + GIB - 1) / GIB));
	vco_add_query(query, "boot_type", job->boot_type);
	add_os(job, query);
	vco_add_query(query, "md5_sum", job->image->md5);
	vco_add_query(query, "tags", v->tags);
}

static char *parts_text(struct publish_job *job)
{
	json_t *slot = publish_slot(job), *list = json_array(), *body;
	size_t count = json_object_size(json_object_get(slot, "parts"));
	char *text;

	for (uint64_t n = 1; n <= count; n++)
		json_array_append_new(list, json_pack("{s:I, s:s?}", "part_number", (json_int_t)n,
		                                      "etag", publish_part(job, n)));
	body = json_pack("{s:O, s:o}", "object_name", json_object_get(slot, "object_name"),
	                 "uploaded_parts", list);
	text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	return text ? text : str_copy("");
}

/* Of an unknown outcome: 0 if the image is there by now, or comes while we look. */
static int look_for_it(struct publish_job *job, int64_t for_ms, struct error *lost,
                       struct error *err)
{
	int64_t deadline = clock_ms() + for_ms;
	enum vco_verdict verdict;

	publish_phase(job, "looks what became of it");
	for (;;) {
		if (vco_look(job, &verdict, err) < 0)
			return -1;
		if (verdict != VCO_ABSENT)
			return 0; /* what it is, vco_wait() judges */
		if (clock_ms() >= deadline || !http_pause_ms(job->stop, LOOK_PAUSE_MS))
			return error_take(err, lost);
	}
}

/* Replies of which none says for sure that there is no image now. */
static int64_t look_ms(int status)
{
	return status >= 500 ? LOOK_MS : status == 409 || status == 404 ? 1 : 0;
}

static void take_created(struct publish_job *job, const struct http_reply *reply)
{
	json_t *json = reply->body ? json_loads(reply->body, JSON_DECODE_ANY, NULL) : NULL;
	const json_t *id = json_object_get(json, "image_id");

	if (json_is_integer(id) && json_integer_value(id) > 0)
		vco_take_id(job, json_integer_value(id));
	json_decref(json);
}

/* 1: there is an image all the same, and this request did not make it. */
static int refused(struct publish_job *job, const struct vco_call *call,
                   const struct http_reply *reply, struct error *err)
{
	CLEANUP_ERROR struct error lost = ERROR_INIT;

	vco_error(job, call, reply, &lost);
	if (reply->status == 400)
		error_hint(&lost, "correct the settings and run again; after --abort --remove the "
		                  "image is sent anew");
	if (!look_ms(reply->status))
		return error_take(err, &lost);
	if (look_for_it(job, look_ms(reply->status), &lost, err) == 0)
		return reply->status >= 500 ? 0 : 1;
	if (reply->status == 404) { /* the upload: it begins anew */
		publish_forget(job);
		err->code = EXIT_PUBLISH;
	}
	return -1;
}

/* As refused(); 0: of this request, as far as anybody knows. */
static int create(struct publish_job *job, const struct vco_call *call, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_ERROR struct error lost = ERROR_INIT;
	bool unknown = false;

	if (vco_send(job, call, &reply, &unknown, &lost) < 0)
		return unknown ? look_for_it(job, LOOK_MS, &lost, err) : error_take(err, &lost);
	if (!http_is_ok(&reply))
		return refused(job, call, &reply, err);
	take_created(job, &reply);
	return 0;
}

static int finish_upload(struct publish_job *job, struct strv *query, struct error *err)
{
	CLEANUP_FREE char *id = http_escape(publish_recalled(job, "upload_id"), false);
	CLEANUP_FREE char *path = str_format("/%s/finish-image-upload", id);
	CLEANUP_FREE char *text = parts_text(job);
	const struct http_body body = {.fd = -1, .head = text, .head_size = strlen(text)};
	const struct vco_call call = {.method = "POST",
	                              .path = path,
	                              .query = query,
	                              .body = &body,
	                              .content_type = "application/json",
	                              .reply_timeout_s = FINISH_TIMEOUT_S};

	return create(job, &call, err);
}

static int import(struct publish_job *job, struct strv *query, struct error *err)
{
	CLEANUP_FREE char *url = vco_fill_in(publish_setting(job->where, "source_url"), job->image);
	const struct vco_call call = {
		.method = "POST", .path = "", .query = query, .reply_timeout_s = FINISH_TIMEOUT_S};

	vco_add_query(query, "url", url);
	return create(job, &call, err);
}

int vco_finish(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;
	CLEANUP_STRV struct strv query = {0};
	enum vco_verdict verdict;
	int result;

	if (vco_is_finished(job))
		return 0;
	/* While we sent, another publisher may have been faster: the API refuses no second image.
	 */
	if (vco_look(job, &verdict, err) < 0)
		return -1;
	if (verdict != VCO_ABSENT)
		return 0; /* what it is, vco_wait() judges */
	describe(job, &query);
	result = v->by_url ? import(job, &query, err) : finish_upload(job, &query, err);
	if (result != 0)
		return result < 0 ? -1 : 0;
	json_object_set_new(publish_slot(job), "finished", json_true());
	if (job->id)
		json_object_set_new(publish_slot(job), "image_id", json_string(job->id));
	return publish_remember(job, err);
}
