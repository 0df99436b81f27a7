/* SPDX-License-Identifier: Apache-2.0 */
/* FAT on a partition of a disk. */
#include "fatfs-internal.h"
#include "fatfs.h"
#include "str.h"

static int read_disk(void *opaque, void *buffer, size_t size, uint64_t offset_bytes,
                     struct error *err)
{
	return disk_read(opaque, buffer, size, offset_bytes, err);
}

/* A logical volume is in pieces, which only the appliance can put together. */
bool fatfs_supports(const struct volume *volume)
{
	return str_equal(volume->type, "vfat") && !volume->lv;
}

int fatfs_open(struct rootfs **ret, struct disk *disk, const struct volume *volume,
               struct error *err)
{
	struct fat_source source = {
		.read = read_disk,
		.opaque = disk,
		.base_bytes = volume->offset_bytes,
		.size_bytes = volume->size_bytes,
	};
	CLEANUP_FREE char *name = volume->number ? str_format("image '%s', partition %d",
	                                                      disk_path(disk), volume->number)
	                                         : str_format("image '%s'", disk_path(disk));

	if (!fatfs_supports(volume)) {
		error_set(err, "%s: cannot read the file system as FAT: it is '%s'", name,
		          volume->type ? volume->type : "unknown");
		return error_code(err, EXIT_INPUT);
	}
	return fatfs_open_source(ret, &source, name, err);
}
