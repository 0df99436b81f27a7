/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "generator.h"
#include "generator-internal.h"

const struct generator *generator_find(const char *name)
{
	static const struct generator *const known[] = {&generator_initramfs_tools,
	                                                &generator_dracut};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (str_equal(known[i]->name, name))
			return known[i];
	return NULL;
}

/* The module that mounts a root of this type; ext4's mounts its elders too. */
static const char *root_driver(const struct volume *v)
{
	if (!v->type || str_equal(v->type, "ext2") || str_equal(v->type, "ext3"))
		return "ext4";
	return v->type;
}

void generator_drivers(const char *ret[GENERATOR_DRIVERS_MAX], const struct guest *guest)
{
	const struct volume *root = guest->mounts[0].volume;
	size_t n = 0;

	/* disks of a VM and of bare metal; virtio_pci is what the first two sit on */
	ret[n++] = "virtio_blk";
	ret[n++] = "virtio_scsi";
	ret[n++] = "virtio_pci";
	ret[n++] = "nvme";
	ret[n++] = root_driver(root);
	if (root->lv)
		ret[n++] = "dm_mod";
	ret[n] = NULL;
}

int generator_put_temporary(const char **ret_path, const struct generator *g,
                            const struct guest *guest, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	const char *path = NULL;

	if (!g || !g->temporary || !g->temporary(guest, root, &path, &text))
		return 0;
	if (rootfs_write(root, path, text, strlen(text), 0644, err) < 0)
		return -1;
	*ret_path = path;
	return 0;
}
