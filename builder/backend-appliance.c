/* SPDX-License-Identifier: Apache-2.0 */
/* The stages work on the mounted overlay itself. */
#include "backend-internal.h"

static int appliance_open(struct build *b, struct error *err)
{
	if (backend_start_appliance(b, err) < 0 || backend_mount(b, NULL, err) < 0)
		return -1;
	return appliance_rootfs(&b->root, b->appliance, err);
}

static int appliance_commit(struct build *b, struct error *err)
{
	if (backend_relabel_later(b, err) < 0)
		return -1;
	rootfs_close(STEAL(b->root));
	return backend_finish_appliance(b, err);
}

const struct backend backend_appliance = {
	.name = "appliance",
	.open = appliance_open,
	.commit = appliance_commit,
};
