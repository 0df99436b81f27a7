/* SPDX-License-Identifier: Apache-2.0 */
#include "bootchain.h"

#define GRUB_CFG_MAX_BYTES (4UL * 1024 * 1024)

int bootchain_read(struct bootchain *ret, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	struct grub_config grub = {0};

	if (rootfs_read(root, BOOTCHAIN_GRUB_CFG, GRUB_CFG_MAX_BYTES, &text, NULL, err) < 0 ||
	    grubcfg_parse(&grub, text, BOOTCHAIN_GRUB_CFG, err) < 0)
		return -1;
	ret->grub = grub;
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
