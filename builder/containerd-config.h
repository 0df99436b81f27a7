/* SPDX-License-Identifier: Apache-2.0 */
/*
 * containerd's configuration files, as texts: which version each is of, what they import, and the
 * edits that give it a runtime. Schemas (containerd: docs/man/containerd-config.toml.5.md,
 * RELEASES.md, services/server/config/config.go), by the section that CRI has:
 *
 * - version 1, or none: plugins.cri
 * - version 2: plugins."io.containerd.grpc.v1.cri"
 * - version 3 and 4: plugins."io.containerd.cri.v1.runtime"
 *
 * containerd 1.x replaces a plugin's whole section by that of a file that is read later, so there
 * the runtime goes into the file whose section wins; 2.x merges deeply, and a drop-in must have the
 * version of the file that imports it (a higher one is fatal in 2.3, or hides the whole CRI section
 * in 2.0 to 2.2).
 */
#ifndef GPUIMG_CONTAINERD_CONFIG_H
#define GPUIMG_CONTAINERD_CONFIG_H

#include "error.h"
#include "rootfs.h"
#include "str.h"
#include "toml.h"

/* Where containerd looks for a pattern without a '/' in front: from its working directory (/)
 * before 1.6.30 and 1.7.16, from the directory of the file that has it since. */
enum containerd_globs {
	CONTAINERD_GLOBS_UNKNOWN,
	CONTAINERD_GLOBS_FROM_ROOT,
	CONTAINERD_GLOBS_FROM_FILE
};

#define CONTAINERD_MAIN_PATH   "/etc/containerd/config.toml"
#define CONTAINERD_DROPIN_NAME "99-gpuimg-nvidia.toml"

struct containerd_file {
	char *path;      /* as containerd knows it */
	char *real_path; /* where links lead from there: what an edit writes */
	char *text;
	struct toml *toml;
	int version; /* 0: it says none */
};

/* What containerd loads: the main file, then its imports in the order in which they are merged. */
struct containerd_files {
	char *main_path;
	bool main_exists;
	struct containerd_file *items; /* empty if there is no main file */
	size_t count;
	int version;         /* in effect: of the main file, 1 where it says none; 0: no file */
	struct strv imports; /* of the main file, as they stand */
	/* Set before reading by who knows the version: what another reading would load is not there
	 * then. Unknown: both are followed. */
	enum containerd_globs globs;
	/* In the directory that drop-ins would go to ("conf.d" beside the main file), but loaded by
	 * nothing: an import of all that is in there would bring them to life. */
	struct strv dormant;
};

/* 'ret' is empty but for its 'globs'. EXIT_INPUT: a file that is no TOML, too many or too large
 * ones, an import that is missing (containerd does not start then). An import that loops is read
 * once, as containerd does. */
int containerd_files_read(struct containerd_files *ret, struct rootfs *root, const char *main_path,
                          struct error *err);
void containerd_files_free(struct containerd_files *files);
#define CLEANUP_CONTAINERD_FILES CLEANUP(containerd_files_free)

/* The directory for drop-ins of our own: "conf.d" beside the main file. Owned by the caller. */
char *containerd_dropin_dir(const char *main_path);
/* The plugin's key in a file of this version. */
const char *containerd_plugin_key(int version);
/* Whether the CRI plugin is switched off, by any of the names that it has had. */
bool containerd_cri_disabled(const struct containerd_files *files);

/* A runtime to be added, or to be made as it shall be if it is there already. */
struct containerd_runtime {
	const char *name;   /* "nvidia" */
	const char *binary; /* "/usr/bin/nvidia-container-runtime" */
	const struct strv
		*options; /* of runc in effect, "SystemdCgroup = true", without BinaryName */
	bool make_default;
};

/* A file as it shall be. */
struct containerd_edit {
	char *path;
	char *text;
	bool is_new;
};
struct containerd_edits {
	struct containerd_edit *items;
	size_t count;
	struct strv notes; /* for people: "the CRI plugin was disabled, and is not any more" */
};

/*
 * major, minor: of the image's containerd. EXIT_INPUT: what cannot be edited safely (a runtime of
 * this name written as an inline table, and the like), with file and line. No edits at all: it is
 * there already, just so.
 */
int containerd_plan_edits(struct containerd_edits *ret, const struct containerd_files *files,
                          int major, int minor, const struct containerd_runtime *runtime,
                          struct error *err);
void containerd_edits_free(struct containerd_edits *edits);
#define CLEANUP_CONTAINERD_EDITS CLEANUP(containerd_edits_free)

/* What 'containerd config dump' printed: everything in effect, in the schema of that containerd. */
struct containerd_dump {
	struct toml *toml;
	const struct toml_node *cri; /* borrowed; NULL: there is no such section */
	int version;
};
int containerd_dump_parse(struct containerd_dump *ret, const char *text, struct error *err);
void containerd_dump_free(struct containerd_dump *dump);
#define CLEANUP_CONTAINERD_DUMP CLEANUP(containerd_dump_free)
/* Names of all runtimes, sorted; and of the default one (NULL: none). Owned by the caller. */
struct strv containerd_dump_runtimes(const struct containerd_dump *dump);
char *containerd_dump_default(const struct containerd_dump *dump);
/* The options of a runtime, "SystemdCgroup = true", sorted, without BinaryName. */
struct strv containerd_dump_options(const struct containerd_dump *dump, const char *runtime);
/* The options that a further runtime takes over: of runc, or, where none is named so, of the
 * default one, if it is run by the same shim (crun is). */
struct strv containerd_dump_model(const struct containerd_dump *dump);
/*
 * Whether 'after' has the runtime with runtime_type, BinaryName and options as they shall be, as
 * default only if that was asked for, and everything else as 'before' had it (imports and a
 * disabled CRI plugin apart). Adds to 'ret' a sentence for each thing that is not so.
 */
void containerd_dump_judge(const struct containerd_dump *before,
                           const struct containerd_dump *after,
                           const struct containerd_runtime *runtime, struct strv *ret);

#endif
