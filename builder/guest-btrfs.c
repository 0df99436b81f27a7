/* SPDX-License-Identifier: Apache-2.0 */
/* Which subvolume of a btrfs is mounted: as root, and for each line of fstab. */
#include <stdlib.h>
#include <string.h>

#include "guest-internal.h"

#define SUPER_OFFSET_BYTES       65536
#define SUPER_BYTES              512
#define SUPER_NUM_DEVICES_OFFSET 0x88

/* Its other devices are other disks, or other partitions that we would take for a second one. */
int guest_check_one_device(struct disk *disk, struct appliance *appliance, const struct volume *v,
                           struct error *err)
{
	CLEANUP_FREE char *name = volume_name(v);
	unsigned char super[SUPER_BYTES];
	uint64_t count = 0;
	int result = v->lv ? appliance_read_volume(appliance, v, super, sizeof(super),
	                                           SUPER_OFFSET_BYTES, err)
	                   : disk_read(disk, super, sizeof(super),
	                               v->offset_bytes + SUPER_OFFSET_BYTES, err);

	if (result < 0)
		return -1;
	for (size_t i = 8; i > 0; i--)
		count = count << 8 | super[SUPER_NUM_DEVICES_OFFSET + i - 1];
	if (count <= 1)
		return 0;
	error_set(err,
	          "image '%s': %s is one of %llu devices of a btrfs; file systems on several "
	          "devices are not supported",
	          disk_path(disk), name, (unsigned long long)count);
	error_hint(err, "use a base whose root is on one partition ('btrfs device remove')");
	error_code(err, EXIT_INPUT);
	return 1;
}

/* Whether the fstab inside of a subvolume mounts that same subvolume on "/". */
static bool names_itself(struct rootfs *top, const struct subvolume *s)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *path = str_format("/%s/etc/fstab", s->path);
	CLEANUP_FSTAB struct fstab fstab = {0};

	if (fstab_read(&fstab, top, path, &ignored) < 0)
		return false;
	for (size_t i = 0; i < fstab.count; i++) {
		const struct fstab_entry *e = &fstab.items[i];
		CLEANUP_FREE char *subvol = fstab_option(e, "subvol");
		CLEANUP_FREE char *id = fstab_option(e, "subvolid");
		uint64_t number;

		if (strcmp(e->path, "/") != 0)
			continue;
		if (subvol)
			return strcmp(subvol + strspn(subvol, "/"), s->path) == 0;
		return id && str_parse_uint(id, UINT64_MAX, &number) == 0 && number == s->id;
	}
	return false;
}

struct choice {
	const struct subvolume *first, *second; /* that look like a root */
	const struct subvolume *is_default;
	const struct subvolume *named; /* by its own fstab */
	size_t named_count;
};

static void consider(struct choice *c, const struct subvolumes *list, const struct subvolume *s,
                     struct rootfs *top)
{
	if (!c->first)
		c->first = s;
	else if (!c->second)
		c->second = s;
	if (s->id == list->default_id)
		c->is_default = s;
	if (names_itself(top, s)) {
		c->named = s;
		c->named_count++;
	}
}

static char *subvolume_name(const struct subvolume *s)
{
	return *s->path ? str_printable(s->path, 200) : str_copy("(top level)");
}

/* NULL: none (no error set) or two of equal right. */
static const struct subvolume *choose(const struct choice *c, struct error *err)
{
	CLEANUP_FREE char *first = c->first ? subvolume_name(c->first) : NULL;
	CLEANUP_FREE char *second = c->second ? subvolume_name(c->second) : NULL;

	if (!c->second)
		return c->first;
	if (c->is_default)
		return c->is_default;
	if (c->named_count == 1)
		return c->named;
	error_set(err,
	          "subvolumes '%s' and '%s' both look like a root, neither is the default, and "
	          "their fstab does not decide",
	          first, second);
	error_hint(err, "delete the snapshots, or set the root with 'btrfs subvolume set-default'");
	error_code(err, EXIT_INPUT);
	return NULL;
}

static int refuse_readonly(struct appliance *appliance, const struct subvolume *s,
                           struct error *err)
{
	CLEANUP_FREE char *name = subvolume_name(s);
	bool readonly = false;

