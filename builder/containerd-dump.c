/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "containerd-config-internal.h"

#define MAX_TOLD 12

/* By the version, or by any name that has what we look for: 1.x prints version 2 for files of
 * version 1. */
static const struct toml_node *find_cri(const struct toml_node *root, int version)
{
	const struct toml_node *cri =
		toml_find(root, "plugins", containerd_plugin_key(version), NULL);

	for (const char *const *name = containerd_cri_names(); !cri && *name; name++)
		if (toml_find(root, "plugins", *name, "containerd", NULL))
			cri = toml_find(root, "plugins", *name, NULL);
	return cri;
}

int containerd_dump_parse(struct containerd_dump *ret, const char *text, struct error *err)
{
	CLEANUP_TOML struct toml *toml = NULL;
	const struct toml_node *version, *cri;
	uint64_t number = 0;

	if (toml_parse(&toml, text, "what 'containerd config dump' printed", err) < 0)
		return -1;
	version = toml_child(&toml->root, "version");
	if (version &&
	    (version->type != TOML_INTEGER || str_parse_uint(version->text, 100, &number) < 0)) {
		error_set(err, "what 'containerd config dump' printed: line %d: no version",
		          version->line);
		return error_code(err, EXIT_INPUT);
	}
	cri = find_cri(&toml->root, (int)number);
	*ret = (struct containerd_dump){.toml = STEAL(toml), .cri = cri, .version = (int)number};
	return 0;
}

void containerd_dump_free(struct containerd_dump *dump)
{
	toml_free(dump->toml);
	*dump = (struct containerd_dump){0};
}

static const struct toml_node *find_runtime(const struct containerd_dump *dump, const char *name)
{
	return dump->cri ? toml_find(dump->cri, "containerd", "runtimes", name, NULL) : NULL;
}

struct strv containerd_dump_runtimes(const struct containerd_dump *dump)
{
	const struct toml_node *all =
		dump->cri ? toml_find(dump->cri, "containerd", "runtimes", NULL) : NULL;
	struct strv names = {0};

	for (size_t i = 0; all && all->type == TOML_TABLE && i < all->count; i++)
		strv_add(&names, all->children[i].key);
	strv_sort(&names);
	return names;
}

char *containerd_dump_default(const struct containerd_dump *dump)
{
	const struct toml_node *node =
		dump->cri ? toml_find(dump->cri, "containerd", "default_runtime_name", NULL) : NULL;

	return node && node->type == TOML_STRING && *node->text ? str_copy(node->text) : NULL;
}

struct strv containerd_dump_options(const struct containerd_dump *dump, const char *runtime)
{
	const struct toml_node *table = find_runtime(dump, runtime);
	const struct toml_node *options = table ? toml_find(table, "options", NULL) : NULL;
	struct strv ret = {0};

	for (size_t i = 0; options && options->type == TOML_TABLE && i < options->count; i++) {
		const struct toml_node *option = &options->children[i];
		CLEANUP_FREE char *key = toml_quote_key(option->key), *value = toml_show(option);

		if (strcmp(option->key, "BinaryName") != 0)
			strv_addf(&ret, "%s = %s", key, value);
	}
	strv_sort(&ret);
	return ret;
}

struct strv containerd_dump_model(const struct containerd_dump *dump)
{
	CLEANUP_FREE char *chosen = containerd_dump_default(dump);
	const struct toml_node *table = chosen ? find_runtime(dump, chosen) : NULL;
	const struct toml_node *type = table ? toml_find(table, "runtime_type", NULL) : NULL;
	bool fits = type && str_equal(type->text, CONTAINERD_DEFAULT_RUNTIME_TYPE);

	return containerd_dump_options(dump, fits && !find_runtime(dump, "runc") ? chosen : "runc");
}

/* --- whether only what should change did ----------------------------------------------- */

/* The other disabled plugins, in one line. */
static char *list_disabled(const struct containerd_dump *dump)
{
	const struct toml_node *list = toml_child(&dump->toml->root, "disabled_plugins");
	CLEANUP_STRV struct strv names = {0};

	for (size_t i = 0; list && i < list->count; i++)
		if (list->children[i].type != TOML_STRING ||
		    !containerd_is_cri_name(list->children[i].text))
			strv_take(&names, toml_show(&list->children[i]));
	strv_sort(&names);
	return strv_join(&names, ", ");
}

/* Sections of the CRI plugin: new ones are what a plugin that was disabled does not show. */
static bool is_cri_line(const char *line)
{
	for (const char *const *name = containerd_cri_names(); *name; name++) {
		CLEANUP_FREE char *key = toml_quote_key(*name);
		CLEANUP_FREE char *start = str_format("plugins.%s.", key);

		if (str_starts(line, start))
			return true;
	}
	return false;
}

/* What is compared: not the runtime itself, the default one, imports, the list of disabled plugins,
 * and keys that say nothing, which containerd shows or not. */
