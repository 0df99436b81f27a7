/* SPDX-License-Identifier: Apache-2.0 */
/* A root file system in the sandbox, as a build has it: a tar's tree, and what runs in it. */
#ifndef GPUIMG_TRY_ROOT_H
#define GPUIMG_TRY_ROOT_H

#include <errno.h>
#include <fcntl.h>

#include "builder/sandbox.h"
#include "builder/tree.h"

struct try_root {
	struct tree *tree; /* NULL: it was unpacked by an earlier run */
	struct sandbox *sandbox;
	struct rootfs *root;
};

/* Makes the directory. */
static inline int try_root_unpack(struct try_root *r, const char *tar, uint64_t max_bytes,
                                  const char *dir, struct log *log, struct error *err)
{
	CLEANUP_CLOSE int fd = open(tar, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "cannot open '%s'", tar);
	return tree_extract_tar(&r->tree, fd, max_bytes, dir, log, err);
}

static inline int try_root_open(struct try_root *r, const char *dir, const char *data_dir,
                                struct log *log, struct error *err)
{
	const struct sandbox_options options = {.dir = dir, .data_dir = data_dir, .log = log};

	if (sandbox_new(&r->sandbox, &options, err) < 0)
		return -1;
	return tree_rootfs(&r->root, dir, r->sandbox, err);
}

static inline void try_root_free(struct try_root *r)
{
	rootfs_close(r->root);
	sandbox_free(r->sandbox);
	tree_free(r->tree);
}
#define CLEANUP_TRY_ROOT CLEANUP(try_root_free)

#endif
