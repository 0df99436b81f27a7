/* SPDX-License-Identifier: Apache-2.0 */
/* The proof's point about SELinux: a node that enforces a policy can read what we wrote. */
#ifndef GPUIMG_PROOF_SELINUX_H
#define GPUIMG_PROOF_SELINUX_H

#include "error.h"
#include "finding.h"
#include "rootfs.h"
#include "str.h"

/*
 * "selinux.label": each of the paths that exists has the label that the image's policy gives it, or
 * the first boot relabels all. scratch: an existing directory of ours, for the policy's files.
 */
int proof_selinux(struct findings *f, struct rootfs *root, const struct strv *paths,
                  const char *scratch, struct error *err);

#endif
