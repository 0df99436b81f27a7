/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lexer of GRUB's script language. It follows yylex.l: { and } end a word wherever they
 * stand unquoted, a word is reserved only as a whole and unquoted.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "grubcfg-internal.h"

int grubcfg_refuse(const struct parser *p, int line, struct error *err, const char *format, ...)
{
	CLEANUP_FREE char *why = NULL;
	va_list args;

	va_start(args, format);
	why = str_vformat(format, args);
	va_end(args);
	error_set(err, "cannot parse '%s': line %d: %s", p->name, line, why);
	error_hint(err, "run grub-script-check on it; update-grub makes it anew");
	return error_code(err, EXIT_INPUT);
}

/* A word on its way; never longer than the rest of the text. */
struct buffer {
	char *data;
	size_t length, room;
};

static void buffer_free(struct buffer *b)
{
	free(b->data);
}

static void put(struct buffer *b, char c)
{
	if (b->length + 1 >= b->room) {
		b->room = b->room ? b->room * 2 : 64;
		b->data = mem_grow(b->data, b->room, 1);
	}
	b->data[b->length++] = c;
	b->data[b->length] = '\0';
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

static bool ends_word(char c)
{
	return !c || is_blank(c) || strchr("\n{}|&;<>", c);
}

static bool is_name_char(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* The length of the variable that stands at s ("$name", "${name}", "$1", "$?"), 0 if none. */
static size_t variable_length(const char *s)
{
	bool braces = s[1] == '{';
	const char *name = s + 1 + braces;
	size_t n = 0;

	if (*name && strchr("?#*@", *name))
		n = 1;
	else if (isdigit((unsigned char)*name))
		n = strspn(name, "0123456789");
	else
		while (is_name_char(name[n]))
			n++;
	if (!n || (braces && name[n] != '}'))
		return 0;
	return 1 + n + 2 * (size_t)braces;
}

/* A '$' at p->at: the variable is kept as it stands. */
static int lex_variable(struct parser *p, struct buffer *b, struct error *err)
{
	size_t n = variable_length(p->at);

	if (!n)
		return grubcfg_refuse(p, p->line, err, "'$' without the name of a variable");
	while (n--)
		put(b, *p->at++);
	return 0;
}

static int lex_single_quotes(struct parser *p, struct buffer *b, struct error *err)
{
	int line = p->line;

	for (p->at++; *p->at != '\''; p->at++) {
		if (!*p->at)
			return grubcfg_refuse(p, line, err, "the quote ' is not closed");
		if (*p->at == '\n')
			p->line++;
		put(b, *p->at);
	}
	p->at++;
	return 0;
}

/* A backslash between double quotes: GRUB takes it off before $ \ " and a newline only. */
static void lex_quoted_escape(struct parser *p, struct buffer *b)
{
	char next = p->at[1];

	if (next == '\n') {
		p->line++;
		p->at += 2;
		return;
	}
	if (next != '$' && next != '\\' && next != '"')
		put(b, '\\');
	p->at++;
	if (next)
		put(b, *p->at++);
}

static int lex_double_quotes(struct parser *p, struct buffer *b, bool expands, struct error *err)
{
	int line = p->line;

	p->at++;
	while (*p->at != '"') {
		if (!*p->at)
			return grubcfg_refuse(p, line, err, "the quote \" is not closed");
		if (*p->at == '\\') {
			lex_quoted_escape(p, b);
			continue;
		}
		if (*p->at == '$' && expands) {
			if (lex_variable(p, b, err) < 0)
				return -1;
			continue;
		}
		if (*p->at == '\n')
			p->line++;
		put(b, *p->at++);
	}
	p->at++;
	return 0;
}

/* One piece of a word: a quoted string, an escape, a variable or a byte. */
static int lex_piece(struct parser *p, struct buffer *b, struct error *err)
{
	bool translated = p->at[0] == '$' && p->at[1] == '"';

	if (*p->at == '\'' || *p->at == '"' || *p->at == '\\' || *p->at == '$')
		p->plain = false;
	if (*p->at == '\'')
		return lex_single_quotes(p, b, err);
	if (*p->at == '"' || translated) {
		p->at += translated;
		return lex_double_quotes(p, b, !translated, err);
	}
	if (*p->at == '$')
		return lex_variable(p, b, err);
	if (*p->at == '\\') {
		p->at++;
		if (!*p->at)
			return grubcfg_refuse(p, p->line, err,
			                      "a backslash stands at the end of the file");
		if (*p->at == '\n') {
			p->line++;
			p->at++;
			return 0;
		}
	}
	put(b, *p->at++);
	return 0;
}

static int lex_word(struct parser *p, struct error *err)
{
	CLEANUP(buffer_free) struct buffer b = {0};

	p->type = TOKEN_WORD;
	p->plain = true;
	p->word_line = p->line;
	while (!ends_word(*p->at))
		if (lex_piece(p, &b, err) < 0)
			return -1;
	p->word = mem_copy(b.data ? b.data : "", b.length);
	return 0;
}

static void skip_blanks(struct parser *p)
{
	for (;;) {
		if (is_blank(*p->at)) {
			p->at++;
		} else if (p->at[0] == '\\' && p->at[1] == '\n') {
			p->at += 2;
			p->line++;
		} else if (*p->at == '#') {
			p->at += strcspn(p->at, "\n");
		} else {
			return;
		}
	}
}

int grubcfg_advance(struct parser *p, struct error *err)
{
	char c;

	free(p->word);
	p->word = NULL;
	skip_blanks(p);
	p->word_line = p->line;
	c = *p->at;
	if (!c) {
		p->type = TOKEN_END;
		return 0;
	}
	if (!ends_word(c))
		return lex_word(p, err);
	if (strchr("|&<>", c) || (c == ';' && p->at[1] == ';'))
		return grubcfg_refuse(p, p->line, err, "GRUB's scripts have no '%c'", c);
	p->at++;
	p->type = c == '{' ? TOKEN_OPEN : c == '}' ? TOKEN_CLOSE : TOKEN_DELIMITER;
	if (c == '\n')
		p->line++;
	return 0;
}
