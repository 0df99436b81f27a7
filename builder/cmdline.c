/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>

#include "cmdline.h"

/* x86 has 2048 bytes for the whole line; a single parameter beyond this is a mistake. */
#define MAX_TOKEN_LENGTH 1024
/* No architecture reads more than 4096 bytes; what an image says beyond this is not looked at. */
#define MAX_LINE_LENGTH 16384

/* One token taken apart as next_arg() in the kernel's lib/cmdline.c does it. */
struct param {
	char *name;  /* '-' turned to '_' */
	char *value; /* NULL: there is no '=' */
};

static void param_free(struct param *p)
{
	free(p->name);
	free(p->value);
}

#define CLEANUP_PARAM CLEANUP(param_free)

static void drop_last_quote(char *s)
{
	size_t length = strlen(s);

	if (length && s[length - 1] == '"')
		s[length - 1] = '\0';
}

static struct param param_parse(const char *token)
{
	bool quoted = *token == '"';
	CLEANUP_FREE char *copy = str_copy(token + (quoted ? 1 : 0));
	struct param p = {0};
	char *equals;

	if (quoted)
		drop_last_quote(copy);
	/* a '=' in first place belongs to the name */
	equals = *copy ? strchr(copy + 1, '=') : NULL;
	if (equals) {
		char *value = equals + 1;

		*equals = '\0';
		if (*value == '"') {
			value++;
			drop_last_quote(value);
		}
		p.value = str_copy(value);
	}
	p.name = str_copy(copy);
	for (char *c = p.name; *c; c++)
		if (*c == '-')
			*c = '_';
	return p;
}

struct strv cmdline_split(const char *line)
{
	const char *end = line + strnlen(line, MAX_LINE_LENGTH);
	struct strv tokens = {0};

	while (line < end) {
		const char *start = line;
		bool in_quotes = false;

		while (line < end && (in_quotes || !isspace((unsigned char)*line)))
			if (*line++ == '"')
				in_quotes = !in_quotes;
		if (line > start)
			strv_take(&tokens, mem_copy(start, (size_t)(line - start)));
		else
			line++;
	}
	return tokens;
}

char *cmdline_join(const struct strv *tokens)
{
	return strv_join(tokens, " ");
}

/* How many tokens are the kernel's: those before "--". */
static size_t kernel_part(const struct strv *tokens)
{
	for (size_t i = 0; i < tokens->count; i++)
		if (strcmp(tokens->items[i], "--") == 0)
			return i;
	return tokens->count;
}

size_t cmdline_count(const struct strv *tokens, const char *token)
{
	CLEANUP_PARAM struct param want = param_parse(token);
	size_t end = kernel_part(tokens), count = 0;

	for (size_t i = 0; i < end; i++) {
		CLEANUP_PARAM struct param p = param_parse(tokens->items[i]);

		if (str_equal(p.name, want.name) && str_equal(p.value, want.value))
			count++;
	}
	return count;
}

/* Index of the last token with this (normalised) name, or -1; 'valued': the last "name=". */
static ssize_t last_index(const struct strv *tokens, const char *name, bool valued)
{
	for (size_t i = kernel_part(tokens); i-- > 0;) {
		CLEANUP_PARAM struct param p = param_parse(tokens->items[i]);

		if (str_equal(p.name, name) && (p.value || !valued))
			return (ssize_t)i;
	}
	return -1;
}

char *cmdline_value(const struct strv *tokens, const char *name)
{
	CLEANUP_PARAM struct param want = param_parse(name);
	ssize_t at = last_index(tokens, want.name, false);
	struct param p;

	if (at < 0)
		return NULL;
	p = param_parse(tokens->items[at]);
	free(p.name);
	return p.value ? p.value : str_copy("");
}

/* The comma separated items of every 'name=' in order of their appearance. */
static struct strv all_items(const struct strv *tokens, const char *name)
{
	size_t end = kernel_part(tokens);
	struct strv items = {0};

	for (size_t i = 0; i < end; i++) {
		CLEANUP_PARAM struct param p = param_parse(tokens->items[i]);
		CLEANUP_STRV struct strv some = {0};

		if (!p.value || !str_equal(p.name, name))
			continue;
		some = strv_split(p.value, ",");
		strv_add_all(&items, &some);
	}
	return items;
}

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
	CLEANUP_STRV struct strv options = all_items(tokens, "pci");

	return pci_state(&options);
}

struct strv cmdline_module_blacklist(const struct strv *tokens)
{
	/* the kernel refuses a bare "module_blacklist", and keeps what it had */
	ssize_t at = last_index(tokens, "module_blacklist", true);
	CLEANUP_PARAM struct param p = {0};

	if (at < 0)
		return (struct strv){0};
	p = param_parse(tokens->items[at]);
	return strv_split(p.value, ",");
}

static bool pci_option_holds(const struct strv *options, const char *option)
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
		if (!pci_option_holds(options, want->items[i]))
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
	return all_items(tokens, list);
}

