/* SPDX-License-Identifier: Apache-2.0 */
/* Words of a shell file as the shell cuts them (POSIX.1, Shell Command Language, 2.3). */
#ifndef GPUIMG_DEFAULT_GRUB_INTERNAL_H
#define GPUIMG_DEFAULT_GRUB_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"

struct shell_lexer {
	const char *at, *end; /* of the text */
	const char *path;     /* for messages */
	int line;
	char *buffer; /* room for any word of the text; owned by the caller */
};

enum shell_token { SHELL_END, SHELL_WORD, SHELL_OPERATOR };

struct shell_word {
	const char *start, *end; /* as it stands in the file; of an operator: its one byte */
	const char *text;        /* quotes taken off, in the lexer's buffer: until the next word */
	size_t quoted_from;      /* bytes of 'text' before the first quote or backslash */
	int line;                /* where it begins */
	bool expands;            /* has an expansion, a command, or a redirection: 'text' is not
	                          * what the shell makes of it */
};

/*
 * The next word, or operator: one of ; & | ( ) and the newline. Comments are stepped over.
 * Errors (EXIT_INPUT, with the line): an open quote, a here-document.
 */
int shell_next(enum shell_token *ret_token, struct shell_word *ret, struct shell_lexer *lexer,
               struct error *err);
int shell_refuse(struct error *err, const char *path, int line, const char *why);

#endif
