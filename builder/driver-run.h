/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's .run installer, a file of the user's (never downloaded by us), run in the image so that
 * it looks at nothing of the build machine: no GPU, no loaded modules, no running kernel, no X
 * (options: nvidia-installer's option table).
 */
#ifndef GPUIMG_DRIVER_RUN_H
#define GPUIMG_DRIVER_RUN_H

#include "driver.h"
#include "error.h"
#include "guest.h"
#include "log.h"
#include "rootfs.h"

/* What the file says that it is, from its head (a shell script that makeself wrote). */
struct driver_run_head {
	char *arch;    /* in NVIDIA's words: "x86_64", "aarch64" */
	char *version; /* "580.95.05" */
	uint64_t size_bytes;
};

/* Not such a file: EXIT_INPUT. */
int driver_run_read_head(struct driver_run_head *ret, const char *path, struct error *err);
void driver_run_head_free(struct driver_run_head *head);
#define CLEANUP_DRIVER_RUN_HEAD CLEANUP(driver_run_head_free)
/*
 * The plan of a .run file: branch and version from its head, and every kernel of the image but
 * rescue ones. EXIT_INPUT: made for another architecture; another branch than asked (unless
 * allow_forward); and what the image lacks: the kernels without headers, all by name, and the
 * packages of a missing compiler. branch may be NULL: the file's own.
 */
int driver_run_plan(struct driver_plan *ret, const char *path, const char *branch,
                    enum driver_flavour flavour, bool allow_forward, struct rootfs *root,
                    const struct guest *guest, struct error *err);
/*
 * What the installer compiles with, and DKMS, may be on the image for the sake of the driver's
 * packages only: before these are removed, it is marked as wanted for itself. An installer has no
 * dependencies that would keep it, neither now nor on the node.
 */
int driver_run_keep_tools(struct rootfs *root, struct error *err);
/*
 * Installs for the first kernel, then modules only for each further one. dkms: registers with DKMS,
 * and lets it build; an image without DKMS gets modules alone, which is told. The file is checked
 * first (its own
 * --check), and is gone from the image afterwards. The error has the kernel's name and the last
 * lines of the installer's log.
 */
int driver_run_install(struct rootfs *root, const char *path, const struct driver_plan *plan,
                       bool dkms, struct log *log, struct error *err);
/* Whether the help text of an installer (--advanced-options) has this option: which ones there are
 * depends on its version, and it refuses others. */
bool driver_run_offers(const char *help, const char *option);

#endif
