/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP request by libcurl: what to ask for, and whether the answer fits what we have. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "clock.h"
#include "download_internal.h"
#include "str.h"

#define MAX_ERROR_BODY    (UINT64_C(1) << 20)
#define MAX_HEADER_BYTES  1024
#define MAX_CONNECT_S     30
#define DRAW_EVERY_MS     200
#define SPACE_EVERY_BYTES (UINT64_C(32) << 20)
#define SPACE_LEFT_BYTES  (UINT64_C(64) << 20) /* for whoever shares the disk */

DEFINE_CLEANUP(curl, CURL *, curl_easy_cleanup)
DEFINE_CLEANUP(slist, struct curl_slist *, curl_slist_free_all)
#define CLEANUP_CURL  CLEANUP(cleanup_curl)
#define CLEANUP_SLIST CLEANUP(cleanup_slist)

static int check_space(struct transfer *t, uint64_t more)
{
	CLEANUP_FREE char *need = NULL;
	CLEANUP_FREE char *there = NULL;
	struct statvfs fs;
	uint64_t free_bytes;

	t->space_checked = t->have;
	if (t->fd < 0 || fstatvfs(t->fd, &fs) < 0)
		return 0;
	free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (more <= free_bytes && free_bytes - more >= SPACE_LEFT_BYTES)
		return 0;
	need = str_size(more);
	there = str_size(free_bytes);
	error_code(t->err, EXIT_HOST);
	error_hint(t->err, "make room there, or choose another cache directory");
	if (more)
		return error_set(t->err, "%s more are needed for '%s', but %s are free", need,
		                 t->path, there);
	return error_set(t->err, "the disk of '%s' is full: %s are free", t->path, there);
}

/* "bytes 100-199/200": whether the piece begins where our file ends. */
static bool continues(const struct transfer *t)
{
	CLEANUP_FREE char *want = str_format("bytes %" PRIu64 "-", t->have);

	return t->range && strncasecmp(t->range, want, strlen(want)) == 0;
}

/* Before the first byte of a 200 or 206. */
static int begin_body(struct transfer *t, long status)
{
	curl_off_t length = -1;

	t->begun = true;
	if (status == 206 && !continues(t)) {
		t->restart = true;
		return error_set(t->err, "the server sent another piece than the one asked for");
	}
	if (status == 206)
		t->resumed = true;
	if (status == 200 && t->have)
		log_note(t->d->log, "the download begins anew: the file on the server has changed, "
		                    "or the server cannot resume");
	if (status == 200 && download_forget(t) < 0)
		return -1;
	/* Weak ETags name the meaning, not the bytes. */
	if (t->etag && !str_starts(t->etag, "W/"))
		download_replace(&t->version, str_copy(t->etag));
	else
		download_replace(&t->version, str_copy(t->modified));
	if (t->fd >= 0)
		download_save_origin(t);
	t->begin_have = t->have;
	curl_easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
	return check_space(t, length > 0 ? (uint64_t)length : 0);
}

static int store(struct transfer *t, const char *data, size_t size)
{
	if (t->fd < 0) {
		if (size > t->max_text - t->have)
			return error_set(t->err, "it has more than %zu bytes", t->max_text);
		memcpy(t->text + t->have, data, size);
		t->have += size;
		return 0;
	}
	if (t->have - t->space_checked >= SPACE_EVERY_BYTES && check_space(t, 0) < 0)
		return -1;
	while (size) {
		ssize_t n = write(t->fd, data, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			error_code(t->err, EXIT_HOST);
			return error_errno(t->err, errno, "cannot write '%s'", t->path);
		}
		data += n;
		size -= (size_t)n;
		t->have += (uint64_t)n;
	}
	return 0;
}

