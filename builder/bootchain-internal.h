/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of boot entries share: GRUB, BLS files, unified kernel images. */
#ifndef GPUIMG_BOOTCHAIN_INTERNAL_H
#define GPUIMG_BOOTCHAIN_INTERNAL_H

#include "bootchain.h"

#define BOOTCHAIN_MAX_ENTRIES 4096

struct chain_reader {
	struct bootchain *chain;
	struct rootfs *root;
	const struct guest *guest;
	const char *work_dir;
	char *kernelopts; /* GRUB's variable that entries use */
	bool reads_uki;   /* GRUB chainloads one */
};

/* A new entry at the end, to be filled. */
struct boot_entry *chain_add(struct bootchain *chain);
/* grub.cfg, what it sources, and grub.cfg files of the ESP. */
int chain_read_grub(struct chain_reader *r, struct error *err);
/* The entries of one loader/entries directory. */
int chain_read_bls(struct chain_reader *r, const char *dir, struct error *err);
/* The unified kernel images of one EFI/Linux directory, or one file. */
int chain_read_ukis(struct chain_reader *r, const char *dir, struct error *err);
/* Whether the EFI program is a systemd-boot; a file that is not there is none. */
int chain_identify(struct chain_reader *r, const char *path, const char **ret, struct error *err);
/* An error of a file that was refused goes to 'unreadable'; any other one stays one. */
int chain_note_unreadable(struct chain_reader *r, struct error *from, struct error *err);
/* Whether "single", "recovery" or "rescue" is among the words. */
bool chain_is_recovery(const struct strv *args);

#endif
