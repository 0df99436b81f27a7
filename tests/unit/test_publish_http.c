/* SPDX-License-Identifier: Apache-2.0 */
/* The transport of 'publish' against a server that fails in each way that servers fail. */
#include <stdlib.h>

#include "builder/clock.h"
#include "http-server.h"
#include "publish/http.h"
#include "tap.h"

#define OK_REPLY   "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
#define KEPT_REPLY "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
#define BUSY_REPLY                                                                                 \
	"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy"
#define DENIED_REPLY "HTTP/1.1 401 No\r\nContent-Length: 6\r\nConnection: close\r\n\r\ndenied"
#define COUNT(steps) (sizeof(steps) / sizeof((steps)[0]))

struct sent {
	int result;
	struct http_reply reply;
	bool unknown;
	struct error error;
	int64_t took_ms;
};

static char *url_of(const struct server *s, const char *path)
{
	return str_format("http://127.0.0.1:%u%s", s->port, path);
}

static struct sent send_with(const struct http_options *options, const struct http_request *request)
{
	struct sent sent = {.error = ERROR_INIT};
	CLEANUP_HTTP struct http *http = NULL;
	int64_t began = clock_ms();

	if (http_new(&http, options, &sent.error) < 0) {
		sent.result = -1;
		return sent;
	}
	sent.result = http_send(http, request, &sent.reply, &sent.unknown, &sent.error);
	if (sent.result == 0 && sent.reply.status >= 400)
		http_error(http, request, &sent.reply, &sent.error);
	sent.took_ms = clock_ms() - began;
	return sent;
}

static void sent_free(struct sent *sent)
{
	http_reply_free(&sent->reply);
	error_free(&sent->error);
}

static void test_retry(void)
{
	static const struct server_step steps[] = {
		{.reply = BUSY_REPLY}, {.reply = BUSY_REPLY}, {.reply = OK_REPLY}};
	struct server s;
	server_start(&s, steps, COUNT(steps));
	CLEANUP_FREE char *url = url_of(&s, "/a");
	const struct http_body body = {.head = "12345", .head_size = 5, .fd = -1};
	struct sent sent =
		send_with(&(struct http_options){0},
	                  &(struct http_request){
				  .method = "PUT", .url = url, .body = &body, .idempotent = true});

	server_stop(&s);
	check(sent.result == 0 && sent.reply.status == 200, "a PUT goes through after two 503");
	check(s.served == 3 && sent.reply.tries == 3, "it took three tries");
	check(s.body_bytes[0] == 5 && s.body_bytes[2] == 5, "each try sends the whole body");
	check(sent.took_ms >= 2000, "it waited as Retry-After asks: %lld ms",
	      (long long)sent.took_ms);
	check(sent.reply.sent_bytes == 15, "bytes of all tries are counted");
	sent_free(&sent);
}

static void test_no_blind_repetition(void)
{
	static const struct server_step lost[] = {{.reply = NULL}, {.reply = OK_REPLY}};
	static const struct server_step busy[] = {{.reply = BUSY_REPLY}, {.reply = OK_REPLY}};
	struct server s;
	server_start(&s, lost, COUNT(lost));
	CLEANUP_FREE char *url = url_of(&s, "/create");
	struct http_request request = {.method = "POST", .url = url};
	struct sent sent = send_with(&(struct http_options){0}, &request);

	server_stop(&s);
	check(sent.result == -1 && sent.unknown, "a lost reply to a POST is reported as unknown");
	check(s.served == 1, "it is not sent again");
	check(error_exit_code(&sent.error) == EXIT_PUBLISH, "running again may help");
	sent_free(&sent);

	server_start(&s, busy, COUNT(busy));
	CLEANUP_FREE char *busy_url = url_of(&s, "/create");
	request.url = busy_url;
	sent = send_with(&(struct http_options){0}, &request);
	server_stop(&s);
	check(sent.reply.status == 503 && s.served == 1, "nor is it after a 503");
	check(error_exit_code(&sent.error) == EXIT_PUBLISH, "a 503 is worth another run");
	sent_free(&sent);

	server_start(&s, lost, COUNT(lost));
	CLEANUP_FREE char *again_url = url_of(&s, "/put");
	sent = send_with(
		&(struct http_options){0},
		&(struct http_request){.method = "PUT", .url = again_url, .idempotent = true});
	server_stop(&s);
	check(sent.reply.status == 200 && s.served == 2, "a lost reply to a PUT is tried again");
	sent_free(&sent);
}

