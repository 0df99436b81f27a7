/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of containerd.h share, with each other and with 'inspect'. */
#ifndef GPUIMG_CONTAINERD_INTERNAL_H
#define GPUIMG_CONTAINERD_INTERNAL_H

#include "containerd.h"

#define CONTAINERD_RUNTIME_NAME    "nvidia"
#define CONTAINERD_RUNTIME_PROGRAM "nvidia-container-runtime"
#define CONTAINERD_TOOLKIT_DIR     "/usr/local/nvidia/toolkit" /* where the GPU operator puts it */
#define CONTAINERD_K0S_DIR         "/etc/k0s/containerd.d"
#define CONTAINERD_TEXT_MAX_BYTES  (1UL * 1024 * 1024)

/* --- containerd-program.c: programs of the guest --- */

/* In the directories where packages, installers and operators put it; NULL: not there. Owned by the
 * caller. */
char *containerd_find_program(struct rootfs *root, const char *name);
bool containerd_is_program(struct rootfs *root, const char *path);
/* A program's bytes, some hundred MiB: read once for all questions, and freed right after them. */
struct containerd_bytes {
	char *data; /* a NUL is behind it; NULL: as good as empty */
	size_t size;
};
/* EXIT_INPUT: it is no program, or too large. */
int containerd_bytes_read(struct containerd_bytes *ret, struct rootfs *root, const char *path,
                          struct error *err);
bool containerd_bytes_have(const struct containerd_bytes *bytes, const char *text);
/* What stands behind the mark, of letters that versions have; NULL: it is not there. Owned by the
 * caller. */
char *containerd_version_behind(const struct containerd_bytes *bytes, const char *mark);
/* "1.31.3" in front of a text like "+k0s."; NULL: none. Owned by the caller. */
char *containerd_version_before(const struct containerd_bytes *bytes, const char *mark);
void containerd_bytes_free(struct containerd_bytes *bytes);
#define CLEANUP_CONTAINERD_BYTES CLEANUP(containerd_bytes_free)
/* The first word like a version in what "PROGRAM --version" prints; NULL: it cannot be run, or
 * prints none. Owned by the caller. */
char *containerd_ask_version(struct rootfs *root, const char *program);
/* "1:1.7.24~ds1-6" is 1, 7, 24. Whether it begins with two numbers at least. */
bool containerd_version_numbers(const char *version, int ret[3]);
/* A regular file's text, or NULL if it is missing; owned by the caller. */
int containerd_read_text(char **ret, struct rootfs *root, const char *path, struct error *err);

/* --- containerd-others.c: CRI-O and Docker --- */

/* A sentence for each that the image has beside its containerd: they are not set up. */
void containerd_note_others(struct strv *ret, struct rootfs *root);

/* --- containerd-dump-run.c --- */

/* A dump of the configuration with the CRI plugin on: where it is off, 1.x says nothing of it, and
 * a list that names it by its old name in a newer file loads nowhere. */
int containerd_run_dump_with_cri(char **ret, struct rootfs *root, const struct containerd *c,
                                 const struct containerd_files *files, struct error *err);

/* --- containerd-unit.c: systemd.unit(5) --- */

/* The words of a service's ExecStart=, drop-ins merged; the first is the program, without systemd's
 * prefixes. 1: found, 0: there is no such unit, or it is masked. */
int containerd_unit_command(struct strv *ret, struct rootfs *root, const char *unit,
                            struct error *err);

/* --- containerd-look.c: what files say, where nothing can be run --- */

/* A runtime by the files alone, merged as this containerd does. */
struct containerd_look {
	char *file; /* that names it last; NULL: none does */
	char *type, *binary;
	struct strv options; /* "SystemdCgroup = true", sorted, without BinaryName */
};
void containerd_look_at(struct containerd_look *ret, const struct containerd_files *files,
                        int major, const char *runtime);
