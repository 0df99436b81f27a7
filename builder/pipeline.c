/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a build, from a base's name to a proven file under a temporary name. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bake.h"
#include "base.h"
#include "digest.h"
#include "export.h"
#include "open-guest.h"
#include "packages.h"
#include "pipeline.h"
#include "reuse.h"
#include "smoke.h"
#include "stage.h"
#include "workdir.h"

#define KERNEL_SPACE_BYTES (384ull * 1024 * 1024) /* a generator's own files, and what it reads */
#define SPACE_MARGIN_BYTES (512ull * 1024 * 1024)
#define MACHINE_ID_PATH    "/etc/machine-id"

void build_free(struct build *b)
{
	digest_job_end(&b->base_digest_job);
	digest_job_end(&b->result_digest_job);
	reuse_finish(b);
	if (b->tree_remover_running)
		pthread_join(b->tree_remover, NULL);
	usage_stop(b->usage);
	json_decref(b->reused);
	apt_free(b->apt);
	driver_plan_free(&b->driver);
	free(b->driver_found);
	strv_free(&b->driver_files);
	json_decref(b->driver_facts);
	containerd_free(&b->containerd);
	strv_free(&b->toolkit_install);
	strv_free(&b->toolkit_packages);
	strv_free(&b->toolkit_digests);
	containerd_result_free(&b->containerd_result);
	rootfs_close(b->root);
	sandbox_free(b->sandbox_handle);
	tree_free(b->tree);
	appliance_close(b->appliance);
	rootfs_close(b->base_root);
	rootfs_close(b->result_root);
	guest_free(b->guest);
	guest_free(b->result_guest);
	disk_close(b->base_disk);
	disk_close(b->result_disk);
	appliance_close(b->reader);
	appliance_close(b->result_reader);
	bootchain_free(&b->before);
	bootchain_free(&b->after);
	findings_free(&b->findings);
	accel_free(&b->accel);
	strv_free(&b->blocked);
	strv_free(&b->block_paths);
	free(b->generator_conf);
	strv_free(&b->params);
	strv_free(&b->initramfs_digests);
	strv_free(&b->initramfs_reused);
	strv_free(&b->user_digests);
	strv_free(&b->packages_before);
	strv_free(&b->packages_after);
	for (size_t i = 0; i < b->kernels_before_count; i++)
		free(b->kernels_before[i].version);
	free(b->kernels_before);
	free(b->data_dir);
	free(b->base_path);
	cleanup_close(&b->base_hold_fd);
	free(b->base_digest);
	free(b->result_digest);
	free(b->overlay);
	rootfs_close(b->filler);
	free(b->tree_dir);
	free(b->root_device);
	free(b->block_text);
	free(b->dropin_path);
	free(b->dropin_text);
	json_decref(b->steps);
	cache_close(b->cache);
}

/* One step: its line on the screen, its time in the manifest. */
int build_step(struct build *b, const char *name, const char *what,
               int (*run)(struct build *, struct error *), struct error *err)
{
	double seconds;
	int result;

	log_step_begin(b->log, name, what);
	result = run(b, err);
	seconds = log_step_end(b->log, result == 0);
	json_array_append_new(b->steps, json_pack("{s:s, s:f}", "name", name, "seconds", seconds));
	return result;
}

static struct open_guest opener(struct build *b, const char *format)
{
	return (struct open_guest){
		.format = format,
		.work_dir = b->work_dir,
		.cache_dir = b->options->cache_dir,
		.log = b->log,
		.accel = &b->accel,
		.accel_known = &b->accel_known,
	};
}

int build_probe_accel(struct build *b, struct error *err)
{
	const struct open_guest o = opener(b, NULL);

	return open_guest_probe(&o, err);
}

/* guest_open without an appliance where that is enough, else with one. */
int build_open_guest(struct build *b, struct disk *disk, const char *format,
                     struct appliance **reader, struct guest **ret, struct rootfs **ret_root,
                     struct error *err)
{
	const struct open_guest o = opener(b, format);

	return open_guest(ret, ret_root, reader, disk, &o, err);
}

