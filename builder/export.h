/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the overlay and its base as one compressed qcow2 without a backing file, with
 * qemu-img. The bytes depend on the content alone (no out-of-order writes).
 */
#ifndef GPUIMG_EXPORT_H
#define GPUIMG_EXPORT_H

#include "error.h"
#include "log.h"

/* compression: "zlib", "zstd" or "none". 'to' must not exist; it is flushed to the disk. */
int export_image(const char *overlay, const char *to, const char *compression, struct log *log,
                 struct error *err);
/* A qcow2 overlay over a base of a known format. Paths may hold any byte but NUL. */
int export_overlay(const char *overlay, const char *base, const char *base_format, struct log *log,
                   struct error *err);

#endif
