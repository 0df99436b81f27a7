/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of whitesky.cloud's API: a JWT as bearer, refreshed a minute before its end. */
#include <string.h>
#include <time.h>

#include "publish/jwt.h"
#include "publish/secret.h"
#include "publish/vco.h"

#define REFRESH_BEFORE_S 60
#define CALL_TIMEOUT_S   300 /* it advises against less */

void vco_add_query(struct strv *query, const char *name, const char *value)
{
	CLEANUP_FREE char *escaped = http_escape(value, false);

	strv_addf(query, "%s=%s", name, escaped);
}

/* Up to the end of its host: "http://127.0.0.1.example" is somebody else. */
bool vco_is_safe_url(const char *url)
{
	static const char *const local[] = {"http://127.0.0.1", "http://localhost", "http://[::1]"};

	if (str_starts(url, "https://") && url[strlen("https://")])
		return !strpbrk(url, "?#@ ");
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if (str_starts(url, local[i]) && strchr(":/", url[strlen(local[i])]))
			return !strpbrk(url, "?#@ ");
	return false;
}

static void take_token(struct publish_job *job, char *token)
{
	struct vco *v = job->own;

	secret_free(v->token);
	v->token = token;
	if (!strv_has(job->secrets, token))
		strv_add(job->secrets, token);
}

/* One that was good before, in this run, has only run out: a fresh one goes on where it stopped.
 * Where there is no 'iam_url'. */
static int has_ended(const struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;

	error_set(err, "the token has ended%s", v->accepted ? " on the way" : "");
	error_hint(err, v->accepted ? "run again with a fresh one: what was sent is not sent "
	                              "twice; with 'iam_url' in the targets file it is refreshed"
	                            : "give a fresh one, or 'iam_url' in the targets file, where "
	                              "it can be refreshed");
	return error_code(err, v->accepted ? EXIT_PUBLISH : EXIT_USAGE);
}

static int refresh(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = NULL;
	char *token;

	url = str_format("%s/v1/oauth/jwt/refresh", v->iam);
	strv_addf(&headers, "Authorization: Bearer %s", v->token);

	const struct http_request request = {
		.method = "GET", .url = url, .headers = &headers, .idempotent = true};

	if (http_send(job->http, &request, &reply, NULL, err) < 0)
		return -1;
	if (v->accepted && (reply.status == 401 || reply.status == 403)) {
		error_set(err, "%s: the server says %d: the token has ended on the way", url,
		          reply.status);
		error_hint(err, "run again with a fresh token: what was sent is not sent twice");
		return error_code(err, EXIT_PUBLISH);
	}
	if (reply.status != 200)
		return http_error(job->http, &request, &reply, err);
	token = vco_read_token(reply.body ? reply.body : "");
	if (reply.body)
		explicit_bzero(reply.body, reply.size);
	if (!token) {
		error_set(err, "'%s' was asked to refresh the token, and gave none", v->iam);
		return error_code(err, EXIT_PUBLISH);
	}
	take_token(job, token);
	return 0;
}

static int send_once(struct publish_job *job, const struct vco_call *call, const char *url,
                     struct http_reply *ret, bool *ret_unknown, struct error *err)
{
	const struct vco *v = job->own;
	CLEANUP_STRV struct strv headers = {0};
	const struct http_request request = {
		.method = call->method,
		.url = url,
		.headers = &headers,
		.body = call->body,
		.idempotent = call->idempotent,
		.on_sent = call->on_sent,
		.sent_opaque = call->opaque,
		.reply_timeout_s = call->reply_timeout_s ? call->reply_timeout_s : CALL_TIMEOUT_S,
	};

	strv_addf(&headers, "Authorization: Bearer %s", v->token);
	strv_add(&headers, "Accept: application/json");
	if (call->content_type)
		strv_addf(&headers, "Content-Type: %s", call->content_type);
	return http_send(job->http, &request, ret, ret_unknown, err);
}

static char *url_of(const struct publish_job *job, const struct vco_call *call)
{
	const struct vco *v = job->own;
	CLEANUP_FREE char *query = call->query ? strv_join(call->query, "&") : str_copy("");

	if (call->url)
		return str_copy(call->url);
	return str_format("%s%s%s%s", v->images, call->path, *query ? "?" : "", query);
}

/* A minute before its end where that helps; without 'iam_url' it is good to its last second. */
static int keep_fresh(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;
	time_t ends = jwt_expires(v->token), left = ends - time(NULL);

	if (!ends || left >= (v->iam ? REFRESH_BEFORE_S : 1))
		return 0;
	return v->iam ? refresh(job, err) : has_ended(job, err);
}

/* Of a 401, which says that nothing was done: 0 if there is a fresh token for another try. */
static int after_refusal(struct publish_job *job, struct http_reply *ret, struct error *err)
{
	const struct vco *v = job->own;
	uint64_t sent_bytes = ret->sent_bytes;

	http_reply_free(ret);
	ret->sent_bytes = sent_bytes;
	return v->iam ? refresh(job, err) : has_ended(job, err);
}

int vco_send(struct publish_job *job, const struct vco_call *call, struct http_reply *ret,
             bool *ret_unknown, struct error *err)
{
	struct vco *v = job->own;
	CLEANUP_FREE char *url = url_of(job, call);
	uint64_t sent_bytes;
	int result;

	if (keep_fresh(job, err) < 0 || send_once(job, call, url, ret, ret_unknown, err) < 0)
		return -1;
	if (ret->status == 401 && (v->iam || v->accepted)) {
		if (after_refusal(job, ret, err) < 0)
			return -1;
		sent_bytes = ret->sent_bytes;
		result = send_once(job, call, url, ret, ret_unknown, err);
		ret->sent_bytes += sent_bytes;
		if (result < 0)
			return -1;
	}
	v->accepted = v->accepted || http_is_ok(ret);
	return 0;
}

int vco_error(struct publish_job *job, const struct vco_call *call, const struct http_reply *reply,
              struct error *err)
{
	CLEANUP_FREE char *url = url_of(job, call);
	const struct http_request shown = {.method = call->method, .url = url};

	return http_error(job->http, &shown, reply, err);
}

int vco_json(struct publish_job *job, const struct vco_call *call, json_t **ret, struct error *err)
{
	const struct vco *v = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *shown = NULL;

	if (vco_send(job, call, &reply, NULL, err) < 0)
		return -1;
	if (!http_is_ok(&reply))
		return vco_error(job, call, &reply, err);
	*ret = json_loads(reply.body ? reply.body : "", JSON_DECODE_ANY, NULL);
	if (*ret)
		return 0;
	shown = http_shown(v->images);
	error_set(err, "%s %s%s: the reply is no JSON", call->method, shown, call->path);
	return error_hint(err, "'url' must be the API's address, up to '/api/1'");
}
