/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's container toolkit: where its packages come from, for images that lack the runtime's
 * program. */
#ifndef GPUIMG_CONTAINERD_TOOLKIT_H
#define GPUIMG_CONTAINERD_TOOLKIT_H

#include "apt.h"
#include "build.h"
#include "error.h"

/*
 * Adds the toolkit's repository to the image's apt, before apt_update(): --toolkit-repo, or
 * NVIDIA's own with its key pinned. Does nothing where the runtime is there or not wanted, without
 * network, and where packages come from places of the user's (--apt-repo, --driver-source=debs)
 * that may be all that is reachable.
 */
int containerd_add_sources(struct build *b, struct apt *apt, struct error *err);
/* What is to be installed for the runtime, in b->toolkit_install and b->toolkit_packages; nothing
 * where it is there. EXIT_INPUT: no source has it. */
int containerd_plan_toolkit(struct build *b, struct error *err);

#endif
