/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "toml-internal.h"

struct taker {
	struct toml_reader *r;
	char *to;
	size_t length, room;
};

static void take(struct taker *t, const char *from, size_t length)
{
	if (length == 0)
		return;
	if (t->room - t->length < length) {
		t->room = (t->room + length) * 2;
		t->to = mem_grow(t->to, t->room, 1);
	}
	memcpy(t->to + t->length, from, length);
	t->length += length;
}

/* As it stands; counts lines. */
static void take_byte(struct taker *t)
{
	const char *s = t->r->text + t->r->at;

	t->r->line += *s == '\n';
	take(t, s, 1);
	t->r->at++;
}

/* At most 4 bytes. */
static size_t encode_utf8(char *to, unsigned long c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3f));
		to[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 0x3f));
	to[2] = (char)(0x80 | (c >> 6 & 0x3f));
	to[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* "\\uXXXX" or "\\UXXXXXXXX". */
static int take_code_point(struct taker *t, size_t digits)
{
	const char *s = t->r->text + t->r->at + 2;
	char hex[9] = "", utf8[4];
	unsigned long c;

	if (strspn(s, "0123456789abcdefABCDEF") < digits)
		return toml_refuse(t->r, "'\\%c' without its %zu digits", s[-1], digits);
	memcpy(hex, s, digits);
	c = strtoul(hex, NULL, 16);
	if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return toml_refuse(t->r, "'\\%c%s' is no character", s[-1], hex);
	if (c == 0)
		return toml_refuse(t->r, "a string with a NUL in it");
	take(t, utf8, encode_utf8(utf8, c));
	t->r->at += 2 + digits;
	return 0;
}

static int take_escape(struct taker *t)
{
	static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
	char c = t->r->text[t->r->at + 1];
	const char *known = c ? strchr(from, c) : NULL;

	if (known) {
		take(t, &to[known - from], 1);
		t->r->at += 2;
		return 0;
	}
	if (c == 'u' || c == 'U')
		return take_code_point(t, c == 'u' ? 4 : 8);
	return toml_refuse(t->r, "unknown escape '%.2s'", t->r->text + t->r->at);
}

static int read_one_line(struct taker *t, char quote)
{
	struct toml_reader *r = t->r;

	for (r->at++; r->text[r->at] != quote;) {
		if (!r->text[r->at] || r->text[r->at] == '\r' || r->text[r->at] == '\n')
			return toml_refuse(r, "a string is never closed");
		if (r->text[r->at] != '\\' || quote == '\'')
			take_byte(t);
		else if (take_escape(t) < 0)
			return -1;
	}
	r->at++;
	return 0;
}

/* A backslash at the end of a line: nothing up to the next thing that is not white. */
static bool skip_folded(struct toml_reader *r)
{
	const char *s = r->text + r->at + 1;
	size_t blanks = strspn(s, " \t");

	if (s[blanks] != '\n' && s[blanks] != '\r')
		return false;
	for (r->at++; r->text[r->at] && strchr(" \t\r\n", r->text[r->at]); r->at++)
		r->line += r->text[r->at] == '\n';
	return true;
}

/* Three quotes close; one or two more before them belong to the string. 1: closed. */
static int take_quotes(struct taker *t, char quote)
{
	struct toml_reader *r = t->r;
	size_t count = 0;

	while (r->text[r->at + count] == quote)
		count++;
	if (count > 5)
		return toml_refuse(r, "too many quotes at the end of a string");
	take(t, r->text + r->at, count < 3 ? count : count - 3);
	r->at += count;
	return count >= 3;
}

static int read_lines(struct taker *t, char quote)
{
	struct toml_reader *r = t->r;
	int first_line = r->line, closed = 0;

	r->at += 3;
	r->at += r->text[r->at] == '\r';
	if (r->text[r->at] == '\n') {
		r->at++;
		r->line++;
	}
	while (closed == 0) {
		char c = r->text[r->at];

		if (!c) {
			r->line = first_line;
			return toml_refuse(r, "a string is never closed");
		}
		if (c == quote)
			closed = take_quotes(t, quote);
		else if (c != '\\' || quote == '\'')
			take_byte(t);
		else if (!skip_folded(r) && take_escape(t) < 0)
			return -1;
	}
	return closed < 0 ? -1 : 0;
}

int toml_read_string(struct toml_reader *r, bool may_have_lines, char **ret)
{
	char quote = r->text[r->at];
	bool lines = toml_starts(r, quote == '"' ? "\"\"\"" : "'''");
	struct taker t = {.r = r};
	int rc;

	if (lines && !may_have_lines)
		return toml_refuse(r, "a string of several lines as a key");
	rc = lines ? read_lines(&t, quote) : read_one_line(&t, quote);
	if (rc == 0)
		*ret = mem_copy(t.to ? t.to : "", t.length);
	free(t.to);
	return rc;
}
