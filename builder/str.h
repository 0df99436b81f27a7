/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strings and lists of strings. Out of memory ends the program, so nothing here fails.
 * Results are owned by the caller: free(), strv_free().
 */
#ifndef GPUIMG_STR_H
#define GPUIMG_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"

void *mem_alloc(size_t size);                              /* zeroed */
void *mem_grow(void *old, size_t count, size_t item_size); /* realloc, overflow checked */
void *mem_copy(const void *data, size_t size);             /* one NUL more than size */

char *str_copy(const char *s);
char *str_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *str_vformat(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
bool str_equal(const char *a, const char *b); /* NULL is equal to NULL only */
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
/* Whether a path lies below a directory, by their names; "/" has nothing below it here. */
bool str_below(const char *path, const char *dir);
char *str_trim(char *s); /* in place; returns a place inside s */

/* "4G", "512M", "65536": bytes with an optional binary suffix K, M, G, T. 0 or -1. */
int str_parse_size(const char *s, uint64_t *ret_bytes);
/* "1.5 GiB": for people. */
char *str_size(uint64_t bytes);
/* Decimal, whole string, no sign, at most max. 0 or -1. */
int str_parse_uint(const char *s, uint64_t max, uint64_t *ret);
/* Bytes of the well-formed UTF-8 sequence at s, 1 to 4 (RFC 3629: nothing overlong, no surrogate);
 * 0: there is none. 's' ends with a NUL. */
size_t str_utf8_length(const unsigned char *s);
/* Guest text for a terminal or log: control bytes and non-UTF-8 become '?'; length bounded. */
char *str_printable(const char *s, size_t max_length);

/* A list of strings, NULL at its end, so 'items' is an argv. {0} is an empty list. */
struct strv {
	char **items; /* NULL while the list is empty and nothing was ever added */
	size_t count;
};

void strv_add(struct strv *v, const char *s); /* copies */
void strv_addf(struct strv *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
void strv_take(struct strv *v, char *s); /* takes ownership */
void strv_add_all(struct strv *v, const struct strv *other);
bool strv_has(const struct strv *v, const char *s);
void strv_remove(struct strv *v, size_t index);
void strv_sort(struct strv *v);                             /* strcmp order */
char *strv_join(const struct strv *v, const char *between); /* "" for an empty list */
/* Splits at any byte of 'separators'; empty fields are dropped. */
struct strv strv_split(const char *s, const char *separators);
void strv_free(struct strv *v);

#define CLEANUP_STRV __attribute__((cleanup(strv_free)))

#endif
