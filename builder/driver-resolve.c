/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a branch to packages: the first set of names (driver-names.h) that the source has whole,
 * every kernel served, then what apt makes of it. Transitional packages are followed before apt
 * sees them, so that the plan and the holds name what is really installed.
 */
#include <stdlib.h>
#include <string.h>

#include "driver-resolve-internal.h"
#include "packages.h"

#define MAX_FORWARDS 4 /* 535 -> 570 -> 580 was seen; a circle must end */

const struct driver_apt driver_apt_real = {
	.add_components = apt_add_components,
	.add_pinned = apt_add_pinned,
	.pin = apt_pin,
	.versions = apt_versions,
	.names = apt_names,
	.simulate = apt_simulate,
};

int driver_add_sources(struct apt *apt, const struct guest *guest, const struct driver_wish *wish,
                       struct error *err)
{
	return driver_add_sources_by(&driver_apt_real, apt, guest, wish, err);
}

int driver_resolve(struct driver_plan *ret, struct apt *apt, struct rootfs *root,
                   const struct guest *guest, const struct driver_wish *wish, struct error *err)
{
	return driver_resolve_by(ret, &driver_apt_real, apt, root, guest, wish, err);
}

/* No set was good: says what there is instead. 'why' is of the first set that had anything. */
static int refuse_branch(struct resolution *r, enum set_outcome outcome, struct error *why,
                         struct error *err)
{
	CLEANUP_FREE char *there = NULL;

	if (outcome == SET_KERNELS)
		return error_take(err, why);
	if (resolve_there_is(&there, r, err) < 0)
		return -1;
	if (outcome == SET_INCOMPLETE) {
		error_take(err, why);
		error_hint(err, "driver source '%s' has these branches for this image: %s",
		           driver_source_name(r->wish->source), there);
		return error_code(err, EXIT_INPUT);
	}
	error_set(err, "driver source '%s' has no branch %s with %s modules for '%s'; there is: %s",
	          driver_source_name(r->wish->source), r->branch,
	          driver_flavour_name(r->wish->flavour), r->guest->pretty_name, there);
	error_hint(err, "take one of these, or another source (--driver-source, --apt-repo)");
	return error_code(err, EXIT_INPUT);
}

static int refuse_forward(struct resolution *r, const char *to, struct error *why,
                          struct error *err)
{
	error_take(err, why);
	error_prefix(err, "driver branch %s is not to be had from '%s'", r->branch,
	             driver_source_name(r->wish->source));
	error_hint(err,
	           "ask for branch %s, or pass --allow-branch-forward; a branch that was given up "
	           "here may still be had with --driver-source=nvidia-repo, debs or run",
	           to);
	return error_code(err, EXIT_INPUT);
}

/* Goes through the sets for r->branch. 0: choice is good. 1: *ret_branch is the branch to follow.
 */
static int choose_set(struct set_choice *choice, char **ret_branch, struct resolution *r,
                      struct error *err)
{
	CLEANUP_ERROR struct error first = ERROR_INIT;
	CLEANUP_FREE char *forward = NULL;
	enum set_outcome worst = SET_ABSENT;
	const struct driver_set *set = NULL;

	while ((set = driver_set_next(set ? set + 1 : NULL, r->guest->id, r->wish->source))) {
		CLEANUP_ERROR struct error why = ERROR_INIT;
		CLEANUP_FREE char *to = NULL;
		enum set_outcome outcome;

		if (resolve_set(&outcome, choice, &to, r, set, &why, err) < 0)
			return -1;
		if (outcome == SET_GOOD)
			return 0;
		/* what is told: the first set that has the branch in some way */
		if (outcome == SET_ABSENT || (worst != SET_ABSENT && worst != SET_INCOMPLETE) ||
		    (worst == SET_INCOMPLETE && outcome == SET_INCOMPLETE))
			continue;
		worst = outcome;
		error_free(&first);
		error_take(&first, &why);
		free(forward);
		forward = STEAL(to);
	}
	if (worst != SET_FORWARD)
		return refuse_branch(r, worst, &first, err);
	if (!r->wish->allow_forward)
		return refuse_forward(r, forward, &first, err);
	*ret_branch = STEAL(forward);
	return 1;
}

/* Follows transitional packages. *ret_branch: where they end (a copy). */
static int follow(struct set_choice *choice, char **ret_branch, struct resolution *r,
                  struct error *err)
{
	CLEANUP_FREE char *branch = str_copy(r->wish->branch);
	unsigned hops;

	for (hops = 0; hops <= MAX_FORWARDS; hops++) {
		CLEANUP_FREE char *next = NULL;
		int more;

		r->branch = branch;
		more = choose_set(choice, &next, r, err);
		if (more < 0)
			return -1;
		if (more == 0) {
			*ret_branch = STEAL(branch);
			r->branch = *ret_branch;
			return 0;
		}
		free(branch);
		branch = STEAL(next);
	}
	error_set(
		err,
		"driver branch %s: transitional packages hand it on more than %d times, last to %s",
		r->wish->branch, MAX_FORWARDS, branch);
	return error_code(err, EXIT_INPUT);
}

/* apt takes the newest of what a dependency leaves open, and does not even look at an older one
 * that alone would fit. */
static int pin_version(struct resolution *r, const char *upstream, struct error *err)
{
	static const char *const globs[] = {"*nvidia*",  "libcuda*",    "libnvcuvid*",
	                                    "libnvsdm*", "libxnvctrl*", "cuda-drivers*"};
	/* what follows is the distribution's revision; apt takes no '*' at the beginning */
	CLEANUP_FREE char *versions = str_format("%s-*", upstream);
	size_t i;

	for (i = 0; i < sizeof(globs) / sizeof(globs[0]); i++)
		if (r->ask->pin(r->apt, globs[i], versions, err) < 0)
			return -1;
	return 0;
}

