/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a kernel module says of itself (.modinfo), and who signed it (the PKCS#7 message that the
 * kernel looks for at its end, Documentation/admin-guide/module-signing.rst). libkmod could tell,
 * but this file comes from an image that nobody vouches for: the little that is needed is read here
 * within bounds. Compressed by xz, zstd or gzip, or not.
 */
#ifndef GPUIMG_MODULE_INFO_H
#define GPUIMG_MODULE_INFO_H

#include <stdbool.h>
#include <stddef.h>

#include "error.h"
#include "str.h"

#define MODULE_FILE_MAX_BYTES (256UL * 1024 * 1024) /* nvidia.ko has about 100 MiB */

/* All texts are printable. */
struct module_info {
	char *name, *version, *vermagic, *license; /* NULL: it does not say */
	char *signer;         /* common name of who signed it, as modinfo(8) shows it; NULL: not
	                       * signed, or its signature cannot be read */
	bool has_signature;   /* not: that it is a good one */
	struct strv firmware; /* files that it asks for, below /lib/firmware */
};

/* From the file's bytes. EXIT_INPUT: no module for x86-64 or AArch64; the message is about "it",
 * since the name is the caller's. */
int module_info_read(struct module_info *ret, const void *data, size_t size, struct error *err);
void module_info_free(struct module_info *info);
#define CLEANUP_MODULE_INFO CLEANUP(module_info_free)

/* The signature alone, of a module that is not compressed. *ret_signer: owned by the caller. */
bool module_signature_read(const void *data, size_t size, char **ret_signer);

#endif
