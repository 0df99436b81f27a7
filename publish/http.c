/* SPDX-License-Identifier: Apache-2.0 */
/* The transport: which replies and failures are worth another try, and what may be told of a
 * request. */
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "builder/clock.h"
#include "publish/http-internal.h"

#define TRIES_DEFAULT 5
#define PAUSE_MAX_S   60
#define REDIRECTS_MAX 5
#define SECRET_MIN    4 /* shorter ones would scrub half of every text */

static int make(struct http **ret, const struct http_options *options, struct error *err)
{
	struct http *h = mem_alloc(sizeof(*h));

	h->options = *options;
	h->curl = curl_easy_init();
	if (!h->curl) {
		free(h);
		return error_set(err, "cannot start libcurl");
	}
	*ret = h;
	return 0;
}

int http_new(struct http **ret, const struct http_options *options, struct error *err)
{
	if (make(ret, options, err) < 0)
		return -1;
	if (options->insecure)
		log_warn(options->log, "certificates are not checked ('verify_tls: false')");
	return 0;
}

int http_twin(struct http **ret, const struct http *http, struct error *err)
{
	return make(ret, &http->options, err);
}

void http_trust(struct http *h, const char *ca_file, bool insecure)
{
	if (ca_file)
		h->options.ca_file = ca_file;
	if (insecure && !h->options.insecure)
		log_warn(h->options.log, "certificates are not checked ('verify: false')");
	h->options.insecure = h->options.insecure || insecure;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	curl_easy_cleanup(h->curl);
	free(h);
}

void http_reply_free(struct http_reply *r)
{
	strv_free(&r->headers);
	free(r->body);
	*r = (struct http_reply){0};
}

const char *http_header(const struct http_reply *r, const char *name)
{
	size_t length = strlen(name);

	for (size_t i = 0; i < r->headers.count; i++)
		if (strncmp(r->headers.items[i], name, length) == 0 &&
		    r->headers.items[i][length] == ':')
			return r->headers.items[i] + length + 2;
	return NULL;
}

bool http_is_ok(const struct http_reply *r)
{
	return r->status >= 200 && r->status < 300;
}

bool http_has_length(const struct http_reply *r, uint64_t bytes)
{
	const char *length = http_header(r, "content-length");
	uint64_t number;

	return length && str_parse_uint(length, UINT64_MAX, &number) == 0 && number == bytes;
}

void http_add_basic(struct strv *headers, struct strv *secrets, const char *user,
                    const char *password)
{
	CLEANUP_FREE char *both = str_format("%s:%s", user, password);
	size_t size = strlen(both);
	CLEANUP_FREE char *encoded = mem_alloc(4 * (size / 3 + 1) + 1);

	EVP_EncodeBlock((unsigned char *)encoded, (const unsigned char *)both, (int)size);
	strv_addf(headers, "Authorization: Basic %s", encoded);
	if (!strv_has(secrets, encoded))
		strv_add(secrets, encoded);
}

static char *replace_all(char *text, const char *what)
{
	size_t length = strlen(what);
	char *found;

	while ((found = strstr(text, what))) {
		char *fresh = str_format("%.*s***%s", (int)(found - text), text, found + length);

		free(text);
		text = fresh;
	}
	return text;
}

char *http_scrub(const struct http *h, const char *text, size_t size)
{
	CLEANUP_FREE char *copy = mem_copy(text, size);
	char *clean = str_printable(copy, size);

	for (size_t i = 0; h->options.secrets && i < h->options.secrets->count; i++)
		if (strlen(h->options.secrets->items[i]) >= SECRET_MIN)
			clean = replace_all(clean, h->options.secrets->items[i]);
	return clean;
}

static bool is_transient(int status)
{
	return status == 408 || status == 429 || (status >= 500 && status != 501 && status != 507);
}

int http_error(struct http *h, const struct http_request *request, const struct http_reply *reply,
               struct error *err)
{
	CLEANUP_FREE char *shown = http_shown(request->url);
	/* Scrubbed before it is cut: half of a secret is one too. */
	CLEANUP_FREE char *whole = http_scrub(h, reply->body ? reply->body : "", reply->size);

