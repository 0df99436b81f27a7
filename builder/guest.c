/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "appliance.h"
#include "extfs.h"
#include "guest.h"

#define TEXT_MAX_BYTES   (1024UL * 1024)
#define STATUS_MAX_BYTES (64UL * 1024 * 1024)
#define BINARY_MAX_BYTES (16UL * 1024 * 1024)
#define KERNELS_MAX      64

void guest_free(struct guest *g)
{
	if (!g)
		return;
	for (size_t i = 0; i < g->mount_count; i++) {
		free(g->mounts[i].path);
		free(g->mounts[i].type);
	}
	for (size_t i = 0; i < g->kernel_count; i++) {
		free(g->kernels[i].version);
		free(g->kernels[i].image);
		free(g->kernels[i].initramfs);
	}
	strv_free(&g->kernels_without_image);
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

/* Value of NAME= in an os-release(5) text, quotes taken off; NULL if absent. */
static char *release_value(const char *text, const char *name)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\n");

	for (size_t i = 0; i < lines.count; i++) {
		char *value = strchr(lines.items[i], '=');
		size_t length;

		if (!value)
			continue;
		*value++ = '\0';
		if (strcmp(str_trim(lines.items[i]), name) != 0)
			continue;
		value = str_trim(value);
		length = strlen(value);
		if (length >= 2 && (*value == '"' || *value == '\'') &&
		    value[length - 1] == *value) {
			value[length - 1] = '\0';
			value++;
		}
		return str_printable(value, 200);
	}
	return NULL;
}

static const char *machine_name(unsigned machine)
{
	switch (machine) {
	case EM_X86_64:
		return "x86_64";
	case EM_386:
		return "i386";
	case EM_AARCH64:
		return "aarch64";
	case EM_RISCV:
		return "riscv64";
	case EM_PPC64:
		return "ppc64";
	case EM_S390:
		return "s390x";
	case EM_ARM:
		return "arm";
	}
	return "unknown";
}

static void read_arch(struct guest *g, struct rootfs *root)
{
	static const char *const programs[] = {"/bin/true", "/usr/bin/true", "/bin/sh",
	                                       "/usr/bin/env", "/sbin/init"};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]) && !g->arch; i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		CLEANUP_FREE void *data = NULL;
		const unsigned char *elf;
		size_t size;

		if (!rootfs_exists(root, programs[i]) ||
		    rootfs_read(root, programs[i], BINARY_MAX_BYTES, &data, &size, &ignored) < 0)
			continue;
		elf = data;
		if (size < 20 || memcmp(elf, ELFMAG, SELFMAG) != 0)
			continue;
		g->arch = str_copy(machine_name(elf[EI_DATA] == ELFDATA2MSB
		                                        ? (unsigned)(elf[18] << 8 | elf[19])
		                                        : (unsigned)(elf[19] << 8 | elf[18])));
	}
	if (!g->arch)
		g->arch = str_copy("unknown");
}

bool guest_dpkg_installed(const char *status, const char *package)
{
	CLEANUP_FREE char *header = str_format("Package: %s\n", package);
	const char *at = status;

	while ((at = strstr(at, header))) {
		const char *end = strstr(at, "\n\n");
		const char *state = strstr(at, "\nStatus: ");

		if ((at == status || at[-1] == '\n') && state && (!end || state < end))
			return strncmp(state + 9, "install ok installed", 20) == 0 ||
			       strncmp(state + 9, "hold ok installed", 17) == 0;
		at += strlen(header);
	}
	return false;
}

/* initramfs-tools, dracut…: by package, then by what only that generator ships. */
static int read_generator(struct guest *g, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE void *status = NULL;
	bool tools, dracut;

	if (!rootfs_exists(root, "/var/lib/dpkg/status")) {
		g->generator = str_copy(rootfs_exists(root, "/usr/bin/dracut")       ? "dracut"
		                        : rootfs_exists(root, "/usr/bin/mkinitcpio") ? "mkinitcpio"
		                                                                     : "none");
		return 0;
	}
	if (rootfs_read(root, "/var/lib/dpkg/status", STATUS_MAX_BYTES, &status, NULL, err) < 0)
		return -1;
	tools = guest_dpkg_installed(status, "initramfs-tools");
	dracut = guest_dpkg_installed(status, "dracut");
	g->has_cloud_init = guest_dpkg_installed(status, "cloud-init");
	/* Where both are installed, dracut owns the kernel hooks (Debian forky, Ubuntu 25.10). */
	g->generator = str_copy(dracut                                           ? "dracut"
	                        : tools                                          ? "initramfs-tools"
	                        : guest_dpkg_installed(status, "tiny-initramfs") ? "tiny-initramfs"
	                                                                         : "none");
	return 0;
}