/* libcurl by itself repeats what a used connection does not answer. */
static void test_used_connection(void)
{
	static const struct server_step steps[] = {
		{.reply = KEPT_REPLY, .keep = true}, {.reply = NULL}, {.reply = OK_REPLY}};
	struct server s;
	server_start(&s, steps, COUNT(steps));
	CLEANUP_FREE char *url = url_of(&s, "/b");
	CLEANUP_HTTP struct http *http = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct http_reply first = {0}, second = {0};
	bool unknown = false;
	int result;

	http_new(&http, &(struct http_options){.connect_timeout_s = 2, .call_timeout_s = 2}, &err);
	http_send(http, &(struct http_request){.method = "GET", .url = url, .idempotent = true},
	          &first, NULL, &err);
	result = http_send(http, &(struct http_request){.method = "POST", .url = url}, &second,
	                   &unknown, &err);
	http_free(STEAL(http));
	server_stop(&s);
	check(first.status == 200 && result == -1 && unknown,
	      "a POST after a GET that is not answered is unknown too");
	check(s.served == 1 || strncmp(s.heads[2], "POST", 4) != 0,
	      "libcurl does not repeat it on its own");
	http_reply_free(&first);
	http_reply_free(&second);
}

static void test_never_sent(void)
{
	static const struct server_step steps[] = {{.reply = OK_REPLY}};
	struct server s;
	server_start(&s, steps, COUNT(steps));
	CLEANUP_FREE char *url = url_of(&s, "/c");
	server_stop(&s); /* nobody listens there now */
	struct sent sent = send_with(&(struct http_options){.tries = 2},
	                             &(struct http_request){.method = "POST", .url = url});

	check(sent.result == -1 && !sent.unknown,
	      "a refused connection is known to have done nothing");
	check(sent.took_ms >= 1000, "and is tried again, whatever the method");
	check(sent.error.message && strstr(sent.error.message, "POST http://127.0.0.1:"),
	      "the error says what was asked where");
	sent_free(&sent);
}

static void test_early_refusal(void)
{
	static const struct server_step middle[] = {{.reply = DENIED_REPLY, .read_max = 100000},
	                                            {.reply = OK_REPLY}};
	static const struct server_step before[] = {
		{.reply = DENIED_REPLY, .refuse_continue = true}, {.reply = OK_REPLY}};
	const size_t size = 32ul * 1024 * 1024;
	CLEANUP_FREE char *bytes = mem_alloc(size);
	const struct http_body body = {.head = bytes, .head_size = size, .fd = -1};
	struct server s;
	struct sent sent;
	server_start(&s, middle, COUNT(middle));
	CLEANUP_FREE char *url = url_of(&s, "/d");
	struct http_request request = {
		.method = "PUT", .url = url, .body = &body, .idempotent = true};

	sent = send_with(&(struct http_options){0}, &request);
	server_stop(&s);
	check(sent.result == 0 && sent.reply.status == 401,
	      "a refusal in the middle of a body is a reply: %s",
	      sent.error.message ? sent.error.message : "");
	check(s.served == 1, "and is not tried again");
	check(error_exit_code(&sent.error) == EXIT_USAGE && sent.error.hint,
	      "running again would not help, and a hint says what would: the credentials");
	sent_free(&sent);

	server_start(&s, before, COUNT(before));
	CLEANUP_FREE char *before_url = url_of(&s, "/d");
	request.url = before_url;
	sent = send_with(&(struct http_options){0}, &request);
	server_stop(&s);
	check(sent.reply.status == 401 && sent.reply.sent_bytes == 0,
	      "one before '100 Continue' costs no byte of the body");
	sent_free(&sent);
}

static void test_continue_headers(void)
{
	static const struct server_step steps[] = {
		{.reply = "HTTP/1.1 201 Made\r\nETag: \"new\"\r\nContent-Length: 0\r\n\r\n",
	         .before = "HTTP/1.1 100 Continue\r\nETag: \"old\"\r\nX-Old: 1\r\n\r\n"}};
	const size_t size = 2ul * 1024 * 1024;
	CLEANUP_FREE char *bytes = mem_alloc(size);
	const struct http_body body = {.head = bytes, .head_size = size, .fd = -1};
	struct server s;
	server_start(&s, steps, COUNT(steps));
	CLEANUP_FREE char *url = url_of(&s, "/e");
	struct sent sent =
		send_with(&(struct http_options){0},
	                  &(struct http_request){
				  .method = "PUT", .url = url, .body = &body, .idempotent = true});

	server_stop(&s);
	check(strcasestr(s.heads[0], "expect: 100-continue"), "a large body waits for the server");
	check_str(http_header(&sent.reply, "etag"), "\"new\"", "headers are the last reply's");
	check(!http_header(&sent.reply, "x-old"), "and not those of '100 Continue'");
	check(s.body_bytes[0] == size, "the whole body came");
	sent_free(&sent);
}

