/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetching from a server that misbehaves on request: a child process on 127.0.0.1, one route for
 * each kind of trouble, ended with the test. What it saw is counted in shared memory.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "builder/digest.h"
#include "builder/download.h"
#include "builder/fetch.h"
#include "builder/str.h"
#include "builder/sums.h"
#include "tests/unit/tap.h"

#define CONTENT_BYTES ((size_t)3 << 20)
#define CUT_BYTES     ((size_t)2 << 20) /* what one connection of a cutting route carries */
#define REQUEST_BYTES 4096

/* Shared with the server. */
struct seen {
	int requests, ranges, if_ranges, logins;
	int step; /* how often the route was asked since the last reset */
};

struct server {
	pid_t pid;
	unsigned short port;
	struct seen *seen;
	char *old, *new; /* two versions of the content */
	char *old_hex, *new_hex;
};

/* One request, as the server reads it. */
struct asked {
	int fd;
	char path[256];
	size_t offset; /* of Range */
	bool ranged;
	char if_range[64];
	bool login;
};

static void send_all(int fd, const char *data, size_t size)
{
	while (size) {
		ssize_t n = send(fd, data, size, MSG_NOSIGNAL);

		if (n <= 0)
			return;
		data += n;
		size -= (size_t)n;
	}
}

__attribute__((format(printf, 2, 3))) static void send_text(int fd, const char *format, ...)
{
	va_list args;
	char *text;

	va_start(args, format);
	text = str_vformat(format, args);
	va_end(args);
	send_all(fd, text, strlen(text));
	free(text);
}

static void send_status(const struct asked *a, const char *status, const char *headers)
{
	send_text(a->fd, "HTTP/1.1 %s\r\n%sContent-Length: 5\r\nConnection: close\r\n\r\noops\n",
	          status, headers);
}

static void send_string(const struct asked *a, const char *text)
{
	send_text(a->fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
	          strlen(text));
	send_all(a->fd, text, strlen(text));
}

/* As a good server does: 206 if asked for a range, unless If-Range names another version. */
static void send_file(const struct asked *a, const char *content, const char *etag, size_t limit)
{
	bool partial = a->ranged && (!a->if_range[0] || str_equal(a->if_range, etag));
	size_t offset = partial ? a->offset : 0, left;
	CLEANUP_FREE char *tag = etag ? str_format("ETag: %s\r\n", etag) : str_copy("");

	if (offset >= CONTENT_BYTES) {
		send_text(a->fd,
		          "HTTP/1.1 416 No\r\nContent-Range: bytes */%zu\r\n"
		          "Content-Length: 0\r\nConnection: close\r\n\r\n",
		          CONTENT_BYTES);
		return;
	}
	left = CONTENT_BYTES - offset;
	send_text(a->fd, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\nConnection: close\r\n",
	          partial ? "206 Partial Content" : "200 OK", tag, left);
	if (partial)
		send_text(a->fd, "Content-Range: bytes %zu-%zu/%zu\r\n", offset, CONTENT_BYTES - 1,
		          CONTENT_BYTES);
	send_text(a->fd, "\r\n");
	send_all(a->fd, content + offset, left < limit ? left : limit);
}

