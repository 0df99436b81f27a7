/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer entry for the two readers of text from outside: configuration and checksum files.
 * Whatever comes in, the answer is an error with a message, or values that fit the table.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "builder/cleanup.h"
#include "builder/config.h"
#include "builder/str.h"
#include "builder/sums.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct config_key keys[] = {
	{"name", CONFIG_STRING, NULL},
	{"boot.firmware", CONFIG_STRING, "bios|uefi"},
	{"boot.memory", CONFIG_SIZE, NULL},
	{"boot.test", CONFIG_BOOL, NULL},
	{"boot.qemu.cpus", CONFIG_UINT, NULL},
	{"add", CONFIG_LIST, NULL},
	{0},
};

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void fuzz_config(const uint8_t *data, size_t size)
{
	CLEANUP_CLOSE int fd = memfd_create("fuzz", MFD_CLOEXEC);
	CLEANUP_FREE char *path = str_format("/proc/self/fd/%d", fd);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CONFIG struct config *config = NULL;
	uint64_t memory;

	require(fd >= 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
	if (config_read(&config, path, keys, &err) < 0) {
		require(err.message && error_exit_code(&err) == EXIT_USAGE && !config);
		return;
	}
	require(config->count < sizeof(keys) / sizeof(keys[0]));
	if (config_find(config, "boot.memory"))
		require(config_size(config, "boot.memory", &memory));
}

static void fuzz_sums(const uint8_t *data, size_t size)
{
	CLEANUP_FREE char *text = mem_copy(data, size);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *hex = NULL;
	const char *algorithm = NULL;

	if (sums_find(text, "/a/disk.qcow2", &algorithm, &hex, &err) < 0)
		require(err.message && !hex);
	else
		require(strlen(hex) == (str_equal(algorithm, "SHA256") ? 64 : 128));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	fuzz_config(data, size);
	fuzz_sums(data, size);
	return 0;
}
