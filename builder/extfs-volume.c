/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, inodes and directories. Directories that were read are kept for a while, sorted:
 * a walk over the whole tree looks up each name from the root, and libext2fs would read
 * every directory on the way again and again from its first block.
 */
#include <et/com_err.h>
#include <string.h>

#include "extfs-internal.h"
#include "str.h"

#define SUPERBLOCK_OFFSET  1024
#define MAX_LOG_BLOCK_SIZE 6 /* 64 KiB */
#define MAX_DIR_ENTRIES    ((size_t)1 << 20)
#define MAX_CACHED_DIRS    64
#define MAX_CACHED_ENTRIES ((size_t)1 << 18)

struct entry {
	char *name;
	ext2_ino_t inode;
};

struct dir {
	ext2_ino_t inode;
	uint64_t last_used;
	struct entry *entries; /* sorted by name */
	size_t count;
};

struct extfs_dirs {
	struct dir *items[MAX_CACHED_DIRS];
	size_t count;
	size_t entries; /* of all */
	uint64_t clock;
};

static void dir_free(struct dir *dir)
{
	for (size_t i = 0; i < dir->count; i++)
		free(dir->entries[i].name);
	free(dir->entries);
	free(dir);
}

DEFINE_CLEANUP(dir, struct dir *, dir_free)
#define CLEANUP_DIR CLEANUP(cleanup_dir)

int extfs_refuse(const struct extfs_volume *v, const char *reason, const char *what,
                 const char *path, struct error *err)
{
	CLEANUP_FREE char *shown = str_printable(path, 1000);

	error_set(err, "%s: cannot %s '%s': %s", v->name, what, shown, reason);
	return error_code(err, EXIT_INPUT);
}

int extfs_fail(const struct extfs_volume *v, errcode_t code, const char *what, const char *path,
               struct error *err)
{
	const struct error *deeper = extfs_io_error(v->io);

	if (!deeper)
		return extfs_refuse(v, error_message(code), what, path, err);
	error_code(err, error_exit_code(deeper));
	extfs_refuse(v, deeper->message, what, path, err);
	return deeper->hint ? error_hint(err, "%s", deeper->hint) : -1;
}

static int refuse_volume(const struct extfs_volume *v, struct error *err)
{
	error_prefix(err, "%s: cannot open its ext file system", v->name);
	return error_code(err, EXIT_INPUT);
}

static int check_features(const struct ext2_super_block *super, struct error *err)
{
	uint32_t incompatible = ext2fs_le32_to_cpu(super->s_feature_incompat);
	uint32_t unknown = incompatible & ~(uint32_t)EXT2_LIB_FEATURE_INCOMPAT_SUPP;

	if (incompatible & EXT3_FEATURE_INCOMPAT_JOURNAL_DEV)
		return error_set(err, "it is the journal of another file system");
	if (incompatible & EXT3_FEATURE_INCOMPAT_RECOVER) {
		error_set(err, "its journal needs recovery");
		return error_hint(err,
		                  "the disk was copied from a running or crashed machine: shut "
		                  "it down cleanly, then copy it again");
	}
	if (unknown)
		return error_set(err,
		                 "it has incompatible features that libext2fs does not know "
		                 "(bits 0x%x)",
		                 unknown);
	return 0;
}

/*
 * Before libext2fs sees it: it allocates by what the superblock claims. The checksum, where
 * there is one, is left to libext2fs.
 */
static int read_superblock(struct disk *disk, const struct volume *volume,
                           struct ext2_super_block *super, struct error *err)
{
	uint64_t blocks, claimed;
	uint32_t log_size;

