/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http: a web server that takes PUT, and MOVE (WebDAV, RFC 4918). The file goes to a name of its
 * own and is moved to its place when it is whole; the index comes last, and only in the place of
 * what was read, where the server keeps conditions on PUT (Apache does, nginx does not).
 */
#include <string.h>

#include "publish/layout.h"

struct web {
	char *root; /* without a '/' at its end */
	char *file, *part, *sums, *index;
	struct strv headers; /* credentials */
	bool move;
	bool file_there, part_there; /* of the right length, and to be taken for ours */
	bool index_there;            /* when it was read last */
	bool accepted;               /* in this run something was written with the credentials */
};

static char *join(const char *root, char *path)
{
	CLEANUP_FREE char *owned = path;
	CLEANUP_FREE char *escaped = http_escape(owned, true);

	return str_format("%s/%s", root, escaped);
}

static int add_credentials(struct publish_job *job, struct web *w, struct error *err)
{
	const char *user = publish_setting(job->where, "user");
	CLEANUP_FREE char *password = NULL;
	CLEANUP_FREE char *token = NULL;

	if (publish_secret(job, "password", &password, err) < 0 ||
	    publish_secret(job, "token", &token, err) < 0)
		return -1;
	if (token)
		strv_addf(&w->headers, "Authorization: Bearer %s", token);
	else if (user && password)
		http_add_basic(&w->headers, job->secrets, user, password);
	else if (user || password) {
		error_set(err, "'%s' is given without '%s'", user ? "user" : "password",
		          user ? "password" : "user");
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

static int web_check(struct publish_job *job, struct error *err)
{
	struct web *w = job->own = mem_alloc(sizeof(*w));
	const char *url = publish_setting(job->where, "url");

	if (!url || (!str_starts(url, "http://") && !str_starts(url, "https://")) ||
	    strpbrk(url, "?#@")) {
		error_set(err, "'url' must be an http or https address without query and user");
		return error_code(err, EXIT_USAGE);
	}
	w->root = http_trimmed(url);
	w->move = publish_flag(job->where, "move", true);
	w->file = join(w->root, layout_file(job->image));
	w->part = w->move ? str_format("%s.part", w->file) : str_copy(w->file);
	w->sums = join(w->root, layout_sums(job->image));
	w->index = join(w->root, layout_index(job->image));
	job->ref = str_copy(w->file);
	return add_credentials(job, w, err);
}

static void web_end(struct publish_job *job)
{
	struct web *w = job->own;

	if (!w)
		return;
	free(w->root);
	free(w->file);
	free(w->part);
	free(w->sums);
	free(w->index);
	strv_free(&w->headers);
	free(STEAL(job->own));
}

/* What was good for a write, and is not known any more, has run out. */
static int refused(struct publish_job *job, const struct http_request *request,
                   const struct http_reply *reply, struct error *err)
{
	const struct web *w = job->own;

	if (w->accepted && reply->status == 401 && !reply->elsewhere) {
		error_hint(err, "if the credentials have run out, run again with fresh ones: what "
		                "was sent is not sent twice");
		error_code(err, EXIT_PUBLISH);
	}
	return http_error(job->http, request, reply, err);
}

/* One request without a body; *ret_status, and the reply if it is asked for. */
static int ask(struct publish_job *job, const char *method, const char *url, struct http_reply *ret,
               struct error *err)
{
	const struct web *w = job->own;
	const struct http_request request = {
		.method = method,
		.url = url,
		.headers = &w->headers,
		.idempotent = true,
		.follow = str_equal(method, "GET") || str_equal(method, "HEAD"),
	};

	if (http_send(job->http, &request, ret, NULL, err) < 0)
		return -1;
	if (http_is_ok(ret) || ret->status == 404)
		return 0;
	/* A redirect too that was not followed: it does not say that nothing is there. */
	return refused(job, &request, ret, err);
}

/* *ret NULL: there is none. */
static int get_text(struct publish_job *job, const char *url, char **ret, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};

	*ret = NULL;
	if (ask(job, "GET", url, &reply, err) < 0)
		return -1;
	if (reply.status == 200)
		*ret = reply.body ? STEAL(reply.body) : str_copy("");
	return 0;
}

static int has_size(struct publish_job *job, const char *url, bool *ret, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};

	if (ask(job, "HEAD", url, &reply, err) < 0)
		return -1;
	*ret = reply.status == 200 && http_has_length(&reply, job->image->size_bytes);
	return 0;
}

