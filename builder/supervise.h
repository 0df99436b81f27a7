/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work runs in a child; this process only watches over it. It is the reaper of every
 * descendant (QEMU, qemu-nbd, bubblewrap, libguestfs' helpers), ends them all when the work
 * is over, when a signal comes or when the work crashes, and then removes the work directory.
 * If this process itself is killed, the child dies with it (PR_SET_PDEATHSIG).
 */
#ifndef GPUIMG_SUPERVISE_H
#define GPUIMG_SUPERVISE_H

#include "error.h"

struct supervised {
	int (*work)(void *opaque); /* runs in the child; returns the exit code */
	/* Runs here, when no descendant is left; exit_code is negative if the work was ended by
	 * a signal, ours or its own. */
	void (*cleanup)(void *opaque, int exit_code);
	void *opaque;
	unsigned timeout_s; /* 0: none; past it the work is ended like by SIGTERM, and it is told */
};

/* The work's exit code, or 128 + signal where a signal ended it. */
int supervise(const struct supervised *s, struct error *err);

#endif
