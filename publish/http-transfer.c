/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One try of one request through libcurl. libcurl's own stall limit also counts while a server
 * works on a body that it has whole, so ours looks at which of the two it is.
 */
#include <ctype.h>
#include <string.h>

#include "builder/clock.h"
#include "publish/http-internal.h"

#define CONNECT_TIMEOUT_S 30
#define CALL_TIMEOUT_S    60
#define STALL_TIMEOUT_S   120
#define REPLY_TIMEOUT_S   900
#define HEADERS_MAX       200
#define HEADERS_MAX_BYTES (256ul * 1024) /* of all that come: libcurl bounds each line alone */
#define LARGE_BODY_BYTES  (1024ul * 1024)
#define UPLOAD_BUFFER     (2L * 1024 * 1024)
#define DOWNLOAD_BUFFER   (512L * 1024)

static unsigned or_default(unsigned given, unsigned otherwise)
{
	return given ? given : otherwise;
}

/* A new status line begins a new reply: "100 Continue" was none. */
static void take_header(struct transfer *t, const char *line, size_t length)
{
	struct http_reply *r = &t->reply;
	CLEANUP_FREE char *text = mem_copy(line, length);
	char *trimmed = str_trim(text), *colon;

	if (str_starts(trimmed, "HTTP/")) {
		strv_free(&r->headers);
		return;
	}
	colon = strchr(trimmed, ':');
	if (!colon || r->headers.count >= HEADERS_MAX)
		return;
	for (char *p = trimmed; p < colon; p++)
		*p = (char)tolower((unsigned char)*p);
	*colon = '\0';
	strv_addf(&r->headers, "%s: %s", trimmed, str_trim(colon + 1));
}

static size_t on_header(char *line, size_t size, size_t count, void *opaque)
{
	struct transfer *t = opaque;

	t->header_bytes += size * count;
	if (t->header_bytes > HEADERS_MAX_BYTES) {
		t->cut = CUT_TOO_LARGE;
		return 0;
	}
	take_header(t, line, size * count);
	return size * count;
}

static bool wants_data(struct transfer *t)
{
	long status = 0;

	curl_easy_getinfo(t->http->curl, CURLINFO_RESPONSE_CODE, &status);
	return t->request->on_data && status >= 200 && status < 300;
}

static size_t on_body(char *data, size_t size, size_t count, void *opaque)
{
	struct transfer *t = opaque;
	struct http_reply *r = &t->reply;
	size_t length = size * count;

	if (wants_data(t)) {
		if (t->request->on_data(t->request->opaque, data, length, &t->caller_error) == 0)
			return length;
		t->cut = CUT_CALLER;
		return 0;
	}
	if (length > HTTP_REPLY_MAX - r->size) {
		t->cut = CUT_TOO_LARGE;
		return 0;
	}
	r->body = mem_grow(r->body, r->size + length + 1, 1);
	memcpy(r->body + r->size, data, length);
	r->size += length;
	r->body[r->size] = '\0';
	return length;
}

/* libcurl calls this about once a second, also while nothing moves. */
static int on_tick(void *opaque, curl_off_t down_all, curl_off_t down, curl_off_t up_all,
                   curl_off_t up)
{
	struct transfer *t = opaque;
	const struct http_options *o = &t->http->options;
	uint64_t moved = (uint64_t)down + (uint64_t)up;
	int64_t now = clock_ms();
	bool sent = t->body_at >= t->body_bytes && down == 0;
	unsigned limit = sent ? or_default(t->request->reply_timeout_s,
	                                   or_default(o->reply_timeout_s, REPLY_TIMEOUT_S))
	                      : or_default(o->stall_timeout_s, STALL_TIMEOUT_S);

	(void)down_all;
	(void)up_all;
	if (moved != t->moved || t->moved_ms == 0) {
		t->moved = moved;
		t->moved_ms = now;
	}
	if (o->stop && *o->stop)
		t->cut = CUT_STOPPED;
	else if (now - t->moved_ms > (int64_t)limit * 1000)
		t->cut = sent ? CUT_NO_REPLY : CUT_STALLED;
	return t->cut != CUT_NONE;
}

static void set_method(struct transfer *t)
{
	CURL *c = t->http->curl;
	const char *method = t->request->method;

	if (strcmp(method, "HEAD") == 0) {
		curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
		return;
	}
	curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, method);
	if (t->request->body || strcmp(method, "PUT") == 0 || strcmp(method, "POST") == 0 ||
	    strcmp(method, "PATCH") == 0) {
		curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
		curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)t->body_bytes);
		curl_easy_setopt(c, CURLOPT_READFUNCTION, http_body_read);
		curl_easy_setopt(c, CURLOPT_READDATA, t);
		curl_easy_setopt(c, CURLOPT_SEEKFUNCTION, http_body_seek);
		curl_easy_setopt(c, CURLOPT_SEEKDATA, t);
		curl_easy_setopt(c, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BUFFER);
	}
}

static void set_limits(struct transfer *t)
{
	const struct http_options *o = &t->http->options;
	CURL *c = t->http->curl;

	curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT,
	                 (long)or_default(o->connect_timeout_s, CONNECT_TIMEOUT_S));
	if (t->body_bytes < LARGE_BODY_BYTES && !t->request->on_data &&
	    !t->request->reply_timeout_s)
		curl_easy_setopt(c, CURLOPT_TIMEOUT,
		                 (long)or_default(o->call_timeout_s, CALL_TIMEOUT_S));
	curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_tick);
	curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
}

static void set_common(struct transfer *t, const char *url)
{
	const struct http_options *o = &t->http->options;
	CURL *c = t->http->curl;

	curl_easy_reset(c); /* connections stay */
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
	curl_easy_setopt(c, CURLOPT_USERAGENT, "gpuimg");
	curl_easy_setopt(c, CURLOPT_BUFFERSIZE, DOWNLOAD_BUFFER);
	/* On a connection that was used before libcurl would send a request again by itself, if it
	 * is closed instead of answered. */
	curl_easy_setopt(c, CURLOPT_FRESH_CONNECT, t->request->idempotent ? 0L : 1L);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, t->http->curl_message);
	curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
	if (o->ca_file)
		curl_easy_setopt(c, CURLOPT_CAINFO, o->ca_file);
	if (o->insecure) {
		curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 0L);
		curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 0L);
	}
}

int http_transfer(struct transfer *t, const char *url, const struct strv *headers,
                  CURLcode *ret_code, struct error *err)
{
	struct curl_slist *list = NULL;
	long status = 0;

	for (size_t i = 0; headers && i < headers->count; i++) {
		struct curl_slist *more = curl_slist_append(list, headers->items[i]);

		if (!more) {
			curl_slist_free_all(list);
			return error_set(err, "out of memory");
		}
		list = more;
	}
	t->body_bytes = http_body_size(t->request->body);
	*t->http->curl_message = '\0';
	set_common(t, url);
	set_method(t);
	set_limits(t);
	curl_easy_setopt(t->http->curl, CURLOPT_HTTPHEADER, list);
	*ret_code = curl_easy_perform(t->http->curl);
	curl_slist_free_all(list);
	curl_easy_getinfo(t->http->curl, CURLINFO_RESPONSE_CODE, &status);
	t->reply.status = (int)status;
	t->reply.sent_bytes = t->body_at;
	return 0;
}