/* Anything but 'size' ends the transfer; t->err says why. */
static size_t on_body(char *data, size_t one, size_t size, void *opaque)
{
	struct transfer *t = opaque;
	long status = 0;

	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200 && status != 206) {
		t->discarded += size;
		return t->discarded > MAX_ERROR_BODY ? 0 : size * one;
	}
	if (!t->begun && begin_body(t, status) < 0)
		return 0;
	return store(t, data, size) < 0 ? 0 : size * one;
}

static size_t on_header(char *data, size_t one, size_t size, void *opaque)
{
	static const char *const names[] = {"etag:", "last-modified:", "content-range:"};
	struct transfer *t = opaque;
	char **values[] = {&t->etag, &t->modified, &t->range};

	t->moved_ms = clock_ms();
	for (size_t i = 0; i < 3; i++) {
		size_t length = strlen(names[i]);

		if (size > length && size < MAX_HEADER_BYTES &&
		    strncasecmp(data, names[i], length) == 0) {
			CLEANUP_FREE char *copy = mem_copy(data + length, size - length);

			download_replace(values[i], str_copy(str_trim(copy)));
		}
	}
	return size * one;
}

static void draw(struct transfer *t, uint64_t now, uint64_t total)
{
	int64_t ms = clock_ms();
	double elapsed = (double)(ms - t->begin_ms) / 1000;
	CLEANUP_FREE char *done = NULL;
	CLEANUP_FREE char *rate = NULL;
	CLEANUP_FREE char *detail = NULL;

	if (!t->d->log || t->fd < 0 || !t->begun || ms - t->drawn_ms < DRAW_EVERY_MS)
		return;
	t->drawn_ms = ms;
	done = str_size(t->begin_have + now);
	rate = str_size((uint64_t)((double)now / (elapsed > 0.1 ? elapsed : 0.1)));
	detail = str_format("%s, %s/s", done, rate);
	log_step_progress(t->d->log,
	                  total ? (double)(t->begin_have + now) / (double)(t->begin_have + total)
	                        : -1,
	                  detail);
}

/* Also called, once a second, while nothing comes. */
static int on_progress(void *opaque, curl_off_t total, curl_off_t now, curl_off_t up_total,
                       curl_off_t up_now)
{
	struct transfer *t = opaque;

	(void)up_total;
	(void)up_now;
	if ((uint64_t)now != t->seen) {
		t->seen = (uint64_t)now;
		t->moved_ms = clock_ms();
	}
	draw(t, (uint64_t)now, total > 0 ? (uint64_t)total : 0);
	t->stalled = clock_ms() - t->moved_ms > (int64_t)t->d->stall_timeout_s * 1000;
	return t->stalled;
}

static void limit_protocols(CURL *curl)
{
#if LIBCURL_VERSION_NUM >= 0x075500
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
}

static void set_up(struct transfer *t, const char *url, char *why, struct curl_slist **headers)
{
	unsigned stall_s = t->d->stall_timeout_s;
	CLEANUP_FREE char *range = str_format("%" PRIu64 "-", t->have);

	limit_protocols(t->curl);
	curl_easy_setopt(t->curl, CURLOPT_URL, url);
	curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, why);
	curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(t->curl, CURLOPT_FOLLOWLOCATION, 0L);
	curl_easy_setopt(t->curl, CURLOPT_FAILONERROR, 1L);
	curl_easy_setopt(t->curl, CURLOPT_USERAGENT, "gpuimg");
	curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT,
	                 (long)(stall_s < MAX_CONNECT_S ? stall_s : MAX_CONNECT_S));
	curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
	curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
	curl_easy_setopt(t->curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(t->curl, CURLOPT_HEADERDATA, t);
	curl_easy_setopt(t->curl, CURLOPT_NOPROGRESS, 0L);
	curl_easy_setopt(t->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	curl_easy_setopt(t->curl, CURLOPT_XFERINFODATA, t);
	if (t->have) {
		curl_easy_setopt(t->curl, CURLOPT_RANGE, range);
		if (t->version) {
			CLEANUP_FREE char *line = str_format("If-Range: %s", t->version);

			*headers = curl_slist_append(*headers, line);
		}
	}
	curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, *headers);
}

