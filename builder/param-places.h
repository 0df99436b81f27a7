/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where an image takes kernel parameters from: for the boot entries that it has, and for those that
 * kernels installed later will get. Which of these places an image uses is read from its files:
 *
 *  - Debian and Ubuntu with GRUB: grub-mkconfig reads /etc/default/grub.d (stage 'cmdline' puts a
 *    drop-in there) and writes grub.cfg;
 *  - Enterprise Linux, Fedora: GRUB reads BLS entries, whose options stand in them or in grubenv
 *    ('kernelopts'); grub2-mkconfig does not touch those any more (9.3 and later), so all are
 *    edited, and GRUB_CMDLINE_LINUX of /etc/default/grub too, which grubby and older hooks read;
 *  - kernel-install(8) (BLS entries and unified kernel images): /etc/kernel/cmdline. Without it the
 *    running system's /proc/cmdline is taken, in a build that of the build host.
 */
#ifndef GPUIMG_PARAM_PLACES_H
#define GPUIMG_PARAM_PLACES_H

#include <stdbool.h>

#include "bootchain.h"
#include "cmdline.h"
#include "error.h"
#include "finding.h"
#include "log.h"
#include "rootfs.h"

#define KERNEL_CMDLINE_PATH "/etc/kernel/cmdline"
#define DEFAULT_GRUB_PATH   "/etc/default/grub"

struct param_places {
	/* The program that writes grub.cfg's entries; NULL: they are not written by one, or are
	 * BLS files. Borrowed constant. */
	const char *mkconfig;
	bool dropin;         /* which reads /etc/default/grub.d */
	bool default_grub;   /* GRUB_CMDLINE_LINUX is edited in place */
	const char *grubenv; /* has 'kernelopts'; NULL: none has. Borrowed from the chain */
	bool kernel_cmdline; /* kernel-install writes entries */
};

/*
 * "systemd.machine_id=…" with an id in it: kernel-install adds it where entries are named after the
 * machine-id, and each node of the image would get that one, whatever /etc/machine-id says.
 */
bool param_is_machine_id(const char *word);
void param_drop_machine_ids(struct strv *words);
/* chain: of the same root, and has to live as long as the result. */
int param_places_find(struct param_places *ret, struct rootfs *root, const struct bootchain *chain,
                      struct error *err);
/* Whether all of them can be edited; an error (EXIT_INPUT) names the file and its line. */
int param_places_check(const struct param_places *places, struct rootfs *root, struct error *err);
/*
 * Edits all places but the drop-in and UKIs (which are built anew), and takes machine-ids out.
 * 'chain' is what was read from this root; its entries are not changed by this call: read it again.
 * Twice gives the same as once.
 */
int param_places_apply(const struct param_places *places, struct rootfs *root,
                       const struct bootchain *chain, const struct cmdline_edit *edit,
                       struct log *log, struct error *err);
/* Whether a kernel installed later gets the parameters: all places but the drop-in. 'places'
 * may be those of the base that the root was made of. */
int proof_places(struct findings *f, const struct param_places *places, struct rootfs *root,
                 const struct strv *params, struct error *err);

#endif
