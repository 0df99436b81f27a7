/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boots that need not be made again: the facts of a boot and its console, by the digest of the
 * image and of all else that the boot depends on (recipe, firmware, QEMU, our smoke scripts; with
 * KVM the processor too). Who puts one in sees to it that it was a whole and good one.
 */
#ifndef GPUIMG_BOOT_CACHE_H
#define GPUIMG_BOOT_CACHE_H

#include "boot.h"
#include "cache.h"

/* 1: *ret holds the facts and the console log is where 'options' says; 0: it must be booted. */
int boot_cache_get(struct cache *cache, const struct boot_options *options, const char *sha256,
                   struct boot_facts *ret, struct error *err);
void boot_cache_put(struct cache *cache, const struct boot_options *options, const char *sha256,
                    const struct boot_facts *facts);
/* Where boot_run() writes the console. Owned by the caller. */
char *boot_console_path(const struct boot_options *options);

#endif
