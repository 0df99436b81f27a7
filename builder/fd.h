/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors. */
#ifndef GPUIMG_FD_H
#define GPUIMG_FD_H

#include <stddef.h>

/* Writes all, however often the kernel takes only a part. 0, or -1 with errno. */
int fd_write_all(int fd, const void *data, size_t size);
/* All that is left of a file as a text, with a NUL behind it; owned by the caller. 0, or -1 with
 * errno, EFBIG: more than max bytes are left. It is read into one piece of memory, so a secret
 * leaves no copy. */
int fd_read_text(int fd, size_t max, char **ret);
/* The same of the file under a path; NULL: there is none. One that nobody writes to is no cause to
 * wait (a FIFO is empty then). */
int fd_read_path(const char *path, size_t max, char **ret);
/* A new file without a name in the directory, empty, for reading and writing. -1 with errno. */
int fd_temporary(const char *dir);

#endif
