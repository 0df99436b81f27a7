/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why an image cannot boot with Secure Boot, as far as files tell: programs in its chain that carry
 * no signature at all. Whose a signature is, and whether it holds, only a boot shows.
 */
#include "inspect-internal.h"
#include "uki.h"

#define REMOVABLE_X86 "EFI/BOOT/BOOTX64.EFI"
#define REMOVABLE_ARM "EFI/BOOT/BOOTAA64.EFI"

/* What cannot be read, or is no EFI program, is not. */
static bool is_signed(const struct inspect *in, const char *path)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_CLOSE int fd = rootfs_open_copy(in->root, path, in->work_dir, &ignored);
	CLEANUP_UKI struct uki u = {0};

	if (fd < 0 || uki_read(&u, fd, path, &ignored) < 0)
		return false;
	return u.is_signed;
}

/* What a firmware without boot entries starts: an image brings none. NULL: it is not there. */
static char *removable_loader(const struct inspect *in)
{
	const char *name = str_equal(in->guest->arch, "aarch64") ? REMOVABLE_ARM : REMOVABLE_X86;

	for (size_t i = 0; i < in->chain.esps.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", in->chain.esps.items[i], name);

		if (rootfs_exists(in->root, path))
			return STEAL(path);
	}
	return NULL;
}

/* Unified kernel images, where the chain has them: then nothing boots the kernels beside them. */
static struct strv unsigned_kernels(const struct inspect *in)
{
	struct strv found = {0};
	size_t ukis = 0;

	for (size_t i = 0; i < in->chain.count; i++) {
		const struct boot_entry *e = &in->chain.entries[i];

		if (e->source != BOOT_UKI)
			continue;
		ukis++;
		if (!e->is_signed && !strv_has(&found, e->kernel))
			strv_add(&found, e->kernel);
	}
	for (size_t i = 0; !ukis && i < in->guest->kernel_count; i++) {
		const char *image = in->guest->kernels[i].image;

		if (image && !is_signed(in, image))
			strv_add(&found, image);
	}
	return found;
}

void inspect_secure_boot(struct inspect *in)
{
	struct findings *f = &in->findings;
	CLEANUP_FREE char *loader = removable_loader(in);
	CLEANUP_STRV struct strv kernels = {0};
	CLEANUP_FREE char *names = NULL;

	if (!loader)
		return;
	if (!is_signed(in, loader)) {
		finding_note(f, "boot.secure-boot",
		             "'%s' is not signed: no firmware with Secure Boot starts it (a signed "
		             "shim must stand there)",
		             loader);
		return;
	}
	kernels = unsigned_kernels(in);
	names = strv_join(&kernels, "', '");
	if (kernels.count)
		finding_note(f, "boot.secure-boot",
		             "'%s' is signed, but not '%s': with Secure Boot that does not start",
		             loader, names);
	else
		finding_ok(f, "boot.secure-boot",
		           "boot loader and kernels are signed; whether a firmware with Secure "
		           "Boot takes them, 'gpuimg boot --firmware=uefi-secure-boot' shows");
}
