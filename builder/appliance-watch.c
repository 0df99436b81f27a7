/* SPDX-License-Identifier: Apache-2.0 */
/* The deadline of calls into the appliance: a thread that kills QEMU when one is over. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "appliance-internal.h"

static bool is_over(const struct timespec *until)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec > until->tv_sec ||
	       (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

static void *watchdog_thread(void *opaque)
{
	struct appliance *a = opaque;

	pthread_mutex_lock(&a->lock);
	while (!a->watchdog_ends) {
		if (!a->watch_s)
			pthread_cond_wait(&a->changed, &a->lock);
		else
			pthread_cond_timedwait(&a->changed, &a->lock, &a->watch_until);
		if (!a->watch_s || !is_over(&a->watch_until))
			continue;
		a->silent_s = a->watch_s;
		a->watch_s = 0;
		/* under the lock: after unwatch the number may be somebody else's */
		if (a->qemu > 1)
			kill(a->qemu, SIGKILL);
		a->qemu = 0;
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

int appliance_watchdog_start(struct appliance *a)
{
	a->watchdog_runs = pthread_create(&a->watchdog, NULL, watchdog_thread, a) == 0;
	return a->watchdog_runs ? 0 : -1;
}

void appliance_watchdog_end(struct appliance *a)
{
	if (!a->watchdog_runs)
		return;
	pthread_mutex_lock(&a->lock);
	a->watchdog_ends = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	pthread_join(a->watchdog, NULL);
	a->watchdog_runs = false;
}

void appliance_watch(struct appliance *a, unsigned seconds)
{
	pthread_mutex_lock(&a->lock);
	clock_gettime(CLOCK_MONOTONIC, &a->watch_until);
	a->watch_until.tv_sec += seconds;
	a->watch_s = seconds;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

void appliance_unwatch(struct appliance *a)
{
	pthread_mutex_lock(&a->lock);
	a->watch_s = 0;
	pthread_mutex_unlock(&a->lock);
}

bool appliance_is_silent(struct appliance *a, unsigned *ret_s)
{
	pthread_mutex_lock(&a->lock);
	*ret_s = a->silent_s;
	pthread_mutex_unlock(&a->lock);
	return *ret_s > 0;
}
