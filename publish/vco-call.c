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

static int refresh(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = NULL;
	char *token;

	if (!v->iam) {
		error_set(err, "the token has ended, or ends within a minute");
		error_hint(err,
		           "give a fresh one, or 'iam_url' in the targets file, where it can be "
		           "refreshed");
		return error_code(err, EXIT_USAGE);
	}
	url = str_format("%s/v1/oauth/jwt/refresh", v->iam);
	strv_addf(&headers, "Authorization: Bearer %s", v->token);

	const struct http_request request = {
		.method = "GET", .url = url, .headers = &headers, .idempotent = true};

	if (http_send(job->http, &request, &reply, NULL, err) < 0)
		return -1;
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

int vco_send(struct publish_job *job, const struct vco_call *call, struct http_reply *ret,
             bool *ret_unknown, struct error *err)
{
	const struct vco *v = job->own;
	CLEANUP_FREE char *url = url_of(job, call);
	time_t ends = jwt_expires(v->token);
	uint64_t sent_bytes;
	int result;

	if (ends && ends - time(NULL) < REFRESH_BEFORE_S && refresh(job, err) < 0)
		return -1;
	if (send_once(job, call, url, ret, ret_unknown, err) < 0)
		return -1;
	if (ret->status != 401 || !v->iam)
		return 0;
	sent_bytes = ret->sent_bytes;
	http_reply_free(ret);
	ret->sent_bytes = sent_bytes;
	if (refresh(job, err) < 0)
		return -1;
	result = send_once(job, call, url, ret, ret_unknown, err);
	ret->sent_bytes += sent_bytes;
	return result;
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
