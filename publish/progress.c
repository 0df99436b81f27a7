/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "builder/clock.h"
#include "builder/json-text.h"
#include "builder/str.h"
#include "publish/progress.h"

#define DRAW_MS        500
#define PLAIN_EVERY_MS 30000 /* of one location, where nobody watches a terminal */
#define EVENT_EVERY_MS 2000

struct progress_row {
	struct progress *progress;
	char *name, *phase;
	uint64_t done, all;
	uint64_t began_bytes; /* what was there already does not count for the rate */
	int64_t began_ms, told_ms;
	bool active;
};

struct progress {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	struct log *log;
	bool json, stop;
	struct progress_row **rows;
	size_t count;
};

static double rate_of(const struct progress_row *row, int64_t now)
{
	int64_t elapsed = now - row->began_ms;

	return elapsed > 0 && row->done > row->began_bytes
	               ? (double)(row->done - row->began_bytes) * 1000.0 / (double)elapsed
	               : 0;
}

/* "12% of 2.0 GiB, 81.0 MiB/s, 22 s left" */
static char *row_text(const struct progress_row *row, int64_t now)
{
	CLEANUP_FREE char *all = str_size(row->all);
	double rate = rate_of(row, now);
	CLEANUP_FREE char *speed = str_size((uint64_t)rate);

	if (row->all == 0)
		return str_copy(row->phase);
	if (rate <= 0)
		return str_format("%s, %.0f%% of %s", row->phase,
		                  100.0 * (double)row->done / (double)row->all, all);
	return str_format("%s, %.0f%% of %s, %s/s, %.0f s left", row->phase,
	                  100.0 * (double)row->done / (double)row->all, all, speed,
	                  (double)(row->all - row->done) / rate);
}

static void print_event(json_t *event)
{
	CLEANUP_FREE char *text = json_dumps(event, JSON_COMPACT);

	json_decref(event);
	if (!text)
		return;
	puts(text);
	fflush(stdout);
}

static void tell_row(struct progress *p, struct progress_row *row, int64_t now)
{
	int64_t every = p->json ? EVENT_EVERY_MS : PLAIN_EVERY_MS;
	CLEANUP_FREE char *text = NULL;

	if (!row->active || now - row->told_ms < every)
		return;
	row->told_ms = now;
	if (p->json) {
		print_event(json_pack("{s:s, s:o, s:o, s:I, s:I, s:I}", "event", "progress",
		                      "location", json_text(row->name), "phase",
		                      json_text(row->phase), "done_bytes", (json_int_t)row->done,
		                      "all_bytes", (json_int_t)row->all, "bytes_per_second",
		                      (json_int_t)rate_of(row, now)));
		return;
	}
	text = row_text(row, now);
	log_detail(p->log, "%s: %s", row->name, text);
}

/* One line for all that run now. */
static void draw(struct progress *p, int64_t now)
{
	CLEANUP_STRV struct strv parts = {0};
	CLEANUP_FREE char *line = NULL;
	uint64_t done = 0, all = 0;

	for (size_t i = 0; i < p->count; i++) {
		struct progress_row *row = p->rows[i];

		tell_row(p, row, now);
		done += row->done;
		all += row->all;
		if (row->active) {
			CLEANUP_FREE char *text = row_text(row, now);

			strv_addf(&parts, "%s: %s", row->name, text);
		}
	}
	line = strv_join(&parts, "; ");
	log_step_progress(p->log, all ? (double)done / (double)all : -1, line);
}

static void *draw_thread(void *opaque)
{
	struct progress *p = opaque;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		struct timespec until;

		draw(p, clock_ms());
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += DRAW_MS * 1000000L;
		until.tv_sec += until.tv_nsec / 1000000000L;
		until.tv_nsec %= 1000000000L;
		pthread_cond_timedwait(&p->wake, &p->lock, &until);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

int progress_new(struct progress **ret, struct log *log, bool json, struct error *err)
{
	struct progress *p = mem_alloc(sizeof(*p));
	int errnum;

	p->log = log;
	p->json = json;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	errnum = pthread_create(&p->thread, NULL, draw_thread, p);
	if (errnum) {
		free(p);
		return error_errno(err, errnum, "cannot start a thread");
	}
	*ret = p;
	return 0;
}

void progress_free(struct progress *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_signal(&p->wake);
	pthread_mutex_unlock(&p->lock);
	pthread_join(p->thread, NULL);
	for (size_t i = 0; i < p->count; i++) {
		free(p->rows[i]->name);
		free(p->rows[i]->phase);
		free(p->rows[i]);
	}
	free(p->rows);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct progress_row *progress_add(struct progress *p, const char *name)
{
	struct progress_row *row = mem_alloc(sizeof(*row));

	row->progress = p;
	row->name = str_copy(name);
	row->phase = str_copy("waits");
	pthread_mutex_lock(&p->lock);
	p->rows = mem_grow(p->rows, p->count + 1, sizeof(struct progress_row *));
	p->rows[p->count++] = row;
	pthread_mutex_unlock(&p->lock);
	return row;
}

void progress_bytes(struct progress_row *row, uint64_t done_bytes, uint64_t all_bytes)
{
	pthread_mutex_lock(&row->progress->lock);
	if (row->all == 0 || done_bytes < row->began_bytes) {
		row->began_ms = clock_ms();
		row->began_bytes = done_bytes;
	}
	row->done = done_bytes < all_bytes ? done_bytes : all_bytes;
	row->all = all_bytes;
	pthread_mutex_unlock(&row->progress->lock);
}

void progress_phase(struct progress_row *row, const char *what)
{
	struct progress *p = row->progress;

	pthread_mutex_lock(&p->lock);
	free(row->phase);
	row->phase = str_copy(what);
	row->active = true;
	if (p->json)
		print_event(json_pack("{s:s, s:o, s:o}", "event", "phase", "location",
		                      json_text(row->name), "phase", json_text(what)));
	pthread_mutex_unlock(&p->lock);
}

void progress_end(struct progress_row *row, const char *result, const char *detail)
{
	struct progress *p = row->progress;

	pthread_mutex_lock(&p->lock);
	row->active = false;
	if (p->json)
		print_event(json_pack("{s:s, s:o, s:s, s:o}", "event", "end", "location",
		                      json_text(row->name), "result", result, "detail",
		                      json_text(detail)));
	pthread_mutex_unlock(&p->lock);
	log_note(p->log, "%s: %s%s%s", row->name, result, *detail ? ", " : "", detail);
}
