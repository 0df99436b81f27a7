/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "bootchain-internal.h"
#include "json-text.h"
#include "uki.h"

static void free_entry(struct boot_entry *e)
{
	free(e->file);
	free(e->title);
	free(e->version);
	free(e->kernel);
	strv_free(&e->initrds);
	strv_free(&e->args);
}

void bootchain_free(struct bootchain *chain)
{
	for (size_t i = 0; i < chain->count; i++)
		free_entry(&chain->entries[i]);
	for (size_t i = 0; i < chain->stub_count; i++)
		free(chain->stubs[i].path);
	free(chain->entries);
	free(chain->stubs);
	free(chain->grub_cfg);
	free(chain->grubenv);
	free(chain->systemd_boot);
	strv_free(&chain->bls_dirs);
	strv_free(&chain->uki_dirs);
	strv_free(&chain->esps);
	strv_free(&chain->unreadable);
	*chain = (struct bootchain){0};
}

struct boot_entry *chain_add(struct bootchain *chain)
{
	chain->entries = mem_grow(chain->entries, chain->count + 1, sizeof(*chain->entries));
	chain->entries[chain->count] = (struct boot_entry){0};
	return &chain->entries[chain->count++];
}

int chain_note_unreadable(struct chain_reader *r, struct error *from, struct error *err)
{
	if (from->code != EXIT_INPUT)
		return error_take(err, from);
	strv_add(&r->chain->unreadable, from->message);
	return 0;
}

bool chain_is_recovery(const struct strv *args)
{
	static const char *const words[] = {"single", "recovery", "rescue", "S", "s", "1"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strv_has(args, words[i]))
			return true;
	return strv_has(args, "systemd.unit=rescue.target") ||
	       strv_has(args, "systemd.unit=emergency.target");
}

int chain_identify(struct chain_reader *r, const char *path, const char **ret, struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_UKI struct uki u = {0};
	CLEANUP_CLOSE int fd = -1;

	*ret = NULL;
	if (!rootfs_exists(r->root, path) || rootfs_is_dir(r->root, path))
		return 0;
	fd = rootfs_open_copy(r->root, path, r->work_dir, err);
	if (fd < 0)
		return -1;
	if (uki_read(&u, fd, path, &ignored) < 0)
		*ret = "unknown";
	else
		*ret = uki_identify(&u, fd);
	return 0;
}

/* Where firmware and boot loaders look: each FAT mount of the guest below /boot or at /efi, and a
 * /boot that systemd-boot reads beside it (XBOOTLDR). */
static void find_esps(struct chain_reader *r)
{
	for (size_t i = 0; i < r->guest->mount_count; i++) {
		const struct guest_mount *m = &r->guest->mounts[i];

		if (str_equal(m->volume->type, "vfat") &&
		    (str_equal(m->path, "/efi") || str_equal(m->path, "/boot") ||
		     str_starts(m->path, "/boot/")))
			strv_add(&r->chain->esps, m->path);
	}
}

static int find_systemd_boot(struct chain_reader *r, const char *esp, struct error *err)
{
	static const char *const programs[] = {
		"EFI/systemd/systemd-bootx64.efi", "EFI/BOOT/BOOTX64.EFI",
		"EFI/systemd/systemd-bootaa64.efi", "EFI/BOOT/BOOTAA64.EFI"};

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", esp, programs[i]);
		CLEANUP_ERROR struct error refused = ERROR_INIT;
		const char *kind;

		if (chain_identify(r, path, &kind, err) < 0)
			return -1;
		if (str_equal(kind, "systemd-boot") && !r->chain->systemd_boot)
			r->chain->systemd_boot = str_copy(path);
		if (str_equal(kind, "uki") && chain_read_ukis(r, path, &refused) < 0 &&
		    chain_note_unreadable(r, &refused, err) < 0)
			return -1;
	}
	return 0;
}

/* A directory that boot loaders read; several names of one directory are read once. */
static int read_dir(struct chain_reader *r, struct strv *seen, const char *at, const char *below,
                    int (*read)(struct chain_reader *, const char *, struct error *),
                    struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/%s", at, below);
	CLEANUP_FREE char *real = NULL;

	if (!rootfs_is_dir(r->root, path))
		return 0;
	if (rootfs_resolve(r->root, path, true, &real, err) < 0)
		return -1;
	if (strv_has(seen, real))
		return 0;
	strv_add(seen, real);
	return read(r, real, err);
}

/*
 * Type 1 entries count where something reads them: GRUB's blscfg in /boot, systemd-boot on the ESP
 * and in an XBOOTLDR partition at /boot. A UKI counts on each of these partitions, since a firmware
 * may boot it without a loader, and elsewhere if GRUB boots it. What a change of the boot loader
 * left in a /boot that neither can read is none.
 */
