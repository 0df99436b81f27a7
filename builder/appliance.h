/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The libguestfs appliance: a small VM that mounts the image's file systems. The launch runs
 * in a thread of its own (20-27 s without KVM), so that other work goes on meanwhile; every
 * wait has a deadline, and past it the handle is given up (the supervisor ends its QEMU).
 */
#ifndef GPUIMG_APPLIANCE_H
#define GPUIMG_APPLIANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "cleanup.h"
#include "error.h"
#include "guest.h"
#include "log.h"
#include "rootfs.h"

struct appliance;

struct appliance_options {
	const char *image;
	const char *format;
	bool read_only;
	bool kvm; /* what accel_probe() said */
	bool network;
	const char *work_dir;      /* temporary files and sockets */
	const char *cache_dir;     /* of the appliance that supermin makes */
	unsigned memory_mib;       /* 0: 1024 */
	unsigned launch_timeout_s; /* 0: 180 */
	struct log *log;
};

/* Of libguestfs, "1.48.6"; owned by the caller; NULL: it does not say. */
char *appliance_version(void);
int appliance_start(struct appliance **ret, const struct appliance_options *options,
                    struct error *err);
/* Waits until it is up; safe to call again. */
int appliance_wait(struct appliance *a, struct error *err);
/* Ends it; what was not finished is lost. */
void appliance_close(struct appliance *a);
DEFINE_CLEANUP(appliance, struct appliance *, appliance_close)
#define CLEANUP_APPLIANCE CLEANUP(cleanup_appliance)

/* A volume of the image at a directory of the guest's root; parents first. */
int appliance_mount(struct appliance *a, const struct volume *volume, const char *path,
                    struct error *err);
/* The same as the guest mounts it: on its own subvolume. */
int appliance_mount_guest(struct appliance *a, const struct guest_mount *mount, struct error *err);
int appliance_umount_all(struct appliance *a, struct error *err);
/* The mounted root as a rootfs; run() runs in the appliance. It borrows the appliance. */
int appliance_rootfs(struct rootfs **ret, struct appliance *a, struct error *err);

/* appliance-volumes.c: what only the appliance can tell of a disk's volumes. */

/* The logical volumes that can be used, each added to the disk as a volume of its own. */
int appliance_find_lvs(struct appliance *a, struct disk *disk, struct error *err);
int appliance_read_volume(struct appliance *a, const struct volume *volume, void *buffer,
                          size_t size, uint64_t offset_bytes, struct error *err);

struct subvolume {
	uint64_t id;
	char *path; /* from the top of the file system, without a leading '/'; "": the top itself */
};

struct subvolumes {
	struct subvolume *items; /* the top is items[0] */
	size_t count;
	uint64_t default_id;
};

/* Of a btrfs, whose top is mounted on "/" afterwards, and nothing else. */
int appliance_read_subvolumes(struct subvolumes *ret, struct appliance *a,
                              const struct volume *volume, struct error *err);
void subvolumes_free(struct subvolumes *list);
#define CLEANUP_SUBVOLUMES CLEANUP(subvolumes_free)
/* By path or id; NULL: there is none. */
const struct subvolume *subvolumes_find(const struct subvolumes *list, const char *path);
const struct subvolume *subvolumes_by_id(const struct subvolumes *list, uint64_t id);
/* path: of a subvolume, below the mounted top. */
int appliance_subvolume_is_readonly(bool *ret, struct appliance *a, const char *path,
                                    struct error *err);

/* Removes paths of the guest, then unpacks a pax tar at "/", with owners and xattrs. The tar is
 * read from the descriptor until it ends. */
int appliance_remove(struct appliance *a, const struct strv *paths, struct error *err);
int appliance_tar_in(struct appliance *a, int fd, struct error *err);
/* Gives the free space of every mounted file system back to the image. */
int appliance_trim(struct appliance *a, const struct guest *guest, struct error *err);
/* Unmounts, flushes and shuts down; only then is the image whole. */
int appliance_finish(struct appliance *a, struct error *err);

#endif
