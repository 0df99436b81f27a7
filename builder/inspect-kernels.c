/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Per kernel: which modules claim an NVIDIA card, and whether the root file system lets them. What
 * one kernel has is wanted blocked for all: nova_core stands in the newer one only, and a block
 * written for that one does no harm to the other.
 */
#include "inspect-internal.h"
#include "json-text.h"
#include "modules.h"
#include "proof.h"

static void add_claimants(struct strv *blocked, const struct strv *claimants)
{
	for (size_t i = 0; i < claimants->count; i++)
		if (!modules_is_nvidia_driver(claimants->items[i]) &&
		    !strv_has(blocked, claimants->items[i]))
			strv_add(blocked, claimants->items[i]);
}

/* A kernel whose modules cannot be read: its directory is missing, has no index, or a damaged one.
 */
static void tell_no_modules(struct inspect *in, const char *version, const char *dir,
                            const struct error *why)
{
	if (!rootfs_is_dir(in->root, dir))
		finding_bad(&in->findings, "kernel.modules", NULL,
		            "kernel %s has no modules: '%s' is missing", version, dir);
	else
		finding_bad(&in->findings, "kernel.modules", NULL, "%s", why->message);
}

/* Reads one kernel's world, adds its claimants to 'blocked', and its facts to the list. */
static int read_world(struct inspect *in, size_t index, struct modules *m, struct strv *blocked,
                      json_t *list, struct error *err)
{
	const struct guest_kernel *k = &in->guest->kernels[index];
	CLEANUP_FREE char *name = str_format("root-%zu", index);
	CLEANUP_FREE char *scratch = inspect_scratch(in, name, err);
	CLEANUP_FREE char *dir = str_format("/lib/modules/%s", k->version);
	CLEANUP_ERROR struct error missing = ERROR_INIT;
	CLEANUP_STRV struct strv claimants = {0};
	CLEANUP_STRV struct strv builtin = {0};
	CLEANUP_STRV struct strv loadable = {0};

	if (!scratch)
		return -1;
	if (modules_from_rootfs(m, in->root, k->version, scratch, &missing) < 0) {
		if (missing.code != EXIT_INPUT)
			return error_take(err, &missing);
		tell_no_modules(in, k->version, dir, &missing);
		return 0;
	}
	if (modules_claimants(m, &claimants, &builtin, err) < 0 ||
	    modules_loadable_by_alias(m, &loadable, err) < 0)
		return error_prefix(err, "kernel '%s'", k->version);
	add_claimants(blocked, &claimants);
	json_array_append_new(
		list, json_pack("{s:o, s:o, s:o, s:o}", "version", json_text(k->version),
	                        "claimed_by", json_text_list(&claimants), "claimed_by_builtin",
	                        json_text_list(&builtin), "would_load", json_text_list(&loadable)));
	return 0;
}

static int read_worlds(struct inspect *in, struct modules *worlds, struct strv *blocked,
                       struct error *err)
{
	json_t *list = json_array();

	json_object_set_new(in->facts, "modules", list);
	for (size_t i = 0; i < in->guest->kernel_count; i++)
		if (!in->guest->kernels[i].rescue &&
		    read_world(in, i, &worlds[i], blocked, list, err) < 0)
			return -1;
	return 0;
}

static int judge(struct inspect *in, const struct modules *worlds, const struct strv *blocked,
                 struct error *err)
{
	for (size_t i = 0; i < in->guest->kernel_count; i++)
		if (worlds[i].dir && (proof_builtin(&in->findings, &worlds[i], err) < 0 ||
		                      proof_modules(&in->findings, &worlds[i], "root file system",
		                                    blocked, err) < 0))
			return -1;
	return 0;
}

static int judge_later(struct inspect *in, const struct strv *blocked, struct error *err)
{
	CLEANUP_FREE char *scratch = inspect_scratch(in, "later", err);

	if (!scratch || proof_modprobe_texts(&in->findings, in->root, err) < 0)
		return -1;
	return proof_later_block(&in->findings, in->root, in->guest, blocked, scratch, err);
}

int inspect_kernels(struct inspect *in, const struct inspect_want *want, struct strv *blocked,
                    struct error *err)
{
	size_t count = in->guest->kernel_count;
	struct modules *worlds = mem_alloc((count ? count : 1) * sizeof(*worlds));
	int result;

	strv_add_all(blocked, want->blocked);
	if (count == 0)
		finding_bad(&in->findings, "kernel.present", NULL, "the image has no kernel");
	result = read_worlds(in, worlds, blocked, err);
	if (result == 0)
		result = judge(in, worlds, blocked, err);
	if (result == 0)
		result = judge_later(in, blocked, err);
	for (size_t i = 0; i < count; i++)
		modules_free(&worlds[i]);
	free(worlds);
	return result;
}
