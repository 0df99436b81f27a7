/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests to a registry. It says with a 401 what it wants: our name and password (basic), or a
 * token of a server that it names, for one repository and a minute (bearer). It looks at them at a
 * request's start only, so a token is made fresh before each large body.
 */
#include <string.h>

#include "builder/clock.h"
#include "publish/oci.h"

#define LARGE_BYTES     (1024ull * 1024)
#define TOKEN_S         60 /* where the server does not say: so the specification */
#define TOKEN_MAX_S     86400
#define FRESH_MS        60000
#define TOKEN_MAX_BYTES 65536

char *oci_url(const struct oci *o, const char *what, const char *reference)
{
	return str_format("%s/v2/%s/%s%s", o->origin, o->place.path, what, reference);
}

static int no_credentials(const struct oci *o, struct error *err)
{
	error_set(err, "the registry '%s' wants credentials, and there are none", o->place.host);
	error_hint(err, "name 'user' and 'password' in the targets file, or log in with docker or "
	                "skopeo");
	return error_code(err, EXIT_USAGE);
}

static int refused(struct publish_job *job, const char *who, const struct http_request *request,
                   const struct http_reply *reply, struct error *err)
{
	const struct oci *o = job->own;

	/* What was good for a write, and is not known any more, has run out. */
	if (o->accepted && reply->status == 401) {
		error_hint(err, "if they have run out, run again with fresh ones: what was sent is "
		                "not sent twice");
		error_code(err, EXIT_PUBLISH);
	}
	error_hint(err, "check the credentials, and what they may do in '%s'", o->place.path);
	http_error(job->http, request, reply, err);
	return error_prefix(err, "%s '%s' refuses %s%s%s", who, o->place.host,
	                    o->login.user     ? "the credentials of user '"
	                    : o->login.bearer ? "the token"
	                                      : "us without credentials",
	                    o->login.user ? o->login.user : "", o->login.user ? "'" : "");
}

/* Ours, and what the registry wants beyond our own repository. */
static void list_scopes(const struct oci *o, struct strv *ret)
{
	CLEANUP_FREE char *ours = str_format("repository:%s:", o->place.path);

	strv_addf(ret, "%spull,push", ours);
	for (size_t i = 0; i < o->challenge.scopes.count; i++)
		if (!str_starts(o->challenge.scopes.items[i], ours))
			strv_add(ret, o->challenge.scopes.items[i]);
}

static char *token_url(const struct oci *o)
{
	CLEANUP_STRV struct strv scopes = {0};
	char *url = o->challenge.service
	                    ? oci_add_query(o->challenge.realm, "service", o->challenge.service)
	                    : str_copy(o->challenge.realm);

	list_scopes(o, &scopes);
	for (size_t i = 0; i < scopes.count; i++) {
		char *longer = oci_add_query(url, "scope", scopes.items[i]);

		free(url);
		url = longer;
	}
	return url;
}

/* OAuth 2: an identity token for one that the registry takes. */
static char *token_form(const struct oci *o)
{
	CLEANUP_STRV struct strv scopes = {0};
	CLEANUP_STRV struct strv pairs = {0};
	CLEANUP_FREE char *all = NULL;
	CLEANUP_FREE char *scope = NULL;
	CLEANUP_FREE char *service =
		http_escape(o->challenge.service ? o->challenge.service : "", false);
	CLEANUP_FREE char *token = http_escape(o->login.identity_token, false);

	list_scopes(o, &scopes);
	all = strv_join(&scopes, " ");
	scope = http_escape(all, false);
	strv_add(&pairs, "grant_type=refresh_token&client_id=gpuimg");
	strv_addf(&pairs, "service=%s&scope=%s&refresh_token=%s", service, scope, token);
	return strv_join(&pairs, "&");
}

static bool is_token(const char *text)
{
	size_t length = text ? strlen(text) : 0;

	for (size_t i = 0; i < length; i++)
		if ((unsigned char)text[i] <= ' ' || (unsigned char)text[i] >= 0x7f)
			return false;
	return length > 0 && length <= TOKEN_MAX_BYTES;
}

static int take_token(struct publish_job *job, const struct http_reply *reply, int64_t asked_ms,
                      struct error *err)
{
	struct oci *o = job->own;
	json_t *json = json_loadb(reply->body ? reply->body : "", reply->size, 0, NULL);
	const char *token = json_string_value(json_object_get(json, "token"));
	json_int_t seconds = json_integer_value(json_object_get(json, "expires_in"));

	if (!token || !*token)
		token = json_string_value(json_object_get(json, "access_token"));
	if (!is_token(token)) {
		CLEANUP_FREE char *shown = http_shown(o->challenge.realm);

		json_decref(json);
		error_set(err, "the token server '%s' of '%s' answered without a token", shown,
		          o->place.host);
		return error_code(err, EXIT_PUBLISH);
	}
	free(o->token);
	o->token = str_copy(token);
	o->token_until_ms = asked_ms + 1000 * (seconds <= 0            ? TOKEN_S
	                                       : seconds < TOKEN_MAX_S ? seconds
	                                                               : TOKEN_MAX_S);
	if (!strv_has(job->secrets, o->token))
		strv_add(job->secrets, o->token);
	json_decref(json);
	return 0;
}

