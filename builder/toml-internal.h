/* SPDX-License-Identifier: Apache-2.0 */
/* Between the parts of the TOML reader: lexer, strings, values, tables. */
#ifndef GPUIMG_TOML_INTERNAL_H
#define GPUIMG_TOML_INTERNAL_H

#include "toml.h"

struct toml_reader {
	const char *text; /* ends with NUL, has none inside, is UTF-8 without control characters */
	size_t at;
	int line;
	size_t nodes;
	const char *name; /* for messages */
	struct error *err;
};

/* "NAME: line N: WHY", EXIT_INPUT; returns -1. */
int toml_refuse(const struct toml_reader *r, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
#ifdef __clang_analyzer__
#define toml_refuse(...) (toml_refuse(__VA_ARGS__), -1)
#endif

/* toml-lexer.c: bytes of the mark that UTF-8 may begin with (containerd 1.x reads past it, 2.x does
 * not); 0: there is none. */
size_t toml_bom(const char *text);
/* UTF-8, and of control characters only tab, LF and CR before LF. */
int toml_check_text(const struct toml_reader *r);
void toml_skip_blanks(struct toml_reader *r); /* spaces and tabs */
void toml_skip_lines(struct toml_reader *r);  /* and comments and newlines */
/* Blanks, maybe a comment, and the newline or the end of the text. */
int toml_end_line(struct toml_reader *r);
bool toml_starts(const struct toml_reader *r, const char *words);
/* "a.'b'.\"c\"", blanks around the dots. */
int toml_read_keys(struct toml_reader *r, struct strv *ret);

/* toml-string.c: any of the four kinds; 'r' stands at the quote. */
int toml_read_string(struct toml_reader *r, bool may_have_lines, char **ret);

/* toml-scalar.c: numbers, dates, booleans. */
int toml_read_scalar(struct toml_reader *r, struct toml_node *node);
/* A number without its '_'; owned by the caller. */
char *toml_plain_number(const char *text);
/* Of any base, as it stands in the file. -1: more than 64 bits. */
int toml_integer(const char *text, long long *ret);

/* toml-value.c: what stands behind '='; type, text, children and place go to 'node'. */
int toml_read_value(struct toml_reader *r, struct toml_node *node);
/* "keys = value" in a table. */
int toml_read_pair(struct toml_reader *r, struct toml_node *table);

/* toml-node.c: a new child, at the end; key: may be NULL. The node lives until its parent has the
 * next one. */
struct toml_node *toml_add(struct toml_reader *r, struct toml_node *parent, const char *key);
struct toml_node *toml_get(struct toml_node *table, const char *key);
void toml_node_free(struct toml_node *node); /* what it owns, not itself */

#endif
