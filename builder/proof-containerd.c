/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exported image's containerd: what was asked about the working copy holds for the same bytes.
 * Points about CDI and the runtime's program are 'inspect's too.
 */
#include <string.h>

#include "containerd-internal.h"

#define CDI_MAX_FILES 64

/* A specification of NVIDIA's devices: majors, UUIDs and library paths of the machine that it was
 * made on. */
static int judge_spec(struct findings *f, struct rootfs *root, const char *path, bool wanted,
                      bool *found, struct error *err)
{
	CLEANUP_FREE char *text = NULL;

	if (containerd_read_text(&text, root, path, err) < 0)
		return -1;
	if (!text || !strstr(text, "nvidia.com/"))
		return 0;
	*found = true;
	finding_lack(f, wanted, "containerd.cdi",
	             "remove it: the runtime makes what it needs on each node, "
	             "nvidia-cdi-refresh.service does",
	             "'%s' is a CDI specification of NVIDIA devices, which is true for one machine "
	             "only",
	             path);
	return 0;
}

int containerd_judge_cdi(struct findings *f, struct rootfs *root, bool wanted, struct error *err)
{
	static const char *const dirs[] = {"/etc/cdi", "/run/cdi", "/var/run/cdi"};
	CLEANUP_STRV struct strv seen = {0};
	bool found = false;

	for (size_t d = 0; d < sizeof(dirs) / sizeof(dirs[0]); d++) {
		CLEANUP_STRV struct strv names = {0};

		if (rootfs_is_dir(root, dirs[d]) && rootfs_list(root, dirs[d], &names, err) < 0)
			return -1;
		for (size_t i = 0; i < names.count && i < CDI_MAX_FILES; i++) {
			CLEANUP_FREE char *path = str_format("%s/%s", dirs[d], names.items[i]);
			CLEANUP_FREE char *real = NULL;

			/* /var/run is a link to /run: each file once, and no dangling link */
			if (rootfs_resolve(root, path, true, &real, err) != 1 ||
			    rootfs_is_dir(root, real) || strv_has(&seen, real))
				continue;
			strv_add(&seen, real);
			if (judge_spec(f, root, real, wanted, &found, err) < 0)
				return -1;
		}
	}
	if (!found)
		finding_ok(f, "containerd.cdi", "no CDI specification is baked");
	return 0;
}

void containerd_judge_binary(struct findings *f, struct rootfs *root, const char *binary,
                             bool wanted)
{
	CLEANUP_FREE char *what = NULL;

	if (binary && containerd_is_program(root, binary)) {
		finding_ok(f, "containerd.binary", "'%s' is there", binary);
		return;
	}
	what = binary ? str_format("the runtime's program '%s' is missing", binary)
	              : str_format("'" CONTAINERD_RUNTIME_PROGRAM "' is missing");
	finding_lack(f, wanted, "containerd.binary",
	             "'gpuimg build' with a source that has nvidia-container-toolkit installs it",
	             "%s", what);
}

/* "SHA256  PATH" */
static const char *path_in(const char *line)
{
	return strstr(line, "  ") + 2;
}

/* All files that it loads now ('lines'), as they were when it was asked. */
static void judge_files(struct findings *f, const struct containerd_result *result,
                        const struct strv *lines)
{
	size_t wrong = 0;

	for (size_t i = 0; i < result->files.count; i++)
		if (!strv_has(lines, result->files.items[i])) {
			finding_bad(f, "containerd.runtime", "build again",
			            "'%s' is not what containerd was asked about",
			            path_in(result->files.items[i]));
			wrong++;
		}
	for (size_t i = 0; i < lines->count; i++)
		if (!strv_has(&result->files, lines->items[i])) {
			finding_bad(f, "containerd.runtime", "build again",
			            "'%s' was not there when containerd was asked",
			            path_in(lines->items[i]));
			wrong++;
		}
	if (!wrong)
		finding_ok(f, "containerd.runtime",
		           "the runtime '" CONTAINERD_RUNTIME_NAME "', by %s, in %zu files that "
		           "containerd %s",
		           result->by, lines->count,
		           result->dump ? "loads, as it says itself" : "will load");
}

/* What was recorded of a managed one: our drop-ins alone. */
static int add_recorded(struct strv *ret, struct rootfs *root,
                        const struct containerd_result *result, struct error *err)
{
	for (size_t i = 0; i < result->files.count; i++) {
		const char *path = path_in(result->files.items[i]);

		if (rootfs_exists(root, path) && containerd_add_digest(ret, root, path, err) < 0)
			return -1;
	}
	return 0;
}

int proof_containerd(struct findings *f, struct rootfs *root,
                     const struct containerd_result *result, struct error *err)
{
	CLEANUP_STRV struct strv lines = {0};

	if (!result->by)
		return 0;
	if ((result->dump && result->main_path
	             ? containerd_add_digests(&lines, root, result->main_path, result->globs, err)
	             : add_recorded(&lines, root, result, err)) < 0)
		return -1;
	judge_files(f, result, &lines);
	containerd_judge_binary(f, root, result->binary, true);
	return containerd_judge_cdi(f, root, true, err);
}