static int ask_token(struct publish_job *job, const struct http_request *request, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	int64_t asked_ms = clock_ms();
	int result;

	if (http_send(job->http, request, &reply, NULL, err) < 0)
		return -1;
	if (reply.status == 401 || reply.status == 403)
		return refused(job, "the token server of", request, &reply, err);
	if (reply.status != 200)
		return http_error(job->http, request, &reply, err);
	result = take_token(job, &reply, asked_ms, err);
	if (reply.body)
		explicit_bzero(reply.body, reply.size);
	return result;
}

static int get_token(struct publish_job *job, struct error *err)
{
	struct oci *o = job->own;
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = token_url(o);
	const struct http_request request = {
		.method = "GET", .url = url, .headers = &headers, .idempotent = true};

	if (o->login.user)
		http_add_basic(&headers, job->secrets, o->login.user, o->login.password);
	return ask_token(job, &request, err);
}

static int exchange_token(struct publish_job *job, struct error *err)
{
	struct oci *o = job->own;
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *form = token_form(o);
	const struct http_body body = {.head = form, .head_size = strlen(form), .fd = -1};
	const struct http_request request = {.method = "POST",
	                                     .url = o->challenge.realm,
	                                     .headers = &headers,
	                                     .body = &body,
	                                     .idempotent = true};
	int result;

	strv_add(&headers, "Content-Type: application/x-www-form-urlencoded");
	result = ask_token(job, &request, err);
	explicit_bzero(form, strlen(form));
	return result;
}

static int fresh_token(struct publish_job *job, struct error *err)
{
	struct oci *o = job->own;

	if (!o->challenge.realm || !oci_realm_is_safe(o->origin, o->challenge.realm)) {
		CLEANUP_FREE char *shown =
			http_shown(o->challenge.realm ? o->challenge.realm : "nothing");

		error_set(err,
		          "the registry '%s' wants a token of '%s', where our credentials would "
		          "go unprotected",
		          o->place.host, shown);
		error_hint(err, "its token server must be reached over https");
		return error_code(err, EXIT_USAGE);
	}
	return o->login.identity_token ? exchange_token(job, err) : get_token(job, err);
}

/* The header that the last challenge asked for, if there was one. */
static int authorize(struct publish_job *job, bool large, struct strv *headers, struct error *err)
{
	struct oci *o = job->own;

	if (o->login.bearer && (o->challenge.bearer || o->challenge.basic)) {
		strv_addf(headers, "Authorization: Bearer %s", o->login.bearer);
	} else if (o->challenge.bearer) {
		if ((!o->token || (large && o->token_until_ms - clock_ms() < FRESH_MS)) &&
		    fresh_token(job, err) < 0)
			return -1;
		strv_addf(headers, "Authorization: Bearer %s", o->token);
	} else if (o->challenge.basic) {
		if (!o->login.user)
			return no_credentials(o, err);
		http_add_basic(headers, job->secrets, o->login.user, o->login.password);
	}
	return 0;
}

/* 1: try again with what the reply asks for; 0: it asks for nothing that we know. */
static int take_challenge(struct publish_job *job, const struct http_request *request,
                          const struct http_reply *reply, bool had_header, struct error *err)
{
	struct oci *o = job->own;
	CLEANUP_OCI_CHALLENGE struct oci_challenge fresh = {0};

	for (size_t i = 0; i < reply->headers.count; i++)
		if (str_starts(reply->headers.items[i], "www-authenticate: "))
			oci_challenge_read(&fresh,
			                   reply->headers.items[i] + strlen("www-authenticate: "));
	if (!fresh.basic && !fresh.bearer)
		return 0;
	/* A token may have run out; a password is as wrong the second time. */
	if (had_header && (o->login.bearer || !fresh.bearer))
		return refused(job, "the registry", request, reply, err);
	oci_challenge_free(&o->challenge);
	o->challenge = fresh;
	fresh = (struct oci_challenge){0};
	free(STEAL(o->token));
	return 1;
}

static bool is_write(const char *method)
{
	return !str_equal(method, "GET") && !str_equal(method, "HEAD");
}

int oci_send(struct publish_job *job, const struct http_request *like, struct http_reply *ret,
             bool *ret_unknown, struct error *err)
{
	struct oci *o = job->own;
	bool ours = http_same_origin(o->origin, like->url);
	bool large = like->on_data || http_body_size(like->body) >= LARGE_BYTES;

	for (unsigned tries = 1;; tries++) {
		CLEANUP_STRV struct strv headers = {0};
		struct http_request request = *like;
		bool had_header;
		int result, again;

		request.headers = &headers;
		if (ret_unknown)
			*ret_unknown = false;
		if (ours && authorize(job, large, &headers, err) < 0)
			return -1;
		had_header = headers.count > 0;
		if (like->headers)
			strv_add_all(&headers, like->headers);
		result = http_send(job->http, &request, ret, ret_unknown, err);
		job->sent_bytes += ret->sent_bytes;
		if (result < 0)
			return -1;
		if (had_header && http_is_ok(ret) && is_write(like->method))
			o->accepted = true;
		if (ret->status != 401 || !ours)
			return 0;
		again = tries < 3 ? take_challenge(job, &request, ret, had_header, err)
		                  : refused(job, "the registry", &request, ret, err);
		if (again == 0)
			return 0;
		http_reply_free(ret);
		if (again < 0)
			return -1;
	}
}
