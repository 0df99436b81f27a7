/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the stage 'initramfs' that runs the generator; nobody else includes this. */
#ifndef GPUIMG_INITRAMFS_MAKE_H
#define GPUIMG_INITRAMFS_MAKE_H

#include "builder/build.h"
#include "builder/generator.h"

/* The initramfs of every kernel of b->guest but rescue ones, from the cache or anew; side by side
 * where that is safe. program: as generator->find_program() gave it. */
int initramfs_make_all(struct build *b, const struct generator *generator, const char *program,
                       struct error *err);

#endif
