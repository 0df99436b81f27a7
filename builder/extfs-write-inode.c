/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inodes. libext2fs would put the time of now into them; here every time comes from the file
 * that is written, so that the same changes give the same bytes.
 */
#include <string.h>

#include "extfs-write-internal.h"
#include "str.h"

#define XATTR_NAME_MAX 255

void edit_close(struct edit *e)
{
	ext2fs_extent_free(e->extents);
	free(e->inode);
	*e = (struct edit){0};
}

int write_fail(const struct write_volume *vol, errcode_t code, const char *path, struct error *err)
{
	if (code != EXT2_ET_BLOCK_ALLOC_FAIL && code != EXT2_ET_INODE_ALLOC_FAIL)
		return extfs_fail(vol->v, code, "write", path, err);
	extfs_refuse(vol->v,
	             code == EXT2_ET_BLOCK_ALLOC_FAIL ? "the file system is full"
	                                              : "the file system has no free inode",
	             "write", path, err);
	return error_hint(err, "take a base whose file system at '%s' has more free space",
	                  vol->path);
}

static size_t inode_bytes(const struct edit *e)
{
	return EXT2_INODE_SIZE(e->vol->v->fs->super);
}

static void edit_init(struct edit *e, struct write_volume *vol, ext2_ino_t number, const char *path)
{
	size_t size = EXT2_INODE_SIZE(vol->v->fs->super);

	*e = (struct edit){.vol = vol, .path = path, .number = number};
	e->inode = mem_alloc(size < sizeof(*e->inode) ? sizeof(*e->inode) : size);
}

/* Where attributes in the inode begin; 0: it has no room for any. */
static size_t body_start(const struct edit *e)
{
	size_t size = inode_bytes(e);

	return size > EXT2_GOOD_OLD_INODE_SIZE ? EXT2_GOOD_OLD_INODE_SIZE + e->inode->i_extra_isize
	                                       : 0;
}

static bool is_sound(const struct edit *e)
{
	return e->inode->i_links_count > 0 && e->inode->i_mode != 0 &&
	       body_start(e) <= inode_bytes(e) && body_start(e) % 4 == 0;
}

int edit_open(struct edit *ret, struct write_volume *vol, ext2_ino_t number, const char *path,
              struct error *err)
{
	errcode_t code;

	edit_init(ret, vol, number, path);
	code = ext2fs_read_inode_full(vol->v->fs, number, edit_small(ret), (int)inode_bytes(ret));
	if (code)
		return extfs_fail(vol->v, code, "look at", path, err);
	if (number < EXT2_FIRST_INODE(vol->v->fs->super) && number != EXT2_ROOT_INO)
		return extfs_refuse(vol->v, "it is a reserved inode (damaged file system)", "write",
		                    path, err);
	if (!is_sound(ret))
		return extfs_refuse(vol->v, "its inode is deleted or damaged", "write", path, err);
	return 0;
}

static uint16_t wanted_extra(const struct edit *e)
{
	const struct ext2_super_block *super = e->vol->v->fs->super;
	size_t room = inode_bytes(e) - EXT2_GOOD_OLD_INODE_SIZE;
	size_t want = sizeof(*e->inode) - EXT2_GOOD_OLD_INODE_SIZE;

	if (super->s_want_extra_isize > want)
		want = super->s_want_extra_isize;
	if (super->s_min_extra_isize > want)
		want = super->s_min_extra_isize;
	want = (want + 3) / 4 * 4;
	return (uint16_t)(want < room ? want : room);
}

/* What chattr sets and a new content does not take away; not what says how the content is kept. */
#define KEPT_FLAGS                                                                                 \
	(EXT2_SYNC_FL | EXT2_IMMUTABLE_FL | EXT2_APPEND_FL | EXT2_NODUMP_FL | EXT2_NOATIME_FL |    \
	 EXT3_JOURNAL_DATA_FL | EXT2_DIRSYNC_FL | EXT2_TOPDIR_FL)

static void make_blank(struct edit *e, uint32_t mode)
{
	uint32_t generation = e->inode->i_generation, flags = e->inode->i_flags & KEPT_FLAGS;

	memset(e->inode, 0, inode_bytes(e));
	e->inode->i_flags = flags;
	e->inode->i_generation = generation;
	e->inode->i_mode = (uint16_t)mode;
	e->inode->i_links_count = 1;
	if (inode_bytes(e) > EXT2_GOOD_OLD_INODE_SIZE)
		e->inode->i_extra_isize = wanted_extra(e);
}

int edit_create(struct edit *ret, struct write_volume *vol, ext2_ino_t parent, uint32_t mode,
                const char *path, struct error *err)
{
	ext2_filsys fs = vol->v->fs;
	ext2_ino_t number;
	errcode_t code = ext2fs_new_inode(fs, parent, (int)mode, NULL, &number);

	if (code)
		return write_fail(vol, code, path, err);
	ext2fs_inode_alloc_stats2(fs, number, 1, LINUX_S_ISDIR(mode));
	edit_init(ret, vol, number, path);
	make_blank(ret, mode);
	return 0;
}

int edit_store(struct edit *e, struct error *err)
{
	errcode_t code = ext2fs_write_inode_full(e->vol->v->fs, e->number, edit_small(e),
	                                         (int)inode_bytes(e));

	return code ? extfs_fail(e->vol->v, code, "write", e->path, err) : 0;
}

