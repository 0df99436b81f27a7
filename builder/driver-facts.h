/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NVIDIA driver an image holds, from its files and dpkg's record: for inspect, for the
 * refusal of a driver over a driver, and for the proof. Read only; nothing of the image is run.
 */
#ifndef GPUIMG_DRIVER_FACTS_H
#define GPUIMG_DRIVER_FACTS_H

#include <jansson.h>

#include "error.h"
#include "guest.h"
#include "module-info.h"
#include "rootfs.h"

struct driver_module {
	char *kernel; /* version */
	char *file;   /* "/lib/modules/6.1…/updates/dkms/nvidia-current.ko" */
	char *name;   /* with '_', of the file: "nvidia_current" */
	struct module_info info;
	bool unread; /* missing, damaged, or no module: 'info' is empty */
	bool listed; /* modules.dep names it, so that modprobe finds it */
};

struct driver_facts {
	struct strv packages;          /* "name=version", of the driver (driver.h), sorted */
	struct strv held;              /* names of packages that dpkg has on hold, of any kind */
	struct strv smi;               /* paths of nvidia-smi */
	struct strv run_installers;    /* paths of nvidia-uninstall, nvidia-installer */
	struct driver_module *modules; /* of every kernel but rescue ones; NVIDIA's by the image's
	                                * names; sorted by file for each kernel */
	size_t module_count;
	struct strv dkms;             /* "NAME/VERSION" that is registered, not only NVIDIA's */
	struct strv libraries;        /* "VERSION PATH" of libcuda.so.VERSION and
	                               * libnvidia-ml.so.VERSION in directories that the dynamic
	                               * linker uses, through links (Debian's alternatives) */
	struct strv firmware_missing; /* "KERNEL PATH": GSP firmware that a module names and that is
	                               * in no directory that the kernel looks into */
};

/* packages: "name=version" of all (packages.h). What cannot be read of one file is left out of it,
 * and is noted in 'unread' of a module. */
int driver_facts_read(struct driver_facts *ret, struct rootfs *root, const struct guest *guest,
                      const struct strv *packages, struct error *err);
bool driver_facts_any(const struct driver_facts *facts); /* whether there is a driver at all */
json_t *driver_facts_json(const struct driver_facts *facts);
void driver_facts_free(struct driver_facts *facts);
#define CLEANUP_DRIVER_FACTS CLEANUP(driver_facts_free)

/* NVIDIA's own name of the module, whatever the distribution calls its file: "nvidia",
 * "nvidia_modeset", "nvidia_uvm", "nvidia_drm", "nvidia_peermem", "nvidia_vgpu_vfio"; borrowed. */
const char *driver_module_role(const struct driver_module *module);
/* Whether an entry of 'dkms' is a driver of NVIDIA's. */
bool driver_facts_is_dkms(const char *entry);

#endif
