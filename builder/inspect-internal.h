/* SPDX-License-Identifier: Apache-2.0 */
/* The subjects of 'inspect', one file each. They add to in->facts and in->findings. */
#ifndef GPUIMG_INSPECT_INTERNAL_H
#define GPUIMG_INSPECT_INTERNAL_H

#include <stdio.h>

#include "inspect.h"

#define INSPECT_CONFIG_MAX_BYTES (1UL * 1024 * 1024)

/* --- Reading: what is missing is NULL; what is there and cannot be read is noted as a finding ---
 */

/* A regular file's text, at most max_bytes (more is a finding); owned by the caller. */
char *inspect_read(struct inspect *in, const char *path, size_t max_bytes);
/* Names in a directory; empty if it is missing. */
struct strv inspect_list(struct inspect *in, const char *path);
/* A new directory of ours below in->work_dir. Owned by the caller; NULL: error. */
char *inspect_scratch(const struct inspect *in, const char *name, struct error *err);

/* --- Subjects; those that return void have no fact that the others need --- */

/* Boot types, and whether 'gpuimg build' would take the image. */
void inspect_layout(struct inspect *in);
/* What in the boot chain has no signature; after the chain is read. */
void inspect_secure_boot(struct inspect *in);
/* What claims an NVIDIA card, and the root file system's answer. blocked: gets the claimants of
 * all kernels, and the wanted names before them. */
int inspect_kernels(struct inspect *in, const struct inspect_want *want, struct strv *blocked,
                    struct error *err);
/* Each initramfs that something boots, files and sections of UKIs. */
int inspect_initramfs(struct inspect *in, const struct strv *blocked, struct error *err);
int inspect_entries(struct inspect *in, const struct inspect_want *want, const struct strv *blocked,
                    struct error *err);
int inspect_driver(struct inspect *in, const struct inspect_want *want, struct error *err);
void inspect_containerd(struct inspect *in, const struct inspect_want *want);
void inspect_cloud_init(struct inspect *in);
void inspect_identity(struct inspect *in, bool sealed);
void inspect_selinux(struct inspect *in);

/* --- Parts that tests ask alone --- */

/* The words of the last "datasource_list:" in a cloud.cfg; false: it has none. */
bool inspect_datasources(const char *text, struct strv *ret);

/* The cure of a finding by its id, or NULL: what the finding itself says. */
const char *inspect_cure(const char *id);
void inspect_set_cures(struct findings *f);

/* inspect-print.c, to any stream. */
void inspect_print_facts(const struct inspect *in, FILE *to);
/* inspect-groups.c: findings of one verdict, equal ones in one line with what they are about. */
void inspect_print_findings(const struct inspect *in, enum finding_verdict verdict, FILE *to);

#endif
