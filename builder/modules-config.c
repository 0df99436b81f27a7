/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modprobe.d files in a form that libkmod takes without a word: its configuration reader prints
 * what it does not understand to stderr.
 */
#include <stdio.h>
#include <string.h>

#include "modules-internal.h"
#include "str.h"

/* A copy of the token at *line, which moves behind it; NULL if there is none. */
static char *take_token(const char **line)
{
	const char *start = *line + strspn(*line, " \t");
	size_t length = strcspn(start, " \t");

	*line = start + length;
	return length ? mem_copy(start, length) : NULL;
}

static bool brackets_match(const char *s)
{
	for (; *s; s++) {
		if (*s == ']')
			return false;
		if (*s == '[' && !(s = strchr(s, ']')))
			return false;
	}
	return true;
}

/* Whether libkmod takes the line, and it matters here (options and softdeps do not). */
static bool line_counts(const char *line)
{
	CLEANUP_FREE char *keyword = take_token(&line);
	CLEANUP_FREE char *name = take_token(&line);
	CLEANUP_FREE char *third = take_token(&line);

	if (!keyword || !name || !brackets_match(name))
		return false;
	if (strcmp(keyword, "blacklist") == 0)
		return true;
	if (strcmp(keyword, "install") == 0)
		return third;
	return strcmp(keyword, "alias") == 0 && third && brackets_match(third);
}

/*
 * The lines of a modprobe.d file that libkmod will understand, one per line of text. A
 * backslash takes the meaning from the byte after it, a newline included; so it is written twice.
 */
void modules_write_sound_lines(FILE *out, const char *text, size_t size)
{
	CLEANUP_FREE char *line = mem_alloc(size + 1);
	size_t length = 0;

	for (size_t i = 0; i <= size; i++) {
		bool escaped = i + 1 < size && text[i] == '\\';

		if (escaped)
			i++;
		if (i < size && (escaped || text[i] != '\n')) {
			if (!escaped || text[i] != '\n')
				line[length++] = text[i];
			continue;
		}
		line[length] = '\0';
		length = 0;
		if (!line_counts(line))
			continue;
		for (const char *c = line; *c; c++) {
			if (*c == '\\')
				fputc('\\', out);
			fputc(*c, out);
		}
		fputc('\n', out);
	}
}
