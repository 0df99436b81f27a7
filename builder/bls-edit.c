/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one line that we change in a boot entry. What is written has to be read by both boot loaders,
 * and GRUB reads less: see bls.c.
 */
#include <string.h>

#include "bls.h"
#include "cmdline.h"

#define BLANKS "\t "

/* One line of a text that is not changed: key and what is between it and the value. */
struct span {
	const char *start, *key, *after_key, *value, *end; /* 'end': where the line break is */
	const char *next;
};

static struct span span_at(const char *text)
{
	struct span s = {.start = text, .end = text + strcspn(text, "\r\n")};

	s.key = text + strspn(text, BLANKS);
	s.after_key = s.key + strcspn(s.key, BLANKS "\r\n");
	s.value = s.after_key + strspn(s.after_key, BLANKS);
	s.next = s.end;
	if (*s.next == '\r')
		s.next++;
	if (*s.next == '\n')
		s.next++;
	return s;
}

static bool is_options(const struct span *s)
{
	size_t length = (size_t)(s->after_key - s->key);

	return length == strlen("options") && memcmp(s->key, "options", length) == 0;
}

/* Behind the last line with a key and a value that stands before any line GRUB stops at. */
static struct span last_read(const char *text)
{
	struct span last = {.start = text, .end = text, .next = text};

	while (*text) {
		struct span s = span_at(text);

		text = s.next;
		if (s.key < s.end && *s.key == '#')
			continue;
		if (s.value == s.end)
			break;
		last = s;
	}
	return last;
}

/* Padding stays as it was, but GRUB looks for a blank first: a tab would not end the key. */
static void put_options(FILE *to, const struct span *s, const char *line)
{
	size_t pad = (size_t)(s->value - s->after_key);
	bool keep = pad > 0 && s->value < s->end && !memchr(s->after_key, '\t', pad);

	fwrite(s->start, 1, (size_t)(s->after_key - s->start), to);
	fprintf(to, "%*s%s", keep ? (int)pad : 1, "", line);
	fwrite(s->end, 1, (size_t)(s->next - s->end), to);
}

static void replace_options(FILE *to, const char *text, const char *line)
{
	bool written = !*line;

	while (*text) {
		struct span s = span_at(text);

		text = s.next;
		if (!is_options(&s)) {
			fwrite(s.start, 1, (size_t)(s.next - s.start), to);
		} else if (!written) {
			put_options(to, &s, line);
			written = true;
		}
	}
}

static void insert_options(FILE *to, const char *text, const char *line)
{
	struct span last = last_read(text);
	size_t break_size = (size_t)(last.next - last.end);

	fwrite(text, 1, (size_t)(last.next - text), to);
	if (*line && break_size == 0 && last.next > text)
		fputc('\n', to);
	if (*line)
		fprintf(to, "options %s", line);
	if (*line && break_size > 0)
		fwrite(last.end, 1, break_size, to);
	else if (*line)
		fputc('\n', to);
	fputs(last.next, to);
}

static bool has_options(const char *text)
{
	while (*text) {
		struct span s = span_at(text);

		if (is_options(&s))
			return true;
		text = s.next;
	}
	return false;
}

char *bls_set_options(const char *text, const struct strv *words)
{
	CLEANUP_FREE char *line = cmdline_join(words);
	char *result = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&result, &size);

	if (!to)
		abort(); /* out of memory, as everywhere */
	for (char *c = line; *c; c++)
		if (*c == '\n' || *c == '\r')
			*c = ' ';
	if (has_options(text))
		replace_options(to, text, line);
	else
		insert_options(to, text, line);
	if (fclose(to) != 0)
		abort();
	return result;
}
