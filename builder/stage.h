/* SPDX-License-Identifier: Apache-2.0 */
/* A stage's contract. The table in stages/stages.c gives the order and its reasons. */
#ifndef GPUIMG_STAGE_H
#define GPUIMG_STAGE_H

#include "build.h"
#include "error.h"

struct stage {
	const char *name;    /* as typed in a profile, lower case with dashes */
	const char *summary; /* one line for --help and --plan */

	/* NULL: nothing to do. */
	int (*check)(struct build *b, struct error *err); /* reads the base, no writes */
	/* What apply() will come to, where only the image's own programs can tell (a package
	 * manager): b->root is open, and nothing is changed in it that stays. --plan shows it. */
	int (*plan)(struct build *b, struct error *err);
	int (*apply)(struct build *b, struct error *err); /* changes b->root */
	/* Once all stages were applied: what the image's own programs say of the result, for
	 * verify(), which cannot run them. Changes nothing. */
	int (*observe)(struct build *b, struct error *err);
	/* Reads the exported image back; what does not hold goes to b->findings, an error is
	 * for what could not be read. */
	int (*verify)(struct build *b, struct error *err);
};

extern const struct stage *const stages[]; /* in order, NULL at the end */

#endif
