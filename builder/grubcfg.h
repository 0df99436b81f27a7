/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boot entries of a grub.cfg that grub-mkconfig made: every linux/linuxefi/linux16 command
 * inside a menuentry (nested submenus too), with GRUB's own word splitting and quoting
 * (GRUB manual, "Shell-like scripting"; grub-core/script/yylex.l and parser.y). Read only: we
 * never edit this file. Nothing is run: both sides of an 'if' give entries, a variable stays
 * in its word as "$name", since what it holds is known at boot only.
 */
#ifndef GPUIMG_GRUBCFG_H
#define GPUIMG_GRUBCFG_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"
#include "str.h"

struct grub_entry {
	char *title;         /* "Advanced options for X>X, with Linux 6.1 (recovery mode)"; "" for a
	                      * linux command outside of any menuentry; cut at 1024 bytes */
	char *kernel;        /* path as GRUB sees it: "/boot/vmlinuz-…" or "/vmlinuz-…" */
	struct strv initrds; /* paths of its initrd command, may be empty */
	struct strv args;    /* kernel command line, unquoted words */
	int line;            /* of the linux command */
	bool recovery;       /* "single", "recovery" or "rescue" among the args */
	bool xen;            /* the kernel is a module of the Xen hypervisor */
};

struct grub_config {
	struct grub_entry *entries;
	size_t count;
	struct strv sources; /* what source and configfile load, words as they stand */
	bool loads_blscfg;   /* a blscfg command: the entries live elsewhere */
	bool loads_uki;      /* chainloader of an .efi under EFI/Linux, or a uki command */
};

/*
 * Errors (EXIT_INPUT): not valid GRUB script as far as we follow it (line named), beyond a
 * bound (4 MiB of text, 64 levels, 4096 entries). 'name' is for messages.
 */
int grubcfg_parse(struct grub_config *ret, const char *text, const char *name, struct error *err);
void grubcfg_free(struct grub_config *config);
#define CLEANUP_GRUBCFG CLEANUP(grubcfg_free)

#endif