/* A reset instead of an orderly end. */
static void reset_connection(int fd)
{
	struct linger now = {.l_onoff = 1, .l_linger = 0};

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/* Trouble before any byte of the file. */
static bool route_refusal(const struct server *s, const struct asked *a, int step)
{
	if (str_starts(a->path, "/down/") || (str_starts(a->path, "/busy/") && step <= 2))
		send_status(a, "503 Busy", "");
	else if (str_starts(a->path, "/reset/") && step == 1)
		reset_connection(a->fd);
	else if (str_starts(a->path, "/busy/") || str_starts(a->path, "/reset/"))
		send_file(a, s->old, "\"1\"", CONTENT_BYTES);
	else
		return false;
	return true;
}

/* Trouble within the file: the first connection carries a part of it. */
static void route_trouble(const struct server *s, const struct asked *a, int step)
{
	struct asked other = *a;
	bool first = step == 1;
	size_t limit = first ? CUT_BYTES : CONTENT_BYTES;

	if (str_starts(a->path, "/cut/")) {
		send_file(a, s->old, "\"1\"", CUT_BYTES);
	} else if (str_starts(a->path, "/norange/")) {
		other.ranged = false;
		send_file(&other, s->old, "\"1\"", limit);
	} else if (str_starts(a->path, "/changed/")) {
		send_file(a, first ? s->old : s->new, first ? "\"1\"" : "\"2\"", limit);
	} else if (str_starts(a->path, "/silent/")) {
		send_file(a, first ? s->old : s->new, NULL, limit);
	} else if (str_starts(a->path, "/wrongpiece/")) {
		other.offset = step == 2 ? 0 : a->offset;
		send_file(&other, s->old, "\"1\"", limit);
	} else if (str_starts(a->path, "/stall/")) {
		send_file(a, s->old, "\"1\"", first ? 100000 : CONTENT_BYTES);
		sleep(first ? 60 : 0);
	} else if (str_starts(a->path, "/slow/")) {
		send_file(a, s->old, "\"1\"", 1000);
		usleep(700000);
		send_all(a->fd, s->old + 1000, CONTENT_BYTES - 1000);
	} else {
		send_status(a, "404 Not Found", "");
	}
}

static void route(const struct server *s, const struct asked *a, int step)
{
	if (str_starts(a->path, "/old/"))
		send_file(a, s->old, "\"1\"", CONTENT_BYTES);
	else if (str_starts(a->path, "/to-old/"))
		send_status(a, "302 Found", "Location: ../old/disk.qcow2\r\n");
	else if (str_starts(a->path, "/to-file/"))
		send_status(a, "302 Found", "Location: file:///etc/passwd\r\n");
	else if (str_starts(a->path, "/loop/"))
		send_status(a, "301 Moved", "Location: /loop/disk.qcow2\r\n");
	else if (str_starts(a->path, "/to-localhost/"))
		send_text(a->fd,
		          "HTTP/1.1 307 There\r\nLocation: http://localhost:%u/old/disk.qcow2\r\n"
		          "Content-Length: 0\r\nConnection: close\r\n\r\n",
		          s->port);
	else if (str_starts(a->path, "/huge/"))
		send_text(a->fd,
		          "HTTP/1.1 200 OK\r\nContent-Length: 4000000000000000\r\n\r\nhello");
	else if (str_starts(a->path, "/sums-new"))
		send_text(a->fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s  disk.qcow2\n",
		          s->new_hex);
	else if (str_starts(a->path, "/sums-other"))
		send_string(a, "# nothing\n");
	else if (str_starts(a->path, "/sums-big"))
		send_file(a, s->old, NULL, CONTENT_BYTES);
	else if (str_starts(a->path, "/sums"))
		send_text(a->fd, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s *disk.qcow2\n",
		          s->old_hex);
	else if (!route_refusal(s, a, step))
		route_trouble(s, a, step);
}

static void parse_request(struct asked *a, char *request)
{
	char *range = strcasestr(request, "\r\nRange: bytes=");
	char *version = strcasestr(request, "\r\nIf-Range: ");

	a->login = strcasestr(request, "\r\nAuthorization: Basic ") != NULL;
	if (range) {
		a->ranged = true;
		a->offset = strtoul(range + strlen("\r\nRange: bytes="), NULL, 10);
	}
	if (version) {
		version += strlen("\r\nIf-Range: ");
		version[strcspn(version, "\r\n")] = '\0';
		snprintf(a->if_range, sizeof(a->if_range), "%s", version);
	}
	request[strcspn(request, "\r\n")] = '\0';
	snprintf(a->path, sizeof(a->path), "%.*s", (int)strcspn(request + 4, " "), request + 4);
}

static void serve_one(const struct server *s, int fd)
{
	struct asked a = {.fd = fd};
	char request[REQUEST_BYTES + 1] = "";
	size_t size = 0;
	int step;

	while (!strstr(request, "\r\n\r\n")) {
		ssize_t n = recv(fd, request + size, REQUEST_BYTES - size, 0);

		if (n <= 0)
			return;
		size += (size_t)n;
	}
	parse_request(&a, request);
	step = __atomic_add_fetch(&s->seen->step, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&s->seen->requests, 1, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&s->seen->ranges, a.ranged, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&s->seen->if_ranges, a.if_range[0] != 0, __ATOMIC_SEQ_CST);
	__atomic_add_fetch(&s->seen->logins, a.login, __ATOMIC_SEQ_CST);
	route(s, &a, step);
}

static void serve(const struct server *s, int listener)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			continue;
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			serve_one(s, fd);
			close(fd);
			_exit(0);
		}
		close(fd);
	}
}