static int web_probe(struct publish_job *job, enum publish_found *ret, struct error *err)
{
	const struct web *w = job->own;
	CLEANUP_FREE char *index = NULL;
	CLEANUP_FREE char *sums = NULL;
	bool whole;

	if (get_text(job, w->index, &index, err) < 0 || get_text(job, w->sums, &sums, err) < 0 ||
	    has_size(job, w->file, &whole, err) < 0)
		return -1;
	return layout_look(job, index, sums, whole, ret, err);
}

/* Servers that make directories by themselves may not know MKCOL at all. */
static int make_parents(struct publish_job *job, struct error *err)
{
	const struct web *w = job->own;
	CLEANUP_FREE char *path = str_copy(w->file);

	for (char *slash = strchr(path + strlen(w->root) + 1, '/'); slash;
	     slash = strchr(slash + 1, '/')) {
		CLEANUP_HTTP_REPLY struct http_reply reply = {0};
		CLEANUP_FREE char *dir = mem_copy(path, (size_t)(slash - path) + 1);
		const struct http_request request = {
			.method = "MKCOL", .url = dir, .headers = &w->headers, .idempotent = true};

		if (http_send(job->http, &request, &reply, NULL, err) < 0)
			return -1;
		if (reply.status == 401 || reply.status == 403)
			return http_error(job->http, &request, &reply, err);
	}
	return 0;
}

static int put(struct publish_job *job, const char *url, const struct http_body *body,
               const struct strv *headers, bool tell, struct error *err)
{
	struct web *w = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	struct publish_telling telling = {.job = job, .all_bytes = job->image->size_bytes};
	const struct http_request request = {
		.method = "PUT",
		.url = url,
		.headers = headers,
		.body = body,
		.idempotent = true,
		.on_sent = tell ? publish_on_sent : NULL,
		.sent_opaque = &telling,
	};
	int result = http_send(job->http, &request, &reply, NULL, err);

	if (tell)
		job->sent_bytes += reply.sent_bytes;
	if (result < 0)
		return -1;
	/* Of the index: somebody was faster, which is looked at again. */
	if (reply.status == 412 && headers->count > w->headers.count)
		return 0;
	if (!http_is_ok(&reply))
		return refused(job, &request, &reply, err);
	w->accepted = true;
	return 0;
}

/* A file of the right length under a name that holds its digest is taken for ours where we remember
 * that its PUT was answered, or where it is going to be read back. */
static bool may_adopt(struct publish_job *job)
{
	return !publish_is_damaged(job) &&
	       (publish_recalled(job, "sent") || job->verify == VERIFY_FULL);
}

static int web_begin(struct publish_job *job, struct error *err)
{
	struct web *w = job->own;

	if (!may_adopt(job))
		return 0;
	if (has_size(job, w->file, &w->file_there, err) < 0)
		return -1;
	return w->move && !w->file_there ? has_size(job, w->part, &w->part_there, err) : 0;
}

static int web_send(struct publish_job *job, struct error *err)
{
	const struct web *w = job->own;
	const struct http_body body = {.fd = job->image->fd, .fd_size = job->image->size_bytes};

	if (w->file_there || w->part_there) {
		job->resumed_from = job->image->size_bytes;
		return 0;
	}
	if (make_parents(job, err) < 0 || put(job, w->part, &body, &w->headers, true, err) < 0)
		return -1;
	json_object_set_new(publish_slot(job), "sent", json_string("yes"));
	return publish_remember(job, err);
}

/* Whether it happened is asked, never guessed, where the reply was lost; and where there is nothing
 * to move, another publisher of the same image has done it. */
static int look_what_became(struct publish_job *job, struct error *why, struct error *err)
{
	const struct web *w = job->own;
	bool whole = false;

	if (has_size(job, w->file, &whole, err) < 0)
		return -1;
	return whole ? 0 : error_take(err, why);
}

