/* SPDX-License-Identifier: Apache-2.0 */
/* Directories: names come and go by libext2fs, which keeps their index and checksums. */
#include <string.h>

#include "extfs-write-internal.h"
#include "str.h"

#define NAME_BYTES_MAX 255
/* Guests do not nest deeper: see tree-private.h. */
#define DEPTH_MAX 300

static int file_type(uint32_t mode)
{
	if (LINUX_S_ISREG(mode))
		return EXT2_FT_REG_FILE;
	if (LINUX_S_ISDIR(mode))
		return EXT2_FT_DIR;
	if (LINUX_S_ISLNK(mode))
		return EXT2_FT_SYMLINK;
	return LINUX_S_ISFIFO(mode) ? EXT2_FT_FIFO : EXT2_FT_UNKNOWN;
}

struct name {
	const char *text;
	size_t length;
	ext2_ino_t inode;
	int type;
};

/* Behind an entry that is longer than its name needs, or in place of one that is not used. */
static errcode_t add_to_block(ext2_filsys fs, char *data, const struct name *name)
{
	unsigned int need = EXT2_DIR_REC_LEN(name->length), used, length;
	unsigned int end = fs->blocksize - (ext2fs_has_feature_metadata_csum(fs->super)
	                                            ? sizeof(struct ext2_dir_entry_tail)
	                                            : 0);

	for (unsigned int at = 0; at < end; at += length) {
		struct ext2_dir_entry *entry = (struct ext2_dir_entry *)(data + at);

		if (ext2fs_get_rec_len(fs, entry, &length) || length < EXT2_DIR_REC_LEN(1) ||
		    length % 4 || length > end - at)
			return EXT2_ET_DIR_CORRUPTED;
		used = entry->inode ? EXT2_DIR_REC_LEN(ext2fs_dirent_name_len(entry)) : 0;
		if (used > length)
			return EXT2_ET_DIR_CORRUPTED;
		if (length - used < need)
			continue;
		if (used)
			ext2fs_set_rec_len(fs, used, entry);
		entry = (struct ext2_dir_entry *)(data + at + used);
		ext2fs_set_rec_len(fs, length - used, entry);
		entry->inode = name->inode;
		ext2fs_dirent_set_name_len(entry, (int)name->length);
		ext2fs_dirent_set_file_type(
			entry, ext2fs_has_feature_filetype(fs->super) ? name->type : 0);
		memcpy(entry->name, name->text, name->length);
		return 0;
	}
	return EXT2_ET_DIR_NO_SPACE;
}

static errcode_t add_to_last(ext2_filsys fs, ext2_ino_t dir, const struct name *name)
{
	CLEANUP_FREE char *data = mem_alloc(fs->blocksize);
	struct ext2_inode inode;
	blk64_t block = 0;
	errcode_t code = ext2fs_read_inode(fs, dir, &inode);

	if (!code && EXT2_I_SIZE(&inode) < fs->blocksize)
		code = EXT2_ET_DIR_CORRUPTED;
	if (!code)
		code = ext2fs_bmap2(fs, dir, &inode, NULL, 0,
		                    EXT2_I_SIZE(&inode) / fs->blocksize - 1, NULL, &block);
	if (!code && !block)
		code = EXT2_ET_DIR_CORRUPTED;
	if (!code)
		code = ext2fs_read_dir_block4(fs, block, data, 0, dir);
	if (!code)
		code = add_to_block(fs, data, name);
	return code ? code : ext2fs_write_dir_block4(fs, block, data, 0, dir);
}

/*
 * libext2fs goes through a directory without index from its begin for each name. Once it had to
 * grow, only its end is looked at: else a directory that gets many files takes the square of
 * their number.
 */
static errcode_t add_unindexed(struct write_volume *vol, ext2_ino_t dir, const struct name *name)
{
	ext2_filsys fs = vol->v->fs;
	errcode_t code;

	if (vol->full_dir == dir)
		code = add_to_last(fs, dir, name);
	else
		code = ext2fs_link(fs, dir, name->text, name->inode, name->type);
	if (code != EXT2_ET_DIR_NO_SPACE)
		return code;
	code = ext2fs_expand_dir(fs, dir);
	vol->full_dir = dir;
	return code ? code : add_to_last(fs, dir, name);
}

int dir_add(struct write_volume *vol, ext2_ino_t dir, const char *name, ext2_ino_t inode,
            uint32_t mode, const char *path, struct error *err)
{
	CLEANUP_EDIT struct edit parent = {0};
	const struct name entry = {name, strlen(name), inode, file_type(mode)};
	errcode_t code;

	if (edit_open(&parent, vol, dir, path, err) < 0)
		return -1;
	if (entry.length > NAME_BYTES_MAX)
		return extfs_refuse(vol->v, "its name is too long", "write", path, err);
	if (parent.inode->i_flags & EXT2_INDEX_FL)
		code = ext2fs_link(vol->v->fs, dir, name, inode, entry.type);
	else
		code = add_unindexed(vol, dir, &entry);
	if (code)
		return write_fail(vol, code, path, err);
	extfs_entry_changed(vol->v, dir, name, inode);
	return 0;
}