static bool has_conf_entry(struct rootfs *root, const char *dir)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};

	rootfs_list(root, dir, &names, &ignored);
	for (size_t i = 0; i < names.count; i++)
		if (str_ends(names.items[i], ".conf"))
			return true;
	return false;
}

static char *find_loader(struct rootfs *root)
{
	if (rootfs_exists(root, "/ostree") || rootfs_exists(root, "/sysroot/ostree"))
		return str_copy("ostree (an immutable root)");
	if (has_conf_entry(root, "/boot/loader/entries") ||
	    has_conf_entry(root, "/boot/efi/loader/entries"))
		return str_copy(rootfs_is_dir(root, "/boot/grub2")
		                        ? "GRUB with BLS entries in '/boot/loader/entries'"
		                        : "BLS type 1 entries in '/boot/loader/entries'");
	if (rootfs_exists(root, "/boot/grub/grub.cfg"))
		return str_copy("grub");
	if (rootfs_exists(root, "/boot/grub2/grub.cfg"))
		return str_copy("GRUB in '/boot/grub2'");
	if (rootfs_exists(root, "/boot/extlinux/extlinux.conf"))
		return str_copy("extlinux in '/boot/extlinux'");
	return str_copy("no boot loader configuration in '/boot'");
}

static void add_kernel(struct guest *g, struct rootfs *root, const char *version)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct rootfs_stat st;
	struct guest_kernel k = {
		.version = str_copy(version),
		.image = str_format("/boot/vmlinuz-%s", version),
		.initramfs = str_format("/boot/initrd.img-%s", version),
	};

	if (rootfs_stat(root, k.initramfs, &st, &ignored) == 1 && S_ISREG(st.mode)) {
		k.has_initramfs = true;
		k.initramfs_bytes = st.size_bytes;
	}
	g->kernels = mem_grow(g->kernels, g->kernel_count + 1, sizeof(k));
	g->kernels[g->kernel_count++] = k;
}

static void drop_kernels(struct guest *g)
{
	for (size_t i = 0; i < g->kernel_count; i++) {
		free(g->kernels[i].version);
		free(g->kernels[i].image);
		free(g->kernels[i].initramfs);
	}
	g->kernel_count = 0;
	strv_free(&g->kernels_without_image);
}

/* Version strings end up in paths and argv: what no distribution's kernel has is refused. */
static bool version_is_sane(const char *version)
{
	return *version && *version != '.' && *version != '-' && strlen(version) < 128 &&
	       strspn(version, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	                       ".-_+~") == strlen(version);
}

static bool is_leftover(const char *name)
{
	static const char *const suffixes[] = {".old",      ".bak",      ".dpkg-bak",
	                                       ".dpkg-new", ".dpkg-tmp", ".dpkg-old"};

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (str_ends(name, suffixes[i]))
			return true;
	return false;
}

