/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime as the files alone tell it, for images whose programs are not run: containerd 1.x takes
 * a plugin's section from the file that is read last, 2.x each value from the last file that has
 * it. Defaults of containerd's own are not known here.
 */
#include <string.h>

#include "containerd-internal.h"

/* The CRI plugin's section of a file, in the schema of that file. A drop-in without a version is of
 * the main file's in 1.x, and of version 1 in 2.x, which reads each file for itself. */
static const struct toml_node *cri_of(const struct containerd_files *files, size_t i, int major)
{
	int own = files->items[i].version;
	int version = own ? own : i == 0 || major >= 2 ? 1 : files->version;
	const struct toml_node *root = files->items[i].toml ? &files->items[i].toml->root : NULL;

	if (!root)
		return NULL;
	/* 2.0 to 2.2 migrate nothing any more once one file is of version 3: see
	 * containerd-config.h */
	return toml_find(root, "plugins", containerd_plugin_key(version), NULL);
}

/* Whether an earlier file's section counts, after the one of file 'i'. */
static bool goes_on(const struct containerd_files *files, size_t i, int major)
{
	return major >= 2 || !cri_of(files, i, major);
}

/* The node of the last file that has it. */
static const struct toml_node *last_node(const struct containerd_files *files, int major,
                                         const char *const keys[4], size_t *ret_file)
{
	for (size_t i = files->count; i-- > 0;) {
		const struct toml_node *cri = cri_of(files, i, major);
		const struct toml_node *node =
			cri ? toml_find(cri, "containerd", keys[0], keys[1], keys[2], keys[3], NULL)
			    : NULL;

		if (node) {
			if (ret_file)
				*ret_file = i;
			return node;
		}
		if (!goes_on(files, i, major))
			return NULL;
	}
	return NULL;
}

static char *last_text(const struct containerd_files *files, int major, const char *const keys[4])
{
	const struct toml_node *node = last_node(files, major, keys, NULL);

	return node && node->type == TOML_STRING ? str_copy(node->text) : NULL;
}

static void add_option(struct strv *names, struct strv *values, const struct toml_node *node)
{
	CLEANUP_FREE char *quoted = NULL;

	if (!node->text || strcmp(node->key, "BinaryName") == 0 || strv_has(names, node->key))
		return;
	quoted = node->type == TOML_STRING ? toml_quote(node->text) : str_copy(node->text);
	strv_add(names, node->key);
	strv_addf(values, "%s = %s", node->key, quoted);
}

static void collect_options(struct containerd_look *ret, const struct containerd_files *files,
                            int major, const char *runtime)
{
	CLEANUP_STRV struct strv names = {0};

	for (size_t i = files->count; i-- > 0;) {
		const struct toml_node *cri = cri_of(files, i, major);
		const struct toml_node *options =
			cri ? toml_find(cri, "containerd", "runtimes", runtime, "options", NULL)
			    : NULL;

		for (size_t k = 0; options && k < options->count; k++)
			add_option(&names, &ret->options, &options->children[k]);
		if (!goes_on(files, i, major))
			break;
	}
	strv_sort(&ret->options);
}

void containerd_look_at(struct containerd_look *ret, const struct containerd_files *files,
                        int major, const char *runtime)
{
	const char *const all[4] = {"runtimes", runtime};
	const char *const type[4] = {"runtimes", runtime, "runtime_type"};
	const char *const binary[4] = {"runtimes", runtime, "options", "BinaryName"};
	size_t file;

	if (last_node(files, major, all, &file))
		ret->file = str_copy(files->items[file].path);
	ret->type = last_text(files, major, type);
	ret->binary = last_text(files, major, binary);
	collect_options(ret, files, major, runtime);
}

char *containerd_look_default(const struct containerd_files *files, int major)
{
	const char *const keys[4] = {"default_runtime_name"};

	return last_text(files, major, keys);
}

void containerd_look_free(struct containerd_look *look)
{
	free(look->file);
	free(look->type);
	free(look->binary);
	strv_free(&look->options);
	*look = (struct containerd_look){0};
}
