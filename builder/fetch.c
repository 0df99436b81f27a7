/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache of base images. Its rule: under the name "sha256-<hex>" stands that content or
 * nothing. So a file is written under another name, hashed, and renamed; and it is hashed again
 * before each use, since a cache on a CI runner's disk outlives many accidents.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include "cleanup.h"
#include "digest.h"
#include "download.h"
#include "fetch.h"
#include "str.h"
#include "sums.h"
#include "workdir.h"

#define DEFAULT_RETRIES 5
#define DEFAULT_STALL_S 60
#define MAX_SUMS_BYTES  1048576
#define MAX_ANEW        3
#define SHA256_DIGITS   64
#define LOCK_POLL_MS    300
#define LOCK_PATIENCE_S 300 /* a holder that hashes a large file writes nothing */

struct entry {
	const struct fetch_options *o;
	struct download download;
	const char *algorithm; /* "SHA256", "SHA512" */
	char *hex;             /* what it must be */
	char *path, *part, *origin, *lock;
};

static void entry_release(struct entry *e)
{
	free(e->hex);
	free(e->path);
	free(e->part);
	free(e->origin);
	free(e->lock);
}

#define CLEANUP_ENTRY CLEANUP(entry_release)

bool fetch_is_url(const char *base)
{
	return strncasecmp(base, "http://", 7) == 0 || strncasecmp(base, "https://", 8) == 0;
}

/* What the file's digest must be: from the option, else from the file of sums. */
static int expect_from_option(struct entry *e, struct error *err)
{
	const char *hex = e->o->sha256;

	if (str_starts(hex, "sha256:"))
		hex += strlen("sha256:");
	e->algorithm = "SHA256";
	e->hex = sums_parse_hex(hex, SHA256_DIGITS);
	if (e->hex)
		return 0;
	error_code(err, EXIT_USAGE);
	return error_set(err, "'%s' is not a SHA-256 digest: 64 hexadecimal digits", e->o->sha256);
}

static int expect_from_sums(struct entry *e, struct error *err)
{
	struct download sums = e->download;
	CLEANUP_FREE char *shown = download_show_url(e->o->sums_url);
	CLEANUP_FREE char *path = download_url_path(e->o->url);
	CLEANUP_FREE char *text = NULL;

	if (!fetch_is_url(e->o->sums_url)) {
		error_code(err, EXIT_USAGE);
		return error_set(err, "the sums '%s' are not an http or https URL", shown);
	}
	if (strncasecmp(e->o->sums_url, "http://", 7) == 0)
		log_warn(e->o->log, "the checksums come over plain http: whoever can change the "
		                    "image on its way can change them, too");
	sums.url = e->o->sums_url;
	if (download_text(&sums, MAX_SUMS_BYTES, &text, err) < 0)
		return error_prefix(err, "checksums");
	if (sums_find(text, path, &e->algorithm, &e->hex, err) < 0) {
		error_code(err, EXIT_INPUT);
		return error_prefix(err, "cannot use the checksums '%s'", shown);
	}
	return 0;
}

static int expect(struct entry *e, struct error *err)
{
	CLEANUP_FREE char *shown = download_show_url(e->o->url);

	if (e->o->sha256)
		return expect_from_option(e, err);
	if (e->o->sums_url)
		return expect_from_sums(e, err);
	error_code(err, EXIT_USAGE);
	error_hint(err, "give its SHA-256, or the URL of a file of sums");
	return error_set(err, "there is no checksum for the base image '%s'", shown);
}

static void name_files(struct entry *e)
{
	e->path = str_format("%s/%s-%s", e->o->cache_dir,
	                     str_equal(e->algorithm, "SHA256") ? "sha256" : "sha512", e->hex);
	e->part = str_format("%s.part", e->path);
	e->origin = str_format("%s.part.from", e->path);
	e->lock = str_format("%s.lock", e->path);
}

/* Bytes that the lock's holder has fetched; any change shows that it lives. */
static off_t part_size(const struct entry *e)
{
	struct stat st;

	return lstat(e->part, &st) < 0 ? -1 : st.st_size;
}

static int wait_for_lock(const struct entry *e, int fd, struct error *err)
{
	time_t patience =
		LOCK_PATIENCE_S + (time_t)e->download.stall_timeout_s * (e->download.retries + 1);
	off_t size = part_size(e);
	struct timespec now, moved;
	bool told = false;

	clock_gettime(CLOCK_MONOTONIC, &moved);
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return error_errno(err, errno, "cannot lock '%s'", e->lock);
		if (!told)
			log_note(e->o->log, "another gpuimg is fetching the same file; waiting");
		told = true;
		nanosleep(&(struct timespec){0, LOCK_POLL_MS * 1000000L}, NULL);
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (part_size(e) != size) {
			size = part_size(e);
			moved = now;
		}
		if (now.tv_sec - moved.tv_sec > patience) {
			error_hint(err, "look for the process with 'fuser %s'", e->lock);
			return error_set(
				err,
				"another process holds '%s', and has fetched nothing for %ld s",
				e->lock, (long)patience);
		}
	}
	return 0;
}

