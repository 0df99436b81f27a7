/* SPDX-License-Identifier: Apache-2.0 */
/* The appliance's own state, for its two files. */
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
	int launched; /* 0: not yet, 1: up, -1: failed */
	unsigned timeout_s;
	struct timespec started;
};

/* "<attempted> in the appliance: <libguestfs' last error>"; returns -1. */
int appliance_error(struct error *err, struct appliance *a, const char *attempted);

#endif
