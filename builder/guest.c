/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a guest: its root, and everything else in its place. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "extfs.h"
#include "fatfs.h"
#include "guest-internal.h"
#include "rootfs-mounts.h"

static void free_mount(struct guest_mount *m)
{
	free(m->path);
	free(m->type);
	free(m->subvol);
}

void guest_free(struct guest *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->mount_count; i++)
		free_mount(&g->mounts[i]);
	guest_forget_kernels(g);
	free(g->mounts);
	free(g->kernels);
	free(g->id);
	free(g->version_id);
	free(g->pretty_name);
	free(g->arch);
	free(g->generator);
	free(g->grub_dir);
	free(g);
}

static int open_volume(struct rootfs **ret, struct disk *disk, const struct volume *v,
                       struct error *err)
{
	return fatfs_supports(v) ? fatfs_open(ret, disk, v, err) : extfs_open(ret, disk, v, err);
}

/* The first 'count' mounts. */
static int open_in_user_space(struct rootfs **ret, const struct guest *g, size_t count,
                              struct disk *disk, struct error *err)
{
	CLEANUP_ROOTFS struct rootfs *r = NULL;

	if (open_volume(&r, disk, g->mounts[0].volume, err) < 0)
		return -1;
	if (count > 1)
		r = rootfs_mounts_new(r);
	for (size_t i = 1; i < count; i++) {
		const struct guest_mount *m = &g->mounts[i];
		struct rootfs *mounted = NULL;

		if (open_volume(&mounted, disk, m->volume, err) < 0 ||
		    rootfs_mounts_add(r, m->path, mounted, err) < 0)
			return error_prefix(err, "cannot look at '%s'", m->path);
	}
	*ret = STEAL(r);
	return 0;
}

static int open_in_appliance(struct rootfs **ret, const struct guest *g, size_t count,
                             struct appliance *appliance, struct error *err)
{
	if (appliance_umount_all(appliance, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++)
		if (appliance_mount_guest(appliance, &g->mounts[i], err) < 0)
			return -1;
	return appliance_rootfs(ret, appliance, err);
}

/* The root alone, to read its fstab. */
static int open_root(struct rootfs **ret, const struct guest *g, struct disk *disk,
                     struct appliance *appliance, struct error *err)
{
	return guest_volume_in_user_space(g->mounts[0].volume)
	               ? open_in_user_space(ret, g, 1, disk, err)
	               : open_in_appliance(ret, g, 1, appliance, err);
}

/* 1: only with an appliance. */
static int open_mounted(struct rootfs **ret, struct guest *g, struct disk *disk,
                        struct appliance *appliance, struct error *err)
{
	if (guest_in_user_space(g))
		return open_in_user_space(ret, g, g->mount_count, disk, err);
	if (!appliance)
		return 1;
	if (guest_resolve_subvolumes(g, appliance, err) < 0)
		return -1;
	return open_in_appliance(ret, g, g->mount_count, appliance, err);
}

/* With ESP and XBOOTLDR too, whose places are seen only once the rest is mounted. 1: as above. */
static int open_all(struct rootfs **ret, struct guest *g, struct disk *disk,
                    struct appliance *appliance, struct error *err)
{
	CLEANUP_ROOTFS struct rootfs *r = NULL;
	bool more = false;
	int result = open_mounted(&r, g, disk, appliance, err);

	if (result != 0)
		return result;
	guest_add_implicit_mounts(g, disk, r, &more);
	if (!more) {
		*ret = STEAL(r);
		return 0;
	}
	rootfs_close(STEAL(r));
	return guest_in_user_space(g) ? open_in_user_space(ret, g, g->mount_count, disk, err)
	                              : open_in_appliance(ret, g, g->mount_count, appliance, err);
}

static bool has_own_kernel(const struct guest *g)
{
	for (size_t i = 0; i < g->kernel_count; i++)
		if (!g->kernels[i].rescue)
			return true;
	return false;
}

/* Edits would land in an empty /boot, and never be seen by a boot loader. */
static int check_boot(const struct guest *g, const struct guest_root *found, bool root_has_kernels,
                      struct error *err)
{
	const struct guest_mount *boot = guest_find_mount(g, "/boot");
	CLEANUP_FREE char *name = NULL;

