/* SPDX-License-Identifier: Apache-2.0 */
/* The requests to Glance v2, each with a token that lives. */
#include <string.h>

#include "publish/glance.h"

#define JSON_TYPE  "application/json"
#define PATCH_TYPE "application/openstack-images-v2.1-json-patch"
#define PAGE_ITEMS 100
#define PAGES_MAX  100

static int send_with(struct publish_job *job, const struct glance_call *call, const char *token,
                     struct http_reply *ret, bool *ret_unknown, struct error *err)
{
	const struct glance *g = job->own;
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = str_format("%s%s", g->base, call->path);
	struct publish_telling telling = {.job = job, .all_bytes = job->image->size_bytes};
	const struct http_request request = {
		.method = call->method,
		.url = url,
		.headers = &headers,
		.body = call->body,
		.idempotent = call->idempotent,
		.on_sent = call->tell ? publish_on_sent : NULL,
		.sent_opaque = &telling,
		.reply_timeout_s = call->reply_timeout_s,
	};
	int result;

	strv_addf(&headers, "X-Auth-Token: %s", token);
	if (call->content_type)
		strv_addf(&headers, "Content-Type: %s", call->content_type);
	if (call->tell) /* newer Glances check it; others do not look */
		strv_addf(&headers, "x-openstack-image-size: %llu",
		          (unsigned long long)http_body_size(call->body));
	result = http_send(job->http, &request, ret, ret_unknown, err);
	explicit_bzero(headers.items[0], strlen(headers.items[0]));
	if (call->tell)
		job->sent_bytes += ret->sent_bytes;
	return result;
}

int glance_call(struct publish_job *job, const struct glance_call *call, struct http_reply *ret,
                bool *ret_unknown, struct error *err)
{
	const struct glance *g = job->own;
	const char *token;

	if (keystone_token(g->keystone, false, &token, err) < 0 ||
	    send_with(job, call, token, ret, ret_unknown, err) < 0)
		return -1;
	if (ret->status != 401)
		return 0;
	/* Refused, so not done; the token was revoked, or ran out sooner than it said. */
	http_reply_free(ret);
	if (keystone_token(g->keystone, true, &token, err) < 0)
		return -1;
	return send_with(job, call, token, ret, ret_unknown, err);
}

int glance_error(struct publish_job *job, const struct glance_call *call,
                 const struct http_reply *reply, struct error *err)
{
	const struct glance *g = job->own;
	CLEANUP_FREE char *url = str_format("%s%s", g->base, call->path);
	const struct http_request request = {.method = call->method, .url = url};

	return http_error(job->http, &request, reply, err);
}

/* An object, or an error that says who answered with something else. */
static int read_object(const struct publish_job *job, const struct glance_call *call,
                       const struct http_reply *reply, json_t **ret, struct error *err)
{
	const struct glance *g = job->own;
	CLEANUP_FREE char *shown = http_shown(call->path);

	*ret = json_loadb(reply->body ? reply->body : "", reply->size, JSON_REJECT_DUPLICATES,
	                  NULL);
	if (json_is_object(*ret))
		return 0;
	json_decref(*ret);
	*ret = NULL;
	error_set(err, "%s %s%s: %d, but no image or list", call->method, g->base, shown,
	          reply->status);
	return error_code(err, EXIT_PUBLISH);
}

int glance_look(struct publish_job *job, struct error *err)
{
	struct glance *g = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *path = str_format("/images/%s", g->id);
	const struct glance_call call = {.method = "GET", .path = path, .idempotent = true};
	json_t *seen = NULL;

	if (glance_call(job, &call, &reply, NULL, err) < 0)
		return -1;
	if (reply.status != 200 && reply.status != 404)
		return glance_error(job, &call, &reply, err);
	if (reply.status == 200 && read_object(job, &call, &reply, &seen, err) < 0)
		return -1;
	json_decref(g->seen);
	g->seen = seen;
	return 0;
}

