/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why an image cannot boot with Secure Boot, as far as files tell: programs in its chain that carry
 * no signature at all. Whose a signature is, and whether it holds, only a boot shows.
 */
#include <strings.h>

#include "inspect-internal.h"
#include "uki.h"

/* What a firmware without boot entries starts (an image brings none), and what shim then does. */
struct removable {
	const char *loader, *grub;
};

static const struct removable removable_x86 = {"BOOTX64.EFI", "grubx64.efi"};
static const struct removable removable_arm = {"BOOTAA64.EFI", "grubaa64.efi"};

static void tell_unread(struct inspect *in, const struct error *err)
{
	finding_note(&in->findings, "inspect.unread", "%s", err->message);
}

/* 1, or 0 (what is no EFI program is not signed either); -1: it could not be read, and is told. */
static int is_signed(struct inspect *in, const char *path)
{
	CLEANUP_ERROR struct error unread = ERROR_INIT;
	CLEANUP_ERROR struct error no_program = ERROR_INIT;
	CLEANUP_CLOSE int fd = rootfs_open_copy(in->root, path, in->work_dir, &unread);
	CLEANUP_UKI struct uki u = {0};

	if (fd < 0) {
		tell_unread(in, &unread);
		return -1;
	}
	return uki_read(&u, fd, path, &no_program) == 0 && u.is_signed;
}

/* 1: *ret is the path, by a name as FAT takes it: in any case; 0: it is not there; -1: told. */
static int find_name(struct inspect *in, const char *dir, const char *name, char **ret)
{
	CLEANUP_ERROR struct error unread = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(in->root, dir, &names, &unread) < 0) {
		tell_unread(in, &unread);
		return -1;
	}
	for (size_t i = 0; i < names.count; i++) {
		if (strcasecmp(names.items[i], name) != 0)
			continue;
		*ret = str_format("%s/%s", dir, names.items[i]);
		return 1;
	}
	return 0;
}

/* EFI/BOOT of the first ESP that has the loader; the same three results. */
static int find_removable(struct inspect *in, const char *loader, char **ret_dir, char **ret_loader)
{
	for (size_t i = 0; i < in->chain.esps.count; i++) {
		CLEANUP_FREE char *efi = NULL;
		CLEANUP_FREE char *boot = NULL;
		int found = find_name(in, in->chain.esps.items[i], "EFI", &efi);

		if (found == 1)
			found = find_name(in, efi, "BOOT", &boot);
		if (found == 1)
			found = find_name(in, boot, loader, ret_loader);
		if (found == 1)
			*ret_dir = STEAL(boot);
		if (found != 0)
			return found;
	}
	return 0;
}

/* What has no signature, of what was looked at. */
struct looked {
	struct strv at, bare;
	bool unread;
};

static void looked_free(struct looked *l)
{
	strv_free(&l->at);
	strv_free(&l->bare);
}

static void look_at(struct inspect *in, struct looked *l, const char *path)
{
	int is;

	if (strv_has(&l->at, path))
		return;
	strv_add(&l->at, path);
	is = is_signed(in, path);
	if (is == 0)
		strv_add(&l->bare, path);
	l->unread |= is < 0;
}

/* What the entries boot. A kernel that is not there is another point's. */
static void look_at_kernels(struct inspect *in, struct looked *l)
{
	for (size_t i = 0; i < in->chain.count; i++) {
		const struct boot_entry *e = &in->chain.entries[i];

		if (!e->kernel || bootchain_is_memory_test(e))
			continue;
		if (e->source != BOOT_UKI && rootfs_exists(in->root, e->kernel))
			look_at(in, l, e->kernel);
		else if (e->source == BOOT_UKI && !e->is_signed && !strv_has(&l->bare, e->kernel))
			strv_add(&l->bare, e->kernel);
	}
	/* Without an entry that we can read, those that one would be for. */
	for (size_t i = 0; !in->chain.count && i < in->guest->kernel_count; i++)
		if (in->guest->kernels[i].image)
			look_at(in, l, in->guest->kernels[i].image);
}

/* Behind a loader that is signed. */
static void inspect_rest(struct inspect *in, const char *loader, const char *dir, const char *grub)
{
	CLEANUP(looked_free) struct looked l = {0};
	CLEANUP_FREE char *beside = NULL;
	CLEANUP_FREE char *names = NULL;
	int found = find_name(in, dir, grub, &beside);

	if (found == 1)
		look_at(in, &l, beside);
	l.unread |= found < 0;
	look_at_kernels(in, &l);
	names = strv_join(&l.bare, "', '");
	if (l.bare.count)
		finding_note(&in->findings, "boot.secure-boot",
		             "'%s' is signed, but not '%s': with Secure Boot that does not start",
		             loader, names);
	else if (!l.unread)
		finding_ok(&in->findings, "boot.secure-boot",
		           "boot loader and kernels are signed; whether a firmware with Secure "
		           "Boot takes them, 'gpuimg boot --firmware=uefi-secure-boot' shows");
}

void inspect_secure_boot(struct inspect *in)
{
	const struct removable *names =
		str_equal(in->guest->arch, "aarch64") ? &removable_arm : &removable_x86;
	CLEANUP_FREE char *loader = NULL;
	CLEANUP_FREE char *dir = NULL;
	int is;

	if (find_removable(in, names->loader, &dir, &loader) != 1)
		return;
	is = is_signed(in, loader);
	/* Not meant for it: no fault, as nothing of it is promised. */
	if (is == 0)
		finding_ok(&in->findings, "boot.secure-boot",
		           "for firmware without Secure Boot: '%s' is not signed (a signed shim "
		           "must stand there)",
		           loader);
	if (is == 1)
		inspect_rest(in, loader, dir, names->grub);
}
