/* SPDX-License-Identifier: Apache-2.0 */
/* What disk.c (the connection) and disk-probe.c (what is on it) share. */
#ifndef GPUIMG_DISK_INTERNAL_H
#define GPUIMG_DISK_INTERNAL_H

#include <libnbd.h>
#include <pthread.h>

#include "disk.h"
#include "proc.h"

struct disk {
	char *path;
	uint64_t size_bytes;

	pthread_mutex_t lock;   /* of the connection: one reader at a time */
	struct nbd_handle *nbd; /* NULL: closed for good after a failure */
	struct proc server;
	int server_output; /* what qemu-nbd says, a memfd */

	char *table; /* filled by disk_probe() from here on */
	struct volume *volumes;
	size_t volume_count;
	bool boots_bios;
	bool boots_uefi;
};

void disk_forget_volumes(struct disk *disk);

#endif