/* The lock ends when *ret_fd is closed. The file stays: removing it would race. */
static int take_lock(const struct entry *e, int *ret_fd, struct error *err)
{
	CLEANUP_CLOSE int fd =
		open(e->lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);

	if (fd < 0) {
		int errnum = errno;

		error_hint(err, "choose another cache directory");
		return error_errno(err, errnum, "cannot write '%s'", e->lock);
	}
	if (wait_for_lock(e, fd, err) < 0)
		return -1;
	*ret_fd = steal_fd(&fd);
	return 0;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

/* *ret_good: the cache has it, and it is what its name says. Else it is gone. */
static int look_up(const struct entry *e, bool *ret_good, struct error *err)
{
	CLEANUP_ERROR struct error why = ERROR_INIT;
	CLEANUP_FREE char *hex = NULL;

	*ret_good = false;
	if (!exists(e->path))
		return 0;
	if (digest_file(e->path, e->algorithm, &hex, &why) == 0 && str_equal(hex, e->hex)) {
		*ret_good = true;
		return 0;
	}
	log_warn(e->o->log, "the cached '%s' is damaged (%s), fetching it again", e->path,
	         hex ? hex : why.message);
	if (unlink(e->path) < 0)
		return error_errno(err, errno, "cannot remove the damaged '%s'", e->path);
	return 0;
}

static void drop_part(const struct entry *e)
{
	unlink(e->part);
	unlink(e->origin);
}

/* What came was not what it must be. Nothing of it is kept. */
static int wrong_checksum(const struct entry *e, const char *hex, struct error *err)
{
	CLEANUP_FREE char *shown = download_show_url(e->o->url);

	error_code(err, EXIT_INPUT);
	error_hint(err, "the image was replaced, the checksum is of another file, or somebody "
	                "changed it on its way; nothing was kept");
	return error_set(err, "the file from '%s' has the wrong checksum: %s is %s, expected %s",
	                 shown, e->algorithm, hex, e->hex);
}

/* Fetches into the partial file until its digest is right. */
static int fetch_part(const struct entry *e, struct error *err)
{
	for (int i = 1;; i++) {
		CLEANUP_FREE char *hex = NULL;
		bool resumed = false;

		if (download_file(&e->download, e->part, &resumed, err) < 0)
			return -1;
		if (digest_file(e->part, e->algorithm, &hex, err) < 0)
			return -1;
		if (str_equal(hex, e->hex))
			return 0;
		drop_part(e);
		if (!resumed || i == MAX_ANEW)
			return wrong_checksum(e, hex, err);
		/* The pieces may be of two versions. In one piece, it comes to an end. */
		log_warn(e->o->log, "the resumed download has the wrong checksum, beginning anew");
	}
}

static int sync_dir(const char *dir)
{
	CLEANUP_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -1 : fsync(fd);
}

static int fill(const struct entry *e, struct error *err)
{
	if (fetch_part(e, err) < 0)
		return -1;
	if (rename(e->part, e->path) < 0)
		return error_errno(err, errno, "cannot rename '%s' to '%s'", e->part, e->path);
	unlink(e->origin);
	if (sync_dir(e->o->cache_dir) < 0)
		log_detail(e->o->log, "cannot sync '%s', ignoring", e->o->cache_dir);
	return 0;
}

static int give(struct entry *e, char **ret_path, char **ret_digest, struct error *err)
{
	CLEANUP_FREE char *sha256 = NULL;

	if (str_equal(e->algorithm, "SHA256"))
		sha256 = STEAL(e->hex);
	else if (digest_file(e->path, "SHA256", &sha256, err) < 0)
		return -1;
	*ret_digest = str_format("sha256:%s", sha256);
	*ret_path = STEAL(e->path);
	return 0;
}

static int fetch_entry(struct entry *e, char **ret_path, char **ret_digest, struct error *err)
{
	CLEANUP_CLOSE int lock_fd = -1;
	bool good;

	if (workdir_make_parents(e->o->cache_dir, err) < 0)
		return -1;
	if (expect(e, err) < 0)
		return -1;
	name_files(e);
	if (take_lock(e, &lock_fd, err) < 0)
		return -1;
	if (look_up(e, &good, err) < 0)
		return -1;
	if (good)
		log_detail(e->o->log, "'%s' is in the cache", e->path);
	else if (fill(e, err) < 0)
		return -1;
	return give(e, ret_path, ret_digest, err);
}

int fetch_base(const struct fetch_options *options, char **ret_path, char **ret_digest,
               struct error *err)
{
	CLEANUP_ENTRY struct entry e = {.o = options};
	CLEANUP_FREE char *shown = download_show_url(options->url);

	if (!fetch_is_url(options->url)) {
		error_code(err, EXIT_USAGE);
		return error_set(err, "'%s' is not an http or https URL", shown);
	}
	e.download = (struct download){
		.url = options->url,
		.retries = options->retries ? options->retries : DEFAULT_RETRIES,
		.stall_timeout_s =
			options->stall_timeout_s ? options->stall_timeout_s : DEFAULT_STALL_S,
		.log = options->log,
	};
	if (fetch_entry(&e, ret_path, ret_digest, err) < 0)
		return error_code(err, EXIT_HOST);
	return 0;
}
