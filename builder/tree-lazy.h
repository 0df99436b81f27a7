/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placeholders of a tree: files that get their content when something first opens them. The
 * kernel holds the open() until we have answered (fanotify permission events). Private to tree.
 *
 * Two threads: one takes what the kernel asks, the other fills. The filling one opens the
 * placeholder for writing, which is asked for too, and which the first one allows at once: so
 * that the descriptor is closed before the answer (an open one would fail an exec, ETXTBSY),
 * and the file still marked while it is half full (a second opener waits as well).
 *
 * What a program does to a placeholder by its path alone (chmod, rename, setxattr…) works
 * without us. truncate(2) is told after the fact, and the file then filled up to its new size:
 * only who truncates a file that was never open, and makes it longer again at once, may get
 * old bytes back.
 *
 * Marks keep inodes in the kernel's memory, about 1 KiB each, until lazy_free().
 */
#ifndef GPUIMG_TREE_LAZY_H
#define GPUIMG_TREE_LAZY_H

#include "tree-private.h"

/* Fails where the kernel or the container does not allow it. The filler is borrowed. */
int lazy_new(struct lazy **ret, struct rootfs *filler, struct error *err);
/* The file that 'fd' has made, of its final size, becomes the placeholder for an entry of the
 * index. 0, or -1 with errno: then it needs its content now. */
int lazy_mark(struct lazy *lazy, int fd, uint64_t inode, uint32_t entry);
size_t lazy_count(const struct lazy *lazy);
/* From now on openers are served. The index does not grow any more. More than source_bytes
 * together are not filled: the image is damaged then. */
int lazy_start(struct lazy *lazy, struct tree_index *index, uint64_t source_bytes,
               struct error *err);
/* Waits until all that has happened to files is known. */
void lazy_sync(struct lazy *lazy);
/* The first fill that failed. */
int lazy_check(struct lazy *lazy, struct error *err);
/* Whether this inode was one, and was not filled. A later file may have got its number. */
bool lazy_is_placeholder(struct lazy *lazy, uint64_t inode);
/* NULL: never was a placeholder, or was not filled. Good until lazy_free(). */
const struct tree_fill *lazy_fill_of(struct lazy *lazy, uint64_t inode);
uint64_t lazy_filled_bytes(struct lazy *lazy);
/* Openers that still wait are refused; who opens later, sees zeros. */
void lazy_free(struct lazy *lazy);

/* tree-lazy-fill.c: fills the placeholder that 'fd' is open on, for reading; 'path' is where
 * its content stands in the filler. */
int lazy_fill_file(struct tree_fill **ret, struct rootfs *filler, int fd,
                   const struct tree_entry *entry, const char *path, struct error *err);
/* Waits, not for long, until nobody has the file open for writing. */
void lazy_await_writers(int fd);

#endif
