/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initramfs generators: which one an image's kernel hooks use, how it is called for one kernel, and
 * what must stand in the image so that it carries the block now and when it runs on the node.
 * Known by package and configuration, never by a command's name: dracut owns an 'update-initramfs'
 * on newer Debian and Ubuntu.
 */
#ifndef GPUIMG_GENERATOR_H
#define GPUIMG_GENERATOR_H

#include <stdbool.h>

#include "error.h"
#include "guest.h"
#include "rootfs.h"
#include "str.h"

/* The block's file, in each modprobe.d that it stands in. */
#define GENERATOR_BLOCK_NAME "gpuimg-gpu-block.conf"

/* What the text of a generator's configuration comes from. */
struct generator_conf {
	const struct guest *guest;
	const struct strv *blocked, *block_paths;
	const struct strv *gpu_modules; /* see generator_gpu_modules() */
};

struct generator {
	const char *name;    /* of guest.generator: "initramfs-tools", "dracut" */
	const char *package; /* that holds the program, for messages */
	/* The program's path in this image, or NULL: it is not there. */
	const char *(*find_program)(struct rootfs *root);
	/* argv for one kernel, without the terminating NULL. The bytes shall depend on nothing but
	 * the image (SOURCE_DATE_EPOCH is in the environment). */
	void (*make_argv)(struct strv *ret, struct rootfs *root, const char *program,
	                  const char *version, const char *output);
	/* A file of its configuration that stays in the image, so that rebuilds on the node keep
	 * the block and the drivers; NULL: none is needed, and conf_text is NULL too. */
	const char *conf_path;
	char *(*conf_text)(const struct generator_conf *conf);
	/* A file of our data (data.h) that keeps NVIDIA's driver out of what it makes, now and on
	 * the node, and its path in the image (mode 0755); for images that get that driver. NULL:
	 * the file above does it, in any image. */
	const char *drop_data, *drop_path;
	/* Files that are there only while we run it (path and text); 0 or 1 as told. May be NULL.
	 */
	bool (*temporary)(const struct guest *guest, struct rootfs *root, const char **ret_path,
	                  char **ret_text);
	/* Where the block must stand in the root file system: it is copied from there, so each of
	 * them is inside of the initramfs too. */
	const char *const *block_paths; /* NULL at the end; the first is /etc/modprobe.d's */
	/* What a person does to an image whose initramfs lacks drivers, or has too many. */
	const char *cure_drivers, *cure_gpu;
	/* Whether only what it copied can check the root: systemd does it after the initramfs else.
	 */
	bool must_fsck;
};

/* By guest.generator; NULL: none that we can run. */
const struct generator *generator_find(const char *name);
/* Puts the temporary file of a generator (NULL: nothing is done) into the root; *ret_path is a
 * constant, or stays NULL: there is none to remove. */
int generator_put_temporary(const char **ret_path, const struct generator *g,
                            const struct guest *guest, struct rootfs *root, struct error *err);
/* Names of NVIDIA's modules, with '_', as they are called in this root (Debian: "nvidia_current"),
 * of all kernels; sorted. */
int generator_gpu_modules(struct strv *ret, struct rootfs *root, struct error *err);
/* Kernel modules that an initramfs needs to find this image's root, wherever it runs. Constant
 * strings and the guest's own, borrowed; NULL at the end. */
#define GENERATOR_DRIVERS_MAX 8
void generator_drivers(const char *ret[GENERATOR_DRIVERS_MAX], const struct guest *guest);
/* guest-generator.c: sets guest->generator. "none", or the name of one that we cannot run
 * ("mkinitcpio", "tiny-initramfs", "booster", "mkosi-initrd"), for the refusal. */
int guest_read_generator(struct guest *g, struct rootfs *root, struct error *err);

#endif