static void make_content(struct server *s)
{
	uint32_t state = 1;

	s->old = mem_alloc(CONTENT_BYTES);
	s->new = mem_alloc(CONTENT_BYTES);
	for (size_t i = 0; i < CONTENT_BYTES; i++) {
		state = state * 1664525 + 1013904223;
		s->old[i] = (char)(state >> 24);
		s->new[i] = (char)(state >> 16);
	}
	s->old_hex = digest_memory(s->old, CONTENT_BYTES);
	s->new_hex = digest_memory(s->new, CONTENT_BYTES);
}

static int server_start(struct server *s)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	make_content(s);
	s->seen = mmap(NULL, sizeof(*s->seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	               -1, 0);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (s->seen == MAP_FAILED || listener < 0 ||
	    bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    listen(listener, 16) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &length) < 0)
		return -1;
	s->port = ntohs(address.sin_port);
	s->pid = fork();
	if (s->pid == 0)
		serve(s, listener);
	close(listener);
	return s->pid < 0 ? -1 : 0;
}

static void server_stop(struct server *s)
{
	kill(s->pid, SIGKILL);
	waitpid(s->pid, NULL, 0);
	munmap(s->seen, sizeof(*s->seen));
	free(s->old);
	free(s->new);
	free(s->old_hex);
	free(s->new_hex);
}

/* One fetch with its outcome. */
struct result {
	int rc;
	char *path, *digest;
	struct error err;
};

static void result_release(struct result *r)
{
	free(r->path);
	free(r->digest);
	error_free(&r->err);
}

#define CLEANUP_RESULT CLEANUP(result_release)

static struct result fetch(struct server *s, const char *route_name, const char *sha256,
                           const char *sums, const char *cache)
{
	struct result r = {0};
	CLEANUP_FREE char *url =
		str_format("http://127.0.0.1:%u/%s/disk.qcow2?token=geheim", s->port, route_name);
	CLEANUP_FREE char *sums_url =
		str_format("http://127.0.0.1:%u/%s", s->port, sums ? sums : "");
	struct fetch_options options = {
		.url = url,
		.sha256 = sha256,
		.sums_url = sums ? sums_url : NULL,
		.cache_dir = cache,
		.retries = 3,
		.stall_timeout_s = 2,
	};

	memset(s->seen, 0, sizeof(*s->seen));
	r.rc = fetch_base(&options, &r.path, &r.digest, &r.err);
	return r;
}

static bool has_content(const char *path, const char *hex)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *got = NULL;

	return path && digest_file(path, "SHA256", &got, &err) == 0 && str_equal(got, hex);
}

static bool is_there(const char *cache, const char *hex, const char *suffix)
{
	CLEANUP_FREE char *path = str_format("%s/sha256-%s%s", cache, hex, suffix);

	return access(path, F_OK) == 0;
}

/* Empties the cache directory "cache", or makes it; gives its name. */
static const char *fresh(void)
{
	if (system("rm -rf ./cache") != 0)
		printf("Bail out! rm\n");
	return "cache";
}

static bool worked(const struct result *r, const char *hex)
{
	CLEANUP_FREE char *digest = str_format("sha256:%s", hex);

	if (r->rc < 0)
		printf("# %s\n", r->err.message);
	return r->rc == 0 && str_equal(r->digest, digest) && has_content(r->path, hex);
}