	if (volume->size_bytes < SUPERBLOCK_OFFSET + sizeof(*super))
		return error_set(err, "the partition is too small");
	if (disk_read(disk, super, sizeof(*super), volume->offset_bytes + SUPERBLOCK_OFFSET, err) <
	    0)
		return -1;
	if (ext2fs_le16_to_cpu(super->s_magic) != EXT2_SUPER_MAGIC)
		return error_set(err, "it has no superblock");
	if (check_features(super, err) < 0)
		return -1;
	log_size = ext2fs_le32_to_cpu(super->s_log_block_size);
	blocks = ext2fs_le32_to_cpu(super->s_blocks_count);
	if (ext2fs_le32_to_cpu(super->s_feature_incompat) & EXT4_FEATURE_INCOMPAT_64BIT)
		blocks |= (uint64_t)ext2fs_le32_to_cpu(super->s_blocks_count_hi) << 32;
	if (log_size > MAX_LOG_BLOCK_SIZE)
		return error_set(err, "its block size of 2^%u KiB is not valid", log_size);
	if (__builtin_mul_overflow(blocks, UINT64_C(1024) << log_size, &claimed) ||
	    claimed > volume->size_bytes)
		return error_set(
			err, "it has %llu blocks of %u KiB, more than the partition's %llu bytes",
			(unsigned long long)blocks, 1u << log_size,
			(unsigned long long)volume->size_bytes);
	return 0;
}

static struct extfs_volume *new_volume(struct disk *disk, const struct volume *volume,
                                       bool writable)
{
	struct extfs_volume *v = mem_alloc(sizeof(*v));

	add_error_table(&et_ext2_error_table);
	v->name = volume->number
	                  ? str_format("image '%s', partition %d", disk_path(disk), volume->number)
	                  : str_format("image '%s'", disk_path(disk));
	v->io = extfs_io_new(disk, volume->offset_bytes, volume->size_bytes, writable);
	v->dirs = mem_alloc(sizeof(*v->dirs));
	return v;
}

static int open_volume(struct extfs_volume *v, int flags, struct error *err)
{
	const struct error *deeper;
	errcode_t code = ext2fs_open2(extfs_io_name(v->io), NULL, EXT2_FLAG_64BITS | flags, 0, 0,
	                              extfs_io_manager(v->io), &v->fs);

	if (!code)
		return 0;
	deeper = extfs_io_error(v->io);
	error_set(err, "%s", deeper ? deeper->message : error_message(code));
	return refuse_volume(v, err);
}

int extfs_volume_open(struct extfs_volume **ret, struct disk *disk, const struct volume *volume,
                      struct error *err)
{
	CLEANUP_EXTFS_VOLUME struct extfs_volume *v = new_volume(disk, volume, false);
	struct ext2_super_block super;

	if (read_superblock(disk, volume, &super, err) < 0)
		return refuse_volume(v, err);
	if (open_volume(v, 0, err) < 0)
		return -1;
	*ret = STEAL(v);
	return 0;
}

int extfs_volume_open_writable(struct extfs_volume **ret, struct disk *disk,
                               const struct volume *volume, char **ret_reason, struct error *err)
{
	CLEANUP_EXTFS_VOLUME struct extfs_volume *v = new_volume(disk, volume, true);
	struct ext2_super_block super;

	if (read_superblock(disk, volume, &super, err) < 0)
		return refuse_volume(v, err);
	*ret_reason = extfs_unwritable(&super);
	if (*ret_reason)
		return 1;
	/* As the kernel does: the copies of the superblock are not kept up to date. */
	if (open_volume(v, EXT2_FLAG_RW | EXT2_FLAG_MASTER_SB_ONLY, err) < 0)
		return -1;
	*ret = STEAL(v);
	return 0;
}

void extfs_volume_close(struct extfs_volume *v)
{
	if (!v)
		return;
	if (v->fs)
		ext2fs_free(v->fs); /* ext2fs_close() would try to write */
	for (size_t i = 0; i < v->dirs->count; i++)
		dir_free(v->dirs->items[i]);
	free(v->dirs);
	extfs_io_free(v->io);
	free(v->name);
	free(v);
	remove_error_table(&et_ext2_error_table);
}

