/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The points of the proof, one function each, over any image's root: what holds and what does
 * not goes to the findings; an error is for what could not be read at all.
 */
#ifndef GPUIMG_PROOF_H
#define GPUIMG_PROOF_H

#include "bootchain.h"
#include "error.h"
#include "finding.h"
#include "guest.h"
#include "modules.h"
#include "rootfs.h"

/* The file stands there as a regular file, byte for byte. */
int proof_file(struct findings *f, struct rootfs *root, const char *id, const char *path,
               const char *text, struct error *err);
/* Nothing that claims an NVIDIA display device can be loaded: not by alias, and none of 'blocked'
 * by name. where: "root file system", "'/boot/initrd.img-…'". */
int proof_modules(struct findings *f, const struct modules *m, const char *where,
                  const struct strv *blocked, struct error *err);

/* No driver that claims an NVIDIA display device is built into the kernel. */
int proof_builtin(struct findings *f, const struct modules *m, struct error *err);

struct proof_initramfs {
	struct rootfs *root;
	const struct guest *guest;
	const struct guest_kernel *kernel;
	const char *block_path, *block_text; /* what must stand in it */
	const struct strv *blocked;
	const char *scratch;   /* a directory of ours */
	uint64_t bytes_before; /* 0: there was none */
};
/* One kernel's initramfs: whole, holds the block, cannot load what is blocked, still has the
 * drivers of disks and of the root file system, names no other kernel. */
int proof_initramfs(struct findings *f, const struct proof_initramfs *p, struct error *err);

/* Every boot entry holds every parameter once and in effect, keeps what the base's entry for the
 * same kernel and kind had (before may be NULL) except 'removed', and boots files that exist; every
 * kernel has an entry. */
int proof_entries(struct findings *f, struct rootfs *root, const struct guest *guest,
                  const struct bootchain *before, const struct strv *params,
                  const struct strv *removed, struct error *err);
/* Nothing of the appliance or of the build host was left in the image, resolv.conf is as the base
 * had it, packages are whole. base_root may be NULL: then there is nothing to compare. */
int proof_leaks(struct findings *f, struct rootfs *root, struct rootfs *base_root,
                struct error *err);

#endif
