/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "digest-job.h"

static void *digest_thread(void *opaque)
{
	struct digest_job *job = opaque;

	cache_digest_file(job->cache, job->path, &job->stop, &job->hex, &job->err);
	return NULL;
}

void digest_job_begin(struct digest_job *job, struct cache *cache, const char *path)
{
	job->cache = cache;
	job->path = path;
	job->running = pthread_create(&job->thread, NULL, digest_thread, job) == 0;
}

static void join(struct digest_job *job)
{
	if (job->running)
		pthread_join(job->thread, NULL);
	job->running = false;
}

int digest_job_wait(struct digest_job *job, char **ret_hex, struct error *err)
{
	join(job);
	if (!job->path)
		return 0;
	if (!job->hex && !job->err.message) /* no thread could be started */
		digest_thread(job);
	if (job->err.message)
		return error_take(err, &job->err);
	*ret_hex = STEAL(job->hex);
	job->path = NULL;
	return 0;
}

void digest_job_end(struct digest_job *job)
{
	atomic_store(&job->stop, true);
	join(job);
	free(job->hex);
	error_free(&job->err);
}
