/* SPDX-License-Identifier: Apache-2.0 */
/* Entries that are files of their own: BLS type 1, and unified kernel images (type 2). */
#include <string.h>

#include "bls.h"
#include "bootchain-internal.h"
#include "cmdline.h"
#include "uki.h"

#define BLS_MAX_BYTES (64UL * 1024)
#define ARGS_MAX      16384 /* of one entry, which may ask for $kernelopts again and again */

/* An option as the kernel gets it: GRUB puts its variables in, and what is not set is empty. */
static void add_option(struct chain_reader *r, struct boot_entry *e, const char *word)
{
	if (*word != '$') {
		strv_add(&e->args, word);
		return;
	}
	if (strcmp(word, "$kernelopts") != 0 && strcmp(word, "${kernelopts}") != 0)
		return;
	e->uses_kernelopts = true;
	if (r->kernelopts && e->args.count < ARGS_MAX) {
		CLEANUP_STRV struct strv words = cmdline_split(r->kernelopts);

		strv_add_all(&e->args, &words);
	}
}

/* GRUB's reader takes less than the specification has. */
static bool is_for_grub(const struct chain_reader *r, const char *path)
{
	return r->chain->grub_reads_bls && !r->chain->systemd_boot &&
	       str_starts(path, "/boot/loader/");
}

static void fill_bls(struct chain_reader *r, struct boot_entry *e, const struct bls_entry *bls)
{
	e->title = str_copy(bls->title ? bls->title : e->file);
	e->version = bls->version ? str_copy(bls->version) : NULL;
	e->kernel = bootchain_guest_path(r->guest, e->file, bls->linux_path);
	for (size_t i = 0; i < bls->initrds.count; i++)
		if (*bls->initrds.items[i] != '$')
			strv_take(&e->initrds,
			          bootchain_guest_path(r->guest, e->file, bls->initrds.items[i]));
	for (size_t i = 0; i < bls->options.count; i++)
		add_option(r, e, bls->options.items[i]);
	/* GRUB takes its own variable then. */
	if (bls->options_lines == 0 && is_for_grub(r, e->file))
		add_option(r, e, "$kernelopts");
	e->recovery = chain_is_recovery(&e->args);
}

static int uki_words(struct strv *ret, const struct uki *u, unsigned profile, int fd,
                     const char *path, struct error *err)
{
	const struct uki_section *section = uki_find_in_profile(u, profile, ".cmdline");
	CLEANUP_FREE char *cmdline = NULL;

	if (!section)
		return 0;
	if (uki_text(&cmdline, section, fd, path, err) < 0)
		return -1;
	*ret = cmdline_split(cmdline);
	return 0;
}

/* Each profile of it has a command line of its own. */
static int add_profile(struct chain_reader *r, const struct uki *u, unsigned profile, int fd,
                       const char *path, const struct strv *addons, struct error *err)
{
	const struct uki_section *section = uki_find_in_profile(u, profile, ".uname");
	CLEANUP_FREE char *version = NULL;
	CLEANUP_STRV struct strv args = {0};
	struct boot_entry *e;

	if ((section && uki_text(&version, section, fd, path, err) < 0) ||
	    uki_words(&args, u, profile, fd, path, err) < 0)
		return -1;
	e = chain_add(r->chain);
	e->source = BOOT_UKI;
	e->file = str_copy(path);
	e->kernel = str_copy(path);
	e->title = profile ? str_format("%s (profile %u)", path, profile) : str_copy(path);
	e->embedded_initrd = uki_find_in_profile(u, profile, ".initrd") != NULL;
	e->is_signed = u->is_signed;
	e->version = STEAL(version);
	e->own_args = args.count;
	strv_add_all(&args, addons);
	strv_add_all(&e->args, &args);
	e->recovery = chain_is_recovery(&e->args);
	return 0;
}

static int read_addon(struct chain_reader *r, struct strv *words, const char *path,
                      struct error *err)
{
	CLEANUP_UKI struct uki u = {0};
	CLEANUP_STRV struct strv more = {0};
	CLEANUP_CLOSE int fd = rootfs_open_copy(r->root, path, r->work_dir, err);

	if (fd < 0 || uki_read(&u, fd, path, err) < 0 || uki_words(&more, &u, 0, fd, path, err) < 0)
		return -1;
	strv_add_all(words, &more);
	return 0;
}

static int read_addons(struct chain_reader *r, struct strv *words, const char *dir,
                       struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(r->root, dir, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count && i < BOOTCHAIN_MAX_ENTRIES; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, names.items[i]);

		if (str_ends(names.items[i], ".addon.efi") && read_addon(r, words, path, err) < 0)
			return -1;
	}
	return 0;
}

