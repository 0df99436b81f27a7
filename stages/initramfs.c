/* SPDX-License-Identifier: Apache-2.0 */
/*
 * initramfs: udev in the initramfs loads nouveau before the root file system is there, so the
 * block must be inside every kernel's initramfs: now, and each time that the node makes one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "builder/data.h"
#include "builder/generator.h"
#include "builder/proof.h"
#include "stages/initramfs-make.h"
#include "stages/stages.h"

#define MARGIN_BYTES   (8UL * 1024 * 1024)
#define ESTIMATE_BYTES (64UL * 1024 * 1024) /* for a first initramfs, if no other tells */

/*
 * The generator writes the new file beside the old one: free space for the largest that may
 * come is needed, and for the first ones of kernels that had none.
 */
static uint64_t space_needed(const struct guest *g)
{
	uint64_t largest = 0, missing = 0;

	for (size_t i = 0; i < g->kernel_count; i++) {
		if (g->kernels[i].rescue)
			continue;
		if (g->kernels[i].initramfs_bytes > largest)
			largest = g->kernels[i].initramfs_bytes;
		missing += !g->kernels[i].has_initramfs;
	}
	if (!largest)
		largest = ESTIMATE_BYTES;
	return largest * (missing + 1) + MARGIN_BYTES;
}

static int check_space(struct rootfs *root, uint64_t needed, struct error *err)
{
	uint64_t free_bytes, size_bytes;

	if (rootfs_statvfs(root, "/boot", &free_bytes, &size_bytes, err) < 0)
		return -1;
	if (free_bytes < needed) {
		CLEANUP_FREE char *have = str_size(free_bytes);
		CLEANUP_FREE char *need = str_size(needed);

		error_set(err,
		          "the image's /boot is too full for a new initramfs: %s free, %s needed",
		          have, need);
		error_hint(err,
		           "remove an old kernel from the base, or use one with a larger /boot");
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

/* The generator, and its program in this root. */
static int find_generator(const struct generator **ret, const char **ret_program,
                          const struct build *b, struct rootfs *root, struct error *err)
{
	const struct generator *g = generator_find(b->guest->generator);

	if (!g) {
		error_set(err, "the image has no initramfs generator that we can run, but '%s'",
		          b->guest->generator);
		return error_code(err, EXIT_INPUT);
	}
	*ret_program = g->find_program(root);
	if (!*ret_program) {
		error_set(err, "the image has no program of '%s' (package %s)", g->name,
		          g->package);
		return error_code(err, EXIT_INPUT);
	}
	*ret = g;
	return 0;
}

static int initramfs_check(struct build *b, struct error *err)
{
	const struct generator *g;
	const char *program;

	if (find_generator(&g, &program, b, b->base_root, err) < 0)
		return -1;
	return check_space(b->base_root, space_needed(b->guest), err);
}

/* With the modules that are there now, a baked driver's among them. */
static int write_conf(struct build *b, const struct generator *g, const struct strv *gpu_modules,
                      struct error *err)
{
	const struct generator_conf conf = {.guest = b->guest,
	                                    .blocked = &b->blocked,
	                                    .block_paths = &b->block_paths,
	                                    .gpu_modules = gpu_modules};

	if (!g->conf_path)
		return 0;
	free(b->generator_conf);
	b->generator_conf = g->conf_text(&conf);
	return rootfs_write(b->root, g->conf_path, b->generator_conf, strlen(b->generator_conf),
	                    0644, err);
}

/* For any driver that is there: baked, the base's own, or put there by a script of the user's. */
static int write_drop(struct build *b, const struct generator *g, const struct strv *gpu_modules,
                      struct error *err)
{
	CLEANUP_FREE char *text = NULL;

	b->drops_gpu_modules = g->drop_path && gpu_modules->count > 0;
	if (!b->drops_gpu_modules)
		return 0;
	if (data_read(b->data_dir, g->drop_data, &text, err) < 0)
		return -1;
	return rootfs_write(b->root, g->drop_path, text, strlen(text), 0755, err);
}

static int initramfs_apply(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv gpu_modules = {0};
	const struct generator *g;
	const char *program;

	/* A user's script may have installed a kernel. */
	if (guest_read_kernels(b->guest, b->root, err) < 0 ||
	    find_generator(&g, &program, b, b->root, err) < 0)
		return -1;
	if (generator_gpu_modules(&gpu_modules, b->root, err) < 0 ||
	    write_conf(b, g, &gpu_modules, err) < 0 || write_drop(b, g, &gpu_modules, err) < 0)
		return -1;
	return initramfs_make_all(b, g, program, err);
}

static int verify_drop(struct build *b, const struct generator *g, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	struct rootfs_stat st;
	int there;

	if (!b->drops_gpu_modules)
		return 0;
	if (data_read(b->data_dir, g->drop_data, &text, err) < 0 ||
	    proof_file(&b->findings, b->result_root, "initramfs.drop", g->drop_path, text, err) < 0)
		return -1;
	there = rootfs_lstat(b->result_root, g->drop_path, &st, err);
	if (there < 0)
		return -1;
	if (there == 1 && !(st.mode & 0100))
		finding_bad(&b->findings, "initramfs.drop", "make it executable (0755)",
		            "'%s' is not executable: the node's mkinitramfs leaves it out",
		            g->drop_path);
	return 0;
}

static int verify_conf(struct build *b, struct error *err)
{
	const struct generator *g = generator_find(b->guest->generator);

	if (!g)
		return 0;
	if (b->generator_conf && proof_file(&b->findings, b->result_root, "initramfs.conf",
	                                    g->conf_path, b->generator_conf, err) < 0)
		return -1;
	return verify_drop(b, g, err);
}

static int initramfs_verify(struct build *b, struct error *err)
{
	CLEANUP_FREE char *scratch = str_format("%s/initramfs", b->work_dir);
	const struct proof_all_initramfs all = {
		.like = {.root = b->result_root,
	                 .guest = b->result_guest,
	                 .block_paths = &b->block_paths,
	                 .block_text = b->block_text,
	                 .blocked = &b->blocked,
	                 .scratch = scratch},
		.chain = &b->after,
		.before = b->kernels_before,
		.before_count = b->kernels_before_count,
	};

	if (verify_conf(b, err) < 0)
		return -1;
	if (mkdir(scratch, 0700) < 0)
		return error_errno(err, errno, "cannot make the directory '%s'", scratch);
	return proof_every_initramfs(&b->findings, &all, err);
}

const struct stage stage_initramfs = {
	.name = "initramfs",
	.summary = "rebuild every kernel's initramfs, make missing ones",
	.check = initramfs_check,
	.apply = initramfs_apply,
	.verify = initramfs_verify,
};
