/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lexer and a recursive descent over GRUB's script language. The lexer follows yylex.l: { and
 * } end a word wherever they stand unquoted, a word is reserved only as a whole and unquoted.
 * The descent follows parser.y, but takes empty blocks, which harm nobody.
 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "grubcfg.h"

#define MAX_TEXT_BYTES   ((size_t)4 << 20)
#define MAX_DEPTH        64
#define MAX_ENTRIES      4096
#define MAX_INITRDS      16384 /* of all entries together: one command may serve many */
#define MAX_PATH_LENGTH  4096
#define MAX_ARGS_LENGTH  16384 /* no kernel reads more than 4096 */
#define MAX_TITLE_LENGTH 1024

enum token_type {
	TOKEN_END,
	TOKEN_WORD,
	TOKEN_DELIMITER, /* newline or ; */
	TOKEN_OPEN,      /* { */
	TOKEN_CLOSE,     /* } */
};

/* Where a linux command belongs, and which entries the next initrd command serves. */
struct scope {
	const char *title;
	size_t first, end; /* those entries; several after an 'if', none if both are equal */
	bool xen;          /* a hypervisor was loaded and waits for its kernel */
};

struct parser {
	const char *at;
	const char *name;
	struct grub_config *config;
	size_t initrd_count;
	int line;
	int depth;

	/* the token in hand */
	enum token_type type;
	char *word; /* unquoted */
	bool plain; /* nothing in it was quoted: may be a reserved word */
	int word_line;
};

static void parser_free(struct parser *p)
{
	free(p->word);
}

static int parse_list(struct parser *p, struct scope *scope, struct error *err);

__attribute__((format(printf, 4, 5))) static int refuse(const struct parser *p, int line,
                                                        struct error *err, const char *format, ...)
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

/* ---- words ---- */

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
		return refuse(p, p->line, err, "'$' without the name of a variable");
	while (n--)
		put(b, *p->at++);
	return 0;
}

