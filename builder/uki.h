/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PE files of an EFI system partition, read only: is this a unified kernel image (UAPI.5), and what
 * is in its sections; or which boot loader is it. PE/COFF as the Microsoft specification has it.
 * Content is untrusted: at most 96 sections, each inside of the file, text sections at most 1 MiB.
 * Sections may lie over each other: the firmware loads each from its own place, and so do we.
 */
#ifndef GPUIMG_UKI_H
#define GPUIMG_UKI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "error.h"
#include "str.h"

struct uki_section {
	char name[9]; /* of the guest: print with care */
	uint64_t offset,
		size_bytes; /* in the file; size without the padding (VirtualSize), and
	                     * without what only memory has (VirtualSize > SizeOfRawData) */
};

struct uki {
	struct uki_section *sections; /* in the order of the file */
	size_t count;
	bool is_signed;    /* has a certificate table that is not empty */
	unsigned profiles; /* number of .profile sections: a multi-profile UKI, if not 0 */
};

/* 'name' is for messages. Errors (EXIT_INPUT): not a PE file, damaged, beyond a bound. The file is
 * read with pread() only. */
int uki_read(struct uki *ret, int fd, const char *name, struct error *err);
void uki_free(struct uki *u);
#define CLEANUP_UKI CLEANUP(uki_free)
/* The first section of that name (".linux", ".initrd", ".cmdline", ".uname", ".osrel"), or NULL. */
const struct uki_section *uki_find(const struct uki *u, const char *name);
/*
 * The same as profile 'profile' has it (0: the first, which is booted unless another one is asked
 * for): from behind its .profile section, else from before all of them, as systemd-stub looks. NULL
 * for a profile that is not there, but of an image without profiles, 0 is the whole.
 */
const struct uki_section *uki_find_in_profile(const struct uki *u, unsigned profile,
                                              const char *name);
bool uki_is_unified(const struct uki *u); /* has .linux */
/* Its content as text, up to the first NUL, line ends at the end taken off; owned by the caller. */
int uki_text(char **ret, const struct uki_section *s, int fd, const char *name, struct error *err);
/* Its content to another descriptor (an initramfs to read). */
int uki_copy(const struct uki_section *s, int fd, int to, const char *name, struct error *err);
/*
 * What an EFI program is: "systemd-boot", "grub", "shim", "systemd-stub", "systemd-addon", "uki",
 * "linux" (a kernel with its own stub) or "unknown"; by its sections (.linux, .sdmagic, .sbat,
 * mods, .setup) and nothing else: file names say what somebody copied to there once.
 */
const char *uki_identify(const struct uki *u, int fd);

#endif
