/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of options_parse() share: the table of options (options-table.c), what a value
 * does (options-value.c), argv and YAML (options.c), what no one value tells (options-check.c).
 */
#ifndef GPUIMG_OPTIONS_INTERNAL_H
#define GPUIMG_OPTIONS_INTERNAL_H

#include <stddef.h>

#include "options.h"

enum command { BUILD = 1, BOOT = 2, DOCTOR = 4, CACHE = 8, INSPECT = 16, PUBLISH = 32 };

/* What a value does; each works the same from argv, image.yaml and a profile. */
enum kind {
	KIND_STRING, /* a char * that the last one wins */
	KIND_LIST,   /* adds up */
	KIND_ON,     /* --x: true */
	KIND_OFF,    /* --no-x: false; in YAML 'x: true|false' */
	KIND_SIZE,
	KIND_SECONDS,
	KIND_COUNT, /* 1 to 16 */
	KIND_EXEC,
	KIND_WINDOW,
	KIND_FIRMWARE,
	KIND_FLAVOUR,
	KIND_SOURCE,
	KIND_DKMS,
	KIND_SPECIAL, /* read by options_parse() itself */
};

struct option_row {
	const char *name; /* long option; in YAML the same, without "no-" */
	int letter;       /* short option, or 0 */
	enum kind kind;
	int commands;
	size_t offset;
	const char *value; /* shown in the help */
	const char *allowed;
	const char *help;
	bool argv_only;
};

#define OPTION_ROWS_MAX 80 /* for arrays with one item for each row */

/* Ends with a row without a name. */
extern const struct option_row option_rows[];

enum command options_command(const char *name);

/* value: NULL for --x and --no-x, "true" or "false" from YAML. */
int options_set(struct options *o, const struct option_row *row, const char *value,
                struct error *err);
void options_set_string(char **field, const char *value);

/* Once all are read. */
int options_check(const struct options *o, const char *command, struct error *err);

#endif
