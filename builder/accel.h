/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does KVM work here? That /dev/kvm exists, is writable, or even runs a real-mode guest proves
 * nothing: on some nested hosts a Linux guest hangs for ever. So a Linux kernel of the host is
 * booted under KVM with a deadline of a few seconds, and the answer is remembered for this boot
 * of the host (keyed by boot id, QEMU's version, the kernel).
 */
#ifndef GPUIMG_ACCEL_H
#define GPUIMG_ACCEL_H

#include <stdbool.h>

#include "error.h"
#include "log.h"

struct accel {
	bool kvm;        /* use KVM */
	bool remembered; /* the answer came from the record */
	char *reason;    /* for people: "a Linux guest hung under KVM (no output in 6 s)" */
	double seconds;  /* that the probe took */
};

/* cache_dir: where the record is kept, may be NULL. Never fails for lack of KVM; the error is
 * for a host where nothing can be found out (no QEMU). GPUIMG_ACCEL=tcg|kvm decides without
 * a probe. */
int accel_probe(struct accel *ret, const char *cache_dir, struct log *log, struct error *err);
void accel_free(struct accel *a);
/* A kernel of this host that can be read: SUPERMIN_KERNEL, /boot/vmlinuz-*,
 * /lib/modules/VERSION/vmlinuz; the error names an unreadable one and its cure (Ubuntu keeps
 * them 0600). */
int accel_host_kernel(char **ret_path, struct error *err);

/* Where the probe finds what it needs; the tests put others in. */
struct accel_host {
	const char *qemu;         /* program, looked up in PATH */
	const char *kvm_device;   /* "/dev/kvm" */
	const char *boot_id_path; /* "/proc/sys/kernel/random/boot_id" */
	const char *kernel;       /* NULL: accel_host_kernel() */
	unsigned deadline_ms;     /* for the guest to come to its end */
};
int accel_probe_host(struct accel *ret, const struct accel_host *host, const char *cache_dir,
                     struct log *log, struct error *err);

#endif
