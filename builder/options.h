/* SPDX-License-Identifier: Apache-2.0 */
/*
 * argv and image.yaml into one struct options; nobody else knows a flag. What the command line
 * says wins over the file; lists add up.
 */
#ifndef GPUIMG_OPTIONS_H
#define GPUIMG_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "boot.h"
#include "cmdline.h"
#include "driver.h"
#include "error.h"
#include "log.h"
#include "str.h"

enum exec_mode { EXEC_AUTO, EXEC_APPLIANCE, EXEC_SANDBOX };

struct options {
	enum log_level level;
	bool json, plan, help, keep_work, network;
	char *base; /* path, URL, or NULL: the embedded default; 'boot', 'inspect': the image */
	char *base_sha256, *base_sums;
	char *output; /* the artifact's path */
	char *profile;
	struct strv stages; /* names from the profile, in the order of the stage table */
	struct cmdline_edit cmdline;
	bool nocrs, realloc, module_blacklist;
	struct strv block;        /* modules to block besides ours */
	struct strv run;          /* host paths of user scripts */
	struct strv upload;       /* SRC:DST */
	char *uki_key, *uki_cert; /* PEM files to sign unified kernel images with; both or none */
	/* The baked driver (driver.h). */
	char *driver_branch; /* "580"; NULL: none is baked */
	enum driver_flavour driver_flavour;
	bool driver_flavour_given;
	enum driver_source driver_source;
	char *driver_path;                   /* of the .run file, or of the directory of packages */
	char *driver_repo, *driver_repo_key; /* in place of NVIDIA's own: URL, and key file */
	struct strv driver_extra;
	bool require_signed, replace_driver, allow_branch_forward;
	bool dkms_unregister; /* modules stay, DKMS forgets them */
	/* Where the image's apt takes packages from, for the build only (apt.h). */
	struct strv apt_mirrors, apt_repos;
	char *apt_proxy;
	/* containerd.h */
	char *containerd_runtime; /* "nvidia"; NULL: its configuration is left alone */
	bool default_runtime;
	char *toolkit_repo, *toolkit_key; /* in place of NVIDIA's own */
	bool boot_driver; /* 'boot': the image has NVIDIA's driver, which shall load */
	/* 'publish' */
	char *targets; /* the targets file */
	struct strv only;
	bool replace, abort, remove, fail_fast;
	char *verify; /* full, quick, none; NULL: each backend's own */
	char *image_name, *image_version, *consumer;
	uint64_t jobs, tries;     /* 0: the default */
	unsigned stall_timeout_s; /* 0: the default */
	struct strv needs;        /* of the profile: options without which it is nothing */
	enum exec_mode exec;
	char *compression; /* zlib, zstd, none; NULL: as the base has it */
	bool compact;      /* compress every cluster anew, instead of taking the base's over */
	char *work_dir, *cache_dir, *data_dir;
	bool cache;           /* take and keep results */
	uint64_t cache_bytes; /* bound of the results; 'cache prune': what they come down to */
	char *action;         /* 'cache': ls, prune */
	char *kind;           /* 'cache': only what is of this kind; NULL: all */
	bool all;             /* 'cache prune': bases and the like too */
	bool boot_test;
	struct strv firmware; /* names; empty: what the image supports, BIOS first */
	enum boot_window window;
	uint64_t bar_bytes;
	unsigned timeout_s; /* of one boot; 0: by accelerator */
	char *console;
	struct strv expect; /* parameters that 'boot' expects in /proc/cmdline */
	char *control;      /* 'boot': the base image, booted beside it as the control */
};

/*
 * command: "build", "boot", "doctor", "cache", "inspect", "publish". argv[0] is not read. Errors
 * carry EXIT_USAGE. With --help 'help' is set and nothing else is checked.
 */
int options_parse(struct options *ret, const char *command, int argc, char **argv,
                  struct error *err);
void options_free(struct options *o);
#define CLEANUP_OPTIONS CLEANUP(options_free)
/* Prints the usage of a command to stdout. */
void options_usage(const char *command, const char *summary);

#endif
