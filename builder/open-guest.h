/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest_open() with an appliance where the file systems need one, and only there: a launch costs
 * half a minute without KVM, and asking whether KVM works costs seconds.
 */
#ifndef GPUIMG_OPEN_GUEST_H
#define GPUIMG_OPEN_GUEST_H

#include <stdbool.h>

#include "accel.h"
#include "appliance.h"
#include "guest.h"
#include "log.h"

struct open_guest {
	const char *format;    /* of the disk's file, QEMU's word */
	const char *work_dir;  /* for the appliance */
	const char *cache_dir; /* keeps the appliance and what the probe found */
	struct log *log;
	/* What accel_probe() said, asked by the first who needs it; the caller's. */
	struct accel *accel;
	bool *accel_known;
};

/* Asks accel_probe() unless it is known, and tells the log where there is no KVM. */
int open_guest_probe(const struct open_guest *o, struct error *err);
/* *ret_reader: the appliance that 'ret_root' borrows, to be closed after it; NULL: none was needed.
 * It is set after a failure too, if one runs. */
int open_guest(struct guest **ret, struct rootfs **ret_root, struct appliance **ret_reader,
               struct disk *disk, const struct open_guest *o, struct error *err);

#endif
