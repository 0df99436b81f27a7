/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The packages of the stages 'driver' and 'containerd', as one transaction: what both have planned
 * is installed at once, modules are built for every kernel, and all of it is kept in the cache
 * together.
 */
#ifndef GPUIMG_BAKE_H
#define GPUIMG_BAKE_H

#include "build.h"
#include "driver-resolve.h"

/* Whether any stage needs the image's package manager, or guest programs to plan at all. */
bool bake_is_wanted(const struct build *b);
/* Whether packages may come from the network: always but where all of them are local files. */
bool bake_is_online(const struct build *b);
/* The options in the resolver's words; borrows their strings. */
struct driver_wish bake_driver_wish(const struct build *b);
/*
 * Whether the image and this host have room for so many bytes of packages, downloaded and unpacked;
 * what a driver that was taken out (b->driver_found) leaves free counts. EXIT_INPUT: the image has
 * not; 'what' is for the message.
 */
int bake_check_space(const struct build *b, const char *what, uint64_t bytes, struct error *err);
/* All that is asked of apt, in one call: what both stages have planned so far. */
void bake_install_names(const struct build *b, struct strv *ret);
/* Carries it out, the first time that it is called. b->driver and b->toolkit_install say what. */
int bake_packages(struct build *b, struct error *err);

#endif
