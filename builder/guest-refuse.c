/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Systems that no stage of ours may change: what they are, why, and what to take instead. First
 * what a disk's partitions tell (on many of these no root can be found at all), then what is on
 * them.
 */
#include <string.h>

#include "guest-internal.h"

#define CURE_GENERAL                                                                               \
	"use a base with a writable root, such as a Debian, Ubuntu or Enterprise Linux cloud image"
#define WHY_IMMUTABLE                                                                              \
	"its system is an image that is replaced as a whole, so what we add would not stay"
#define ENTRIES_DIR "/boot/loader/entries"
#define ENTRY_MAX   65536
#define ENTRIES_MAX 256

static int refuse(const struct disk *disk, const char *what, const char *why, const char *cure,
                  struct error *err)
{
	if (disk)
		error_set(err, "image '%s': is %s: %s", disk_path(disk), what, why);
	else
		error_set(err, "it is %s: %s", what, why);
	error_hint(err, "%s", cure);
	return error_code(err, EXIT_INPUT);
}

static bool has_label(const struct disk *disk, const char *label)
{
	for (size_t i = 0; i < disk_volume_count(disk); i++)
		if (str_equal(disk_volume(disk, i)->partlabel, label))
			return true;
	return false;
}

int guest_refuse_disk(struct disk *disk, struct error *err)
{
	/* both labels must be there: one alone may be anybody's */
	static const struct {
		const char *first, *second, *what;
	} layouts[] = {
		{"META", "STATE", "a Talos Linux image"},
		{"META", "EPHEMERAL", "a Talos Linux image"},
		{"META", "BOOT", "a Talos Linux image"},
		{"META", "EFI", "a Talos Linux image"},
		{"USR-A", "USR-B", "a Flatcar Container Linux image"},
		{"USR-A", "OEM", "a Flatcar Container Linux image"},
		{"BOTTLEROCKET-BOOT-A", "BOTTLEROCKET-ROOT-A", "a Bottlerocket image"},
		{"KERN-A", "ROOT-A", "a Container-Optimized OS image"},
		{"ubuntu-seed", "ubuntu-data", "an Ubuntu Core image"},
		{"ubuntu-seed", "ubuntu-boot", "an Ubuntu Core image"},
		{"BIOS Boot", "ubuntu-seed", "an Ubuntu Core image"},
	};

	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (has_label(disk, layouts[i].first) && has_label(disk, layouts[i].second))
			return refuse(disk, layouts[i].what, WHY_IMMUTABLE, CURE_GENERAL, err);
	return 0;
}

static bool has(struct rootfs *r, const char *prefix, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *full = str_format("%s%s", prefix, path);
	struct rootfs_stat st;

	return rootfs_lstat(r, full, &st, &ignored) == 1;
}

int guest_refuse_tree(struct disk *disk, const struct volume *v, struct rootfs *r,
                      const char *prefix, struct error *err)
{
	CLEANUP_FREE char *name = volume_name(v);
	const char *sign = has(r, prefix, "/ostree")           ? "/ostree"
	                   : has(r, prefix, "/sysroot/ostree") ? "/sysroot/ostree"
	                   : has(r, prefix, "/composefs")      ? "/composefs"
	                                                       : NULL;
	CLEANUP_FREE char *what = NULL;

	if (sign) {
		what = str_format("an ostree or bootc system ('%s' on %s)", sign, name);
		return refuse(disk, what, WHY_IMMUTABLE, CURE_GENERAL, err);
	}
	if (has(r, prefix, "/nix/store") &&
	    (has(r, prefix, "/etc/NIXOS") || has(r, prefix, "/nix/var/nix/profiles/system") ||
	     has(r, prefix, "/nix-path-registration"))) {
		what = str_format("a NixOS system ('/nix/store' on %s)", name);
		return refuse(disk, what,
		              "its boot entries and initramfs are made from its own configuration",
		              "set kernel parameters and blocked modules in its configuration.nix",
		              err);
	}
	return 0;
}

/* "ostree=" among the parameters of a type 1 entry. */
static bool boots_ostree(struct rootfs *root)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};

	rootfs_list(root, ENTRIES_DIR, &names, &ignored);
	for (size_t i = 0; i < names.count && i < ENTRIES_MAX; i++) {
		CLEANUP_FREE char *path = str_format(ENTRIES_DIR "/%s", names.items[i]);
		CLEANUP_ERROR struct error unread = ERROR_INIT;
		CLEANUP_FREE void *text = NULL;

		if (str_ends(names.items[i], ".conf") &&
		    rootfs_read(root, path, ENTRY_MAX, &text, NULL, &unread) == 0 &&
		    strstr(text, " ostree="))
			return true;
	}
	return false;
}

