/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a guest is one that our stages can handle. */
#include <string.h>

#include "guest.h"

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
