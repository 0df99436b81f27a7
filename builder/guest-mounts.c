/* SPDX-License-Identifier: Apache-2.0 */
/* What is mounted where: by the guest's fstab, and by systemd where that says nothing. */
#include <stdlib.h>
#include <string.h>

#include "extfs.h"
#include "fatfs.h"
#include "guest-internal.h"

#define MOUNTS_MAX 64

void fstab_free(struct fstab *fstab)
{
	for (size_t i = 0; i < fstab->count; i++) {
		free(fstab->items[i].device);
		free(fstab->items[i].path);
		free(fstab->items[i].type);
		free(fstab->items[i].options);
	}
	free(fstab->items);
	*fstab = (struct fstab){0};
}

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* A space in a field stands there as "\040". */
static char *decode_field(const char *text)
{
	char *result = str_copy(text), *out = result;

	for (const char *in = text; *in; in++) {
		if (in[0] == '\\' && is_octal(in[1]) && is_octal(in[2]) && is_octal(in[3])) {
			*out++ = (char)((in[1] - '0') << 6 | (in[2] - '0') << 3 | (in[3] - '0'));
			in += 3;
		} else {
			*out++ = *in;
		}
	}
	*out = '\0';
	return result;
}

static bool has_control_character(const char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			return true;
	return false;
}

/* "/boot//efi/" as "/boot/efi"; NULL: not an absolute path, or one with dots or control characters
 * in it, which "\033" can bring in, and messages would pass on. */
static char *plain_path(const char *text)
{
	CLEANUP_STRV struct strv parts = strv_split(text, "/");
	CLEANUP_FREE char *joined = strv_join(&parts, "/");

	if (*text != '/' || has_control_character(text) || strv_has(&parts, ".") ||
	    strv_has(&parts, ".."))
		return NULL;
	return str_format("/%s", joined);
}

static int add_line(struct fstab *fstab, const char *line, struct error *err)
{
	CLEANUP_STRV struct strv fields = strv_split(line, " \t\r");
	CLEANUP_FREE char *path = NULL;
	char *plain;

	if (fields.count < 3 || *fields.items[0] == '#')
		return 0;
	path = decode_field(fields.items[1]);
	if (*path != '/')
		return 0; /* "none", "swap" */
	plain = plain_path(path);
	if (!plain) {
		CLEANUP_FREE char *shown = str_printable(path, 200);

		error_set(err, "its /etc/fstab mounts on '%s', which is not a plain path", shown);
		error_hint(err, "write the path out in the base's fstab");
		return error_code(err, EXIT_INPUT);
	}
	fstab->items = mem_grow(fstab->items, fstab->count + 1, sizeof(*fstab->items));
	fstab->items[fstab->count++] = (struct fstab_entry){
		.device = decode_field(fields.items[0]),
		.path = plain,
		.type = str_copy(fields.items[2]),
		.options = fields.count > 3 ? decode_field(fields.items[3]) : str_copy(""),
	};
	return 0;
}