static void test_plain(struct server *s)
{
	CLEANUP_RESULT struct result first = {0}, second = {0}, upper = {0}, sums = {0};
	CLEANUP_FREE char *shout = str_format("sha256:%s", s->old_hex);

	for (char *p = shout + 7; *p; p++)
		*p = (char)(*p >= 'a' ? *p - 32 : *p);
	fresh();
	first = fetch(s, "old", s->old_hex, NULL, "cache/deep/er");
	check(worked(&first, s->old_hex), "fetches a file, into directories that it makes");
	check(first.path && str_ends(first.path, s->old_hex), "calls it by its digest");
	check(!is_there("cache/deep/er", s->old_hex, ".part") &&
	              !is_there("cache/deep/er", s->old_hex, ".part.from"),
	      "leaves nothing beside it");
	second = fetch(s, "old", s->old_hex, NULL, "cache/deep/er");
	check(worked(&second, s->old_hex) && s->seen->requests == 0,
	      "asks no server for what the cache has");
	upper = fetch(s, "old", shout, NULL, "cache/deep/er");
	check(worked(&upper, s->old_hex) && s->seen->requests == 0,
	      "takes sha256: and capital letters in a digest");
	sums = fetch(s, "old", NULL, "sums", "cache/deep/er");
	check(worked(&sums, s->old_hex) && s->seen->requests == 1,
	      "takes the digest from a file of sums, and the file from the cache");
}

static void test_damaged_cache(struct server *s)
{
	CLEANUP_RESULT struct result first = fetch(s, "old", s->old_hex, NULL, fresh());
	CLEANUP_RESULT struct result second = {0};

	if (first.path && truncate(first.path, 1000) < 0)
		printf("Bail out! truncate\n");
	second = fetch(s, "old", s->old_hex, NULL, "cache");
	check(worked(&second, s->old_hex) && s->seen->requests == 1,
	      "removes a damaged file from the cache and fetches it again");
}

/* A route that ends well after some trouble. */
static void recovers(struct server *s, const char *name, const char *hex, int requests, int ranges,
                     const char *what)
{
	CLEANUP_RESULT struct result r = fetch(s, name, hex, NULL, fresh());
	bool good = worked(&r, hex);

	if (!check(good && s->seen->requests == requests && s->seen->ranges == ranges, "%s", what))
		printf("# %d requests, %d with a range\n", s->seen->requests, s->seen->ranges);
}

static void test_recovers(struct server *s)
{
	recovers(s, "busy", s->old_hex, 3, 0, "tries again after 503, twice");
	recovers(s, "reset", s->old_hex, 2, 0, "tries again after a connection reset");
	recovers(s, "cut", s->old_hex, 2, 1, "goes on where a broken connection ended");
	check(s->seen->if_ranges == 1, "and asks for the same version");
	recovers(s, "norange", s->old_hex, 2, 1, "begins anew if the server cannot resume");
	recovers(s, "changed", s->new_hex, 2, 1, "begins anew if the file has changed");
	recovers(s, "silent", s->new_hex, 3, 1,
	         "begins anew if two versions were joined unknowingly");
	recovers(s, "wrongpiece", s->old_hex, 3, 1, "does not take another piece than asked for");
	recovers(s, "stall", s->old_hex, 2, 1, "gives up on a stall and goes on");
	recovers(s, "to-old", s->old_hex, 2, 0, "follows a relative redirect");
}

/* The digest would tell a wrong piece, too; but the download alone must not join it. */
static void test_wrong_piece(struct server *s)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *url = str_format("http://127.0.0.1:%u/wrongpiece/disk.qcow2", s->port);
	struct download d = {.url = url, .retries = 3, .stall_timeout_s = 5};
	bool resumed = true;

	memset(s->seen, 0, sizeof(*s->seen));
	check(download_file(&d, "direct.part", &resumed, &err) == 0 &&
	              has_content("direct.part", s->old_hex) && !resumed,
	      "a piece that was not asked for is not joined to the file");
	unlink("direct.part");
	unlink("direct.part.from");
}

/* A download that another process has begun. */
static void leave_part(const struct server *s, const char *content, size_t size, const char *origin,
                       const char *etag)
{
	CLEANUP_FREE char *part = str_format("cache/sha256-%s.part", s->old_hex);
	CLEANUP_FREE char *from = str_format("%s.from", part);
	FILE *f;

	fresh();
	if (mkdir("cache", 0755) < 0)
		printf("Bail out! mkdir\n");
	f = fopen(part, "we");
	if (f) {
		fwrite(content, 1, size, f);
		fclose(f);
	}
	f = fopen(from, "we");
	if (f) {
		fprintf(f, "http://127.0.0.1:%u/%s/disk.qcow2\n%s\n", s->port, origin, etag);
		fclose(f);
	}
}

