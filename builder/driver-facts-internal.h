/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of driver-facts.h: one for each kind of file that makes a driver. */
#ifndef GPUIMG_DRIVER_FACTS_INTERNAL_H
#define GPUIMG_DRIVER_FACTS_INTERNAL_H

#include "driver-facts.h"

/* Names in a directory; none where it cannot be read. */
struct strv driver_facts_list(struct rootfs *root, const char *path);
/* A small text of the image; NULL: missing, larger, unreadable. Owned by the caller. */
char *driver_facts_text(struct rootfs *root, const char *path, size_t max_bytes);

void driver_facts_modules(struct driver_facts *facts, struct rootfs *root,
                          const struct guest *guest);
void driver_facts_firmware(struct driver_facts *facts, struct rootfs *root);
void driver_facts_libraries(struct driver_facts *facts, struct rootfs *root);

#endif
