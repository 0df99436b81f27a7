/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file is walked command by command, as far as it takes to know which assignment of the name
 * comes last and whether it always happens. What could change the value in a way we do not follow
 * (an 'if' around it, "[ … ] && NAME=…", another file that is read) is remembered, and is an error
 * unless a plain assignment comes later.
 */
#include <string.h>

#include "default-grub.h"
#include "default-grub-internal.h"

#define MAX_TEXT_BYTES  ((size_t)1 << 20)
#define MAX_OPEN        64
#define MAX_VALUE_BYTES ((size_t)16 << 10) /* what cmdline_split() looks at */

enum position {
	AT_COMMAND,      /* nothing but keywords yet */
	AT_ASSIGNMENTS,  /* only assignments so far, which last if no command follows them */
	AT_DECLARATIONS, /* behind export or readonly */
	AT_ARGUMENTS,    /* of another command */
};

struct reading {
	const char *name, *path;
	char *value;             /* of the last assignment; NULL: none yet */
	const char *start, *end; /* where it stands, "NAME=" too */
	int line;
	int doubt_line; /* something we do not follow, or 0 */
	const char *doubt;
	enum position position;
	bool assigned;       /* by this command */
	bool joined;         /* this command stands behind &, && , | or || */
	char open[MAX_OPEN]; /* 'k' (if, a loop, braces), 'c' (case) or '(' around it */
	size_t open_count;
	bool was_operator; /* the last token */
};

static void reading_free(struct reading *r)
{
	free(r->value);
}

static void doubt(struct reading *r, int line, const char *why)
{
	if (r->doubt_line)
		return;
	r->doubt_line = line;
	r->doubt = why;
}

static bool is_one_of(const char *word, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(word, *list) == 0)
			return true;
	return false;
}

/* Bytes of "NAME=" or "NAME+=" that the word begins with, or 0. */
static size_t assignment(const char *text, const char *name)
{
	size_t length = strlen(name);

	if (strncmp(text, name, length) != 0)
		return 0;
	text += length;
	if (text[0] == '=')
		return length + 1;
	return text[0] == '+' && text[1] == '=' ? length + 2 : 0;
}