/* Tools that go with any driver, and are released with their own versions of the same kind. */
static bool is_tool(const char *name)
{
	static const char *const tools[] = {
		"nvidia-modprobe", "nvidia-persistenced",   "nvidia-settings", "nvidia-xconfig",
		"libxnvctrl",      "nvidia-driver-pinning", "nvidia-prime"};
	size_t i;

	for (i = 0; i < sizeof(tools) / sizeof(tools[0]); i++)
		if (str_starts(name, tools[i]))
			return true;
	return false;
}

int driver_check_item(const struct apt_item *item, const char *upstream, struct error *err)
{
	CLEANUP_FREE char *version = NULL;

	if (item->removed && !driver_is_package(item->name)) {
		error_set(err, "the packages to be installed would remove '%s' from the image",
		          item->name);
		error_hint(err, "look with --plan at what the image has installed; a conflict with "
		                "its packages must be resolved in the image first");
		return error_code(err, EXIT_INPUT);
	}
	if (item->removed || !driver_is_package(item->name) || is_tool(item->name))
		return 0;
	version = driver_upstream_version(item->version);
	if (!version || !driver_version_like(version) || strcmp(version, upstream) == 0)
		return 0;
	error_set(err,
	          "versions do not fit together: apt would install '%s' %s beside a driver of %s",
	          item->name, item->version, upstream);
	error_hint(err,
	           "NVML refuses a library of another version than the kernel's modules; leave "
	           "sources out that have other drivers, or take another branch");
	return error_code(err, EXIT_INPUT);
}

static int take_transaction(struct driver_plan *plan, const struct apt_transaction *t,
                            struct error *err)
{
	size_t i;

	for (i = 0; i < t->count; i++) {
		const struct apt_item *item = &t->items[i];

		if (driver_check_item(item, plan->version, err) < 0)
			return -1;
		if (item->removed)
			continue;
		strv_addf(&plan->packages, "%s=%s", item->name, item->version);
		if (item->sha256)
			strv_addf(&plan->digests, "%s  %s=%s", item->sha256, item->name,
			          item->version);
		if (driver_is_package(item->name))
			strv_add(&plan->driver_packages, item->name);
	}
	plan->download_bytes = t->download_bytes;
	plan->installed_bytes = t->installed_bytes;
	return 0;
}

static void take_kernels(struct driver_plan *plan, struct kernel_choices *choices)
{
	size_t i;

	plan->kernels = mem_grow(NULL, choices->count + 1, sizeof(*plan->kernels));
	for (i = 0; i < choices->count; i++)
		plan->kernels[i] = (struct driver_kernel){
			.version = str_copy(choices->items[i].version),
			.how = choices->items[i].how,
			.package = STEAL(choices->items[i].package),
		};
	plan->kernel_count = choices->count;
}

static int fill_plan(struct driver_plan *plan, struct resolution *r, struct set_choice *choice,
                     struct error *err)
{
	CLEANUP_APT_TRANSACTION struct apt_transaction t = {0};

	plan->source = r->wish->source;
	plan->flavour = r->wish->flavour;
	plan->branch_asked = str_copy(r->wish->branch);
	plan->branch = str_copy(r->branch);
	plan->forwarded = strcmp(plan->branch, plan->branch_asked) != 0;
	plan->version = str_copy(choice->upstream);
	strv_add_all(&plan->install, &choice->install);
	if (resolve_extras(&plan->install, r, plan->version, err) < 0 ||
	    pin_version(r, plan->version, err) < 0)
		return -1;
	if (r->ask->simulate(r->apt, &plan->install, &t, err) < 0)
		return error_prefix(err, "driver %s, %s", plan->version, choice->set->title);
	take_kernels(plan, &choice->kernels);
	return take_transaction(plan, &t, err);
}

static int check_wish(const struct guest *guest, const struct driver_wish *wish, struct error *err)
{
	uint64_t number;

	if (!wish->branch || str_parse_uint(wish->branch, 9999, &number) < 0) {
		error_set(err, "driver branch '%s': not a number as 535",
		          wish->branch ? wish->branch : "");
		return error_code(err, EXIT_USAGE);
	}
	if (!driver_set_next(NULL, guest->id, wish->source)) {
		error_set(err, "driver source '%s': no package names are known for '%s'",
		          driver_source_name(wish->source),
		          guest->pretty_name ? guest->pretty_name : "this image");
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

int driver_resolve_by(struct driver_plan *ret, const struct driver_apt *ask, struct apt *apt,
                      struct rootfs *root, const struct guest *guest,
                      const struct driver_wish *wish, struct error *err)
{
	CLEANUP_RESOLUTION struct resolution r = {
		.ask = ask, .apt = apt, .root = root, .guest = guest, .wish = wish};
	CLEANUP_SET_CHOICE struct set_choice choice = {0};
	CLEANUP_DRIVER_PLAN struct driver_plan plan = {0};
	CLEANUP_FREE char *branch = NULL;

	if (check_wish(guest, wish, err) < 0 || packages_read(&r.installed, root, err) < 0 ||
	    follow(&choice, &branch, &r, err) < 0 || fill_plan(&plan, &r, &choice, err) < 0)
		return -1;
	*ret = plan;
	plan = (struct driver_plan){0};
	return 0;
}
