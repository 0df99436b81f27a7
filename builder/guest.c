/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a guest: which volume is its root, and what its fstab mounts there. */
#include <stdlib.h>
#include <string.h>

#include "appliance.h"
#include "extfs.h"
#include "guest-internal.h"

void guest_free(struct guest *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->mount_count; i++) {
		free(g->mounts[i].path);
		free(g->mounts[i].type);
	}
	guest_forget_kernels(g);
	free(g->mounts);
	free(g->kernels);
	free(g->id);
	free(g->version_id);
	free(g->pretty_name);
	free(g->arch);
	free(g->generator);
	free(g->loader);
	free(g);
}

/* A root has an init, an os-release and a place for kernels' modules or packages. */
static bool looks_like_root(struct rootfs *r)
{
	return (rootfs_exists(r, "/etc/os-release") || rootfs_exists(r, "/usr/lib/os-release")) &&
	       (rootfs_exists(r, "/etc/fstab") || rootfs_exists(r, "/sbin/init") ||
	        rootfs_is_dir(r, "/etc/systemd"));
}

static bool is_appliance_type(const struct volume *v)
{
	return v->type && (strcmp(v->type, "xfs") == 0 || strcmp(v->type, "btrfs") == 0);
}

static int open_volume(struct rootfs **ret, struct disk *disk, struct appliance *appliance,
                       const struct volume *v, struct error *err)
{
	if (extfs_supports(v))
		return extfs_open(ret, disk, v, err);
	if (appliance_umount_all(appliance, err) < 0 || appliance_mount(appliance, v, "/", err) < 0)
		return -1;
	return appliance_rootfs(ret, appliance, err);
}

static char *volume_name(const struct volume *v)
{
	if (v->number == 0)
		return str_copy("the whole disk");
	return str_format("partition %d (%s)", v->number, v->type ? v->type : "unknown content");
}

static void no_system(struct disk *disk, struct error *err)
{
	CLEANUP_STRV struct strv seen = {0};
	CLEANUP_FREE char *list = NULL;
	const char *closed = NULL;

	for (size_t i = 0; i < disk_volume_count(disk); i++) {
		const struct volume *v = disk_volume(disk, i);

		strv_take(&seen, volume_name(v));
		if (v->type && (str_equal(v->usage, "raid") || str_equal(v->usage, "crypto") ||
		                str_starts(v->type, "LVM")))
			closed = v->type;
	}
	list = strv_join(&seen, ", ");
	if (closed) {
		error_set(err,
		          "image '%s': no operating system that can be reached: %s members are not "
		          "supported; found: %s",
		          disk_path(disk), closed, list);
		error_hint(err, "use a base whose root is a plain ext4, xfs or btrfs partition");
	} else {
		error_set(err, "image '%s': holds no operating system; found: %s", disk_path(disk),
		          seen.count ? list : "nothing");
		error_hint(err, "give a Linux cloud image, not a data disk");
	}
	error_code(err, EXIT_INPUT);
}

/* The one volume with a root on it. 1: only an appliance could tell. */
static int find_root(const struct volume **ret, struct disk *disk, struct appliance *appliance,
                     struct error *err)
{
	const struct volume *found = NULL;
	bool need_appliance = false;

	for (size_t i = 0; i < disk_volume_count(disk); i++) {
		const struct volume *v = disk_volume(disk, i);
		CLEANUP_ROOTFS struct rootfs *r = NULL;

		if (!extfs_supports(v) && !is_appliance_type(v))
			continue;
		if (!extfs_supports(v) && !appliance) {
			need_appliance = true;
			continue;
		}
		if (open_volume(&r, disk, appliance, v, err) < 0)
			return -1;
		if (!looks_like_root(r))
			continue;
		if (found) {
			CLEANUP_FREE char *first = volume_name(found);
			CLEANUP_FREE char *second = volume_name(v);

			error_set(err, "image '%s': holds two operating systems: %s and %s",
			          disk_path(disk), first, second);
			error_hint(err, "give an image with one");
			return error_code(err, EXIT_INPUT);
		}
		found = v;
	}
	if (!found && need_appliance)
		return 1;
	if (!found) {
		no_system(disk, err);
		return -1;
	}
	*ret = found;
	return 0;
}

static void add_mount(struct guest *g, const char *path, const char *type, const struct volume *v)
{
	g->mounts = mem_grow(g->mounts, g->mount_count + 1, sizeof(*g->mounts));
	g->mounts[g->mount_count++] =
		(struct guest_mount){.path = str_copy(path), .type = str_copy(type), .volume = v};
}

static bool is_system_dir(const char *path)
{
	return strcmp(path, "/boot") == 0 || str_starts(path, "/boot/") ||
	       strcmp(path, "/efi") == 0 || strcmp(path, "/usr") == 0 ||
	       strcmp(path, "/var") == 0 || str_starts(path, "/var/") || strcmp(path, "/opt") == 0;
}

