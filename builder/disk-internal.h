/* SPDX-License-Identifier: Apache-2.0 */
/* What disk-server.c (the child), disk.c (requests), disk-probe.c and disk-volumes.c (what is on
 * it) share. */
#ifndef GPUIMG_DISK_INTERNAL_H
#define GPUIMG_DISK_INTERNAL_H

#include <libnbd.h>
#include <pthread.h>

#include "disk.h"
#include "proc.h"

struct disk {
	char *path;
	uint64_t size_bytes;
	bool writable;

	pthread_mutex_t lock;   /* of the connection: one reader at a time */
	struct nbd_handle *nbd; /* NULL: closed for good after a failure */
	struct proc server;
	int server_output; /* what qemu-nbd says, a memfd */

	char *table;             /* filled by disk_probe() from here on */
	struct volume **volumes; /* each on its own: guests borrow them while more are found */
	size_t volume_count;
	bool boots_bios;
	bool boots_uefi;
};

/* No call waits longer for the child. */
#define DISK_DEADLINE_MS 60000

/* disk-server.c. disk_serve: starts the child and connects; disk->path and writable are set. */
int disk_serve(struct disk *disk, const char *format, bool allow_backing, struct error *err);
/* A clean end, which is awaited; -1: what was written is not whole. */
int disk_end_server(struct disk *disk, struct error *err);
/* Kills the child, if there is one, and closes the connection. */
void disk_drop_server(struct disk *disk);

int disk_left_ms(int64_t deadline_ms);

/* disk-volumes.c. An empty one more, which the caller fills. */
struct volume *disk_new_volume(struct disk *disk);
void disk_forget_volumes(struct disk *disk);

#endif