static int read_inode(struct extfs_node *node, struct error *err)
{
	struct ext2_inode *inode = (struct ext2_inode *)&node->inode;
	errcode_t code =
		ext2fs_read_inode_full(node->volume->fs, node->number, inode, sizeof(node->inode));

	if (code)
		return extfs_fail(node->volume, code, "look at", node->path, err);
	if (node->inode.i_links_count == 0 || node->inode.i_mode == 0)
		return extfs_refuse(node->volume, "its inode is deleted (damaged file system)",
		                    "look at", node->path, err);
	return 0;
}

/* One pass of ext2fs_dir_iterate2(). */
struct dir_reading {
	struct dir *dir;
	size_t allocated;
	const char *refusal; /* NULL: fine */
};

static bool is_dot(const char *name, size_t length)
{
	return (length == 1 && name[0] == '.') || (length == 2 && name[0] == '.' && name[1] == '.');
}

static int add_entry(ext2_ino_t dir_inode, int kind, struct ext2_dir_entry *dirent, int offset,
                     int block_size, char *buffer, void *opaque)
{
	struct dir_reading *reading = opaque;
	struct dir *dir = reading->dir;
	size_t length = (size_t)ext2fs_dirent_name_len(dirent);

	(void)dir_inode;
	(void)kind;
	(void)offset;
	(void)block_size;
	(void)buffer;
	if (is_dot(dirent->name, length))
		return 0;
	if (dir->count >= MAX_DIR_ENTRIES)
		reading->refusal = "too many entries";
	else if (length == 0 || memchr(dirent->name, '/', length) ||
	         memchr(dirent->name, '\0', length))
		reading->refusal = "a name in it is not valid (damaged file system)";
	if (reading->refusal)
		return DIRENT_ABORT;
	if (dir->count == reading->allocated) {
		reading->allocated = reading->allocated ? 2 * reading->allocated : 16;
		dir->entries = mem_grow(dir->entries, reading->allocated, sizeof(*dir->entries));
	}
	dir->entries[dir->count].name = mem_copy(dirent->name, length);
	dir->entries[dir->count++].inode = dirent->inode;
	return 0;
}

