/* SPDX-License-Identifier: Apache-2.0 */
/* The generators that generator.c knows, one file each; nobody else includes this. */
#ifndef GPUIMG_GENERATOR_INTERNAL_H
#define GPUIMG_GENERATOR_INTERNAL_H

#include "generator.h"

extern const struct generator generator_initramfs_tools;
extern const struct generator generator_dracut;

#endif
