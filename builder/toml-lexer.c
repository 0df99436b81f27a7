/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "toml-internal.h"

size_t toml_bom(const char *text)
{
	return str_starts(text, "\xef\xbb\xbf") ? 3 : 0;
}

int toml_check_text(const struct toml_reader *r)
{
	struct toml_reader at = *r;

	while (at.text[at.at]) {
		const unsigned char *s = (const unsigned char *)at.text + at.at;
		size_t length = str_utf8_length(s);

		if (length == 0)
			return toml_refuse(&at, "not UTF-8");
		if (*s == '\n')
			at.line++;
		else if (*s == 0x7f || (*s < ' ' && *s != '\t' && !(*s == '\r' && s[1] == '\n')))
			return toml_refuse(&at, "control character 0x%02x", *s);
		at.at += length;
	}
	return 0;
}

void toml_skip_blanks(struct toml_reader *r)
{
	r->at += strspn(r->text + r->at, " \t");
}

/* Behind a newline, if one stands here. */
static bool skip_newline(struct toml_reader *r)
{
	r->at += r->text[r->at] == '\r';
	if (r->text[r->at] != '\n')
		return false;
	r->at++;
	r->line++;
	return true;
}

static void skip_comment(struct toml_reader *r)
{
	if (r->text[r->at] == '#')
		r->at += strcspn(r->text + r->at, "\r\n");
}

void toml_skip_lines(struct toml_reader *r)
{
	do {
		toml_skip_blanks(r);
		skip_comment(r);
	} while (skip_newline(r));
}

/* Bytes of the line to be shown in a message. */
static int shown(const char *s)
{
	size_t length = strcspn(s, "\r\n");

	return length < 30 ? (int)length : 30;
}

int toml_end_line(struct toml_reader *r)
{
	toml_skip_blanks(r);
	skip_comment(r);
	if (!r->text[r->at] || skip_newline(r))
		return 0;
	return toml_refuse(r, "'%.*s' stands where the line should end", shown(r->text + r->at),
	                   r->text + r->at);
}

bool toml_starts(const struct toml_reader *r, const char *words)
{
	return str_starts(r->text + r->at, words);
}

static int read_key(struct toml_reader *r, char **ret)
{
	const char *bare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
	const char *s = r->text + r->at;
	size_t length = strspn(s, bare);

	if (*s == '"' || *s == '\'')
		return toml_read_string(r, false, ret);
	if (length == 0)
		return toml_refuse(r, "a key is missing before '%.*s'", shown(s), s);
	*ret = mem_copy(s, length);
	r->at += length;
	return 0;
}

int toml_read_keys(struct toml_reader *r, struct strv *ret)
{
	for (;;) {
		CLEANUP_FREE char *key = NULL;

		toml_skip_blanks(r);
		if (read_key(r, &key) < 0)
			return -1;
		strv_take(ret, STEAL(key));
		toml_skip_blanks(r);
		if (ret->count > TOML_MAX_DEPTH)
			return toml_refuse(r, "nested more than %d deep", TOML_MAX_DEPTH);
		if (r->text[r->at] != '.')
			return 0;
		r->at++;
	}
}

#undef toml_refuse /* what the analyzer is told of it */
int toml_refuse(const struct toml_reader *r, const char *format, ...)
{
	CLEANUP_FREE char *why = NULL, *shown = NULL;
	va_list args;

	va_start(args, format);
	why = str_vformat(format, args);
	va_end(args);
	shown = str_printable(why, 300); /* it may quote the file */
	error_set(r->err, "%s: line %d: %s", r->name, r->line, shown);
	return error_code(r->err, EXIT_INPUT);
}
