/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layer of a KubeVirt containerDisk (kubevirt.io/user-guide, "containerDisk"): an uncompressed
 * tar with disk/ and disk/NAME.qcow2, owned by 107:107. Uncompressed, since the image is compressed
 * and the layer is then the file itself between a head and a tail that are made here.
 */
#ifndef GPUIMG_PUBLISH_LAYER_H
#define GPUIMG_PUBLISH_LAYER_H

#include <stdint.h>

#include "builder/error.h"

/* Owned by the caller. The same for the same name and size, always. */
int layer_make(const char *name, uint64_t size_bytes, void **ret_head, size_t *ret_head_size,
               void **ret_tail, size_t *ret_tail_size, struct error *err);

#endif
