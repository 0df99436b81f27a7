/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When to try again, and from where. Each try begins at the first URL, since the addresses that
 * mirrors redirect to are often signed and short-lived.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "download_internal.h"
#include "str.h"

#define MAX_REDIRECTS     10
#define FIRST_PAUSE_MS    500
#define LONGEST_PAUSE_MS  30000
#define WORTH_ANOTHER_TRY (UINT64_C(1) << 20) /* so much came: count the tries anew */
#define MAX_FROM_BYTES    2048

static void transfer_release(struct transfer *t)
{
	if (t->fd >= 0)
		close(t->fd);
	free(t->text);
	free(t->version);
	free(t->etag);
	free(t->modified);
	free(t->range);
}

#define CLEANUP_TRANSFER CLEANUP(transfer_release)

void download_replace(char **where, char *what)
{
	free(*where);
	*where = what;
}

/* "path.from": the URL and the version that a partial file belongs to, one a line. */
void download_save_origin(const struct transfer *t)
{
	CLEANUP_FREE char *name = str_format("%s.from", t->path);
	CLEANUP_FREE char *url = download_show_url(t->d->url);
	CLEANUP_FREE char *text = str_format("%s\n%s\n", url, t->version ? t->version : "");
	CLEANUP_CLOSE int fd =
		open(name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);

	/* Without it the next run begins anew, and that is all. */
	if (fd >= 0 && write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		unlink(name);
}

/* Whether the partial file is of our URL; its version, if the server told one. */
static bool load_origin(struct transfer *t)
{
	CLEANUP_FREE char *name = str_format("%s.from", t->path);
	CLEANUP_FREE char *url = download_show_url(t->d->url);
	CLEANUP_CLOSE int fd = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[MAX_FROM_BYTES + 1] = "";
	CLEANUP_STRV struct strv lines = {0};

	if (fd < 0 || read(fd, text, MAX_FROM_BYTES) <= 0)
		return false;
	lines = strv_split(text, "\n");
	if (lines.count < 1 || !str_equal(lines.items[0], url))
		return false;
	if (lines.count > 1)
		download_replace(&t->version, str_copy(lines.items[1]));
	return true;
}

int download_forget(struct transfer *t)
{
	t->have = 0;
	t->resumed = false;
	download_replace(&t->version, NULL);
	if (t->fd < 0)
		return 0;
	if (ftruncate(t->fd, 0) < 0 || lseek(t->fd, 0, SEEK_SET) < 0)
		return error_errno(t->err, errno, "cannot empty '%s'", t->path);
	return 0;
}

static int try_once(struct transfer *t, bool *ret_again, long *ret_wait_s)
{
	CLEANUP_FREE char *url = str_copy(t->d->url);

	for (int i = 0; i <= MAX_REDIRECTS; i++) {
		CLEANUP_FREE char *next = NULL;

		*ret_again = false;
		if (download_request(t, url, &next, ret_again, ret_wait_s) < 0)
			return -1;
		if (!next)
			return 0;
		download_replace(&url, STEAL(next));
	}
	error_code(t->err, EXIT_INPUT);
	return error_set(t->err, "it redirects more than %d times", MAX_REDIRECTS);
}

static void pause_before(const struct transfer *t, unsigned attempt, long wait_s)
{
	int64_t ms = FIRST_PAUSE_MS;

	for (unsigned i = 0; i < attempt && ms < LONGEST_PAUSE_MS; i++)
		ms *= 2;
	if (wait_s > 0 && wait_s * 1000 > ms)
		ms = wait_s * 1000;
	ms = ms > LONGEST_PAUSE_MS ? LONGEST_PAUSE_MS : ms;
	log_note(t->d->log, "%s; trying again in %.1f s (%u of %u)", t->err->message,
	         (double)ms / 1000, attempt + 1, t->d->retries);
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static int run(struct transfer *t)
{
	CLEANUP_FREE char *shown = download_show_url(t->d->url);
	unsigned attempt = 0;

	for (;;) {
		uint64_t had = t->have;
		bool again = false;
		long wait_s = 0;

		if (t->fd < 0)
			download_forget(t); /* a text is short: no resuming */
		if (try_once(t, &again, &wait_s) == 0)
			return 0;
		if (t->have >= had + WORTH_ANOTHER_TRY)
			attempt = 0;
		if (!again || attempt >= t->d->retries)
			break;
		pause_before(t, attempt++, wait_s);
		error_free(t->err);
	}
	error_code(t->err, EXIT_HOST);
	return error_prefix(t->err, "cannot fetch '%s'", shown);
}

int download_text(const struct download *d, size_t max_bytes, char **ret, struct error *err)
{
	CLEANUP_TRANSFER struct transfer t = {.d = d, .err = err, .fd = -1};

	t.max_text = max_bytes;
	t.text = mem_alloc(max_bytes + 1);
	if (run(&t) < 0)
		return -1;
	if (memchr(t.text, '\0', t.have)) {
		CLEANUP_FREE char *shown = download_show_url(d->url);

		error_code(err, EXIT_INPUT);
		return error_set(err, "'%s' is not a text file", shown);
	}
	t.text[t.have] = '\0';
	*ret = STEAL(t.text);
	return 0;
}

int download_file(const struct download *d, const char *path, bool *ret_resumed, struct error *err)
{
	CLEANUP_TRANSFER struct transfer t = {.d = d, .err = err, .fd = -1, .path = path};
	struct stat st;

	t.fd = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (t.fd < 0 || fstat(t.fd, &st) < 0) {
		error_code(err, EXIT_HOST);
		return error_errno(err, errno, "cannot write '%s'", path);
	}
	if (st.st_size > 0 && load_origin(&t)) {
		CLEANUP_FREE char *size = str_size((uint64_t)st.st_size);

		t.have = (uint64_t)lseek(t.fd, 0, SEEK_END);
		log_note(d->log, "going on with a download of which %s are here", size);
	} else if (download_forget(&t) < 0) {
		return -1;
	}
	if (run(&t) < 0)
		return -1;
	if (fsync(t.fd) < 0) {
		error_code(err, EXIT_HOST);
		return error_errno(err, errno, "cannot write '%s'", path);
	}
	*ret_resumed = t.resumed;
	return 0;
}