static void remember_kernels(struct build *b)
{
	b->kernels_before_count = b->guest->kernel_count;
	b->kernels_before = mem_alloc(b->guest->kernel_count * sizeof(*b->kernels_before));
	for (size_t i = 0; i < b->guest->kernel_count; i++)
		b->kernels_before[i] = (struct guest_kernel){
			.version = str_copy(b->guest->kernels[i].version),
			.initramfs_bytes = b->guest->kernels[i].initramfs_bytes,
		};
}

/* SOURCE_DATE_EPOCH of the environment, else the newest kernel image's own time. */
static int choose_epoch(struct build *b, struct error *err)
{
	const char *given = getenv("SOURCE_DATE_EPOCH");
	uint64_t value;

	if (given) {
		if (str_parse_uint(given, INT64_MAX, &value) < 0) {
			error_set(err, "SOURCE_DATE_EPOCH is '%s', no number of seconds", given);
			error_hint(err, "set it to a number as 'date +%%s' prints it, or unset it");
			return error_code(err, EXIT_USAGE);
		}
		b->source_date_epoch = (int64_t)value;
		b->clamp_times = true;
		return 0;
	}
	for (size_t i = 0; i < b->guest->kernel_count; i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		struct rootfs_stat st;

		if (rootfs_stat(b->base_root, b->guest->kernels[i].image, &st, &ignored) == 1 &&
		    st.mtime_s > b->source_date_epoch)
			b->source_date_epoch = st.mtime_s;
	}
	return 0;
}

int build_read_chain(struct build *b, struct bootchain *ret, struct rootfs *root,
                     const struct guest *guest, struct error *err)
{
	bootchain_free(ret);
	return bootchain_read(ret, root, guest, b->work_dir, err);
}

struct strv build_wanted_params(const struct build *b)
{
	struct strv wanted = {0};

	strv_add_all(&wanted, &b->params);
	if (b->options->module_blacklist && b->blocked.count) {
		CLEANUP_FREE char *names = strv_join(&b->blocked, ",");

		strv_addf(&wanted, "module_blacklist=%s", names);
	}
	return wanted;
}

/* What could not be read could not be edited either. */
static int read_entries(struct build *b, struct error *err)
{
	if (build_read_chain(b, &b->before, b->base_root, b->guest, err) < 0)
		return -1;
	if (b->before.unreadable.count == 0)
		return 0;
	error_set(err, "a boot entry cannot be understood: %s", b->before.unreadable.items[0]);
	error_hint(err, "mend or remove it in the base");
	return error_code(err, EXIT_INPUT);
}

/* All that refuses a base without touching it; the cheapest first. */
static int preflight(struct build *b, struct error *err)
{
	if (image_check(&b->base_info, b->base_path, err) < 0 ||
	    disk_open(&b->base_disk, b->base_path, image_format_name(b->base_info.format), false,
	              err) < 0 ||
	    disk_probe(b->base_disk, err) < 0)
		return -1;
	if (build_open_guest(b, b->base_disk, image_format_name(b->base_info.format), &b->reader,
	                     &b->guest, &b->base_root, err) < 0 ||
	    guest_check_supported(b->guest, b->base_root, err) < 0 || read_entries(b, err) < 0 ||
	    packages_read(&b->packages_before, b->base_root, err) < 0) {
		error_code(err, EXIT_INPUT);
		return error_prefix(err, "base '%s'", b->base_path);
	}
	if (b->base_info.dirty)
		log_warn(b->log, "base '%s': its reference counts are marked as not clean",
		         b->base_path);
	if (b->base_info.snapshots)
		log_note(b->log, "base '%s': its internal snapshots are left out", b->base_path);
	remember_kernels(b);
	return choose_epoch(b, err);
}

bool build_has_stage(const struct build *b, const struct stage *s)
{
	return strv_has(&b->options->stages, s->name);
}

