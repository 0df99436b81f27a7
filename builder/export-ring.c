/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "export-internal.h"
#include "str.h"

struct slot {
	void *job;
	bool done;
	int result;
	struct error err;
};

struct ring {
	struct ring_work work;
	struct slot *slots;
	size_t slot_count;
	pthread_t *threads;
	unsigned thread_count; /* that were started */

	pthread_mutex_t lock; /* over what follows, and the slots' results */
	pthread_cond_t posted_one, done_one;
	uint64_t posted, begun, taken; /* so many so far */
	bool stop;
};

static struct slot *slot_of(struct ring *r, uint64_t number)
{
	return &r->slots[number % r->slot_count];
}

/* The next job to work on; NULL: there will be none. */
static struct slot *next_slot(struct ring *r)
{
	struct slot *slot = NULL;

	pthread_mutex_lock(&r->lock);
	while (!r->stop && r->begun == r->posted)
		pthread_cond_wait(&r->posted_one, &r->lock);
	if (!r->stop)
		slot = slot_of(r, r->begun++);
	pthread_mutex_unlock(&r->lock);
	return slot;
}

static void *run_thread(void *opaque)
{
	struct ring *r = opaque;
	void *state = r->work.thread_new(r->work.opaque);
	struct slot *slot;

	while ((slot = next_slot(r)) != NULL) {
		int result = r->work.run(slot->job, state, &slot->err);

		pthread_mutex_lock(&r->lock);
		slot->result = result;
		slot->done = true;
		pthread_cond_signal(&r->done_one);
		pthread_mutex_unlock(&r->lock);
	}
	r->work.thread_free(state);
	return NULL;
}

/* Signals are for the thread that started us. */
static int start_threads(struct ring *r, unsigned threads, struct error *err)
{
	sigset_t all, before;
	int errnum = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (r->thread_count < threads && errnum == 0) {
		errnum = pthread_create(&r->threads[r->thread_count], NULL, run_thread, r);
		r->thread_count += errnum == 0;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r->thread_count == 0) {
		error_code(err, EXIT_HOST);
		return error_errno(err, errnum, "cannot start a thread");
	}
	return 0; /* fewer of them do the same work */
}

int ring_open(struct ring **ret, const struct ring_work *work, unsigned threads, size_t jobs,
              struct error *err)
{
	CLEANUP_RING struct ring *r = mem_alloc(sizeof(*r));

	r->work = *work;
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->posted_one, NULL);
	pthread_cond_init(&r->done_one, NULL);
	r->slots = mem_alloc(jobs * sizeof(*r->slots));
	r->slot_count = jobs;
	for (size_t i = 0; i < jobs; i++)
		r->slots[i].job = work->job_new(work->opaque);
	r->threads = mem_alloc(threads * sizeof(*r->threads));
	if (start_threads(r, threads, err) < 0)
		return -1;
	*ret = STEAL(r);
	return 0;
}

void ring_close(struct ring *r)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_broadcast(&r->posted_one);
	pthread_mutex_unlock(&r->lock);
	for (unsigned i = 0; i < r->thread_count; i++)
		pthread_join(r->threads[i], NULL);
	for (size_t i = 0; i < r->slot_count; i++) {
		error_free(&r->slots[i].err);
		r->work.job_free(r->slots[i].job);
	}
	pthread_cond_destroy(&r->posted_one);
	pthread_cond_destroy(&r->done_one);
	pthread_mutex_destroy(&r->lock);
	free(r->threads);
	free(r->slots);
	free(r);
}

/* 'posted' and 'taken' change in the caller's thread alone. */
void *ring_free_job(struct ring *r)
{
	return r->posted - r->taken < r->slot_count ? slot_of(r, r->posted)->job : NULL;
}

void ring_post(struct ring *r)
{
	pthread_mutex_lock(&r->lock);
	slot_of(r, r->posted)->done = false;
	r->posted++;
	pthread_cond_signal(&r->posted_one);
	pthread_mutex_unlock(&r->lock);
}

int ring_take(struct ring *r, void **ret, struct error *err)
{
	struct slot *slot = slot_of(r, r->taken);

	*ret = NULL;
	if (r->taken == r->posted)
		return 0;
	pthread_mutex_lock(&r->lock);
	while (!slot->done)
		pthread_cond_wait(&r->done_one, &r->lock);
	r->taken++;
	pthread_mutex_unlock(&r->lock);
	if (slot->result < 0)
		return error_take(err, &slot->err);
	*ret = slot->job;
	return 0;
}
