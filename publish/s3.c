/* SPDX-License-Identifier: Apache-2.0 */
/*
 * s3: an object store that speaks S3. Keys hold the content's digest, so nothing is ever
 * overwritten by other content, and no conditional write has to be relied on (two of two servers
 * tried ignore or refuse it). A right length and ETag do not prove the bytes: they are read back.
 */
#include <openssl/evp.h>
#include <string.h>
#include <time.h>

#include "builder/digest.h"
#include "publish/s3.h"
#include "publish/secret.h"
#include "publish/sigv4.h"

#define EMPTY_SHA256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static int secret_or_env(struct publish_job *job, const char *key, const char *variable, char **ret,
                         struct error *err)
{
	const char *value;

	if (publish_secret(job, key, ret, err) < 0)
		return -1;
	value = getenv(variable);
	if (!*ret && value && *value) {
		*ret = str_copy(value);
		strv_add(job->secrets, value);
	}
	return 0;
}

static int read_credentials(struct publish_job *job, struct s3 *s, struct error *err)
{
	if (secret_or_env(job, "access_key", "AWS_ACCESS_KEY_ID", &s->access_key, err) < 0 ||
	    secret_or_env(job, "secret_key", "AWS_SECRET_ACCESS_KEY", &s->secret_key, err) < 0 ||
	    secret_or_env(job, "session_token", "AWS_SESSION_TOKEN", &s->session_token, err) < 0)
		return -1;
	if (s->access_key && s->secret_key)
		return 0;
	error_set(err, "no credentials: neither 'access_key' and 'secret_key' nor "
	               "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
	error_hint(err, "write 'secret_key: {env: NAME}' or '{file: PATH}' in the targets file");
	return error_code(err, EXIT_USAGE);
}

/* "https://host:port", of which the host is signed. A path would be signed too, and nobody has one.
 */
static int read_endpoint(struct publish_job *job, struct s3 *s, struct error *err)
{
	const char *endpoint = publish_setting(job->where, "endpoint");
	const char *bucket = publish_setting(job->where, "bucket");
	const char *host = endpoint ? strstr(endpoint, "://") : NULL;
	size_t length = host ? strcspn(host + 3, "/") : 0;

	if (!host || !bucket ||
	    (!str_starts(endpoint, "http://") && !str_starts(endpoint, "https://")) ||
	    length == 0 || strlen(host + 3) > length + 1 || strpbrk(host + 3, "@?#") ||
	    bucket[strspn(bucket,
	                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")]) {
		error_set(err, "'endpoint' must be an address without a path, 'bucket' a name");
		return error_code(err, EXIT_USAGE);
	}
	if (publish_flag(job->where, "path_style", true)) {
		s->host = mem_copy(host + 3, length);
		s->base = str_format("/%s", bucket);
	} else {
		s->host = str_format("%s.%.*s", bucket, (int)length, host + 3);
		s->base = str_copy("");
	}
	s->scheme_host = str_format("%.*s%s", (int)(host - endpoint) + 3, endpoint, s->host);
	return 0;
}

static int read_lanes(const struct publish_job *job, struct s3 *s, struct error *err)
{
	uint64_t lanes = publish_number(job->where, "upload_concurrency", S3_LANES);

	if (lanes < 1 || lanes > S3_LANES_MAX) {
		error_set(err, "'upload_concurrency' must be a number of parts, 1 to %d",
		          S3_LANES_MAX);
		return error_code(err, EXIT_USAGE);
	}
	s->lanes = (size_t)lanes;
	return 0;
}

static char *with_prefix(const char *prefix, char *path)
{
	CLEANUP_FREE char *owned = path;
	CLEANUP_FREE char *trimmed = http_trimmed(prefix ? prefix : "");

	return *trimmed ? str_format("%s/%s", trimmed, owned) : str_copy(owned);
}

/* Of one piece the MD5; of parts the MD5 of their MD5s, and how many. */
static char *predict_etag(const struct publish_image *i)
{
	CLEANUP_FREE unsigned char *binary = mem_alloc(16 * i->part_md5.count + 1);
	unsigned char digest[EVP_MAX_MD_SIZE];
	CLEANUP_FREE char *hex_of_all = NULL;
	unsigned length = 0;

	if (i->part_md5.count == 1)
		return str_copy(i->part_md5.items[0]);
	for (size_t p = 0; p < i->part_md5.count; p++)
		for (size_t b = 0; b < 16; b++) {
			char hex[3] = {i->part_md5.items[p][2 * b],
			               i->part_md5.items[p][2 * b + 1]};

			binary[16 * p + b] = (unsigned char)strtoul(hex, NULL, 16);
		}
	EVP_Digest(binary, 16 * i->part_md5.count, digest, &length, EVP_md5(), NULL);
	hex_of_all = digest_hex(digest, length);
	return str_format("%s-%zu", hex_of_all, i->part_md5.count);
}

static int s3_check(struct publish_job *job, struct error *err)
{
	struct s3 *s = job->own = mem_alloc(sizeof(*s));
	const char *prefix = publish_setting(job->where, "prefix");
	const char *region = publish_setting(job->where, "region");
	const char *public = publish_setting(job->where, "public_url");
	CLEANUP_FREE char *path = NULL;

	if (read_endpoint(job, s, err) < 0 || read_lanes(job, s, err) < 0 ||
	    read_credentials(job, s, err) < 0)
		return -1;
	s->region = str_copy(region ? region : "us-east-1");
	s->key = with_prefix(prefix, layout_file(job->image));
	s->sums_key = with_prefix(prefix, layout_sums(job->image));
	s->index_key = with_prefix(prefix, layout_index(job->image));
	s->parts = job->image->part_md5.count;
	s->etag = predict_etag(job->image);
	path = http_escape(s->key, true);
	job->ref = public ? str_format("%s%s%s", public, str_ends(public, "/") ? "" : "/", path)
	                  : str_format("%s%s/%s", s->scheme_host, s->base, path);
	return 0;
}

static void s3_end(struct publish_job *job)
{
	struct s3 *s = job->own;

	if (!s)
		return;
	free(s->scheme_host);
	free(s->host);
	free(s->base);
	free(s->region);
	secret_free(s->access_key);
	secret_free(s->secret_key);
	secret_free(s->session_token);
	free(s->key);
	free(s->sums_key);
	free(s->index_key);
	free(s->etag);
	free(STEAL(job->own));
}

static char *path_of(const struct s3 *s, const char *key)
{
	CLEANUP_FREE char *escaped = http_escape(key ? key : "", true);

	if (!key)
		return str_copy(*s->base ? s->base : "/");
	return str_format("%s/%s", s->base, escaped);
}

struct signing {
	const struct s3 *s;
	const struct s3_request *request;
	const char *path;
};

static void sign(void *opaque, struct strv *ret_headers)
{
	const struct signing *signing = opaque;
	const struct s3 *s = signing->s;
	const struct s3_request *r = signing->request;
	const struct sigv4 request = {
		.access_key = s->access_key,
		.secret_key = s->secret_key,
		.session_token = s->session_token,
		.region = s->region,
		.service = "s3",
		.method = r->method,
		.host = s->host,
		.path = signing->path,
		.query = r->query,
		.headers = r->headers,
		.payload_sha256 = r->payload_sha256 ? r->payload_sha256 : EMPTY_SHA256,
		.now = time(NULL),
	};

	sigv4_sign(&request, ret_headers);
}

int s3_send(struct publish_job *job, const struct s3_request *r, struct http_reply *ret,
            bool *ret_unknown, struct error *err)
{
	struct s3 *s = job->own;
	CLEANUP_FREE char *path = path_of(s, r->key);
	CLEANUP_FREE char *query = sigv4_query(r->query);
	CLEANUP_FREE char *url =
		str_format("%s%s%s%s", s->scheme_host, path, *query ? "?" : "", query);
	struct signing signing = {s, r, path};
	const struct http_request request = {
		.method = r->method,
		.url = url,
		.sign = sign,
		.sign_opaque = &signing,
		.body = r->body,
		.idempotent = r->idempotent,
		.on_sent = r->on_sent,
		.sent_opaque = r->sent_opaque,
		.reply_timeout_s = r->reply_timeout_s,
	};
	int result = http_send(job->http, &request, ret, ret_unknown, err);

	if (r->on_sent)
		job->sent_bytes += ret->sent_bytes;
	if (http_is_ok(ret))
		s->accepted = true;
	return result;
}

bool s3_has_run_out(const struct publish_job *job, const struct http_reply *reply)
{
	const struct s3 *s = job->own;

	return s->accepted && reply->body &&
	       (strstr(reply->body, "<Code>ExpiredToken</Code>") ||
	        strstr(reply->body, "<Code>TokenRefreshRequired</Code>"));
}

static int refused(struct publish_job *job, const struct http_request *request,
                   const struct http_reply *reply, struct error *err)
{
	if (s3_has_run_out(job, reply)) { /* before http_error() says what is said of any 403 */
		error_hint(err, "give it fresh credentials and run again: what was sent stays");
		error_code(err, EXIT_PUBLISH);
	}
	return http_error(job->http, request, reply, err);
}

int s3_error(struct publish_job *job, const struct s3_request *r, const struct http_reply *reply,
             struct error *err)
{
	const struct s3 *s = job->own;
	CLEANUP_FREE char *path = path_of(s, r->key);
	CLEANUP_FREE char *url = str_format("%s%s", s->scheme_host, path);
	const struct http_request shown = {.method = r->method, .url = url};

	return refused(job, &shown, reply, err);
}

int s3_call(struct publish_job *job, const struct s3_request *r, bool may_miss,
            struct http_reply *ret, struct error *err)
{
	if (s3_send(job, r, ret, NULL, err) < 0)
		return -1;
	if (http_is_ok(ret) || (may_miss && ret->status == 404))
		return 0;
	return s3_error(job, r, ret, err);
}

int s3_get_text(struct publish_job *job, const char *key, char **ret, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	const struct s3_request request = {.method = "GET", .key = key, .idempotent = true};

	*ret = NULL;
	if (s3_call(job, &request, true, &reply, err) < 0)
		return -1;
	if (reply.status == 200)
		*ret = reply.body ? STEAL(reply.body) : str_copy("");
	return 0;
}

int s3_put_text(struct publish_job *job, const char *key, const char *text, const char *type,
                struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *digest = digest_memory(text, strlen(text));
	CLEANUP_STRV struct strv headers = {0};
	const struct http_body body = {.head = text, .head_size = strlen(text), .fd = -1};
	const struct s3_request request = {.method = "PUT",
	                                   .key = key,
	                                   .headers = &headers,
	                                   .body = &body,
	                                   .payload_sha256 = digest,
	                                   .idempotent = true};

	strv_addf(&headers, "Content-Type: %s", type);
	return s3_call(job, &request, false, &reply, err);
}

int s3_is_whole(struct publish_job *job, bool *ret, struct error *err)
{
	struct s3 *s = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	const struct s3_request request = {.method = "HEAD", .key = s->key, .idempotent = true};

	if (s3_call(job, &request, true, &reply, err) < 0)
		return -1;
	s->etag_as_predicted =
		http_header(&reply, "etag") && strstr(http_header(&reply, "etag"), s->etag);
	*ret = reply.status == 200 && http_has_length(&reply, job->image->size_bytes);
	return 0;
}

static int s3_probe(struct publish_job *job, enum publish_found *ret, struct error *err)
{
	const struct s3 *s = job->own;
	CLEANUP_FREE char *index = NULL;
	CLEANUP_FREE char *sums = NULL;
	bool whole;

	if (s3_get_text(job, s->index_key, &index, err) < 0 ||
	    s3_get_text(job, s->sums_key, &sums, err) < 0 || s3_is_whole(job, &whole, err) < 0 ||
	    layout_look(job, index, sums, whole, ret, err) < 0)
		return -1;
	if (*ret == FOUND_ABSENT && publish_recalled(job, "upload_id"))
		*ret = FOUND_PARTIAL;
	return 0;
}

static int get_index(struct publish_job *job, char **ret_text, char **ret_tag, struct error *err)
{
	const struct s3 *s = job->own;

	*ret_tag = NULL;
	return s3_get_text(job, s->index_key, ret_text, err);
}

static int put_index(struct publish_job *job, const char *text, const char *tag, struct error *err)
{
	const struct s3 *s = job->own;

	(void)tag;
	return s3_put_text(job, s->index_key, text, "application/json", err);
}

static int s3_name(struct publish_job *job, struct error *err)
{
	static const struct layout_index_io io = {.get = get_index, .put = put_index};
	const struct s3 *s = job->own;
	CLEANUP_FREE char *sums = layout_sums_text(job->image);

	if (s3_put_text(job, s->sums_key, sums, "text/plain", err) < 0)
		return -1;
	return layout_index_update(job, &io, err);
}

static int s3_verify(struct publish_job *job, enum publish_verify how, struct error *err)
{
	const struct s3 *s = job->own;
	CLEANUP_FREE char *path = path_of(s, s->key);
	CLEANUP_FREE char *url = str_format("%s%s", s->scheme_host, path);
	const struct s3_request get = {.method = "GET", .key = s->key};
	struct signing signing = {s, &get, path};
	const struct http_request request = {
		.method = "GET", .url = url, .sign = sign, .sign_opaque = &signing};
	bool whole;

	if (how == VERIFY_FULL)
		return publish_read_back(job, &request, err);
	if (s3_is_whole(job, &whole, err) < 0)
		return -1;
	if (!whole) {
		error_set(err, "'%s' is not there with the right length", s->key);
		return error_code(err, EXIT_PROOF);
	}
	job->verified = str_copy(s->etag_as_predicted ? "size and ETag" : "size");
	return 0;
}

static const char *const keys[] = {
	"!endpoint",           "!bucket", "region", "prefix", "?path_style", "public_url",
	"#upload_concurrency", NULL};
static const char *const secret_keys[] = {"access_key", "secret_key", "session_token", NULL};

const struct publish_backend publish_s3 = {
	.type = "s3",
	.verify_default = VERIFY_FULL,
	.digests = DIGEST_PARTS,
	.keys = keys,
	.secret_keys = secret_keys,
	.check = s3_check,
	.probe = s3_probe,
	.begin = s3_begin,
	.send = s3_send_image,
	.commit = s3_complete,
	.refused = refused,
	.verify = s3_verify,
	.name = s3_name,
	.leftovers = s3_leftovers,
	.end = s3_end,
};
