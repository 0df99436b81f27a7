/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "bake.h"
#include "containerd-toolkit.h"
#include "digest.h"
#include "driver-dkms.h"
#include "driver-hold.h"
#include "driver-resolve.h"
#include "driver-run.h"
#include "packages.h"
#include "transaction.h"

/* While packages are installed or purged: the stage 'initramfs' makes every kernel's, once, and
 * proves it. */
static const char initramfs_stub[] =
	"#!/bin/sh\n"
	"# For the time of this package transaction: every initramfs is rebuilt later.\n"
	"exit 0\n";

bool bake_is_wanted(const struct build *b)
{
	return b->options->driver_branch || b->options->containerd_runtime;
}

static bool wants_packages_of(const struct build *b, enum driver_source source)
{
	return b->options->driver_branch && b->options->driver_source == source;
}

/* A directory of packages and a .run file are for those who have no network. */
bool bake_is_online(const struct build *b)
{
	return b->options->network ||
	       (!wants_packages_of(b, DRIVER_DEBS) && !wants_packages_of(b, DRIVER_RUN));
}

struct driver_wish bake_driver_wish(const struct build *b)
{
	const struct options *o = b->options;

	return (struct driver_wish){
		.source = o->driver_source,
		.flavour = o->driver_flavour,
		.branch = o->driver_branch,
		.extra = &o->driver_extra,
		.require_signed = o->require_signed,
		.allow_forward = o->allow_branch_forward,
		.repo_url = o->driver_repo,
		.repo_key = o->driver_repo_key,
	};
}

/* What goes in is what was digested before: a file may have been changed since. */
static int add_debs(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv digests = {0};

	if (apt_add_debs(b->apt, b->options->driver_path, &digests, err) < 0)
		return -1;
	for (size_t i = 0; i < digests.count; i++)
		if (!strv_has(&b->driver_files, digests.items[i])) {
			error_set(err, "'%s': a package was changed while the build ran",
			          b->options->driver_path);
			error_hint(err, "build again");
			return error_code(err, EXIT_INPUT);
		}
	return 0;
}

static int add_sources(struct build *b, struct error *err)
{
	const struct driver_wish wish = bake_driver_wish(b);

	if (wants_packages_of(b, DRIVER_DEBS) && add_debs(b, err) < 0)
		return -1;
	if (b->options->driver_branch && b->options->driver_source != DRIVER_RUN &&
	    driver_add_sources(b->apt, b->guest, &wish, err) < 0)
		return -1;
	if (b->options->containerd_runtime && bake_is_online(b) &&
	    containerd_add_sources(b, b->apt, err) < 0)
		return -1;
	/* what is only removed needs no source */
	if (!bake_is_online(b) && !wants_packages_of(b, DRIVER_DEBS))
		return 0;
	return apt_update(b->apt, err);
}

int build_open_apt(struct build *b, struct error *err)
{
	const struct apt_options o = {
		.root = b->root,
		.guest = b->guest,
		.mirrors = &b->options->apt_mirrors,
		.repositories = &b->options->apt_repos,
		.proxy = b->options->apt_proxy,
		.network = bake_is_online(b),
		.work_dir = b->work_dir,
		.log = b->log,
	};

	if (b->apt)
		return 0;
	if (apt_open(&b->apt, &o, err) < 0 ||
	    apt_stub(b->apt, "update-initramfs", initramfs_stub, err) < 0)
		return -1;
	return add_sources(b, err);
}

int build_close_apt(struct build *b, struct error *err)
{
	int result = b->apt ? apt_close(b->apt, err) : 0;

	apt_free(STEAL(b->apt));
	return result;
}

static void add_lines(struct strv *ret, const char *name, const struct strv *items)
{
	for (size_t i = 0; i < items->count; i++)
		strv_addf(ret, "%s=%s", name, items->items[i]);
}

/* What shapes the result beside the base and what was changed before. Two sources may have other
 * contents under one name and version; what is asked for by name is marked as such. */