static int compare_entries(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

/* NULL: error. */
static struct dir *read_dir(const struct extfs_node *node, struct error *err)
{
	CLEANUP_DIR struct dir *dir = mem_alloc(sizeof(*dir));
	struct dir_reading reading = {.dir = dir};
	errcode_t code = 0;

	if (node->inode.i_flags & EXT4_ENCRYPT_FL)
		reading.refusal = "it is encrypted";
	else if (extfs_node_check_map(node, err) < 0)
		return NULL;
	else
		code = ext2fs_dir_iterate2(node->volume->fs, node->number, 0, NULL, add_entry,
		                           &reading);
	if (dir->count)
		qsort(dir->entries, dir->count, sizeof(*dir->entries), compare_entries);
	for (size_t i = 1; i < dir->count && !reading.refusal; i++)
		if (strcmp(dir->entries[i - 1].name, dir->entries[i].name) == 0)
			reading.refusal = "a name stands in it twice (damaged file system)";
	if (code)
		extfs_fail(node->volume, code, "list", node->path, err);
	else if (reading.refusal)
		extfs_refuse(node->volume, reading.refusal, "list", node->path, err);
	else
		dir->inode = node->number;
	return code || reading.refusal ? NULL : STEAL(dir);
}

static void drop_oldest(struct extfs_dirs *dirs)
{
	size_t oldest = 0;

	for (size_t i = 1; i < dirs->count; i++)
		if (dirs->items[i]->last_used < dirs->items[oldest]->last_used)
			oldest = i;
	dirs->entries -= dirs->items[oldest]->count;
	dir_free(dirs->items[oldest]);
	dirs->items[oldest] = dirs->items[--dirs->count];
}

/* *ret belongs to the cache and is good until the next call. */
static int get_dir(const struct extfs_node *node, const struct dir **ret, struct error *err)
{
	struct extfs_dirs *dirs = node->volume->dirs;
	struct dir *dir = NULL;

	for (size_t i = 0; i < dirs->count && !dir; i++)
		if (dirs->items[i]->inode == node->number)
			dir = dirs->items[i];
	if (!dir) {
		dir = read_dir(node, err);
		if (!dir)
			return -1;
		while (dirs->count && (dirs->count == MAX_CACHED_DIRS ||
		                       dirs->entries + dir->count > MAX_CACHED_ENTRIES))
			drop_oldest(dirs);
		dirs->entries += dir->count;
		dirs->items[dirs->count++] = dir;
	}
	dir->last_used = ++dirs->clock;
	*ret = dir;
	return 0;
}

int extfs_step(struct extfs_node *node, const char *name, size_t length, struct error *err)
{
	CLEANUP_FREE char *wanted = mem_copy(name, length);
	const struct entry key = {.name = wanted}, *found;
	const struct dir *dir;

	if (!LINUX_S_ISDIR(node->inode.i_mode))
		return 0;
	if (get_dir(node, &dir, err) < 0)
		return -1;
	found = dir->count ? bsearch(&key, dir->entries, dir->count, sizeof(key), compare_entries)
	                   : NULL;
	if (!found)
		return 0;
	node->number = found->inode;
	return read_inode(node, err) < 0 ? -1 : 1;
}

int extfs_find(const struct extfs_volume *v, const char *path, struct extfs_node *ret,
               struct error *err)
{
	struct extfs_node node = {.volume = v, .path = path, .number = EXT2_ROOT_INO};

	if (read_inode(&node, err) < 0)
		return -1;
	for (const char *name = path + strspn(path, "/"); *name; name += strspn(name, "/")) {
		size_t length = strcspn(name, "/");
		int found = extfs_step(&node, name, length, err);

		if (found <= 0)
			return found;
		name += length;
	}
	*ret = node;
	return 1;
}

int extfs_names(const struct extfs_node *dir_node, struct strv *ret, struct error *err)
{
	const struct dir *dir;

	if (!LINUX_S_ISDIR(dir_node->inode.i_mode))
		return extfs_refuse(dir_node->volume, "not a directory", "list", dir_node->path,
		                    err);
	if (get_dir(dir_node, &dir, err) < 0)
		return -1;
	for (size_t i = 0; i < dir->count; i++)
		strv_add(ret, dir->entries[i].name);
	return 0;
}

static size_t first_not_before(const struct dir *dir, const char *name)
{
	size_t low = 0, high = dir->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(dir->entries[middle].name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

void extfs_entry_changed(const struct extfs_volume *v, ext2_ino_t dir_inode, const char *name,
                         ext2_ino_t inode)
{
	struct dir *dir = NULL;
	size_t at;

	for (size_t i = 0; i < v->dirs->count && !dir; i++)
		if (v->dirs->items[i]->inode == dir_inode)
			dir = v->dirs->items[i];
	if (!dir)
		return;
	at = first_not_before(dir, name);
	if (inode) {
		dir->entries = mem_grow(dir->entries, dir->count + 1, sizeof(*dir->entries));
		memmove(dir->entries + at + 1, dir->entries + at,
		        (dir->count - at) * sizeof(*dir->entries));
		dir->entries[at] = (struct entry){.name = str_copy(name), .inode = inode};
		dir->count++;
		v->dirs->entries++;
	} else if (at < dir->count && strcmp(dir->entries[at].name, name) == 0) {
		free(dir->entries[at].name);
		memmove(dir->entries + at, dir->entries + at + 1,
		        (--dir->count - at) * sizeof(*dir->entries));
		v->dirs->entries--;
	}
}

void extfs_dir_gone(const struct extfs_volume *v, ext2_ino_t dir_inode)
{
	struct extfs_dirs *dirs = v->dirs;

	for (size_t i = 0; i < dirs->count; i++)
		if (dirs->items[i]->inode == dir_inode) {
			dirs->entries -= dirs->items[i]->count;
			dir_free(dirs->items[i]);
			dirs->items[i] = dirs->items[--dirs->count];
			return;
		}
}
