/* SPDX-License-Identifier: Apache-2.0 */
/* What the points about a driver share: proof-driver.c (once), proof-driver-kernels.c (per kernel).
 */
#ifndef GPUIMG_PROOF_DRIVER_INTERNAL_H
#define GPUIMG_PROOF_DRIVER_INTERNAL_H

#include "proof-driver.h"

struct driver_proof {
	struct findings *f;
	struct rootfs *root;
	const struct guest *guest;
	const struct driver_facts *facts;
	const struct driver_want *want;
	const char *scratch;
};

/* Bad where a driver is required, else a note. */
void proof_driver_lacks(const struct driver_proof *p, const char *id, const char *cure,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Every kernel that is no rescue one. */
int proof_driver_kernels(const struct driver_proof *p, struct error *err);

#endif
