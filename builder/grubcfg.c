/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recursive descent over GRUB's script language. It follows parser.y, but takes empty blocks,
 * which harm nobody.
 */
#include <stdlib.h>
#include <string.h>

#include "grubcfg-internal.h"

#define MAX_TEXT_BYTES   ((size_t)4 << 20)
#define MAX_DEPTH        64
#define MAX_TITLE_LENGTH 1024

static void parser_free(struct parser *p)
{
	free(p->word);
}

static int parse_list(struct parser *p, struct scope *scope, struct error *err);

static bool at_word(const struct parser *p, const char *word)
{
	return p->type == TOKEN_WORD && p->plain && str_equal(p->word, word);
}

/* A reserved word that ends a list of commands. */
static bool at_list_end(const struct parser *p)
{
	static const char *const words[] = {"then", "elif", "else", "fi", "do", "done"};

	if (p->type == TOKEN_END || p->type == TOKEN_CLOSE)
		return true;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (at_word(p, words[i]))
			return true;
	return false;
}

static int unexpected(const struct parser *p, const char *wanted, int since, struct error *err)
{
	CLEANUP_FREE char *shown = p->type == TOKEN_WORD ? str_printable(p->word, 40) : NULL;
	const char *found = p->type == TOKEN_END         ? "the end of the file"
	                    : p->type == TOKEN_OPEN      ? "{"
	                    : p->type == TOKEN_CLOSE     ? "}"
	                    : p->type == TOKEN_DELIMITER ? "the end of the command"
	                                                 : shown;

	if (since)
		return grubcfg_refuse(p, p->word_line, err, "%s where '%s' should close line %d",
		                      found, wanted, since);
	return grubcfg_refuse(p, p->word_line, err, "%s where %s should stand", found, wanted);
}

/* Steps over a reserved word that must stand here; 'since' is the line it closes. */
static int expect(struct parser *p, const char *word, int since, struct error *err)
{
	if (!at_word(p, word))
		return unexpected(p, word, since, err);
	return grubcfg_advance(p, err);
}

static int parse_block(struct parser *p, struct scope *scope, struct error *err)
{
	int since = p->word_line;

	if (p->type != TOKEN_OPEN)
		return unexpected(p, "'{'", 0, err);
	if (grubcfg_advance(p, err) < 0 || parse_list(p, scope, err) < 0)
		return -1;
	if (p->type != TOKEN_CLOSE)
		return unexpected(p, "}", since, err);
	return grubcfg_advance(p, err);
}

/*
 * The title of a menuentry or submenu: its first word that is neither an option nor the value
 * of one. $menuentry_id_option is "--id" where GRUB knows it.
 */
static const char *entry_title(const struct strv *words)
{
	for (size_t i = 1; i < words->count; i++) {
		const char *word = words->items[i];

		bool option = str_starts(word, "--");
		bool has_value = option && !strchr(word, '=') && !str_equal(word, "--unrestricted");

		if (str_equal(word, "$menuentry_id_option") ||
		    str_equal(word, "${menuentry_id_option}"))
			option = has_value = true;
		if (!option)
			return word;
		i += has_value;
	}
	return "";
}

/* A command with a block: menuentry and submenu open a scope of their own. */
static int parse_entry(struct parser *p, struct scope *scope, const struct strv *words,
                       struct error *err)
{
	CLEANUP_FREE char *title = NULL;
	struct scope inner = {.title = scope->title};
	const char *command = words->items[0];

	if (str_equal(command, "menuentry") || str_equal(command, "submenu")) {
		title = str_format("%s%s%s", scope->title, *scope->title ? ">" : "",
		                   entry_title(words));
		title[strnlen(title, MAX_TITLE_LENGTH)] = '\0';
		inner.title = title;
	}
	return parse_block(p, &inner, err);
}

static int parse_simple(struct parser *p, struct scope *scope, struct error *err)
{
	CLEANUP_STRV struct strv words = {0};
	int line = p->word_line;

	while (p->type == TOKEN_WORD) {
		if (p->plain && (str_equal(p->word, "[[") || str_equal(p->word, "]]")))
			return unexpected(p, "a word", 0, err);
		strv_take(&words, p->word);
		p->word = NULL;
		if (grubcfg_advance(p, err) < 0)
			return -1;
	}
	if (p->type == TOKEN_OPEN)
		return parse_entry(p, scope, &words, err);
	return grubcfg_run_command(p, scope, &words, line, err);
}

/* What holds after either of two ways through an 'if'. */
static void join_scopes(struct scope *scope, const struct scope *other)
{
	scope->xen |= other->xen;
	if (other->first == other->end)
		return;
	if (scope->first == scope->end) {
		scope->first = other->first;
		scope->end = other->end;
		return;
	}
	if (other->first < scope->first)
		scope->first = other->first;
	if (other->end > scope->end)
		scope->end = other->end;
}

static int parse_if(struct parser *p, struct scope *scope, struct error *err)
{
	struct scope joined = {.title = scope->title};
	int since = p->word_line;
	bool has_else = false;

	do {
		struct scope branch;

		has_else = at_word(p, "else");
		if (grubcfg_advance(p, err) < 0)
			return -1;
		if (!has_else &&
		    (parse_list(p, scope, err) < 0 || expect(p, "then", since, err) < 0))
			return -1;
		branch = *scope;
		if (parse_list(p, &branch, err) < 0)
			return -1;
		join_scopes(&joined, &branch);
	} while (!has_else && (at_word(p, "elif") || at_word(p, "else")));
	if (!has_else)
		join_scopes(&joined, scope);
	*scope = joined;
	return expect(p, "fi", since, err);
}

