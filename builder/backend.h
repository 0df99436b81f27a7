/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where guest code runs and how changes reach the image: the two backends behind one
 * interface. Both work on b->overlay, never on the base.
 */
#ifndef GPUIMG_BACKEND_H
#define GPUIMG_BACKEND_H

#include "build.h"
#include "error.h"

struct backend {
	const char *name; /* "sandbox", "appliance" */
	/* Opens b->root for the stages. */
	int (*open)(struct build *b, struct error *err);
	/* Writes what the stages changed to the overlay, gives free space back, and closes. */
	int (*commit)(struct build *b, struct error *err);
};

extern const struct backend backend_sandbox;
extern const struct backend backend_appliance;

/* --exec=auto: the sandbox where the host can, else the appliance. Sets b->sandbox. */
int backend_choose(const struct backend **ret, struct build *b, struct error *err);

#endif