static void test_earlier_process(struct server *s)
{
	static const struct {
		const char *origin, *etag, *what;
		size_t size;
		int ranges, requests;
	} cases[] = {
		{"old", "\"1\"", "goes on with what an earlier process left", 500000, 1, 1},
		{"old", "", "goes on without knowing the version", 500000, 1, 1},
		{"old", "\"0\"", "begins anew where the earlier version was another", 500000, 1, 1},
		{"other", "\"1\"", "begins anew where the part is of another URL", 500000, 0, 1},
		{"old", "\"1\"", "is content with a part that is whole", CONTENT_BYTES, 1, 1},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_RESULT struct result r = {0};

		leave_part(s, s->old, cases[i].size, cases[i].origin, cases[i].etag);
		r = fetch(s, "old", s->old_hex, NULL, "cache");
		check(worked(&r, s->old_hex) && s->seen->ranges == cases[i].ranges &&
		              s->seen->requests == cases[i].requests,
		      "%s", cases[i].what);
	}
	leave_part(s, s->new, 500000, "old", "\"1\"");
	{
		CLEANUP_RESULT struct result r = fetch(s, "old", s->old_hex, NULL, "cache");

		check(worked(&r, s->old_hex) && s->seen->requests == 2,
		      "begins anew where the part is damaged");
	}
}

static void refuses(struct server *s, const char *name, const char *sha256, const char *sums,
                    const char *words, enum exit_code code, const char *what)
{
	CLEANUP_RESULT struct result r = fetch(s, name, sha256, sums, fresh());
	bool good = r.rc < 0 && strstr(r.err.message, words) && !strstr(r.err.message, "geheim") &&
	            error_exit_code(&r.err) == code;

	if (!check(good && !r.path, "%s", what))
		printf("# code %d, message: %s\n", (int)error_exit_code(&r.err),
		       r.err.message ? r.err.message : "none");
}

static void test_refuses(struct server *s)
{
	const char *zeros = "0000000000000000000000000000000000000000000000000000000000000000";

	refuses(s, "missing", s->old_hex, NULL, "status 404", EXIT_INPUT, "tells 404 at once");
	check(s->seen->requests == 1, "and does not ask again");
	refuses(s, "down", s->old_hex, NULL, "status 503", EXIT_HOST, "gives up after its tries");
	check(s->seen->requests == 4, "which are one and three more");
	refuses(s, "old", zeros, NULL, s->old_hex, EXIT_INPUT, "refuses a wrong checksum");
	check(!is_there("cache", zeros, "") && !is_there("cache", zeros, ".part") &&
	              !is_there("cache", zeros, ".part.from"),
	      "and keeps nothing");
	refuses(s, "old", zeros, NULL, zeros, EXIT_INPUT, "names the expected value, too");
	refuses(s, "loop", s->old_hex, NULL, "more than 10 times", EXIT_INPUT, "ends a loop");
	refuses(s, "to-file", s->old_hex, NULL, "not http or https", EXIT_INPUT,
	        "follows no redirect to a file");
	refuses(s, "huge", s->old_hex, NULL, "are needed", EXIT_HOST,
	        "refuses what does not fit on the disk, before it comes");
	refuses(s, "old", "1234", NULL, "not a SHA-256 digest", EXIT_USAGE,
	        "refuses a malformed digest");
	refuses(s, "old", NULL, NULL, "no checksum", EXIT_USAGE, "wants a checksum");
	check(s->seen->requests == 0, "before it asks any server");
	refuses(s, "old", NULL, "sums-other", "no SHA-256", EXIT_INPUT, "wants sums in the sums");
	refuses(s, "old", NULL, "sums-big", "more than 1048576 bytes", EXIT_HOST,
	        "reads 1 MiB of sums at most");
	refuses(s, "old", NULL, "gone", "status 404", EXIT_INPUT, "tells missing sums");
	refuses(s, "old", NULL, "sums-new", "wrong checksum", EXIT_INPUT,
	        "refuses a file that is not the one in the sums");
}