	error_set(err, "%s %s: the server says %d%s%.*s", request->method, shown, reply->status,
	          *whole ? ": " : "", (int)HTTP_ERROR_BODY_MAX, whole);
	if (reply->status == 401 || reply->status == 403) {
		error_hint(
			err,
			"check the credentials that the targets file names, and what they may do");
		return error_code(err, EXIT_USAGE);
	}
	return error_code(err, is_transient(reply->status) ? EXIT_PUBLISH : EXIT_BUILD);
}

/* Nothing of the request has reached the server. */
static bool never_sent(CURLcode code)
{
	return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
	       code == CURLE_COULDNT_CONNECT;
}

/* Trying again would end the same way. */
static bool is_hopeless(CURLcode code)
{
	return code == CURLE_URL_MALFORMAT || code == CURLE_UNSUPPORTED_PROTOCOL ||
	       code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
	       code == CURLE_OUT_OF_MEMORY;
}

static unsigned jitter_ms(void)
{
	unsigned char byte = 0;

	return getrandom(&byte, 1, GRND_NONBLOCK) == 1 ? byte * 2u : 0;
}

/* Retry-After in seconds, else twice as long each time. A date is not read: the pause is bounded
 * anyway. */
static unsigned pause_ms(const struct http_reply *reply, unsigned tries)
{
	const char *after = http_header(reply, "retry-after");
	uint64_t seconds;

	if (!after || str_parse_uint(after, UINT32_MAX, &seconds) < 0)
		seconds = tries < 7 ? 1ull << (tries - 1) : PAUSE_MAX_S;
	return (unsigned)(seconds < PAUSE_MAX_S ? seconds : PAUSE_MAX_S) * 1000 + jitter_ms();
}

bool http_pause_ms(const atomic_bool *stop, unsigned ms)
{
	for (int64_t until = clock_ms() + ms; clock_ms() < until;) {
		const struct timespec piece = {.tv_nsec = 100000000};

		if (stop && *stop)
			return false;
		nanosleep(&piece, NULL);
	}
	return true;
}

static void tell(const struct transfer *t, const char *url, CURLcode code, int64_t began_ms)
{
	CLEANUP_FREE char *shown = http_shown(url);
	CLEANUP_FREE char *sent = str_size(t->reply.sent_bytes);

	log_detail(t->http->options.log, "%s %s: %d%s%s, %s sent, %.1f s", t->request->method,
	           shown, t->reply.status, code == CURLE_OK ? "" : ", ",
	           code == CURLE_OK ? "" : curl_easy_strerror(code), sent,
	           (double)(clock_ms() - began_ms) / 1000.0);
}

static const char *cut_reason(const struct transfer *t)
{
	switch (t->cut) {
	case CUT_STOPPED:
		return "stopped";
	case CUT_STALLED:
		return "no byte moved for too long";
	case CUT_NO_REPLY:
		return "the server has the whole request and does not reply";
	case CUT_TOO_LARGE:
		return "the reply is too large";
	case CUT_CALLER:
	case CUT_NONE:
		break;
	}
	return t->body_failed ? "the image got shorter while it was sent" : NULL;
}

static int no_reply(struct transfer *t, CURLcode code, struct error *err)
{
	CLEANUP_FREE char *shown = http_shown(t->request->url);
	CLEANUP_FREE char *message =
		http_scrub(t->http, t->http->curl_message, strlen(t->http->curl_message));
	const char *reason = cut_reason(t);

	if (t->cut == CUT_CALLER)
		return error_take(err, &t->caller_error);
	error_set(err, "%s %s: %s", t->request->method, shown,
	          reason     ? reason
	          : *message ? message
	                     : curl_easy_strerror(code));
	return error_code(err, t->body_failed                                 ? EXIT_INPUT
	                       : is_hopeless(code) || t->cut == CUT_TOO_LARGE ? EXIT_HOST
	                                                                      : EXIT_PUBLISH);
}

/* Whether a try that ended so is to be followed by another one. */
static bool try_again(const struct transfer *t, CURLcode code)
{
	if (t->cut == CUT_STOPPED || t->cut == CUT_CALLER || t->cut == CUT_TOO_LARGE ||
	    t->body_failed)
		return false;
	if (code == CURLE_OK)
		return t->reply.status == 429 ||
		       (t->request->idempotent && is_transient(t->reply.status));
	if (is_hopeless(code))
		return false;
	return never_sent(code) || t->request->idempotent;
}

