/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleanup attributes: a variable declared with one of these releases what it owns when it
 * leaves its scope. Initialise at the declaration; every release accepts NULL (or -1).
 * Modules define CLEANUP_<TYPE> of their own beside their type, with DEFINE_CLEANUP.
 */
#ifndef GPUIMG_CLEANUP_H
#define GPUIMG_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CLEANUP(function) __attribute__((cleanup(function)))

/* static inline void cleanup_<name>(type *p): calls 'release(*p)' if *p is not NULL. */
/* NOLINTBEGIN(bugprone-macro-parentheses): a type in parentheses declares nothing */
#define DEFINE_CLEANUP(name, type, release)                                                        \
	static inline void cleanup_##name(type *p)                                                 \
	{                                                                                          \
		if (*p)                                                                            \
			release(*p);                                                               \
	}
/* NOLINTEND(bugprone-macro-parentheses) */

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(const int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

DEFINE_CLEANUP(fclose, FILE *, fclose)

#define CLEANUP_FREE   CLEANUP(cleanup_free)
#define CLEANUP_CLOSE  CLEANUP(cleanup_close)
#define CLEANUP_FCLOSE CLEANUP(cleanup_fclose)

static inline void *steal_ptr(void *p)
{
	void **pp = p;
	void *value = *pp;

	*pp = NULL;
	return value;
}

static inline int steal_fd(int *fd)
{
	int value = *fd;

	*fd = -1;
	return value;
}

/* Give ownership away: yields the pointer and leaves NULL behind. */
#ifdef __cppcheck__ /* which does not parse __typeof__ */
#define STEAL(p) steal_ptr(&(p))
#else
#define STEAL(p) ((__typeof__(p))steal_ptr(&(p)))
#endif

#endif
