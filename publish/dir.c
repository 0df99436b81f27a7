/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dir: a directory of this host, as a mounted share or what a web server serves. The file grows
 * under a name of its own, is named when it is whole and on the disk, and the index comes last.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/digest.h"
#include "builder/fd.h"
#include "builder/sums-file.h"
#include "builder/workdir.h"
#include "publish/layout.h"

#define COPY_BYTES   ((size_t)4 * 1024 * 1024)
#define INDEX_LOCK   ".gpuimg-index.lock"
#define INDEX_WAIT_S 30

struct dir {
	const char *root;
	char *file, *part, *sums, *index;
};

static int dir_check(struct publish_job *job, struct error *err)
{
	const struct publish_image *i = job->image;
	struct dir *d = job->own = mem_alloc(sizeof(*d));
	CLEANUP_FREE char *file = layout_file(i);
	CLEANUP_FREE char *sums = layout_sums(i);
	CLEANUP_FREE char *index = layout_index(i);
	struct stat st;

	d->root = publish_setting(job->where, "path");
	if (!d->root || *d->root != '/') {
		error_set(err, "'path' must be an absolute path of this host");
		return error_code(err, EXIT_USAGE);
	}
	if (stat(d->root, &st) < 0 || !S_ISDIR(st.st_mode)) {
		error_set(err, "'%s' is no directory of this host", d->root);
		error_hint(err,
		           "make it, or mount what belongs there: a missing mount must not fill "
		           "the disk below it");
		return error_code(err, EXIT_USAGE);
	}
	d->file = str_format("%s/%s", d->root, file);
	d->part = str_format("%s.part", d->file);
	d->sums = str_format("%s/%s", d->root, sums);
	d->index = str_format("%s/%s", d->root, index);
	job->ref = str_copy(d->file);
	return 0;
}

static void dir_end(struct publish_job *job)
{
	struct dir *d = job->own;

	if (!d)
		return;
	free(d->file);
	free(d->part);
	free(d->sums);
	free(d->index);
	free(STEAL(job->own));
}

/* A share that is full or gone for a moment: running again goes on, once there is room. What is
 * forbidden, or cannot be there at all, stays so. */
static enum exit_code code_of(int errnum)
{
	switch (errnum) {
	case EACCES:
	case EPERM:
	case EROFS:
	case ELOOP:
	case ENOTDIR:
	case EISDIR:
	case EEXIST:
	case ENAMETOOLONG:
	case EFBIG: /* of a file system that has no larger ones */
	case ENOLCK:
	case ENOSYS:
	case EOPNOTSUPP:
		return EXIT_HOST;
	default:
		return EXIT_PUBLISH;
	}
}

/* By errno, with its exit code. */
static int cannot(const char *what, const char *path, struct error *err)
{
	int errnum = errno;

	error_errno(err, errnum, "cannot %s '%s'", what, path);
	return error_code(err, code_of(errnum));
}

static int cannot_write(const char *path, struct error *err)
{
	return cannot("write", path, err);
}

/* Of a share, mostly: not every one has locks. */
static int cannot_lock(const char *path, struct error *err)
{
	cannot("lock", path, err);
	error_hint(err, "mount the share so that files on it can be locked (flock)");
	return -1;
}

/* *ret NULL: there is none. */
static int read_text(const char *path, size_t max, char **ret, struct error *err)
{
	if (fd_read_path(path, max, ret) == 0)
		return 0;
	if (errno == EFBIG)
		error_code(err, EXIT_INPUT);
	return cannot("read", path, err);
}

static int write_text(const char *path, const char *text, struct error *err)
{
	return whole_file_write(path, text, strlen(text), err) < 0 ? error_code(err, code_of(errno))
	                                                           : 0;
}

static bool is_whole(const struct publish_job *job, const struct dir *d)
{
	struct stat st;

	return stat(d->file, &st) == 0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size == job->image->size_bytes;
}

