/* SPDX-License-Identifier: Apache-2.0 */
/* The stages work on a copy of the root, whose changes are written to the overlay at the end. */
#include <string.h>

#include "appliance-tar.h"
#include "backend-internal.h"
#include "data.h"

/* xfs shares blocks of files that were copied, btrfs compresses too: files may hold this many times
 * what their file systems take. */
#define SHARING_FACTOR 8

static const char *grub_fs(const char *type)
{
	if (str_starts(type, "ext"))
		return "ext2";
	return str_equal(type, "vfat") ? "fat" : type;
}

static const struct guest_mount *find_esp(const struct guest *guest)
{
	static const char *const paths[] = {"/boot/efi", "/efi", "/boot"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		const struct guest_mount *m = guest_find_mount(guest, paths[i]);

		if (m && guest_mount_is_fat(m))
			return m;
	}
	return NULL;
}

static void fill_devices(struct build *b)
{
	struct sandbox_devices *d = &b->devices;
	const struct guest_mount *root = &b->guest->mounts[0];
	const struct guest_mount *boot = guest_find_mount(b->guest, "/boot");
	const struct guest_mount *esp = find_esp(b->guest);

	free(b->root_device);
	b->root_device = root->volume->lv ? disk_mapper_name(root->volume->lv) : NULL;
	d->root_uuid = root->volume->uuid;
	d->root_fs = grub_fs(root->volume->type);
	d->root_partuuid = root->volume->partuuid;
	d->root_subvol = root->subvol && *root->subvol ? root->subvol : NULL;
	d->root_device = b->root_device;
	if (boot) {
		d->boot_uuid = boot->volume->uuid;
		d->boot_fs = grub_fs(boot->volume->type);
		d->boot_partuuid = boot->volume->partuuid;
	}
	if (esp) {
		d->esp_uuid = esp->volume->uuid;
		d->esp_partuuid = esp->volume->partuuid;
		d->esp_path = esp->path;
	}
	d->partmap = str_equal(disk_table(b->base_disk), "gpt") ? "gpt" : "msdos";
}

/* Guest programs read a small part of their root: the rest of it is never copied. */
static int extract_lazily(struct build *b, struct error *err)
{
	if (guest_open_again(&b->filler, b->guest, b->base_disk, err) < 0)
		return -1;
	return tree_extract_lazy(&b->tree, b->base_root, b->filler, b->tree_dir, b->log, err);
}

static uint64_t bytes_max(const struct guest *guest)
{
	uint64_t total = 0;

	for (size_t i = 0; i < guest->mount_count; i++)
		if (__builtin_add_overflow(total, guest->mounts[i].volume->size_bytes, &total))
			return UINT64_MAX;
	return __builtin_mul_overflow(total, SHARING_FACTOR, &total) ? UINT64_MAX : total;
}

static int pack_image(struct build *b, const void *opaque, int fd, struct error *err)
{
	(void)opaque;
	return appliance_tar_out(b->reader, fd, err);
}

static int unpack_image(struct build *b, const void *opaque, int fd, struct error *err)
{
	(void)opaque;
	return tree_extract_tar(&b->tree, fd, bytes_max(b->guest), b->tree_dir, b->log, err);
}

/* A root that only the appliance reads: file by file through it would take far longer. */
static int extract_by_appliance(struct build *b, struct error *err)
{
	const struct tar_way way = {.pack = pack_image, .unpack = unpack_image};

	log_step_progress(b->log, -1, "copies the image's files");
	return backend_move_tar(b, &way, err);
}

static int sandbox_open(struct build *b, struct error *err)
{
	CLEANUP_FREE char *data_parent = data_sandbox_parent(b->data_dir);
	struct sandbox_options o = {.data_dir = data_parent, .devices = &b->devices, .log = b->log};

	b->tree_dir = str_format("%s/tree", b->work_dir);
	o.dir = b->tree_dir;
	fill_devices(b);
	if ((b->reader ? extract_by_appliance(b, err) : extract_lazily(b, err)) < 0 ||
	    sandbox_new(&b->sandbox_handle, &o, err) < 0)
		return -1;
	return tree_rootfs(&b->root, b->tree_dir, b->sandbox_handle, err);
}

const struct backend backend_sandbox = {
	.name = "sandbox",
	.open = sandbox_open,
	.commit = backend_sandbox_commit,
};
