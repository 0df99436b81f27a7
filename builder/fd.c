/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "fd.h"
#include "str.h"

int fd_write_all(int fd, const void *data, size_t size)
{
	const char *at = data;

	while (size > 0) {
		ssize_t n = write(fd, at, size);

		if (n < 0 && errno != EINTR)
			return -1;
		if (n > 0) {
			at += n;
			size -= (size_t)n;
		}
	}
	return 0;
}

/* Not by O_TMPFILE, which overlayfs has on new kernels only: a work directory may be in a
 * container. */
int fd_temporary(const char *dir)
{
	CLEANUP_FREE char *name = str_format("%s/gpuimg-copy.XXXXXX", dir);
	int fd = mkostemp(name, O_CLOEXEC);

	if (fd >= 0)
		unlink(name);
	return fd;
}
