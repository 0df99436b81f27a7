/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver: bakes a branch of NVIDIA's driver, for every kernel of the image, and holds it there.
 * What it comes to is resolved before anything is changed; each kernel's modules are built or taken
 * by name, since DKMS and apt exit 0 for a kernel that they skip.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "builder/bake.h"
#include "builder/deb-file.h"
#include "builder/digest.h"
#include "builder/driver-dkms.h"
#include "builder/driver-facts.h"
#include "builder/driver-hold.h"
#include "builder/driver-replace.h"
#include "builder/driver-resolve.h"
#include "builder/driver-run.h"
#include "builder/packages.h"
#include "builder/proof-driver.h"
#include "builder/proof.h"
#include "stages/stages.h"

/* Inputs of the build like any other: the manifest names their digests. */
static int record_files(struct build *b, struct error *err)
{
	const struct options *o = b->options;
	struct deb_file *debs;
	CLEANUP_FREE char *digest = NULL;
	size_t count;

	if (o->driver_source == DRIVER_RUN) {
		if (digest_file(o->driver_path, "SHA256", &digest, err) < 0)
			return -1;
		strv_addf(&b->driver_files, "%s  %s", digest, o->driver_path);
	}
	if (o->driver_source != DRIVER_DEBS)
		return 0;
	if (deb_dir_read(&debs, &count, o->driver_path, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++)
		strv_addf(&b->driver_files, "%s  %s", debs[i].sha256, debs[i].name);
	deb_dir_free(debs, count);
	return 0;
}

/* Whoever has nothing to start from is told in the first second. */
static int driver_check(struct build *b, struct error *err)
{
	CLEANUP_DRIVER_FACTS struct driver_facts facts = {0};

	if (!b->options->driver_branch)
		return 0;
	if (b->guest->kernel_count == 0) {
		error_set(err, "the image has no kernel that a driver could be for");
		return error_code(err, EXIT_INPUT);
	}
	if (driver_facts_read(&facts, b->base_root, b->guest, &b->packages_before, err) < 0 ||
	    record_files(b, err) < 0)
		return -1;
	strv_add_all(&b->user_digests, &b->driver_files);
	b->had_dkms_key = driver_dkms_has_key(b->base_root);
	if (driver_facts_any(&facts) && !b->options->replace_driver)
		return driver_refuse_existing(&facts, err);
	return 0;
}

/* It has to be out of the way before apt is asked what goes together. */
static int remove_old(struct build *b, struct error *err)
{
	CLEANUP_DRIVER_FACTS struct driver_facts facts = {0};
	CLEANUP_ERROR struct error found = ERROR_INIT;

	if (driver_facts_read(&facts, b->root, b->guest, &b->packages_before, err) < 0)
		return -1;
	if (!driver_facts_any(&facts))
		return 0;
	driver_refuse_existing(&facts, &found);
	b->driver_found = str_copy(found.message);
	log_note(b->log, "%s: it is taken out (--replace-driver)", found.message);
	if (facts.packages.count && build_open_apt(b, err) < 0)
		return -1;
	if (b->options->driver_source == DRIVER_RUN && facts.packages.count &&
	    driver_run_keep_tools(b->root, err) < 0)
		return -1;
	return driver_remove_existing(b->root, b->guest, &facts, b->apt, b->log, err);
}

static int check_space(const struct build *b, struct error *err)
{
	CLEANUP_FREE char *what = str_format("driver %s", b->driver.version);

	return bake_check_space(b, what, b->driver.download_bytes + b->driver.installed_bytes, err);
}

static int resolve(struct build *b, struct error *err)
{
	const struct options *o = b->options;
	const struct driver_wish wish = bake_driver_wish(b);

	if (o->driver_source == DRIVER_RUN)
		return driver_run_plan(&b->driver, o->driver_path, o->driver_branch,
		                       o->driver_flavour, o->allow_branch_forward, b->root,
		                       b->guest, err);
	return build_open_apt(b, err) < 0
	               ? -1
	               : driver_resolve(&b->driver, b->apt, b->root, b->guest, &wish, err);
}

static int driver_plan(struct build *b, struct error *err)
{
	if (!b->options->driver_branch)
		return 0;
	if ((b->options->replace_driver && remove_old(b, err) < 0) || resolve(b, err) < 0 ||
	    check_space(b, err) < 0)
		return -1;
	if (b->driver.forwarded)
		log_warn(b->log, "branch %s is forwarded to %s: driver %s is baked",
		         b->driver.branch_asked, b->driver.branch, b->driver.version);
	log_note(b->log, "driver %s, %s modules, from %s, for %zu kernel%s", b->driver.version,
	         driver_flavour_name(b->driver.flavour), driver_source_name(b->driver.source),
	         b->driver.kernel_count, b->driver.kernel_count == 1 ? "" : "s");
	return 0;
}

static int driver_apply(struct build *b, struct error *err)
{
	return b->driver.branch ? bake_packages(b, err) : 0;
}

static int verify_holds(struct build *b, struct strv *ret, struct error *err)
{
	CLEANUP_FREE char *status = NULL;
	CLEANUP_FREE char *preferences = NULL;
	CLEANUP_FREE char *unattended = NULL;

	if (packages_read_status(&status, b->result_root, err) < 0)
		return -1;
	if (!status)
		return 0;
	driver_hold_names(ret, &b->driver, status);
	if (ret->count == 0)
		return 0;
	preferences = driver_preferences_text(ret, &b->packages_after);
	unattended = driver_unattended_text(ret);
	if (proof_file(&b->findings, b->result_root, "driver.preferences", DRIVER_PREFERENCES_PATH,
	               preferences, err) < 0)
		return -1;
	return proof_file(&b->findings, b->result_root, "driver.unattended", DRIVER_UNATTENDED_PATH,
	                  unattended, err);
}

static int driver_verify(struct build *b, struct error *err)
{
	CLEANUP_FREE char *scratch = str_format("%s/driver", b->work_dir);
	CLEANUP_DRIVER_FACTS struct driver_facts facts = {0};
	CLEANUP_STRV struct strv held = {0};
	const struct driver_want want = {
		.required = true,
		.branch = b->driver.branch,
		.version = b->driver.version,
		.flavour = &b->driver.flavour,
		.require_signed = b->options->require_signed,
		.may_be_registered = !b->options->dkms_unregister,
		.held = &held,
	};

	if (!b->driver.branch)
		return 0;
	if (mkdir(scratch, 0700) < 0)
		return error_errno(err, errno, "cannot make the directory '%s'", scratch);
	if (driver_facts_read(&facts, b->result_root, b->result_guest, &b->packages_after, err) <
	            0 ||
	    verify_holds(b, &held, err) < 0)
		return -1;
	b->driver_facts = driver_facts_json(&facts);
	return proof_driver(&b->findings, b->result_root, b->result_guest, &facts, &want, scratch,
	                    err);
}

const struct stage stage_driver = {
	.name = "driver",
	.summary = "bake NVIDIA's driver for every kernel (--driver-branch)",
	.check = driver_check,
	.plan = driver_plan,
	.apply = driver_apply,
	.verify = driver_verify,
};
