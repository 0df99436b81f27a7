/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd: the runtime 'nvidia', so that containers get GPUs without an operator's toolkit. In
 * the schema of this image's containerd and of its configuration, proven by what that containerd
 * says itself. The container toolkit is installed where the image lacks it.
 */
#include "builder/bake.h"
#include "builder/containerd-toolkit.h"
#include "builder/packages.h"
#include "stages/stages.h"

static struct containerd_setup setup_of(struct build *b)
{
	return (struct containerd_setup){.root = b->root,
	                                 .containerd = &b->containerd,
	                                 .make_default = b->options->default_runtime,
	                                 .log = b->log};
}

/* Reads it anew from a root. */
static int find(struct build *b, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv packages = {0};
	int found;

	containerd_free(&b->containerd);
	if (packages_read(&packages, root, err) < 0)
		return -1;
	found = containerd_find(&b->containerd, root, &packages, true, b->log, err);
	if (found)
		return found < 0 ? -1 : 0;
	return containerd_none(root, err);
}

static int containerd_stage_check(struct build *b, struct error *err)
{
	if (!b->options->containerd_runtime)
		return 0;
	if (find(b, b->base_root, err) < 0)
		return -1;
	return containerd_check(&b->containerd, b->base_root, b->options->default_runtime, err);
}

static int containerd_stage_plan(struct build *b, struct error *err)
{
	return b->options->containerd_runtime ? containerd_plan_toolkit(b, err) : 0;
}

static int containerd_stage_apply(struct build *b, struct error *err)
{
	struct containerd_setup setup = setup_of(b);

	if (!b->options->containerd_runtime)
		return 0;
	if (b->toolkit_install.count && bake_packages(b, err) < 0)
		return -1;
	if (find(b, b->root, err) < 0)
		return -1;
	return containerd_set_up(&b->containerd_result, &setup, err);
}

static int containerd_stage_observe(struct build *b, struct error *err)
{
	struct containerd_setup setup = setup_of(b);

	return b->containerd_result.by ? containerd_look_again(&b->containerd_result, &setup, err)
	                               : 0;
}

static int containerd_stage_verify(struct build *b, struct error *err)
{
	return b->containerd_result.by
	               ? proof_containerd(&b->findings, b->result_root, &b->containerd_result, err)
	               : 0;
}

const struct stage stage_containerd = {
	.name = "containerd",
	.summary = "the runtime 'nvidia' in containerd's configuration (--containerd-runtime)",
	.check = containerd_stage_check,
	.plan = containerd_stage_plan,
	.apply = containerd_stage_apply,
	.observe = containerd_stage_observe,
	.verify = containerd_stage_verify,
};
