/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the sandbox module share; nobody else includes this. */
#ifndef GPUIMG_SANDBOX_PRIVATE_H
#define GPUIMG_SANDBOX_PRIVATE_H

#include "sandbox.h"

#define GUEST_PATH     "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define LAUNCH_FDS_MAX 8 /* /proc/cmdline, name resolution, four stand-ins, and some room */

struct sandbox {
	char *dir;
	char *data_dir;
	const struct sandbox_devices *devices; /* borrowed, may be NULL */
	struct log *log;
	struct rootfs *tree; /* for looking at the guest, never for running */
	int userns_fd;
	bool can_size; /* bubblewrap limits a tmpfs on request */
};

/* One bubblewrap command line, and the descriptors that it refers to. */
struct launch {
	struct strv args;
	int fds[LAUNCH_FDS_MAX];
	size_t fd_count;
};

/* sandbox-launch.c: all of the command line but "--" and the command. */
int launch_prepare(struct sandbox *s, struct launch *l, const struct guest_command *command,
                   struct error *err);
/* Takes the descriptor: its content appears as a read-only file at a guest path. */
void launch_bind_file(struct launch *l, int fd, const char *perms, const char *path);

/* sandbox-host.c: whether bubblewrap is 0.7 or newer, and so has --size. */
bool sandbox_can_size(void);

/* sandbox-userns.c: a user namespace that maps guest ids as tree.h says, and in which no
 * further one can be made. The error (EXIT_HOST) has its cure. */
int sandbox_userns_new(int *ret_fd, struct error *err);
/* For proc_options.in_child, a struct sandbox_entry: become root of that namespace, as the first
 * process of a process namespace that ends with the process 'parent'. */
struct sandbox_entry {
	int userns_fd;
	/* The tree, or NULL: bound to SANDBOX_TREE_POINT in a mount namespace of the child's own,
	 * so that the shifted ids need not pass through the directories above it. */
	const char *tree_dir;
	pid_t parent;
	int pid_fd; /* the host's id of that first process is written here, a pid_t; or -1 */
};
int sandbox_enter(const void *entry);

/* An empty directory that every Debian has and that everybody may pass (base-files). */
#define SANDBOX_TREE_POINT "/mnt"

/*
 * sandbox-resolv.c: name resolution for one run. The guest's own /etc/resolv.conf is as it was
 * after resolv_restore, which must be called after every resolv_prepare that succeeded.
 */
struct resolv {
	char *bind_path; /* where the host's file is bound, without links */
	int data_fd;     /* the host's file */
	bool was_missing;
	char *was_link; /* its text */
	uint64_t was_inode;
};

int resolv_prepare(struct resolv *ret, struct rootfs *tree, struct log *log, struct error *err);
int resolv_restore(struct resolv *resolv, struct rootfs *tree, struct error *err);

#endif