	if (has_own_kernel(g))
		return 0;
	if (boot && root_has_kernels) {
		name = volume_name(boot->volume);
		error_set(err,
		          "'/boot' is %s, which has no kernel; the kernels are in the root's own "
		          "'/boot', hidden below it",
		          name);
		error_hint(err, "move them there, or take the line for /boot out of the base's "
		                "fstab");
		return error_code(err, EXIT_INPUT);
	}
	if (!found->boot || (boot && boot->volume == found->boot))
		return 0;
	name = volume_name(found->boot);
	error_set(err, "'/boot' has no kernel; %s has one, and /etc/fstab does not mount it there",
	          name);
	error_hint(err, "add it to the base's fstab, by UUID");
	return error_code(err, EXIT_INPUT);
}

/* *g has its root's mount and no more. 1: only with an appliance. */
static int read_guest(struct rootfs **ret_root, struct guest *g, const struct guest_root *found,
                      struct disk *disk, struct appliance *appliance, struct error *err)
{
	CLEANUP_ROOTFS struct rootfs *root = NULL;
	bool root_has_kernels;
	int result;

	if (open_root(&root, g, disk, appliance, err) < 0)
		return -1;
	result = guest_read_mounts(g, disk, appliance != NULL, root, err);
	if (result != 0)
		return result;
	root_has_kernels = guest_has_kernel(root, "/boot");
	rootfs_close(STEAL(root));
	result = open_all(&root, g, disk, appliance, err);
	if (result > 0)
		return 1;
	if (result < 0 || guest_read_facts(g, root, err) < 0 ||
	    check_boot(g, found, root_has_kernels, err) < 0)
		return error_prefix(err, "image '%s'", disk_path(disk));
	*ret_root = STEAL(root);
	return 0;
}

int guest_open(struct guest **ret, struct rootfs **ret_root, struct disk *disk,
               struct appliance *appliance, struct error *err)
{
	CLEANUP_GUEST struct guest *g = mem_alloc(sizeof(*g));
	struct guest_root found = {0};
	int result;

	if (guest_refuse_disk(disk, err) < 0)
		return -1;
	result = guest_find_root(&found, disk, appliance, err);
	if (result != 0)
		return result;
	guest_add_mount(g, &(struct guest_mount){.path = str_copy("/"),
	                                         .type = str_copy(found.volume->type),
	                                         .subvol = found.subvol,
	                                         .volume = found.volume});
	result = read_guest(ret_root, g, &found, disk, appliance, err);
	if (result == 0)
		*ret = STEAL(g);
	return result;
}

int guest_open_again(struct rootfs **ret, struct guest *guest, struct disk *disk, struct error *err)
{
	if (!guest_in_user_space(guest))
		return error_set(err, "image '%s': cannot open it without an appliance",
		                 disk_path(disk));
	return open_in_user_space(ret, guest, guest->mount_count, disk, err);
}

const struct guest_mount *guest_find_mount(const struct guest *guest, const char *path)
{
	for (size_t i = 0; i < guest->mount_count; i++)
		if (strcmp(guest->mounts[i].path, path) == 0)
			return &guest->mounts[i];
	return NULL;
}

const struct guest_mount *guest_mount_of(const struct guest *guest, const char *path)
{
	const struct guest_mount *best = &guest->mounts[0];

	for (size_t i = 1; i < guest->mount_count; i++)
		if (str_below(path, guest->mounts[i].path) &&
		    strlen(guest->mounts[i].path) >= strlen(best->path))
			best = &guest->mounts[i];
	return best;
}

bool guest_mount_is_fat(const struct guest_mount *mount)
{
	return str_equal(mount->volume->type, "vfat");
}

static bool is_efi_program(const char *name)
{
	size_t length = strlen(name);

	return length > 4 && strcasecmp(name + length - 4, ".efi") == 0;
}

/* Names on FAT have no case; the appliance's kernel sees to it too. */
static bool has_loader_below(struct rootfs *root, const char *efi)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv vendors = {0};

	rootfs_list(root, efi, &vendors, &ignored);
	for (size_t i = 0; i < vendors.count; i++) {
		CLEANUP_FREE char *dir = str_format("%s/%s", efi, vendors.items[i]);
		CLEANUP_ERROR struct error no_dir = ERROR_INIT;
		CLEANUP_STRV struct strv names = {0};

		if (!rootfs_is_dir(root, dir) || rootfs_list(root, dir, &names, &no_dir) < 0)
			continue;
		for (size_t j = 0; j < names.count; j++)
			if (is_efi_program(names.items[j]))
				return true;
	}
	return false;
}

bool guest_has_uefi_loader(const struct guest *guest, struct rootfs *root)
{
	for (size_t i = 0; i < guest->mount_count; i++) {
		const struct guest_mount *m = &guest->mounts[i];
		CLEANUP_FREE char *efi = str_format("%s/EFI", m->path);

		if (volume_is_esp(m->volume) && has_loader_below(root, efi))
			return true;
	}
	return false;
}
