/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "default-grub-internal.h"

#define MAX_DEPTH 32 /* of "$(" inside of "$(" */

struct word {
	struct shell_lexer *lexer;
	struct error *err;
	char *to; /* end of the text so far */
	bool expands, quoted;
	size_t quoted_from;
};

int shell_refuse(struct error *err, const char *path, int line, const char *why)
{
	error_set(err, "cannot understand '%s': line %d: %s", path, line, why);
	return error_code(err, EXIT_INPUT);
}

static char peek(const struct shell_lexer *l, size_t ahead)
{
	if ((size_t)(l->end - l->at) <= ahead)
		return '\0';
	return l->at[ahead];
}

static void step(struct shell_lexer *l)
{
	if (l->at < l->end && *l->at++ == '\n')
		l->line++;
}

static void take(struct word *w)
{
	*w->to++ = *w->lexer->at;
	step(w->lexer);
}

static int skip_to(struct word *w, char close, int depth);

static int open_quote(const struct word *w, int line)
{
	return shell_refuse(w->err, w->lexer->path, line, "a quote or bracket is never closed");
}

/* Behind "'…'", text not kept. */
static int skip_single(struct word *w)
{
	struct shell_lexer *l = w->lexer;
	int line = l->line;

	step(l);
	while (l->at < l->end && *l->at != '\'')
		step(l);
	if (l->at == l->end)
		return open_quote(w, line);
	step(l);
	return 0;
}

/* Behind '$…', '$(…)', '${…}' or '`…`': what it gives is known to the shell only. */
static int skip_expansion(struct word *w, int depth)
{
	struct shell_lexer *l = w->lexer;
	bool is_command = *l->at == '`';

	w->expands = true;
	step(l);
	if (is_command)
		return skip_to(w, '`', depth + 1);
	if (peek(l, 0) == '(' || peek(l, 0) == '{') {
		step(l);
		return skip_to(w, l->at[-1] == '(' ? ')' : '}', depth + 1);
	}
	if (peek(l, 0) && strchr("?$!#*@-", peek(l, 0)))
		step(l);
	else
		while (isalnum((unsigned char)peek(l, 0)) || peek(l, 0) == '_')
			step(l);
	return 0;
}

/* Behind 'close', with all that is nested. Only the other expansions and quotes have to be seen. */
static int skip_to(struct word *w, char close, int depth)
{
	struct shell_lexer *l = w->lexer;
	int line = l->line, rc = 0;

	if (depth > MAX_DEPTH)
		return shell_refuse(w->err, l->path, line, "expansions are nested too deeply");
	while (rc == 0 && l->at < l->end && *l->at != close) {
		if (*l->at == '\\') {
			step(l);
			step(l);
		} else if (*l->at == '\'' && close != '"' && close != '}') {
			rc = skip_single(w);
		} else if (*l->at == '"') {
			step(l);
			rc = skip_to(w, '"', depth + 1);
		} else if (*l->at == '$' || (*l->at == '`' && close != '`')) {
			rc = skip_expansion(w, depth);
		} else if (*l->at == '(' && close == ')') {
			step(l);
			rc = skip_to(w, ')', depth + 1);
		} else {
			step(l);
		}
	}
	if (rc < 0)
		return -1;
	if (l->at == l->end)
		return open_quote(w, line);
	step(l);
	return 0;
}

static int single_quoted(struct word *w)
{
	struct shell_lexer *l = w->lexer;
	const char *start = l->at + 1;

	if (skip_single(w) < 0)
		return -1;
	memcpy(w->to, start, (size_t)(l->at - 1 - start));
	w->to += l->at - 1 - start;
	return 0;
}

static int double_quoted(struct word *w)
{
	struct shell_lexer *l = w->lexer;
	int line = l->line;

	step(l);
	while (l->at < l->end && *l->at != '"') {
		if (*l->at == '$' || *l->at == '`') {
			if (skip_expansion(w, 0) < 0)
				return -1;
			continue;
		}
		if (*l->at == '\\' && peek(l, 1) == '\n') {
			step(l);
			step(l);
			continue;
		}
		if (*l->at == '\\' && peek(l, 1) && strchr("$`\"\\", peek(l, 1)))
			step(l);
		take(w);
	}
	if (l->at == l->end)
		return open_quote(w, line);
	step(l);
	return 0;
}

static void escaped(struct word *w)
{
	struct shell_lexer *l = w->lexer;
	bool joins = peek(l, 1) == '\n';

	step(l);
	if (joins)
		step(l);
	else if (l->at < l->end)
		take(w);
}

static void mark_quoted(struct word *w)
{
	if (!w->quoted)
		w->quoted_from = (size_t)(w->to - w->lexer->buffer);
	w->quoted = true;
}

static int word_part(struct word *w)
{
	struct shell_lexer *l = w->lexer;

	if (strchr("'\"\\$`", *l->at))
		mark_quoted(w);
	switch (*l->at) {
	case '\'':
		return single_quoted(w);
	case '"':
		return double_quoted(w);
	case '\\':
		escaped(w);
		return 0;
	case '$':
	case '`':
		return skip_expansion(w, 0);
	case '<':
		if (peek(l, 1) == '<')
			return shell_refuse(w->err, l->path, l->line, "a here-document");
		w->expands = true;
		break;
	case '>':
		w->expands = true;
		break;
	case '~': /* a home, at the begin of a value only */
		w->expands |= w->to > l->buffer && strchr("=:", w->to[-1]);
		break;
	default:
		break;
	}
	take(w);
	return 0;
}

static bool ends_word(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || strchr(";&|()", c);
}

/* Blanks, comments and joined lines; a '#' inside of a word does not come by here. */
static void skip_blanks(struct shell_lexer *l)
{
	while (l->at < l->end) {
		if (*l->at == '#') {
			while (l->at < l->end && *l->at != '\n')
				step(l);
			return;
		}
		if (*l->at == '\\' && peek(l, 1) == '\n')
			step(l);
		else if (*l->at != ' ' && *l->at != '\t')
			return;
		step(l);
	}
}

int shell_next(enum shell_token *ret_token, struct shell_word *ret, struct shell_lexer *lexer,
               struct error *err)
{
	struct word w = {.lexer = lexer, .err = err, .to = lexer->buffer};

	skip_blanks(lexer);
	*ret = (struct shell_word){.start = lexer->at, .line = lexer->line};
	*ret_token = SHELL_WORD;
	if (lexer->at == lexer->end) {
		*ret_token = SHELL_END;
	} else if (ends_word(*lexer->at)) {
		*ret_token = SHELL_OPERATOR;
		step(lexer);
	} else {
		while (lexer->at < lexer->end && !ends_word(*lexer->at))
			if (word_part(&w) < 0)
				return -1;
	}
	*w.to = '\0';
	ret->end = lexer->at;
	ret->text = lexer->buffer;
	ret->quoted_from = w.quoted ? w.quoted_from : (size_t)(w.to - lexer->buffer);
	ret->expands = w.expands;
	return 0;
}