static int lex_single_quotes(struct parser *p, struct buffer *b, struct error *err)
{
	int line = p->line;

	for (p->at++; *p->at != '\''; p->at++) {
		if (!*p->at)
			return refuse(p, line, err, "the quote ' is not closed");
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
			return refuse(p, line, err, "the quote \" is not closed");
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
			return refuse(p, p->line, err, "a backslash stands at the end of the file");
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

/* Takes the next token in hand. */
static int advance(struct parser *p, struct error *err)
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
		return refuse(p, p->line, err, "GRUB's scripts have no '%c'", c);
	p->at++;
	p->type = c == '{' ? TOKEN_OPEN : c == '}' ? TOKEN_CLOSE : TOKEN_DELIMITER;
	if (c == '\n')
		p->line++;
	return 0;
}

/* ---- what the commands mean ---- */

static bool is_recovery(const struct strv *args)
{
	return strv_has(args, "single") || strv_has(args, "recovery") || strv_has(args, "rescue");
}

/* "linux", "linuxefi", "linux16", and names chosen at boot: "$linux", "linux$efi". */
static bool is_loader(const char *command, const char *base)
{
	size_t skip = strspn(command, "${"), length = strlen(base);
	const char *rest;

	if (strncmp(command + skip, base, length) != 0)
		return false;
	rest = command + skip + length;
	if (skip)
		return !*rest || str_equal(rest, "}");
	return !*rest || str_equal(rest, "efi") || str_equal(rest, "16") || *rest == '$';
}

/* GRUB's root device says nothing that the path alone does not. */
static const char *path_of(const char *word)
{
	if (str_starts(word, "($root)"))
		return word + strlen("($root)");
	if (str_starts(word, "(${root})"))
		return word + strlen("(${root})");
	return word;
}

static int check_lengths(const struct parser *p, const struct strv *words, int line,
                         struct error *err)
{
	size_t total = 0;

	for (size_t i = 0; i < words->count; i++)
		total += strlen(words->items[i]) + 1;
	if (total > MAX_ARGS_LENGTH)
		return refuse(p, line, err, "the command is longer than %d bytes", MAX_ARGS_LENGTH);
	return 0;
}

/* words[at] is the kernel, its arguments follow. */
static int add_entry(struct parser *p, struct scope *scope, const struct strv *words, size_t at,
                     int line, struct error *err)
{
	struct grub_config *config = p->config;
	struct grub_entry *entry;

	if (at >= words->count)
		return 0; /* GRUB would say "filename expected" and boot nothing */
	if (config->count >= MAX_ENTRIES)
		return refuse(p, line, err, "more than %d boot entries", MAX_ENTRIES);
	if (check_lengths(p, words, line, err) < 0)
		return -1;
	config->entries = mem_grow(config->entries, config->count + 1, sizeof(*config->entries));
	entry = &config->entries[config->count];
	*entry = (struct grub_entry){.line = line};
	entry->title = str_copy(scope->title);
	entry->kernel = str_copy(path_of(words->items[at]));
	for (size_t i = at + 1; i < words->count; i++)
		if (*words->items[i])
			strv_add(&entry->args, words->items[i]);
	entry->recovery = is_recovery(&entry->args);
	scope->first = config->count++;
	scope->end = config->count;
	return 0;
}

/* "newc:name:path" puts a file into the initramfs under a name. */
static const char *initrd_path(const char *word)
{
	const char *path = str_starts(word, "newc:") ? strchr(word + 5, ':') : NULL;

	return path_of(path ? path + 1 : word);
}

static int add_initrd(struct parser *p, const struct scope *scope, const char *word, int line,
                      struct error *err)
{
	const char *path = initrd_path(word);

	if (str_starts(word, "--") || !*path)
		return 0;
	if (strlen(path) > MAX_PATH_LENGTH)
		return refuse(p, line, err, "a path is longer than %d bytes", MAX_PATH_LENGTH);
	for (size_t i = scope->first; i < scope->end; i++) {
		if (p->initrd_count++ >= MAX_INITRDS)
			return refuse(p, line, err, "more than %d initrd images", MAX_INITRDS);
		strv_add(&p->config->entries[i].initrds, path);
	}
	return 0;
}

static int add_initrds(struct parser *p, const struct scope *scope, const struct strv *words,
                       int line, struct error *err)
{
	for (size_t i = 1; i < words->count; i++)
		if (add_initrd(p, scope, words->items[i], line, err) < 0)
			return -1;
	return 0;
}

static bool is_xen(const char *path)
{
	const char *slash = strrchr(path, '/');

	return str_starts(slash ? slash + 1 : path, "xen");
}

/* Index of the first word after the options of a command. */
static size_t first_operand(const struct strv *words)
{
	size_t i = 1;

	while (i < words->count && str_starts(words->items[i], "--"))
		i++;
	return i;
}

/* The first module of a Xen hypervisor is the kernel, what follows is its initrd. */
static int add_module(struct parser *p, struct scope *scope, const struct strv *words, int line,
                      struct error *err)
{
	size_t at = first_operand(words);
	struct strv *args;

	if (!scope->xen)
		return scope->first < scope->end && p->config->entries[scope->first].xen
		               ? add_initrds(p, scope, words, line, err)
		               : 0;
	scope->xen = false;
	if (at >= words->count)
		return 0;
	if (add_entry(p, scope, words, at, line, err) < 0)
		return -1;
	p->config->entries[scope->first].xen = true;
	/* 20_linux_xen puts this where multiboot had the name of the file */
	args = &p->config->entries[scope->first].args;
	if (args->count && str_equal(args->items[0], "placeholder"))
		strv_remove(args, 0);
	return 0;
}

static bool is_module(const char *command)
{
	return str_equal(command, "module") || str_equal(command, "module2") ||
	       str_equal(command, "xen_module");
}

static bool is_hypervisor(const char *command)
{
	return str_equal(command, "multiboot") || str_equal(command, "multiboot2") ||
	       str_equal(command, "xen_hypervisor");
}

static void note_chainloader(struct grub_config *config, const struct strv *words)
{
	for (size_t i = 1; i < words->count; i++) {
		const char *word = words->items[i];

		if (strcasestr(word, "/EFI/Linux/") && strlen(word) > 4 &&
		    strcasecmp(word + strlen(word) - 4, ".efi") == 0)
			config->loads_uki = true;
	}
}

/* Commands that load configuration from elsewhere. */
static void note_elsewhere(struct grub_config *config, const struct strv *words)
{
	const char *command = words->items[0];

	if (str_equal(command, "blscfg"))
		config->loads_blscfg = true;
	else if (str_equal(command, "uki"))
		config->loads_uki = true;
	else if (str_equal(command, "chainloader"))
		note_chainloader(config, words);
	else if (words->count > 1 && (str_equal(command, "source") || str_equal(command, ".") ||
	                              str_equal(command, "configfile")))
		strv_add(&config->sources, words->items[1]);
}

static int run_command(struct parser *p, struct scope *scope, const struct strv *words, int line,
                       struct error *err)
{
	const char *command = words->items[0];

	if (is_loader(command, "linux"))
		return add_entry(p, scope, words, first_operand(words), line, err);
	if (is_loader(command, "initrd"))
		return add_initrds(p, scope, words, line, err);
	if (is_module(command))
		return add_module(p, scope, words, line, err);
	if (is_hypervisor(command)) {
		size_t at = first_operand(words);

		scope->xen = at < words->count && is_xen(words->items[at]);
	}
	note_elsewhere(p->config, words);
	return 0;
}

/* ---- the grammar ---- */

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
		return refuse(p, p->word_line, err, "%s where '%s' should close line %d", found,
		              wanted, since);
	return refuse(p, p->word_line, err, "%s where %s should stand", found, wanted);
}

