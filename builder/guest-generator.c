/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which initramfs generator a guest's kernel hooks run: by packages and hooks. A command's name
 * says nothing: dracut has an 'update-initramfs' of its own from 109 on, on Debian and Ubuntu.
 */
#include <string.h>

#include "generator.h"
#include "packages.h"

#define TEXT_MAX_BYTES   (64UL * 1024)
#define LIST_MAX_BYTES   (4UL * 1024 * 1024)
#define UPDATE_INITRAMFS "/usr/sbin/update-initramfs"
#define KERNEL_INSTALL   "zz-systemd-boot" /* Debian's hook that calls kernel-install */

/* A hook of /etc/kernel/postinst.d, or of where Debian forky's packages have them. */
static bool has_hook(struct rootfs *root, const char *name)
{
	CLEANUP_FREE char *etc = str_format("/etc/kernel/postinst.d/%s", name);
	CLEANUP_FREE char *usr = str_format("/usr/share/kernel/postinst.d/%s", name);

	return rootfs_exists(root, etc) || rootfs_exists(root, usr);
}

/* Whether dpkg's list of a package's files has this one. */
static bool owns(struct rootfs *root, const char *package, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *list = str_format("/var/lib/dpkg/info/%s.list", package);
	CLEANUP_FREE char *merged = str_format("/usr%s", path);
	CLEANUP_STRV struct strv lines = {0};
	CLEANUP_FREE void *text = NULL;

	if (!rootfs_exists(root, list) ||
	    rootfs_read(root, list, LIST_MAX_BYTES, &text, NULL, &ignored) < 0)
		return false;
	lines = strv_split(text, "\n");
	return strv_has(&lines, path) || strv_has(&lines, merged);
}

/* Value of NAME= in a text of such lines, the last one counts; NULL if absent or empty. */
static char *conf_value(const char *text, const char *name)
{
	CLEANUP_STRV struct strv lines = strv_split(text, "\r\n");
	const char *found = NULL;

	for (size_t i = 0; i < lines.count; i++) {
		char *line = str_trim(lines.items[i]);
		char *equals = strchr(line, '=');

		if (*line == '#' || !equals)
			continue;
		*equals = '\0';
		if (str_equal(str_trim(line), name))
			found = str_trim(equals + 1);
	}
	return found && *found ? str_printable(found, 64) : NULL;
}

/* kernel-install's initrd_generator=: of the first of its files that is there. */
static int read_install_conf(char **ret, struct rootfs *root, struct error *err)
{
	static const char *const files[] = {"/etc/kernel/install.conf", "/run/kernel/install.conf",
	                                    "/usr/local/lib/kernel/install.conf",
	                                    "/usr/lib/kernel/install.conf"};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		CLEANUP_FREE void *text = NULL;

		if (!rootfs_exists(root, files[i]))
			continue;
		if (rootfs_read(root, files[i], TEXT_MAX_BYTES, &text, NULL, err) < 0)
			return -1;
		*ret = conf_value(text, "initrd_generator");
		return 0;
	}
	return 0;
}

/* What a guest has of each generator: its program, and for dpkg its package too. */
struct installed {
	const char *status; /* dpkg's record; NULL: none */
	bool tools, dracut, dracut_core;
};

static bool has_package(const struct installed *in, const char *name)
{
	return in->status && packages_has(in->status, name);
}

/* Another generator, that we cannot run; NULL: none of them. */
static const char *find_other(const struct installed *in, struct rootfs *root)
{
	static const char *const programs[][2] = {
		{"mkinitcpio", "/usr/bin/mkinitcpio"},
		{"booster", "/usr/bin/booster"},
		{"mkosi-initrd", "/usr/bin/mkosi-initrd"},
	};

	if (has_package(in, "tiny-initramfs"))
		return "tiny-initramfs";
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (rootfs_exists(root, programs[i][1]))
			return programs[i][0];
	return NULL;
}

/*
 * Both hooks write the same /boot/initrd.img-VERSION, that of initramfs-tools last (run-parts goes
 * by name), but it does nothing if the 'update-initramfs' that it calls is dracut's.
 */
static const char *by_debian_hooks(struct rootfs *root)
{
	bool tools = has_hook(root, "initramfs-tools") && !owns(root, "dracut", UPDATE_INITRAMFS);

	if (tools || !has_hook(root, "dracut"))
		return "initramfs-tools";
	return "dracut";
}

static const char *choose_debian(const struct installed *in, struct rootfs *root)
{
	if (in->tools && in->dracut)
		return by_debian_hooks(root);
	if (in->dracut)
		return "dracut";
	if (in->tools)
		return "initramfs-tools";
	/* Without the package dracut, only kernel-install calls it. */
	if (in->dracut_core && has_hook(root, KERNEL_INSTALL))
		return "dracut";
	return find_other(in, root);
}

static const char *choose_by_files(const struct installed *in, struct rootfs *root)
{
	const char *other = find_other(in, root);

	/* Arch and its kin have mkinitcpio's hook beside a dracut without one. */
	if (in->dracut_core &&
	    (!other || rootfs_exists(root, "/usr/lib/kernel/install.d/50-dracut.install")))
		return "dracut";
	if (other)
		return other;
	return in->tools ? "initramfs-tools" : NULL;
}

/* The one that kernel-install is told to use, if kernel-install is what runs and has it. */
static const char *choose_told(const struct installed *in, struct rootfs *root, const char *told)
{
	const char *other = find_other(in, root);

	if (in->status && !has_hook(root, KERNEL_INSTALL))
		return NULL;
	if (str_equal(told, "dracut") && in->dracut_core)
		return "dracut";
	if (str_equal(told, "initramfs-tools") && in->tools)
		return "initramfs-tools";
	return other && str_equal(told, other) ? other : NULL;
}

int guest_read_generator(struct guest *g, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *status = NULL;
	CLEANUP_FREE char *told = NULL;
	bool dracut_files = rootfs_is_dir(root, "/usr/lib/dracut") &&
	                    generator_find("dracut")->find_program(root);
	bool tools_files = generator_find("initramfs-tools")->find_program(root) != NULL;
	struct installed in = {.dracut_core = dracut_files, .tools = tools_files};
	const char *name;

	if (packages_read_status(&status, root, err) < 0 || read_install_conf(&told, root, err) < 0)
		return -1;
	in.status = status;
	if (status) {
		in.tools = packages_has(status, "initramfs-tools");
		in.dracut = packages_has(status, "dracut");
		in.dracut_core = in.dracut || packages_has(status, "dracut-core");
	}
	name = choose_told(&in, root, told);
	if (!name)
		name = status ? choose_debian(&in, root) : choose_by_files(&in, root);
	free(g->generator);
	g->generator = str_copy(name ? name : "none");
	return 0;
}
