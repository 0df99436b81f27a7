/* SPDX-License-Identifier: Apache-2.0 */
/* inspect: what any image is, and whether a GPU would work on a node from it. It only reads. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "block-names.h"
#include "command.h"
#include "data.h"
#include "inspect.h"
#include "open-guest.h"
#include "packages.h"
#include "proof-driver.h"
#include "supervise.h"
#include "workdir.h"

#define SPACE_BYTES (1024ull * 1024 * 1024) /* copies of an initramfs or a UKI at a time */
#define TIMEOUT_S   3600u

struct job {
	const struct options *options;
	char *work_dir;
	int lock_fd;
};

/* What the profile's stages would have put down. */
struct wishes {
	struct inspect_want want;
	struct driver_want driver;
	struct strv params, blocked;
};

static int read_wishes(struct wishes *w, const struct options *o, struct error *err)
{
	CLEANUP_FREE char *data_dir = NULL;
	bool cmdline = strv_has(&o->stages, "cmdline");

	if (data_find_dir(&data_dir, o->data_dir, err) < 0 ||
	    (strv_has(&o->stages, "modprobe") && block_names_read(&w->blocked, data_dir, err) < 0))
		return -1;
	for (size_t i = 0; i < o->block.count; i++)
		if (!strv_has(&w->blocked, o->block.items[i]))
			strv_add(&w->blocked, o->block.items[i]);
	if (cmdline && o->nocrs)
		strv_add(&w->params, "pci=nocrs");
	if (cmdline && o->realloc)
		strv_add(&w->params, "pci=realloc");
	for (size_t i = 0; i < o->cmdline.add.count; i++)
		if (!strv_has(&w->params, o->cmdline.add.items[i]))
			strv_add(&w->params, o->cmdline.add.items[i]);
	w->driver = (struct driver_want){
		.required = true,
		.branch = o->driver_branch,
		.flavour = o->driver_flavour_given ? &o->driver_flavour : NULL,
		.require_signed = o->require_signed,
		.may_be_registered = true,
	};
	w->want = (struct inspect_want){
		.driver = o->driver_branch || strv_has(&o->needs, "driver-branch") ? &w->driver
	                                                                           : NULL,
		.containerd_runtime = o->containerd_runtime,
		.default_runtime = o->default_runtime,
		.profile = o->profile,
		.params = &w->params,
		.blocked = &w->blocked,
		.module_blacklist = cmdline && o->module_blacklist,
		.sealed = strv_has(&o->stages, "seal"),
	};
	return 0;
}

static int print_result(const struct inspect *in, bool json, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	json_t *report;

	if (!json) {
		inspect_print(in);
		return 0;
	}
	report = inspect_json(in);
	text = json_dumps(report, JSON_INDENT(2));
	json_decref(report);
	if (!text)
		return error_set(err, "cannot write the result as JSON");
	puts(text);
	return 0;
}

/* Everything that 'in' borrows, in the order in which it has to go. */
struct opened {
	struct inspect in;
	struct appliance *reader;
	struct accel accel;
	bool accel_known;
};

static void opened_free(struct opened *o)
{
	inspect_free(&o->in);
	bootchain_free(&o->in.chain);
	strv_free(&o->in.packages);
	rootfs_close(o->in.root);
	guest_free(o->in.guest);
	disk_close(o->in.disk);
	appliance_close(o->reader);
	accel_free(&o->accel);
}

static int open_image(struct opened *o, const struct job *job, struct log *log, struct error *err)
{
	struct inspect *in = &o->in;

	if (image_check(&in->info, in->path, err) < 0)
		return -1;

	const struct open_guest how = {
		.format = image_format_name(in->info.format),
		.work_dir = job->work_dir,
		.cache_dir = job->options->cache_dir,
		.log = log,
		.accel = &o->accel,
		.accel_known = &o->accel_known,
	};

	if (disk_open(&in->disk, in->path, how.format, false, err) < 0 ||
	    disk_probe(in->disk, err) < 0)
		return -1;
	if (open_guest(&in->guest, &in->root, &o->reader, in->disk, &how, err) < 0 ||
	    bootchain_read(&in->chain, in->root, in->guest, job->work_dir, err) < 0 ||
	    packages_read(&in->packages, in->root, err) < 0) {
		error_code(err, EXIT_INPUT);
		return error_prefix(err, "image '%s'", in->path);
	}
	return 0;
}

static int run(const struct job *job, struct log *log, bool *ret_good, struct error *err)
{
	const struct options *o = job->options;
	CLEANUP(opened_free)
	struct opened opened = {
		.in.path = o->base,
		.in.work_dir = job->work_dir,
		.in.verbose = o->level == LOG_VERBOSE,
	};
	struct wishes wishes = {0};
	int result = -1;

	log_step_begin(log, "inspect", o->base);
	if (read_wishes(&wishes, o, err) == 0 &&
	    workdir_check_space(job->work_dir, SPACE_BYTES, err) == 0 &&
	    open_image(&opened, job, log, err) == 0)
		result = inspect_run(&opened.in, &wishes.want, err);
	log_step_end(log, result == 0);
	if (result == 0)
		result = print_result(&opened.in, o->json, err);
	*ret_good = opened.in.findings.bad == 0;
	strv_free(&wishes.params);
	strv_free(&wishes.blocked);
	return result;
}

static int work(void *opaque)
{
	const struct job *job = opaque;
	struct error err = ERROR_INIT;
	struct log *log = NULL;
	bool good = false;
	enum exit_code code;

	setenv("TMPDIR", job->work_dir, 1);
	if (log_open(&log, NULL, job->options->level, &err) == 0 &&
	    run(job, log, &good, &err) == 0) {
		code = good ? EXIT_OK : EXIT_PROOF;
	} else {
		error_print(&err, log);
		code = error_exit_code(&err);
	}
	log_close(log);
	error_free(&err);
	return (int)code;
}

static void cleanup(void *opaque, int exit_code)
{
	const struct job *job = opaque;

	(void)exit_code;
	workdir_remove(job->work_dir);
}

enum exit_code command_inspect(const struct options *o, struct error *err)
{
	struct job job = {.options = o, .lock_fd = -1};
	const struct supervised s = {
		.work = work, .cleanup = cleanup, .opaque = &job, .timeout_s = TIMEOUT_S};
	int result = -1;

	if (workdir_make_parents(o->cache_dir, err) == 0 &&
	    workdir_make(&job.work_dir, &job.lock_fd, o->work_dir, err) == 0)
		result = supervise(&s, err);
	if (job.lock_fd >= 0)
		close(job.lock_fd);
	free(job.work_dir);
	return result < 0 ? error_exit_code(err) : (enum exit_code)result;
}
