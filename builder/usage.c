/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fts.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "str.h"
#include "usage.h"

#define LOOK_EVERY_S     5
#define STAT_BLOCK_BYTES 512 /* of st_blocks, whatever the file system's own are */

struct usage {
	const char *work_dir, *output;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t stop;
	bool stopping;
	uint64_t peak_bytes;
};

uint64_t usage_disk_bytes(const char *path)
{
	char *copy = str_copy(path);
	char *const paths[] = {copy, NULL};
	/* The tree is a guest's: links are not followed, and files that go meanwhile are none. */
	FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	const FTSENT *entry;
	uint64_t bytes = 0;

	while (fts && (entry = fts_read(fts)))
		if (entry->fts_info != FTS_DP && entry->fts_info != FTS_NS &&
		    entry->fts_info != FTS_ERR && entry->fts_info != FTS_DNR)
			bytes += (uint64_t)entry->fts_statp->st_blocks * STAT_BLOCK_BYTES;
	if (fts)
		fts_close(fts);
	free(copy);
	return bytes;
}

void usage_look(struct usage *u)
{
	uint64_t bytes;

	if (!u)
		return;
	bytes = usage_disk_bytes(u->work_dir) + usage_disk_bytes(u->output);
	pthread_mutex_lock(&u->lock);
	if (bytes > u->peak_bytes)
		u->peak_bytes = bytes;
	pthread_mutex_unlock(&u->lock);
}

/* Whether it was told to stop before the time was over. */
static bool wait_for_stop(struct usage *u)
{
	struct timespec until;
	bool stopping;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += LOOK_EVERY_S;
	pthread_mutex_lock(&u->lock);
	while (!u->stopping && pthread_cond_timedwait(&u->stop, &u->lock, &until) != ETIMEDOUT)
		;
	stopping = u->stopping;
	pthread_mutex_unlock(&u->lock);
	return stopping;
}

static void *look_thread(void *opaque)
{
	struct usage *u = opaque;

	while (!wait_for_stop(u))
		usage_look(u);
	return NULL;
}

struct usage *usage_start(const char *work_dir, const char *output)
{
	struct usage *u = mem_alloc(sizeof(*u));

	*u = (struct usage){.work_dir = work_dir,
	                    .output = output,
	                    .lock = PTHREAD_MUTEX_INITIALIZER,
	                    .stop = PTHREAD_COND_INITIALIZER};
	if (pthread_create(&u->thread, NULL, look_thread, u) == 0)
		return u;
	free(u);
	return NULL;
}

void usage_stop(struct usage *u)
{
	if (!u)
		return;
	pthread_mutex_lock(&u->lock);
	u->stopping = true;
	pthread_cond_signal(&u->stop);
	pthread_mutex_unlock(&u->lock);
	pthread_join(u->thread, NULL);
	free(u);
}

uint64_t usage_peak_disk_bytes(struct usage *u)
{
	uint64_t bytes;

	if (!u)
		return 0;
	pthread_mutex_lock(&u->lock);
	bytes = u->peak_bytes;
	pthread_mutex_unlock(&u->lock);
	return bytes;
}

uint64_t usage_peak_memory_bytes(void)
{
	struct rusage own;

	return getrusage(RUSAGE_SELF, &own) < 0 ? 0 : (uint64_t)own.ru_maxrss * 1024;
}
