/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TAP for unit tests: one line per check, a sentence that says what holds. A test program
 * calls check() any number of times and ends with 'return tap_done();'.
 */
#ifndef GPUIMG_TAP_H
#define GPUIMG_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int tap_count, tap_failures;

__attribute__((format(printf, 4, 5))) static inline bool
tap_check(bool good, const char *file, int line, const char *format, ...)
{
	va_list args;

	printf("%sok %d - ", good ? "" : "not ", ++tap_count);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	if (!good) {
		tap_failures++;
		printf("# at %s:%d\n", file, line);
	}
	fflush(stdout);
	return good;
}

#define check(good, ...) tap_check((good), __FILE__, __LINE__, __VA_ARGS__)

/* Compares two strings (NULL allowed) and shows both where they differ. */
#define check_str(got, want, ...)                                                                  \
	do {                                                                                       \
		const char *got_ = (got), *want_ = (want);                                         \
		bool same_ = got_ == want_ || (got_ && want_ && strcmp(got_, want_) == 0);         \
		if (!tap_check(same_, __FILE__, __LINE__, __VA_ARGS__))                            \
			printf("# got:  %s\n# want: %s\n", got_ ? got_ : "(null)",                 \
			       want_ ? want_ : "(null)");                                          \
	} while (0)

static inline int tap_done(void)
{
	printf("1..%d\n", tap_count);
	return tap_failures ? 1 : 0;
}

#endif
