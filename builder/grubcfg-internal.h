/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the grub.cfg reader share: the lexer (grubcfg-lexer.c), the meaning of the
 * commands (grubcfg-commands.c) and the grammar above them (grubcfg.c).
 */
#ifndef GPUIMG_GRUBCFG_INTERNAL_H
#define GPUIMG_GRUBCFG_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"
#include "grubcfg.h"
#include "str.h"

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

/* "cannot parse 'x': line 7: …", exit code EXIT_INPUT; returns -1. */
int grubcfg_refuse(const struct parser *p, int line, struct error *err, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Takes the next token in hand. */
int grubcfg_advance(struct parser *p, struct error *err);

/* What a simple command means for the entries; words[0] is its name, 'line' is where it begins. */
int grubcfg_run_command(struct parser *p, struct scope *scope, const struct strv *words, int line,
                        struct error *err);

#endif
