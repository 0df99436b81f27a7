/* SPDX-License-Identifier: Apache-2.0 */
/* What holds on a line, and what stands against it. */
#include "cmdline-internal.h"

/* realloc, realloc=on or realloc=off, by prefix as in pci_setup(); -1: something else. */
static int realloc_option(const char *option)
{
	if (!str_starts(option, "realloc"))
		return -1;
	if (!str_starts(option, "realloc=") || str_starts(option, "realloc=on"))
		return 1;
	return str_starts(option, "realloc=off") ? 0 : -1;
}

/* These assign pci_probe anew in pcibios_setup(), and so drop the flags given before them. */
static bool clears_flags(const char *option)
{
	return str_equal(option, "off") || str_equal(option, "conf1") || str_equal(option, "conf2");
}

static struct cmdline_pci pci_state(const struct strv *options)
{
	struct cmdline_pci state = {.realloc = -1};

	for (size_t i = 0; i < options->count; i++) {
		const char *option = options->items[i];
		int on = realloc_option(option);

		if (clears_flags(option))
			state.nocrs = state.use_crs = false;
		else if (str_equal(option, "nocrs"))
			state.nocrs = true;
		else if (str_equal(option, "use_crs"))
			state.use_crs = true;
		else if (on >= 0)
			state.realloc = on;
	}
	return state;
}

struct cmdline_pci cmdline_pci_state(const struct strv *tokens)
{
	CLEANUP_STRV struct strv options = cmdline_all_items(tokens, "pci");

	return pci_state(&options);
}

bool cmdline_pci_option_holds(const struct strv *options, const char *option)
{
	struct cmdline_pci state = pci_state(options);
	int on = realloc_option(option);

	if (str_equal(option, "nocrs"))
		return state.nocrs;
	if (str_equal(option, "use_crs"))
		return state.use_crs && !state.nocrs;
	if (on >= 0)
		return state.realloc == on;
	return strv_has(options, option);
}

/* Whether 'other' says the opposite of 'option'. */
static bool pci_options_oppose(const char *option, const char *other)
{
	int on = realloc_option(option), other_on = realloc_option(other);

	if (on >= 0)
		return other_on >= 0 && other_on != on;
	if (str_equal(option, "nocrs"))
		return str_equal(other, "use_crs") || clears_flags(other);
	if (str_equal(option, "use_crs"))
		return str_equal(other, "nocrs") || clears_flags(other);
	return false;
}

/* The last option against 'option', or NULL. */
static const char *pci_opponent(const struct strv *options, const char *option)
{
	for (size_t i = options->count; i-- > 0;)
		if (pci_options_oppose(option, options->items[i]))
			return options->items[i];
	return NULL;
}

/* The first of the options in 'want' that does not hold, or NULL. */
static const char *pci_missing(const struct strv *options, const struct strv *want)
{
	for (size_t i = 0; i < want->count; i++)
		if (!cmdline_pci_option_holds(options, want->items[i]))
			return want->items[i];
	return NULL;
}

static char *why_not_pci(const struct strv *options, const char *option)
{
	const char *other = pci_opponent(options, option);

	if (!other)
		return str_format("'pci=%s' is missing", option);
	if (str_equal(option, "use_crs") && str_equal(other, "nocrs"))
		return str_format("'pci=nocrs' wins over it");
	if (strv_has(options, option))
		return str_format("'pci=%s' comes later", other);
	return str_format("'pci=%s' is set instead", other);
}

/* '-' and '_' are one in module names, where kmod compares them. */
static bool kmod_names_equal(const char *a, const char *b)
{
	for (; *a && *b; a++, b++)
		if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b))
			return false;
	return *a == *b;
}

/* The kernel takes the last module_blacklist= alone; kmod adds up all modprobe.blacklist=. */
static struct strv effective_names(const struct strv *tokens, const char *list)
{
	if (str_equal(list, "module_blacklist"))
		return cmdline_module_blacklist(tokens);
	return cmdline_all_items(tokens, list);
}

bool cmdline_is_name_list(const struct param *p)
{
	return p->value &&
	       (str_equal(p->name, "module_blacklist") || str_equal(p->name, "modprobe.blacklist"));
}

