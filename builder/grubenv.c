/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines are walked as grub_envblk_iterate() does: a name is whatever stands before the next '=',
 * a backslash takes the next byte along, also in comments.
 */
#include <stdbool.h>
#include <string.h>

#include "cleanup.h"
#include "grubenv.h"
#include "str.h"

#define SIGNATURE      "# GRUB Environment Block\n"
#define SIGNATURE_SIZE (sizeof(SIGNATURE) - 1)
#define MAX_BYTES      ((size_t)64 << 10)

struct walk {
	const char *at, *end;
	const char *line, *name_end, *value, *value_end; /* the item that was found */
	bool is_variable;                                /* else a comment, filling, or broken */
	bool is_broken;
};

static bool walk_start(struct walk *w, const void *block, size_t size)
{
	*w = (struct walk){0};
	if (size <= SIGNATURE_SIZE || size > MAX_BYTES ||
	    memcmp(block, SIGNATURE, SIGNATURE_SIZE) != 0)
		return false;
	w->at = (const char *)block + SIGNATURE_SIZE;
	w->end = (const char *)block + size;
	return true;
}

/* Where the line ends that 'at' is in; 'end' if it has none. */
static const char *line_end(const char *at, const char *end)
{
	while (at < end && *at != '\n')
		at += *at == '\\' && end - at > 1 ? 2 : 1;
	return at;
}

/* The next line, or the first part of one that is broken; false at the end. */
static bool walk_next(struct walk *w)
{
	const char *equals;

	if (w->at >= w->end || w->is_broken)
		return false;
	w->line = w->at;
	w->is_variable = *w->at != '#';
	if (!w->is_variable) {
		w->value_end = line_end(w->at, w->end);
	} else {
		equals = memchr(w->at, '=', (size_t)(w->end - w->at));
		w->name_end = equals ? equals : w->end;
		w->value = equals ? equals + 1 : w->end;
		w->value_end = line_end(w->value, w->end);
		w->is_broken = w->value_end == w->end;
	}
	w->at = w->value_end < w->end ? w->value_end + 1 : w->end;
	return !w->is_broken;
}

static bool walk_is(const struct walk *w, const char *name)
{
	size_t length = strlen(name);

	return w->is_variable && (size_t)(w->name_end - w->line) == length &&
	       memcmp(w->line, name, length) == 0;
}

static char *unescaped(const char *at, const char *end)
{
	char *value = mem_alloc((size_t)(end - at) + 1), *to = value;

	for (; at < end; at++) {
		if (*at == '\\' && end - at > 1)
			at++;
		*to++ = *at;
	}
	return value;
}

char *grubenv_get(const void *block, size_t size, const char *name)
{
	char *value = NULL;
	struct walk w;

	if (!walk_start(&w, block, size))
		return NULL;
	while (walk_next(&w)) {
		if (!walk_is(&w, name))
			continue;
		free(value); /* GRUB sets one after the other: the last one stays */
		value = unescaped(w.value, w.value_end);
	}
	return value;
}

static int refuse(struct error *err, const char *why)
{
	error_set(err, "cannot change the GRUB environment block: %s", why);
	return error_code(err, EXIT_INPUT);
}

/* "name=value\n" as the block holds it. */
static char *escaped_line(const char *name, const char *value)
{
	CLEANUP_FREE char *escaped = mem_alloc(2 * strlen(value) + 1);
	char *to = escaped;

	for (; *value; value++) {
		if (*value == '\\' || *value == '\n')
			*to++ = '\\';
		*to++ = *value;
	}
	return str_format("%s=%s\n", name, escaped);
}

/* Behind the last line: only filling follows. NULL: the block does not end as GRUB needs it. */
static const char *text_end(const struct walk *start)
{
	const char *at = start->end;

	while (at[-1] == '#')
		at--;
	return at[-1] == '\n' ? at : NULL;
}

struct output {
	char *at, *end;
	bool is_full;
};

static void put(struct output *out, const char *data, size_t size)
{
	if (size > (size_t)(out->end - out->at)) {
		out->is_full = true;
		return;
	}
	memcpy(out->at, data, size);
	out->at += size;
}

/* All lines with the new one in the place of the first of its name, else at the end. */
static void put_lines(struct output *out, struct walk *w, const char *name, const char *line)
{
	bool written = false;

	while (walk_next(w)) {
		if (!walk_is(w, name)) {
			put(out, w->line, (size_t)(w->at - w->line));
		} else if (!written) {
			put(out, line, strlen(line));
			written = true;
		}
	}
	if (!written)
		put(out, line, strlen(line));
}

int grubenv_set(void **ret, const void *block, size_t size, const char *name, const char *value,
                struct error *err)
{
	CLEANUP_FREE char *line = NULL, *copy = NULL, *now = NULL;
	struct output out;
	struct walk w;

	if (!*name || *name == '#' || strpbrk(name, "=\n\\"))
		return error_set(err, "'%s' cannot be the name of a GRUB variable", name);
	if (!walk_start(&w, block, size))
		return refuse(err, "it does not begin with '# GRUB Environment Block'");
	if (!(w.end = text_end(&w)))
		return refuse(err, "its last line does not end");
	line = escaped_line(name, value);
	copy = mem_alloc(size);
	memset(copy, '#', size);
	memcpy(copy, SIGNATURE, SIGNATURE_SIZE);
	out = (struct output){.at = copy + SIGNATURE_SIZE, .end = copy + size};
	put_lines(&out, &w, name, line);
	if (w.is_broken)
		return refuse(err, "it has a line that is not 'name=value'");
	if (out.is_full) {
		error_set(err,
		          "cannot set '%s' in the GRUB environment block: its %zu bytes do not "
		          "hold %zu more",
		          name, size, strlen(line));
		error_hint(err, "ask for fewer kernel parameters, or shorter ones");
		return error_code(err, EXIT_INPUT);
	}
	now = grubenv_get(copy, size, name);
	if (!str_equal(now, value)) /* a comment that ends in a backslash swallows the next line */
		return refuse(err, "GRUB would not find the variable after its last line");
	*ret = STEAL(copy);
	return 0;
}