	if (!*s->path)
		return 0;
	if (appliance_subvolume_is_readonly(&readonly, appliance, s->path, err) < 0)
		return -1;
	if (!readonly)
		return 0;
	error_set(err,
	          "its root is the read-only subvolume '%s' (a snapshot, or a transactional "
	          "system such as openSUSE MicroOS)",
	          name);
	error_hint(err, "use a base with a writable root ('btrfs property set PATH ro false')");
	return error_code(err, EXIT_INPUT);
}

static char *mount_subvol(const struct subvolumes *list, const struct subvolume *s)
{
	return !*s->path && list->default_id == s->id ? NULL : str_copy(s->path);
}

static int search_subvolumes(char **ret, struct disk *disk, struct appliance *appliance,
                             const struct volume *v, struct error *err)
{
	CLEANUP_SUBVOLUMES struct subvolumes list = {0};
	CLEANUP_ROOTFS struct rootfs *top = NULL;
	const struct subvolume *chosen;
	struct choice choice = {0};

	if (appliance_read_subvolumes(&list, appliance, v, err) < 0 ||
	    appliance_rootfs(&top, appliance, err) < 0)
		return -1;
	for (size_t i = 0; i < list.count; i++) {
		CLEANUP_FREE char *prefix =
			*list.items[i].path ? str_format("/%s", list.items[i].path) : str_copy("");

		if (guest_refuse_tree(disk, v, top, prefix, err) < 0)
			return -1;
		if (guest_looks_like_root(top, prefix))
			consider(&choice, &list, &list.items[i], top);
	}
	chosen = choose(&choice, err);
	if (!chosen)
		return choice.first ? -1 : 0;
	if (refuse_readonly(appliance, chosen, err) < 0)
		return -1;
	*ret = mount_subvol(&list, chosen);
	return 1;
}

int guest_find_root_subvolume(char **ret_subvol, struct disk *disk, struct appliance *appliance,
                              const struct volume *v, struct error *err)
{
	CLEANUP_FREE char *name = volume_name(v);
	int found = search_subvolumes(ret_subvol, disk, appliance, v, err);

	return found < 0 ? error_prefix(err, "image '%s', %s", disk_path(disk), name) : found;
}

/* "subvolid=257" stands in 'subvol' as "/257" until the appliance has told which that is. */
static const struct subvolume *wanted(const struct subvolumes *list, const char *subvol)
{
	uint64_t id;

	if (!subvol)
		return subvolumes_by_id(list, list->default_id);
	if (*subvol != '/')
		return subvolumes_find(list, subvol);
	return str_parse_uint(subvol + 1, UINT64_MAX, &id) < 0
	               ? NULL
	               : subvolumes_by_id(list, id ? id : list->items[0].id);
}

static int resolve(struct guest_mount *m, const struct subvolumes *list, struct error *err)
{
	CLEANUP_FREE char *name = volume_name(m->volume);
	CLEANUP_FREE char *shown = str_printable(m->subvol ? m->subvol : "the default", 200);
	const struct subvolume *s = wanted(list, m->subvol);

	if (!s) {
		error_set(err,
		          "its /etc/fstab mounts subvolume '%s' of %s on '%s', and there is none",
		          *shown == '/' ? shown + 1 : shown, name, m->path);
		error_hint(err, "correct 'subvol=' or 'subvolid=' in the base's fstab");
		return error_code(err, EXIT_INPUT);
	}
	free(m->subvol);
	m->subvol = mount_subvol(list, s);
	return 0;
}

int guest_resolve_subvolumes(struct guest *g, struct appliance *appliance, struct error *err)
{
	CLEANUP_SUBVOLUMES struct subvolumes list = {0};
	const struct volume *listed = NULL;

	/* the root's is known */
	for (size_t i = 1; i < g->mount_count; i++) {
		struct guest_mount *m = &g->mounts[i];

		if (!str_equal(m->volume->type, "btrfs"))
			continue;
		if (m->volume != listed) {
			subvolumes_free(&list);
			if (appliance_read_subvolumes(&list, appliance, m->volume, err) < 0)
				return -1;
			listed = m->volume;
		}
		if (resolve(m, &list, err) < 0)
			return -1;
	}
	return 0;
}
