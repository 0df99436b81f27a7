/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An image opened as a plain block device, without appliance, loop device or mount:
 * qemu-nbd (a child on a socket of its own, ended with the handle) serves the content,
 * libnbd reads it, libblkid tells what it is.
 * For qcow2, qcow2_check() (qcow2.h) must have accepted the file before; no backing file is
 * followed except where 'allow_backing' says that the chain is our own. Only an overlay of ours
 * is ever written (disk_open_writable). The child also ends
 * with the thread that called disk_open() (see proc.h): open a disk in a thread that outlives
 * its users. No call waits longer than a minute for the child.
 */
#ifndef GPUIMG_DISK_H
#define GPUIMG_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "error.h"

struct disk;

struct volume {
	int number;            /* of the partition, 1..; 0: the whole disk; -1: a logical volume */
	uint64_t offset_bytes; /* of a logical volume: unknown, 0 */
	uint64_t size_bytes;
	char *type;         /* blkid TYPE: "ext4", "vfat", "LVM2_member"…; NULL: nothing known */
	char *usage;        /* blkid USAGE: "filesystem", "raid", "crypto", "other" or NULL */
	char *uuid, *label; /* of the file system, may be NULL */
	char *partuuid, *partlabel, *parttype; /* GUID in lower case, or "0x83"; may be NULL */
	char *lv; /* an LVM logical volume, found by the appliance: "/dev/VG/LV"; else NULL */
};

int disk_open(struct disk **ret, const char *path, const char *format, bool allow_backing,
              struct error *err);
/*
 * Our own qcow2 overlay, open for writing (with its backing chain). Of what is trimmed, whole
 * clusters (64 KiB) read as zeros afterwards and take no space; the rest of it stays as it was.
 * Only disk_finish() makes what was written last; after an
 * error the overlay is no good.
 */
int disk_open_writable(struct disk **ret, const char *overlay, struct error *err);
int disk_write(struct disk *disk, const void *data, size_t size, uint64_t offset_bytes,
               struct error *err);
int disk_trim(struct disk *disk, uint64_t size_bytes, uint64_t offset_bytes, struct error *err);
/* Flushes, ends the child, and looks at its exit code: only then is the overlay whole. The disk
 * must still be closed. */
int disk_finish(struct disk *disk, struct error *err);
void disk_close(struct disk *disk);
DEFINE_CLEANUP(disk, struct disk *, disk_close)
#define CLEANUP_DISK CLEANUP(cleanup_disk)

const char *disk_path(const struct disk *disk);
uint64_t disk_size_bytes(const struct disk *disk);
/* Reads all or fails; thread-safe. */
int disk_read(struct disk *disk, void *buffer, size_t size, uint64_t offset_bytes,
              struct error *err);

/*
 * Partition table and what each partition holds, found by libblkid on a sparse copy of the few
 * places that it looks at. Errors (EXIT_INPUT), each with its own message: no partition table
 * and no file system that we know; a table whose partitions or whose GPT backup header lie
 * beyond the end of the image (truncated).
 */
int disk_probe(struct disk *disk, struct error *err);
const char *disk_table(const struct disk *disk); /* "gpt", "dos" or NULL */
size_t disk_volume_count(const struct disk *disk);
const struct volume *disk_volume(const struct disk *disk, size_t index);
/* As fstab(5) names it: "UUID=…", "LABEL=…", "PARTUUID=…", "PARTLABEL=…" (any case),
 * "/dev/disk/by-…" of these four, "/dev/VG/LV" and "/dev/mapper/VG-LV"; or NULL. Device letters
 * name nothing. */
const struct volume *disk_find_volume(const struct disk *disk, const char *tag);

/* FAT on an EFI system partition (GUID c12a7328-… or MBR type 0xef). */
bool volume_is_esp(const struct volume *volume);
/* An extended boot loader partition (GUID bc13c2ff-…), whatever is on it. */
bool volume_is_xbootldr(const struct volume *volume);
/* "partition 3 (ext4)", "logical volume '/dev/vg/root' (xfs)", "the whole disk (ext4)": for
 * messages; owned by the caller. */
char *volume_name(const struct volume *volume);
/*
 * A logical volume that the appliance found: copied, unless it is there already. Pointers to
 * volumes stay good until the disk is probed again or closed.
 */
void disk_add_volume(struct disk *disk, const struct volume *volume);

/* The boot types that the disk's layout supports (clouds compare them with the VM's):
 * bios: boot code in LBA 0 and, on GPT, a BIOS boot partition or a legacy_boot flag;
 * uefi: an EFI system partition; whether a loader is on it, guest_has_uefi_loader() says. */
bool disk_boots_bios(const struct disk *disk);
bool disk_boots_uefi(const struct disk *disk);

/* "/dev/VG/LV" as the device mapper calls it: "/dev/mapper/VG-LV", a '-' inside of a name doubled.
 * Owned by the caller. */
char *disk_mapper_name(const char *lv);

#endif