static bool is_passing(CURLcode rc, long status)
{
	switch (rc) {
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_COULDNT_RESOLVE_PROXY:
	case CURLE_COULDNT_CONNECT:
	case CURLE_OPERATION_TIMEDOUT:
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_RECV_ERROR:
	case CURLE_PARTIAL_FILE:
	case CURLE_GOT_NOTHING:
	case CURLE_HTTP2:
	case CURLE_HTTP2_STREAM:
		return true;
	case CURLE_HTTP_RETURNED_ERROR:
		return status == 408 || status == 425 || status == 429 || status >= 500;
	default:
		return false;
	}
}

/* 416: there is nothing behind what we have. Either that is all, or the file is another one. */
static int out_of_range(struct transfer *t, bool *ret_again)
{
	CLEANUP_FREE char *all = str_format("bytes */%" PRIu64, t->have);

	if (t->range && strcasecmp(t->range, all) == 0) {
		t->resumed = true;
		return 0;
	}
	*ret_again = true;
	if (download_forget(t) < 0)
		return -1;
	return error_set(t->err, "the partial file does not fit the server's");
}

static int http_failed(struct transfer *t, long status, bool passing)
{
	if (!passing)
		error_code(t->err, EXIT_INPUT);
	if (status == 401 || status == 403)
		error_hint(t->err, "the server wants a login, or the address is no longer valid");
	else if (status == 404 || status == 410)
		error_hint(t->err, "check the address; images move when a release is replaced");
	return error_set(t->err, "the server answers with status %ld", status);
}

/* curl_easy_perform has failed with rc. Says why, and whether another try makes sense. */
static int request_failed(struct transfer *t, CURLcode rc, const char *why, bool *ret_again)
{
	long status = 0;

	curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
	*ret_again = is_passing(rc, status);
	if (rc == CURLE_HTTP_RETURNED_ERROR && status == 416 && t->have)
		return out_of_range(t, ret_again);
	if (rc == CURLE_HTTP_RETURNED_ERROR)
		return http_failed(t, status, *ret_again);
	if (t->stalled) {
		*ret_again = true;
		return error_set(t->err, "nothing came for %u seconds", t->d->stall_timeout_s);
	}
	if (t->restart) {
		*ret_again = true;
		download_forget(t);
		return -1;
	}
	if (rc == CURLE_WRITE_ERROR && t->err->message)
		return -1;
	return error_set(t->err, "%s", *why ? why : curl_easy_strerror(rc));
}

/* Forgets the last answer; the bytes that came with it stay. */
static void reset_answer(struct transfer *t)
{
	download_replace(&t->etag, NULL);
	download_replace(&t->modified, NULL);
	download_replace(&t->range, NULL);
	t->begun = t->stalled = t->restart = false;
	t->seen = t->discarded = 0;
	t->begin_ms = t->moved_ms = clock_ms();
	t->begin_have = t->have;
}

int download_request(struct transfer *t, const char *url, char **ret_next, bool *ret_again,
                     long *ret_wait_s)
{
	CLEANUP_CURL CURL *curl = curl_easy_init();
	CLEANUP_SLIST struct curl_slist *headers = NULL;
	char why[CURL_ERROR_SIZE] = "";
	const char *next = NULL;
	curl_off_t wait_s = 0;
	long status = 0;
	CURLcode rc;

	if (!curl)
		return error_set(t->err, "cannot initialise libcurl");
	t->curl = curl;
	reset_answer(t);
	set_up(t, url, why, &headers);
	rc = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &wait_s);
	*ret_wait_s = (long)wait_s;
	if (rc != CURLE_OK)
		return request_failed(t, rc, why, ret_again);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &next);
	if (next)
		return download_follow(url, next, ret_next, t->err);
	if (status != 200 && status != 206)
		return http_failed(t, status, false);
	return t->begun ? 0 : begin_body(t, status); /* an empty file has no body */
}
