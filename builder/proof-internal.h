/* SPDX-License-Identifier: Apache-2.0 */
/* What the points of the proof share. */
#ifndef GPUIMG_PROOF_INTERNAL_H
#define GPUIMG_PROOF_INTERNAL_H

#include "proof.h"

/* Whether "root=…" names the image's own root file system in a way that holds on every machine. */
bool proof_names_root(const struct guest *guest, const char *arg);
/*
 * Where the small grub.cfg of an ESP leads: the file system that it searches for is one of the
 * image's, and the grub.cfg that it goes on with is there. NULL: it does, or that cannot be told;
 * else what is wrong, owned by the caller.
 */
char *proof_stub_target(struct rootfs *root, const struct guest *guest, const char *path);
/* What lines of a modprobe.d file end in, or begin with, that kmod does not take off. */
void proof_modprobe_text(struct findings *f, const char *where, const char *path, const void *text,
                         size_t size);

#endif
