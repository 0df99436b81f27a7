/* SPDX-License-Identifier: Apache-2.0 */
/* Files that tests of image formats make. */
#ifndef GPUIMG_TESTS_FILES_H
#define GPUIMG_TESTS_FILES_H

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static inline void write_file(const char *name, const void *data, size_t size)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		printf("Bail out! cannot write %s\n", name);
	if (fd >= 0)
		close(fd);
}

#endif