int dir_fill(struct edit *e, ext2_ino_t parent, struct error *err)
{
	ext2_filsys fs = e->vol->v->fs;
	char *data = NULL;
	blk64_t block;
	errcode_t code;

	if (content_one_block(e, &block, err) < 0 || edit_store(e, err) < 0)
		return -1;
	code = ext2fs_new_dir_block(fs, e->number, parent, &data);
	if (!code)
		code = ext2fs_write_dir_block4(fs, block, data, 0, e->number);
	ext2fs_free_mem(&data);
	return code ? write_fail(e->vol, code, e->path, err) : 0;
}

/* More links than can be counted are told by a count of 1, as the kernel does. */
static int count_subdir(struct edit *dir, int subdirs, struct error *err)
{
	uint16_t *links = &dir->inode->i_links_count;

	if (*links == 1 || subdirs == 0)
		return 0;
	if (subdirs < 0) {
		if (*links > 2)
			--*links;
		return 0;
	}
	if (*links < EXTFS_LINKS_MAX - 1) {
		++*links;
		return 0;
	}
	if (!ext2fs_has_feature_dir_nlink(dir->vol->v->fs->super))
		return extfs_refuse(dir->vol->v, "its directory has too many directories", "write",
		                    dir->path, err);
	*links = 1;
	return 0;
}

int dir_touch(struct write_volume *vol, ext2_ino_t dir, int subdirs, const struct tree_node *node,
              const char *path, struct error *err)
{
	CLEANUP_EDIT struct edit e = {0};

	if (edit_open(&e, vol, dir, path, err) < 0 || count_subdir(&e, subdirs, err) < 0)
		return -1;
	if (node && edit_mtime_s(&e) < node->mtime_s)
		edit_set_mtime(&e, node->mtime_s, node->mtime_ns);
	return edit_store(&e, err);
}

static int drop_tree(struct write_volume *vol, const struct extfs_node *victim, int depth,
                     struct error *err);

static int drop_children(struct write_volume *vol, const struct extfs_node *dir, int depth,
                         struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (extfs_names(dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		struct extfs_node child = *dir;
		int found = extfs_step(&child, names.items[i], strlen(names.items[i]), err);

		if (found < 0 || (found > 0 && drop_tree(vol, &child, depth + 1, err) < 0))
			return -1;
	}
	return 0;
}

/*
 * Not by taking out name after name: the whole directory goes. It is marked as deleted before
 * its children are looked at, so that a directory that holds itself is an error and no loop.
 */
static int drop_dir(struct edit *e, const struct extfs_node *victim, int depth, struct error *err)
{
	uint16_t links = e->inode->i_links_count;

	if (depth > DEPTH_MAX)
		return extfs_refuse(e->vol->v, "it is nested too deep", "remove", e->path, err);
	e->inode->i_links_count = 0;
	if (edit_store(e, err) < 0 || drop_children(e->vol, victim, depth, err) < 0)
		return -1;
	e->inode->i_links_count = links;
	extfs_dir_gone(e->vol->v, e->number);
	if (e->vol->full_dir == e->number)
		e->vol->full_dir = 0;
	return 0;
}

static int drop_tree(struct write_volume *vol, const struct extfs_node *victim, int depth,
                     struct error *err)
{
	CLEANUP_EDIT struct edit e = {0};

	if (edit_open(&e, vol, victim->number, victim->path, err) < 0)
		return -1;
	if (e.number == EXT2_ROOT_INO)
		return extfs_refuse(vol->v, "it is the root (damaged file system)", "remove",
		                    victim->path, err);
	if (LINUX_S_ISDIR(e.inode->i_mode) && drop_dir(&e, victim, depth, err) < 0)
		return -1;
	return edit_drop(&e, err);
}

int dir_remove(struct write_volume *vol, ext2_ino_t dir, const char *name,
               const struct extfs_node *victim, struct error *err)
{
	bool is_dir = LINUX_S_ISDIR(victim->inode.i_mode);
	errcode_t code = ext2fs_unlink(vol->v->fs, dir, name, victim->number, 0);

	if (code)
		return extfs_fail(vol->v, code, "remove", victim->path, err);
	extfs_entry_changed(vol->v, dir, name, 0);
	if (is_dir && dir_touch(vol, dir, -1, NULL, victim->path, err) < 0)
		return -1;
	return drop_tree(vol, victim, 0, err);
}
