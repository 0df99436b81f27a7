/* SPDX-License-Identifier: Apache-2.0 */
/* What was done to containerd's configuration, as it is recorded, and whether it still holds after
 * later stages. */
#include "containerd-internal.h"
#include "digest.h"

int containerd_add_digest(struct strv *ret, struct rootfs *root, const char *path,
                          struct error *err)
{
	CLEANUP_FREE void *data = NULL;
	CLEANUP_FREE char *digest = NULL;
	size_t size;

	if (rootfs_read(root, path, CONTAINERD_TEXT_MAX_BYTES, &data, &size, err) < 0)
		return -1;
	digest = digest_memory(data, size);
	strv_addf(ret, "%s  %s", digest, path);
	return 0;
}

int containerd_add_digests(struct strv *ret, struct rootfs *root, const char *main_path,
                           enum containerd_globs globs, struct error *err)
{
	CLEANUP_CONTAINERD_FILES struct containerd_files files = {.globs = globs};

	if (containerd_files_read(&files, root, main_path, err) < 0)
		return -1;
	for (size_t i = 0; i < files.count; i++)
		if (containerd_add_digest(ret, root, files.items[i].path, err) < 0)
			return -1;
	return 0;
}

int containerd_not_so(const struct containerd *c, const struct strv *complaints, struct error *err)
{
	CLEANUP_FREE char *all = strv_join(complaints, "; ");

	error_set(err, "by what containerd %s says of '%s': %s", c->version ? c->version : "itself",
	          c->config_path, all);
	return error_code(err, EXIT_PROOF);
}

static int look_again_plain(struct containerd_result *result, const struct containerd_setup *setup,
                            struct error *err)
{
	const struct containerd *c = setup->containerd;
	CLEANUP_CONTAINERD_DUMP struct containerd_dump dump = {0};
	CLEANUP_STRV struct strv options = {0};
	CLEANUP_STRV struct strv complaints = {0};
	CLEANUP_STRV struct strv files = {0};
	CLEANUP_FREE char *text = NULL;
	struct containerd_runtime runtime = {.name = CONTAINERD_RUNTIME_NAME,
	                                     .binary = result->binary,
	                                     .options = &options,
	                                     .make_default = setup->make_default};

	if (containerd_run_dump(&text, setup->root, c, err) < 0 ||
	    containerd_dump_parse(&dump, text, err) < 0)
		return error_code(err, EXIT_PROOF);
	if (dump.cri)
		options = containerd_dump_model(&dump);
	/* the dump against itself: what a script changed beside the runtime is the user's will */
	containerd_dump_judge(&dump, &dump, &runtime, &complaints);
	if (complaints.count)
		return containerd_not_so(c, &complaints, err);
	if (containerd_add_digests(&files, setup->root, c->config_path, c->globs, err) < 0)
		return -1;
	strv_free(&result->files);
	result->files = files;
	files = (struct strv){0};
	free(result->dump);
	result->dump = STEAL(text);
	return 0;
}

int containerd_look_again(struct containerd_result *result, const struct containerd_setup *setup,
                          struct error *err)
{
	int done = setup->containerd->manager == CONTAINERD_PLAIN
	                   ? look_again_plain(result, setup, err)
	                   : containerd_managed_look_again(result, setup, err);

	if (done < 0) {
		error_prefix(err, "containerd was set up, but later");
		error_hint(err, "see what --run and --upload change of its configuration");
	}
	return done;
}

void containerd_result_free(struct containerd_result *result)
{
	free(result->by);
	free(result->binary);
	free(result->main_path);
	free(result->dump);
	strv_free(&result->files);
	strv_free(&result->edited);
	strv_free(&result->notes);
	*result = (struct containerd_result){0};
}
