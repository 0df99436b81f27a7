/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the backends share; nobody else includes this. */
#ifndef GPUIMG_BACKEND_INTERNAL_H
#define GPUIMG_BACKEND_INTERNAL_H

#include "backend.h"
#include "selinux-labels.h"

/*
 * What the stages changed. FAT keeps no owners, modes, attributes and links: what lies below such
 * a mount is written apart.
 */
struct changes {
	struct strv changed, removed;
	struct strv fat_changed, fat_removed;
};

void changes_free(struct changes *c);
#define CLEANUP_CHANGES CLEANUP(changes_free)

/* backend.c: the appliance on the overlay, writable. c: FAT file systems that it does not touch
 * are not mounted, since already that would write to them; NULL: all are. */
int backend_start_appliance(struct build *b, struct error *err);
int backend_mount(struct build *b, const struct changes *c, struct error *err);
int backend_finish_appliance(struct build *b, struct error *err);

/* backend-pipe.c: 'pack' writes a tar to a pipe, in a thread of its own, 'unpack' reads it. */
struct tar_way {
	int (*pack)(struct build *b, const void *opaque, int fd, struct error *err);
	int (*unpack)(struct build *b, const void *opaque, int fd, struct error *err);
	const void *opaque;
};
int backend_move_tar(struct build *b, const struct tar_way *way, struct error *err);

/* backend-commit.c */
int backend_sandbox_commit(struct build *b, struct error *err);

/* backend-fat.c */
/* Whether something below this mount, a FAT, is to be written. */
bool backend_touches_fat(const struct changes *c, const struct guest_mount *m);
/* Moves what lies below FAT mounts to their own lists, without files that are the same as in the
 * base: a FAT that nothing really changes is not written. */
int backend_split_fat(const struct build *b, struct changes *c, struct error *err);
/* By the appliance, which has them mounted. */
int backend_write_fat(struct build *b, const struct changes *c, struct error *err);

/* backend-selinux.c: new files of the tree get the labels of the image's policy from now on;
 * *ret must outlive the sending, NULL: there is no policy. A policy that cannot be read makes the
 * first boot relabel all. */
int backend_set_labeler(struct build *b, struct selinux_labels **ret, struct error *err);
/* The first boot relabels all, if the image has a policy: nothing labels what is written here. */
int backend_relabel_later(struct build *b, struct error *err);

#endif
