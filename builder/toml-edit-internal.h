/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUIMG_TOML_EDIT_INTERNAL_H
#define GPUIMG_TOML_EDIT_INTERNAL_H

#include "toml-edit.h"

/* One edit under way: what it works on, and for whom its messages are. */
struct toml_edit {
	const struct toml *toml; /* of 'text' */
	const char *text;
	const char *newline; /* the file's own */
	const struct strv *path;
	const char *name;
	struct error *err;
};

/* "NAME: line N: WHY", EXIT_INPUT; returns -1. */
int toml_edit_refuse(const struct toml_edit *e, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
#ifdef __clang_analyzer__
#define toml_edit_refuse(...) (toml_edit_refuse(__VA_ARGS__), -1)
#endif

/* How far a path leads. */
struct toml_place {
	const struct toml_node *node;  /* the deepest that exists */
	size_t depth;                  /* keys of the path that lead to it */
	const struct toml_node *owner; /* the table whose body its lines stand in */
	size_t owner_depth;
};
/* EXIT_INPUT: on the way is something that is no table, or one in braces. */
int toml_edit_find(struct toml_place *ret, const struct toml_edit *e);

char *toml_splice(const char *text, size_t begin, size_t end, const char *insert);
size_t toml_line_start(const char *text, size_t at);
/* Behind the newline of this line, or the end of the text. */
size_t toml_line_end(const char *text, size_t at);
/* The blanks that a line begins with; owned by the caller. */
char *toml_indent(const char *text, size_t at);
/* A whole line at a line's start; what stands before it may lack its newline. */
char *toml_insert_line(const struct toml_edit *e, size_t at, const char *line);

int toml_edit_start(struct toml_edit *e, struct toml **ret_toml);
/* A value in its normal form; EXIT_INPUT: it is none. */
int toml_edit_show(char **ret, const struct toml_edit *e, const char *value);
/* The error if 'text' does not say the same as e->text but for the value at the path, which must be
 * 'want', in one line as toml_show has it. */
int toml_edit_check(const struct toml_edit *e, const char *text, const char *want);

/* toml-edit-add.c: the text with "path = value", where the path ends at 'p'; owned by the caller.
 */
char *toml_edit_add(const struct toml_edit *e, const struct toml_place *p, const char *value);

#endif
