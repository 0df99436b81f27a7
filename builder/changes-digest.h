/* SPDX-License-Identifier: Apache-2.0 */
/* What the stages have changed so far, as one digest: an input of what is made from it next. */
#ifndef GPUIMG_CHANGES_DIGEST_H
#define GPUIMG_CHANGES_DIGEST_H

#include "error.h"
#include "str.h"
#include "tree.h"

/* Of these paths, from tree_changes(): content, type, mode, owner, attributes, further names;
 * without times. Owned by the caller. */
int changes_digest(char **ret, const struct tree *tree, const struct strv *changed,
                   const struct strv *removed, struct error *err);

#endif
