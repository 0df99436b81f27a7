/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the boot test: started by boot.c, watched to its end by boot-watch.c. */
#ifndef GPUIMG_BOOT_RUN_H
#define GPUIMG_BOOT_RUN_H

#include "boot-internal.h"
#include "proc.h"

#define QEMU           "qemu-system-x86_64"
#define TAIL_MAX_BYTES 2048

/* How patient we are, by accelerator. */
struct patience {
	unsigned timeout_s;
	unsigned settle_s;     /* that the guest waits for its own rest */
	unsigned quiet_ms;     /* silence after a login prompt, when no frame came */
	unsigned quiet_max_ms; /* with a console that is never silent */
	unsigned stall_ms;     /* silence before a login prompt: emulators do hang, rarely */
};

struct run {
	const struct boot_options *o;
	const struct patience *patience;
	struct boot_files files;
	struct console *console;
	struct fake_gpu *gpu; /* NULL: this QEMU cannot carry it */
	struct proc qemu;
	int out_fd, err_fd; /* our ends; -1 once QEMU has closed its own */
	int console_fd;     /* the file that keeps the console */
	int64_t begin, last_output, panic_at, login_at, cloud_done_at, refused_at;
	size_t console_bytes;
	char tail[TAIL_MAX_BYTES + 1]; /* of QEMU's own messages */
	int status;                    /* of QEMU, once it has ended */
	char *how;                     /* how the run ended */
};

/* Until all facts are in, or none will come; then QEMU is ended, and 'how' tells why. */
int boot_watch(struct run *r, struct error *err);

#endif
