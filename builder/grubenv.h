/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GRUB's environment block: exactly 1024 bytes, "# GRUB Environment Block\n", "name=value\n" lines
 * with '\' escapes, filled up with '#' (grub-core/lib/envblk.c). GRUB writes it in place, so its
 * size must never change. Enterprise Linux 8 and 9 keep 'kernelopts' there.
 */
#ifndef GPUIMG_GRUBENV_H
#define GPUIMG_GRUBENV_H

#include <stddef.h>

#include "error.h"

/* The value of a variable, owned by the caller; NULL: not set, or not an environment block. */
char *grubenv_get(const void *block, size_t size, const char *name);
/* The block with the variable set, of the same size. Errors: no environment block (EXIT_INPUT),
 * or no room for the value. */
int grubenv_set(void **ret, const void *block, size_t size, const char *name, const char *value,
                struct error *err);

#endif
