/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest's own files say of it: os-release, programs, packages, configuration in /boot. */
#include <elf.h>
#include <string.h>

#include "guest-internal.h"
#include "packages.h"

#define BINARY_MAX_BYTES (16UL * 1024 * 1024)

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

static int read_release(struct guest *g, struct rootfs *root, struct error *err)
{
	const char *path =
		rootfs_exists(root, "/etc/os-release") ? "/etc/os-release" : "/usr/lib/os-release";
	CLEANUP_FREE void *text = NULL;

	if (rootfs_read(root, path, GUEST_TEXT_MAX_BYTES, &text, NULL, err) < 0)
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

/* initramfs-tools, dracut…: by package, then by what only that generator ships. */
static int read_generator(struct guest *g, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *status = NULL;
	bool tools, dracut;

	if (packages_read_status(&status, root, err) < 0)
		return -1;
	if (!status) {
		g->generator = str_copy(rootfs_exists(root, "/usr/bin/dracut")       ? "dracut"
		                        : rootfs_exists(root, "/usr/bin/mkinitcpio") ? "mkinitcpio"
		                                                                     : "none");
		return 0;
	}
	tools = packages_has(status, "initramfs-tools");
	dracut = packages_has(status, "dracut");
	/* Where both are installed, dracut owns the kernel hooks (Debian forky, Ubuntu 25.10). */
	g->generator = str_copy(dracut                                   ? "dracut"
	                        : tools                                  ? "initramfs-tools"
	                        : packages_has(status, "tiny-initramfs") ? "tiny-initramfs"
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

int guest_read_facts(struct guest *g, struct rootfs *root, struct error *err)
{
	if (read_release(g, root, err) < 0 || read_generator(g, root, err) < 0 ||
	    guest_read_kernels(g, root, err) < 0)
		return -1;
	read_arch(g, root);
	g->loader = find_loader(root);
	return 0;
}
