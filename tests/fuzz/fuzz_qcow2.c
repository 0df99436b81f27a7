/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer entry for image_check(): the input stands at the begin of a file in memory that is
 * longer than it, so that tables behind the header can lie inside the file. Whatever comes in,
 * the answer is an error with a message, or facts that can be true.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "builder/cleanup.h"
#include "builder/qcow2.h"
#include "builder/str.h"

#define FILE_BYTES 1048576

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t magic[4] = {'Q', 'F', 'I', 0xfb};
	CLEANUP_CLOSE int fd = memfd_create("fuzz", MFD_CLOEXEC);
	CLEANUP_FREE char *path = str_format("/proc/self/fd/%d", fd);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct image_info info = {0};

	require(fd >= 0 && ftruncate(fd, size % 2 ? FILE_BYTES : (off_t)size) == 0);
	require(pwrite(fd, data, size, 0) == (ssize_t)size);
	/* Three quarters are qcow2, whatever the mutator makes of the magic. */
	if (size > 4 && size % 4)
		require(pwrite(fd, magic, sizeof(magic), 0) == sizeof(magic));
	if (image_check(&info, path, &err) < 0) {
		require(err.message && error_exit_code(&err) == EXIT_INPUT);
		return 0;
	}
	require(info.virtual_bytes > 0 && info.file_bytes > 0);
	require(info.format == IMAGE_RAW || (info.cluster_bytes >= 512 && info.compression));
	return 0;
}
