/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Would a kernel module be loaded for an NVIDIA card? Answered by libkmod over the guest's own
 * modules.* indexes and modprobe.d files, copied to a scratch directory: the same oracle for
 * the root file system and for each initramfs.
 */
#ifndef GPUIMG_MODULES_H
#define GPUIMG_MODULES_H

#include <stdbool.h>

#include "error.h"
#include "initramfs.h"
#include "rootfs.h"
#include "str.h"

/* Aliases of the functions of an NVIDIA card as udev asks for them: an L4 as 3D controller and
 * as VGA controller, and older and newer device ids; PCI vendor 10de, class 03. */
extern const char *const modules_gpu_aliases[]; /* NULL at the end */

/* One kernel's module world in a scratch directory. */
struct modules {
	char *dir; /* …/lib/modules/KVER */
	char *kver;
	struct strv config_dirs; /* existing modprobe.d directories, kmod's order of priority */
};

/* From the guest's root: /lib/modules/KVER/modules.*, and modprobe.d of /etc, /usr/local/lib,
 * /usr/lib, /lib (links followed inside the guest). scratch: an existing directory that is ours. */
int modules_from_rootfs(struct modules *ret, struct rootfs *r, const char *kver,
                        const char *scratch, struct error *err);
/* The same from an initramfs that was read with modules_keep(). An initramfs without modules
 * at all gives a world where nothing can be loaded. */
int modules_from_initramfs(struct modules *ret, const struct initramfs *i, const char *kver,
                           const char *scratch, struct error *err);
initramfs_keep modules_keep;          /* keeps modprobe.d files and modules.* indexes */
void modules_free(struct modules *m); /* the scratch directory's content stays */
#define CLEANUP_MODULES CLEANUP(modules_free)

/*
 * Modules that have an alias for a display device (class 03) of vendor 10de: names with '_',
 * sorted, without regard to blacklists. NVIDIA's own driver (nvidia, nvidia_*, nvidia-current*…)
 * is among them: modules_is_nvidia_driver() tells it apart. Names of built-in ones go to
 * ret_builtin (may be NULL): no modprobe.d file can block those.
 */
int modules_claimants(const struct modules *m, struct strv *ret, struct strv *ret_builtin,
                      struct error *err);
/* But not nvidiafb, which is a framebuffer, nor modules of the kernel whose names begin so. */
bool modules_is_nvidia_driver(const char *name);

/* The module that a file is, with '_': "nvidia_drm" of "updates/dkms/nvidia-drm.ko.xz"; NULL: none.
 * Owned by the caller. */
char *modules_file_name(const char *path);

/* Modules that udev would really load for any of modules_gpu_aliases (blacklist and install
 * lines applied, as 'modprobe -b -n -v ALIAS' does), without NVIDIA's own driver. */
int modules_loadable_by_alias(const struct modules *m, struct strv *ret, struct error *err);
/* Whether 'modprobe NAME' would load it: exists and no install line ("/bin/false", "/bin/true",
 * ":") stands before. 1 yes, 0 no (or no such module), -1 error. */
int modules_loadable_by_name(const struct modules *m, const char *name, struct error *err);
/*
 * Modules that 'modprobe NAME' would load for that name, with '_': itself, or what its install line
 * loads by modprobe, however often that goes on (Debian's "install nvidia modprobe -i
 * nvidia-current $CMDLINE_OPTS"). Dependencies are not told. Nothing for one that is built in.
 */
int modules_loaded_for(const struct modules *m, const char *name, struct strv *ret,
                       struct error *err);
/* Whether the kernel has it as a module file or built in (modules.builtin). */
bool modules_have(const struct modules *m, const char *name, bool *ret_builtin);

#endif
