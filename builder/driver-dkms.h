/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver's modules by DKMS (dkms(8)), kernel by kernel and by name: 'dkms autoinstall' exits 0
 * for a kernel whose headers are missing or that a module excludes (BUILD_EXCLUSIVE), and the
 * packages' own scripts take the running kernel, which is the build host's, or the newest.
 */
#ifndef GPUIMG_DRIVER_DKMS_H
#define GPUIMG_DRIVER_DKMS_H

#include "driver.h"
#include "error.h"
#include "log.h"
#include "rootfs.h"

/* A stand-in for 'dkms' while packages are installed (apt_stub): NVIDIA's modules are registered by
 * their packages, but built by us; those of others are built as they would be on the node. */
extern const char driver_dkms_stub[];

/*
 * Builds and installs every registered module of NVIDIA's for each kernel of the plan that is
 * DRIVER_DKMS; none such: nothing is done. The error names the kernel and the reason: no headers
 * (all such kernels, before anything is compiled), excluded (with the directive), not compiled
 * (with the last lines of make.log), no space, nothing registered. Progress: two lines for each
 * kernel.
 */
int driver_dkms_build(struct rootfs *root, const struct driver_plan *plan, struct log *log,
                      struct error *err);
/* The same for these kernels, however the plan says that they get their modules. */
int driver_dkms_build_kernels(struct rootfs *root, const struct strv *versions, struct log *log,
                              struct error *err);
/* Whether BUILD_EXCLUSIVE_CONFIG of a registered module ("NAME/VERSION") excludes this kernel by
 * its configuration: 1, and *ret_why is the word that does ("!CONFIG_PREEMPT_RT"); 0; -1. */
int driver_dkms_excluded(struct rootfs *root, const char *name_version, const char *kernel,
                         char **ret_why, struct error *err);
bool driver_dkms_is_there(struct rootfs *root); /* whether the image has DKMS */
/* "NAME/VERSION" of NVIDIA's modules that are registered, from DKMS's own record. */
int driver_dkms_list(struct strv *ret, struct rootfs *root, struct error *err);
/*
 * Takes the registration away and leaves the modules: nothing is built on the node any more. Hooks
 * of later kernel packages call 'dkms autoinstall', which finds nothing to do, so a kernel that
 * comes later has no driver: kernel and driver are to be held together. The package of the sources,
 * if it is removed one day, finds nothing registered and leaves the modules behind, as does a
 * kernel's.
 */
int driver_dkms_unregister(struct rootfs *root, struct log *log, struct error *err);
/* Keys that DKMS made in this build to sign modules with: a private key does not belong into an
 * image. 'had_key': the base had one of its own, which stays. */
int driver_dkms_drop_key(struct rootfs *root, bool had_key, struct log *log, struct error *err);
bool driver_dkms_has_key(struct rootfs *root);

#endif
