/* SPDX-License-Identifier: Apache-2.0 */
/* What containerd itself makes of its configuration: it reads, merges and migrates, and starts
 * nothing. */
#include <string.h>

#include "containerd-config-internal.h"
#include "containerd-internal.h"

#define DUMP_TIMEOUT_MS 60000u
#define DUMP_MAX_BYTES  (4UL * 1024 * 1024)
#define BEFORE_NAME     ".gpuimg-before" /* no ".toml": no import takes it for one */
#define BEFORE_TRIES    16

int containerd_run_dump(char **ret, struct rootfs *root, const struct containerd *c,
                        struct error *err)
{
	/* 1.x does not dump what is not there, but runs without it just the same. */
	const char *const with_file[] = {c->program, "--config", c->config_path,
	                                 "config",   "dump",     NULL};
	const char *const without[] = {c->program, "config", "default", NULL};
	CLEANUP_FREE char *text = NULL;
	struct guest_command command = {.argv = with_file,
	                                .timeout_ms = DUMP_TIMEOUT_MS,
	                                .ret_stdout = &text,
	                                .max_bytes = DUMP_MAX_BYTES};

	if (!c->program)
		return error_set(err, "%s has no containerd that could be asked",
		                 containerd_manager_name(c->manager));
	if (!rootfs_exists(root, c->config_path))
		command.argv = without;
	if (rootfs_run(root, &command, err) < 0)
		return error_prefix(err, "the image's containerd does not load '%s'",
		                    c->config_path);
	*ret = STEAL(text);
	return 0;
}

/* Whether an imported file switches it off. */
static bool import_disables_cri(const struct containerd_files *files)
{
	for (size_t i = 1; i < files->count; i++)
		if (containerd_disables_cri(files->items[i].toml))
			return true;
	return false;
}

/* The main file with the CRI plugin switched on; NULL: it is not the only one that switches it
 * off. */
static char *text_with_cri(const struct containerd_files *files)
{
	const struct containerd_file *file = files->count ? &files->items[0] : NULL;
	const struct toml_node *list =
		file ? toml_find(&file->toml->root, "disabled_plugins", NULL) : NULL;
	CLEANUP_STRV struct strv kept = {0};
	CLEANUP_FREE char *items = NULL;

	if (!list || list->type != TOML_ARRAY || import_disables_cri(files))
		return NULL;
	for (size_t i = 0; i < list->count; i++) {
		const struct toml_node *item = &list->children[i];

		if (item->type == TOML_STRING && !containerd_is_cri_name(item->text))
			strv_take(&kept, toml_quote(item->text));
	}
	items = strv_join(&kept, ", ");
	return str_format("%.*s[%s]%s", (int)list->begin, file->text, items,
	                  file->text + list->end);
}

/* A name that nothing has, beside the file by the path that containerd is given: relative imports
 * count from there, also where that path is a link. */
static int choose_name(char **ret, struct rootfs *root, const char *config_path, struct error *err)
{
	CLEANUP_FREE char *dir = containerd_dir_of(config_path);
	const char *slash = strcmp(dir, "/") == 0 ? "" : dir;

	for (int i = 0; i < BEFORE_TRIES; i++) {
		CLEANUP_FREE char *path = i ? str_format("%s/" BEFORE_NAME "%d", slash, i)
		                            : str_format("%s/" BEFORE_NAME, slash);
		struct rootfs_stat st;
		int there = rootfs_lstat(root, path, &st, err);

		if (there < 0)
			return -1;
		if (!there) {
			*ret = STEAL(path);
			return 0;
		}
	}
	error_set(err, "'%s/" BEFORE_NAME "' and all names like it are taken", slash);
	return error_code(err, EXIT_INPUT);
}

int containerd_run_dump_with_cri(char **ret, struct rootfs *root, const struct containerd *c,
                                 const struct containerd_files *files, struct error *err)
{
	CLEANUP_ERROR struct error later = ERROR_INIT;
	CLEANUP_FREE char *text = text_with_cri(files);
	CLEANUP_FREE char *path = NULL;
	struct containerd copy = *c;
	int result;

	if (!text) {
		error_set(err,
		          "a file that '%s' imports disables the CRI plugin, and no kubelet can "
		          "use this containerd",
		          c->config_path);
		error_hint(err, "take 'cri' out of its disabled_plugins");
		return error_code(err, EXIT_INPUT);
	}
	if (choose_name(&path, root, c->config_path, err) < 0)
		return -1;
	copy.config_path = path;
	if (rootfs_write(root, path, text, strlen(text), 0644, err) < 0)
		return -1;
	result = containerd_run_dump(ret, root, &copy, err);
	if (rootfs_remove(root, path, result < 0 ? &later : err) < 0)
		return -1;
	return result;
}