static int dir_probe(struct publish_job *job, enum publish_found *ret, struct error *err)
{
	const struct dir *d = job->own;
	CLEANUP_FREE char *sums = NULL;
	CLEANUP_FREE char *index = NULL;

	if (read_text(d->sums, LAYOUT_INDEX_MAX_BYTES, &sums, err) < 0 ||
	    read_text(d->index, LAYOUT_INDEX_MAX_BYTES, &index, err) < 0 ||
	    layout_look(job, index, sums, is_whole(job, d), ret, err) < 0)
		return -1;
	if (*ret == FOUND_ABSENT && access(d->part, F_OK) == 0)
		*ret = FOUND_PARTIAL;
	return 0;
}

/* Those below the root, which is there. */
static int make_parents(const struct dir *d, struct error *err)
{
	CLEANUP_FREE char *dir = mem_copy(d->file, (size_t)(strrchr(d->file, '/') - d->file));

	if (workdir_make_below(strlen(d->root), dir, err) == 0)
		return 0;
	err->code = code_of(errno);
	return -1;
}

/* It was changed, or its disk fails. */
static int cannot_read_image(const struct publish_image *image, int errnum, struct error *err)
{
	if (publish_image_check(image, err) < 0)
		return -1;
	error_errno(err, errnum, "cannot read '%s'", image->path);
	return error_code(err, EXIT_INPUT);
}

/* How much of what an interrupted run left is really the image's beginning. */
static int good_prefix(const struct publish_job *job, int fd, uint64_t size, uint64_t *ret,
                       struct error *err)
{
	CLEANUP_FREE unsigned char *theirs = mem_alloc(COPY_BYTES);
	CLEANUP_FREE unsigned char *ours = mem_alloc(COPY_BYTES);
	const struct dir *d = job->own;
	uint64_t at = 0;

	while (at < size) {
		size_t want = size - at < COPY_BYTES ? (size_t)(size - at) : COPY_BYTES;
		ssize_t a, b;

		if (publish_check_stop(job, err) < 0)
			return -1;
		a = pread(fd, theirs, want, (off_t)at);
		if (a < 0)
			return cannot("read", d->part, err);
		b = pread(job->image->fd, ours, want, (off_t)at);
		if (b < 0)
			return cannot_read_image(job->image, errno, err);
		if (a == 0 || a != b || memcmp(theirs, ours, (size_t)a) != 0)
			break;
		at += (uint64_t)a;
	}
	*ret = at;
	return 0;
}

static int copy_rest(struct publish_job *job, int fd, uint64_t at, struct error *err)
{
	CLEANUP_FREE unsigned char *buffer = mem_alloc(COPY_BYTES);
	const struct dir *d = job->own;

	while (at < job->image->size_bytes) {
		ssize_t got;

		if (publish_check_stop(job, err) < 0)
			return -1;
		got = pread(job->image->fd, buffer, COPY_BYTES, (off_t)at);
		if (got <= 0)
			return cannot_read_image(job->image, got < 0 ? errno : EIO, err);
		if (fd_write_all(fd, buffer, (size_t)got) < 0)
			return cannot_write(d->part, err);
		at += (uint64_t)got;
		job->sent_bytes += (uint64_t)got;
		publish_progress(job, at, job->image->size_bytes);
	}
	return 0;
}

static int dir_send(struct publish_job *job, struct error *err)
{
	const struct dir *d = job->own;
	CLEANUP_CLOSE int fd = -1;
	uint64_t at = 0;
	struct stat st;

	if (make_parents(d, err) < 0)
		return -1;
	if (is_whole(job, d))
		return 0;
	fd = open(d->part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 || fstat(fd, &st) < 0)
		return cannot_write(d->part, err);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return cannot_lock(d->part, err);
		error_set(err, "another publisher writes '%s' now", d->part);
		return error_code(err, EXIT_PUBLISH);
	}
	if (good_prefix(job, fd, (uint64_t)st.st_size, &at, err) < 0)
		return -1;
	job->resumed_from = at;
	if (ftruncate(fd, (off_t)at) < 0 || lseek(fd, (off_t)at, SEEK_SET) < 0)
		return cannot_write(d->part, err);
	if (copy_rest(job, fd, at, err) < 0)
		return -1;
	return fsync(fd) < 0 || rename(d->part, d->file) < 0 ? cannot_write(d->file, err) : 0;
}

