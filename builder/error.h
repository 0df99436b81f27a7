/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one error type. What can fail takes 'struct error *err' last and returns 0 or -1; all
 * functions here return -1, so that a failure is one return line. A message says what was
 * attempted, on which path, and why it failed; the hint says what the user can do. Lower
 * case, no full stop, paths in 'quotes'. Only main prints it.
 */
#ifndef GPUIMG_ERROR_H
#define GPUIMG_ERROR_H

/* Exit codes: documented in gpuimg(1), stable. */
enum exit_code {
	EXIT_OK = 0,
	EXIT_BUILD = 1,   /* the job failed on its way */
	EXIT_USAGE = 2,   /* options or configuration file */
	EXIT_HOST = 3,    /* this host lacks something: program, space, permission */
	EXIT_INPUT = 4,   /* the base image or another input was refused */
	EXIT_PROOF = 5,   /* the proof or the boot test failed */
	EXIT_VOID = 6,    /* the boot test proves nothing: its control did not fail */
	EXIT_PUBLISH = 7, /* publish is incomplete; run it again to go on */
};

struct error {
	char *message;
	char *hint;          /* may be NULL */
	enum exit_code code; /* EXIT_OK means: not told, EXIT_BUILD */
};

#define ERROR_INIT                                                                                 \
	{                                                                                          \
		0                                                                                  \
	}

/* Sets the message; an older one is dropped. */
int error_set(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same, with ": " and strerror(errnum) at the end. */
int error_errno(struct error *err, int errnum, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Puts "format: " before the message that is there. */
int error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sets the hint, unless one is there: the deepest cure is the most exact. */
int error_hint(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Sets the exit code, unless one is there. */
int error_code(struct error *err, enum exit_code code);
/* Message, hint and code of another error, which is empty then: for what a thread ran into. */
int error_take(struct error *err, struct error *from);
/* The exit code that a failure with this error ends with; never EXIT_OK. */
enum exit_code error_exit_code(const struct error *err);
struct log;
/* "gpuimg: error: …" and "gpuimg: hint: …" to stderr and to the log (may be NULL). */
void error_print(const struct error *err, struct log *log);
void error_free(struct error *err); /* releases the strings, leaves ERROR_INIT */

/* The analyzer looks at one file at a time and cannot know that these return -1. */
#ifdef __clang_analyzer__
#define error_set(...)    (error_set(__VA_ARGS__), -1)
#define error_errno(...)  (error_errno(__VA_ARGS__), -1)
#define error_prefix(...) (error_prefix(__VA_ARGS__), -1)
#define error_hint(...)   (error_hint(__VA_ARGS__), -1)
#define error_code(...)   (error_code(__VA_ARGS__), -1)
#define error_take(...)   (error_take(__VA_ARGS__), -1)
#endif

#define CLEANUP_ERROR __attribute__((cleanup(error_free)))

#endif
