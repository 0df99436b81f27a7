/* SPDX-License-Identifier: Apache-2.0 */
/*
 * modprobe: no driver but NVIDIA's own may bind the card. nouveau (and nova on newer kernels)
 * boots the GSP of Ada cards, and nothing gives the card back without a reset. Blocked is what
 * we know, and what this image's own modules.alias says would claim a display device of
 * vendor 10de. 'blacklist' stops loading by alias, 'install' also an explicit modprobe.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "builder/block-names.h"
#include "builder/data.h"
#include "builder/generator.h"
#include "builder/modules.h"
#include "builder/proof.h"
#include "stages/stages.h"

#define BLOCK_PATH "/etc/modprobe.d/" GENERATOR_BLOCK_NAME

static bool is_module_name(const char *name)
{
	return *name && strlen(name) < 64 &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
	               strlen(name);
}

static int add_claimants(struct build *b, const char *kver, struct error *err)
{
	CLEANUP_FREE char *scratch = str_format("%s/modprobe-%s", b->work_dir, kver);
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_STRV struct strv claimants = {0};
	CLEANUP_STRV struct strv builtin = {0};

	if (mkdir(scratch, 0700) < 0)
		return error_set(err, "cannot make the directory '%s'", scratch);
	if (modules_from_rootfs(&m, b->base_root, kver, scratch, err) < 0 ||
	    modules_claimants(&m, &claimants, &builtin, err) < 0)
		return error_prefix(err, "kernel '%s'", kver);
	for (size_t i = 0; i < claimants.count; i++) {
		const char *name = claimants.items[i];

		if (modules_is_nvidia_driver(name) || strv_has(&b->blocked, name) ||
		    !is_module_name(name))
			continue;
		log_note(b->log,
		         "kernel %s: module '%s' claims NVIDIA display devices: blocked too", kver,
		         name);
		strv_add(&b->blocked, name);
	}
	for (size_t i = 0; i < builtin.count; i++)
		log_warn(
			b->log,
			"kernel %s: '%s' claims NVIDIA display devices and is built into the kernel: no "
			"modprobe.d file can block it",
			kver, builtin.items[i]);
	return 0;
}

/* Where this image's initramfs generator copies it from, now and on the node. */
static void find_places(struct build *b)
{
	const struct generator *g = generator_find(b->guest->generator);

	b->block_path = BLOCK_PATH;
	for (size_t i = 0; g && g->block_paths[i]; i++)
		strv_add(&b->block_paths, g->block_paths[i]);
	if (!strv_has(&b->block_paths, BLOCK_PATH))
		strv_add(&b->block_paths, BLOCK_PATH);
}

static int modprobe_check(struct build *b, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *extra = str_copy("");
	size_t shipped;

	if (data_read(b->data_dir, BLOCK_NAMES_DATA, &text, err) < 0)
		return -1;
	block_names_parse(text, &b->blocked);
	shipped = b->blocked.count;
	for (size_t i = 0; i < b->options->block.count; i++)
		if (!strv_has(&b->blocked, b->options->block.items[i]))
			strv_add(&b->blocked, b->options->block.items[i]);
	for (size_t i = 0; i < b->guest->kernel_count; i++)
		if (!b->guest->kernels[i].rescue &&
		    add_claimants(b, b->guest->kernels[i].version, err) < 0)
			return -1;
	for (size_t i = shipped; i < b->blocked.count; i++) {
		const char *name = b->blocked.items[i];
		char *more =
			str_format("%sblacklist %s\ninstall %s /bin/false\n", extra, name, name);

		free(extra);
		extra = more;
	}
	find_places(b);
	b->block_text = str_format(
		"%s%s%s", text,
		*extra ? "# Found in this image's modules.alias, or asked for:\n" : "", extra);
	return 0;
}

static int modprobe_apply(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->block_paths.count; i++)
		if (rootfs_write(b->root, b->block_paths.items[i], b->block_text,
		                 strlen(b->block_text), 0644, err) < 0)
			return -1;
	return 0;
}

static int verify_kernel(struct build *b, const char *kver, struct error *err)
{
	CLEANUP_FREE char *scratch = str_format("%s/verify-%s", b->work_dir, kver);
	CLEANUP_MODULES struct modules m = {0};

	if (mkdir(scratch, 0700) < 0)
		return error_set(err, "cannot make the directory '%s'", scratch);
	if (modules_from_rootfs(&m, b->result_root, kver, scratch, err) < 0)
		return -1;
	if (proof_builtin(&b->findings, &m, err) < 0)
		return -1;
	return proof_modules(&b->findings, &m, "root file system", &b->blocked, err);
}

static int modprobe_verify(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->block_paths.count; i++)
		if (proof_file(&b->findings, b->result_root, "modprobe.file",
		               b->block_paths.items[i], b->block_text, err) < 0)
			return -1;
	for (size_t i = 0; i < b->result_guest->kernel_count; i++)
		if (!b->result_guest->kernels[i].rescue &&
		    verify_kernel(b, b->result_guest->kernels[i].version, err) < 0)
			return -1;
	return 0;
}

const struct stage stage_modprobe = {
	.name = "modprobe",
	.summary = "keep nouveau, nova and what else claims an NVIDIA card off it",
	.check = modprobe_check,
	.apply = modprobe_apply,
	.verify = modprobe_verify,
};
