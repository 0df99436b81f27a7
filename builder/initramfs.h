/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads an initramfs: several cpio archives end to end, each plain or compressed (gzip, xz,
 * lzma, bzip2, zstd, lz4 legacy), zero padding between them; microcode first as a rule.
 * libarchive stops at the first archive, so the reader steps on by itself. What the kernel
 * would refuse is refused here too: the lz4 frame format, lzo, cpio formats other than newc.
 * Source: Documentation/driver-api/early-userspace/buffer-format.rst of the Linux kernel.
 * Content is untrusted: bounded in members, sizes and expansion.
 */
#ifndef GPUIMG_INITRAMFS_H
#define GPUIMG_INITRAMFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "error.h"
#include "str.h"

struct initramfs_member {
	char *path; /* as written, but without leading "/" or "./"; the top itself is "." */
	uint32_t mode;
	uint64_t size_bytes;
	char *link;     /* target of a symbolic link, else NULL */
	uint8_t *data;  /* kept only where 'keep' asked for it, with a NUL after it; else NULL.
	                 * Hard links of one file all have its size, and its content where asked. */
	size_t archive; /* 0: the first cpio of the file */
};

struct initramfs {
	struct initramfs_member *members; /* in order; a later one of the same path wins at boot */
	size_t count;
	size_t archive_count;
	struct strv compressions; /* per archive: "none", "gzip", "zstd"… */
	uint64_t expanded_bytes;
	void *by_path; /* the tree of what is there after unpacking: initramfs_find's own */
};

/* Whether a member's content shall be kept; NULL keeps none. */
typedef bool initramfs_keep(void *opaque, const char *path, uint64_t size_bytes);

/*
 * name: for messages. Errors: not an initramfs, truncated (also when only the last member
 * or the end record is missing), damaged compression, garbage after the last archive, beyond
 * a bound. 'members' holds what the kernel would unpack.
 */
int initramfs_read_file(struct initramfs *ret, int fd, const char *name, initramfs_keep *keep,
                        void *opaque, struct error *err);
int initramfs_read_memory(struct initramfs *ret, const void *data, size_t size, const char *name,
                          initramfs_keep *keep, void *opaque, struct error *err);
void initramfs_free(struct initramfs *i);
#define CLEANUP_INITRAMFS CLEANUP(initramfs_free)

/*
 * The member that the booted system sees under this path (links in directories followed:
 * usr-merged "lib" -> "usr/lib"; a link in the last place is itself the answer), or NULL. A
 * member whose directory is not in the archive before it is not there: the kernel does not
 * make directories on its own.
 */
const struct initramfs_member *initramfs_find(const struct initramfs *i, const char *path);
/* The same, with a link in the last place followed; NULL if it leads nowhere. */
const struct initramfs_member *initramfs_find_target(const struct initramfs *i, const char *path);
/* A module by name ("virtio_blk"; - and _ are equal), any compression suffix; or NULL. */
const struct initramfs_member *initramfs_find_module(const struct initramfs *i, const char *name);

#endif
