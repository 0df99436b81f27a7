/* SPDX-License-Identifier: Apache-2.0 */
/* The points of the proof about a baked driver, for a build and for inspect. docs/inspect.md has
 * ids. */
#ifndef GPUIMG_PROOF_DRIVER_H
#define GPUIMG_PROOF_DRIVER_H

#include "driver-facts.h"
#include "driver.h"
#include "finding.h"

/* What is wanted; borrowed. {0} wants nothing: only what contradicts itself is bad. */
struct driver_want {
	bool required;       /* a driver must be there; false: points are told of one that is */
	const char *branch;  /* NULL: any */
	const char *version; /* exactly this; NULL: any one, the same everywhere */
	const enum driver_flavour *flavour; /* NULL: either */
	bool require_signed;                /* by a key that was not made in the build */
	bool may_be_registered;             /* DKMS may still know it */
	const struct strv *held;            /* names of packages that must be on hold; NULL: none */
};

/* In the names of keys that are made on the machine that builds: by DKMS itself, and by Ubuntu's
 * update-secureboot-policy for it ("HOST Secure Boot Module Signature key"). */
#define PROOF_DRIVER_SIGNER        "DKMS module signing key"
#define PROOF_DRIVER_SIGNER_UBUNTU "Secure Boot Module Signature key"

/*
 * Per kernel (rescue ones left out): the modules nvidia, nvidia_modeset, nvidia_uvm, nvidia_drm (by
 * whatever names this distribution gives them) are there, in modules.dep, for this kernel by
 * vermagic, all of one version, of the flavour, signed if that is wanted, with their GSP firmware.
 * 'modprobe nvidia' would load it, by the image's own configuration. Once: nvidia-smi, libcuda and
 * libnvidia-ml of the same version and of no other; holds; DKMS; what would start over it (a CDI
 * spec that was baked). Where no driver is required, what contradicts itself is bad (kernels
 * without modules beside others with them, several versions, modules for another kernel), the rest
 * is noted. scratch: a directory of ours.
 */
int proof_driver(struct findings *f, struct rootfs *root, const struct guest *guest,
                 const struct driver_facts *facts, const struct driver_want *want,
                 const char *scratch, struct error *err);

#endif
