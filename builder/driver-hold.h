/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What keeps a baked driver and the kernels that it was made for together on the node: dpkg holds
 * on the real packages and on kernel packages with their metapackages (a hold on one that only
 * forwards holds nothing), an apt preference for their versions, and unattended-upgrades' list of
 * what it leaves alone.
 */
#ifndef GPUIMG_DRIVER_HOLD_H
#define GPUIMG_DRIVER_HOLD_H

#include "driver.h"
#include "error.h"
#include "rootfs.h"
#include "str.h"

#define DRIVER_PREFERENCES_PATH "/etc/apt/preferences.d/gpuimg-driver" /* apt_preferences(5) */
#define DRIVER_UNATTENDED_PATH  "/etc/apt/apt.conf.d/52gpuimg-driver"

/* Names to be held: the plan's driver packages, and of dpkg's record (packages.h) what is a kernel,
 * its modules or headers, or a metapackage of such. Sorted, each once. */
void driver_hold_names(struct strv *ret, const struct driver_plan *plan, const char *status);
/* The two files' texts, owned by the caller. installed: "name=version" of all packages. */
char *driver_preferences_text(const struct strv *held, const struct strv *installed);
char *driver_unattended_text(const struct strv *held);
/* Marks them as held, or no longer, by the image's own apt-mark(8). */
int driver_hold(struct rootfs *root, const struct strv *names, struct error *err);
int driver_unhold(struct rootfs *root, const struct strv *names, struct error *err);
/* Marks them as wanted for themselves: apt's autoremove leaves them, whoever needed them before. */
int driver_keep(struct rootfs *root, const struct strv *names, struct error *err);

#endif