/* One line of fstab; what the image's system directories live on must be found. */
static int read_mount(struct guest *g, struct disk *disk, const char *line, struct error *err)
{
	CLEANUP_STRV struct strv fields = strv_split(line, " \t");
	const struct volume *v;

	if (fields.count < 3 || *fields.items[0] == '#' || !is_system_dir(fields.items[1]))
		return 0;
	v = disk_find_volume(disk, fields.items[0]);
	if (v) {
		add_mount(g, fields.items[1], fields.items[2], v);
		return 0;
	}
	if (str_starts(fields.items[0], "tmpfs") || strstr(line, "nofail"))
		return 0;
	error_set(err,
	          "image '%s': its /etc/fstab mounts '%s' on '%s', and no such file system is on "
	          "the disk",
	          disk_path(disk), fields.items[0], fields.items[1]);
	error_hint(err, "name it by UUID= or LABEL= in the base's fstab; device letters change");
	return error_code(err, EXIT_INPUT);
}

static int compare_mounts(const void *a, const void *b)
{
	return strcmp(((const struct guest_mount *)a)->path, ((const struct guest_mount *)b)->path);
}

static int read_mounts(struct guest *g, struct disk *disk, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	CLEANUP_STRV struct strv lines = {0};

	if (!rootfs_exists(root, "/etc/fstab"))
		return 0;
	if (rootfs_read(root, "/etc/fstab", GUEST_TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	lines = strv_split(text, "\n");
	for (size_t i = 0; i < lines.count; i++)
		if (read_mount(g, disk, lines.items[i], err) < 0)
			return -1;
	qsort(g->mounts, g->mount_count, sizeof(*g->mounts), compare_mounts);
	return 0;
}

static bool is_esp(const struct guest_mount *m)
{
	return str_equal(m->volume->type, "vfat") &&
	       (strcmp(m->path, "/boot/efi") == 0 || strcmp(m->path, "/efi") == 0);
}

/* Left out, it would be taken for an empty directory, and called proven. */
static int refuse_mount(const struct disk *disk, const struct guest_mount *m, struct error *err)
{
	error_set(err, "image '%s': '%s' is on %s beside a root on ext4, which is not supported",
	          disk_path(disk), m->path, m->volume->type ? m->volume->type : "unknown content");
	error_hint(err, "use a base with '%s' on ext4", m->path);
	return error_code(err, EXIT_INPUT);
}

/* The root again, now with the other file systems in their places. */
static int open_mounted(struct rootfs **ret, struct guest *g, struct disk *disk,
                        struct appliance *appliance, struct error *err)
{
	CLEANUP_ROOTFS struct rootfs *r = NULL;
	bool ext = extfs_supports(g->mounts[0].volume);

	if (open_volume(&r, disk, appliance, g->mounts[0].volume, err) < 0)
		return -1;
	for (size_t i = 1; i < g->mount_count; i++) {
		const struct guest_mount *m = &g->mounts[i];

		if (ext && is_esp(m))
			continue; /* nothing of ours reads it */
		if (ext && !extfs_supports(m->volume))
			return refuse_mount(disk, m, err);
		if (ext ? extfs_mount(r, m->path, m->volume, err) < 0
		        : appliance_mount(appliance, m->volume, m->path, err) < 0)
			return -1;
	}
	*ret = STEAL(r);
	return 0;
}

int guest_open(struct guest **ret, struct rootfs **ret_root, struct disk *disk,
               struct appliance *appliance, struct error *err)
{
	CLEANUP_GUEST struct guest *g = mem_alloc(sizeof(*g));
	CLEANUP_ROOTFS struct rootfs *root = NULL;
	const struct volume *v = NULL;
	int found = find_root(&v, disk, appliance, err);

	if (found != 0)
		return found;
	add_mount(g, "/", v->type, v);
	if (open_volume(&root, disk, appliance, v, err) < 0 || read_mounts(g, disk, root, err) < 0)
		return -1;
	rootfs_close(STEAL(root));
	if (open_mounted(&root, g, disk, appliance, err) < 0 || guest_read_facts(g, root, err) < 0)
		return error_prefix(err, "image '%s'", disk_path(disk));
	*ret = STEAL(g);
	*ret_root = STEAL(root);
	return 0;
}

int guest_open_again(struct rootfs **ret, struct guest *guest, struct disk *disk, struct error *err)
{
	return open_mounted(ret, guest, disk, NULL, err);
}

const struct guest_mount *guest_find_mount(const struct guest *guest, const char *path)
{
	for (size_t i = 0; i < guest->mount_count; i++)
		if (strcmp(guest->mounts[i].path, path) == 0)
			return &guest->mounts[i];
	return NULL;
}
