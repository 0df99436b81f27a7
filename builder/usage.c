/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include "cleanup.h"
#include "str.h"
#include "usage.h"

#define LOOK_EVERY_S     5
#define DEPTH_MAX        256
#define STAT_BLOCK_BYTES 512 /* of st_blocks, whatever the file system's own are */

struct usage {
	const char *work_dir, *output;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t stop;
	bool stopping;
	uint64_t peak_bytes;
};

/*
 * Guest programs change what is walked here while it is walked: nothing is opened by a path that
 * they could bend, no link is followed, and no other file system entered. Files that go meanwhile
 * are none.
 */
static uint64_t add_up(int dir_fd, const char *name, dev_t device, unsigned depth)
{
	struct stat st;
	uint64_t bytes;
	const struct dirent *entry;
	DIR *dir;
	int fd;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    (depth > 0 && st.st_dev != device))
		return 0;
	bytes = (uint64_t)st.st_blocks * STAT_BLOCK_BYTES;
	if (!S_ISDIR(st.st_mode) || depth > DEPTH_MAX)
		return bytes;
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir) {
		cleanup_close(&fd);
		return bytes;
	}
	while ((entry = readdir(dir)))
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			bytes += add_up(dirfd(dir), entry->d_name, st.st_dev, depth + 1);
	closedir(dir);
	return bytes;
}

uint64_t usage_disk_bytes(const char *path)
{
	return add_up(AT_FDCWD, path, 0, 0);
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
