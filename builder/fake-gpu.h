/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A card that looks like an NVIDIA L4 to a guest: 10de:27b8, class 0x030200, a 16 MiB BAR0
 * whose chip id register answers for an AD104. QEMU's x-pci-proxy-dev asks this server over a
 * socket for every access to the card's configuration space and BAR0, so we see whether a driver
 * of the guest ever touched it. Two things would spoil the count if they happened, and do not:
 * neither SeaBIOS nor OVMF reads BAR0, and Linux itself does so in no quirk.
 *
 * The protocol is private to QEMU (5.2 to 11.1: include/hw/remote/mpqemu-link.h). It can size
 * 32-bit BARs only: the large BAR of the boot test is another device.
 */
#ifndef GPUIMG_FAKE_GPU_H
#define GPUIMG_FAKE_GPU_H

#include <stdint.h>

#include "cleanup.h"
#include "error.h"

#define FAKE_GPU_BAR0_BYTES (16U << 20)
#define FAKE_GPU_BOOT_0     0x194000a1U
/* What udev asks modprobe for when it sees the card. */
#define FAKE_GPU_MODALIAS "pci:v000010DEd000027B8sv000010DEsd000016CAbc03sc02i00"

struct fake_gpu;

struct fake_gpu_counts {
	uint64_t firmware_reads; /* of BAR0, before fake_gpu_firmware_done() */
	uint64_t firmware_writes;
	uint64_t reads; /* after it */
	uint64_t writes;
};

/*
 * Starts the server, a thread. *ret_fd is the end for QEMU ("-device x-pci-proxy-dev,id=…,fd=N"):
 * the caller hands it to the child and closes its own copy, so that the server sees QEMU end.
 */
int fake_gpu_start(struct fake_gpu **ret, int *ret_fd, struct error *err);
/* From now on the system itself runs, not the firmware. */
void fake_gpu_firmware_done(struct fake_gpu *gpu);
struct fake_gpu_counts fake_gpu_counts(struct fake_gpu *gpu);
/* Hangs up, waits for the thread, releases; accepts NULL. */
void fake_gpu_stop(struct fake_gpu *gpu);

DEFINE_CLEANUP(fake_gpu, struct fake_gpu *, fake_gpu_stop)
#define CLEANUP_FAKE_GPU CLEANUP(cleanup_fake_gpu)

#endif
