/* SPDX-License-Identifier: Apache-2.0 */
/* What only a running kernel can tell of a disk's volumes: logical volumes, btrfs subvolumes. */
#include <guestfs.h>
#include <stdlib.h>
#include <string.h>

#include "appliance-internal.h"

#define QUERY_S          120
#define LVS_MAX          256
#define SUBVOLUMES_MAX   1000
#define BTRFS_TOP_ID     5
#define SUBVOL_PATH_MAX  1024
#define FLAG_IS_READONLY "readonly"

static void free_strings(char **list)
{
	for (size_t i = 0; list && list[i]; i++)
		free(list[i]);
	free(list);
}

static inline void cleanup_strings(char ***list)
{
	free_strings(*list);
}

#define CLEANUP_STRINGS CLEANUP(cleanup_strings)

DEFINE_CLEANUP(subvolume_list, struct guestfs_btrfssubvolume_list *,
               guestfs_free_btrfssubvolume_list)

/* One that holds nothing, or cannot be read, is a volume of unknown content. */
static void add_lv(struct appliance *a, struct disk *disk, char *device)
{
	CLEANUP_FREE char *type = guestfs_vfs_type(a->g, device);
	CLEANUP_FREE char *uuid = type && *type ? guestfs_vfs_uuid(a->g, device) : NULL;
	CLEANUP_FREE char *label = type && *type ? guestfs_vfs_label(a->g, device) : NULL;
	int64_t size = guestfs_blockdev_getsize64(a->g, device);

	disk_add_volume(disk, &(struct volume){
				      .number = -1,
				      .size_bytes = size > 0 ? (uint64_t)size : 0,
				      .type = type,
				      .uuid = uuid,
				      .label = label,
				      .lv = device,
			      });
}

int appliance_find_lvs(struct appliance *a, struct disk *disk, struct error *err)
{
	CLEANUP_STRINGS char **devices = NULL;
	size_t count = 0;

	if (appliance_wait(a, err) < 0)
		return -1;
	appliance_watch(a, QUERY_S);
	devices = guestfs_lvs(a->g);
	while (devices && devices[count])
		count++;
	for (size_t i = 0; i < count && count <= LVS_MAX; i++)
		add_lv(a, disk, devices[i]);
	appliance_unwatch(a);
	if (!devices)
		return appliance_error(err, a, "cannot list the logical volumes");
	if (count > LVS_MAX) {
		error_set(err, "image '%s': has %zu logical volumes, more than %d", disk_path(disk),
		          count, LVS_MAX);
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

int appliance_read_volume(struct appliance *a, const struct volume *volume, void *buffer,
                          size_t size, uint64_t offset_bytes, struct error *err)
{
	CLEANUP_FREE char *device = appliance_device(volume);
	CLEANUP_FREE char *name = volume_name(volume);
	CLEANUP_FREE char *what = str_format("cannot read %s", name);
	CLEANUP_FREE char *data = NULL;
	size_t got = 0;

	if (appliance_wait(a, err) < 0)
		return -1;
	appliance_watch(a, QUERY_S);
	data = guestfs_pread_device(a->g, device, (int)size, (int64_t)offset_bytes, &got);
	appliance_unwatch(a);
	if (!data)
		return appliance_error(err, a, what);
	if (got < size) {
		error_set(err, "%s: it ends too early", what);
		return error_code(err, EXIT_INPUT);
	}
	memcpy(buffer, data, size);
	return 0;
}

void subvolumes_free(struct subvolumes *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->items[i].path);
	free(list->items);
	*list = (struct subvolumes){0};
}

static void add_subvolume(struct subvolumes *list, uint64_t id, const char *path)
{
	list->items = mem_grow(list->items, list->count + 1, sizeof(*list->items));
	list->items[list->count++] = (struct subvolume){.id = id, .path = str_copy(path)};
}

/* Its path ends up in mount options, where a comma begins the next one. */
static bool is_mountable(const char *path)
{
	return *path && strlen(path) < SUBVOL_PATH_MAX && !strpbrk(path, ",\\\"\n");
}

static int fill_subvolumes(struct subvolumes *list, struct appliance *a, const char *name,
                           struct error *err)
{
	CLEANUP(cleanup_subvolume_list)
	struct guestfs_btrfssubvolume_list *found = NULL;
	CLEANUP_FREE char *what = str_format("cannot list the subvolumes of %s", name);
	int64_t default_id;

	appliance_watch(a, QUERY_S);
	found = guestfs_btrfs_subvolume_list(a->g, "/");
	default_id = found ? guestfs_btrfs_subvolume_get_default(a->g, "/") : -1;
	appliance_unwatch(a);
	if (!found || default_id < 0)
		return appliance_error(err, a, what);
	if (found->len > SUBVOLUMES_MAX) {
		error_set(err, "%s has %u subvolumes, more than %d", name, found->len,
		          SUBVOLUMES_MAX);
		return error_code(err, EXIT_INPUT);
	}
	list->default_id = (uint64_t)default_id;
	add_subvolume(list, BTRFS_TOP_ID, "");
	for (uint32_t i = 0; i < found->len; i++) {
		const struct guestfs_btrfssubvolume *s = &found->val[i];

		if (is_mountable(s->btrfssubvolume_path))
			add_subvolume(list, s->btrfssubvolume_id, s->btrfssubvolume_path);
	}
	return 0;
}

int appliance_read_subvolumes(struct subvolumes *ret, struct appliance *a,
                              const struct volume *volume, struct error *err)
{
	CLEANUP_SUBVOLUMES struct subvolumes list = {0};
	CLEANUP_FREE char *name = volume_name(volume);

	if (appliance_umount_all(a, err) < 0 ||
	    appliance_mount_options(a, volume, "subvolid=5", "/", err) < 0 ||
	    fill_subvolumes(&list, a, name, err) < 0)
		return -1;
	*ret = list;
	list = (struct subvolumes){0};
	return 0;
}

const struct subvolume *subvolumes_find(const struct subvolumes *list, const char *path)
{
	for (size_t i = 0; i < list->count; i++)
		if (strcmp(list->items[i].path, path) == 0)
			return &list->items[i];
	return NULL;
}

const struct subvolume *subvolumes_by_id(const struct subvolumes *list, uint64_t id)
{
	for (size_t i = 0; i < list->count; i++)
		if (list->items[i].id == id)
			return &list->items[i];
	return NULL;
}

int appliance_subvolume_is_readonly(bool *ret, struct appliance *a, const char *path,
                                    struct error *err)
{
	CLEANUP_FREE char *below = str_format("/%s", path);
	CLEANUP_FREE char *shown = str_printable(path, 200);
	CLEANUP_FREE char *what = str_format("cannot read the flags of subvolume '%s'", shown);
	CLEANUP_STRINGS char **facts = NULL;
	bool readonly = false;

	appliance_watch(a, QUERY_S);
	facts = guestfs_btrfs_subvolume_show(a->g, below);
	appliance_unwatch(a);
	if (!facts)
		return appliance_error(err, a, what);
	for (size_t i = 0; facts[i] && facts[i + 1]; i += 2)
		if (strcmp(facts[i], "Flags") == 0 && strstr(facts[i + 1], FLAG_IS_READONLY))
			readonly = true;
	*ret = readonly;
	return 0;
}
