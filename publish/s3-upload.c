/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object itself. One that is larger than a part goes as a multipart upload, whose parts the
 * server lists: what it has, with the right length and MD5, is not sent again.
 */
#include <string.h>
#include <time.h>

#include "builder/digest.h"
#include "publish/s3.h"
#include "publish/xml-tags.h"

#define COMPLETE_TIMEOUT_S 900
#define PAGES_MAX          64
#define OTHERS_AFTER_S     86400

static bool is_multipart(const struct s3 *s)
{
	return s->parts > 1;
}

/* What the server has of a part, if it is right: its ETag to 'parts'. An ETag that is no MD5 (of an
 * encrypted store) is known from the reply to the part's PUT. */
static void take_part(struct publish_job *job, const char *xml, json_t *parts)
{
	CLEANUP_FREE char *number_text = xml_tag(xml, "PartNumber", NULL);
	CLEANUP_FREE char *size_text = xml_tag(xml, "Size", NULL);
	CLEANUP_FREE char *quoted = xml_tag(xml, "ETag", NULL);
	CLEANUP_FREE char *etag = quoted ? s3_bare_etag(quoted) : NULL;
	uint64_t number, size;

	if (!number_text || !size_text || !etag ||
	    str_parse_uint(number_text, job->image->part_md5.count, &number) < 0 || number == 0 ||
	    str_parse_uint(size_text, UINT64_MAX, &size) < 0 ||
	    size != s3_part_size(job->image, number) ||
	    (!str_equal(etag, job->image->part_md5.items[number - 1]) &&
	     !str_equal(etag, publish_part(job, number))))
		return;
	json_object_set_new(parts, number_text, json_string(etag));
}

/* One page of ListParts; *ret_marker NULL: it was the last. 1: read, 0: there is no such upload. */
static int list_page(struct publish_job *job, const char *id, const char *marker, json_t *parts,
                     char **ret_marker, struct error *err)
{
	const struct s3 *s = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv query = {0};
	CLEANUP_FREE char *escaped = http_escape(id, false);
	CLEANUP_FREE char *more = NULL;
	CLEANUP_FREE char *part = NULL;
	const char *at = NULL;
	const struct s3_request request = {
		.method = "GET", .key = s->key, .query = &query, .idempotent = true};

	strv_addf(&query, "uploadId=%s", escaped);
	if (marker)
		strv_addf(&query, "part-number-marker=%s", marker);
	if (s3_call(job, &request, true, &reply, err) < 0)
		return -1;
	if (reply.status == 404 || !reply.body)
		return 0;
	while ((part = xml_tag(reply.body, "Part", &at))) {
		take_part(job, part, parts);
		free(STEAL(part));
	}
	more = xml_tag(reply.body, "IsTruncated", NULL);
	*ret_marker =
		str_equal(more, "true") ? xml_tag(reply.body, "NextPartNumberMarker", NULL) : NULL;
	return 1;
}

/* 1: the upload is alive, and the slot knows which parts it has; 0: it is gone. */
static int list_parts(struct publish_job *job, const char *id, struct error *err)
{
	json_t *parts = json_object();
	CLEANUP_FREE char *marker = NULL;
	int result = 1;

	for (int page = 0; result == 1 && page < PAGES_MAX; page++) {
		CLEANUP_FREE char *next = NULL;

		result = list_page(job, id, marker, parts, &next, err);
		free(marker);
		marker = STEAL(next);
		if (!marker)
			break;
	}
	if (result == 1)
		json_object_set(publish_slot(job), "parts", parts);
	json_decref(parts);
	return result;
}

static int initiate(struct publish_job *job, struct error *err)
{
	const struct s3 *s = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv query = {0};
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *id = NULL;
	/* Twice only leaves an upload more, which --abort lists. */
	const struct s3_request request = {.method = "POST",
	                                   .key = s->key,
	                                   .query = &query,
	                                   .headers = &headers,
	                                   .idempotent = true};

	strv_add(&query, "uploads=");
	strv_add(&headers, "Content-Type: application/octet-stream");
	strv_addf(&headers, "x-amz-meta-sha256: %s", job->image->sha256);
	if (s3_call(job, &request, false, &reply, err) < 0)
		return -1;
	id = xml_tag(reply.body ? reply.body : "", "UploadId", NULL);
	if (!id || !*id)
		return error_set(err, "the server began an upload and did not name it");
	json_object_set_new(publish_slot(job), "upload_id", json_string(id));
	json_object_set_new(publish_slot(job), "parts", json_object());
	return publish_remember(job, err);
}

static int mark_sent(struct publish_job *job, struct error *err)
{
	json_object_set_new(publish_slot(job), "sent", json_string("yes"));
	return publish_remember(job, err);
}

static bool is_sent(struct publish_job *job)
{
	return publish_recalled(job, "sent") != NULL;
}

