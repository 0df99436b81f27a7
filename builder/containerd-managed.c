/* SPDX-License-Identifier: Apache-2.0 */
/*
 * k0s, k3s and RKE2 bring a containerd of their own and write its configuration. What they have in
 * common: drop-ins of the user's, and what is proven of them.
 */
#include <string.h>

#include "containerd-config-internal.h"
#include "containerd-internal.h"

int containerd_refuse(struct error *err, const char *hint)
{
	error_hint(err, "%s", hint);
	return error_code(err, EXIT_INPUT);
}

static int read_dropin(struct containerd_file *file, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *quoted = str_format("'%s'", file->path);
	const struct toml_node *version;
	uint64_t number = 0;

	if (containerd_read_text(&file->text, root, file->path, err) < 0)
		return -1;
	if (toml_parse(&file->toml, file->text ? file->text : "", quoted, err) < 0)
		return error_hint(err, "mend or remove it: containerd would not start with it");
	version = toml_child(&file->toml->root, "version");
	if (version && version->type == TOML_INTEGER &&
	    str_parse_uint(version->text, 100, &number) == 0)
		file->version = (int)number;
	return 0;
}

int containerd_dropins_read(struct containerd_files *ret, struct rootfs *root, const char *dir,
                            const char *but, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_is_dir(root, dir) && rootfs_list(root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		struct containerd_file *file;

		if (!str_ends(names.items[i], ".toml") || str_equal(names.items[i], but))
			continue;
		if (ret->count == CONTAINERD_MAX_FILES) {
			error_set(err, "'%s' has more than %d drop-ins", dir, CONTAINERD_MAX_FILES);
			return error_code(err, EXIT_INPUT);
		}
		ret->items = mem_grow(ret->items, ret->count + 1, sizeof(*ret->items));
		file = &ret->items[ret->count++];
		*file = (struct containerd_file){.path = str_format("%s/%s", dir, names.items[i])};
		if (read_dropin(file, root, err) < 0)
			return -1;
	}
	return 0;
}

/* Below "containerd" of whichever CRI section the file has. */
static const char *dropin_value(const struct containerd_file *file, const char *const *keys)
{
	for (int version = 2; version <= 3; version++) {
		const struct toml_node *node =
			toml_find(&file->toml->root, "plugins", containerd_plugin_key(version),
		                  "containerd", NULL);

		node = node ? toml_find_path(node, keys) : NULL;
		if (node && node->type == TOML_STRING)
			return node->text;
	}
	return NULL;
}

int containerd_dropin_check(const struct containerd_file *file, const struct containerd *c,
                            bool make_default, struct error *err)
{
	static const char *const default_keys[] = {"default_runtime_name", NULL};
	static const char *const binary_keys[] = {"runtimes", CONTAINERD_RUNTIME_NAME, "options",
	                                          "BinaryName", NULL};
	const char *name = dropin_value(file, default_keys);
	const char *binary = dropin_value(file, binary_keys);

	if (make_default && name && strcmp(name, CONTAINERD_RUNTIME_NAME) != 0) {
		error_set(err, "'%s' makes '%s' the default runtime, and is read after ours",
		          file->path, name);
		return containerd_refuse(err, "take that line out, or leave --default-runtime out");
	}
	if (binary && c->runtime_binary && strcmp(binary, c->runtime_binary) != 0) {
		error_set(err,
		          "'%s' gives the runtime '" CONTAINERD_RUNTIME_NAME
		          "' the program '%s', and is read after ours",
		          file->path, binary);
		return containerd_refuse(err, "take the runtime out of it");
	}
	return 0;
}

int containerd_managed_check(const struct containerd *c, struct rootfs *root, bool make_default,
                             struct error *err)
{
	return c->manager == CONTAINERD_K0S ? containerd_k0s_check(c, root, make_default, err)
	                                    : containerd_rancher_check(c, root, make_default, err);
}

int containerd_managed_set_up(struct containerd_result *ret, const struct containerd_setup *setup,
                              struct error *err)
{
	CLEANUP_CONTAINERD_RESULT struct containerd_result r = {0};
	const struct containerd *c = setup->containerd;

	if ((c->manager == CONTAINERD_K0S ? containerd_k0s_set_up(&r, setup, err)
	                                  : containerd_rancher_set_up(&r, setup, err)) < 0)
		return -1;
	r.binary = str_copy(c->runtime_binary);
	containerd_note_others(&r.notes, setup->root);
	for (size_t i = 0; i < r.notes.count; i++)
		log_note(setup->log, "containerd: %s", r.notes.items[i]);
	*ret = r;
	r = (struct containerd_result){0};
	return 0;
}

int containerd_managed_look_again(struct containerd_result *result,
                                  const struct containerd_setup *setup, struct error *err)
{
	CLEANUP_STRV struct strv files = {0};

	if (containerd_managed_check(setup->containerd, setup->root, setup->make_default, err) < 0)
		return -1;
	for (size_t i = 0; i < result->edited.count; i++)
		if (containerd_add_digest(&files, setup->root, result->edited.items[i], err) < 0)
			return error_code(err, EXIT_PROOF);
	for (size_t i = 0; i < files.count; i++)
		if (!strv_has(&result->files, files.items[i])) {
			error_set(err, "'%s' was changed", result->edited.items[i]);
			return error_code(err, EXIT_PROOF);
		}
	return 0;
}
