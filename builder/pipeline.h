/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline of a build in its two halves: up to build_accept() nothing is written but the base
 * that was fetched or made; build_make_image() ends with a proven, boot-tested file under
 * b->result_path, which the caller gives its final name.
 */
#ifndef GPUIMG_PIPELINE_H
#define GPUIMG_PIPELINE_H

#include "backend.h"
#include "build.h"
#include "error.h"
#include "stage.h"

/* Gets the base, looks at it, runs every stage's check, checks the space in the work directory
 * and in the artifact's (which must exist), chooses the backend. */
int build_accept(struct build *b, const char *output_dir, const struct backend **ret_backend,
                 struct error *err);
int build_make_image(struct build *b, const struct backend *backend, struct error *err);
bool build_has_stage(const struct build *b, const struct stage *stage);
/* Releases what the pipeline put into it. */
void build_free(struct build *b);

#endif