static void test_no_server(struct server *s)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct fetch_options options = {
		.url = "http://127.0.0.1:1/disk.qcow2",
		.sha256 = s->old_hex,
		.cache_dir = "cache",
		.retries = 1,
	};
	char *path = NULL, *digest = NULL;

	check(fetch_base(&options, &path, &digest, &err) < 0 && error_exit_code(&err) == EXIT_HOST,
	      "tells a server that is not there");
	error_free(&err);
	options.url = "ftp://127.0.0.1/disk.qcow2";
	check(fetch_base(&options, &path, &digest, &err) < 0 && error_exit_code(&err) == EXIT_USAGE,
	      "speaks no ftp");
	error_free(&err);
	options.url = "http://127.0.0.1:1/disk.qcow2";
	options.cache_dir = "/proc/gpuimg/cache";
	check(fetch_base(&options, &path, &digest, &err) < 0 &&
	              error_exit_code(&err) == EXIT_HOST && strstr(err.message, "/proc/gpuimg"),
	      "tells a cache directory that cannot be made");
	check(fetch_is_url("https://x/y") && fetch_is_url("HTTP://x") &&
	              !fetch_is_url("./http://x"),
	      "knows a URL");
}

static int fetch_with_login(struct server *s, const char *name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *url =
		str_format("http://me:secret@127.0.0.1:%u/%s/disk.qcow2", s->port, name);
	CLEANUP_FREE char *path = NULL;
	CLEANUP_FREE char *digest = NULL;
	struct fetch_options options = {
		.url = url,
		.sha256 = s->old_hex,
		.cache_dir = fresh(),
		.retries = 1,
		.stall_timeout_s = 5,
	};

	memset(s->seen, 0, sizeof(*s->seen));
	return fetch_base(&options, &path, &digest, &err);
}

static void test_login(struct server *s)
{
	check(fetch_with_login(s, "to-old") == 0 && s->seen->logins == 2,
	      "keeps the login within a server");
	check(fetch_with_login(s, "to-localhost") == 0 && s->seen->requests == 2 &&
	              s->seen->logins == 1,
	      "does not send it on to another host");
}

static void test_two_processes(struct server *s)
{
	pid_t pids[2];
	int good = 0;

	fresh();
	memset(s->seen, 0, sizeof(*s->seen));
	for (int i = 0; i < 2; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			struct result r = {0};
			CLEANUP_FREE char *url =
				str_format("http://127.0.0.1:%u/slow/disk.qcow2", s->port);
			struct fetch_options options = {
				.url = url,
				.sha256 = s->old_hex,
				.cache_dir = "cache",
				.retries = 1,
				.stall_timeout_s = 5,
			};

			r.rc = fetch_base(&options, &r.path, &r.digest, &r.err);
			_exit(worked(&r, s->old_hex) ? 0 : 1);
		}
	}
	for (int i = 0; i < 2; i++) {
		int status = -1;

		waitpid(pids[i], &status, 0);
		good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	check(good == 2 && s->seen->requests == 1, "two processes fetch one file once");
}

static void test_urls(void)
{
	static const struct {
		const char *from, *to, *want;
	} cases[] = {
		{"http://a/x", "https://b/y", "https://b/y"},
		{"https://a/x", "https://b/y", "https://b/y"},
		{"http://a/x", "http://b/y", "http://b/y"},
		{"https://a/x", "http://a/y", NULL},
		{"https://a/x", "ftp://a/y", NULL},
		{"http://a/x", "file:///etc/passwd", NULL},
		{"http://a/x", "gopher://a/y", NULL},
		{"https://u:p@a/x", "https://a/y", "https://u:p@a/y"},
		{"https://u:p@a/x", "https://A:443/y", "https://u:p@A:443/y"},
		{"https://u:p@a/x", "https://b/y", "https://b/y"},
		{"https://u:p@a/x", "https://a:8443/y", "https://a:8443/y"},
		{"http://u:p@a/x", "https://a/y", "https://a/y"},
		{"https://u:p@a/x", "https://v@a/y", "https://v@a/y"},
	};
	CLEANUP_FREE char *shown = download_show_url("https://me:pw@h/a/b.qcow2?X-Sig=abc#f");
	CLEANUP_FREE char *path = download_url_path("https://h/a/b%20c.qcow2?x=y");

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_FREE char *got = NULL;

		download_follow(cases[i].from, cases[i].to, &got, &err);
		check_str(got, cases[i].want, "a redirect from %s to %s", cases[i].from,
		          cases[i].to);
	}
	check_str(shown, "https://h/a/b.qcow2", "shows a URL without its secrets");
	check_str(path, "/a/b c.qcow2", "takes a URL's path, unescaped");
}

