/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of an image. Glance has no resume: a PUT that breaks off leaves the image 'queued', and
 * the next one begins anew on the same id. So after every PUT that was not answered well the
 * image's status says what became of it.
 */
#include "builder/clock.h"
#include "publish/glance.h"

#define SEND_TRIES      3
#define PUT_TIMEOUT_S   3600      /* stores that copy the whole image behind it */
#define WAIT_MS         7200000LL /* two hours */
#define POLL_MIN_MS     2000u
#define POLL_MAX_MS     30000u
#define SETTLE_TIMES    5 /* looks until a broken PUT has left 'saving' */
#define SETTLE_PAUSE_MS 1000u

static int stopped(struct error *err)
{
	error_set(err, "stopped while Glance works on the image");
	return error_code(err, EXIT_PUBLISH);
}

/* Once. The outcome is in g->seen; *ret_why is what went wrong, or nothing. */
static int put_once(struct publish_job *job, struct error *ret_why, struct error *err)
{
	const struct glance *g = job->own;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *path = str_format("/images/%s/file", g->id);
	const struct http_body body = {.fd = job->image->fd, .fd_size = job->image->size_bytes};
	const struct glance_call call = {.method = "PUT",
	                                 .path = path,
	                                 .content_type = "application/octet-stream",
	                                 .body = &body,
	                                 .tell = true,
	                                 .reply_timeout_s = PUT_TIMEOUT_S};

	if (glance_call(job, &call, &reply, NULL, ret_why) == 0 && reply.status != 204)
		glance_error(job, &call, &reply, ret_why);
	if (job->stop && *job->stop)
		return stopped(err);
	return glance_look(job, err);
}

/* What a PUT of ours left in 'saving' falls back soon; another publisher's goes on. */
static int settle(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;

	for (int i = 0; i < SETTLE_TIMES && glance_state(g->seen) == GLANCE_WORKING; i++) {
		if (!http_pause_ms(job->stop, SETTLE_PAUSE_MS))
			return stopped(err);
		if (glance_look(job, err) < 0)
			return -1;
	}
	return 0;
}

int glance_send_image(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;

	for (int tries = 1; glance_state(g->seen) == GLANCE_QUEUED; tries++) {
		CLEANUP_ERROR struct error why = ERROR_INIT;

		if (put_once(job, &why, err) < 0)
			return -1;
		if (!why.message)
			return 0;
		if (settle(job, err) < 0)
			return -1;
		if (glance_state(g->seen) != GLANCE_QUEUED)
			return 0;
		if (tries == SEND_TRIES || error_exit_code(&why) != EXIT_PUBLISH)
			return error_take(err, &why);
		log_note(job->log, "%s; sent again", why.message);
	}
	if (glance_state(g->seen) == GLANCE_ACTIVE && job->sent_bytes == 0)
		job->resumed_from = job->image->size_bytes;
	return 0;
}

static int cannot_become_active(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;

	if (!g->seen) {
		error_set(err, "image %s was deleted while it was published", g->id);
		return error_code(err, EXIT_PUBLISH);
	}
	error_set(err, "image %s is '%s'", g->id, glance_text(g->seen, "status"));
	error_hint(err, "see what the cloud's operators say of it; once it is deleted, run again");
	return error_code(err, glance_state(g->seen) == GLANCE_BURNT ? EXIT_PUBLISH : EXIT_INPUT);
}

static int too_long(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;

	error_set(err, "image %s is still '%s' after two hours", g->id,
	          glance_text(g->seen, "status"));
	error_hint(err, "run again to wait on; --abort --remove deletes it");
	return error_code(err, EXIT_PUBLISH);
}

int glance_wait_active(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;
	int64_t until = clock_ms() + WAIT_MS;
	unsigned pause = POLL_MIN_MS, sends = 0;

	while (glance_state(g->seen) != GLANCE_ACTIVE) {
		if (glance_state(g->seen) == GLANCE_QUEUED && sends++ < SEND_TRIES) {
			publish_phase(job, "sends");
			if (glance_send_image(job, err) < 0)
				return -1;
			publish_phase(job, "waits for the server");
			if (glance_state(g->seen) != GLANCE_WORKING)
				continue;
		}
		if (glance_state(g->seen) != GLANCE_WORKING)
			return cannot_become_active(job, err);
		if (clock_ms() > until)
			return too_long(job, err);
		if (!http_pause_ms(job->stop, pause))
			return stopped(err);
		pause = pause * 2 < POLL_MAX_MS ? pause * 2 : POLL_MAX_MS;
		if (glance_look(job, err) < 0)
			return -1;
	}
	return 0;
}