/* Bytes of any "name=" or "name+=" that is not quoted, or 0. */
static size_t any_assignment(const struct shell_word *w)
{
	size_t length =
		strspn(w->text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

	if (length == 0 || (*w->text >= '0' && *w->text <= '9'))
		return 0;
	if (w->text[length] == '+')
		length++;
	return length < w->quoted_from && w->text[length] == '=' ? length + 1 : 0;
}

static bool is_nested(const struct reading *r)
{
	return r->open_count > 0 || r->joined;
}

/* Deeper than MAX_OPEN, what closes is counted less often than what opens: still nested. */
static void open_part(struct reading *r, char kind)
{
	if (r->open_count < MAX_OPEN)
		r->open[r->open_count++] = kind;
}

/* The bracket behind a pattern of 'case' closes nothing. */
static void close_part(struct reading *r, char kind)
{
	if (r->open_count > 0 && r->open_count < MAX_OPEN && r->open[r->open_count - 1] == kind)
		r->open_count--;
}

static void assign(struct reading *r, const struct shell_word *w, size_t prefix)
{
	bool adds = w->text[prefix - 2] == '+';
	bool is_long = adds && r->value && strlen(r->value) > MAX_VALUE_BYTES;
	char *value = str_format("%s%s", adds && r->value ? r->value : "",
	                         is_long ? "" : w->text + prefix);

	free(r->value);
	r->value = value;
	r->start = w->start;
	r->end = w->end;
	r->line = w->line;
	r->assigned = true;
	if (!adds && !is_nested(r))
		r->doubt_line = 0;
	if (w->expands)
		doubt(r, w->line, "the value has an expansion, a command or a redirection");
	if (is_nested(r))
		doubt(r, w->line, "it is set under a condition, or in a part of its own");
}

/* "export NAME" changes nothing; "unset NAME", "read NAME" or 'eval "NAME=…"' do. */
static void argument(struct reading *r, const struct shell_word *w)
{
	if (strcmp(w->text, r->name) == 0 || assignment(w->text, r->name))
		doubt(r, w->line, "a command that can set it");
}

static void command(struct reading *r, const struct shell_word *w)
{
	static const char *const go_on[] = {"elif", "then", "else", "do", "!", NULL};
	static const char *const opens[] = {"if", "while", "until", "{", NULL};
	static const char *const closes[] = {"fi", "done", "}", NULL};
	static const char *const declares[] = {"export", "readonly", NULL};
	static const char *const reads[] = {".", "source", "eval", NULL};

	if (is_one_of(w->text, go_on))
		return;
	if (is_one_of(w->text, opens)) {
		open_part(r, 'k');
		return;
	}
	r->position = AT_ARGUMENTS;
	if (is_one_of(w->text, declares)) {
		r->position = AT_DECLARATIONS;
	} else if (strcmp(w->text, "for") == 0) {
		open_part(r, 'k');
	} else if (strcmp(w->text, "case") == 0) {
		open_part(r, 'c');
	} else if (is_one_of(w->text, closes)) {
		close_part(r, 'k');
	} else if (strcmp(w->text, "esac") == 0) {
		close_part(r, 'c');
	} else if (is_one_of(w->text, reads)) {
		doubt(r, w->line, "what another file or text sets is not known");
	} else {
		argument(r, w);
	}
}

static void word(struct reading *r, const struct shell_word *w)
{
	size_t prefix = any_assignment(w);

	r->was_operator = false;
	if (r->position == AT_ARGUMENTS) {
		argument(r, w);
		return;
	}
	if (prefix > 0) {
		if (r->position == AT_COMMAND)
			r->position = AT_ASSIGNMENTS;
		if (assignment(w->text, r->name) == prefix)
			assign(r, w, prefix);
		return;
	}
	if (r->position == AT_DECLARATIONS)
		return;
	if (r->position == AT_ASSIGNMENTS && r->assigned)
		doubt(r, w->line, "it is set for one command only");
	command(r, w);
}

static void operator(struct reading *r, const struct shell_word *w)
{
	char byte = *w->start;

	if (r->assigned && (byte == '&' || byte == '|' || byte == '('))
		doubt(r, w->line, "it is set in a list of commands, or as an array");
	r->joined = byte == '&' || byte == '|' || (byte == '\n' && r->joined && r->was_operator);
	if (byte == '(')
		open_part(r, '(');
	else if (byte == ')')
		close_part(r, '(');
	r->position = AT_COMMAND;
	r->assigned = false;
	r->was_operator = true;
}

static int read_file(struct reading *r, const char *text, struct error *err)
{
	size_t size = strnlen(text, MAX_TEXT_BYTES + 1);
	CLEANUP_FREE char *buffer = mem_alloc(size + 1);
	struct shell_lexer lexer = {text, text + size, r->path, 1, buffer};
	enum shell_token token = SHELL_END;
	struct shell_word w;

	if (size > MAX_TEXT_BYTES)
		return shell_refuse(err, r->path, 1, "the file is larger than 1 MiB");
	do {
		if (shell_next(&token, &w, &lexer, err) < 0)
			return -1;
		if (token == SHELL_WORD)
			word(r, &w);
		else if (token == SHELL_OPERATOR)
			operator(r, &w);
	} while (token != SHELL_END);
	return 0;
}

/* The value in effect, or none at all (NULL). */
static int read_last(struct reading *r, const char *text, struct error *err)
{
	if (read_file(r, text, err) < 0)
		return -1;
	if (r->value && strlen(r->value) > MAX_VALUE_BYTES && !r->doubt_line)
		doubt(r, 1, "the value is longer than 16 KiB");
	if (!r->doubt_line)
		return 0;
	error_set(err, "cannot tell what '%s' gives '%s': line %d: %s", r->path, r->name,
	          r->doubt_line, r->doubt);
	error_hint(err, "write the words themselves, as %s=\"…\" on a line of its own", r->name);
	return error_code(err, EXIT_INPUT);
}

int default_grub_get(struct strv *ret, const char *text, const char *name, const char *path,
                     struct error *err)
{
	CLEANUP(reading_free) struct reading r = {.name = name, .path = path};

	if (read_last(&r, text, err) < 0)
		return -1;
	*ret = cmdline_split(r.value ? r.value : "");
	return 0;
}

static char *quoted(const char *name, const struct strv *words)
{
	CLEANUP_FREE char *line = cmdline_join(words);
	CLEANUP_FREE char *escaped = mem_alloc(2 * strlen(line) + 1);
	char *to = escaped;

	for (const char *c = line; *c; c++) {
		if (strchr("\"$`\\", *c))
			*to++ = '\\';
		*to++ = *c;
	}
	return str_format("%s=\"%s\"", name, escaped);
}

/* A line that ends in a backslash, in whatever way, would take the new one along. */
static char *appended(const char *text, const char *line)
{
	const char *gap = "";

	if (str_ends(text, "\\"))
		gap = "\n\n";
	else if (str_ends(text, "\\\n") || (*text && !str_ends(text, "\n")))
		gap = "\n";
	return str_format("%s%s%s\n", text, gap, line);
}

static bool same_words(const struct strv *a, const struct strv *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (strcmp(a->items[i], b->items[i]) != 0)
			return false;
	return true;
}

int default_grub_edit(char **ret, const char *text, const char *name,
                      const struct cmdline_edit *edit, const char *path, struct error *err)
{
	CLEANUP(reading_free) struct reading r = {.name = name, .path = path, .line = 1};
	CLEANUP_STRV struct strv was = {0}, words = {0}, now = {0};
	CLEANUP_FREE char *line = NULL, *result = NULL;

	if (read_last(&r, text, err) < 0)
		return -1;
	was = cmdline_split(r.value ? r.value : "");
	strv_add_all(&words, &was);
	cmdline_apply(&words, edit);
	if (same_words(&words, &was)) {
		*ret = str_copy(text);
		return 0;
	}
	line = quoted(name, &words);
	result = r.value ? str_format("%.*s%s%s", (int)(r.start - text), text, line, r.end)
	                 : appended(text, line);
	if (default_grub_get(&now, result, name, path, err) < 0)
		return error_prefix(err, "cannot edit '%s'", path);
	if (!same_words(&now, &words))
		return shell_refuse(err, path, r.line,
		                    "the double quotes of its parameters are not in pairs");
	*ret = STEAL(result);
	return 0;
}
