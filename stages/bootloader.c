/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bootloader: the boot entries carry what 'cmdline' put down and boot what 'initramfs' made. Three
 * kinds: grub.cfg is written anew by the image's own grub-mkconfig; BLS entries that load a copy of
 * the initramfs (on an ESP) get the new one; unified kernel images are built anew. Each new file
 * is made beside the old one, must parse and hold what it shall, and is then renamed. The small
 * grub.cfg on the ESP is never written.
 */
#include <string.h>

#include "builder/cmdline.h"
#include "builder/proc.h"
#include "builder/proof.h"
#include "builder/uki-build.h"
#include "stages/stages.h"

#define GENERATE_TIMEOUT_S 600
#define INSTALL_TIMEOUT_S  3600
#define CFG_MAX_BYTES      (4UL * 1024 * 1024)

static int check_signer(const struct build *b, struct error *err)
{
	if (!b->options->uki_key || proc_have("sbsign"))
		return 0;
	error_set(err, "the base has unified kernel images to sign, and this host no 'sbsign'");
	error_hint(err, "install package sbsigntool");
	return error_code(err, EXIT_HOST);
}

static int check_ukis(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->before.count; i++) {
		const struct boot_entry *e = &b->before.entries[i];

		if (e->source == BOOT_UKI &&
		    (uki_check_buildable(b->base_root, e->file, b->options->uki_key != NULL,
		                         b->work_dir, err) < 0 ||
		     check_signer(b, err) < 0))
			return -1;
	}
	return 0;
}

/* Whether grub-mkconfig writes the file that holds the entry, or sources it. */
static bool is_written(const struct build *b, const struct boot_entry *e)
{
	for (size_t i = 0; i < b->before.stub_count; i++)
		if (str_equal(b->before.stubs[i].path, e->file))
			return false;
	return b->places.mkconfig != NULL;
}

/* Entries of GRUB that nobody would edit: beside BLS entries, on the ESP, or without its program.
 */
