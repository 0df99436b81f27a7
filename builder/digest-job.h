/* SPDX-License-Identifier: Apache-2.0 */
/* The SHA-256 of a file, computed in a thread (or remembered by the cache): beside the work, which
 * reads little of the file. */
#ifndef GPUIMG_DIGEST_JOB_H
#define GPUIMG_DIGEST_JOB_H

#include <pthread.h>
#include <stdatomic.h>

#include "cache.h"
#include "error.h"

struct digest_job {
	struct cache *cache; /* borrowed, as is the path */
	const char *path;    /* NULL: never begun */
	pthread_t thread;
	bool running;
	atomic_bool stop;
	char *hex;
	struct error err;
};

void digest_job_begin(struct digest_job *job, struct cache *cache, const char *path);
/* *ret_hex is the caller's. Of a job that was never begun, nothing is set. */
int digest_job_wait(struct digest_job *job, char **ret_hex, struct error *err);
/* Gives the job up if it still runs; safe to call at any time. */
void digest_job_end(struct digest_job *job);

#endif
