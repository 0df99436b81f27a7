/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel of the image as somebody who makes modules for it sees it. */
#ifndef GPUIMG_DRIVER_KERNEL_H
#define GPUIMG_DRIVER_KERNEL_H

#include "error.h"
#include "rootfs.h"
#include "str.h"

/* Whether modules can be compiled for it: its headers are where its build link leads. */
bool driver_kernel_has_headers(struct rootfs *root, const char *version);
/* EXIT_INPUT, which names all of these kernels; the cure is a package for each. */
int driver_kernel_no_headers(const struct strv *versions, struct error *err);
/* Makes modules.dep and its kin anew, of this kernel and never of the running one. */
int driver_kernel_depmod(struct rootfs *root, const char *version, struct error *err);
/*
 * The module's file as modules.dep has it ("/lib/modules/VERSION/updates/dkms/nvidia.ko.xz"), for a
 * name without ".ko". 1: it is listed and is a regular file, 0: not, -1: error.
 */
int driver_kernel_find(struct rootfs *root, const char *version, const char *name, char **ret,
                       struct error *err);

#endif
