/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The containerd of an image: which one, where its configuration is, who manages it, and what it
 * says is in effect ('containerd config dump', run in the sandbox).
 */
#ifndef GPUIMG_CONTAINERD_H
#define GPUIMG_CONTAINERD_H

#include "containerd-config.h"
#include "error.h"
#include "finding.h"
#include "log.h"
#include "rootfs.h"
#include "str.h"

enum containerd_manager {
	CONTAINERD_PLAIN, /* a containerd of its own, by its systemd unit */
	CONTAINERD_K0S,   /* inside of k0s: /etc/k0s/containerd.toml, drop-ins in
	                     /etc/k0s/containerd.d */
	CONTAINERD_K3S,   /* inside of k3s: makes its configuration at each start, finds the runtime
	                     by itself */
	CONTAINERD_RKE2,  /* the same */
};

struct containerd {
	enum containerd_manager manager;
	char *program; /* "/usr/bin/containerd"; NULL: inside of the manager's own program */
	char *manager_program; /* "/usr/local/bin/k3s"; NULL: it is not there yet, or no manager */
	char *version;         /* "1.7.24~ds1"; NULL: not known */
	int major, minor;      /* 0, 0: not known */
	enum containerd_globs globs;
	char *config_path;       /* by its unit's --config, else CONTAINERD_MAIN_PATH */
	char *runtime_binary;    /* of nvidia-container-runtime; NULL: there is none */
	char *ctk, *ctk_version; /* nvidia-ctk; NULL: there is none */
};

const char *
containerd_manager_name(enum containerd_manager manager); /* "k3s"; plain: "containerd" */
/* 1: found, 0: the image has none of them, -1. Two at once (k3s beside a containerd): the manager
 * wins, and the log says so. packages: "name=version". may_run: where no package tells a version,
 * the program is asked, before its bytes are looked through; false for an image that is only
 * looked at. */
int containerd_find(struct containerd *ret, struct rootfs *root, const struct strv *packages,
                    bool may_run, struct log *log, struct error *err);
void containerd_free(struct containerd *c);
/* The error where an image has none (EXIT_INPUT): CRI-O and Docker are named, which are there in
 * its place, with what sets them up. */
int containerd_none(struct rootfs *root, struct error *err);
#define CLEANUP_CONTAINERD CLEANUP(containerd_free)

/* Runs it ("containerd --config PATH config dump", no network, under a deadline). The error has
 * what it said: a configuration that this containerd does not load. Owned by the caller. */
int containerd_run_dump(char **ret, struct rootfs *root, const struct containerd *c,
                        struct error *err);
/* Whether nvidia-ctk of this version writes what this containerd reads; else 'ret_why' (owned by
 * the caller) says what is known of it. */
bool containerd_ctk_is_good(const struct containerd *c, const struct containerd_files *files,
                            char **ret_why);

/* What can be refused (EXIT_INPUT) before anything is installed or changed: configurations of k0s,
 * k3s and RKE2 that belong to the user, or cannot be told. Reads only. */
int containerd_check(const struct containerd *c, struct rootfs *root, bool make_default,
                     struct error *err);

struct containerd_setup {
	struct rootfs *root; /* writable, can run */
	const struct containerd *containerd;
	bool make_default;
	struct log *log;
};
/* What was done, for the proof and the manifest. */
struct containerd_result {
	char *by; /* "gpuimg", "nvidia-ctk 1.20.0", "k3s", "RKE2" (by itself), "the image" (it was
	           * there before, just so) */
	char *binary;    /* of the runtime: must be in the exported image */
	char *main_path; /* that containerd loads first; NULL: its manager writes it on the node */
	enum containerd_globs globs; /* of that containerd */
	struct strv files;  /* "SHA256  PATH" of every file that containerd loads, as the proof saw
	                       them */
	struct strv edited; /* paths that are new or changed */
	char *dump;         /* text of the dump after; NULL where none can be had */
	struct strv notes;
};
/*
 * Gives it the runtime "nvidia" and proves it by a dump before and after. nvidia-ctk if it is good,
 * and what it did is taken back if the proof does not hold; else our own edits. On failure the
 * files are as they were before. EXIT_INPUT: refused by name (with what to do); EXIT_PROOF: what
 * its own containerd says is not what it shall be.
 */
int containerd_set_up(struct containerd_result *ret, const struct containerd_setup *setup,
                      struct error *err);
/* The same proof again, after later stages: new dump, new digests. */
int containerd_look_again(struct containerd_result *result, const struct containerd_setup *setup,
                          struct error *err);
void containerd_result_free(struct containerd_result *result);
#define CLEANUP_CONTAINERD_RESULT CLEANUP(containerd_result_free)

/* Of the exported image: every file that the dump was made from is byte for byte the same, no CDI
 * spec is baked, the runtime's binary is there. */
int proof_containerd(struct findings *f, struct rootfs *root,
                     const struct containerd_result *result, struct error *err);

#endif
