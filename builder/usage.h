/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a build costs this host: peak memory of the program itself (not of QEMU and guest programs),
 * and peak disk of its work directory and the file that it writes. The disk is looked at every
 * few seconds and whenever usage_look() is called, so a short peak between two looks is not seen.
 */
#ifndef GPUIMG_USAGE_H
#define GPUIMG_USAGE_H

#include <stdint.h>

struct usage;

/* The paths are borrowed and need not exist. NULL if no thread can be started: all calls take that,
 * and all figures are 0 then. */
struct usage *usage_start(const char *work_dir, const char *output);
void usage_stop(struct usage *u);
void usage_look(struct usage *u);
uint64_t usage_peak_disk_bytes(struct usage *u);
uint64_t usage_peak_memory_bytes(void);
/* Space that files and directories below a path (or the file itself) take on the disk. */
uint64_t usage_disk_bytes(const char *path);

#endif