#define H256 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define G256 "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"

static void test_sums(void)
{
	static const struct {
		const char *text, *algorithm, *hex, *what;
	} cases[] = {
		{H256 "  d.img\n", "SHA256", H256, "a GNU line"},
		{H256 " *d.img\n", "SHA256", H256, "a GNU line, binary"},
		{H256 "  ./d.img\r\n", "SHA256", H256, "a GNU line with ./ and CR LF"},
		{H256 "  latest/d.img", "SHA256", H256, "a directory that the URL has"},
		{H256 "  older/d.img", NULL, NULL, "a directory that the URL does not have"},
		{G256 "  not-d.img\n" H256 "  d.img\n", "SHA256", H256, "the right line of two"},
		{"SHA256 (d.img) = " H256 "\n", "SHA256", H256, "a BSD line"},
		{"# d.img: 5 bytes\nSHA256 (d.img) = " H256 "\n", "SHA256", H256, "a comment"},
		{"SHA512 (d.img) = " H256 H256 "\n", "SHA512", H256 H256, "SHA-512"},
		{H256 H256 "  d.img\n" G256 "  d.img\n", "SHA256", G256, "SHA-256 before SHA-512"},
		{"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n" H256 "  d.img\n"
	         "-----BEGIN PGP SIGNATURE-----\n\niQIzBAEBCgAdFiEE\n-----END PGP SIGNATURE-----\n",
	         "SHA256", H256, "an inline signature"},
		{H256 "\n", "SHA256", H256, "a hash alone"},
		{G256 "\n" H256 "  d.img\n", "SHA256", H256, "a hash alone among others: ignored"},
		{H256 "  d.img\n" G256 "  d.img\n", NULL, NULL, "a contradiction"},
		{H256 "  d.img\n" H256 "  d.img\n", "SHA256", H256, "a line given twice"},
		{"MD5 (d.img) = 0123456789abcdef0123456789abcdef\n", NULL, NULL, "MD5"},
		{"0123456789  d.img\n", NULL, NULL, "a short hash"},
		{H256 "0  d.img\n", NULL, NULL, "a hash that is too long"},
		{"<html>404</html>", NULL, NULL, "a web page"},
		{"", NULL, NULL, "nothing"},
		{H256 "  \n" G256 "  x\n", NULL, NULL, "a hash without its name"},
		{"SHA256 (d.img = " H256 "\n", NULL, NULL, "an open parenthesis"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_FREE char *hex = NULL;
		const char *algorithm = NULL;
		int rc = sums_find(cases[i].text, "/images/latest/d.img", &algorithm, &hex, &err);

		check_str(algorithm, cases[i].algorithm, "sums: %s", cases[i].what);
		check_str(hex, cases[i].hex, "and the digest of %s", cases[i].what);
		check((rc == 0) == (cases[i].hex != NULL) && (rc == 0 || err.message),
		      "and the outcome of %s", cases[i].what);
	}
}

int main(void)
{
	char dir[] = "/tmp/test_fetch.XXXXXX";
	struct server s = {0};

	setenv("no_proxy", "*", 1);
	alarm(300);
	if (!mkdtemp(dir) || chdir(dir) < 0 || server_start(&s) < 0)
		return 1;
	test_sums();
	test_urls();
	test_plain(&s);
	test_damaged_cache(&s);
	test_recovers(&s);
	test_wrong_piece(&s);
	test_earlier_process(&s);
	test_refuses(&s);
	test_no_server(&s);
	test_login(&s);
	test_two_processes(&s);
	server_stop(&s);
	fresh();
	if (chdir("/") == 0)
		rmdir(dir);
	return tap_done();
}
