/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of an upload, several at a time: the way to a store is seldom filled by one connection,
 * and while the server puts a part away another one is under way. Each lane is a thread with a
 * connection of its own; what was taken is written down under one lock.
 */
#include <pthread.h>
#include <string.h>

#include "publish/s3.h"

struct sending;

struct lane {
	struct sending *sending;
	struct publish_job job; /* a copy, for its connection and its count of bytes */
	uint64_t under_way_bytes;
	pthread_t thread;
	bool is_running;
};

struct sending {
	/* of next, taken_bytes, failed, err, under_way_bytes, and the job's slot */
	pthread_mutex_t lock;
	struct publish_job *job;
	char *upload_id; /* escaped */
	uint64_t next;   /* the first part that nobody looked at yet */
	uint64_t taken_bytes;
	struct lane lanes[S3_LANES_MAX];
	size_t count;
	bool failed;
	struct error *err; /* of the first lane that failed */
};

uint64_t s3_part_size(const struct publish_image *i, uint64_t number)
{
	uint64_t offset = (number - 1) * i->part_bytes;

	return i->size_bytes - offset < i->part_bytes ? i->size_bytes - offset : i->part_bytes;
}

char *s3_bare_etag(const char *etag)
{
	size_t length = strlen(etag);

	return length >= 2 && etag[0] == '"' && etag[length - 1] == '"'
	               ? mem_copy(etag + 1, length - 2)
	               : str_copy(etag);
}

/* Under the lock. */
static void show(const struct sending *s)
{
	uint64_t done = s->taken_bytes;

	for (size_t i = 0; i < s->count; i++)
		done += s->lanes[i].under_way_bytes;
	publish_progress(s->job, done, s->job->image->size_bytes);
}

static void on_sent(void *opaque, uint64_t sent_bytes)
{
	struct lane *lane = opaque;

	pthread_mutex_lock(&lane->sending->lock);
	lane->under_way_bytes = sent_bytes;
	show(lane->sending);
	pthread_mutex_unlock(&lane->sending->lock);
}

/* The server's ETag to *ret. */
static int put_part(struct lane *lane, uint64_t number, char **ret, struct error *err)
{
	const struct s3 *s = lane->job.own;
	const struct publish_image *i = lane->job.image;
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv query = {0};
	const struct http_body body = {.fd = i->fd,
	                               .fd_offset = (number - 1) * i->part_bytes,
	                               .fd_size = s3_part_size(i, number)};
	const struct s3_request request = {.method = "PUT",
	                                   .key = s->key,
	                                   .query = &query,
	                                   .body = &body,
	                                   .payload_sha256 = i->part_sha256.items[number - 1],
	                                   .idempotent = true,
	                                   .on_sent = on_sent,
	                                   .sent_opaque = lane};

	strv_addf(&query, "partNumber=%llu", (unsigned long long)number);
	strv_addf(&query, "uploadId=%s", lane->sending->upload_id);
	if (s3_call(&lane->job, &request, false, &reply, err) < 0) {
		if (reply.status == 404 && reply.body && strstr(reply.body, "NoSuchUpload"))
			err->code = EXIT_PUBLISH; /* the next run begins another one */
		return error_prefix(err, "part %llu", (unsigned long long)number);
	}
	if (!http_header(&reply, "etag"))
		return error_set(err, "part %llu: the server took it and gave no ETag",
		                 (unsigned long long)number);
	*ret = s3_bare_etag(http_header(&reply, "etag"));
	return 0;
}

static int send_part(struct lane *lane, uint64_t number, struct error *err)
{
	struct sending *s = lane->sending;
	CLEANUP_FREE char *etag = NULL;
	int result = put_part(lane, number, &etag, err);

	pthread_mutex_lock(&s->lock);
	lane->under_way_bytes = 0;
	if (result == 0) {
		result = publish_remember_part(s->job, number, etag, err);
		s->taken_bytes += s3_part_size(s->job->image, number);
	}
	show(s);
	pthread_mutex_unlock(&s->lock);
	return result;
}

/* The next part that is missing; 0: there is none, or no more is to be begun. */
static uint64_t next_part(struct sending *s)
{
	const struct s3 *s3 = s->job->own;
	uint64_t number = 0;

	pthread_mutex_lock(&s->lock);
	while (!s->failed && number == 0 && s->next <= s3->parts) {
		if (!publish_part(s->job, s->next))
			number = s->next;
		s->next++;
	}
	pthread_mutex_unlock(&s->lock);
	return number;
}

static void fail(struct sending *s, struct error *err)
{
	pthread_mutex_lock(&s->lock);
	if (!s->failed)
		error_take(s->err, err);
	s->failed = true;
	pthread_mutex_unlock(&s->lock);
}

/* A lane that fails lets the others end the part that they are at: it need not be sent again. */
static void *run_lane(void *opaque)
{
	struct lane *lane = opaque;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	uint64_t number;

	while ((number = next_part(lane->sending)) > 0)
		if (publish_check_stop(&lane->job, &err) < 0 || send_part(lane, number, &err) < 0) {
			fail(lane->sending, &err);
			break;
		}
	return NULL;
}

/* The first lane is the caller; without threads or connections for others it does all. */
static void run_lanes(struct sending *s, size_t wanted)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;

	for (size_t i = 1; i < wanted; i++) {
		struct lane *lane = &s->lanes[i];

		if (http_twin(&lane->job.http, s->job->http, &ignored) < 0)
			break;
		lane->is_running = pthread_create(&lane->thread, NULL, run_lane, lane) == 0;
	}
	run_lane(&s->lanes[0]);
	for (size_t i = 1; i < wanted; i++) {
		struct lane *lane = &s->lanes[i];

		if (lane->is_running)
			pthread_join(lane->thread, NULL);
		http_free(lane->job.http);
	}
}

static size_t lanes_wanted(const struct publish_job *job, uint64_t missing)
{
	const struct s3 *s3 = job->own;

	return missing < s3->lanes ? (size_t)missing : s3->lanes;
}

int s3_send_parts(struct publish_job *job, struct error *err)
{
	const struct s3 *s3 = job->own;
	struct sending s = {.job = job, .next = 1, .err = err};
	uint64_t missing = 0;

	for (uint64_t n = 1; n <= s3->parts; n++) {
		if (publish_part(job, n))
			s.taken_bytes += s3_part_size(job->image, n);
		else
			missing++;
	}
	job->resumed_from += s.taken_bytes;
	s.count = lanes_wanted(job, missing);
	if (s.count == 0)
		return 0;
	s.upload_id = http_escape(publish_recalled(job, "upload_id"), false);
	pthread_mutex_init(&s.lock, NULL);
	for (size_t i = 0; i < s.count; i++) {
		s.lanes[i] = (struct lane){.sending = &s, .job = *job};
		s.lanes[i].job.sent_bytes = 0;
		s.lanes[i].job.http = i == 0 ? job->http : NULL;
	}
	run_lanes(&s, s.count);
	for (size_t i = 0; i < s.count; i++)
		job->sent_bytes += s.lanes[i].job.sent_bytes;
	pthread_mutex_destroy(&s.lock);
	free(s.upload_id);
	return s.failed ? -1 : 0;
}
