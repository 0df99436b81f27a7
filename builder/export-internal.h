/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the export, and for its tests. */
#ifndef GPUIMG_EXPORT_INTERNAL_H
#define GPUIMG_EXPORT_INTERNAL_H

#include "export-content.h"
#include "export.h"

/* export_image() with a number of threads; 0: as many as processors and memory allow. */
int export_with_threads(const struct export_options *options, unsigned threads,
                        struct export_stats *ret, struct error *err);

/* Writes options->to; adds up in *stats, whose 'compression' is set. */
int export_clusters(struct content *c, const struct export_options *options,
                    enum compression compression, unsigned threads, struct export_stats *stats,
                    struct error *err);

/* A bounded row of jobs, filled and emptied in order by one thread, worked on by many. */
struct ring;

struct ring_work {
	void *(*job_new)(void *opaque);
	void (*job_free)(void *job);
	/* A state of its own for each thread. */
	void *(*thread_new)(void *opaque);
	void (*thread_free)(void *state);
	/* Runs in any thread; may fail: the error comes out of ring_take(). */
	int (*run)(void *job, void *state, struct error *err);
	void *opaque;
};

int ring_open(struct ring **ret, const struct ring_work *work, unsigned threads, size_t jobs,
              struct error *err);
void ring_close(struct ring *r); /* waits for what runs; what was not begun is dropped */
DEFINE_CLEANUP(ring, struct ring *, ring_close)
#define CLEANUP_RING CLEANUP(cleanup_ring)

void *ring_free_job(struct ring *r); /* NULL: take one first */
void ring_post(struct ring *r);      /* what ring_free_job() gave */
/* Waits for the oldest one; *ret NULL: there is none. Until the next call it is the caller's. */
int ring_take(struct ring *r, void **ret, struct error *err);

#endif
