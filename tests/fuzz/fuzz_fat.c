/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer entry for the FAT reader. The first byte chooses: a boot sector of the input's own, or
 * a good one of FAT12, 16 or 32, before a table and directories that the input makes. Whatever
 * comes in, the answer is an error with a message, or a tree whose walk ends.
 */
#include <stdlib.h>
#include <string.h>

#include "builder/fatfs-internal.h"
#include "builder/str.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SECTOR     ((size_t)512)
#define TREE_MAX   500 /* paths that are looked at */
#define READ_MAX   ((size_t)1 << 20)
#define DISK_BYTES ((uint64_t)8 << 20)

/* Three pieces, each behind the one before it, and zeroes up to the end. */
struct image {
	uint8_t boot[512];
	size_t table_bytes; /* of which the input fills the begin */
	const uint8_t *table, *rest;
	size_t table_have, rest_have;
};

static void require(bool holds)
{
	if (!holds)
		abort();
}

/* The part of a piece at 'at' that lies in the range that is asked for. */
static void overlay(uint8_t *buffer, size_t size, uint64_t offset, const uint8_t *piece,
                    size_t piece_size, uint64_t at)
{
	uint64_t begin = offset > at ? offset : at;
	uint64_t end = offset + size < at + piece_size ? offset + size : at + piece_size;

	if (begin < end)
		memcpy(buffer + (begin - offset), piece + (begin - at), (size_t)(end - begin));
}

static int read_image(void *opaque, void *buffer, size_t size, uint64_t offset_bytes,
                      struct error *err)
{
	const struct image *image = opaque;

	(void)err;
	require(offset_bytes <= DISK_BYTES && size <= DISK_BYTES - offset_bytes);
	memset(buffer, 0, size);
	overlay(buffer, size, offset_bytes, image->boot, sizeof(image->boot), 0);
	overlay(buffer, size, offset_bytes, image->table, image->table_have, SECTOR);
	overlay(buffer, size, offset_bytes, image->rest, image->rest_have,
	        SECTOR + image->table_bytes);
	return 0;
}

static void put16(uint8_t *p, unsigned value)
{
	p[0] = (uint8_t)value;
	p[1] = (uint8_t)(value >> 8);
}

/* 'clusters' of one sector, and a root of 16 entries or in the first cluster. */
static void make_boot(struct image *image, unsigned bits, unsigned clusters)
{
	unsigned table = ((clusters + 2) * bits / 8 + 511) / 512, root = bits == 32 ? 0 : 1;
	uint8_t *boot = image->boot;

	put16(boot + 11, SECTOR);
	boot[13] = 1;
	put16(boot + 14, 1);
	boot[16] = 1;
	put16(boot + 17, root * 16);
	put16(boot + 19, 1 + table + root + clusters);
	boot[21] = 0xf8;
	put16(boot + (bits == 32 ? 36 : 22), table);
	if (bits == 32)
		boot[44] = 2;
	image->table_bytes = table * SECTOR;
}

static void make_image(struct image *ret, const uint8_t *data, size_t size)
{
	static const unsigned bits[] = {12, 16, 32}, clusters[] = {100, 4100, 100};
	unsigned mode = size ? data[0] % 4 : 0;
	size_t left = size ? size - 1 : 0;

	*ret = (struct image){.table = data + (size ? 1 : 0)};
	if (mode < 3) {
		make_boot(ret, bits[mode], clusters[mode]);
	} else {
		memcpy(ret->boot, ret->table, left < SECTOR ? left : SECTOR);
		ret->table += left < SECTOR ? left : SECTOR;
		left -= left < SECTOR ? left : SECTOR;
	}
	/* Enough for a table of a hundred clusters, so that short inputs have directories too. */
	ret->table_have = left < 64 ? left : 64;
	ret->rest = ret->table + ret->table_have;
	ret->rest_have = left - ret->table_have;
}

static void look_at_file(struct rootfs *r, const char *path, const struct rootfs_stat *st)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE void *data = NULL;
	size_t size = 0;

	if (r->ops->read(r, path, READ_MAX, &data, &size, &err) < 0)
		require(err.message && error_exit_code(&err) == EXIT_INPUT);
	else
		require(size == st->size_bytes && ((char *)data)[size] == '\0');
}

static void add_children(struct rootfs *r, const char *dir, struct strv *todo)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};

	if (r->ops->list(r, dir, &names, &err) < 0) {
		require(err.message && error_exit_code(&err) == EXIT_INPUT);
		return;
	}
	for (size_t i = 0; i < names.count && todo->count < TREE_MAX; i++) {
		require(names.items[i][0] && !strchr(names.items[i], '/'));
		strv_addf(todo, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, names.items[i]);
	}
}

static void look_at_tree(struct rootfs *r)
{
	CLEANUP_STRV struct strv todo = {0};

	strv_add(&todo, "/");
	for (size_t i = 0; i < todo.count; i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		struct rootfs_stat st;
		int found = r->ops->lstat(r, todo.items[i], &st, &err);

		/* What was listed is there, unless directories are too deep. */
		require(found > 0 || (found < 0 && err.message));
		if (found > 0 && S_ISDIR(st.mode))
			add_children(r, todo.items[i], &todo);
		else if (found > 0)
			look_at_file(r, todo.items[i], &st);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct image image;
	struct fat_source source = {.read = read_image, .opaque = &image, .size_bytes = DISK_BYTES};
	CLEANUP_ROOTFS struct rootfs *r = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	uint64_t free_bytes, size_bytes;

	make_image(&image, data, size);
	if (fatfs_open_source(&r, &source, "fuzz", &err) < 0) {
		require(err.message && error_exit_code(&err) == EXIT_INPUT && !r);
		return 0;
	}
	look_at_tree(r);
	if (r->ops->statvfs(r, "/", &free_bytes, &size_bytes, &err) == 0)
		require(free_bytes <= size_bytes && size_bytes <= DISK_BYTES);
	return 0;
}
