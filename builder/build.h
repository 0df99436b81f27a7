/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stage may know about the build that it is part of. Owned by cmd-build.c.
 */
#ifndef GPUIMG_BUILD_H
#define GPUIMG_BUILD_H

#include <jansson.h>
#include <pthread.h>
#include <sys/stat.h>

#include "accel.h"
#include "appliance.h"
#include "apt.h"
#include "bootchain.h"
#include "cache.h"
#include "containerd.h"
#include "digest-job.h"
#include "driver.h"
#include "export.h"
#include "finding.h"
#include "guest.h"
#include "initramfs.h"
#include "options.h"
#include "param-places.h"
#include "qcow2.h"
#include "sandbox.h"
#include "tree.h"
#include "usage.h"

struct reuse;

struct build {
	const struct options *options;
	struct log *log;
	char *data_dir;
	char *work_dir; /* our own, removed at the end */
	char *base_path;
	int base_hold_fd;      /* keeps 'cache prune' away from it; -1 for a file of the user's */
	char *base_digest;     /* set by build_wait_digest() */
	struct stat base_stat; /* see base_check_same() */
	struct digest_job base_digest_job, result_digest_job;
	struct cache *cache;
	struct reuse *reuse;          /* reuse.h's own, while initramfs are made */
	struct strv initramfs_reused; /* versions of kernels whose initramfs the cache had */
	json_t *reused;               /* manifest of an image that the cache had; else NULL */
	struct usage *usage;
	struct image_info base_info;
	struct disk *base_disk;
	struct rootfs *base_root; /* read-only */
	struct guest *guest;      /* of the base; its kernels are read anew before 'initramfs' */
	struct bootchain before;  /* the base's boot entries */
	struct appliance *reader; /* where libext2fs does not read the file system; usually NULL */
	struct appliance *result_reader; /* the same for the exported image */

	bool sandbox; /* which backend runs the guest's programs */
	struct accel accel;
	bool accel_known; /* see build_probe_accel() */
	char *overlay;    /* the qcow2 that is changed */
	struct appliance *appliance;
	/* The sandbox's: the base's root as a directory. */
	char *tree_dir;
	struct tree *tree;
	struct rootfs *filler; /* reads the base for the tree's own thread */
	pthread_t tree_remover;
	bool tree_remover_running;
	struct sandbox *sandbox_handle;
	struct sandbox_devices devices; /* borrows its strings */
	char *root_device;              /* of 'devices', or NULL */
	struct rootfs *root;            /* the working copy, writable */

	/* What the stages did, for the proof and the manifest. */
	const char *block_path;     /* of the modprobe.d file in the image */
	char *block_text;           /* its content */
	struct strv block_paths;    /* where it stands: all that the generator copies it from */
	bool drops_gpu_modules;     /* the generator's drop_path was written */
	char *generator_conf;       /* text of the generator's conf_path; NULL: it needs none */
	struct strv blocked;        /* module names in it */
	struct strv params;         /* parameters that every entry must hold */
	struct param_places places; /* where the base takes parameters from */
	char *dropin_path;          /* of the GRUB drop-in in the image, if it takes one */
	char *dropin_text;
	struct apt *apt;              /* see build_open_apt() */
	struct driver_plan driver;    /* branch NULL: none is baked */
	struct strv driver_files;     /* "SHA256  NAME" of local packages, or of the .run file */
	char *driver_found;           /* what was there before, and was taken out */
	bool baked, baked_from_cache; /* see bake_packages() */
	bool had_dkms_key;            /* the base has a key of DKMS's */
	json_t *driver_facts;         /* of the exported image; NULL: no driver was baked */
	struct containerd containerd;
	struct strv toolkit_install;  /* packages for the runtime, as apt takes them */
	struct strv toolkit_packages; /* what that comes to, "name=version" */
	struct strv toolkit_digests;  /* "SHA256  name=version" of those whose archive apt knows */
	struct containerd_result containerd_result;
	bool clamp_times;                    /* the environment gave source_date_epoch */
	int64_t source_date_epoch;           /* for generators that can make the same bytes twice */
	struct guest_kernel *kernels_before; /* the base's, as they were found */
	size_t kernels_before_count;

	/* The exported image (under its temporary name), read back by the proof. */
	const char *result_path, *console_prefix;
	char *result_digest; /* SHA-256 */
	struct disk *result_disk;
	struct rootfs *result_root;
	struct guest *result_guest;
	bool has_uefi_loader;
	struct bootchain after;
	struct strv initramfs_digests; /* SHA-256, in the order of result_guest's kernels */
	struct strv user_digests;      /* "SHA256  PATH" of uploads and scripts */
	struct strv packages_before, packages_after; /* "name=version", sorted */
	struct findings findings;

	struct export_stats export_stats;
	uint64_t changed_bytes; /* that the working copy took on the disk, as exported */
	json_t *steps;          /* array of {name, seconds} */
	json_t *boot_report;    /* NULL until the boot test ran */
};

/* What every boot entry shall hold: 'params', and module_blacklist= with all of 'blocked' unless
 * the options say otherwise. Owned by the caller. */
struct strv build_wanted_params(const struct build *b);
/* Reads the boot entries of a root anew; what 'ret' held is released. */
int build_read_chain(struct build *b, struct bootchain *ret, struct rootfs *root,
                     const struct guest *guest, struct error *err);

/* The image's apt, opened and updated once, with all that the driver and the toolkit need; later
 * calls do nothing. build_close_apt() takes it out of the image again. */
int build_open_apt(struct build *b, struct error *err);
int build_close_apt(struct build *b, struct error *err);

#endif