static struct strv list_lines(const struct containerd_dump *dump, const char *runtime)
{
	CLEANUP_FREE char *plugin = toml_quote_key(dump->cri ? dump->cri->key : "cri");
	CLEANUP_FREE char *key = toml_quote_key(runtime);
	CLEANUP_FREE char *own = str_format("plugins.%s.containerd.runtimes.%s.", plugin, key);
	CLEANUP_FREE char *chosen =
		str_format("plugins.%s.containerd.default_runtime_name = ", plugin);
	CLEANUP_STRV struct strv all = {0};
	struct strv lines = {0};

	toml_flatten(&dump->toml->root, &all);
	for (size_t i = 0; i < all.count; i++) {
		const char *line = all.items[i], *value = strstr(line, " = ");

		if (str_starts(line, own) || str_starts(line, chosen) ||
		    str_starts(line, "imports = ") || str_starts(line, "disabled_plugins = ") ||
		    (value && containerd_is_zero(value + 3)))
			continue;
		strv_add(&lines, line);
	}
	return lines;
}

/* Lines of 'a' that 'b' has not; both are sorted. */
static void tell_missing(const struct strv *a, const struct strv *b, bool but_cri,
                         const char *format, struct strv *ret)
{
	size_t told = 0, k = 0;

	for (size_t i = 0; i < a->count; i++) {
		CLEANUP_FREE char *shown = str_printable(a->items[i], 200);

		while (k < b->count && strcmp(b->items[k], a->items[i]) < 0)
			k++;
		if (k < b->count && strcmp(b->items[k], a->items[i]) == 0)
			continue;
		if (but_cri && is_cri_line(a->items[i]))
			continue;
		if (told++ < MAX_TOLD)
			strv_addf(ret, format, shown);
	}
	if (told > MAX_TOLD)
		strv_addf(ret, "and %zu more of these", told - MAX_TOLD);
}

static void judge_rest(const struct containerd_dump *before, const struct containerd_dump *after,
                       const char *runtime, struct strv *ret)
{
	CLEANUP_STRV struct strv was = list_lines(before, runtime), is = list_lines(after, runtime);
	CLEANUP_FREE char *disabled = list_disabled(before), *still = list_disabled(after);
	bool was_disabled = containerd_disables_cri(before->toml);

	tell_missing(&was, &is, was_disabled, "'%s' is not in effect any more", ret);
	tell_missing(&is, &was, was_disabled, "'%s' is in effect, and was not before", ret);
	if (strcmp(disabled, still) != 0)
		strv_addf(ret, "the disabled plugins were [%s] and are [%s]", disabled, still);
	if (containerd_disables_cri(after->toml))
		strv_add(ret, "the CRI plugin is disabled");
}

static void judge_leaf(const struct containerd_dump *after, const char *name,
                       const struct containerd_leaf *leaf, struct strv *ret)
{
	const struct toml_node *node = toml_find(after->cri, "containerd", NULL);
	CLEANUP_FREE char *value = NULL, *key = strv_join(&leaf->path, ".");

	node = toml_find_path(node, (const char *const *)leaf->path.items);
	value = node ? toml_show(node) : NULL;
	if (!node && containerd_is_zero(leaf->value))
		return;
	if (!node)
		strv_addf(ret, "the runtime '%s' has no %s", name, key);
	else if (strcmp(value, leaf->value) != 0)
		strv_addf(ret, "the runtime '%s' has %s = %s and not %s", name, key, value,
		          leaf->value);
}

static void judge_runtime(const struct containerd_dump *after,
                          const struct containerd_runtime *runtime, struct strv *ret)
{
	CLEANUP_CONTAINERD_LEAVES struct containerd_leaves leaves = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (!find_runtime(after, runtime->name)) {
		strv_addf(ret, "containerd has no runtime '%s'", runtime->name);
		return;
	}
	if (containerd_wanted(&leaves, runtime, false, &err) < 0)
		strv_add(ret, err.message);
	for (size_t i = 0; i < leaves.count; i++)
		judge_leaf(after, runtime->name, &leaves.items[i], ret);
}

static void judge_default(const struct containerd_dump *before, const struct containerd_dump *after,
                          const struct containerd_runtime *runtime, struct strv *ret)
{
	CLEANUP_FREE char *was = containerd_dump_default(before);
	CLEANUP_FREE char *is = containerd_dump_default(after);

	if (runtime->make_default && !str_equal(is, runtime->name))
		strv_addf(ret, "the default runtime is '%s' and not '%s'", is ? is : "",
		          runtime->name);
	/* a disabled plugin shows no default: then it must not be ours */
	if (runtime->make_default || str_equal(was, is) ||
	    (!was && containerd_disables_cri(before->toml) && !str_equal(is, runtime->name)))
		return;
	strv_addf(ret, "the default runtime was '%s' and is '%s'", was ? was : "", is ? is : "");
}

void containerd_dump_judge(const struct containerd_dump *before,
                           const struct containerd_dump *after,
                           const struct containerd_runtime *runtime, struct strv *ret)
{
	if (!after->cri) {
		strv_add(ret, "containerd shows no configuration of the CRI plugin");
		return;
	}
	judge_runtime(after, runtime, ret);
	judge_default(before, after, runtime, ret);
	judge_rest(before, after, runtime->name, ret);
}
