/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a build takes from the cache instead of making it, and what it leaves there: the finished
 * image, and each kernel's initramfs. (Boots: boot-cache.h.) A key holds every input; what cannot
 * be known beforehand, as what a script does with a network, is not cached.
 */
#ifndef GPUIMG_REUSE_H
#define GPUIMG_REUSE_H

#include "build.h"
#include "error.h"

/*
 * Whether just this image was built and proven before: 1, and it is at 'to', its manifest (the
 * boot test left out) in b->reused; 0; -1. After backend_choose().
 */
int reuse_image(struct build *b, const char *to, struct error *err);
/* The artifact under its final name, of a build without reuse_image(). */
void reuse_keep_image(struct build *b, const char *artifact, const char *sha256,
                      const json_t *manifest);

/* Whether packages of the stages 'driver' and 'containerd' come, or may come, from a repository:
 * what it holds today is in no key, so the whole image is neither taken nor kept. */
bool build_uses_network_packages(const struct build *b);

/* Once, before the first initramfs: what the stages have changed up to here. */
int reuse_begin_initramfs(struct build *b, struct error *err);
/* 1: written to 'path' of the working copy, 0: must be made, -1. From one thread at a time. */
int reuse_initramfs(struct build *b, const char *kernel, const char *path, struct error *err);
/* Takes a copy of what was made. */
void reuse_keep_initramfs(struct build *b, const char *kernel, const char *path);
/* The copies go to the cache in a thread, beside the rest of the build: once the proof has looked
 * at them. */
void reuse_start_keeping(struct build *b);
/* Waits for that thread. */
void reuse_finish(struct build *b);

#endif
