/* SPDX-License-Identifier: Apache-2.0 */
/* The appliance's own state, for its files. */
#ifndef GPUIMG_APPLIANCE_INTERNAL_H
#define GPUIMG_APPLIANCE_INTERNAL_H

#include <guestfs.h>
#include <pthread.h>
#include <time.h>

#include "accel.h"
#include "appliance.h"

struct appliance {
	guestfs_h *g;
	struct log *log;
	pthread_t thread;
	bool thread_runs;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int launched;       /* 0: not yet, 1: up, -1: failed */
	char *launch_error; /* libguestfs keeps the last error for each thread */
	pid_t qemu;
	unsigned timeout_s;
	struct timespec started;

	/* The watchdog's, under 'lock'. */
	pthread_t watchdog;
	bool watchdog_runs, watchdog_ends;
	unsigned watch_s; /* 0: no call is watched */
	struct timespec watch_until;
	unsigned silent_s; /* set once: a call took longer than this, and QEMU was killed */
};

/* "<attempted> in the appliance: <libguestfs' last error>"; returns -1. */
int appliance_error(struct error *err, struct appliance *a, const char *attempted);

/* What the appliance calls it: the image is its first disk. Owned by the caller. */
char *appliance_device(const struct volume *volume);
int appliance_mount_options(struct appliance *a, const struct volume *volume, const char *options,
                            const char *path, struct error *err);

/* A call's deadline; the others are with their calls. */
#define APPLIANCE_MOUNT_S 120

/*
 * appliance-watch.c: libguestfs' calls know no deadline. What stands between watch and unwatch
 * has this many seconds together; then QEMU is killed, and the call fails.
 */
int appliance_watchdog_start(struct appliance *a);
void appliance_watchdog_end(struct appliance *a);
void appliance_watch(struct appliance *a, unsigned seconds);
void appliance_unwatch(struct appliance *a);
/* Whether a call took too long: then the appliance is no more. *ret_s is how long it had. */
bool appliance_is_silent(struct appliance *a, unsigned *ret_s);

#endif
