/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A package transaction as one cached result: all that it changed in the working copy, as a tar,
 * under the digest of all that it was made from (base, what the stages had changed before, packages
 * with their digests, how modules are built). Downloads, maintainer scripts and compilers are left
 * out the next time. Sandbox only: an appliance does not tell what changed.
 *
 * What belongs to one build alone is neither an input nor kept: /etc/machine-id, and all below
 * APT_DIR. The apt session must be closed before transaction_keep(); transaction_reuse() closes it
 * by itself when it has a result.
 */
#ifndef GPUIMG_TRANSACTION_H
#define GPUIMG_TRANSACTION_H

#include "build.h"

/*
 * name: a kind of the cache, "driver". inputs: "key=value" lines, in order: what shapes the result
 * beside base and earlier changes. 1: it was done before, and b->root is as it was left then. 0: to
 * be done, then transaction_keep(). -1: error; the working copy may be half changed.
 */
int transaction_reuse(struct build *b, const char *name, const struct strv *inputs,
                      struct error *err);
/* Takes a copy of what changed since the base, under the key that transaction_reuse() looked for;
 * kept for good only once the proof has passed (reuse_start_keeping). Does nothing where nothing
 * was looked for. What fails is warned of. */
void transaction_keep(struct build *b);

#endif
