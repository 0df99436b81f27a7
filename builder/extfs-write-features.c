/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which file systems libext2fs 1.47 keeps right when files are written. What is not in these
 * masks was found to need more than it does (usage counts of quotas, inline data that outgrows
 * its inode), or is newer than it.
 */
#include "extfs-internal.h"
#include "str.h"

/* Both bitmaps in memory, a bit for each block and inode: 1 TiB in blocks of 4 KiB has 32 MiB. */
#define BITMAP_BYTES_MAX ((uint64_t)64 << 20)

#define COMPAT_WRITABLE                                                                            \
	(EXT2_FEATURE_COMPAT_DIR_PREALLOC | EXT3_FEATURE_COMPAT_HAS_JOURNAL |                      \
	 EXT2_FEATURE_COMPAT_EXT_ATTR | EXT2_FEATURE_COMPAT_RESIZE_INODE |                         \
	 EXT2_FEATURE_COMPAT_DIR_INDEX | EXT4_FEATURE_COMPAT_SPARSE_SUPER2 |                       \
	 EXT4_FEATURE_COMPAT_FAST_COMMIT | EXT4_FEATURE_COMPAT_STABLE_INODES |                     \
	 EXT4_FEATURE_COMPAT_ORPHAN_FILE)
#define INCOMPAT_WRITABLE                                                                          \
	(EXT2_FEATURE_INCOMPAT_FILETYPE | EXT3_FEATURE_INCOMPAT_EXTENTS |                          \
	 EXT4_FEATURE_INCOMPAT_64BIT | EXT4_FEATURE_INCOMPAT_FLEX_BG |                             \
	 EXT2_FEATURE_INCOMPAT_META_BG | EXT4_FEATURE_INCOMPAT_CSUM_SEED |                         \
	 EXT4_FEATURE_INCOMPAT_LARGEDIR)
#define RO_COMPAT_WRITABLE                                                                         \
	(EXT2_FEATURE_RO_COMPAT_SPARSE_SUPER | EXT2_FEATURE_RO_COMPAT_LARGE_FILE |                 \
	 EXT4_FEATURE_RO_COMPAT_HUGE_FILE | EXT4_FEATURE_RO_COMPAT_GDT_CSUM |                      \
	 EXT4_FEATURE_RO_COMPAT_DIR_NLINK | EXT4_FEATURE_RO_COMPAT_EXTRA_ISIZE |                   \
	 EXT4_FEATURE_RO_COMPAT_METADATA_CSUM)

struct feature {
	uint32_t bit;
	const char *name;
};

/* Some of the others by name, for the message. */
static const struct feature incompat_names[] = {
	{EXT4_FEATURE_INCOMPAT_INLINE_DATA, "inline_data"},
	{EXT4_FEATURE_INCOMPAT_ENCRYPT, "encrypt"},
	{EXT4_FEATURE_INCOMPAT_CASEFOLD, "casefold"},
	{EXT4_FEATURE_INCOMPAT_EA_INODE, "ea_inode"},
	{EXT4_FEATURE_INCOMPAT_MMP, "mmp"},
	{0, NULL},
};

static const struct feature ro_compat_names[] = {
	{EXT4_FEATURE_RO_COMPAT_QUOTA, "quota"},
	{EXT4_FEATURE_RO_COMPAT_PROJECT, "project"},
	{EXT4_FEATURE_RO_COMPAT_BIGALLOC, "bigalloc"},
	{EXT4_FEATURE_RO_COMPAT_VERITY, "verity"},
	{EXT4_FEATURE_RO_COMPAT_SHARED_BLOCKS, "shared_blocks"},
	{EXT4_FEATURE_RO_COMPAT_READONLY, "read-only"},
	{EXT4_FEATURE_RO_COMPAT_ORPHAN_PRESENT, "orphan_present"},
	{0, NULL},
};

static const struct feature compat_names[] = {{0, NULL}};

/* NULL: none is left. */
static char *left_over(const char *set, uint32_t bits, const struct feature *names)
{
	if (!bits)
		return NULL;
	for (; names->name; names++)
		if (bits & names->bit)
			return str_format("it has the feature '%s'", names->name);
	return str_format("it has features (%s, bits 0x%x) that are not known to be kept right",
	                  set, bits);
}

static char *bad_features(const struct ext2_super_block *super)
{
	uint32_t compat = ext2fs_le32_to_cpu(super->s_feature_compat);
	uint32_t incompat = ext2fs_le32_to_cpu(super->s_feature_incompat);
	uint32_t ro_compat = ext2fs_le32_to_cpu(super->s_feature_ro_compat);
	char *reason =
		left_over("incompat", incompat & ~(uint32_t)INCOMPAT_WRITABLE, incompat_names);

	if (!reason)
		reason = left_over("ro_compat", ro_compat & ~(uint32_t)RO_COMPAT_WRITABLE,
		                   ro_compat_names);
	if (!reason)
		reason = left_over("compat", compat & ~(uint32_t)COMPAT_WRITABLE, compat_names);
	return reason;
}

static char *bad_state(const struct ext2_super_block *super)
{
	uint32_t state = ext2fs_le16_to_cpu(super->s_state);

	if (state & EXT2_ERROR_FS)
		return str_copy("errors were found in it earlier");
	if (!(state & EXT2_VALID_FS))
		return str_copy("it was not unmounted cleanly");
	if (super->s_last_orphan)
		return str_copy("files that were open when they were deleted are left in it");
	if (ext2fs_le32_to_cpu(super->s_rev_level) != EXT2_DYNAMIC_REV)
		return str_copy("it has an old or unknown revision");
	if (ext2fs_le32_to_cpu(super->s_creator_os) != EXT2_OS_LINUX)
		return str_copy("it was not made by Linux");
	if (super->s_log_cluster_size != super->s_log_block_size)
		return str_copy("its clusters are not blocks");
	return NULL;
}

char *extfs_unwritable(const struct ext2_super_block *super)
{
	uint64_t blocks = ext2fs_le32_to_cpu(super->s_blocks_count);
	char *reason = bad_features(super);

	if (!reason)
		reason = bad_state(super);
	if (ext2fs_le32_to_cpu(super->s_feature_incompat) & EXT4_FEATURE_INCOMPAT_64BIT)
		blocks |= (uint64_t)ext2fs_le32_to_cpu(super->s_blocks_count_hi) << 32;
	if (!reason && (blocks + ext2fs_le32_to_cpu(super->s_inodes_count)) / 8 > BITMAP_BYTES_MAX)
		reason = str_copy("its bitmaps need too much memory");
	return reason;
}
