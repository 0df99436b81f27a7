/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A baked NVIDIA driver: what was asked for, and what that comes to for this image. Resolved by
 * driver-resolve.h before anything is changed, carried out by the stage 'driver', held against the
 * exported image by proof-driver.h.
 */
#ifndef GPUIMG_DRIVER_H
#define GPUIMG_DRIVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "str.h"

enum driver_source { DRIVER_DISTRO, DRIVER_NVIDIA_REPO, DRIVER_RUN, DRIVER_DEBS };
/* Of the kernel modules: NVIDIA's open ones (Turing and later, license "Dual MIT/GPL"), or the
 * proprietary ones (license "NVIDIA"). */
enum driver_flavour { DRIVER_OPEN, DRIVER_PROPRIETARY };

/* How a kernel gets its modules. */
enum driver_how {
	DRIVER_PREBUILT, /* a package of modules for just this kernel, signed by the distribution */
	DRIVER_DKMS,     /* compiled in the image, by DKMS */
	DRIVER_INSTALLER, /* compiled in the image, by the .run installer */
};

struct driver_kernel {
	char *version; /* of the kernel, as under /lib/modules */
	enum driver_how how;
	char *package; /* "name=version" of the modules or of the headers; NULL: its headers are on
	                * the image already */
};

struct driver_plan {
	enum driver_source source;
	enum driver_flavour flavour;
	char *branch_asked;  /* "535" */
	char *branch;        /* what the packages really are of */
	char *version;       /* of the driver: "535.261.03" */
	bool forwarded;      /* branch is another one than was asked for */
	struct strv install; /* for apt-get install: "name=version", ours by name */
	struct strv
		packages;    /* "name=version" of all that is new or newer, dependencies included */
	struct strv digests; /* "SHA256  name=version" of those whose archive apt knows */
	struct strv driver_packages; /* names in 'packages' that are of the driver: to be held */
	struct driver_kernel *kernels;
	size_t kernel_count;
	uint64_t download_bytes, installed_bytes; /* of all packages */
};

const char *driver_source_name(enum driver_source source);    /* as typed: "nvidia-repo" */
const char *driver_flavour_name(enum driver_flavour flavour); /* "open", "proprietary" */
const char *driver_how_name(enum driver_how how);             /* "prebuilt", "dkms", "installer" */
/* The part before the first dot of a driver's version, or of a Debian version of such ("535" of
 * "1:535.261.03-1"); NULL: none. Owned by the caller. */
char *driver_branch_of(const char *version);
/* The driver's version in a package's: "535.261.03" of "1:535.261.03-0ubuntu1". Owned by the
 * caller. */
char *driver_upstream_version(const char *package_version);
/* Whether a package of this name is part of an NVIDIA driver, or makes one; what only hands a
 * driver through to containers (nvidia-container-toolkit, libnvidia-container1) is none. */
bool driver_is_package(const char *name);

json_t *driver_plan_json(const struct driver_plan *plan); /* for --plan and the manifest */
void driver_plan_free(struct driver_plan *plan);          /* what is in it */
#define CLEANUP_DRIVER_PLAN CLEANUP(driver_plan_free)

#endif
