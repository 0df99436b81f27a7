/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boot entries of type 1 as text (UAPI.1 Boot Loader Specification; GRUB's blscfg of Fedora and
 * Enterprise Linux reads the same files): "key value" lines, '#' comments. Pure text, no files.
 * Content is untrusted: at most 64 KiB of text and 4096 words of options.
 */
#ifndef GPUIMG_BLS_H
#define GPUIMG_BLS_H

#include "cleanup.h"
#include "error.h"
#include "str.h"

struct bls_entry {
	char *title, *version; /* may be NULL */
	char *linux_path;      /* as it stands: relative to the entry's own file system; NULL:
	                        * an entry that boots something else ('efi', 'uki') */
	char *efi;             /* 'efi' or 'uki', or NULL */
	struct strv initrds;   /* words of all 'initrd' lines, since GRUB takes several in one line;
	                        * "$tuned_initrd" as it stands: a variable of GRUB, mostly not set */
	struct strv options;   /* words of all 'options' lines, quotes kept, "$kernelopts" as it
	                        * stands (cmdline_split) */
	unsigned options_lines; /* 0: GRUB takes its variable default_kernelopts */
	int grub_stops_at;      /* line where GRUB stops reading although keys follow, or 0 */
};

/*
 * As the specification has it, and as systemd-boot reads: options lines add up, the last 'linux'
 * counts, a value in double quotes is without them. Errors (EXIT_INPUT): a bound, a NUL byte,
 * neither linux nor efi. 'name' is for messages. A BOM makes the first key another one, for both
 * readers; a carriage return ends a line for systemd-boot and is skipped by GRUB.
 */
int bls_parse(struct bls_entry *ret, const char *text, size_t size, const char *name,
              struct error *err);
/*
 * The same file as GRUB's blscfg reads it, which is less: only the first 'options' line and the
 * first 'linux' count, a line without a value (an empty one, too) ends the reading, and a blank
 * anywhere in a line ends its key before a tab does. What is lost so is no error here, unless it
 * is the kernel.
 */
int bls_parse_as_grub(struct bls_entry *ret, const char *text, size_t size, const char *name,
                      struct error *err);
void bls_free(struct bls_entry *e);
#define CLEANUP_BLS CLEANUP(bls_free)
/*
 * The text with one 'options' line of these words in the place of the first one; further options
 * lines go; every other byte stays. If there was none, it comes behind the last line that GRUB
 * reads too. No words: no options line. A line break inside of a word becomes a blank. Owned by
 * the caller.
 */
char *bls_set_options(const char *text, const struct strv *words);

#endif