/* default_runtime_name; NULL: not set. Owned by the caller. */
char *containerd_look_default(const struct containerd_files *files, int major);
void containerd_look_free(struct containerd_look *look);
#define CLEANUP_CONTAINERD_LOOK CLEANUP(containerd_look_free)

/* --- containerd-snapshot.c: to take back what was done --- */

struct containerd_saved {
	char *path;
	uint32_t mode;
	void *data; /* of a file; of a link its target */
	size_t size;
};
struct containerd_snapshot {
	struct rootfs *root;
	struct strv places; /* directories, with all that is in them, and single files */
	struct containerd_saved *items; /* sorted by path; directories before what is in them */
	size_t count;
};
/* 'places' are resolved paths; one that is missing is remembered as such. */
int containerd_snapshot_take(struct containerd_snapshot *ret, struct rootfs *root,
                             const struct strv *places, struct error *err);
/* Paths that are new, changed or gone since. */
int containerd_snapshot_changes(const struct containerd_snapshot *s, struct strv *ret,
                                struct error *err);
/* Everything as it was: content, type and permissions; what is new is removed. */
int containerd_snapshot_restore(const struct containerd_snapshot *s, struct error *err);
void containerd_snapshot_free(struct containerd_snapshot *s);
#define CLEANUP_CONTAINERD_SNAPSHOT CLEANUP(containerd_snapshot_free)

/* --- containerd-rancher.c: k3s, RKE2; containerd-k0s.c --- */

int containerd_rancher_check(const struct containerd *c, struct rootfs *root, bool make_default,
                             struct error *err);
int containerd_rancher_set_up(struct containerd_result *r, const struct containerd_setup *setup,
                              struct error *err);
int containerd_k0s_check(const struct containerd *c, struct rootfs *root, bool make_default,
                         struct error *err);
int containerd_k0s_set_up(struct containerd_result *r, const struct containerd_setup *setup,
                          struct error *err);

/* --- containerd-managed.c: k0s, k3s, RKE2 --- */

/* EXIT_INPUT, with a hint; the message is there. */
int containerd_refuse(struct error *err, const char *hint);
/* All "*.toml" of a directory, by name, but the one named 'but' (may be NULL). A missing directory
 * has none. */
int containerd_dropins_read(struct containerd_files *ret, struct rootfs *root, const char *dir,
                            const char *but, struct error *err);
/* EXIT_INPUT: read after what is ours, the drop-in takes the default runtime, or the runtime's
 * program, away from it. */
int containerd_dropin_check(const struct containerd_file *file, const struct containerd *c,
                            bool make_default, struct error *err);

int containerd_managed_check(const struct containerd *c, struct rootfs *root, bool make_default,
                             struct error *err);
int containerd_managed_set_up(struct containerd_result *ret, const struct containerd_setup *setup,
                              struct error *err);
/* Whether it still holds: EXIT_PROOF else. Digests anew. */
int containerd_managed_look_again(struct containerd_result *result,
                                  const struct containerd_setup *setup, struct error *err);

/* --- containerd-result.c --- */

/* "SHA256  PATH" of a file. */
int containerd_add_digest(struct strv *ret, struct rootfs *root, const char *path,
                          struct error *err);
/* Of every file that a containerd loads which reads patterns so, the main one first. */
int containerd_add_digests(struct strv *ret, struct rootfs *root, const char *main_path,
                           enum containerd_globs globs, struct error *err);
/* EXIT_PROOF, with what containerd_dump_judge() found. */
int containerd_not_so(const struct containerd *c, const struct strv *complaints, struct error *err);

/* --- proof-containerd.c: points that 'inspect' has too --- */

/* Bad, or a note where nobody wants it. */
int containerd_judge_cdi(struct findings *f, struct rootfs *root, bool wanted, struct error *err);
void containerd_judge_binary(struct findings *f, struct rootfs *root, const char *binary,
                             bool wanted);

#endif
