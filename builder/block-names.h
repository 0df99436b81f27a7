/* SPDX-License-Identifier: Apache-2.0 */
/* The modules that our own modprobe.d file (boot/modprobe.d) blocks. */
#ifndef GPUIMG_BLOCK_NAMES_H
#define GPUIMG_BLOCK_NAMES_H

#include "error.h"
#include "str.h"

#define BLOCK_NAMES_DATA "boot/modprobe.d/gpuimg-gpu-block.conf"

/* Names in 'blacklist' lines, in the file's order; one that 'ret' has already is not added. */
void block_names_parse(const char *text, struct strv *ret);
/* Those of the file that is shipped. */
int block_names_read(struct strv *ret, const char *data_dir, struct error *err);

#endif
