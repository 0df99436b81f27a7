/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bootloader: has the image's own grub-mkconfig write the boot entries anew, so that they carry
 * what 'cmdline' put down and name each initramfs. The result is made beside the old file,
 * must parse and hold an entry, and is then renamed.
 */
#include <string.h>

#include "builder/proof.h"
#include "stages/stages.h"

#define GENERATOR          "/usr/sbin/grub-mkconfig"
#define NEW_CFG            BOOTCHAIN_GRUB_CFG ".gpuimg-new"
#define GENERATE_TIMEOUT_S 600
#define CFG_MAX_BYTES      (4UL * 1024 * 1024)

static int bootloader_check(struct build *b, struct error *err)
{
	if (rootfs_exists(b->base_root, GENERATOR))
		return 0;
	error_set(err, "the image has no '%s' (package grub2-common)", GENERATOR);
	return error_code(err, EXIT_INPUT);
}

static int check_new(struct build *b, struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	CLEANUP_GRUBCFG struct grub_config config = {0};

	if (!rootfs_exists(b->root, NEW_CFG))
		return error_set(err, "'%s' ended with exit code 0 without having written '%s'",
		                 GENERATOR, NEW_CFG);
	if (rootfs_read(b->root, NEW_CFG, CFG_MAX_BYTES, &text, NULL, err) < 0 ||
	    grubcfg_parse(&config, text, NEW_CFG, err) < 0)
		return -1;
	if (config.count == 0)
		return error_set(err, "'%s' wrote no boot entry at all into '%s'", GENERATOR,
		                 NEW_CFG);
	return 0;
}

static int bootloader_apply(struct build *b, struct error *err)
{
	static const char *const argv[] = {GENERATOR, "-o", NEW_CFG, NULL};
	const struct guest_command command = {
		.argv = argv,
		.timeout_ms = GENERATE_TIMEOUT_S * 1000u,
	};

	if (rootfs_remove(b->root, NEW_CFG, err) < 0 || rootfs_run(b->root, &command, err) < 0 ||
	    check_new(b, err) < 0)
		return -1;
	return rootfs_rename(b->root, NEW_CFG, BOOTCHAIN_GRUB_CFG, err);
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
