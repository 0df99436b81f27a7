/* SPDX-License-Identifier: Apache-2.0 */
/* What a guest's own files say of it: os-release, programs, packages, configuration in /boot. */
#include <elf.h>
#include <string.h>

#include "generator.h"
#include "guest-internal.h"

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

static bool has_word(const char *text, const char *word)
{
	CLEANUP_STRV struct strv words = strv_split(text ? text : "", " \t");

	return strv_has(&words, word);
}

static bool is_el_kin(const char *words)
{
	return has_word(words, "rhel") || has_word(words, "fedora") || has_word(words, "centos");
}

static int read_release(struct guest *g, struct rootfs *root, struct error *err)
{
	const char *path =
		rootfs_exists(root, "/etc/os-release") ? "/etc/os-release" : "/usr/lib/os-release";
	CLEANUP_FREE void *text = NULL;
	CLEANUP_FREE char *like = NULL;

	if (rootfs_read(root, path, GUEST_TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	g->id = release_value(text, "ID");
	like = release_value(text, "ID_LIKE");
	g->version_id = release_value(text, "VERSION_ID");
	g->pretty_name = release_value(text, "PRETTY_NAME");
	if (!g->id)
		g->id = str_copy("linux");
	if (!g->pretty_name)
		g->pretty_name = str_copy(g->id);
	g->is_el = is_el_kin(g->id) || is_el_kin(like);
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

static char *find_grub_dir(const struct guest *g, struct rootfs *root)
{
	/* the family's own first: both may be there after a conversion */
	const char *const dirs[] = {g->is_el ? "/boot/grub2" : "/boot/grub",
	                            g->is_el ? "/boot/grub" : "/boot/grub2"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		CLEANUP_FREE char *cfg = str_format("%s/grub.cfg", dirs[i]);

		if (rootfs_exists(root, cfg))
			return str_copy(dirs[i]);
	}
	return NULL;
}

int guest_read_facts(struct guest *g, struct rootfs *root, struct error *err)
{
	if (read_release(g, root, err) < 0 || guest_refuse_release(g, root, err) < 0 ||
	    guest_read_generator(g, root, err) < 0 || guest_read_kernels(g, root, err) < 0)
		return -1;
	read_arch(g, root);
	g->grub_dir = find_grub_dir(g, root);
	return 0;
}
