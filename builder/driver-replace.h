/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that is on the image already: refused by name, or taken out (--replace-driver). */
#ifndef GPUIMG_DRIVER_REPLACE_H
#define GPUIMG_DRIVER_REPLACE_H

#include "apt.h"
#include "driver-facts.h"

/* 0: there is none. EXIT_INPUT: there is one; the message says which (version, packages, or files).
 */
int driver_refuse_existing(const struct driver_facts *facts, struct error *err);
/*
 * Takes it out by the way it came: packages are purged (holds lifted), a .run installation is
 * removed by its own nvidia-uninstall, DKMS registrations and modules that nobody owns are deleted.
 * apt may be NULL where nothing came by packages. After it driver_facts_read() finds nothing; what
 * is left is an error that names it.
 */
int driver_remove_existing(struct rootfs *root, const struct guest *guest,
                           const struct driver_facts *facts, struct apt *apt, struct log *log,
                           struct error *err);

#endif