static int move(struct publish_job *job, struct error *err)
{
	const struct web *w = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_ERROR struct error lost = ERROR_INIT;
	const struct http_request request = {.method = "MOVE", .url = w->part, .headers = &headers};
	bool unknown = false;

	strv_add_all(&headers, &w->headers);
	strv_addf(&headers, "Destination: %s", w->file);
	/* The name holds the content's digest: what stands there is either this, or damaged. */
	strv_add(&headers, "Overwrite: T");
	if (http_send(job->http, &request, &reply, &unknown, &lost) < 0)
		return unknown ? look_what_became(job, &lost, err) : error_take(err, &lost);
	if (http_is_ok(&reply))
		return 0;
	refused(job, &request, &reply, &lost);
	return reply.status == 404 || reply.status == 409 ? look_what_became(job, &lost, err)
	                                                  : error_take(err, &lost);
}

static int web_commit(struct publish_job *job, struct error *err)
{
	const struct web *w = job->own;

	return w->move && !w->file_there ? move(job, err) : 0;
}

static int get_index(struct publish_job *job, char **ret_text, char **ret_tag, struct error *err)
{
	struct web *w = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	const char *tag;

	*ret_text = *ret_tag = NULL;
	if (ask(job, "GET", w->index, &reply, err) < 0)
		return -1;
	w->index_there = reply.status == 200;
	if (!w->index_there)
		return 0;
	tag = http_header(&reply, "etag");
	*ret_tag = tag && !str_starts(tag, "W/") ? str_copy(tag) : NULL;
	*ret_text = reply.body ? STEAL(reply.body) : str_copy("");
	return 0;
}

static int put_index(struct publish_job *job, const char *text, const char *tag, struct error *err)
{
	const struct web *w = job->own;
	CLEANUP_STRV struct strv headers = {0};
	const struct http_body body = {.head = text, .head_size = strlen(text), .fd = -1};

	strv_add_all(&headers, &w->headers);
	if (tag)
		strv_addf(&headers, "If-Match: %s", tag);
	else if (!w->index_there)
		strv_add(&headers, "If-None-Match: *");
	return put(job, w->index, &body, &headers, false, err);
}

static int web_name(struct publish_job *job, struct error *err)
{
	static const struct layout_index_io io = {.get = get_index, .put = put_index};
	const struct web *w = job->own;
	CLEANUP_FREE char *sums = layout_sums_text(job->image);
	const struct http_body body = {.head = sums, .head_size = strlen(sums), .fd = -1};

	if (put(job, w->sums, &body, &w->headers, false, err) < 0)
		return -1;
	return layout_index_update(job, &io, err);
}

static int web_verify(struct publish_job *job, enum publish_verify how, struct error *err)
{
	const struct web *w = job->own;
	const struct http_request request = {
		.method = "GET", .url = w->file, .headers = &w->headers, .follow = true};
	bool whole;

	if (how == VERIFY_FULL)
		return publish_read_back(job, &request, err);
	if (has_size(job, w->file, &whole, err) < 0)
		return -1;
	if (!whole) {
		error_set(err, "'%s' is not there with the right length", w->file);
		return error_code(err, EXIT_PROOF);
	}
	job->verified = str_copy("size");
	return 0;
}

static int web_leftovers(struct publish_job *job, bool remove, struct strv *ret, struct error *err)
{
	const struct web *w = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_HTTP_REPLY struct http_reply gone = {0};

	if (!w->move)
		return 0;
	if (ask(job, "HEAD", w->part, &reply, err) < 0)
		return -1;
	if (reply.status != 200)
		return 0;
	if (remove && ask(job, "DELETE", w->part, &gone, err) < 0)
		return -1;
	strv_addf(ret, "%s%s", w->part, remove ? ": removed" : "");
	return 0;
}

static const char *const keys[] = {"!url", "user", "?move", NULL};
static const char *const secret_keys[] = {"password", "token", NULL};

const struct publish_backend publish_http = {
	.type = "http",
	.verify_default = VERIFY_FULL,
	.keys = keys,
	.secret_keys = secret_keys,
	.check = web_check,
	.probe = web_probe,
	.begin = web_begin,
	.send = web_send,
	.commit = web_commit,
	.refused = refused,
	.verify = web_verify,
	.name = web_name,
	.leftovers = web_leftovers,
	.end = web_end,
};
