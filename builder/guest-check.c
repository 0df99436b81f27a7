/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a guest is one that our stages can handle. */
#include <string.h>

#include "generator.h"
#include "guest-internal.h"

#define ARCH "x86_64" /* of the guests whose programs we run, and of the cards we know */

static int refuse_generator(const struct guest *g, struct error *err)
{
	if (strcmp(g->generator, "none") == 0)
		error_set(err,
		          "the image (%s) has no initramfs generator that we know, and its "
		          "initramfs could not be rebuilt",
		          g->pretty_name);
	else
		error_set(err, "the image (%s) makes its initramfs with %s, which is not supported",
		          g->pretty_name, g->generator);
	error_hint(err, "use a base with initramfs-tools or dracut");
	return error_code(err, EXIT_INPUT);
}

static int no_kernel(const struct guest *g, struct rootfs *root, struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv modules = {0};

	rootfs_list(root, "/lib/modules", &modules, &ignored);
	if (modules.count) {
		CLEANUP_FREE char *shown = str_printable(modules.items[0], 120);

		error_set(err,
		          "the image (%s) has no kernel in /boot ('/boot/vmlinuz-*'), but modules "
		          "of one ('/lib/modules/%s')",
		          g->pretty_name, shown);
	} else {
		error_set(err, "the image (%s) has no kernel ('/boot/vmlinuz-*')", g->pretty_name);
	}
	error_hint(err,
	           "if /boot is a partition of its own, the image's /etc/fstab must name it; a "
	           "container's root file system has no kernel");
	return error_code(err, EXIT_INPUT);
}

static int check_kernels(const struct guest *g, struct rootfs *root, struct error *err)
{
	size_t own = 0;

	for (size_t i = 0; i < g->kernel_count; i++) {
		CLEANUP_FREE char *dep =
			str_format("/lib/modules/%s/modules.dep", g->kernels[i].version);

		if (g->kernels[i].rescue)
			continue;
		own++;
		if (rootfs_exists(root, dep))
			continue;
		error_set(err, "kernel '%s' has no modules: '%s' is missing", g->kernels[i].image,
		          dep);
		error_hint(err, "remove that kernel from the base or install its modules");
		return error_code(err, EXIT_INPUT);
	}
	return own ? 0 : no_kernel(g, root, err);
}

/* Its kernels, initramfs and entries have names and places of their own. */
static int refuse_suse(const struct guest *g, struct error *err)
{
	if (!str_starts(g->id, "opensuse") && !str_starts(g->id, "sle"))
		return 0;
	error_set(err,
	          "the image (%s) is of the SUSE family, whose boot chain is not supported: its "
	          "initramfs are '/boot/initrd-VERSION'",
	          g->pretty_name);
	error_hint(err, "use a Debian, Ubuntu or Enterprise Linux base");
	return error_code(err, EXIT_INPUT);
}

/* GRUB counts paths from the top of the file system, its generator's stand-in from /boot. */
static int check_boot_mount(const struct guest *g, struct error *err)
{
	const struct guest_mount *m = guest_find_mount(g, "/boot");

	if (!m || !str_equal(m->volume->type, "btrfs"))
		return 0;
	error_set(err,
	          "the image (%s) has /boot on a btrfs file system or subvolume of its own, which "
	          "is not supported",
	          g->pretty_name);
	error_hint(err, "use a base with /boot in the root's subvolume, or on ext4");
	return error_code(err, EXIT_INPUT);
}

int guest_check_supported(const struct guest *g, struct rootfs *root, struct error *err)
{
	if (strcmp(g->arch, ARCH) != 0) {
		error_set(err, "the image (%s) is for '%s'; this build makes '%s' images only",
		          g->pretty_name, g->arch, ARCH);
		return error_code(err, EXIT_INPUT);
	}
	if (refuse_suse(g, err) < 0 || check_boot_mount(g, err) < 0)
		return -1;
	if (!generator_find(g->generator))
		return refuse_generator(g, err);
	return check_kernels(g, root, err);
}
