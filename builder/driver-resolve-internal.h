/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of driver-resolve.h share. */
#ifndef GPUIMG_DRIVER_RESOLVE_INTERNAL_H
#define GPUIMG_DRIVER_RESOLVE_INTERNAL_H

#include "driver-names.h"
#include "driver-resolve.h"

/* The questions to apt, as apt.h has them: a table, so that tests answer from a list. */
struct driver_apt {
	int (*add_components)(struct apt *apt, const struct strv *components, struct error *err);
	int (*add_pinned)(struct apt *apt, const struct apt_pinned *repository, struct error *err);
	int (*pin)(struct apt *apt, const char *package_glob, const char *version_glob,
	           struct error *err);
	int (*versions)(struct apt *apt, const char *package, struct apt_version **ret,
	                size_t *ret_count, struct error *err);
	int (*names)(struct apt *apt, const char *pattern, struct strv *ret, struct error *err);
	int (*simulate)(struct apt *apt, const struct strv *install, struct apt_transaction *ret,
	                struct error *err);
};

extern const struct driver_apt driver_apt_real;

int driver_add_sources_by(const struct driver_apt *ask, struct apt *apt, const struct guest *guest,
                          const struct driver_wish *wish, struct error *err);
int driver_resolve_by(struct driver_plan *ret, const struct driver_apt *ask, struct apt *apt,
                      struct rootfs *root, const struct guest *guest,
                      const struct driver_wish *wish, struct error *err);

/* What apt said of one package; asked once. */
struct known_package {
	char *name;
	struct apt_version *versions; /* the candidate first */
	size_t count;
};

/* One resolution on its way. */
struct resolution {
	const struct driver_apt *ask;
	struct apt *apt;
	struct rootfs *root;
	const struct guest *guest;
	const struct driver_wish *wish;
	struct strv installed;        /* "name=version" of the image */
	struct known_package **known; /* their addresses stay */
	size_t known_count;
	const char *branch; /* that is looked for now */
};

void resolution_free(struct resolution *r);
#define CLEANUP_RESOLUTION CLEANUP(resolution_free)

/* NULL on errors only: a package that there is not has no versions. */
const struct known_package *resolution_package(struct resolution *r, const char *name,
                                               struct error *err);
/* The versions of a package, for a message: "535.261.03-1, 535.216.03-1", or "not there". */
char *known_versions(const struct known_package *p);

/* Whether a version is one of a driver: "535.261.03", "580.142". */
bool driver_version_like(const char *upstream);
/* Below, equal to, above 0, as numbers between dots. */
int driver_version_compare(const char *a, const char *b);
bool driver_version_is(const char *package_version, const char *upstream);
bool driver_version_of_branch(const char *package_version, const char *branch);
/* The name that a dependency begins with. Owned by the caller. */
char *dependency_name(const char *dependency);
/* The version after ">=" in a dependency on this package; NULL: none. Owned by the caller. */
char *dependency_at_least(const struct apt_version *version, const char *package);

/* The version of a package that goes with the driver: the one with the same revision too, if there
 * is; NULL: none. 'like': a full version (may be NULL). */
const struct apt_version *known_find(const struct known_package *p, enum driver_match match,
                                     const char *upstream, const char *branch, const char *like);

/* What one kernel comes to at one version of the driver. */
enum kernel_gap {
	KERNEL_SERVED,
	KERNEL_NO_MODULES, /* neither prebuilt ones nor their source */
	KERNEL_NO_HEADERS,
	KERNEL_UNSIGNED, /* would be compiled here, against the wish */
};

struct kernel_choice {
	const char *version; /* of the kernel; borrowed */
	enum driver_how how;
	enum kernel_gap gap;
	char *package; /* as in struct driver_kernel */
};

struct kernel_choices {
	struct kernel_choice *items;
	size_t count;
	bool dkms; /* one of them at least is compiled */
};

void kernel_choices_free(struct kernel_choices *choices);
size_t kernel_choices_gaps(const struct kernel_choices *choices);

/* Into an empty 'ret', which the caller releases on failure too. have_dkms: whether the modules'
 * source is there at this version. */
int resolve_kernels(struct kernel_choices *ret, struct resolution *r, const struct driver_set *set,
                    const char *upstream, bool have_dkms, struct error *err);
/* EXIT_INPUT, with all kernels that have a gap. */
int kernels_refused(struct resolution *r, const struct driver_set *set,
                    const struct kernel_choices *choices, struct error *err);

/* A set at one version. */
struct set_choice {
	const struct driver_set *set;
	char *upstream;                /* "535.261.03" */
	struct strv install;           /* "name=version" */
	struct kernel_choices kernels; /* all served */
};

void set_choice_free(struct set_choice *choice);
#define CLEANUP_SET_CHOICE CLEANUP(set_choice_free)

enum set_outcome {
	SET_ABSENT,     /* no package of this branch */
	SET_INCOMPLETE, /* packages, but none of them fit together */
	SET_FORWARD,    /* transitional packages to another branch */
	SET_KERNELS,    /* a kernel is left over */
	SET_GOOD,
};

/* What a set comes to for r->branch. All but SET_GOOD and SET_ABSENT: 'why' is set. SET_FORWARD:
 * also *ret_branch. -1: apt could not be asked, err is set. */
int resolve_set(enum set_outcome *ret, struct set_choice *choice, char **ret_branch,
                struct resolution *r, const struct driver_set *set, struct error *why,
                struct error *err);

/* Adds to 'install' what --driver-extra asks for. */
int resolve_extras(struct strv *install, struct resolution *r, const char *upstream,
                   struct error *err);

/* "470 proprietary, 535 open, 535 proprietary": what the source has for this image. */
int resolve_there_is(char **ret, struct resolution *r, struct error *err);

#endif
