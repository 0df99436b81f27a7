/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of a guest: what /boot has to boot, and what /lib/modules has without it. */
#include <stdlib.h>
#include <string.h>

#include "guest-internal.h"

#define KERNELS_MAX 64

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

void guest_forget_kernels(struct guest *g)
{
	for (size_t i = 0; i < g->kernel_count; i++) {
		free(g->kernels[i].version);
		free(g->kernels[i].image);
		free(g->kernels[i].initramfs);
	}
	g->kernel_count = 0;
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

	guest_forget_kernels(g);
	if (rootfs_list(root, "/boot", &boot, err) < 0)
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
	return 0;
}
