/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "tree-private.h"

#define NAME_BLOCK_BYTES ((size_t)64 * 1024)
#define XATTR_LIST_BYTES ((size_t)64 * 1024) /* XATTR_LIST_MAX */

struct name_block {
	struct name_block *next;
	size_t used;
	char text[];
};

bool tree_is_skipped(const char *path)
{
	static const char *const skipped[] = {"/proc", "/sys", "/dev", "/run", "/tmp"};

	for (size_t i = 0; i < sizeof(skipped) / sizeof(*skipped); i++)
		if (str_equal(path, skipped[i]))
			return true;
	return false;
}

static const char *keep_name(struct tree_index *index, const char *name)
{
	size_t size = strlen(name) + 1; /* NAME_MAX and one, at most */
	struct name_block *block = index->names;
	char *kept;

	if (!block || NAME_BLOCK_BYTES - block->used < size) {
		block = mem_grow(NULL, 1, sizeof(*block) + NAME_BLOCK_BYTES);
		*block = (struct name_block){.next = index->names};
		index->names = block;
	}
	kept = memcpy(block->text + block->used, name, size);
	block->used += size;
	return kept;
}

uint32_t tree_index_add(struct tree_index *index, uint32_t parent, const char *name, uint32_t mode)
{
	if (index->count == index->room) {
		index->room = index->room ? index->room + index->room / 2 : 4096;
		index->entries = mem_grow(index->entries, index->room, sizeof(*index->entries));
	}
	index->entries[index->count] =
		(struct tree_entry){.name = keep_name(index, name), .parent = parent, .mode = mode};
	return (uint32_t)index->count++;
}

int64_t tree_time_ns(const struct timespec *time)
{
	return (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
}

int tree_index_set(struct tree_index *index, uint32_t entry, const struct stat *st, int fd)
{
	struct tree_entry *e = &index->entries[entry];

	e->inode = st->st_ino;
	e->ctime_ns = tree_time_ns(&st->st_ctim);
	e->size_bytes = (uint64_t)st->st_size;
	e->mode = st->st_mode;
	e->uid = st->st_uid;
	e->gid = st->st_gid;
	return S_ISDIR(st->st_mode) ? tree_hash_xattrs(fd, &e->size_bytes) : 0;
}

char *tree_index_path(const struct tree_index *index, uint32_t entry)
{
	size_t length = 0;
	char *path, *at;

	for (uint32_t i = entry; i != TREE_NO_ENTRY; i = index->entries[i].parent)
		length += strlen(index->entries[i].name) + 1;
	path = mem_alloc(length + 1);
	at = path + length;
	for (uint32_t i = entry; i != TREE_NO_ENTRY; i = index->entries[i].parent) {
		const char *name = index->entries[i].name;

		for (const char *end = name + strlen(name); end > name;)
			*--at = *--end;
		*--at = '/';
	}
	return path;
}

void tree_index_free(struct tree_index *index)
{
	for (size_t i = 0; i < index->count; i++)
		free(index->entries[i].fill);
	for (struct name_block *block = index->names, *next; block; block = next) {
		next = block->next;
		free(block);
	}
	free(index->entries);
	*index = (struct tree_index){0};
}

/* FNV-1a: tells a change, not a forgery; a guest can only hide its own work from itself. */
static uint64_t hash_bytes(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3u;
	return hash;
}

/* One that is gone since it was listed counts as empty. */
static int hash_xattr(int fd, const char *name, uint64_t *hash)
{
	CLEANUP_FREE char *value = NULL;
	ssize_t size = fgetxattr(fd, name, NULL, 0);

	if (size > 0) {
		value = mem_alloc((size_t)size);
		size = fgetxattr(fd, name, value, (size_t)size);
	}
	if (size < 0 && errno != ENODATA)
		return -1;
	*hash = hash_bytes(*hash, name, strlen(name) + 1);
	*hash = hash_bytes(*hash, &size, sizeof(size));
	if (size > 0)
		*hash = hash_bytes(*hash, value, (size_t)size);
	return 0;
}

int tree_hash_xattrs(int fd, uint64_t *ret)
{
	CLEANUP_FREE char *names = NULL;
	uint64_t hash = 0xcbf29ce484222325u;
	ssize_t size = flistxattr(fd, NULL, 0);

	if (size > 0) {
		names = mem_alloc(XATTR_LIST_BYTES + 1);
		size = flistxattr(fd, names, XATTR_LIST_BYTES);
	}
	if (size < 0 && errno != ENOTSUP)
		return -1;
	for (const char *n = names; size > 0 && n < names + size; n += strlen(n) + 1)
		if (hash_xattr(fd, n, &hash) < 0)
			return -1;
	*ret = hash;
	return 0;
}