/* No longer than the run goes on. */
static int lock_index(const struct publish_job *job, const char *lock, int fd, struct error *err)
{
	for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; tries++) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return cannot_lock(lock, err);
		if (tries == INDEX_WAIT_S) {
			error_set(err, "another publisher holds '%s'", lock);
			error_hint(err, "run again when it is done; nothing is sent twice");
			return error_code(err, EXIT_PUBLISH);
		}
		http_pause_ms(job->stop, 1000);
		if (publish_check_stop(job, err) < 0)
			return -1;
	}
	return 0;
}

/* Read, merged and written by one publisher at a time. */
static int update_index(struct publish_job *job, struct error *err)
{
	const struct dir *d = job->own;
	CLEANUP_FREE char *lock = str_format("%.*s/%s", (int)(strrchr(d->index, '/') - d->index),
	                                     d->index, INDEX_LOCK);
	CLEANUP_CLOSE int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	CLEANUP_FREE char *old = NULL;
	CLEANUP_FREE char *text = NULL;
	enum layout_index_state state;

	if (fd < 0)
		return cannot_write(lock, err);
	if (lock_index(job, lock, fd, err) < 0 ||
	    read_text(d->index, LAYOUT_INDEX_MAX_BYTES, &old, err) < 0 ||
	    layout_index_look_again(job, old, &state, err) < 0 ||
	    layout_index_merge(job->image, old, &text, err) < 0)
		return -1;
	return write_text(d->index, text, err);
}

static int dir_name(struct publish_job *job, struct error *err)
{
	const struct dir *d = job->own;
	CLEANUP_FREE char *sums = layout_sums_text(job->image);

	return write_text(d->sums, sums, err) < 0 ? -1 : update_index(job, err);
}

static int dir_verify(struct publish_job *job, enum publish_verify how, struct error *err)
{
	const struct dir *d = job->own;
	CLEANUP_FREE char *hex = NULL;

	if (how == VERIFY_QUICK) {
		job->verified = str_copy("size");
		if (is_whole(job, d))
			return 0;
		error_set(err, "'%s' is not there with the right length", d->file);
		return error_code(err, EXIT_PROOF);
	}
	if (digest_file_until(d->file, "SHA256", job->stop, &hex, err) < 0)
		return -1;
	if (!str_equal(hex, job->image->sha256)) {
		error_set(err, "'%s' holds other bytes than were written: SHA-256 %s", d->file,
		          hex);
		error_hint(err, "run again to write what is wrong anew; look at the disk or share "
		                "below it");
		/* What is right of it is found by comparing, when it is sent anew. */
		rename(d->file, d->part);
		return error_code(err, EXIT_PROOF);
	}
	job->verified = str_copy("read back");
	return 0;
}

static int dir_leftovers(struct publish_job *job, bool remove, struct strv *ret, struct error *err)
{
	const struct dir *d = job->own;

	if (access(d->part, F_OK) < 0)
		return 0;
	strv_addf(ret, "%s%s", d->part, remove ? ": removed" : "");
	if (remove && unlink(d->part) < 0)
		return cannot("remove", d->part, err);
	return 0;
}

static const char *const keys[] = {"!path", NULL};
static const char *const no_secrets[] = {NULL};

const struct publish_backend publish_dir = {
	.type = "dir",
	.verify_default = VERIFY_FULL,
	.keys = keys,
	.secret_keys = no_secrets,
	.check = dir_check,
	.probe = dir_probe,
	.send = dir_send,
	.verify = dir_verify,
	.name = dir_name,
	.leftovers = dir_leftovers,
	.end = dir_end,
};