/* The attributes that stand in a block, maybe shared with other inodes, and those in the inode. */
static int free_attributes(struct edit *e, struct error *err)
{
	ext2_filsys fs = e->vol->v->fs;
	blk64_t block = ext2fs_file_acl_block(fs, edit_small(e));
	size_t start = body_start(e);
	errcode_t code = 0;

	if (block >= ext2fs_blocks_count(fs->super) ||
	    (block && !ext2fs_test_block_bitmap2(fs->block_map, block)))
		code = EXT2_ET_BAD_EA_BLOCK_NUM;
	if (!code && block)
		code = ext2fs_free_ext_attr(fs, e->number, e->inode);
	if (code)
		return extfs_fail(e->vol->v, code, "free the attributes of", e->path, err);
	if (start)
		memset((char *)e->inode + start, 0, inode_bytes(e) - start);
	return 0;
}

int edit_reset(struct edit *e, struct error *err)
{
	if (free_attributes(e, err) < 0 || content_free(e, err) < 0)
		return -1;
	make_blank(e, e->inode->i_mode);
	return 0;
}

/* Two more bits of the seconds stand with the nanoseconds, where the inode is large enough. */
static void put_time(const struct edit *e, uint32_t *low, uint32_t *extra, int64_t s, uint32_t ns)
{
	size_t end = (size_t)((char *)(extra + 1) - (char *)e->inode);

	if (body_start(e) < end) {
		*low = (uint32_t)(int32_t)(s > INT32_MAX   ? INT32_MAX
		                           : s < INT32_MIN ? INT32_MIN
		                                           : s);
		return;
	}
	*low = (uint32_t)s;
	*extra = (uint32_t)(((s - (int32_t)*low) >> 32) & 3) | ns << 2;
}

int64_t edit_mtime_s(const struct edit *e)
{
	int64_t s = (int32_t)e->inode->i_mtime;
	size_t end =
		offsetof(struct ext2_inode_large, i_mtime_extra) + sizeof(e->inode->i_mtime_extra);

	return body_start(e) < end ? s : s + ((int64_t)(e->inode->i_mtime_extra & 3) << 32);
}

void edit_set_mtime(struct edit *e, int64_t s, uint32_t ns)
{
	put_time(e, &e->inode->i_mtime, &e->inode->i_mtime_extra, s, ns);
	put_time(e, &e->inode->i_ctime, &e->inode->i_ctime_extra, s, ns);
}

static void set_times(struct edit *e, int64_t s, uint32_t ns)
{
	struct ext2_inode_large *inode = e->inode;
	size_t end =
		offsetof(struct ext2_inode_large, i_crtime_extra) + sizeof(inode->i_crtime_extra);

	edit_set_mtime(e, s, ns);
	put_time(e, &inode->i_atime, &inode->i_atime_extra, s, ns);
	if (body_start(e) >= end && !inode->i_crtime && !inode->i_crtime_extra)
		put_time(e, &inode->i_crtime, &inode->i_crtime_extra, s, ns);
}

static errcode_t write_attributes(struct edit *e, const struct tree_node *node)
{
	struct ext2_xattr_handle *handle = NULL;
	errcode_t code = ext2fs_xattrs_open(e->vol->v->fs, e->number, &handle);

	for (size_t i = 0; i < node->xattr_count && !code; i++) {
		const struct rootfs_xattr *x = &node->xattrs[i];

		code = strlen(x->name) > XATTR_NAME_MAX
		               ? EXT2_ET_EA_BAD_NAME_LEN
		               : ext2fs_xattr_set(handle, x->name, x->value, x->size);
	}
	if (handle)
		ext2fs_xattrs_close(&handle);
	return code;
}

int edit_set_attributes(struct edit *e, const struct tree_node *node, struct error *err)
{
	struct ext2_inode_large *inode = e->inode;
	errcode_t code;

	if (free_attributes(e, err) < 0)
		return -1;
	inode->i_mode = (uint16_t)node->mode;
	inode->i_uid = (uint16_t)node->uid;
	inode->osd2.linux2.l_i_uid_high = (uint16_t)(node->uid >> 16);
	inode->i_gid = (uint16_t)node->gid;
	inode->osd2.linux2.l_i_gid_high = (uint16_t)(node->gid >> 16);
	set_times(e, node->mtime_s, node->mtime_ns);
	if (edit_store(e, err) < 0)
		return -1;
	code = node->xattr_count ? write_attributes(e, node) : 0;
	if (code == EXT2_ET_BLOCK_ALLOC_FAIL)
		return write_fail(e->vol, code, e->path, err);
	return code ? extfs_fail(e->vol->v, code, "write the attributes of", e->path, err) : 0;
}

/* Small numbers here are taken for the links of the list of orphans. */
static uint32_t deletion_time(ext2_filsys fs)
{
	uint32_t now = (uint32_t)fs->now, least = fs->super->s_inodes_count;

	return now > least ? now : least + 1;
}

int edit_drop(struct edit *e, struct error *err)
{
	ext2_filsys fs = e->vol->v->fs;
	uint32_t mode = e->inode->i_mode;
	bool is_dir = LINUX_S_ISDIR(mode);

	if (!is_dir && e->inode->i_links_count > 1) {
		e->inode->i_links_count--;
		return edit_store(e, err);
	}
	if (!ext2fs_test_inode_bitmap2(fs->inode_map, e->number))
		return extfs_refuse(e->vol->v, "its inode is not in use (damaged file system)",
		                    "remove", e->path, err);
	if (edit_reset(e, err) < 0)
		return -1;
	e->inode->i_links_count = 0;
	e->inode->i_dtime = deletion_time(fs);
	ext2fs_inode_alloc_stats2(fs, e->number, -1, is_dir);
	return edit_store(e, err);
}
