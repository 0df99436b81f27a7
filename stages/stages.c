/* SPDX-License-Identifier: Apache-2.0 */
/* The one table that orders the stages. */
#include "builder/stage.h"
#include "stages/stages.h"

const struct stage *const stages[] = {
	/* first: it only writes files that the user's scripts may want to see */
	&stage_modprobe,
	/* before the user's scripts too; what they break of it, the proof finds */
	&stage_cmdline,
	/* needs what the base has, its kernels above all; before initramfs, which may not hold it
         */
	&stage_driver,
	/* after the driver: the container toolkit comes through the same package transaction */
	&stage_containerd,
	/* the user's files and scripts may add kernels, modules and hooks: before initramfs */
	&stage_user,
	/* copies the files of 'modprobe' into every kernel's initramfs */
	&stage_initramfs,
	/* after initramfs: an entry gets an initrd line only if the file is there */
	&stage_bootloader,
	/* last: kernel hooks need a machine-id before, and every stage leaves logs */
	&stage_seal,
	NULL,
};
