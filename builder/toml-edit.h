/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Edits of a TOML text that leave every other byte as it is: comments, order, indentation, CRLF.
 * Each one reads its own result again, and is an error (EXIT_INPUT, with the line) if anything else
 * than what was asked for would change, or if the text is written in a way that it does not touch
 * (a table in braces). '*text' is replaced on success only. A value is TOML: "true", "\"x\""
 * (toml_quote).
 */
#ifndef GPUIMG_TOML_EDIT_H
#define GPUIMG_TOML_EDIT_H

#include "toml.h"

/* path = value: a value that is there is replaced, else a line is added to its table, else the
 * table with a header in the style of its neighbours. */
int toml_set(char **text, const struct strv *path, const char *value, const char *name,
             struct error *err);
/* A value more at the end of an array, which is made if it is missing. */
int toml_add_item(char **text, const struct strv *path, const char *value, const char *name,
                  struct error *err);
/* Takes all strings of this value out of an array. A missing array is fine. */
int toml_remove_item(char **text, const struct strv *path, const char *item, const char *name,
                     struct error *err);

#endif
