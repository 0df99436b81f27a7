/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernel command lines as the kernel reads them: split at blanks outside double quotes, names
 * equal with - and _ (Documentation/admin-guide/kernel-parameters.rst; lib/cmdline.c), a
 * parameter that can be given once takes its last value, pci= options add up in order
 * (drivers/pci/pci.c, arch/x86/pci/common.c). "--" ends the kernel's own part: what stands
 * after it is init's, is never counted and never edited.
 */
#ifndef GPUIMG_CMDLINE_H
#define GPUIMG_CMDLINE_H

#include <stdbool.h>

#include "error.h"
#include "str.h"

/* Tokens as they stand, quotes kept. An open quote reaches to the end of the line. Only the
 * first 16 KiB are looked at; no kernel takes more than 4. */
struct strv cmdline_split(const char *line);
char *cmdline_join(const struct strv *tokens);
/*
 * How often 'token' stands in it, compared as the kernel does (name with - = _, value exact,
 * both without quotes, so words that GRUB has unquoted may be given as tokens too).
 */
size_t cmdline_count(const struct strv *tokens, const char *token);
/* Value of the last 'name=value' (quotes taken off); "" for a bare name; NULL if absent. */
char *cmdline_value(const struct strv *tokens, const char *name);

/* What the user asks for: 'remove' entries are "name" (any value) or "name=value"; for pci=,
 * "pci=use_crs" also takes that one option out of "pci=use_crs,noaer". */
struct cmdline_edit {
	struct strv add;
	struct strv remove;
};
/*
 * Applies the edit: removes first, then adds what does not hold yet; twice gives the same as
 * once. module_blacklist= and modprobe.blacklist= names are merged into the (last) one that
 * is there, since of module_blacklist= only the last counts; duplicates of it are joined.
 * pci= options that already hold (pci=nocrs,realloc holds pci=nocrs) are not added again.
 * Parameters that pile up (console=) are there or not; of the others the last value counts,
 * so "foo=1" is added to "foo=1 foo=2" at the end. After it, all of 'add' holds; but pci=use_crs
 * never does beside pci=nocrs.
 */
void cmdline_apply(struct strv *tokens, const struct cmdline_edit *edit);

/* The effective pci= state after the whole line. */
struct cmdline_pci {
	bool nocrs;   /* given, and no pci=off, conf1 or conf2 after it, which clear the flag */
	bool use_crs; /* given likewise; without effect beside nocrs, in whatever order */
	int realloc;  /* -1 not given, 0 off, 1 on: the last one counts */
};
struct cmdline_pci cmdline_pci_state(const struct strv *tokens);
/*
 * Names in the effective module_blacklist= (the last one only), as they stand: the kernel
 * compares them byte for byte with names that have '_', so "nova-core" blocks nothing.
 */
struct strv cmdline_module_blacklist(const struct strv *tokens);

/*
 * Whether the effective line holds what 'token' asks for: pci= options by effect
 * (pci=realloc is held by pci=nocrs,realloc=on), module_blacklist= by its names, all
 * else by exact presence of the last value. If not, *ret_why (may be NULL) says what
 * stands against it ("'pci=realloc=off' comes later"), owned by the caller.
 */
bool cmdline_holds(const struct strv *tokens, const char *token, char **ret_why);
/*
 * Something on the line that says the opposite of 'token', whether it wins or not: of the
 * pair pci=nocrs and pci=use_crs the kernel takes nocrs, and a person should still hear of
 * it. Returns the parameter ("pci=use_crs"), owned by the caller, or NULL.
 */
char *cmdline_contradiction(const struct strv *tokens, const char *token);
/*
 * A parameter a user may add: printable ASCII, no quote imbalance, single quote, '$',
 * backquote or backslash; blanks and GRUB's own ; | & < > { } only between double quotes.
 */
int cmdline_check_token(const char *token, struct error *err);

#endif
