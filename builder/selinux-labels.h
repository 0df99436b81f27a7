/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which SELinux label a path of an image shall have, by the image's own policy
 * (/etc/selinux/config, /etc/selinux/TYPE/contexts/files/file_contexts*), through libselinux's
 * selabel(3), which needs no SELinux on the host. Files that we write without a label would be
 * unlabeled_t at first boot: sshd and systemd refuse those when enforcing.
 */
#ifndef GPUIMG_SELINUX_LABELS_H
#define GPUIMG_SELINUX_LABELS_H

#include <stdint.h>

#include "cleanup.h"
#include "error.h"
#include "rootfs.h"

enum selinux_mode { SELINUX_NONE, SELINUX_DISABLED, SELINUX_PERMISSIVE, SELINUX_ENFORCING };

struct selinux_labels;

/* What /etc/selinux/config says; NONE: the image has no policy. */
int selinux_read_mode(enum selinux_mode *ret, struct rootfs *root, struct error *err);
/*
 * The policy's file contexts, copied to 'scratch' (an existing directory of ours). *ret stays NULL
 * for an image with mode NONE or DISABLED. Error: the policy is there and cannot be read.
 */
int selinux_labels_open(struct selinux_labels **ret, struct rootfs *root, const char *scratch,
                        struct error *err);
void selinux_labels_free(struct selinux_labels *labels);
DEFINE_CLEANUP(selinux_labels, struct selinux_labels *, selinux_labels_free)
#define CLEANUP_SELINUX_LABELS CLEANUP(cleanup_selinux_labels)
/* The label for a path of the guest with that st_mode; owned by the caller; NULL: the policy gives
 * it none (<<none>>). */
int selinux_labels_find(char **ret, struct selinux_labels *labels, const char *path, uint32_t mode,
                        struct error *err);

/* An empty file here makes the first boot label every file of the image, and boot once more. */
#define SELINUX_AUTORELABEL "/.autorelabel"
#define SELINUX_RELABEL_COST                                                                       \
	"the first boot of every node labels all files anew and reboots, which takes minutes"

#endif
