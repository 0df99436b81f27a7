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
/* What only the image's own programs can tell, for --plan: in a working copy that is thrown away.
 */
int build_plan(struct build *b, const struct backend *backend, struct error *err);
int build_make_image(struct build *b, const struct backend *backend, struct error *err);
/* One step: its line on the screen, its time in the manifest. */
int build_step(struct build *b, const char *name, const char *what,
               int (*run)(struct build *, struct error *), struct error *err);
/* guest_open() without an appliance where that is enough, else with one, which 'reader' gets. */
int build_open_guest(struct build *b, struct disk *disk, const char *format,
                     struct appliance **reader, struct guest **ret, struct rootfs **ret_root,
                     struct error *err);
/* Whether KVM works, found out once, when the first virtual machine is needed. */
int build_probe_accel(struct build *b, struct error *err);
/* Reads the exported image back, by every stage's verify. */
int build_prove(struct build *b, struct error *err);
/* Ends the appliances that read base and result, and what they had open: nothing is read from then
 * on. Without them, nothing happens. */
void build_close_readers(struct build *b);
bool build_has_stage(const struct build *b, const struct stage *stage);
/* Releases what the pipeline put into it. */
void build_free(struct build *b);

#endif
