/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person sees while we work, and the log file that stays. Everything goes to the log
 * file; what the level allows goes to stderr too. stdout belongs to results and is never
 * touched here. On a terminal, the line of the step that runs is drawn anew with its time
 * and a bar; elsewhere a plain line stands at its begin and end. All calls are thread-safe.
 */
#ifndef GPUIMG_LOG_H
#define GPUIMG_LOG_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

struct log;

enum log_level {
	LOG_QUIET,   /* errors only */
	LOG_NORMAL,  /* steps, notes, warnings */
	LOG_VERBOSE, /* also what each step does */
};

/* path: the log file, made anew; NULL for none. Ends the program only if out of memory. */
int log_open(struct log **ret, const char *path, enum log_level level, struct error *err);
void log_close(struct log *log);
const char *log_path(const struct log *log); /* NULL if there is no file */

/*
 * log may be NULL in all of these: then nothing is written. Texts may quote a guest: of their
 * bytes only what prints, and newlines, reach the terminal and the file.
 */
void log_detail(struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_note(struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_warn(struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An error's line: to stderr at every level, also without a log. */
void log_error(struct log *log, const char *mark, const char *text);
/* Raw output of a program, a piece of it: to the file as it is, never to the screen. */
void log_raw(struct log *log, const void *data, size_t size);

/* One step at a time: begin, any number of progress calls, end. */
void log_step_begin(struct log *log, const char *name, const char *what);
/* done in 0..1; negative: unknown. 'detail' (may be NULL) stands behind the bar. */
void log_step_progress(struct log *log, double done, const char *detail);
double log_step_end(struct log *log, bool ok); /* seconds that the step took */

#endif
