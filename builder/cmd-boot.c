/* SPDX-License-Identifier: Apache-2.0 */
/* boot: smoke boot of any image, alone or with its base as the control. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "accel.h"
#include "command.h"
#include "data.h"
#include "disk.h"
#include "qcow2.h"
#include "smoke.h"
#include "supervise.h"
#include "workdir.h"

#define SPACE_BYTES (1024ull * 1024 * 1024) /* overlays of two short boots */

struct job {
	const struct options *options;
	char *work_dir;
	int lock_fd;
};

static int check_image(struct image_info *ret, const char *path, bool *ret_bios, bool *ret_uefi,
                       struct error *err)
{
	CLEANUP_DISK struct disk *disk = NULL;

	if (image_check(ret, path, err) < 0 ||
	    disk_open(&disk, path, image_format_name(ret->format), false, err) < 0 ||
	    disk_probe(disk, err) < 0)
		return -1;
	*ret_bios = disk_boots_bios(disk);
	*ret_uefi = disk_boots_uefi(disk);
	return 0;
}

/* What the user asked for; an image that cannot boot that way is refused before any QEMU. */
static int choose_firmware(struct strv *ret, const struct options *o, bool bios, bool uefi,
                           struct error *err)
{
	strv_add_all(ret, &o->firmware);
	if (ret->count == 0)
		strv_add(ret, bios || !uefi ? "bios" : "uefi");
	for (size_t i = 0; i < ret->count; i++) {
		bool is_uefi = strcmp(ret->items[i], "bios") != 0;

		if (is_uefi ? uefi : bios)
			continue;
		error_set(err, "image '%s': its layout does not boot with %s firmware", o->base,
		          is_uefi ? "UEFI" : "BIOS");
		error_hint(err, "choose the other with --firmware");
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

static void print_report(const json_t *report, const struct options *o, struct log *log)
{
	if (o->json) {
		CLEANUP_FREE char *text = json_dumps(report, JSON_INDENT(2));

		puts(text ? text : "null");
	} else {
		smoke_print(report, log);
		puts(json_string_value(json_object_get(report, "verdict")));
	}
}

/* The control of a pair is booted once for all images that were built from it. */
static int remember_control(struct smoke *s, struct cache **cache, char **digest, struct error *err)
{
	const struct options *o = s->options;

	if (!o->control || !o->cache)
		return 0;
	if (cache_open(cache, o->cache_dir, o->cache_bytes, false, s->log, err) < 0 ||
	    cache_digest_file(*cache, o->control, NULL, digest, err) < 0)
		return -1;
	s->cache = *cache;
	s->control_sha256 = *digest;
	return 0;
}

static int run(const struct job *job, struct log *log, enum verdict *ret, struct error *err)
{
	const struct options *o = job->options;
	struct smoke s = {
		.options = o,
		.image = o->base,
		.control = o->control,
		.params = &o->expect,
		.driver = o->boot_driver,
		.work_dir = job->work_dir,
		.log = log,
	};
	struct image_info info, control_info;
	CLEANUP_FREE char *data_dir = NULL;
	CLEANUP_CACHE struct cache *cache = NULL;
	CLEANUP_FREE char *digest = NULL;
	struct accel accel = {0};
	bool bios, uefi, ignored_bios, ignored_uefi;
	json_t *report = NULL;
	int result = -1;

	if (data_find_dir(&data_dir, o->data_dir, err) < 0 ||
	    check_image(&info, o->base, &bios, &uefi, err) < 0 ||
	    (o->control &&
	     check_image(&control_info, o->control, &ignored_bios, &ignored_uefi, err) < 0) ||
	    choose_firmware(&s.firmware, o, bios, uefi, err) < 0 ||
	    remember_control(&s, &cache, &digest, err) < 0 ||
	    workdir_check_space(job->work_dir, SPACE_BYTES, err) < 0 ||
	    accel_probe(&accel, o->cache_dir, log, err) < 0) {
		strv_free(&s.firmware);
		return -1;
	}
	s.image_format = image_format_name(info.format);
	s.control_format = o->control ? image_format_name(control_info.format) : NULL;
	s.kvm = accel.kvm;
	s.data_dir = data_dir;
	if (!accel.kvm)
		log_note(log, "no KVM: %s; going on without", accel.reason);
	log_step_begin(log, "boot", o->base);
	result = smoke_run(&s, ret, &report, err);
	log_step_end(log, result == 0);
	if (result == 0)
		print_report(report, o, log);
	json_decref(report);
	strv_free(&s.firmware);
	accel_free(&accel);
	return result;
}

static int work(void *opaque)
{
	static const enum exit_code codes[] = {
		[VERDICT_PASSED] = EXIT_OK,
		[VERDICT_FAILED] = EXIT_PROOF,
		[VERDICT_VOID] = EXIT_VOID,
	};
	const struct job *job = opaque;
	struct error err = ERROR_INIT;
	struct log *log = NULL;
	enum verdict verdict = VERDICT_FAILED;
	enum exit_code code;

	setenv("TMPDIR", job->work_dir, 1);
	if (log_open(&log, NULL, job->options->level, &err) == 0 &&
	    run(job, log, &verdict, &err) == 0) {
		code = codes[verdict];
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

	if (job->options->keep_work && exit_code != EXIT_OK) {
		workdir_keep(job->work_dir);
		fprintf(stderr, "gpuimg: the work directory is kept: '%s'\n", job->work_dir);
	} else {
		workdir_remove(job->work_dir);
	}
}

enum exit_code command_boot(const struct options *o, struct error *err)
{
	struct job job = {.options = o, .lock_fd = -1};
	const struct supervised s = {.work = work, .cleanup = cleanup, .opaque = &job};
	int result = -1;

	if (workdir_make_parents(o->cache_dir, err) == 0 &&
	    workdir_make(&job.work_dir, &job.lock_fd, o->work_dir, err) == 0)
		result = supervise(&s, err);
	if (job.lock_fd >= 0)
		close(job.lock_fd);
	free(job.work_dir);
	return result < 0 ? error_exit_code(err) : (enum exit_code)result;
}
