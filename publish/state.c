/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is remembered between two runs, in "<image>.publish-state.json": ids that servers gave,
 * parts that they took. It makes a run after 'kill -9' go on; it holds no credential and no signed
 * URL.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/fd.h"
#include "builder/sums-file.h"
#include "publish/publish.h"

#define STATE_SCHEMA    1
#define STATE_MAX_BYTES ((size_t)64 * 1024 * 1024) /* 10,000 parts of each location */

struct publish_state {
	pthread_mutex_t lock;
	char *path, *lock_path;
	int lock_fd;
	json_t *root; /* {"schema", "slots": {KEY: OBJECT}} */
};

/* Of another content, nothing that was begun is of use. */
static char *slot_key(const struct publish_job *job)
{
	return str_format("%s/%s sha256:%s", job->where->target, job->where->location,
	                  job->image->sha256);
}

/* Whoever is done takes the lock file away: one that we have may have lost its name by then. */
static bool is_named(const struct publish_state *s)
{
	struct stat locked, named;

	return fstat(s->lock_fd, &locked) == 0 && stat(s->lock_path, &named) == 0 &&
	       locked.st_ino == named.st_ino;
}

static int lock_state(struct publish_state *s, struct error *err)
{
	int result;

	s->lock_fd = open(s->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->lock_fd < 0) {
		error_errno(err, errno, "cannot write '%s'", s->lock_path);
		error_hint(err,
		           "what was sent is remembered beside the image: its directory must be "
		           "writable");
		return error_code(err, EXIT_HOST);
	}
	result = flock(s->lock_fd, LOCK_EX | LOCK_NB);
	if (result < 0 && errno != EWOULDBLOCK) {
		error_errno(err, errno, "cannot lock '%s'", s->lock_path);
		error_hint(err, "the image must lie where files can be locked");
		return error_code(err, EXIT_HOST);
	}
	if (result == 0 && is_named(s))
		return 0;
	error_set(err, "another gpuimg publishes this image now ('%s')", s->lock_path);
	error_hint(err, "wait for it");
	return error_code(err, EXIT_HOST);
}

static int parse_state(struct publish_state *s, const char *text, struct error *err)
{
	json_error_t why;

	s->root = json_loads(text, 0, &why);
	if (json_is_object(json_object_get(s->root, "slots")) &&
	    json_integer_value(json_object_get(s->root, "schema")) == STATE_SCHEMA)
		return 0;
	return error_set(err, "cannot read '%s': %s", s->path,
	                 s->root ? "not of this version" : why.text);
}

static int read_state(struct publish_state *s, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	int result;

	whole_file_sweep(s->path);
	result = fd_read_path(s->path, STATE_MAX_BYTES, &text);
	if (result < 0)
		error_errno(err, errno, "cannot read '%s'", s->path);
	if (result == 0 && !text) {
		s->root = json_pack("{s:i, s:{}}", "schema", STATE_SCHEMA, "slots");
		return 0;
	}
	if (result == 0 && parse_state(s, text, err) == 0)
		return 0;
	error_hint(err, "remove it: what was begun is then sent anew");
	return error_code(err, EXIT_INPUT);
}

int publish_state_open(struct publish_state **ret, const struct publish_image *image,
                       struct error *err)
{
	struct publish_state *s = mem_alloc(sizeof(*s));

	pthread_mutex_init(&s->lock, NULL);
	s->path = str_format("%s.publish-state.json", image->path);
	s->lock_path = str_format("%s.lock", s->path);
	s->lock_fd = -1;
	if (lock_state(s, err) < 0 || read_state(s, err) < 0) {
		if (s->lock_fd >= 0)
			close(s->lock_fd);
		s->lock_fd = -1;
		publish_state_close(s);
		return -1;
	}
	*ret = s;
	return 0;
}

void publish_state_close(struct publish_state *s)
{
	if (!s)
		return;
	if (s->lock_fd >= 0) {
		unlink(s->lock_path);
		close(s->lock_fd);
	}
	json_decref(s->root);
	pthread_mutex_destroy(&s->lock);
	free(s->path);
	free(s->lock_path);
	free(s);
}

/* Whole or not at all, and on the disk before the next request goes out. */
static int write_state(const struct publish_state *s, struct error *err)
{
	CLEANUP_FREE char *text = NULL;

	if (json_object_size(json_object_get(s->root, "slots")) == 0) {
		if (unlink(s->path) == 0 || errno == ENOENT)
			return 0;
		return error_errno(err, errno, "cannot remove '%s'", s->path);
	}
	text = json_dumps(s->root, JSON_INDENT(1));
	if (!text)
		return error_set(err, "cannot write '%s'", s->path);
	return whole_file_write_as(s->path, 0600, text, strlen(text), err) < 0
	               ? error_code(err, EXIT_HOST)
	               : 0;
}

json_t *publish_slot(struct publish_job *job)
{
	CLEANUP_FREE char *key = slot_key(job);
	json_t *kept;

	if (job->slot)
		return job->slot;
	pthread_mutex_lock(&job->state->lock);
	kept = json_object_get(json_object_get(job->state->root, "slots"), key);
	job->slot = json_is_object(kept) ? json_deep_copy(kept) : json_object();
	pthread_mutex_unlock(&job->state->lock);
	return job->slot;
}

const char *publish_recalled(struct publish_job *job, const char *key)
{
	return json_string_value(json_object_get(publish_slot(job), key));
}

static json_t *parts_of(struct publish_job *job)
{
	return json_object_get(publish_slot(job), "parts");
}

const char *publish_part(struct publish_job *job, uint64_t number)
{
	CLEANUP_FREE char *key = str_format("%llu", (unsigned long long)number);

	return json_string_value(json_object_get(parts_of(job), key));
}

int publish_remember_part(struct publish_job *job, uint64_t number, const char *etag,
                          struct error *err)
{
	CLEANUP_FREE char *key = str_format("%llu", (unsigned long long)number);

	json_object_set_new(parts_of(job), key, json_string(etag));
	return publish_remember(job, err);
}

bool publish_was_begun(struct publish_job *job)
{
	return json_object_size(publish_slot(job)) > 0;
}

bool publish_is_damaged(struct publish_job *job)
{
	return publish_recalled(job, "damaged") != NULL;
}

int publish_set_damaged(struct publish_job *job, struct error *err)
{
	json_object_clear(publish_slot(job));
	json_object_set_new(publish_slot(job), "damaged", json_string("yes"));
	return publish_remember(job, err);
}

int publish_remember(struct publish_job *job, struct error *err)
{
	CLEANUP_FREE char *key = slot_key(job);
	json_t *copy = json_deep_copy(publish_slot(job));
	int result;

	pthread_mutex_lock(&job->state->lock);
	json_object_set_new(json_object_get(job->state->root, "slots"), key, copy);
	result = write_state(job->state, err);
	pthread_mutex_unlock(&job->state->lock);
	return result;
}

void publish_forget(struct publish_job *job)
{
	CLEANUP_FREE char *key = slot_key(job);
	CLEANUP_ERROR struct error err = ERROR_INIT;

	json_decref(STEAL(job->slot));
	pthread_mutex_lock(&job->state->lock);
	if (json_object_del(json_object_get(job->state->root, "slots"), key) == 0 &&
	    write_state(job->state, &err) < 0)
		log_warn(job->log, "%s, ignoring", err.message);
	pthread_mutex_unlock(&job->state->lock);
}
