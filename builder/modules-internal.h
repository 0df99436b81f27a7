/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the modules share: checks of the guest's files before libkmod sees them
 * (modules-index.c, modules-config.c), their copies (modules-copy.c), the oracle over these
 * (modules.c), and who claims NVIDIA's display devices (modules-claimants.c).
 */
#ifndef GPUIMG_MODULES_INTERNAL_H
#define GPUIMG_MODULES_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cleanup.h"
#include "error.h"
#include "modules.h"

struct kmod_ctx; /* libkmod's */

/* --- What libkmod may read --- */

/* Everything that libkmod could reach in a modules.*.bin lies inside it, and is a tree. */
bool modules_index_is_sound(const void *data, size_t size);
/* The lines of a modprobe.d file that libkmod will understand and that matter here. */
void modules_write_sound_lines(FILE *out, const char *text, size_t size);

/* --- The scratch directory (modules-copy.c) --- */

bool modules_have_file(const struct modules *m, const char *name); /* of /lib/modules/KVER */

/* --- The oracle (modules.c) --- */

/* Two contexts over the same indexes: with the guest's configuration, and with none. */
struct oracle {
	struct kmod_ctx *guest, *none;
};

int modules_oracle_open(struct oracle *ret, const struct modules *m, struct error *err);
void modules_oracle_close(struct oracle *o);
#define CLEANUP_ORACLE CLEANUP(modules_oracle_close)

char *modules_normal_name(const char *name); /* a copy with '_' for '-' */
/* A file of /lib/modules/KVER for reading; NULL if it is not there. */
FILE *modules_open_text(const struct modules *m, const char *name);
/* Whether modules.dep or modules.builtin has a line for the module (its normal name). */
bool modules_list_has(const struct modules *m, const char *file, const char *name);

/* Whether the command of an install line loads nothing at all. */
bool modules_command_is_inert(const char *command);

#endif