static void describe(const struct build *b, struct strv *ret)
{
	const struct driver_plan *d = &b->driver;

	strv_addf(ret, "dkms=%s", b->options->dkms_unregister ? "unregister" : "keep");
	strv_addf(ret, "branch=%s", d->branch ? d->branch : "");
	if (d->branch) {
		strv_addf(ret, "source=%s", driver_source_name(d->source));
		strv_addf(ret, "flavour=%s", driver_flavour_name(d->flavour));
	}
	for (size_t i = 0; i < d->kernel_count; i++)
		strv_addf(ret, "kernel=%s %s", d->kernels[i].version,
		          driver_how_name(d->kernels[i].how));
	add_lines(ret, "package", &d->packages);
	add_lines(ret, "install", &d->install);
	add_lines(ret, "archive", &d->digests);
	add_lines(ret, "toolkit", &b->toolkit_packages);
	add_lines(ret, "archive", &b->toolkit_digests);
	add_lines(ret, "file", &b->driver_files);
}

void bake_install_names(const struct build *b, struct strv *ret)
{
	strv_add_all(ret, &b->driver.install);
	strv_add_all(ret, &b->toolkit_install);
}

static int install(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv all = {0};

	bake_install_names(b, &all);
	if (all.count == 0)
		return 0;
	if (build_open_apt(b, err) < 0 || apt_stub(b->apt, "dkms", driver_dkms_stub, err) < 0)
		return -1;
	return apt_install(b->apt, &all, err);
}

/* The same of an installer. */
static int check_installer(const struct build *b, struct error *err)
{
	const char *path = b->options->driver_path;
	CLEANUP_FREE char *digest = NULL;
	CLEANUP_FREE char *line = NULL;

	if (digest_file(path, "SHA256", &digest, err) < 0)
		return -1;
	line = str_format("%s  %s", digest, path);
	if (strv_has(&b->driver_files, line))
		return 0;
	error_set(err, "'%s' was changed while the build ran", path);
	error_hint(err, "build again");
	return error_code(err, EXIT_INPUT);
}

static int build_modules(struct build *b, struct error *err)
{
	if (b->driver.source != DRIVER_RUN)
		return driver_dkms_build(b->root, &b->driver, b->log, err);
	if (check_installer(b, err) < 0)
		return -1;
	return driver_run_install(b->root, b->options->driver_path, &b->driver,
	                          !b->options->dkms_unregister, b->log, err);
}

/* A system without dpkg has nothing that would change by itself. */
static int hold(struct build *b, struct error *err)
{
	CLEANUP_FREE char *status = NULL;
	CLEANUP_FREE char *preferences = NULL;
	CLEANUP_FREE char *unattended = NULL;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_STRV struct strv installed = {0};

	if (packages_read_status(&status, b->root, err) < 0 ||
	    packages_read(&installed, b->root, err) < 0)
		return -1;
	if (!status)
		return 0;
	driver_hold_names(&names, &b->driver, status);
	if (names.count == 0)
		return 0;
	preferences = driver_preferences_text(&names, &installed);
	unattended = driver_unattended_text(&names);
	if (rootfs_write(b->root, DRIVER_PREFERENCES_PATH, preferences, strlen(preferences), 0644,
	                 err) < 0 ||
	    rootfs_write(b->root, DRIVER_UNATTENDED_PATH, unattended, strlen(unattended), 0644,
	                 err) < 0)
		return -1;
	return driver_hold(b->root, &names, err);
}

static int bake_driver(struct build *b, struct error *err)
{
	if (build_modules(b, err) < 0)
		return -1;
	if (b->options->dkms_unregister && driver_dkms_unregister(b->root, b->log, err) < 0)
		return -1;
	if (driver_dkms_drop_key(b->root, b->had_dkms_key, b->log, err) < 0)
		return -1;
	return hold(b, err);
}

static int bake(struct build *b, struct error *err)
{
	if (install(b, err) < 0 || (b->driver.branch && bake_driver(b, err) < 0))
		return -1;
	return build_close_apt(b, err);
}

int bake_packages(struct build *b, struct error *err)
{
	CLEANUP_STRV struct strv inputs = {0};
	int found;

	if (b->baked || (!b->driver.branch && b->toolkit_install.count == 0))
		return 0;
	b->baked = true;
	describe(b, &inputs);
	found = transaction_reuse(b, "driver", &inputs, err);
	if (found < 0)
		return -1;
	b->baked_from_cache = found == 1;
	if (found == 1) {
		log_note(b->log, "driver and toolkit packages are as in an earlier build: taken "
		                 "from the cache");
		return 0;
	}
	if (bake(b, err) < 0)
		return -1;
	transaction_keep(b);
	return 0;
}