static bool is_secret_header(const char *header)
{
	return strncasecmp(header, "authorization:", 14) == 0 ||
	       strncasecmp(header, "x-auth-token:", 13) == 0 ||
	       strncasecmp(header, "cookie:", 7) == 0;
}

/* Another host gets no credentials, and nobody gets less protection than was asked for. */
static bool follow(const struct http_reply *reply, char **url, struct strv *headers)
{
	const char *to = http_header(reply, "location");
	const char *host = strstr(*url, "://");
	CLEANUP_FREE char *target = NULL;

	if (!to || !host || reply->status < 301 || reply->status > 308 || reply->status == 304)
		return false;
	target = *to == '/' ? str_format("%.*s%s",
	                                 (int)(host - *url + 3 + (long)strcspn(host + 3, "/?#")),
	                                 *url, to)
	                    : str_copy(to);
	if (!str_starts(target, "https://") &&
	    (!str_starts(target, "http://") || str_starts(*url, "https://")))
		return false;
	for (size_t i = headers->count; !http_same_origin(*url, target) && i-- > 0;)
		if (is_secret_header(headers->items[i]))
			strv_remove(headers, i);
	free(*url);
	*url = STEAL(target);
	return true;
}

/* One try, redirects included where the caller wants them. */
static int send_once(struct transfer *t, CURLcode *ret_code, struct error *err)
{
	CLEANUP_FREE char *url = str_copy(t->request->url);
	CLEANUP_STRV struct strv headers = {0};

	if (t->request->headers)
		strv_add_all(&headers, t->request->headers);
	if (t->request->sign)
		t->request->sign(t->request->sign_opaque, &headers);
	for (unsigned hops = 0;; hops++) {
		int64_t began = clock_ms();

		if (http_transfer(t, url, &headers, ret_code, err) < 0)
			return -1;
		tell(t, url, *ret_code, began);
		if (*ret_code != CURLE_OK || !t->request->follow || hops == REDIRECTS_MAX ||
		    !follow(&t->reply, &url, &headers))
			return 0;
		http_reply_free(&t->reply);
		t->reply.elsewhere = !http_same_origin(t->request->url, url);
		t->body_at = 0;
	}
}

/* An early refusal ends the sending, and is a reply like any other. */
static bool has_reply(const struct transfer *t, CURLcode code)
{
	return code == CURLE_OK ||
	       (t->cut == CUT_NONE && !t->body_failed && t->reply.status >= 400 &&
	        (code == CURLE_SEND_ERROR || code == CURLE_UPLOAD_FAILED ||
	         code == CURLE_RECV_ERROR));
}

int http_send(struct http *h, const struct http_request *request, struct http_reply *ret,
              bool *ret_unknown, struct error *err)
{
	unsigned limit = h->options.tries ? h->options.tries : TRIES_DEFAULT;
	uint64_t sent_bytes = 0;

	if (ret_unknown)
		*ret_unknown = false;
	for (unsigned tries = 1;; tries++) {
		struct transfer t = {.http = h, .request = request, .caller_error = ERROR_INIT};
		CURLcode code = CURLE_OK;
		bool again;

		if (send_once(&t, &code, err) < 0)
			return -1;
		sent_bytes += t.reply.sent_bytes;
		ret->sent_bytes = sent_bytes;
		code = has_reply(&t, code) ? CURLE_OK : code;
		again = tries < limit && try_again(&t, code) &&
		        http_pause_ms(h->options.stop, pause_ms(&t.reply, tries));
		if (!again && code == CURLE_OK) {
			t.reply.tries = tries;
			t.reply.sent_bytes = sent_bytes;
			*ret = t.reply;
			return 0;
		}
		if (!again) {
			if (ret_unknown)
				*ret_unknown = !never_sent(code);
			no_reply(&t, code, err);
		}
		http_reply_free(&t.reply);
		error_free(&t.caller_error);
		if (!again)
			return -1;
	}
}