/*
 * Whether the object that stands there is taken for ours. Its key holds the digest; that we sent it
 * is known where we remember it, or where an upload that we remember is no more ('gone'): it was
 * completed, and the reply was lost. Else it must be going to be read back.
 */
static bool may_adopt(struct publish_job *job, bool gone)
{
	return !publish_is_damaged(job) && (is_sent(job) || gone || job->verify == VERIFY_FULL);
}

int s3_begin(struct publish_job *job, struct error *err)
{
	const struct s3 *s = job->own;
	const char *id = publish_recalled(job, "upload_id");
	int alive = id && is_multipart(s) ? list_parts(job, id, err) : 0;
	bool whole;

	if (alive < 0 || s3_is_whole(job, &whole, err) < 0)
		return -1;
	if (whole && may_adopt(job, id && alive == 0))
		return mark_sent(job, err);
	json_object_del(publish_slot(job), "sent");
	return is_multipart(s) && alive == 0 ? initiate(job, err) : 0;
}

static int send_whole(struct publish_job *job, struct error *err)
{
	const struct s3 *s = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv headers = {0};
	struct publish_telling telling = {.job = job, .all_bytes = job->image->size_bytes};
	const struct http_body body = {.fd = job->image->fd, .fd_size = job->image->size_bytes};
	const struct s3_request request = {.method = "PUT",
	                                   .key = s->key,
	                                   .headers = &headers,
	                                   .body = &body,
	                                   .payload_sha256 = job->image->sha256,
	                                   .idempotent = true,
	                                   .on_sent = publish_on_sent,
	                                   .sent_opaque = &telling};

	strv_add(&headers, "Content-Type: application/octet-stream");
	strv_addf(&headers, "x-amz-meta-sha256: %s", job->image->sha256);
	if (s3_call(job, &request, false, &reply, err) < 0)
		return -1;
	return mark_sent(job, err);
}

int s3_send_image(struct publish_job *job, struct error *err)
{
	const struct s3 *s = job->own;

	if (is_sent(job)) {
		job->resumed_from = job->image->size_bytes;
		return 0;
	}
	return is_multipart(s) ? s3_send_parts(job, err) : send_whole(job, err);
}

static char *complete_text(struct publish_job *job)
{
	const struct s3 *s = job->own;
	CLEANUP_STRV struct strv lines = {0};

	strv_add(&lines, "<CompleteMultipartUpload>");
	for (uint64_t n = 1; n <= s->parts; n++) {
		const char *etag = publish_part(job, n);

		strv_addf(&lines, "<Part><PartNumber>%llu</PartNumber><ETag>\"%s\"</ETag></Part>",
		          (unsigned long long)n, etag ? etag : "");
	}
	strv_add(&lines, "</CompleteMultipartUpload>");
	return strv_join(&lines, "");
}

/* A server may say 200 at once and put an error into the body; a lost reply says nothing: then the
 * object itself is asked for. */
static int complete_failed(struct publish_job *job, const struct s3_request *request,
                           struct http_reply *reply, struct error *lost, struct error *err)
{
	bool whole;

	if (s3_has_run_out(job, reply))
		return s3_error(job, request, reply, err);
	if (s3_is_whole(job, &whole, err) < 0)
		return -1;
	if (whole)
		return 0;
	if (reply->status == 0)
		return error_take(err, lost);
	if (reply->status == 404) { /* the upload is gone: all of it must be sent again */
		json_object_del(publish_slot(job), "upload_id");
		json_object_del(publish_slot(job), "parts");
		if (publish_remember(job, err) < 0)
			return -1;
	}
	s3_error(job, request, reply, err);
	if (error_exit_code(err) != EXIT_USAGE)
		err->code = EXIT_PUBLISH;
	return -1;
}

int s3_complete(struct publish_job *job, struct error *err)
{
	const struct s3 *s = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_ERROR struct error lost = ERROR_INIT;
	CLEANUP_STRV struct strv query = {0};
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *digest = NULL;
	CLEANUP_FREE char *id = NULL;
	CLEANUP_FREE char *good = NULL;

	if (is_sent(job))
		return 0;
	text = complete_text(job);
	digest = digest_memory(text, strlen(text));
	id = http_escape(publish_recalled(job, "upload_id"), false);
	strv_addf(&query, "uploadId=%s", id);

	const struct http_body body = {.head = text, .head_size = strlen(text), .fd = -1};
	const struct s3_request request = {.method = "POST",
	                                   .key = s->key,
	                                   .query = &query,
	                                   .body = &body,
	                                   .payload_sha256 = digest,
	                                   .reply_timeout_s = COMPLETE_TIMEOUT_S};

	if (s3_send(job, &request, &reply, NULL, &lost) == 0 && reply.status == 200 && reply.body)
		good = xml_tag(reply.body, "CompleteMultipartUploadResult", NULL);
	if (!good && complete_failed(job, &request, &reply, &lost, err) < 0)
		return -1;
	return mark_sent(job, err);
}

