/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "str.h"

static void *need(void *p)
{
	if (!p) {
		fputs("gpuimg: out of memory\n", stderr);
		abort();
	}
	return p;
}

void *mem_alloc(size_t size)
{
	return need(calloc(1, size ? size : 1));
}

void *mem_grow(void *old, size_t count, size_t item_size)
{
	return need(reallocarray(old, count ? count : 1, item_size));
}

void *mem_copy(const void *data, size_t size)
{
	char *copy = mem_alloc(size + 1);

	if (size)
		memcpy(copy, data, size);
	return copy;
}

char *str_copy(const char *s)
{
	return s ? need(strdup(s)) : NULL;
}

char *str_vformat(const char *format, va_list args)
{
	char *s = NULL;

	if (vasprintf(&s, format, args) < 0)
		s = NULL;
	return need(s);
}

char *str_format(const char *format, ...)
{
	va_list args;
	char *s;

	va_start(args, format);
	s = str_vformat(format, args);
	va_end(args);
	return s;
}

bool str_equal(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
	size_t length = strlen(s), tail = strlen(suffix);

	return length >= tail && strcmp(s + length - tail, suffix) == 0;
}

bool str_below(const char *path, const char *dir)
{
	return str_starts(path, dir) && path[strlen(dir)] == '/';
}

char *str_trim(char *s)
{
	char *end;

	while (isspace((unsigned char)*s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char)end[-1]))
		*--end = '\0';
	return s;
}

int str_parse_uint(const char *s, uint64_t max, uint64_t *ret)
{
	char *end;
	uint64_t value;

	if (!isdigit((unsigned char)*s))
		return -1;
	errno = 0;
	value = strtoull(s, &end, 10);
	if (errno || *end || value > max)
		return -1;
	*ret = value;
	return 0;
}

int str_parse_size(const char *s, uint64_t *ret_bytes)
{
	static const char suffixes[] = "KMGT";
	char *end;
	uint64_t value;
	int shift = 0;

	if (!isdigit((unsigned char)*s))
		return -1;
	errno = 0;
	value = strtoull(s, &end, 10);
	if (errno)
		return -1;
	if (*end) {
		const char *suffix = strchr(suffixes, toupper((unsigned char)*end));

		if (!suffix || (end[1] && strcmp(end + 1, "iB") != 0 && strcmp(end + 1, "B") != 0))
			return -1;
		shift = 10 * (int)(suffix - suffixes + 1);
	}
	if (value > (UINT64_MAX >> shift))
		return -1;
	*ret_bytes = value << shift;
	return 0;
}

char *str_size(uint64_t bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
		value /= 1024;
		unit++;
	}
	if (unit == 0)
		return str_format("%" PRIu64 " bytes", bytes);
	return str_format("%.1f %s", value, units[unit]);
}

size_t str_utf8_length(const unsigned char *s)
{
	size_t length = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (s[0] > 0xf4)
		return 0;
	for (size_t i = 1; i < length; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0; /* overlong, a surrogate, beyond U+10FFFF */
	return length;
}

char *str_printable(const char *s, size_t max_length)
{
	size_t length = strnlen(s, max_length), out = 0;
	char *copy = mem_copy(s, length);
	const unsigned char *in = (const unsigned char *)copy;

	for (size_t i = 0; i < length;) {
		size_t n = str_utf8_length(in + i);
		bool control = in[i] < 0x20 || in[i] == 0x7f || (in[i] == 0xc2 && in[i + 1] < 0xa0);

		if (n == 0 || control) {
			i += n ? n : 1;
			copy[out++] = '?';
			continue;
		}
		memmove(copy + out, in + i, n);
		out += n;
		i += n;
	}
	copy[out] = '\0';
	return copy;
}

void strv_take(struct strv *v, char *s)
{
	v->items = mem_grow(v->items, v->count + 2, sizeof(char *));
	v->items[v->count++] = s;
	v->items[v->count] = NULL;
}

void strv_add(struct strv *v, const char *s)
{
	strv_take(v, str_copy(s));
}

void strv_addf(struct strv *v, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	strv_take(v, str_vformat(format, args));
	va_end(args);
}

void strv_add_all(struct strv *v, const struct strv *other)
{
	for (size_t i = 0; i < other->count; i++)
		strv_add(v, other->items[i]);
}

bool strv_has(const struct strv *v, const char *s)
{
	for (size_t i = 0; i < v->count; i++)
		if (strcmp(v->items[i], s) == 0)
			return true;
	return false;
}

void strv_remove(struct strv *v, size_t index)
{
	free(v->items[index]);
	memmove(v->items + index, v->items + index + 1, (v->count - index) * sizeof(char *));
	v->count--;
}

static int compare_items(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

void strv_sort(struct strv *v)
{
	if (v->count > 1)
		qsort(v->items, v->count, sizeof(char *), compare_items);
}

char *strv_join(const struct strv *v, const char *between)
{
	size_t size = 1, gap = strlen(between);
	char *joined, *end;

	for (size_t i = 0; i < v->count; i++)
		size += strlen(v->items[i]) + gap;
	joined = end = mem_alloc(size);
	for (size_t i = 0; i < v->count; i++)
		end = stpcpy(stpcpy(end, i ? between : ""), v->items[i]);
	return joined;
}

struct strv strv_split(const char *s, const char *separators)
{
	struct strv v = {0};

	for (;;) {
		size_t n;

		s += strspn(s, separators);
		if (!*s)
			return v;
		n = strcspn(s, separators);
		strv_take(&v, mem_copy(s, n));
		s += n;
	}
}

void strv_free(struct strv *v)
{
	for (size_t i = 0; i < v->count; i++)
		free(v->items[i]);
	free(v->items);
	*v = (struct strv){0};
}