static bool is_name_list(const struct param *p)
{
	return p->value &&
	       (str_equal(p->name, "module_blacklist") || str_equal(p->name, "modprobe.blacklist"));
}

static bool list_has(const struct strv *names, const char *list, const char *name)
{
	if (str_equal(list, "module_blacklist"))
		return strv_has(names, name);
	for (size_t i = 0; i < names->count; i++)
		if (kmod_names_equal(names->items[i], name))
			return true;
	return false;
}

/* The first name that 'want' lists and the line does not, or NULL; owned by the caller. */
static char *missing_name(const struct strv *tokens, const struct param *want)
{
	CLEANUP_STRV struct strv names = effective_names(tokens, want->name);
	CLEANUP_STRV struct strv asked = strv_split(want->value, ",");

	for (size_t i = 0; i < asked.count; i++)
		if (!list_has(&names, want->name, asked.items[i]))
			return str_copy(asked.items[i]);
	return NULL;
}

static char *why_not_listed(const struct strv *tokens, const struct param *want, const char *name)
{
	if (last_index(tokens, want->name, true) < 0)
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
	ssize_t last = last_index(tokens, want->name, false);
	CLEANUP_PARAM struct param p = {0};

	if (last < 0 || (piles_up(want->name) && !count)) {
		*ret_why = str_format("'%s' is missing", token);
		return false;
	}
	if (piles_up(want->name))
		return true;
	p = param_parse(tokens->items[last]);
	if (str_equal(p.value, want->value))
		return true;
	*ret_why = str_format("'%s' %s", tokens->items[last],
	                      count ? "comes later" : "is set instead");
	return false;
}

static bool holds(const struct strv *tokens, const char *token, char **ret_why)
{
	CLEANUP_PARAM struct param want = param_parse(token);

	if (is_name_list(&want)) {
		CLEANUP_FREE char *name = missing_name(tokens, &want);

		if (name)
			*ret_why = why_not_listed(tokens, &want, name);
		return !name;
	}
	if (want.value && str_equal(want.name, "pci")) {
		CLEANUP_STRV struct strv options = all_items(tokens, "pci");
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
	CLEANUP_STRV struct strv options = all_items(tokens, "pci");
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
	CLEANUP_PARAM struct param want = param_parse(token);

	if (want.value && str_equal(want.name, "pci"))
		return pci_contradiction(tokens, want.value);
	if (is_name_list(&want) || piles_up(want.name))
		return NULL;
	for (size_t i = kernel_part(tokens); i-- > 0;) {
		CLEANUP_PARAM struct param p = param_parse(tokens->items[i]);

		if (str_equal(p.name, want.name) && !str_equal(p.value, want.value))
			return str_copy(tokens->items[i]);
	}
	return NULL;
}

static void replace(struct strv *tokens, size_t index, char *token)
{
	free(tokens->items[index]);
	tokens->items[index] = token;
}

/* At the end of the kernel's part. */
static void append(struct strv *tokens, char *token)
{
	size_t at = kernel_part(tokens);

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
	CLEANUP_PARAM struct param drop = param_parse(entry);

	for (size_t i = kernel_part(tokens); i-- > 0;) {
		CLEANUP_PARAM struct param p = param_parse(tokens->items[i]);
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
	CLEANUP_STRV struct strv all = all_items(tokens, want->name);
	CLEANUP_STRV struct strv asked = strv_split(want->value, ",");
	struct strv names = {0};

	strv_add_all(&all, &asked);
	for (size_t i = 0; i < all.count; i++)
		if (!list_has(&names, want->name, all.items[i]))
			strv_add(&names, all.items[i]);
	return names;
}

/* Removes every "name=" before 'end'; says how many. */
static size_t remove_lists(struct strv *tokens, const char *name, size_t end)
{
	size_t count = 0;

	while (end-- > 0) {
		CLEANUP_PARAM struct param p = param_parse(tokens->items[end]);

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
	CLEANUP_FREE char *missing = missing_name(tokens, want);
	CLEANUP_STRV struct strv names = merged_names(tokens, want);
	CLEANUP_FREE char *joined = strv_join(&names, ",");
	ssize_t last = last_index(tokens, want->name, true);
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
	CLEANUP_STRV struct strv options = all_items(tokens, "pci");
	CLEANUP_STRV struct strv asked = strv_split(value, ",");
	CLEANUP_STRV struct strv missing = {0};
	CLEANUP_FREE char *joined = NULL;

	for (size_t i = 0; i < asked.count; i++) {
		const char *option = asked.items[i];
		/* beside nocrs it never holds; a second one would not help */
		bool vain = str_equal(option, "use_crs") && strv_has(&options, option);

		if (!vain && !pci_option_holds(&options, option))
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
		CLEANUP_PARAM struct param want = param_parse(token);

		if (is_name_list(&want))
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
