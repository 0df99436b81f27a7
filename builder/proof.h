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
/* Files of modprobe.d whose text kmod does not read as a person does: CRLF, a byte-order mark. */
int proof_modprobe_texts(struct findings *f, struct rootfs *root, struct error *err);

/* No driver that claims an NVIDIA display device is built into the kernel. */
int proof_builtin(struct findings *f, const struct modules *m, struct error *err);

struct proof_initramfs {
	struct rootfs *root;
	const struct guest *guest;
	const struct guest_kernel *kernel;
	/* The files that must stand in it, each with this text; block_text NULL: whatever stands
	 * there is fine, as long as nothing can be loaded. */
	const struct strv *block_paths;
	const char *block_text;
	const struct strv *blocked;
	const char *scratch;   /* a directory of ours */
	uint64_t bytes_before; /* 0: there was none */
	bool inspect;          /* of an image that we did not build: nothing is said of sizes */
	/* Where it is, if not in kernel->initramfs: a descriptor at any offset, and a name for
	 * messages; name NULL: not told. (The .initrd section of a unified kernel image.) */
	int fd;
	const char *name;
};
/* One kernel's initramfs: whole, holds the block, cannot load what is blocked, still has what it
 * takes to mount the root file system anywhere, names no other kernel. */
int proof_initramfs(struct findings *f, const struct proof_initramfs *p, struct error *err);

/* Called when one was judged: the findings from 'first' on are about it. file: of a UKI's section,
 * with " (.initrd)". */
typedef void proof_judged(void *opaque, const char *version, const char *file, size_t first);
struct proof_all_initramfs {
	/* What holds for each; 'scratch' is a directory that gets one more for each. 'kernel',
	 * 'bytes_before', 'fd' and 'name' are set here. */
	struct proof_initramfs like;
	const struct bootchain *chain;
	const struct guest_kernel *before; /* of the base, to compare sizes; may be NULL */
	size_t before_count;
	proof_judged *judged; /* may be NULL */
	void *opaque;
};
/* Every initramfs that something boots: each kernel's own, copies that entries load, sections of
 * UKIs. Each is held to the same. */
int proof_every_initramfs(struct findings *f, const struct proof_all_initramfs *w,
                          struct error *err);

/*
 * Whether what the node makes by itself when a kernel is installed later still holds. The block:
 * what the image's initramfs generator would copy of modprobe.d, and what of the blocked modules it
 * would pack. The parameters: what /etc/default/grub and its grub.d say, as far as it can be told
 * without running them (param-places.h has the places that are files).
 */
int proof_later_block(struct findings *f, struct rootfs *root, const struct guest *guest,
                      const struct strv *blocked, const char *scratch, struct error *err);
int proof_later_dropins(struct findings *f, struct rootfs *root, const struct strv *params,
                        struct error *err);

/*
 * Every boot entry holds every parameter once and in effect, keeps what the base's entry for the
 * same kernel and kind had (before may be NULL) except 'removed' (may be NULL then), has the
 * image's own root, and boots files that exist; every kernel has an entry; grub.cfg files on the
 * ESP lead to the real one. What an entry has of its own and says otherwise is noted.
 */
int proof_entries(struct findings *f, struct rootfs *root, const struct guest *guest,
                  const struct bootchain *after, const struct bootchain *before,
                  const struct strv *params, const struct strv *removed, struct error *err);
/* Nothing of the appliance or of the build host was left in the image, resolv.conf is as the base
 * had it, packages are whole. base_root may be NULL: then there is nothing to compare. */
int proof_leaks(struct findings *f, struct rootfs *root, struct rootfs *base_root,
                struct error *err);

#endif
