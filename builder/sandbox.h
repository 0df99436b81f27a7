/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest programs at native speed: bubblewrap in a user namespace whose ids are all shifted
 * (tree.h), so that guest root is nobody on the host. Nothing it runs can write outside the
 * tree, reach the network unless asked, see the host's environment or processes, or outlive
 * us. /proc, /dev, /run and /tmp are its own; /sys is empty on purpose: generators that see
 * no hardware build for all hardware. A command with network shares the host's, its loopback
 * and its resolv.conf included; the guest's own /etc/resolv.conf is the same afterwards, in
 * type and content, whatever the command did and however it ended.
 */
#ifndef GPUIMG_SANDBOX_H
#define GPUIMG_SANDBOX_H

#include "cleanup.h"
#include "error.h"
#include "log.h"
#include "rootfs.h"

struct sandbox;

/* What grub-mkconfig asks about block devices, which the sandbox does not have. */
struct sandbox_devices {
	const char *root_uuid, *root_fs,
		*root_partuuid;  /* root_fs in GRUB's words: ext2, xfs, btrfs */
	const char *root_subvol; /* btrfs: of the root, "@rootfs"; else NULL */
	const char
		*root_device; /* LVM: "/dev/mapper/VG-LV", as it is called on the node; else NULL */
	const char *boot_uuid, *boot_fs, *boot_partuuid; /* NULL unless /boot is separate */
	const char *esp_uuid, *esp_partuuid, *esp_path;  /* NULL unless an ESP is mounted */
	const char *partmap;                             /* gpt or msdos */
};

struct sandbox_options {
	const char *dir;                       /* the tree's directory */
	const char *data_dir;                  /* where the grub-probe stand-ins are installed */
	const struct sandbox_devices *devices; /* borrowed; may be NULL */
	struct log *log;
};

/* Whether this host can: root, bubblewrap, user namespaces, a 'dir' (may be NULL, need not be there
 * yet) that is not mounted noexec. The error (EXIT_HOST) names what is missing and its cure. */
int sandbox_check_host(const char *dir, struct error *err);

int sandbox_new(struct sandbox **ret, const struct sandbox_options *options, struct error *err);
void sandbox_free(struct sandbox *sandbox);
DEFINE_CLEANUP(sandbox, struct sandbox *, sandbox_free)
#define CLEANUP_SANDBOX CLEANUP(cleanup_sandbox)

int sandbox_run(struct sandbox *sandbox, const struct guest_command *command, struct error *err);

#endif