/* systemd-stub(7): what addons of this UKI, and those of all, add behind its own command line. */
static int find_addons(struct chain_reader *r, struct strv *words, const char *uki,
                       struct error *err)
{
	const struct guest_mount *esp = guest_mount_of(r->guest, uki);
	CLEANUP_FREE char *own = str_format("%s.extra.d", uki);
	CLEANUP_FREE char *all = str_format("%s/loader/addons", esp->path);

	return read_addons(r, words, own, err) < 0 ? -1 : read_addons(r, words, all, err);
}

static bool has_read(const struct bootchain *chain, const char *uki)
{
	for (size_t i = 0; i < chain->count; i++)
		if (chain->entries[i].source == BOOT_UKI &&
		    strcmp(chain->entries[i].file, uki) == 0)
			return true;
	return false;
}

/* An entry of type 1 may have led to it before. */
static int read_uki(struct chain_reader *r, const char *path, struct error *err)
{
	CLEANUP_UKI struct uki u = {0};
	CLEANUP_STRV struct strv addons = {0};
	CLEANUP_CLOSE int fd = -1;

	if (has_read(r->chain, path))
		return 0;
	if (find_addons(r, &addons, path, err) < 0)
		return -1;
	fd = rootfs_open_copy(r->root, path, r->work_dir, err);
	if (fd < 0 || uki_read(&u, fd, path, err) < 0)
		return -1;
	if (!uki_is_unified(&u)) {
		error_set(err, "'%s' is no unified kernel image: it has no .linux section", path);
		return error_code(err, EXIT_INPUT);
	}
	for (unsigned i = 0; i < (u.profiles ? u.profiles : 1); i++)
		if (add_profile(r, &u, i, fd, path, &addons, err) < 0)
			return -1;
	return 0;
}

/* An entry of type 1 may name a UKI: then that is what boots. */
static int read_bls_uki(struct chain_reader *r, const char *file, const char *efi,
                        struct error *err)
{
	CLEANUP_FREE char *path = bootchain_guest_path(r->guest, file, efi);
	const char *kind;

	if (has_read(r->chain, path))
		return 0;
	if (chain_identify(r, path, &kind, err) < 0)
		return -1;
	return str_equal(kind, "uki") ? read_uki(r, path, err) : 0;
}

static int read_bls_file(struct chain_reader *r, const char *path, struct error *err)
{
	CLEANUP_BLS struct bls_entry bls = {0};
	CLEANUP_FREE void *text = NULL;
	struct boot_entry *e;
	size_t size;

	if (rootfs_read(r->root, path, BLS_MAX_BYTES, &text, &size, err) < 0)
		return -1;
	if (is_for_grub(r, path) ? bls_parse_as_grub(&bls, text, size, path, err) < 0
	                         : bls_parse(&bls, text, size, path, err) < 0)
		return -1;
	if (!bls.linux_path)
		return bls.efi ? read_bls_uki(r, path, bls.efi, err) : 0;
	e = chain_add(r->chain);
	e->source = BOOT_BLS;
	e->file = str_copy(path);
	fill_bls(r, e, &bls);
	return 0;
}

/* Files of a directory that end in 'suffix', in any case: the file system is FAT. */
static int read_each(struct chain_reader *r, const char *dir, const char *suffix,
                     int (*read)(struct chain_reader *, const char *, struct error *),
                     struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(r->root, dir, &names, err) < 0)
		return -1;
	if (names.count > BOOTCHAIN_MAX_ENTRIES) {
		error_set(err, "'%s' has more than %d files", dir, BOOTCHAIN_MAX_ENTRIES);
		return error_code(err, EXIT_INPUT);
	}
	for (size_t i = 0; i < names.count; i++) {
		const char *name = names.items[i];
		size_t length = strlen(name), tail = strlen(suffix);
		CLEANUP_FREE char *path = str_format("%s/%s", dir, name);

		CLEANUP_ERROR struct error refused = ERROR_INIT;

		if (length > tail && strcasecmp(name + length - tail, suffix) == 0 &&
		    !rootfs_is_dir(r->root, path) && read(r, path, &refused) < 0 &&
		    chain_note_unreadable(r, &refused, err) < 0)
			return -1;
	}
	return 0;
}

int chain_read_bls(struct chain_reader *r, const char *dir, struct error *err)
{
	return read_each(r, dir, ".conf", read_bls_file, err);
}

int chain_read_ukis(struct chain_reader *r, const char *dir, struct error *err)
{
	if (!rootfs_is_dir(r->root, dir))
		return read_uki(r, dir, err);
	return read_each(r, dir, ".efi", read_uki, err);
}