static int read_loader_dirs(struct chain_reader *r, struct error *err)
{
	struct bootchain *c = r->chain;
	CLEANUP_STRV struct strv places = {0};

	strv_add_all(&places, &c->esps);
	if (!strv_has(&places, "/boot"))
		strv_add(&places, "/boot");
	for (size_t i = 0; i < places.count; i++) {
		bool is_boot = strcmp(places.items[i], "/boot") == 0;
		bool is_fat = strv_has(&c->esps, places.items[i]);

		if ((c->systemd_boot && is_fat) || (is_boot && c->grub_reads_bls))
			if (read_dir(r, &c->bls_dirs, places.items[i], "loader/entries",
			             chain_read_bls, err) < 0)
				return -1;
		if (!is_fat && !r->reads_uki)
			continue;
		if (read_dir(r, &c->uki_dirs, places.items[i], "EFI/Linux", chain_read_ukis, err) <
		    0)
			return -1;
	}
	return 0;
}

static int read_all(struct chain_reader *r, struct error *err)
{
	find_esps(r);
	if (chain_read_grub(r, err) < 0)
		return -1;
	for (size_t i = 0; i < r->chain->esps.count; i++)
		if (find_systemd_boot(r, r->chain->esps.items[i], err) < 0)
			return -1;
	return read_loader_dirs(r, err);
}

int bootchain_read(struct bootchain *ret, struct rootfs *root, const struct guest *guest,
                   const char *work_dir, struct error *err)
{
	CLEANUP_BOOTCHAIN struct bootchain chain = {0};
	struct chain_reader r = {
		.chain = &chain, .root = root, .guest = guest, .work_dir = work_dir};
	int result = read_all(&r, err);

	free(r.kernelopts);
	if (result < 0)
		return -1;
	if (chain.count > BOOTCHAIN_MAX_ENTRIES) {
		error_set(err, "the image has more than %d boot entries", BOOTCHAIN_MAX_ENTRIES);
		return error_code(err, EXIT_INPUT);
	}
	*ret = chain;
	chain = (struct bootchain){0};
	return 0;
}

char *bootchain_entry_name(const struct boot_entry *e)
{
	if (e->source == BOOT_GRUB)
		return str_format("entry '%s' (line %d)", e->title, e->line);
	return str_format("entry '%s'", e->file);
}

char *bootchain_loader_name(const struct bootchain *chain)
{
	CLEANUP_STRV struct strv names = {0};
	bool ukis = false;

	for (size_t i = 0; i < chain->count; i++)
		ukis |= chain->entries[i].source == BOOT_UKI;
	if (chain->grub_cfg)
		strv_add(&names, chain->grub_reads_bls ? "GRUB with BLS entries" : "GRUB");
	if (chain->systemd_boot)
		strv_add(&names, "systemd-boot");
	if (ukis)
		strv_add(&names, "unified kernel images");
	return names.count ? strv_join(&names, ", ") : str_copy("no boot loader that is known");
}

json_t *bootchain_entry_json(const struct boot_entry *e)
{
	static const char *const sources[] = {
		[BOOT_GRUB] = "grub", [BOOT_BLS] = "bls", [BOOT_UKI] = "uki"};
	CLEANUP_FREE char *args = strv_join(&e->args, " ");

	return json_pack("{s:s, s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:b}", "source",
	                 sources[e->source], "file", json_text(e->file), "line", e->line, "title",
	                 json_text(e->title), "version", json_text(e->version), "kernel",
	                 json_text(e->kernel), "initrd", json_text_list(&e->initrds), "cmdline",
	                 json_text(args), "recovery", e->recovery);
}

char *bootchain_guest_path(const struct guest *guest, const char *from, const char *loader_path)
{
	const struct guest_mount *m = guest_mount_of(guest, from);
	const char *path = loader_path;
	CLEANUP_FREE char *subvol = m->subvol ? str_format("/%s/", m->subvol) : NULL;

	if (subvol && str_starts(path, subvol))
		path += strlen(subvol) - 1;
	/* Where /boot is of its own, a link "boot" in it may lead to itself, and names with it
	 * hold. */
	if (strcmp(m->path, "/") == 0 ||
	    (strcmp(m->path, "/boot") == 0 && str_starts(path, "/boot/")))
		return str_format("%s%s", *path == '/' ? "" : "/", path);
	return str_format("%s%s%s", m->path, *path == '/' ? "" : "/", path);
}

const struct guest_kernel *bootchain_kernel(const struct boot_entry *e, struct rootfs *root,
                                            const struct guest *guest)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *real = NULL;

	/* "/vmlinuz" is a link to one of them on Debian. */
	rootfs_resolve(root, e->kernel, true, &real, &ignored);
	for (size_t i = 0; real && i < guest->kernel_count; i++)
		if (strcmp(guest->kernels[i].image, real) == 0)
			return &guest->kernels[i];
	for (size_t i = 0; e->version && i < guest->kernel_count; i++)
		if (strcmp(guest->kernels[i].version, e->version) == 0)
			return &guest->kernels[i];
	return NULL;
}

const char *bootchain_initramfs(const struct boot_entry *e)
{
	for (size_t i = e->initrds.count; i > 0; i--) {
		const char *path = e->initrds.items[i - 1];
		const char *slash = strrchr(path, '/');

		if (!strstr(slash ? slash : path, "ucode"))
			return path;
	}
	return NULL;
}

bool bootchain_is_memory_test(const struct boot_entry *e)
{
	const char *slash = strrchr(e->kernel, '/');

	return str_starts(slash ? slash + 1 : e->kernel, "memtest");
}
