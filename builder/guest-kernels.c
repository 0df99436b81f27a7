/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of a guest: what /boot has, and what only /lib/modules has where kernel-install
 * copies it from there (to an ESP, or into a unified kernel image).
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "guest-internal.h"

#define KERNELS_MAX   64
#define PREFIX        "vmlinuz-"
#define RESCUE_PREFIX "0-rescue-"

void guest_forget_kernels(struct guest *g)
{
	for (size_t i = 0; i < g->kernel_count; i++) {
		free(g->kernels[i].version);
		free(g->kernels[i].image);
		free(g->kernels[i].initramfs);
	}
	g->kernel_count = 0;
}

static char *initramfs_path(const struct guest *g, struct rootfs *root, const char *version)
{
	CLEANUP_FREE char *initrd = str_format("/boot/initrd.img-%s", version);
	CLEANUP_FREE char *initramfs = str_format("/boot/initramfs-%s.img", version);
	bool is_dracut_name =
		g->is_el || (!rootfs_exists(root, initrd) && rootfs_exists(root, initramfs));

	return is_dracut_name ? STEAL(initramfs) : STEAL(initrd);
}

/* EL and Fedora keep a copy of the first kernel with an initramfs for all hardware. */
static bool is_rescue(struct rootfs *root, const char *version)
{
	CLEANUP_FREE char *modules = str_format("/lib/modules/%s", version);

	return str_starts(version, RESCUE_PREFIX) && !rootfs_exists(root, modules);
}

static int add_kernel(struct guest *g, struct rootfs *root, const char *version, const char *image,
                      struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct rootfs_stat st;
	struct guest_kernel k;

	if (g->kernel_count >= KERNELS_MAX) {
		error_set(err, "'/boot' has more than %d kernels", KERNELS_MAX);
		error_hint(err, "remove the kernels that no node boots from the base");
		return error_code(err, EXIT_INPUT);
	}
	k = (struct guest_kernel){
		.version = str_copy(version),
		.image = str_copy(image),
		.initramfs = initramfs_path(g, root, version),
		.rescue = is_rescue(root, version),
	};
	if (rootfs_stat(root, k.initramfs, &st, &ignored) == 1 && S_ISREG(st.mode)) {
		k.has_initramfs = true;
		k.initramfs_bytes = st.size_bytes;
	}
	g->kernels = mem_grow(g->kernels, g->kernel_count + 1, sizeof(k));
	g->kernels[g->kernel_count++] = k;
	return 0;
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
	                                       ".dpkg-new", ".dpkg-tmp", ".dpkg-old",
	                                       ".rpmsave",  ".rpmnew",   ".rpmorig"};

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++)
		if (str_ends(name, suffixes[i]))
			return true;
	return false;
}

static int read_boot(struct guest *g, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(root, "/boot", &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		const char *name = names.items[i];
		CLEANUP_FREE char *path = str_format("/boot/%s", name);

		if (!str_starts(name, PREFIX) || is_leftover(name) || rootfs_is_dir(root, path))
			continue;
		if (!version_is_sane(name + strlen(PREFIX))) {
			CLEANUP_FREE char *shown = str_printable(path, 120);

			error_set(err, "'%s': not a kernel version that we dare to handle", shown);
			return error_code(err, EXIT_INPUT);
		}
		if (add_kernel(g, root, name + strlen(PREFIX), path, err) < 0)
			return -1;
	}
	return 0;
}

/* File names of type 1 entries and unified kernel images, as kernel-install gives them:
 * "TOKEN-VERSION.conf", "TOKEN-VERSION+3.efi". */
static void list_entries(struct strv *ret, struct rootfs *root)
{
	static const char *const dirs[] = {"/boot/loader/entries",     "/boot/EFI/Linux",
	                                   "/efi/loader/entries",      "/efi/EFI/Linux",
	                                   "/boot/efi/loader/entries", "/boot/efi/EFI/Linux"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		CLEANUP_STRV struct strv names = {0};

		rootfs_list(root, dirs[i], &names, &ignored);
		for (size_t j = 0; j < names.count; j++)
			if (str_ends(names.items[j], ".conf") || str_ends(names.items[j], ".efi"))
				strv_add(ret, names.items[j]);
	}
}

static bool has_entry(const struct strv *entries, const char *version)
{
	CLEANUP_FREE char *part = str_format("-%s", version);
	size_t length = strlen(part);

	for (size_t i = 0; i < entries->count; i++) {
		const char *found = strstr(entries->items[i], part);

		/* "-6.1.0-1" is not "-6.1.0-10" */
		if (found && (found[length] == '+' || strcmp(found + length, ".conf") == 0 ||
		              strcmp(found + length, ".efi") == 0))
			return true;
	}
	return false;
}

static bool has_version(const struct guest *g, const char *version)
{
	for (size_t i = 0; i < g->kernel_count; i++)
		if (strcmp(g->kernels[i].version, version) == 0)
			return true;
	return false;
}

/* Every such kernel that an entry names; all of them where entries have names of their own and
 * /boot has no kernel. */
static int read_modules(struct guest *g, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv entries = {0};
	CLEANUP_STRV struct strv versions = {0};
	bool any = g->kernel_count == 0;

	list_entries(&entries, root);
	if (!entries.count)
		return 0; /* nobody would copy it to where a boot loader finds it */
	if (rootfs_list(root, "/lib/modules", &versions, err) < 0)
		return -1;
	for (size_t i = 0; i < versions.count; i++)
		any &= !has_entry(&entries, versions.items[i]);
	for (size_t i = 0; i < versions.count; i++) {
		const char *version = versions.items[i];
		CLEANUP_FREE char *path = str_format("/lib/modules/%s/vmlinuz", version);
		CLEANUP_FREE char *real = NULL;

		if (!version_is_sane(version) || has_version(g, version) ||
		    !(any || has_entry(&entries, version)))
			continue;
		if (rootfs_resolve(root, path, true, &real, err) < 0)
			return -1;
		if (rootfs_exists(root, path) && add_kernel(g, root, version, real, err) < 0)
			return -1;
	}
	return 0;
}

static int compare_kernels(const void *a, const void *b)
{
	return strcmp(((const struct guest_kernel *)a)->version,
	              ((const struct guest_kernel *)b)->version);
}

int guest_read_kernels(struct guest *g, struct rootfs *root, struct error *err)
{
	guest_forget_kernels(g);
	if (read_boot(g, root, err) < 0 || read_modules(g, root, err) < 0)
		return -1;
	if (g->kernel_count)
		qsort(g->kernels, g->kernel_count, sizeof(*g->kernels), compare_kernels);
	return 0;
}
