/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUIMG_CONTAINERD_CONFIG_INTERNAL_H
#define GPUIMG_CONTAINERD_CONFIG_INTERNAL_H

#include "containerd-config.h"

#define CONTAINERD_MAX_FILES            64
#define CONTAINERD_DEFAULT_RUNTIME_TYPE "io.containerd.runc.v2"

/* containerd-paths.c */
/* "/a/./b/../c" as "/a/c"; a relative path counts from 'dir'. Owned by the caller. */
char *containerd_clean_path(const char *dir, const char *path);
char *containerd_dir_of(const char *path);
bool containerd_is_pattern(const char *path);
/* Adds all paths that match, in order. A directory that is missing has none. */
int containerd_glob(struct strv *ret, struct rootfs *root, const char *pattern, struct error *err);

/* containerd-wanted.c: what shall stand below "containerd" of the CRI section. */
struct containerd_leaf {
	struct strv path; /* "runtimes", "nvidia", "options", "BinaryName" */
	char *value;      /* TOML, as toml_show has it */
};
struct containerd_leaves {
	struct containerd_leaf *items;
	size_t count;
};
/* The runtime; 'as_runc': the default one instead, where a file that names runtimes would drop it.
 */
int containerd_wanted(struct containerd_leaves *ret, const struct containerd_runtime *runtime,
                      bool as_runc, struct error *err);
/* The keys of its path end with NULL. */
#define containerd_leaves_add(leaves, value, ...)                                                  \
	containerd_leaves_add_path(leaves, value, (const char *const[]){__VA_ARGS__})
void containerd_leaves_add_path(struct containerd_leaves *leaves, const char *value,
                                const char *const *keys);
void containerd_leaves_free(struct containerd_leaves *leaves);
#define CLEANUP_CONTAINERD_LEAVES CLEANUP(containerd_leaves_free)
/* "", 0, false and empty lists: what containerd takes a missing key for. */
bool containerd_is_zero(const char *value);

/* All names that the CRI plugin and its parts have in disabled_plugins; ends with NULL. */
const char *const *containerd_cri_names(void);
bool containerd_is_cri_name(const char *plugin);
/* Whether its disabled_plugins has one of them. */
bool containerd_disables_cri(const struct toml *toml);

#endif
