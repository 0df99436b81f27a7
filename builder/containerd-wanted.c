/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "containerd-config-internal.h"

void containerd_leaves_add_path(struct containerd_leaves *leaves, const char *value,
                                const char *const *keys)
{
	struct containerd_leaf leaf = {.value = str_copy(value)};

	for (; *keys; keys++)
		strv_add(&leaf.path, *keys);
	leaves->items = mem_grow(leaves->items, leaves->count + 1, sizeof(leaf));
	leaves->items[leaves->count++] = leaf;
}

void containerd_leaves_free(struct containerd_leaves *leaves)
{
	for (size_t i = 0; i < leaves->count; i++) {
		strv_free(&leaves->items[i].path);
		free(leaves->items[i].value);
	}
	free(leaves->items);
	*leaves = (struct containerd_leaves){0};
}

bool containerd_is_zero(const char *value)
{
	return strcmp(value, "\"\"") == 0 || strcmp(value, "0") == 0 || strcmp(value, "0.0") == 0 ||
	       strcmp(value, "false") == 0 || strcmp(value, "[]") == 0;
}

/* "SystemdCgroup = true". Options that say nothing are left out, but this one, which people look
 * for. */
static int add_option(struct containerd_leaves *ret, const char *name, const char *option,
                      struct error *err)
{
	CLEANUP_TOML struct toml *toml = NULL;
	CLEANUP_FREE char *value = NULL;
	const struct toml_node *node;

	if (toml_parse(&toml, option, "an option of the runtime", err) < 0)
		return -1;
	for (size_t i = 0; i < toml->root.count; i++) {
		node = &toml->root.children[i];
		free(STEAL(value));
		value = toml_show(node);
		if (strcmp(node->key, "BinaryName") != 0 &&
		    (!containerd_is_zero(value) || strcmp(node->key, "SystemdCgroup") == 0))
			containerd_leaves_add(ret, value, "runtimes", name, "options", node->key,
			                      NULL);
	}
	return 0;
}

int containerd_wanted(struct containerd_leaves *ret, const struct containerd_runtime *runtime,
                      bool as_runc, struct error *err)
{
	CLEANUP_CONTAINERD_LEAVES struct containerd_leaves leaves = {0};
	CLEANUP_FREE char *type = toml_quote(CONTAINERD_DEFAULT_RUNTIME_TYPE);
	CLEANUP_FREE char *binary = toml_quote(runtime->binary);
	const char *name = as_runc ? "runc" : runtime->name;

	containerd_leaves_add(&leaves, type, "runtimes", name, "runtime_type", NULL);
	if (!as_runc)
		containerd_leaves_add(&leaves, binary, "runtimes", name, "options", "BinaryName",
		                      NULL);
	for (size_t i = 0; runtime->options && i < runtime->options->count; i++)
		if (add_option(&leaves, name, runtime->options->items[i], err) < 0)
			return -1;
	*ret = leaves;
	leaves = (struct containerd_leaves){0};
	return 0;
}
