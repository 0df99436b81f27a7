/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the readers of a guest share: guest.c (opening), guest-root.c (which volume is the root),
 * guest-btrfs.c (which subvolume), guest-mounts.c (what is mounted where), guest-refuse.c (what is
 * not ours to change), guest-facts.c (what its files say of it), guest-kernels.c.
 */
#ifndef GPUIMG_GUEST_INTERNAL_H
#define GPUIMG_GUEST_INTERNAL_H

#include "appliance.h"
#include "guest.h"

#define GUEST_TEXT_MAX_BYTES (1024UL * 1024) /* of a configuration file */

/* Where a root was found. */
struct guest_root {
	const struct volume *volume;
	char *subvol; /* as in struct guest_mount */
	const struct volume
		*boot; /* a volume that holds kernels at its top, not the root; may be NULL */
};

/* 1: only an appliance could tell. */
int guest_find_root(struct guest_root *ret, struct disk *disk, struct appliance *appliance,
                    struct error *err);
/* Whether what is below 'prefix' ("" or "/@rootfs") looks like a root. Links are not followed: an
 * absolute one would not start from there. */
bool guest_looks_like_root(struct rootfs *r, const char *prefix);
/* Whether a physical volume of LVM is on the disk. */
bool guest_has_lvm(const struct disk *disk);
/* Whether a directory has a kernel's image. */
bool guest_has_kernel(struct rootfs *r, const char *dir);

/* guest-btrfs.c. 1: a root is on it, *ret_subvol is set (NULL: the default, which is the top); 0:
 * none is. */
int guest_find_root_subvolume(char **ret_subvol, struct disk *disk, struct appliance *appliance,
                              const struct volume *v, struct error *err);
/* 1: it is one of several (and *err says so); with an appliance for a logical volume. */
int guest_check_one_device(struct disk *disk, struct appliance *appliance, const struct volume *v,
                           struct error *err);
/* Sets every btrfs mount's subvolume from 'subvol', 'subvolid' and the default. */
int guest_resolve_subvolumes(struct guest *g, struct appliance *appliance, struct error *err);

/* guest-mounts.c */
struct fstab_entry {
	char *device, *path, *type, *options;
};

struct fstab {
	struct fstab_entry *items;
	size_t count;
};

/* A missing file is an empty one. */
int fstab_read(struct fstab *ret, struct rootfs *root, const char *path, struct error *err);
void fstab_free(struct fstab *fstab);
#define CLEANUP_FSTAB CLEANUP(fstab_free)
/* An option's value ("" for one without), or NULL; owned by the caller. */
char *fstab_option(const struct fstab_entry *e, const char *name);

/* The root alone is open: adds what its fstab mounts, parents first. lvs_known: whether an
 * appliance has looked for logical volumes; else 1 where one may be missing. */
int guest_read_mounts(struct guest *g, struct disk *disk, bool lvs_known, struct rootfs *root,
                      struct error *err);
/* All of that is mounted: adds ESP and XBOOTLDR where nobody named them; *ret_more: some were. */
void guest_add_implicit_mounts(struct guest *g, struct disk *disk, struct rootfs *root,
                               bool *ret_more);
void guest_add_mount(struct guest *g, const struct guest_mount *m); /* takes its strings */
void guest_sort_mounts(struct guest *g);
/* ext or vfat: no appliance is needed for it. */
bool guest_volume_in_user_space(const struct volume *v);
/* A type that the appliance mounts. */
bool guest_volume_in_appliance(const struct volume *v);

/* guest-refuse.c. Each is an error (EXIT_INPUT) that says what it is, why not, and what to do. */
int guest_refuse_disk(struct disk *disk, struct error *err); /* by its partitions' labels */
/* By what stands at the top of a file system, or of a subvolume ("/name"). */
int guest_refuse_tree(struct disk *disk, const struct volume *v, struct rootfs *r,
                      const char *prefix, struct error *err);
int guest_refuse_release(const struct guest *g, struct rootfs *root, struct error *err);
/* No root was found; -1. */
int guest_no_system(struct disk *disk, struct error *err);
/* A volume whose content is closed to us ("encrypted (crypto_LUKS)"), or NULL. */
const char *guest_closed_type(const struct volume *v, const char **ret_cure);

/* Distribution, initramfs generator, kernels and architecture. */
int guest_read_facts(struct guest *g, struct rootfs *root, struct error *err);
void guest_forget_kernels(struct guest *g);

#endif
