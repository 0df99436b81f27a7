/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer entry for the reader of EFI programs. Whatever comes in, the answer is an error with a
 * message, or sections that are inside of the file and can be read.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "builder/cleanup.h"
#include "builder/uki.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void ask_section(const struct uki_section *s, int fd, int null, size_t size)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *text = NULL;

	require(s->offset <= size && s->size_bytes <= size - s->offset);
	require(strlen(s->name) < sizeof(s->name));
	require(uki_copy(s, fd, null, "fuzz", &err) == 0);
	if (uki_text(&text, s, fd, "fuzz", &err) < 0)
		require(s->size_bytes > 1 << 20 && err.message);
	else
		require(strlen(text) <= s->size_bytes);
}

static void ask(const struct uki *u, int fd, int null, size_t size)
{
	require(u->count > 0 && u->count <= 96 && u->profiles <= u->count);
	for (size_t i = 0; i < u->count; i++) {
		ask_section(&u->sections[i], fd, null, size);
		require(uki_find(u, u->sections[i].name) <= &u->sections[i]);
	}
	for (unsigned i = 0; i <= u->profiles; i++)
		(void)uki_find_in_profile(u, i, ".cmdline");
	require(uki_is_unified(u) == str_equal(uki_identify(u, fd), "uki"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_CLOSE int fd = memfd_create("fuzz", MFD_CLOEXEC);
	CLEANUP_CLOSE int null = memfd_create("null", MFD_CLOEXEC);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_UKI struct uki u = {0};

	require(fd >= 0 && null >= 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
	if (uki_read(&u, fd, "fuzz", &err) < 0)
		require(err.message && err.code == EXIT_INPUT && !u.sections);
	else
		ask(&u, fd, null, size);
	return 0;
}
