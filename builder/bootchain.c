/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "bootchain.h"

#define SOURCES_MAX        16
#define GRUB_CFG_MAX_BYTES (4UL * 1024 * 1024)

static int parse_file(struct grub_config *ret, struct rootfs *root, const char *path,
                      struct error *err)
{
	CLEANUP_FREE void *text = NULL;

	if (rootfs_read(root, path, GRUB_CFG_MAX_BYTES, &text, NULL, err) < 0 ||
	    grubcfg_parse(ret, text, path, err) < 0)
		return -1;
	if (!ret->loads_blscfg && !ret->loads_uki)
		return 0;
	error_set(err, "'%s' takes boot entries from elsewhere (%s), which is not supported yet",
	          path, ret->loads_blscfg ? "BLS files" : "unified kernel images");
	return error_code(err, EXIT_INPUT);
}

/* Moves the entries of 'from' behind those of 'to'. */
static void append_entries(struct grub_config *to, struct grub_config *from)
{
	to->entries = mem_grow(to->entries, to->count + from->count, sizeof(*to->entries));
	for (size_t i = 0; i < from->count; i++)
		to->entries[to->count++] = from->entries[i];
	from->count = 0;
}

/*
 * "$prefix/custom.cfg", "${config_directory}/custom.cfg": variables stand for GRUB's own directory.
 * A file that is not there is none that GRUB loads.
 */
static int add_source(struct grub_config *config, struct rootfs *root, const char *source,
                      struct strv *seen, struct error *err)
{
	const char *slash = strrchr(source, '/');
	CLEANUP_FREE char *path = str_format("/boot/grub/%s", slash ? slash + 1 : source);
	CLEANUP_GRUBCFG struct grub_config more = {0};

	if (strv_has(seen, path) || !rootfs_exists(root, path) || rootfs_is_dir(root, path))
		return 0;
	strv_add(seen, path);
	if (seen->count > SOURCES_MAX)
		return error_set(err, "'" BOOTCHAIN_GRUB_CFG "' sources more than %d files",
		                 SOURCES_MAX);
	if (parse_file(&more, root, path, err) < 0)
		return -1;
	append_entries(config, &more);
	strv_add_all(&config->sources, &more.sources);
	return 0;
}

int bootchain_read(struct bootchain *ret, struct rootfs *root, struct error *err)
{
	CLEANUP_GRUBCFG struct grub_config grub = {0};
	CLEANUP_STRV struct strv seen = {0};

	strv_add(&seen, BOOTCHAIN_GRUB_CFG);
	if (parse_file(&grub, root, BOOTCHAIN_GRUB_CFG, err) < 0)
		return -1;
	for (size_t i = 0; i < grub.sources.count; i++)
		if (add_source(&grub, root, grub.sources.items[i], &seen, err) < 0)
			return -1;
	ret->grub = grub;
	grub = (struct grub_config){0};
	return 0;
}

void bootchain_free(struct bootchain *chain)
{
	grubcfg_free(&chain->grub);
}

char *bootchain_guest_path(const struct guest *guest, const char *grub_path)
{
	if (guest_find_mount(guest, "/boot") && !str_starts(grub_path, "/boot/"))
		return str_format("/boot%s", grub_path);
	return str_copy(grub_path);
}