int guest_read_kernels(struct guest *g, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv boot = {0};
	CLEANUP_STRV struct strv modules = {0};

	drop_kernels(g);
	if (rootfs_list(root, "/boot", &boot, err) < 0 ||
	    rootfs_list(root, "/lib/modules", &modules, err) < 0)
		return -1;
	for (size_t i = 0; i < boot.count && g->kernel_count < KERNELS_MAX; i++) {
		const char *version = boot.items[i] + strlen("vmlinuz-");

		if (!str_starts(boot.items[i], "vmlinuz-") || is_leftover(boot.items[i]))
			continue;
		if (!version_is_sane(version)) {
			CLEANUP_FREE char *shown = str_printable(boot.items[i], 120);

			error_set(err, "'/boot/%s': not a kernel version that we dare to handle",
			          shown);
			return error_code(err, EXIT_INPUT);
		}
		add_kernel(g, root, version);
	}
	for (size_t i = 0; i < modules.count; i++) {
		CLEANUP_FREE char *image = str_format("/boot/vmlinuz-%s", modules.items[i]);

		if (version_is_sane(modules.items[i]) && !rootfs_exists(root, image))
			strv_add(&g->kernels_without_image, modules.items[i]);
	}
	return 0;
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

static int no_system(struct disk *disk, struct error *err)
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
	return error_code(err, EXIT_INPUT);
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
	if (!found)
		return no_system(disk, err);
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
	if (rootfs_read(root, "/etc/fstab", TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	lines = strv_split(text, "\n");
	for (size_t i = 0; i < lines.count; i++)
		if (read_mount(g, disk, lines.items[i], err) < 0)
			return -1;
	qsort(g->mounts, g->mount_count, sizeof(*g->mounts), compare_mounts);
	return 0;
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

		if (ext && !extfs_supports(m->volume))
			continue; /* the ESP; nothing of ours reads it */
		if (ext ? extfs_mount(r, m->path, m->volume, err) < 0
		        : appliance_mount(appliance, m->volume, m->path, err) < 0)
			return -1;
	}
	*ret = STEAL(r);
	return 0;
}

static int read_release(struct guest *g, struct rootfs *root, struct error *err)
{
	const char *path =
		rootfs_exists(root, "/etc/os-release") ? "/etc/os-release" : "/usr/lib/os-release";
	CLEANUP_FREE void *text = NULL;

	if (rootfs_read(root, path, TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	g->id = release_value(text, "ID");
	g->version_id = release_value(text, "VERSION_ID");
	g->pretty_name = release_value(text, "PRETTY_NAME");
	if (!g->id)
		g->id = str_copy("linux");
	if (!g->pretty_name)
		g->pretty_name = str_copy(g->id);
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
	if (open_mounted(&root, g, disk, appliance, err) < 0 || read_release(g, root, err) < 0 ||
	    read_generator(g, root, err) < 0 || guest_read_kernels(g, root, err) < 0)
		return error_prefix(err, "image '%s'", disk_path(disk));
	read_arch(g, root);
	g->loader = find_loader(root);
	*ret = STEAL(g);
	*ret_root = STEAL(root);
	return 0;
}

const struct guest_mount *guest_find_mount(const struct guest *guest, const char *path)
{
	for (size_t i = 0; i < guest->mount_count; i++)
		if (strcmp(guest->mounts[i].path, path) == 0)
			return &guest->mounts[i];
	return NULL;
}

static int refuse_chain(const struct guest *g, const char *what, const char *found,
                        struct error *err)
{
	error_set(err,
	          "the image (%s) boots with %s: %s; only GRUB with initramfs-tools is supported",
	          g->pretty_name, what, found);
	error_hint(err, "use a Debian or Ubuntu base with GRUB and initramfs-tools");
	return error_code(err, EXIT_INPUT);
}

static int check_kernels(const struct guest *g, struct rootfs *root, struct error *err)
{
	if (g->kernel_count == 0) {
		error_set(err, "the image (%s) has no kernel in /boot ('/boot/vmlinuz-*')",
		          g->pretty_name);
		error_hint(err, "if /boot is a partition of its own, the image's /etc/fstab must "
		                "name it");
		return error_code(err, EXIT_INPUT);
	}
	for (size_t i = 0; i < g->kernel_count; i++) {
		CLEANUP_FREE char *dep =
			str_format("/lib/modules/%s/modules.dep", g->kernels[i].version);

		if (rootfs_exists(root, dep))
			continue;
		error_set(err, "kernel '%s' has no modules: '%s' is missing", g->kernels[i].image,
		          dep);
		error_hint(err, "remove that kernel from the base or install its modules");
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

int guest_check_supported(const struct guest *g, struct rootfs *root, struct error *err)
{
	const char *host = "x86_64";

	if (strcmp(g->arch, host) != 0) {
		error_set(err, "the image (%s) is for '%s'; this build makes '%s' images only",
		          g->pretty_name, g->arch, host);
		return error_code(err, EXIT_INPUT);
	}
	if (strcmp(g->loader, "grub") != 0)
		return refuse_chain(g, "a boot loader that we do not handle yet", g->loader, err);
	if (strcmp(g->generator, "initramfs-tools") != 0)
		return refuse_chain(g, "another initramfs generator", g->generator, err);
	return check_kernels(g, root, err);
}
