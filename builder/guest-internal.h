/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers of a guest share: guest.c (which volume is the root, what is mounted where),
 * guest-facts.c (what its files say of it), guest-kernels.c.
 */
#ifndef GPUIMG_GUEST_INTERNAL_H
#define GPUIMG_GUEST_INTERNAL_H

#include "guest.h"

#define GUEST_TEXT_MAX_BYTES (1024UL * 1024) /* of a configuration file */

/* Distribution, initramfs generator, kernels, architecture and boot loader. */
int guest_read_facts(struct guest *g, struct rootfs *root, struct error *err);
void guest_forget_kernels(struct guest *g);

#endif
