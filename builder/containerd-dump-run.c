/* SPDX-License-Identifier: Apache-2.0 */
/* What containerd itself makes of its configuration: it reads, merges and migrates, and starts
 * nothing. */
#include <string.h>

#include "containerd-internal.h"

#define DUMP_TIMEOUT_MS 60000u
#define DUMP_MAX_BYTES  (4UL * 1024 * 1024)

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
