/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer entry for the initramfs reader and what is built on it. The time is bounded by the
 * caller: clang -fsanitize=fuzzer,address,undefined, then -max_total_time=60 -timeout=10
 * -max_len=65536. Whatever comes in, the answer is an error or a tree that can be asked.
 */
#include <stdlib.h>
#include <string.h>

#include "builder/initramfs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Some of the content, so that both ways through the reader are taken. */
static bool keep_some(void *opaque, const char *path, uint64_t size_bytes)
{
	(void)opaque;
	return size_bytes < 4096 && strlen(path) % 2 == 0;
}

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void ask(const struct initramfs *i)
{
	for (size_t n = 0; n < i->count && n < 1000; n++) {
		const struct initramfs_member *m = &i->members[n];
		const struct initramfs_member *found = initramfs_find(i, m->path);

		require(m->path && m->archive < i->archive_count);
		require(!m->data || m->data[m->size_bytes] == '\0');
		require(!found || (found >= i->members && found < i->members + i->count));
		(void)initramfs_find_target(i, m->path);
	}
	(void)initramfs_find_module(i, "virtio_blk");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_INITRAMFS struct initramfs i = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int rc = initramfs_read_memory(&i, data, size, "fuzz", keep_some, NULL, &err);

	if (rc == 0) {
		require(i.archive_count > 0 && i.archive_count == i.compressions.count);
		ask(&i);
	} else {
		require(rc == -1 && err.message && err.code == EXIT_INPUT && !i.members);
	}
	return 0;
}
