/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of imports, as Go's filepath.Clean and filepath.Glob see them. */
#include <fnmatch.h>
#include <string.h>

#include "containerd-config-internal.h"

char *containerd_clean_path(const char *dir, const char *path)
{
	CLEANUP_FREE char *whole = *path == '/' ? str_copy(path) : str_format("%s/%s", dir, path);
	CLEANUP_STRV struct strv parts = strv_split(whole, "/"), kept = {0};
	CLEANUP_FREE char *joined = NULL;

	for (size_t i = 0; i < parts.count; i++) {
		if (strcmp(parts.items[i], ".") == 0)
			continue;
		if (strcmp(parts.items[i], "..") != 0)
			strv_add(&kept, parts.items[i]);
		else if (kept.count > 0)
			strv_remove(&kept, kept.count - 1);
	}
	joined = strv_join(&kept, "/");
	return str_format("/%s", joined);
}

char *containerd_dir_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return str_copy("/");
	return mem_copy(path, (size_t)(slash - path));
}

char *containerd_dropin_dir(const char *main_path)
{
	CLEANUP_FREE char *dir = containerd_dir_of(main_path);

	return containerd_clean_path(dir, "conf.d");
}

/* Only '*' makes containerd look for matches; the other signs mean something in what it matches. */
bool containerd_is_pattern(const char *path)
{
	return strchr(path, '*') != NULL;
}

static int match_names(struct strv *ret, struct rootfs *root, const char *dir, const char *pattern,
                       struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (!rootfs_is_dir(root, dir))
		return 0;
	if (rootfs_list(root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		if (fnmatch(pattern, names.items[i], 0) != 0)
			continue;
		if (ret->count >= CONTAINERD_MAX_FILES) {
			error_set(err, "'%s/%s' matches more than %d files", dir, pattern,
			          CONTAINERD_MAX_FILES);
			return error_code(err, EXIT_INPUT);
		}
		strv_addf(ret, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, names.items[i]);
	}
	return 0;
}

/* One component further, from each directory that matched so far. */
static int step(struct strv *dirs, struct rootfs *root, const char *part, struct error *err)
{
	CLEANUP_STRV struct strv next = {0};
	struct strv old = *dirs;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < old.count; i++) {
		const char *dir = old.items[i];

		if (strpbrk(part, "*?[\\"))
			rc = match_names(&next, root, dir, part, err);
		else if (rootfs_is_dir(root, dir))
			strv_addf(&next, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, part);
	}
	strv_free(&old);
	*dirs = next;
	next = (struct strv){0};
	return rc;
}

int containerd_glob(struct strv *ret, struct rootfs *root, const char *pattern, struct error *err)
{
	CLEANUP_STRV struct strv parts = strv_split(pattern, "/"), found = {0};

	strv_add(&found, "/");
	for (size_t i = 0; i < parts.count; i++)
		if (step(&found, root, parts.items[i], err) < 0)
			return error_prefix(err, "cannot look for the imports '%s'", pattern);
	for (size_t i = 0; i < found.count; i++) {
		struct rootfs_stat st;
		/* a plain last component after a pattern: only where it exists */
		int there = rootfs_lstat(root, found.items[i], &st, err);

		if (there < 0)
			return error_prefix(err, "cannot look for the imports '%s'", pattern);
		if (there)
			strv_add(ret, found.items[i]);
	}
	return 0;
}
