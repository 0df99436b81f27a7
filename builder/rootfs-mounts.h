/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several read-only root file systems as one tree, as mount(8) would: a path below a mount point is
 * answered by what is mounted there, and the mount point itself is its top directory. Links are
 * resolved by rootfs.c, so that a link of one may lead into another. 'device' of rootfs_stat is
 * made different for each.
 */
#ifndef GPUIMG_ROOTFS_MOUNTS_H
#define GPUIMG_ROOTFS_MOUNTS_H

#include "rootfs.h"

/* 'root' is owned by the result from now on. */
struct rootfs *rootfs_mounts_new(struct rootfs *root);
/* 'mounted' is owned by 'r' from now on, also after a failure. path: an absolute directory of it,
 * or a link to one; the longest match wins. Error: no such directory (EXIT_INPUT). */
int rootfs_mounts_add(struct rootfs *r, const char *path, struct rootfs *mounted,
                      struct error *err);

#endif
