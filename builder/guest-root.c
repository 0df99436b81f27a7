/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a disk's volumes holds the operating system. */
#include <stdlib.h>
#include <string.h>

#include "extfs.h"
#include "guest-internal.h"

struct search {
	struct disk *disk;
	struct appliance *appliance; /* may be NULL */
	struct guest_root found;
	bool need_appliance;
	struct error
		several; /* a btrfs on several devices: no matter beside a root of another kind */
};

static void search_free(struct search *s)
{
	free(s->found.subvol);
	error_free(&s->several);
}

#define CLEANUP_SEARCH CLEANUP(search_free)

static bool has(struct rootfs *r, const char *prefix, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *full = str_format("%s%s", prefix, path);
	struct rootfs_stat st;

	return rootfs_lstat(r, full, &st, &ignored) == 1;
}

/* A root has an os-release, and an init or a place for its configuration. */
bool guest_looks_like_root(struct rootfs *r, const char *prefix)
{
	return (has(r, prefix, "/etc/os-release") || has(r, prefix, "/usr/lib/os-release")) &&
	       (has(r, prefix, "/etc/fstab") || has(r, prefix, "/sbin/init") ||
	        has(r, prefix, "/etc/systemd"));
}

bool guest_has_kernel(struct rootfs *r, const char *dir)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};

	rootfs_list(r, dir, &names, &ignored);
	for (size_t i = 0; i < names.count; i++)
		if (str_starts(names.items[i], "vmlinuz-"))
			return true;
	return false;
}

static int take_root(struct search *s, const struct volume *v, char *subvol, struct error *err)
{
	CLEANUP_FREE char *first = NULL;
	CLEANUP_FREE char *second = volume_name(v);

	if (!s->found.volume) {
		s->found.volume = v;
		s->found.subvol = subvol;
		return 0;
	}
	free(subvol);
	first = volume_name(s->found.volume);
	error_set(err, "image '%s': holds two operating systems: %s and %s", disk_path(s->disk),
	          first, second);
	error_hint(err, "give an image with one");
	return error_code(err, EXIT_INPUT);
}

static int look_at_tree(struct search *s, const struct volume *v, struct rootfs *r,
                        struct error *err)
{
	if (guest_refuse_tree(s->disk, v, r, "", err) < 0)
		return -1;
	if (guest_looks_like_root(r, ""))
		return take_root(s, v, NULL, err);
	if (!s->found.boot && guest_has_kernel(r, "/"))
		s->found.boot = v;
	return 0;
}

static int look_at_btrfs(struct search *s, const struct volume *v, struct error *err)
{
	char *subvol = NULL;
	int found = guest_find_root_subvolume(&subvol, s->disk, s->appliance, v, err);

	return found > 0 ? take_root(s, v, subvol, err) : found;
}

static int look_in_appliance(struct search *s, const struct volume *v, struct error *err)
{
	CLEANUP_ROOTFS struct rootfs *r = NULL;

	if (str_equal(v->type, "btrfs"))
		return look_at_btrfs(s, v, err);
	if (appliance_umount_all(s->appliance, err) < 0 ||
	    appliance_mount(s->appliance, v, "/", err) < 0 ||
	    appliance_rootfs(&r, s->appliance, err) < 0)
		return -1;
	return look_at_tree(s, v, r, err);
}

/* 1: it is not to be looked at. */
static int check_devices(struct search *s, const struct volume *v, struct error *err)
{
	CLEANUP_ERROR struct error why = ERROR_INIT;
	int result;

	if (!str_equal(v->type, "btrfs"))
		return 0;
	result = guest_check_one_device(s->disk, s->appliance, v, &why);
	if (result < 0)
		return error_take(err, &why);
	if (result > 0 && !s->several.message)
		error_take(&s->several, &why);
	return result;
}

static int look_at(struct search *s, const struct volume *v, struct error *err)
{
	CLEANUP_ROOTFS struct rootfs *r = NULL;
	int skip;

	if (extfs_supports(v))
		return extfs_open(&r, s->disk, v, err) < 0 ? -1 : look_at_tree(s, v, r, err);
	if (str_equal(v->type, "vfat") ||
	    (!guest_volume_in_appliance(v) && !str_equal(v->type, "LVM2_member")))
		return 0;
	skip = check_devices(s, v, err);
	if (skip != 0)
		return skip < 0 ? -1 : 0;
	if (!s->appliance) {
		s->need_appliance = true;
		return 0;
	}
	return str_equal(v->type, "LVM2_member") ? 0 : look_in_appliance(s, v, err);
}

bool guest_has_lvm(const struct disk *disk)
{
	for (size_t i = 0; i < disk_volume_count(disk); i++)
		if (str_equal(disk_volume(disk, i)->type, "LVM2_member"))
			return true;
	return false;
}

int guest_find_root(struct guest_root *ret, struct disk *disk, struct appliance *appliance,
                    struct error *err)
{
	CLEANUP_SEARCH struct search s = {.disk = disk, .appliance = appliance};

	if (appliance && guest_has_lvm(disk) && appliance_find_lvs(appliance, disk, err) < 0)
		return -1;
	for (size_t i = 0; i < disk_volume_count(disk); i++)
		if (look_at(&s, disk_volume(disk, i), err) < 0)
			return -1;
	if (!s.found.volume && s.need_appliance)
		return 1;
	if (!s.found.volume)
		return s.several.message ? error_take(err, &s.several) : guest_no_system(disk, err);
	*ret = s.found;
	s.found.subvol = NULL;
	return 0;
}