/* while and until; for up to its 'do' is done by the caller. */
static int parse_loop_body(struct parser *p, struct scope *scope, int since, struct error *err)
{
	if (expect(p, "do", since, err) < 0 || parse_list(p, scope, err) < 0)
		return -1;
	return expect(p, "done", since, err);
}

static int parse_while(struct parser *p, struct scope *scope, struct error *err)
{
	int since = p->word_line;

	if (grubcfg_advance(p, err) < 0 || parse_list(p, scope, err) < 0)
		return -1;
	return parse_loop_body(p, scope, since, err);
}

static int skip_delimiters(struct parser *p, struct error *err)
{
	while (p->type == TOKEN_DELIMITER)
		if (grubcfg_advance(p, err) < 0)
			return -1;
	return 0;
}

static int parse_for(struct parser *p, struct scope *scope, struct error *err)
{
	int since = p->word_line;

	if (grubcfg_advance(p, err) < 0)
		return -1;
	if (p->type != TOKEN_WORD)
		return unexpected(p, "the name of a variable", 0, err);
	if (grubcfg_advance(p, err) < 0 || expect(p, "in", since, err) < 0)
		return -1;
	while (p->type == TOKEN_WORD)
		if (grubcfg_advance(p, err) < 0)
			return -1;
	if (p->type != TOKEN_DELIMITER)
		return unexpected(p, "the end of the list", 0, err);
	if (skip_delimiters(p, err) < 0)
		return -1;
	return parse_loop_body(p, scope, since, err);
}

/* A function's commands count as if they stood here: which entry calls it is not followed. */
static int parse_function(struct parser *p, const struct scope *scope, struct error *err)
{
	struct scope inner = {.title = scope->title};

	if (grubcfg_advance(p, err) < 0)
		return -1;
	if (p->type != TOKEN_WORD)
		return unexpected(p, "the name of a function", 0, err);
	if (grubcfg_advance(p, err) < 0 || skip_delimiters(p, err) < 0)
		return -1;
	return parse_block(p, &inner, err);
}

static int parse_command(struct parser *p, struct scope *scope, struct error *err)
{
	if (at_word(p, "if"))
		return parse_if(p, scope, err);
	if (at_word(p, "while") || at_word(p, "until"))
		return parse_while(p, scope, err);
	if (at_word(p, "for"))
		return parse_for(p, scope, err);
	if (at_word(p, "function"))
		return parse_function(p, scope, err);
	if (p->type != TOKEN_WORD || at_word(p, "case") || at_word(p, "esac") || at_word(p, "in") ||
	    at_word(p, "select"))
		return unexpected(p, "a command", 0, err);
	return parse_simple(p, scope, err);
}

/* Commands up to a word or sign that is not ours to take. */
static int parse_list(struct parser *p, struct scope *scope, struct error *err)
{
	if (++p->depth > MAX_DEPTH)
		return grubcfg_refuse(p, p->word_line, err, "more than %d levels", MAX_DEPTH);
	for (;;) {
		if (skip_delimiters(p, err) < 0)
			return -1;
		if (at_list_end(p))
			break;
		if (parse_command(p, scope, err) < 0)
			return -1;
		/* only } may follow a command on its line */
		if (p->type != TOKEN_DELIMITER && p->type != TOKEN_END && p->type != TOKEN_CLOSE)
			return unexpected(p, "a newline or ';'", 0, err);
	}
	p->depth--;
	return 0;
}

/* GRUB reads its configuration without carriage returns. */
static char *without_returns(const char *text)
{
	char *copy = str_copy(text), *out = copy;

	for (const char *in = text; *in; in++)
		if (*in != '\r')
			*out++ = *in;
	*out = '\0';
	return copy;
}

int grubcfg_parse(struct grub_config *ret, const char *text, const char *name, struct error *err)
{
	CLEANUP_GRUBCFG struct grub_config config = {0};
	CLEANUP(parser_free) struct parser p = {.name = name, .line = 1, .config = &config};
	struct scope scope = {.title = ""};
	CLEANUP_FREE char *copy = NULL;

	if (strnlen(text, MAX_TEXT_BYTES + 1) > MAX_TEXT_BYTES) {
		error_set(err, "cannot parse '%s': it is larger than 4 MiB", name);
		return error_code(err, EXIT_INPUT);
	}
	copy = without_returns(text);
	p.at = copy;
	if (grubcfg_advance(&p, err) < 0 || parse_list(&p, &scope, err) < 0)
		return -1;
	if (p.type != TOKEN_END)
		return unexpected(&p, "a command", 0, err);
	*ret = config;
	config = (struct grub_config){0};
	return 0;
}

void grubcfg_free(struct grub_config *config)
{
	for (size_t i = 0; i < config->count; i++) {
		struct grub_entry *entry = &config->entries[i];

		free(entry->title);
		free(entry->kernel);
		strv_free(&entry->initrds);
		strv_free(&entry->args);
	}
	free(config->entries);
	strv_free(&config->sources);
	*config = (struct grub_config){0};
}