/* Steps over a reserved word that must stand here; 'since' is the line it closes. */
static int expect(struct parser *p, const char *word, int since, struct error *err)
{
	if (!at_word(p, word))
		return unexpected(p, word, since, err);
	return advance(p, err);
}

static int parse_block(struct parser *p, struct scope *scope, struct error *err)
{
	int since = p->word_line;

	if (p->type != TOKEN_OPEN)
		return unexpected(p, "'{'", 0, err);
	if (advance(p, err) < 0 || parse_list(p, scope, err) < 0)
		return -1;
	if (p->type != TOKEN_CLOSE)
		return unexpected(p, "}", since, err);
	return advance(p, err);
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
		if (advance(p, err) < 0)
			return -1;
	}
	if (p->type == TOKEN_OPEN)
		return parse_entry(p, scope, &words, err);
	return run_command(p, scope, &words, line, err);
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
		if (advance(p, err) < 0)
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

	if (advance(p, err) < 0 || parse_list(p, scope, err) < 0)
		return -1;
	return parse_loop_body(p, scope, since, err);
}

static int skip_delimiters(struct parser *p, struct error *err)
{
	while (p->type == TOKEN_DELIMITER)
		if (advance(p, err) < 0)
			return -1;
	return 0;
}

static int parse_for(struct parser *p, struct scope *scope, struct error *err)
{
	int since = p->word_line;

	if (advance(p, err) < 0)
		return -1;
	if (p->type != TOKEN_WORD)
		return unexpected(p, "the name of a variable", 0, err);
	if (advance(p, err) < 0 || expect(p, "in", since, err) < 0)
		return -1;
	while (p->type == TOKEN_WORD)
		if (advance(p, err) < 0)
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

	if (advance(p, err) < 0)
		return -1;
	if (p->type != TOKEN_WORD)
		return unexpected(p, "the name of a function", 0, err);
	if (advance(p, err) < 0 || skip_delimiters(p, err) < 0)
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
		return refuse(p, p->word_line, err, "more than %d levels", MAX_DEPTH);
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
	if (advance(&p, err) < 0 || parse_list(&p, &scope, err) < 0)
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
