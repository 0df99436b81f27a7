/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dracut (Enterprise Linux 9 and 10, Fedora, Debian from 13 on, Ubuntu from 25.10 on; sources of
 * 057, 106 and 112 were read for it). Always generic: in host-only mode it would look at the
 * machine that builds. In generic mode it copies /usr/lib/modprobe.d and never /etc/modprobe.d, so
 * the block stands in both, and its configuration names both files.
 */
#include <string.h>

#include "generator-internal.h"

#define PROGRAM_MAX_BYTES (1024UL * 1024)

static const char *find_program(struct rootfs *root)
{
	static const char *const programs[] = {"/usr/bin/dracut", "/usr/sbin/dracut",
	                                       "/sbin/dracut"};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (rootfs_exists(root, programs[i]))
			return programs[i];
	return NULL;
}

/* 049 of Enterprise Linux 8 ends at once on this option, which came later (2021). It is a script.
 */
static bool has_no_uefi(struct rootfs *root, const char *program)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE void *text = NULL;

	return rootfs_read(root, program, PROGRAM_MAX_BYTES, &text, NULL, &ignored) < 0 ||
	       strstr(text, "no-uefi") != NULL;
}

static void make_argv(struct strv *ret, struct rootfs *root, const char *program,
                      const char *version, const char *output)
{
	/* /tmp is in memory in the sandbox, /var/tmp on the disk. */
	static const char *const options[] = {
		"--force",  "--no-hostonly", "--no-hostonly-cmdline", "--reproducible", "--tmpdir",
		"/var/tmp", "--kver"};

	strv_add(ret, program);
	/* An image may be configured to make unified kernel images of its own; that is not this
	 * file. */
	if (has_no_uefi(root, program))
		strv_add(ret, "--no-uefi");
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		strv_add(ret, options[i]);
	strv_add(ret, version);
	strv_add(ret, output);
}

/* The file is sourced by a shell. */
static bool is_module_name(const char *name)
{
	return *name && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                             "0123456789_-") == strlen(name);
}

/* With '_', as the kernel has it: dracut up to 106 makes only the first '-' of the list one. */
static void add_module(struct strv *to, const char *name)
{
	CLEANUP_FREE char *canonical = str_copy(name);

	if (!is_module_name(name))
		return;
	for (char *at = canonical; *at; at++)
		if (*at == '-')
			*at = '_';
	if (!strv_has(to, canonical))
		strv_add(to, canonical);
}

/* Names that NVIDIA's modules have, and that Debian gives them: "nvidia_current_open_uvm". What is
 * installed on the node later has one of these, too. */
static void add_nvidia(struct strv *to)
{
	static const char *const families[] = {
		"nvidia",           "nvidia_current",   "nvidia_current_open",  "nvidia_tesla",
		"nvidia_tesla_470", "nvidia_tesla_535", "nvidia_tesla_535_open"};
	static const char *const parts[] = {"", "_modeset", "_drm", "_uvm", "_peermem"};

	for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++)
		for (size_t p = 0; p < sizeof(parts) / sizeof(parts[0]); p++) {
			CLEANUP_FREE char *name = str_format("%s%s", families[f], parts[p]);

			add_module(to, name);
		}
	add_module(to, "nvidia_fs");
	add_module(to, "nvidia_vgpu_vfio");
}

/*
 * What is blocked, and what else drives a GPU of a node: none of it is of use before the root is
 * there, and 'drm', which a boot splash pulls in, takes all of it with its firmware, some 130 MiB.
 */
static void add_omitted(struct strv *to, const struct generator_conf *conf)
{
	for (size_t i = 0; i < conf->blocked->count; i++)
		add_module(to, conf->blocked->items[i]);
	add_nvidia(to);
	add_module(to, "amdgpu");
	for (size_t i = 0; i < conf->gpu_modules->count; i++)
		add_module(to, conf->gpu_modules->items[i]);
}

/* "VG/LV" of "/dev/VG/LV", if it holds nothing but what LVM allows in names; else NULL. */
static const char *lvm_name(const char *lv)
{
	const char *name = str_starts(lv, "/dev/") ? lv + strlen("/dev/") : "";

	return *name && !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	                                   "0123456789+_.-/")]
	               ? name
	               : NULL;
}

/*
 * What mounts the root beside its driver: dracut's own module, whose programs the image has. A
 * generic initramfs activates only the volumes that it is told of; host-only ones, as the base's
 * may have been, hold that name themselves, and the kernel's command line need not.
 */
static char *root_support(const struct guest *guest)
{
	const struct volume *root = guest->mounts[0].volume;
	const char *volume = root->lv ? lvm_name(root->lv) : NULL;

	if (volume)
		return str_format("add_dracutmodules+=\" lvm \"\n"
		                  "kernel_cmdline+=\" rd.lvm.lv=%s \"\n",
		                  volume);
	if (root->lv)
		return str_copy("add_dracutmodules+=\" lvm \"\n"
		                "kernel_cmdline+=\" rd.auto \"\n");
	return str_copy(str_equal(root->type, "btrfs") ? "add_dracutmodules+=\" btrfs \"\n" : "");
}

static char *conf_text(const struct generator_conf *conf)
{
	CLEANUP_STRV struct strv omit = {0};
	CLEANUP_STRV struct strv add = {0};
	CLEANUP_FREE char *items = strv_join(conf->block_paths, " ");
	CLEANUP_FREE char *omitted = NULL;
	CLEANUP_FREE char *added = NULL;
	CLEANUP_FREE char *support = root_support(conf->guest);
	const char *drivers[GENERATOR_DRIVERS_MAX];

	add_omitted(&omit, conf);
	generator_drivers(drivers, conf->guest);
	for (size_t i = 0; drivers[i]; i++)
		add_module(&add, drivers[i]);
	omitted = strv_join(&omit, " ");
	added = strv_join(&add, " ");
	return str_format(
		"# GPU node: each initramfs keeps nouveau and its kin off the card, and finds any "
		"disk.\n"
		"# Generic dracut does not copy /etc/modprobe.d; host-only dracut fits one machine.\n"
		"# On a node: lsinitrd | grep -e gpuimg -e nouveau shows the block's files alone.\n"
		"\n"
		"# SPDX-License-Identifier: Apache-2.0\n"
		"hostonly=\"no\"\n"
		"hostonly_cmdline=\"no\"\n"
		"%s%s%s"
		"omit_drivers+=\" %s \"\n"
		"add_drivers+=\" %s \"\n"
		"%s",
		*items ? "install_items+=\" " : "", items, *items ? " \"\n" : "", omitted, added,
		support);
}

/* Both under one name: kmod takes the file in /etc and not the other one; they are the same. */
static const char *const block_paths[] = {"/etc/modprobe.d/" GENERATOR_BLOCK_NAME,
                                          "/usr/lib/modprobe.d/" GENERATOR_BLOCK_NAME, NULL};

const struct generator generator_dracut = {
	.name = "dracut",
	.package = "dracut-core",
	.find_program = find_program,
	.make_argv = make_argv,
	.conf_path = "/etc/dracut.conf.d/zz-gpuimg.conf", /* files are read in the order of names */
	.conf_text = conf_text,
	.block_paths = block_paths,
	.cure_drivers = "set hostonly=\"no\" in the image's /etc/dracut.conf.d and rebuild it",
	.cure_gpu = "name it in omit_drivers in the image's /etc/dracut.conf.d and rebuild it",
};
