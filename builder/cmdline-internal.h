/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the kernel command line share: its tokens taken apart (cmdline.c), what
 * holds on it (cmdline-judge.c), and its edit (cmdline-edit.c).
 */
#ifndef GPUIMG_CMDLINE_INTERNAL_H
#define GPUIMG_CMDLINE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "cleanup.h"
#include "cmdline.h"
#include "str.h"

/* --- Tokens (cmdline.c) --- */

/* One token taken apart as next_arg() in the kernel's lib/cmdline.c does it. */
struct param {
	char *name;  /* '-' turned to '_' */
	char *value; /* NULL: there is no '=' */
};

struct param cmdline_param_parse(const char *token);
void cmdline_param_free(struct param *p);
#define CLEANUP_PARAM CLEANUP(cmdline_param_free)

/* How many tokens are the kernel's: those before "--". */
size_t cmdline_kernel_part(const struct strv *tokens);
/* Index of the last token with this (normalised) name, or -1; 'valued': the last "name=". */
ssize_t cmdline_last_index(const struct strv *tokens, const char *name, bool valued);
/* The comma separated items of every 'name=' in order of their appearance. */
struct strv cmdline_all_items(const struct strv *tokens, const char *name);

/* --- What holds (cmdline-judge.c) --- */

/* options: all of pci=, in their order. */
bool cmdline_pci_option_holds(const struct strv *options, const char *option);
/* module_blacklist= or modprobe.blacklist=. */
bool cmdline_is_name_list(const struct param *p);
/* Whether 'name' is among 'names', compared as the reader of the parameter 'list' does. */
bool cmdline_list_has(const struct strv *names, const char *list, const char *name);
/* The first name that 'want' lists and the line does not, or NULL; owned by the caller. */
char *cmdline_missing_name(const struct strv *tokens, const struct param *want);

#endif