/* While packages are installed, no initramfs is made anew: see bake.c. */
static int check_needs(const struct build *b, struct error *err)
{
	const struct options *o = b->options;
	const struct {
		bool wanted;
		const char *what, *stage;
	} needs[] = {
		{strv_has(&o->stages, "initramfs"), "stage 'initramfs'", "modprobe"},
		{o->run.count || o->upload.count, "--run or --upload", "user"},
		{o->driver_branch, "--driver-branch", "driver"},
		{o->containerd_runtime, "--containerd-runtime", "containerd"},
		{bake_is_wanted(b), "--driver-branch or --containerd-runtime", "initramfs"},
	};

	for (size_t i = 0; i < sizeof(needs) / sizeof(*needs); i++) {
		if (!needs[i].wanted || strv_has(&o->stages, needs[i].stage))
			continue;
		error_set(err, "profile '%s': %s needs stage '%s'", o->profile, needs[i].what,
		          needs[i].stage);
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

/* A profile's word that no stage has, or a need that its stages leave open. */
static int check_profile(const struct build *b, struct error *err)
{
	const struct options *o = b->options;

	for (size_t i = 0; i < o->stages.count; i++) {
		bool known = false;

		for (size_t j = 0; stages[j] && !known; j++)
			known = strcmp(stages[j]->name, o->stages.items[i]) == 0;
		if (known)
			continue;
		error_set(err, "profile '%s': there is no stage '%s'", o->profile,
		          o->stages.items[i]);
		return error_code(err, EXIT_USAGE);
	}
	return check_needs(b, err);
}

static int check_stages(struct build *b, struct error *err)
{
	for (size_t i = 0; stages[i]; i++)
		if (build_has_stage(b, stages[i]) && stages[i]->check &&
		    stages[i]->check(b, err) < 0)
			return error_prefix(err, "stage '%s', check, image '%s'", stages[i]->name,
			                    b->base_path);
	return 0;
}

/* Kernel hooks of the user's scripts leave quietly where machine-id is empty; seal empties it. */
static int put_machine_id(struct build *b, struct error *err)
{
	struct rootfs_stat st;
	unsigned char random[16];
	CLEANUP_FREE char *hex = NULL;
	CLEANUP_FREE char *text = NULL;
	int there = rootfs_stat(b->root, MACHINE_ID_PATH, &st, err);

	if (there < 0 || (there == 1 && st.size_bytes > 0) ||
	    !strv_has(&b->options->stages, "seal"))
		return there < 0 ? -1 : 0;
	if (getentropy(random, sizeof(random)) < 0)
		return error_errno(err, errno, "cannot get random bytes");
	hex = digest_hex(random, sizeof(random));
	text = str_format("%s\n", hex);
	return rootfs_write(b->root, MACHINE_ID_PATH, text, strlen(text), 0444, err);
}

/*
 * A file whose content could not be read from the base: to a guest program it is "not permitted",
 * which some take for no reason to fail.
 */
static int apply_stage(struct build *b, const struct stage *s, struct error *err)
{
	CLEANUP_ERROR struct error fill = ERROR_INIT;
	int result = build_step(b, s->name, s->summary, s->apply, err);

	if (b->tree && tree_check(b->tree, &fill) < 0)
		result = error_take(err, &fill);
	if (result < 0)
		error_prefix(err, "stage '%s', apply, image '%s'", s->name, b->base_path);
	return result;
}

static int overlay_step(struct build *b, struct error *err)
{
	b->overlay = str_format("%s/overlay.qcow2", b->work_dir);
	return export_overlay(b->overlay, b->base_path, image_format_name(b->base_info.format),
	                      b->log, err);
}

/* All plans before the first change: what cannot be had is told before anything was done. */
static int plan_stages(struct build *b, struct error *err)
{
	for (size_t i = 0; stages[i]; i++)
		if (build_has_stage(b, stages[i]) && stages[i]->plan && stages[i]->plan(b, err) < 0)
			return error_prefix(err, "stage '%s', plan, image '%s'", stages[i]->name,
			                    b->base_path);
	return 0;
}

static int observe_stages(struct build *b, struct error *err)
{
	for (size_t i = 0; stages[i]; i++)
		if (build_has_stage(b, stages[i]) && stages[i]->observe &&
		    stages[i]->observe(b, err) < 0)
			return error_prefix(err, "stage '%s', observe, image '%s'", stages[i]->name,
			                    b->base_path);
	return 0;
}

static int open_working_copy(struct build *b, const struct backend *backend, struct error *err)
{
	if (overlay_step(b, err) < 0 ||
	    build_step(b, "open", "open the image for the stages", backend->open, err) < 0)
		return -1;
	if (!bake_is_wanted(b))
		return 0;
	return build_step(b, "plan", "resolve packages for every kernel", plan_stages, err);
}

int build_plan(struct build *b, const struct backend *backend, struct error *err)
{
	return bake_is_wanted(b) ? open_working_copy(b, backend, err) : 0;
}

static int apply_stages(struct build *b, struct error *err)
{
	if (put_machine_id(b, err) < 0)
		return -1;
	for (size_t i = 0; stages[i]; i++)
		if (build_has_stage(b, stages[i]) && stages[i]->apply &&
		    apply_stage(b, stages[i], err) < 0)
			return -1;
	return observe_stages(b, err);
}

static int export_step(struct build *b, struct error *err)
{
	const struct export_options o = {
		.overlay = b->overlay,
		.base = b->base_path,
		.base_format = image_format_name(b->base_info.format),
		.to = b->result_path,
		.compression = b->options->compression,
		.compact = b->options->compact,
		.log = b->log,
	};

	b->changed_bytes = usage_disk_bytes(b->overlay);
	if (export_image(&o, &b->export_stats, err) < 0)
		return -1;
	usage_look(b->usage);
	return 0;
}

static bool has_driver(const struct build *b)
{
	return b->driver.branch || json_is_object(json_object_get(b->reused, "driver"));
}

static int boot_step(struct build *b, struct error *err)
{
	enum verdict verdict;

	if (build_probe_accel(b, err) < 0)
		return -1;

	struct smoke s = {
		.options = b->options,
		.image = b->result_path,
		.image_format = "qcow2",
		.control = b->base_path,
		.control_format = image_format_name(b->base_info.format),
		.params = &b->params,
		.driver = has_driver(b),
		.kvm = b->accel.kvm,
		.cache = b->options->cache ? b->cache : NULL,
		.image_sha256 = b->result_digest,
		.control_sha256 = b->base_digest,
		.work_dir = b->work_dir,
		.data_dir = b->data_dir,
		.console_prefix = b->console_prefix,
		.log = b->log,
	};
	int result;

	strv_add_all(&s.firmware, &b->options->firmware);
	if (s.firmware.count == 0)
		strv_add(&s.firmware, disk_boots_bios(b->result_disk) ? "bios" : "uefi");
	result = smoke_run(&s, &verdict, &b->boot_report, err);
	strv_free(&s.firmware);
	if (result < 0 || verdict == VERDICT_PASSED)
		return result;
	smoke_print(b->boot_report, b->log);
	if (verdict == VERDICT_VOID) {
		error_set(err, "the boot test is void: it proves nothing, as told above");
		return error_code(err, EXIT_VOID);
	}
	error_set(err, "the boot test failed");
	error_hint(err, "the console logs are '%s.*.log'", b->console_prefix);
	return error_code(err, EXIT_PROOF);
}

/* Virtual machines that have nothing more to read would only slow the boot test down. */
void build_close_readers(struct build *b)
{
	if (!b->reader && !b->result_reader)
		return;
	rootfs_close(STEAL(b->result_root));
	rootfs_close(STEAL(b->base_root));
	appliance_close(STEAL(b->result_reader));
	appliance_close(STEAL(b->reader));
}

/* An image of the cache: what the boot test and the report ask about it. */
static int take_reused(struct build *b, struct error *err)
{
	const json_t *image = json_object_get(b->reused, "image");
	const json_t *inputs = json_object_get(b->reused, "inputs");
	const json_t *params = json_object_get(inputs, "parameters");
	const char *digest = json_string_value(json_object_get(image, "sha256"));
	struct image_info info;

	if (!digest)
		return error_set(err, "the manifest of the cached image has no digest");
	b->result_digest = str_copy(digest);
	build_close_readers(b);
	strv_free(&b->params);
	for (size_t i = 0; i < json_array_size(params); i++)
		strv_add(&b->params, json_string_value(json_array_get(params, i)));
	if (image_check(&info, b->result_path, err) < 0 ||
	    disk_open(&b->result_disk, b->result_path, "qcow2", false, err) < 0)
		return -1;
	return disk_probe(b->result_disk, err);
}

/* The middle of the pipeline: from an accepted base to a proven file under a temporary name. */
static int make_image(struct build *b, const struct backend *backend, struct error *err)
{
	if (open_working_copy(b, backend, err) < 0 || apply_stages(b, err) < 0)
		return -1;
	usage_look(b->usage);
	if (base_check_same(b, err) < 0)
		return -1;
	if (build_step(b, "commit", "write the changes to the image", backend->commit, err) < 0 ||
	    build_step(b, "export", "write the compressed image", export_step, err) < 0)
		return -1;
	/* Waited for before the last look at the base, so that it is of the same file. */
	if (digest_job_wait(&b->base_digest_job, &b->base_digest, err) < 0 ||
	    base_check_same(b, err) < 0)
		return -1;
	digest_job_begin(&b->result_digest_job, b->cache, b->result_path);
	if (build_step(b, "prove", "read the exported image back", build_prove, err) < 0)
		return -1;
	/* Only what was proven is worth keeping. */
	reuse_start_keeping(b);
	return digest_job_wait(&b->result_digest_job, &b->result_digest, err);
}

static int reuse_step(struct build *b, struct error *err)
{
	return reuse_image(b, b->result_path, err) < 0 ? -1 : 0;
}

int build_make_image(struct build *b, const struct backend *backend, struct error *err)
{
	/* The base's digest is part of every key. */
	if (b->options->cache && (digest_job_wait(&b->base_digest_job, &b->base_digest, err) < 0 ||
	                          build_step(b, "cache", "look whether this image was built before",
	                                     reuse_step, err) < 0))
		return -1;
	b->usage = usage_start(b->work_dir, b->result_path);
	if (b->reused ? take_reused(b, err) < 0 : make_image(b, backend, err) < 0)
		return -1;
	if (!b->options->boot_test)
		return 0;
	return build_step(b, "boot-test", "boot the base and the image under QEMU", boot_step, err);
}

static bool is_second_of_volume(const struct guest *guest, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (guest->mounts[i].volume == guest->mounts[index].volume)
			return true;
	return false;
}

/* Of all that is mounted; a FAT may not tell, and is small. */
static int used_bytes(const struct build *b, uint64_t *ret, struct error *err)
{
	*ret = 0;
	for (size_t i = 0; i < b->guest->mount_count; i++) {
		const struct guest_mount *m = &b->guest->mounts[i];
		uint64_t free_bytes, size_bytes;

		if (guest_mount_is_fat(m) || is_second_of_volume(b->guest, i))
			continue;
		if (rootfs_statvfs(b->base_root, m->path, &free_bytes, &size_bytes, err) < 0)
			return -1;
		*ret += size_bytes - (free_bytes < size_bytes ? free_bytes : size_bytes);
	}
	return 0;
}

/*
 * The sandbox's tree takes what its programs read and write, the overlay what changed; without
 * fanotify the tree takes all. Most of it is gone before the exported image is written.
 */
static int check_space(struct build *b, const char *output_dir, struct error *err)
{
	uint64_t used;

	if (used_bytes(b, &used, err) < 0)
		return -1;
	if (workdir_check_space(b->work_dir,
	                        (tree_can_be_lazy() && !b->reader ? 0 : used) + SPACE_MARGIN_BYTES +
	                                b->guest->kernel_count * KERNEL_SPACE_BYTES,
	                        err) < 0)
		return -1;
	return workdir_check_space(output_dir, used + SPACE_MARGIN_BYTES / 2, err);
}

static int open_cache(struct build *b, struct error *err)
{
	const struct options *o = b->options;

	return cache_open(&b->cache, o->cache_dir, o->cache_bytes, !o->cache, b->log, err);
}

int build_accept(struct build *b, const char *output_dir, const struct backend **ret_backend,
                 struct error *err)
{
	if (check_profile(b, err) < 0 || open_cache(b, err) < 0 || base_get(b, err) < 0)
		return -1;
	if (!b->options->plan && !b->base_digest)
		digest_job_begin(&b->base_digest_job, b->cache, b->base_path);
	if (build_step(b, "preflight", "look at the base image", preflight, err) < 0 ||
	    check_stages(b, err) < 0 || check_space(b, output_dir, err) < 0)
		return -1;
	return backend_choose(ret_backend, b, err);
}
