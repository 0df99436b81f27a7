/* SPDX-License-Identifier: Apache-2.0 */
/* The edit that a user asks for, and what a user may ask for. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cmdline-internal.h"

/* x86 has 2048 bytes for the whole line; a single parameter beyond this is a mistake. */
#define MAX_TOKEN_LENGTH 1024

static void replace(struct strv *tokens, size_t index, char *token)
{
	free(tokens->items[index]);
	tokens->items[index] = token;
}

/* At the end of the kernel's part. */
static void append(struct strv *tokens, char *token)
{
	size_t at = cmdline_kernel_part(tokens);

	strv_take(tokens, token);
	memmove(tokens->items + at + 1, tokens->items + at,
	        (tokens->count - 1 - at) * sizeof(char *));
	tokens->items[at] = token;
}

/* Takes the options out of one pci= token; says whether nothing is left of it. */
static bool drop_pci_options(struct strv *tokens, size_t index, const char *value,
                             const char *drop_value)
{
	CLEANUP_STRV struct strv options = strv_split(value, ",");
	CLEANUP_STRV struct strv drop = strv_split(drop_value, ",");
	CLEANUP_FREE char *rest = NULL;
	size_t before = options.count;

	for (size_t i = options.count; i-- > 0;)
		if (strv_has(&drop, options.items[i]))
			strv_remove(&options, i);
	if (options.count == before)
		return false;
	rest = strv_join(&options, ",");
	replace(tokens, index, str_format("pci=%s", rest));
	return options.count == 0;
}

static void remove_matching(struct strv *tokens, const char *entry)
{
	CLEANUP_PARAM struct param drop = cmdline_param_parse(entry);

	for (size_t i = cmdline_kernel_part(tokens); i-- > 0;) {
		CLEANUP_PARAM struct param p = cmdline_param_parse(tokens->items[i]);
		bool gone = !drop.value || str_equal(p.value, drop.value);

		if (!str_equal(p.name, drop.name))
			continue;
		if (!gone && p.value && str_equal(p.name, "pci"))
			gone = drop_pci_options(tokens, i, p.value, drop.value);
		if (gone)
			strv_remove(tokens, i);
	}
}

static struct strv merged_names(const struct strv *tokens, const struct param *want)
{
	CLEANUP_STRV struct strv all = cmdline_all_items(tokens, want->name);
	CLEANUP_STRV struct strv asked = strv_split(want->value, ",");
	struct strv names = {0};

	strv_add_all(&all, &asked);
	for (size_t i = 0; i < all.count; i++)
		if (!cmdline_list_has(&names, want->name, all.items[i]))
			strv_add(&names, all.items[i]);
	return names;
}

/* Removes every "name=" before 'end'; says how many. */
static size_t remove_lists(struct strv *tokens, const char *name, size_t end)
{
	size_t count = 0;

	while (end-- > 0) {
		CLEANUP_PARAM struct param p = cmdline_param_parse(tokens->items[end]);

		if (!p.value || !str_equal(p.name, name))
			continue;
		strv_remove(tokens, end);
		count++;
	}
	return count;
}

/* Joins all lists of that name and the new names into one, where the last one stands. */
static void add_names(struct strv *tokens, const struct param *want)
{
	CLEANUP_FREE char *missing = cmdline_missing_name(tokens, want);
	CLEANUP_STRV struct strv names = merged_names(tokens, want);
	CLEANUP_FREE char *joined = strv_join(&names, ",");
	ssize_t last = cmdline_last_index(tokens, want->name, true);
	size_t removed;

	if (!names.count)
		return;
	if (last < 0) {
		append(tokens, str_format("%s=%s", want->name, joined));
		return;
	}
	removed = remove_lists(tokens, want->name, (size_t)last);
	if (missing || removed)
		replace(tokens, (size_t)last - removed, str_format("%s=%s", want->name, joined));
}

static void add_pci(struct strv *tokens, const char *value)
{
	CLEANUP_STRV struct strv options = cmdline_all_items(tokens, "pci");
	CLEANUP_STRV struct strv asked = strv_split(value, ",");
	CLEANUP_STRV struct strv missing = {0};
	CLEANUP_FREE char *joined = NULL;

	for (size_t i = 0; i < asked.count; i++) {
		const char *option = asked.items[i];
		/* beside nocrs it never holds; a second one would not help */
		bool vain = str_equal(option, "use_crs") && strv_has(&options, option);

		if (!vain && !cmdline_pci_option_holds(&options, option))
			strv_add(&missing, option);
	}
	if (!missing.count)
		return;
	joined = strv_join(&missing, ",");
	append(tokens, str_format("pci=%s", joined));
}

void cmdline_apply(struct strv *tokens, const struct cmdline_edit *edit)
{
	for (size_t i = 0; i < edit->remove.count; i++)
		remove_matching(tokens, edit->remove.items[i]);
	for (size_t i = 0; i < edit->add.count; i++) {
		const char *token = edit->add.items[i];
		CLEANUP_PARAM struct param want = cmdline_param_parse(token);

		if (cmdline_is_name_list(&want))
			add_names(tokens, &want);
		else if (want.value && str_equal(want.name, "pci"))
			add_pci(tokens, want.value);
		else if (!cmdline_holds(tokens, token, NULL))
			append(tokens, str_copy(token));
	}
}

/* What is wrong with one byte of a token, or NULL. */
static const char *bad_byte(unsigned char c, bool in_quotes)
{
	if (c < 0x20 || c > 0x7e)
		return "it has a byte that is not printable ASCII";
	if (strchr("$`\\'", c))
		return "it has one of $ ` \\ ', which boot loaders and shells expand";
	if (in_quotes)
		return NULL;
	if (c == ' ')
		return "it has a blank outside double quotes, so it is more than one parameter";
	if (strchr(";|&<>{}", c))
		return "it has one of ; | & < > { } outside double quotes, which end GRUB's "
		       "command";
	return NULL;
}

static const char *token_fault(const char *token)
{
	bool in_quotes = false;

	if (!*token)
		return "it is empty";
	if (strlen(token) > MAX_TOKEN_LENGTH)
		return "it is longer than 1024 bytes";
	if (!isalnum((unsigned char)*token) && *token != '_')
		return "its name does not begin with a letter, a digit or '_'";
	for (; *token; token++) {
		const char *fault = bad_byte((unsigned char)*token, in_quotes);

		if (fault)
			return fault;
		if (*token == '"')
			in_quotes = !in_quotes;
	}
	return in_quotes ? "a double quote is not closed" : NULL;
}

int cmdline_check_token(const char *token, struct error *err)
{
	const char *fault = token_fault(token);
	CLEANUP_FREE char *shown = NULL;

	if (!fault)
		return 0;
	shown = str_printable(token, 80);
	error_set(err, "cannot use kernel parameter '%s': %s", shown, fault);
	error_hint(err, "write one parameter a time, as in pci=nocrs or dyndbg=\"file x.c +p\"");
	return error_code(err, EXIT_USAGE);
}
