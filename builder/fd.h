/* SPDX-License-Identifier: Apache-2.0 */
/* File descriptors. */
#ifndef GPUIMG_FD_H
#define GPUIMG_FD_H

#include <stddef.h>

/* Writes all, however often the kernel takes only a part. 0, or -1 with errno. */
int fd_write_all(int fd, const void *data, size_t size);

#endif