static int check_grub(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->before.count; i++) {
		const struct boot_entry *e = &b->before.entries[i];
		CLEANUP_FREE char *name = NULL;

		if (e->source != BOOT_GRUB || bootchain_is_memory_test(e) || is_written(b, e))
			continue;
		name = str_printable(e->title, 200);
		error_set(err,
		          "'%s', line %d: boot entry '%s' is written by no program that the image "
		          "has (grub-mkconfig, package grub2-common)",
		          e->file, e->line, name);
		error_hint(err, "take it out of the base, or install the program that writes it");
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

static int bootloader_check(struct build *b, struct error *err)
{
	if (check_grub(b, err) < 0)
		return -1;
	return check_ukis(b, err);
}

static int check_new(struct build *b, const char *path, struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	CLEANUP_GRUBCFG struct grub_config config = {0};

	if (!rootfs_exists(b->root, path))
		return error_set(err, "'%s' ended with exit code 0 without having written '%s'",
		                 b->places.mkconfig, path);
	if (rootfs_read(b->root, path, CFG_MAX_BYTES, &text, NULL, err) < 0 ||
	    grubcfg_parse(&config, text, path, err) < 0)
		return -1;
	if (config.count == 0 && !config.loads_blscfg)
		return error_set(err, "'%s' wrote no boot entry at all into '%s'",
		                 b->places.mkconfig, path);
	return 0;
}

static int write_grub_cfg(struct build *b, const char *path, struct error *err)
{
	CLEANUP_FREE char *made = str_format("%s.gpuimg-new", path);
	const char *const argv[] = {b->places.mkconfig, "-o", made, NULL};
	const struct guest_command command = {
		.argv = argv,
		.timeout_ms = GENERATE_TIMEOUT_S * 1000u,
	};

	if (rootfs_remove(b->root, made, err) < 0 || rootfs_run(b->root, &command, err) < 0 ||
	    check_new(b, made, err) < 0)
		return -1;
	return rootfs_rename(b->root, made, path, err);
}

static bool has_entry(const struct bootchain *chain, struct build *b, const struct guest_kernel *k)
{
	for (size_t i = 0; i < chain->count; i++)
		if (bootchain_kernel(&chain->entries[i], b->root, b->guest) == k)
			return true;
	return false;
}

/* A kernel that had no initramfs when it was installed has no entry either: its own tool adds one,
 * from /etc/kernel/cmdline. */
static int add_missing(struct build *b, struct bootchain *chain, struct error *err)
{
	bool added = false;

	if (b->places.mkconfig || !rootfs_exists(b->root, "/usr/bin/kernel-install"))
		return 0;
	for (size_t i = 0; i < b->guest->kernel_count; i++) {
		const struct guest_kernel *k = &b->guest->kernels[i];
		const char *const argv[] = {
			"/usr/bin/kernel-install", "add", k->version, k->image, k->initramfs, NULL};
		const struct guest_command command = {
			.argv = argv,
			.timeout_ms = INSTALL_TIMEOUT_S * 1000u,
		};

		if (k->rescue || has_entry(chain, b, k))
			continue;
		log_note(b->log, "kernel %s has no boot entry: kernel-install adds one",
		         k->version);
		if (rootfs_run(b->root, &command, err) < 0)
			return -1;
		added = true;
	}
	return added ? build_read_chain(b, chain, b->root, b->guest, err) : 0;
}

/* The initramfs of /boot to where an entry of an ESP has its copy. */
static int copy_initramfs(struct build *b, const char *from, const char *to, struct error *err)
{
	CLEANUP_FREE char *made = str_format("%s.gpuimg-new", to);
	CLEANUP_CLOSE int fd = rootfs_open_copy(b->root, from, b->work_dir, err);
	struct rootfs_stat st;

	if (fd < 0 || rootfs_stat(b->root, from, &st, err) < 0 ||
	    rootfs_copy_in(b->root, made, fd, st.mode & 0777, err) < 0)
		return -1;
	return rootfs_rename(b->root, made, to, err);
}

static int refresh_entry(struct build *b, const struct boot_entry *e, struct error *err)
{
	const struct guest_kernel *k = bootchain_kernel(e, b->root, b->guest);
	const char *initramfs = bootchain_initramfs(e);
	CLEANUP_FREE char *real = NULL;

	if (!k || k->rescue || !initramfs)
		return 0;
	if (rootfs_resolve_new(b->root, initramfs, &real, err) < 0)
		return -1;
	if (strcmp(real, k->initramfs) == 0)
		return 0;
	return copy_initramfs(b, k->initramfs, real, err);
}

static int build_uki(struct build *b, const struct boot_entry *e, struct error *err)
{
	CLEANUP_STRV struct strv wanted = build_wanted_params(b);
	CLEANUP_STRV struct strv args = {0};
	const struct uki_job job = {
		.path = e->file,
		.kernel = bootchain_kernel(e, b->root, b->guest),
		.args = &args,
		.key = b->options->uki_key,
		.cert = b->options->uki_cert,
		.scratch = b->work_dir,
		.source_date_epoch = b->source_date_epoch,
	};

	if (!job.kernel) {
		error_set(err, "'%s' boots kernel '%s', which the image does not have", e->file,
		          e->version ? e->version : "of no name");
		return error_code(err, EXIT_INPUT);
	}
	for (size_t i = 0; i < e->own_args; i++)
		strv_add(&args, e->args.items[i]);
	cmdline_apply(&args, &(const struct cmdline_edit){.add = wanted,
	                                                  .remove = b->options->cmdline.remove});
	param_drop_machine_ids(&args);
	return uki_rebuild(b->root, &job, err);
}

static int refresh_entries(struct build *b, const struct bootchain *chain, struct error *err)
{
	for (size_t i = 0; i < chain->count; i++) {
		const struct boot_entry *e = &chain->entries[i];

		if ((e->source == BOOT_BLS && refresh_entry(b, e, err) < 0) ||
		    (e->source == BOOT_UKI && build_uki(b, e, err) < 0))
			return -1;
	}
	return 0;
}

/* Kernels of the user's scripts may have brought entries that nobody has edited yet. */
static int bootloader_apply(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv wanted = build_wanted_params(b);
	const struct cmdline_edit edit = {.add = wanted, .remove = b->options->cmdline.remove};
	CLEANUP_BOOTCHAIN struct bootchain chain = {0};

	if (build_read_chain(b, &chain, b->root, b->guest, err) < 0 ||
	    add_missing(b, &chain, err) < 0 ||
	    param_places_apply(&b->places, b->root, &chain, &edit, b->log, err) < 0 ||
	    refresh_entries(b, &chain, err) < 0)
		return -1;
	if (!b->places.mkconfig || !b->before.grub_cfg)
		return 0;
	return write_grub_cfg(b, b->before.grub_cfg, err);
}

static int bootloader_verify(struct build *b, struct error *err)
{
	return proof_leaks(&b->findings, b->result_root, b->base_root, err);
}

const struct stage stage_bootloader = {
	.name = "bootloader",
	.summary = "write the boot entries anew",
	.check = bootloader_check,
	.apply = bootloader_apply,
	.verify = bootloader_verify,
};
