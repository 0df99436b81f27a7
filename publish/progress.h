/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person, or a machine, sees while several locations are served at once: on a terminal one
 * line that is drawn anew, in CI a plain line for each location now and then, with --json an object
 * a line on stdout. All calls are thread-safe.
 */
#ifndef GPUIMG_PUBLISH_PROGRESS_H
#define GPUIMG_PUBLISH_PROGRESS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "builder/error.h"
#include "builder/log.h"

struct progress;
struct progress_row; /* one location's */

/* json: events on stdout. Starts a thread, which progress_free() ends. */
int progress_new(struct progress **ret, struct log *log, bool json, struct error *err);
void progress_free(struct progress *progress);
/* name: "target/location"; copied. The row lives as long as 'progress'. */
struct progress_row *progress_add(struct progress *progress, const char *name);
void progress_bytes(struct progress_row *row, uint64_t done_bytes, uint64_t all_bytes);
void progress_phase(struct progress_row *row, const char *what);
/* The last word on a row: "published", "failed"…, with what belongs to it. */
void progress_end(struct progress_row *row, const char *result, const char *detail);

#endif