static struct sent redirected(struct server *from, struct server *to, const char *path)
{
	static const struct server_step last[] = {{.reply = OK_REPLY}};
	static char reply[256];
	static struct server_step first[2];
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = NULL;
	struct sent sent;

	server_start(to, last, 1);
	if (path)
		snprintf(reply, sizeof(reply),
		         "HTTP/1.1 307 There\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: "
		         "close\r\n\r\n",
		         path);
	else
		snprintf(reply, sizeof(reply),
		         "HTTP/1.1 307 There\r\nLocation: http://127.0.0.1:%u/x\r\nContent-Length: "
		         "0\r\nConnection: close\r\n\r\n",
		         to->port);
	first[0] = (struct server_step){.reply = reply};
	first[1] = (struct server_step){.reply = OK_REPLY};
	server_start(from, first, 2);
	url = url_of(from, "/f");
	strv_add(&headers, "Authorization: Bearer top-secret-token");
	strv_add(&headers, "X-Auth-Token: top-secret-token");
	strv_add(&headers, "Accept: text/plain");
	sent = send_with(&(struct http_options){0}, &(struct http_request){.method = "GET",
	                                                                   .url = url,
	                                                                   .headers = &headers,
	                                                                   .idempotent = true,
	                                                                   .follow = true});
	server_stop(from);
	server_stop(to);
	return sent;
}

static void test_redirects(void)
{
	struct server from, to;
	struct sent sent = redirected(&from, &to, NULL);

	check(sent.reply.status == 200 && to.served == 1, "a redirect to another host is followed");
	check(!strstr(to.heads[0], "top-secret-token"), "without any credentials");
	check(strstr(to.heads[0], "Accept: text/plain") != NULL, "with the other headers");
	sent_free(&sent);
	sent = redirected(&from, &to, "/y");
	check(sent.reply.status == 200 && from.served == 2 && to.served == 0,
	      "one to the same host is followed too");
	check(strstr(from.heads[1], "Bearer top-secret-token") != NULL, "with them");
	sent_free(&sent);
	sent = redirected(&from, &to, "ftp://127.0.0.1/x");
	check(sent.reply.status == 307 && from.served == 1, "one to another protocol is not");
	sent_free(&sent);
}

static void test_patience(void)
{
	static const struct server_step slow[] = {{.reply = OK_REPLY, .wait_ms = 3500}};
	static const struct server_step stuck[] = {{.read_max = 65536, .hang = true}};
	static const struct server_step mute[] = {{.hang = true}};
	const size_t size = 32ul * 1024 * 1024;
	CLEANUP_FREE char *bytes = mem_alloc(size);
	const struct http_body body = {.head = bytes, .head_size = size, .fd = -1};
	struct server s;
	struct sent sent;
	server_start(&s, slow, 1);
	CLEANUP_FREE char *url = url_of(&s, "/g");
	struct http_request request = {.method = "PUT", .url = url, .body = &body};

	sent = send_with(&(struct http_options){.stall_timeout_s = 1, .tries = 1}, &request);
	server_stop(&s);
	check(sent.result == 0 && sent.reply.status == 200,
	      "a server that works on a whole body longer than the stall timeout is waited for: %s",
	      sent.error.message ? sent.error.message : "");
	sent_free(&sent);

	server_start(&s, stuck, 1);
	CLEANUP_FREE char *stuck_url = url_of(&s, "/g");
	request.url = stuck_url;
	sent = send_with(&(struct http_options){.stall_timeout_s = 1, .tries = 1}, &request);
	server_stop(&s);
	check(sent.result == -1 && sent.took_ms < 10000 && sent.error.message &&
	              strstr(sent.error.message, "no byte moved"),
	      "one that takes no more of a body is given up");
	sent_free(&sent);

	server_start(&s, mute, 1);
	CLEANUP_FREE char *mute_url = url_of(&s, "/g");
	request.url = mute_url;
	request.reply_timeout_s = 1;
	sent = send_with(&(struct http_options){.stall_timeout_s = 20, .tries = 1}, &request);
	server_stop(&s);
	check(sent.result == -1 && sent.unknown && sent.took_ms < 10000 && sent.error.message &&
	              strstr(sent.error.message, "does not reply"),
	      "one that has the whole body and never replies is given up after the reply timeout: "
	      "%s",
	      sent.error.message ? sent.error.message : "");
	sent_free(&sent);
}

static void *set_soon(void *opaque)
{
	usleep(500000);
	*(atomic_bool *)opaque = true;
	return NULL;
}

