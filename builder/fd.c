/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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

int fd_read_text(int fd, size_t max, char **ret)
{
	char *text = mem_alloc(max + 2); /* one more tells that there is more */
	size_t size = 0;
	ssize_t n;

	while (size <= max && (n = read(fd, text + size, max + 1 - size)) != 0) {
		if (n > 0)
			size += (size_t)n;
		else if (errno != EINTR)
			break;
	}
	if (size > max)
		errno = EFBIG;
	if (size > max || n < 0) {
		explicit_bzero(text, size);
		free(text);
		return -1;
	}
	*ret = text;
	return 0;
}

int fd_read_path(const char *path, size_t max, char **ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char *text = NULL;
	int result, errnum;

	if (fd < 0 && errno != ENOENT)
		return -1;
	result = fd < 0 ? 0 : fd_read_text(fd, max, &text);
	errnum = errno;
	if (fd >= 0)
		close(fd);
	errno = errnum;
	if (result == 0)
		*ret = text;
	return result;
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