int fstab_read(struct fstab *ret, struct rootfs *root, const char *path, struct error *err)
{
	CLEANUP_FSTAB struct fstab fstab = {0};
	CLEANUP_FREE void *text = NULL;
	CLEANUP_STRV struct strv lines = {0};

	if (!rootfs_exists(root, path))
		return 0;
	if (rootfs_read(root, path, GUEST_TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	lines = strv_split(text, "\n");
	for (size_t i = 0; i < lines.count; i++)
		if (add_line(&fstab, lines.items[i], err) < 0)
			return -1;
	*ret = fstab;
	fstab = (struct fstab){0};
	return 0;
}

char *fstab_option(const struct fstab_entry *e, const char *name)
{
	CLEANUP_STRV struct strv options = strv_split(e->options, ",");
	size_t length = strlen(name);

	/* of several the last one holds, as for mount(8) */
	for (size_t i = options.count; i > 0; i--) {
		const char *option = options.items[i - 1];

		if (strncmp(option, name, length) != 0)
			continue;
		if (option[length] == '\0')
			return str_copy("");
		if (option[length] == '=')
			return str_copy(option + length + 1);
	}
	return NULL;
}

static bool has_option(const struct fstab_entry *e, const char *name)
{
	CLEANUP_FREE char *value = fstab_option(e, name);

	return value != NULL;
}

bool guest_volume_in_user_space(const struct volume *v)
{
	return extfs_supports(v) || fatfs_supports(v);
}

bool guest_volume_in_appliance(const struct volume *v)
{
	static const char *const types[] = {"ext2", "ext3", "ext4", "xfs", "btrfs", "vfat"};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (str_equal(v->type, types[i]))
			return true;
	return false;
}

bool guest_in_user_space(const struct guest *g)
{
	for (size_t i = 0; i < g->mount_count; i++)
		if (!guest_volume_in_user_space(g->mounts[i].volume))
			return false;
	return true;
}

void guest_add_mount(struct guest *g, const struct guest_mount *m)
{
	g->mounts = mem_grow(g->mounts, g->mount_count + 1, sizeof(*g->mounts));
	g->mounts[g->mount_count++] = *m;
}

static bool is_at_or_below(const char *path, const char *dir)
{
	return str_starts(path, dir) && (path[strlen(dir)] == '/' || path[strlen(dir)] == '\0');
}

static bool is_one_of(const char *path, const char *const *dirs)
{
	for (; *dirs; dirs++)
		if (is_at_or_below(path, *dirs))
			return true;
	return false;
}

/* Where the system itself lies, and what our stages and the proof look at. */
static bool is_system_dir(const char *path)
{
	static const char *const dirs[] = {"/boot", "/efi", "/usr", "/var", "/opt", "/etc", NULL};

	return is_one_of(path, dirs);
}

/* Mounted where that costs nothing, so that no stage writes below a mount point. */
static bool is_other_dir(const char *path)
{
	static const char *const dirs[] = {"/home", "/root", "/srv", NULL};

	return is_one_of(path, dirs);
}

/* Not on any disk, or on another machine's. */
static bool is_elsewhere(const struct fstab_entry *e)
{
	static const char *const types[] = {
		"tmpfs",    "proc",     "sysfs",      "devpts",  "swap",    "nfs",
		"nfs4",     "cifs",     "smb3",       "9p",      "ceph",    "glusterfs",
		"virtiofs", "efivarfs", "securityfs", "debugfs", "tracefs", "hugetlbfs"};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (strcmp(e->type, types[i]) == 0)
			return true;
	return has_option(e, "_netdev");
}

/* What may well be what we do not find: the hint of who has lost a /boot. */
static int missing_device(struct disk *disk, const struct fstab_entry *e, struct error *err)
{
	CLEANUP_FREE char *device = str_printable(e->device, 200);
	CLEANUP_FREE char *path = str_printable(e->path, 200);

	error_set(err,
	          "image '%s': its /etc/fstab mounts '%s' on '%s', and no such file system is on "
	          "the disk",
	          disk_path(disk), device, path);
	for (size_t i = 0; i < disk_volume_count(disk); i++) {
		const struct volume *v = disk_volume(disk, i);
		CLEANUP_FREE char *name = volume_name(v);
		const char *cure, *closed = guest_closed_type(v, &cure);

		if (closed)
			error_hint(err, "%s is %s; %s", name, closed, cure);
	}
	error_hint(err, "name it by UUID= or LABEL= in the base's fstab; device letters change");
	return error_code(err, EXIT_INPUT);
}

static int refuse_bind(struct disk *disk, const struct fstab_entry *e, struct error *err)
{
	CLEANUP_FREE char *device = str_printable(e->device, 200);
	CLEANUP_FREE char *path = str_printable(e->path, 200);

	error_set(err, "image '%s': its /etc/fstab puts '%s' on '%s' (%s), which is not supported",
	          disk_path(disk), device, path,
	          strcmp(e->type, "overlay") == 0 ? "overlay" : "bind");
	error_hint(err, "use a base whose system directories are plain file systems");
	return error_code(err, EXIT_INPUT);
}

/* Left out, it would be taken for an empty directory, and called proven. */
static int refuse_type(struct disk *disk, const struct fstab_entry *e, const struct volume *v,
                       struct error *err)
{
	CLEANUP_FREE char *name = volume_name(v);
	CLEANUP_FREE char *path = str_printable(e->path, 200);
	const char *cure = NULL, *closed = guest_closed_type(v, &cure);

	error_set(err, "image '%s': '%s' is on %s, which %s%s", disk_path(disk), path, name,
	          closed ? "is " : "is not supported", closed ? closed : "");
	error_hint(err, "%s", cure ? cure : "use ext4, xfs, btrfs or vfat there");
	return error_code(err, EXIT_INPUT);
}

/* subvolid is not known without the appliance: see guest-btrfs.c. */
static char *mount_subvol(const struct fstab_entry *e, const struct volume *v)
{
	CLEANUP_FREE char *subvol = fstab_option(e, "subvol");
	CLEANUP_FREE char *id = fstab_option(e, "subvolid");

	if (!str_equal(v->type, "btrfs"))
		return NULL;
	if (subvol)
		return str_copy(subvol + strspn(subvol, "/"));
	return id ? str_format("/%s", id) : NULL;
}

/* 1: it may be on a logical volume, which only an appliance finds. */
static int no_device(struct disk *disk, bool lvs_known, const struct fstab_entry *e,
                     struct error *err)
{
	if (!is_system_dir(e->path))
		return 0;
	/* hardened images bind /tmp there; nothing of the system lies in it */
	if (has_option(e, "bind") && strcmp(e->path, "/var/tmp") == 0)
		return 0;
	if (has_option(e, "bind") || has_option(e, "rbind") || strcmp(e->type, "overlay") == 0)
		return refuse_bind(disk, e, err);
	if (!lvs_known && guest_has_lvm(disk))
		return 1;
	/* a boot chain without its /boot is none, whether the system starts or not */
	if (has_option(e, "nofail") && strcmp(e->path, "/boot") != 0)
		return 0;
	return missing_device(disk, e, err);
}

/* 1: as above. */
static int add_entry(struct guest *g, struct disk *disk, bool lvs_known,
                     const struct fstab_entry *e, struct error *err)
{
	const struct volume *v = disk_find_volume(disk, e->device);
	bool needed = is_system_dir(e->path);

	if ((!needed && !is_other_dir(e->path)) || is_elsewhere(e))
		return 0;
	if (!v)
		return no_device(disk, lvs_known, e, err);
	if (!guest_volume_in_appliance(v))
		return needed ? refuse_type(disk, e, v, err) : 0;
	if (guest_find_mount(g, e->path) || g->mount_count >= MOUNTS_MAX) {
		error_set(err, "image '%s': its /etc/fstab mounts %s on '%s'", disk_path(disk),
		          g->mount_count >= MOUNTS_MAX ? "one file system too many"
		                                       : "two file systems",
		          e->path);
		error_hint(err, "take lines out of the base's fstab");
		return error_code(err, EXIT_INPUT);
	}
	guest_add_mount(g, &(struct guest_mount){.path = str_copy(e->path),
	                                         .type = str_copy(e->type),
	                                         .subvol = mount_subvol(e, v),
	                                         .volume = v});
	return 0;
}

static int compare_mounts(const void *a, const void *b)
{
	return strcmp(((const struct guest_mount *)a)->path, ((const struct guest_mount *)b)->path);
}

void guest_sort_mounts(struct guest *g)
{
	qsort(g->mounts, g->mount_count, sizeof(*g->mounts), compare_mounts);
}

/* /home on xfs is no reason to start an appliance. */
static void drop_costly(struct guest *g)
{
	size_t kept = 0;
	bool user_space = true;

	for (size_t i = 0; i < g->mount_count; i++)
		if (!is_other_dir(g->mounts[i].path))
			user_space &= guest_volume_in_user_space(g->mounts[i].volume);
	for (size_t i = 0; i < g->mount_count; i++) {
		struct guest_mount *m = &g->mounts[i];

		if (user_space && !guest_volume_in_user_space(m->volume)) {
			free(m->path);
			free(m->type);
			free(m->subvol);
			continue;
		}
		g->mounts[kept++] = *m;
	}
	g->mount_count = kept;
}

int guest_read_mounts(struct guest *g, struct disk *disk, bool lvs_known, struct rootfs *root,
                      struct error *err)
{
	CLEANUP_FSTAB struct fstab fstab = {0};
	int result = 0;

	if (fstab_read(&fstab, root, "/etc/fstab", err) < 0)
		return error_prefix(err, "image '%s'", disk_path(disk));
	for (size_t i = 0; i < fstab.count && result == 0; i++)
		result = add_entry(g, disk, lvs_known, &fstab.items[i], err);
	if (result != 0)
		return result;
	drop_costly(g);
	guest_sort_mounts(g);
	return 0;
}

static bool is_mounted(const struct guest *g, const struct volume *v)
{
	for (size_t i = 0; i < g->mount_count; i++)
		if (g->mounts[i].volume == v)
			return true;
	return false;
}

static bool is_empty_dir(struct rootfs *root, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};

	return rootfs_is_dir(root, path) && rootfs_list(root, path, &names, &ignored) == 0 &&
	       names.count == 0;
}

static void add_implicit(struct guest *g, const char *path, const struct volume *v)
{
	guest_add_mount(g, &(struct guest_mount){.path = str_copy(path),
	                                         .type = str_copy(v->type),
	                                         .implicit = true,
	                                         .volume = v});
}

/* The generator takes the first of its kind, and an empty directory only. */
static const struct volume *first_of(const struct guest *g, const struct disk *disk,
                                     bool (*is_kind)(const struct volume *))
{
	for (size_t i = 0; i < disk_volume_count(disk); i++) {
		const struct volume *v = disk_volume(disk, i);

		if (is_kind(v) && guest_volume_in_user_space(v))
			return is_mounted(g, v) ? NULL : v;
	}
	return NULL;
}

static bool has_xbootldr(const struct disk *disk)
{
	for (size_t i = 0; i < disk_volume_count(disk); i++)
		if (volume_is_xbootldr(disk_volume(disk, i)))
			return true;
	return false;
}

/* /boot before /efi, as systemd since 254: where both are empty, the kernels are on the ESP.
 * /boot/efi is not the generator's, but where the firmware's files are looked for by every tool of
 * the image: seen there even if something lies below. */
static const char *esp_place(const struct guest *g, const struct disk *disk, struct rootfs *root)
{
	if (!has_xbootldr(disk) && !guest_find_mount(g, "/boot") && is_empty_dir(root, "/boot"))
		return "/boot";
	if (!guest_find_mount(g, "/efi") && is_empty_dir(root, "/efi"))
		return "/efi";
	if (!guest_find_mount(g, "/boot/efi") && rootfs_is_dir(root, "/boot/efi"))
		return "/boot/efi";
	return NULL;
}

void guest_add_implicit_mounts(struct guest *g, struct disk *disk, struct rootfs *root,
                               bool *ret_more)
{
	const struct volume *boot, *esp;
	const char *place;

	*ret_more = false;
	if (!str_equal(disk_table(disk), "gpt"))
		return;
	boot = first_of(g, disk, volume_is_xbootldr);
	esp = first_of(g, disk, volume_is_esp);
	if (boot && !guest_find_mount(g, "/boot") && is_empty_dir(root, "/boot")) {
		add_implicit(g, "/boot", boot);
		*ret_more = true;
	}
	place = esp ? esp_place(g, disk, root) : NULL;
	if (place) {
		add_implicit(g, place, esp);
		*ret_more = true;
	}
	if (*ret_more)
		guest_sort_mounts(g);
}