static int abort_upload(struct publish_job *job, const char *key, const char *id, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv query = {0};
	CLEANUP_FREE char *escaped = http_escape(id, false);
	const struct s3_request request = {
		.method = "DELETE", .key = key, .query = &query, .idempotent = true};

	strv_addf(&query, "uploadId=%s", escaped);
	return s3_call(job, &request, true, &reply, err);
}

/* One that the server does not list and we remember. */
static int own_leftover(struct publish_job *job, bool remove, struct strv *ret, struct error *err)
{
	const struct s3 *s = job->own;
	const char *id = publish_recalled(job, "upload_id");
	CLEANUP_FREE char *line = str_format("upload %s of ", id ? id : "");

	for (size_t i = 0; id && i < ret->count; i++)
		if (str_starts(ret->items[i], line))
			return 0;
	if (!id)
		return 0;
	if (remove && abort_upload(job, s->key, id, err) < 0)
		return -1;
	strv_addf(ret, "upload %s of %s%s", id, s->key, remove ? ": removed" : "");
	return 0;
}

/* Another publisher may be at it: an upload of another version is left alone for a day. NULL: it is
 * not. */
static const char *why_kept(const struct s3 *s, const char *key, const char *initiated)
{
	struct tm tm = {0};

	if (strcmp(key, s->key) == 0)
		return NULL;
	if (!initiated || !strptime(initiated, "%Y-%m-%dT%H:%M:%S", &tm))
		return "when it was begun is not told";
	return timegm(&tm) < time(NULL) - OTHERS_AFTER_S
	               ? NULL
	               : "begun within a day, so that somebody may be sending it";
}

static int take_upload(struct publish_job *job, const char *xml, const char *prefix, bool remove,
                       struct strv *ret, struct error *err)
{
	const struct s3 *s = job->own;
	CLEANUP_FREE char *key = xml_tag(xml, "Key", NULL);
	CLEANUP_FREE char *id = xml_tag(xml, "UploadId", NULL);
	CLEANUP_FREE char *initiated = xml_tag(xml, "Initiated", NULL);
	const char *kept;

	if (!key || !id || !str_starts(key, prefix))
		return 0;
	kept = why_kept(s, key, initiated);
	if (remove && !kept && abort_upload(job, key, id, err) < 0)
		return -1;
	if (remove && kept)
		strv_addf(ret, "upload %s of %s: kept, of another version, and %s", id, key, kept);
	else
		strv_addf(ret, "upload %s of %s%s", id, key, remove ? ": removed" : "");
	return 0;
}

/* Where the next page of a list begins. */
struct page {
	char *key, *id; /* NULL: at its beginning, or there is no more */
};

static void page_free(struct page *p)
{
	free(p->key);
	free(p->id);
	*p = (struct page){0};
}

static void turn_page(struct page *p, const char *xml)
{
	CLEANUP_FREE char *more = xml_tag(xml, "IsTruncated", NULL);

	page_free(p);
	if (!str_equal(more, "true"))
		return;
	p->key = xml_tag(xml, "NextKeyMarker", NULL);
	p->id = xml_tag(xml, "NextUploadIdMarker", NULL);
}

static int list_uploads(struct publish_job *job, const char *prefix, struct page *page, bool remove,
                        struct strv *ret, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv query = {0};
	CLEANUP_FREE char *escaped = http_escape(prefix, false);
	CLEANUP_FREE char *key = http_escape(page->key ? page->key : "", false);
	CLEANUP_FREE char *id = http_escape(page->id ? page->id : "", false);
	const struct s3_request request = {.method = "GET", .query = &query, .idempotent = true};
	const char *text, *at = NULL;
	char *upload;

	if (page->key)
		strv_addf(&query, "key-marker=%s", key);
	strv_addf(&query, "prefix=%s", escaped);
	if (page->id)
		strv_addf(&query, "upload-id-marker=%s", id);
	strv_add(&query, "uploads=");
	if (s3_call(job, &request, false, &reply, err) < 0)
		return -1;
	text = reply.body ? reply.body : "";
	while ((upload = xml_tag(text, "Upload", &at))) {
		int result = take_upload(job, upload, prefix, remove, ret, err);

		free(upload);
		if (result < 0)
			return -1;
	}
	turn_page(page, text);
	return 0;
}

/* Of all versions of this image: whoever publishes each day leaves uploads of many keys. */
int s3_leftovers(struct publish_job *job, bool remove, struct strv *ret, struct error *err)
{
	const struct s3 *s = job->own;
	CLEANUP(page_free) struct page page = {0};
	CLEANUP_FREE char *prefix =
		mem_copy(s->index_key, strlen(s->index_key) - strlen("index.json"));

	for (int i = 0; i < PAGES_MAX && (i == 0 || page.key); i++)
		if (list_uploads(job, prefix, &page, remove, ret, err) < 0)
			return -1;
	return own_leftover(job, remove, ret, err);
}