int glance_create(struct publish_job *job, int *ret_status, struct error *err)
{
	struct glance *g = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	json_t *begin = glance_begin_with(g->wanted, g->id);
	CLEANUP_FREE char *text = json_dumps(begin, JSON_COMPACT);
	const struct http_body body = {
		.head = text, .head_size = text ? strlen(text) : 0, .fd = -1};
	/* The id is ours: a second time is answered with 409, and then it is looked at. */
	const struct glance_call call = {.method = "POST",
	                                 .path = "/images",
	                                 .content_type = JSON_TYPE,
	                                 .body = &body,
	                                 .idempotent = true};

	json_decref(begin);
	if (!text)
		return error_set(err, "cannot write the image's properties as JSON");
	if (glance_call(job, &call, &reply, NULL, err) < 0)
		return -1;
	*ret_status = reply.status;
	if (reply.status == 409)
		return 0;
	if (reply.status != 201)
		return glance_error(job, &call, &reply, err);
	json_decref(g->seen);
	g->seen = NULL;
	return read_object(job, &call, &reply, &g->seen, err);
}

int glance_change(struct publish_job *job, const char *id, const json_t *patch, bool *ret_done,
                  struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *path = str_format("/images/%s", id);
	CLEANUP_FREE char *text = json_dumps(patch, JSON_COMPACT);
	const struct http_body body = {
		.head = text, .head_size = text ? strlen(text) : 0, .fd = -1};
	const struct glance_call call = {
		.method = "PATCH", .path = path, .content_type = PATCH_TYPE, .body = &body};
	bool unknown = false;

	*ret_done = false;
	if (glance_call(job, &call, &reply, &unknown, err) < 0) {
		if (unknown) /* the caller looks */
			error_free(err);
		return unknown ? 0 : -1;
	}
	*ret_done = reply.status == 200;
	/* 409: somebody else has just added the same. */
	return *ret_done || reply.status == 409 ? 0 : glance_error(job, &call, &reply, err);
}

int glance_delete(struct publish_job *job, const char *id, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *path = str_format("/images/%s", id);
	const struct glance_call call = {.method = "DELETE", .path = path, .idempotent = true};

	if (glance_call(job, &call, &reply, NULL, err) < 0)
		return -1;
	return reply.status == 204 || reply.status == 404 ? 0
	                                                  : glance_error(job, &call, &reply, err);
}

/* *ret_last: id to go on behind, "" where this was all. */
static int list_page(struct publish_job *job, const char *path, json_t *all, char **ret_last,
                     struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	const struct glance_call call = {.method = "GET", .path = path, .idempotent = true};
	json_t *page = NULL, *images;
	size_t count;

	if (glance_call(job, &call, &reply, NULL, err) < 0)
		return -1;
	if (reply.status != 200)
		return glance_error(job, &call, &reply, err);
	if (read_object(job, &call, &reply, &page, err) < 0)
		return -1;
	images = json_object_get(page, "images");
	count = json_array_size(images);
	json_array_extend(all, images);
	*ret_last = str_copy(count && json_object_get(page, "next")
	                             ? glance_text(json_array_get(images, count - 1), "id")
	                             : "");
	json_decref(page);
	return 0;
}

int glance_list(struct publish_job *job, const char *query, json_t **ret, struct error *err)
{
	CLEANUP_FREE char *path = str_format("/images?%s&limit=%d", query, PAGE_ITEMS);
	json_t *all = json_array();

	for (int pages = 0; pages < PAGES_MAX; pages++) {
		CLEANUP_FREE char *last = NULL;
		CLEANUP_FREE char *escaped = NULL;

		if (list_page(job, path, all, &last, err) < 0) {
			json_decref(all);
			return -1;
		}
		if (!last || !*last)
			break;
		escaped = http_escape(last, false);
		free(path);
		path = str_format("/images?%s&limit=%d&marker=%s", query, PAGE_ITEMS, escaped);
	}
	*ret = all;
	return 0;
}