bool cmdline_list_has(const struct strv *names, const char *list, const char *name)
{
	if (str_equal(list, "module_blacklist"))
		return strv_has(names, name);
	for (size_t i = 0; i < names->count; i++)
		if (kmod_names_equal(names->items[i], name))
			return true;
	return false;
}

char *cmdline_missing_name(const struct strv *tokens, const struct param *want)
{
	CLEANUP_STRV struct strv names = effective_names(tokens, want->name);
	CLEANUP_STRV struct strv asked = strv_split(want->value, ",");

	for (size_t i = 0; i < asked.count; i++)
		if (!cmdline_list_has(&names, want->name, asked.items[i]))
			return str_copy(asked.items[i]);
	return NULL;
}

static char *why_not_listed(const struct strv *tokens, const struct param *want, const char *name)
{
	if (cmdline_last_index(tokens, want->name, true) < 0)
		return str_format("there is no '%s='", want->name);
	return str_format("the last '%s=' lacks '%s'", want->name, name);
}

/* Parameters whose occurrences pile up, so that an earlier one is not undone by a later. */
static bool piles_up(const char *name)
{
	return str_equal(name, "console") || str_equal(name, "earlycon") ||
	       str_equal(name, "memmap") || str_equal(name, "hugepages") ||
	       str_equal(name, "hugepagesz") || str_starts(name, "rd.");
}

static bool value_holds(const struct strv *tokens, const char *token, const struct param *want,
                        char **ret_why)
{
	size_t count = cmdline_count(tokens, token);
	ssize_t last = cmdline_last_index(tokens, want->name, false);
	CLEANUP_PARAM struct param p = {0};

	if (last < 0 || (piles_up(want->name) && !count)) {
		*ret_why = str_format("'%s' is missing", token);
		return false;
	}
	if (piles_up(want->name))
		return true;
	p = cmdline_param_parse(tokens->items[last]);
	if (str_equal(p.value, want->value))
		return true;
	*ret_why = str_format("'%s' %s", tokens->items[last],
	                      count ? "comes later" : "is set instead");
	return false;
}

static bool holds(const struct strv *tokens, const char *token, char **ret_why)
{
	CLEANUP_PARAM struct param want = cmdline_param_parse(token);

	if (cmdline_is_name_list(&want)) {
		CLEANUP_FREE char *name = cmdline_missing_name(tokens, &want);

		if (name)
			*ret_why = why_not_listed(tokens, &want, name);
		return !name;
	}
	if (want.value && str_equal(want.name, "pci")) {
		CLEANUP_STRV struct strv options = cmdline_all_items(tokens, "pci");
		CLEANUP_STRV struct strv asked = strv_split(want.value, ",");
		const char *missing = pci_missing(&options, &asked);

		if (missing)
			*ret_why = why_not_pci(&options, missing);
		return !missing;
	}
	return value_holds(tokens, token, &want, ret_why);
}

bool cmdline_holds(const struct strv *tokens, const char *token, char **ret_why)
{
	CLEANUP_FREE char *why = NULL;
	bool result = holds(tokens, token, &why);

	if (!result && ret_why)
		*ret_why = STEAL(why);
	return result;
}

static char *pci_contradiction(const struct strv *tokens, const char *value)
{
	CLEANUP_STRV struct strv options = cmdline_all_items(tokens, "pci");
	CLEANUP_STRV struct strv asked = strv_split(value, ",");

	for (size_t i = 0; i < asked.count; i++) {
		const char *other = pci_opponent(&options, asked.items[i]);

		if (other)
			return str_format("pci=%s", other);
	}
	return NULL;
}

char *cmdline_contradiction(const struct strv *tokens, const char *token)
{
	CLEANUP_PARAM struct param want = cmdline_param_parse(token);

	if (want.value && str_equal(want.name, "pci"))
		return pci_contradiction(tokens, want.value);
	if (cmdline_is_name_list(&want) || piles_up(want.name))
		return NULL;
	for (size_t i = cmdline_kernel_part(tokens); i-- > 0;) {
		CLEANUP_PARAM struct param p = cmdline_param_parse(tokens->items[i]);

		if (str_equal(p.name, want.name) && !str_equal(p.value, want.value))
			return str_copy(tokens->items[i]);
	}
	return NULL;
}
