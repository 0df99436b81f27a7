/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <unistd.h>

#include "fd.h"

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