static void test_stop(void)
{
	static const struct server_step mute[] = {{.hang = true}};
	atomic_bool stop = false;
	pthread_t thread;
	struct server s;
	server_start(&s, mute, 1);
	CLEANUP_FREE char *url = url_of(&s, "/h");

	pthread_create(&thread, NULL, set_soon, &stop);
	struct sent sent =
		send_with(&(struct http_options){.stop = &stop},
	                  &(struct http_request){.method = "GET", .url = url, .idempotent = true});
	pthread_join(thread, NULL);
	server_stop(&s);
	check(sent.result == -1 && sent.took_ms < 5000, "a run that is stopped waits for nobody");
	sent_free(&sent);
}

static void test_redaction(void)
{
	static const struct server_step steps[] = {
		{.reply = "HTTP/1.1 403 No\r\nContent-Length: 47\r\nConnection: close\r\n\r\n"
	                  "bad signature for key hunter2hunter2\x1b[31m, sorry!"}};
	CLEANUP_STRV struct strv secrets = {0};
	struct server s;
	server_start(&s, steps, 1);
	CLEANUP_FREE char *url = url_of(&s, "/i?token=hunter2hunter2#x");

	strv_add(&secrets, "hunter2hunter2");
	struct sent sent =
		send_with(&(struct http_options){.secrets = &secrets},
	                  &(struct http_request){.method = "GET", .url = url, .idempotent = true});
	server_stop(&s);
	check(sent.error.message && !strstr(sent.error.message, "hunter2"),
	      "an error holds no secret, neither of the body nor of the query");
	check(error_exit_code(&sent.error) == EXIT_USAGE,
	      "what may not be done is a matter of the configuration");
	check(sent.error.message && strstr(sent.error.message, "bad signature for key ***"),
	      "the rest of the body is told: %s", sent.error.message ? sent.error.message : "");
	check(sent.error.message && !strchr(sent.error.message, '\x1b'),
	      "control bytes do not reach the terminal");
	sent_free(&sent);
}

static int keep_data(void *opaque, const void *data, size_t size, struct error *err)
{
	strncat(opaque, data, size);
	return strstr(opaque, "end") ? error_set(err, "that is enough") : 0;
}

static void test_data(void)
{
	static const struct server_step steps[] = {
		{.reply = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nbytes"},
		{.reply = "HTTP/1.1 404 No\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnone"},
		{.reply = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nend"},
		{.reply = OK_REPLY}};
	char text[64] = "";
	struct server s;
	struct sent sent;
	server_start(&s, steps, COUNT(steps));
	CLEANUP_FREE char *url = url_of(&s, "/j");
	const struct http_request request = {.method = "GET",
	                                     .url = url,
	                                     .idempotent = true,
	                                     .on_data = keep_data,
	                                     .opaque = text};

	sent = send_with(&(struct http_options){0}, &request);
	check(sent.reply.status == 200 && strcmp(text, "bytes") == 0 && sent.reply.size == 0,
	      "a body goes to who asked for its data");
	sent_free(&sent);
	sent = send_with(&(struct http_options){0}, &request);
	check(sent.reply.status == 404 && strcmp(text, "bytes") == 0, "that of an error does not");
	check_str(sent.reply.body, "none", "it is kept for the message");
	sent_free(&sent);
	sent = send_with(&(struct http_options){0}, &request);
	server_stop(&s);
	check(sent.result == -1 && s.served == 3, "who takes the data can end it, once for all");
	check_str(sent.error.message, "that is enough", "with an error of its own");
	sent_free(&sent);
}

static void test_words(void)
{
	CLEANUP_FREE char *escaped = http_escape("a b/c+d=e%~", true);
	CLEANUP_FREE char *all = http_escape("a/\xc3\xa9", false);
	CLEANUP_FREE char *shown = http_shown("https://user:pw@host:1/p/q?sig=1#f");
	CLEANUP_FREE char *at = http_shown("https://host/a@b");
	CLEANUP_STRV struct strv headers = {0}, secrets = {0};

	check_str(escaped, "a%20b/c%2Bd%3De%25~", "reserved bytes are encoded, slashes kept");
	check_str(all, "a%2F%C3%A9", "hex digits are upper case");
	check_str(shown, "https://host:1/p/q", "user, password, query and fragment are not shown");
	check_str(at, "https://host/a@b", "an '@' of the path is no user");
	http_add_basic(&headers, &secrets, "Aladdin", "open sesame");
	check_str(headers.items[0], "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
	          "basic credentials as in RFC 7617");
	check_str(secrets.items[0], "QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "they are a secret too");
}

int main(void)
{
	test_words();
	test_retry();
	test_no_blind_repetition();
	test_used_connection();
	test_never_sent();
	test_early_refusal();
	test_continue_headers();
	test_redirects();
	test_patience();
	test_stop();
	test_redaction();
	test_data();
	return tap_done();
}