int guest_refuse_release(const struct guest *g, struct rootfs *root, struct error *err)
{
	static const struct {
		const char *id, *what;
	} systems[] = {
		{"talos", "Talos Linux"},
		{"flatcar", "Flatcar Container Linux"},
		{"coreos", "Container Linux"},
		{"bottlerocket", "Bottlerocket"},
		{"cos", "Container-Optimized OS"},
		{"ubuntu-core", "Ubuntu Core"},
		{"opensuse-microos", "openSUSE MicroOS (a transactional system)"},
		{"opensuse-leap-micro", "openSUSE Leap Micro (a transactional system)"},
		{"opensuse-aeon", "openSUSE Aeon (a transactional system)"},
		{"sle-micro", "SLE Micro (a transactional system)"},
		{"sl-micro", "SL Micro (a transactional system)"},
	};

	for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++)
		if (strcmp(g->id, systems[i].id) == 0)
			return refuse(NULL, systems[i].what, WHY_IMMUTABLE, CURE_GENERAL, err);
	if (strcmp(g->id, "nixos") == 0)
		return refuse(NULL, "NixOS",
		              "its boot entries and initramfs are made from its own configuration",
		              "set kernel parameters and blocked modules in its configuration.nix",
		              err);
	if (boots_ostree(root))
		return refuse(NULL, "an ostree system ('ostree=' in '" ENTRIES_DIR "')",
		              WHY_IMMUTABLE, CURE_GENERAL, err);
	return 0;
}

const char *guest_closed_type(const struct volume *v, const char **ret_cure)
{
	static const struct {
		const char *type, *what, *cure;
	} closed[] = {
		{"crypto_LUKS", "encrypted (LUKS), and nobody gave us a key",
	         "use a base without disk encryption"},
		{"BitLocker", "encrypted (BitLocker)", "give a Linux cloud image"},
		{"DM_verity_hash", "the hashes of a read-only root (dm-verity)", CURE_GENERAL},
		{"squashfs", "a read-only file system (squashfs)", CURE_GENERAL},
		{"erofs", "a read-only file system (erofs)", CURE_GENERAL},
		{"iso9660", "an installer or live medium (ISO 9660)",
	         "install it to a disk, or give the distribution's cloud image"},
		{"zfs_member", "a ZFS pool, which is not supported",
	         "use a base whose root is ext4, xfs or btrfs"},
		{"bcachefs", "bcachefs, which is not supported",
	         "use a base whose root is ext4, xfs or btrfs"},
		{"LVM1_member", "LVM in its first format, which is not supported",
	         "convert it with 'vgconvert -M2'"},
		{"stratis", "a Stratis pool, which is not supported",
	         "use a base whose root is ext4, xfs or btrfs"},
	};

	for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++)
		if (str_equal(v->type, closed[i].type)) {
			*ret_cure = closed[i].cure;
			return closed[i].what;
		}
	if (v->type && str_ends(v->type, "_raid_member")) {
		*ret_cure = "use a base whose root is a plain partition or logical volume";
		return "a member of a RAID, which is not supported";
	}
	return NULL;
}

static bool has_logical_volume(const struct disk *disk)
{
	for (size_t i = 0; i < disk_volume_count(disk); i++)
		if (disk_volume(disk, i)->lv)
			return true;
	return false;
}

int guest_no_system(struct disk *disk, struct error *err)
{
	CLEANUP_STRV struct strv seen = {0};
	CLEANUP_FREE char *list = NULL;

	for (size_t i = 0; i < disk_volume_count(disk); i++) {
		const struct volume *v = disk_volume(disk, i);
		CLEANUP_FREE char *name = volume_name(v);
		const char *cure, *closed = guest_closed_type(v, &cure);

		if (str_equal(v->type, "LVM2_member") && !has_logical_volume(disk)) {
			closed =
				"a physical volume whose volume group has no logical volume that can "
				"be read";
			cure = "give all of the group's disks as one image, or use a base without LVM";
		}
		if (closed) {
			error_set(err,
			          "image '%s': no operating system can be reached on it: %s is %s",
			          disk_path(disk), name, closed);
			error_hint(err, "%s", cure);
			return error_code(err, EXIT_INPUT);
		}
		strv_add(&seen, name);
	}
	list = strv_join(&seen, ", ");
	error_set(err, "image '%s': holds no operating system; found: %s", disk_path(disk),
	          seen.count ? list : "nothing");
	error_hint(err,
	           "give a Linux cloud image whose root is ext4, xfs or btrfs, not a data disk");
	return error_code(err, EXIT_INPUT);
}
