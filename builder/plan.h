/* SPDX-License-Identifier: Apache-2.0 */
/* What --plan prints: what an accepted build would do, before anything is done. */
#ifndef GPUIMG_PLAN_H
#define GPUIMG_PLAN_H

#include <jansson.h>

#include "build.h"

json_t *plan_json(const struct build *b, const char *output); /* owned by the caller */
void plan_print(const struct build *b, const char *output);   /* to stdout, for people */

#endif
