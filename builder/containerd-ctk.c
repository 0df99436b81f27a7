/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the image's own nvidia-ctk may write the runtime. What is known of its versions
 * (cmd/nvidia-ctk, pkg/config/engine/containerd):
 *
 * - before 1.18: writes the whole main file anew, without its comments;
 * - 1.18.0: drops the imports that are there, and its drop-in goes to a directory of another name;
 * - 1.18.1 on: a drop-in with a copy of the main file's CRI section, and an import of it.
 *   containerd 1.x reads the copy in place of that section, and what is edited in the main file on
 *   a node would be lost;
 * - before 1.20: runtime_type and options only as far as the main file has them for runc.
 *
 * All of them read the main file and not what it imports, and take a file without a version for one
 * of version 1, for which they write what nothing reads, and exit with 0.
 */
#include <string.h>

#include "containerd-internal.h"

static bool is_before(const int v[3], int major, int minor, int patch)
{
	if (v[0] != major)
		return v[0] < major;
	return v[1] != minor ? v[1] < minor : v[2] < patch;
}

static const struct toml_node *cri_of(const struct containerd_file *file, int version)
{
	return toml_find(&file->toml->root, "plugins", containerd_plugin_key(version), NULL);
}

/* What it would have to copy from imported files, which it does not read. */
static const char *import_with_cri(const struct containerd_files *files)
{
	for (size_t i = 1; i < files->count; i++)
		if (cri_of(&files->items[i], 1) || cri_of(&files->items[i], 2) ||
		    cri_of(&files->items[i], 3))
			return files->items[i].path;
	return NULL;
}

/* Why not, by the files alone; NULL: good. */
static char *against_files(const struct containerd_files *files)
{
	const char *import = import_with_cri(files);

	if (files->main_exists && (!files->count || !files->items[0].version))
		return str_format("it writes for '%s', which has no version, what nothing reads",
		                  files->main_path);
	if (containerd_cri_disabled(files))
		return str_format("it leaves the CRI plugin disabled");
	if (import)
		return str_format("it does not read '%s', which has settings of the CRI plugin",
		                  import);
	return NULL;
}

/* Whether runc's runtime_type and options stand in the main file. */
static bool has_runc(const struct containerd_files *files)
{
	const struct toml_node *cri =
		files->count ? cri_of(&files->items[0], files->items[0].version) : NULL;
	const struct toml_node *runc =
		cri ? toml_find(cri, "containerd", "runtimes", "runc", NULL) : NULL;

	return runc && toml_find(runc, "runtime_type", NULL) && toml_find(runc, "options", NULL);
}

static char *against_version(const struct containerd *c, const struct containerd_files *files)
{
	const char *version = c->ctk_version;
	int v[3] = {0};

	if (!version || !containerd_version_numbers(version, v))
		return str_format("its version is not known");
	if (strstr(version, "rc"))
		return str_format("%s is a release candidate", version);
	if (v[0] == 1 && v[1] == 18 && v[2] == 0)
		return str_format("1.18.0 drops imports, and writes where nothing reads");
	if (c->major < 2 && !is_before(v, 1, 18, 1))
		return str_format("%s copies the CRI section of '%s' into a file that containerd "
		                  "1.x reads in its place",
		                  version, files->main_path);
	if (is_before(v, 1, 18, 1) && files->count && strchr(files->items[0].text, '#'))
		return str_format("%s takes the comments out of '%s'", version, files->main_path);
	if (is_before(v, 1, 20, 0) && !has_runc(files))
		return str_format("%s writes no runtime_type and no options where '%s' has none "
		                  "for runc",
		                  version, files->main_path);
	return NULL;
}

bool containerd_ctk_is_good(const struct containerd *c, const struct containerd_files *files,
                            char **ret_why)
{
	char *why = NULL;

	if (!c->ctk)
		why = str_copy("there is none");
	else if (c->manager != CONTAINERD_PLAIN)
		why = str_format("%s has a configuration of its own kind",
		                 containerd_manager_name(c->manager));
	if (!why)
		why = against_version(c, files);
	if (!why)
		why = against_files(files);
	if (!why)
		return true;
	free(*ret_why);
	*ret_why = why;
	return false;
}
