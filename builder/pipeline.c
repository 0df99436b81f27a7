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

#include "data.h"
#include "digest.h"
#include "export.h"
#include "fetch.h"
#include "packages.h"
#include "pipeline.h"
#include "proc.h"
#include "smoke.h"
#include "stage.h"
#include "workdir.h"

#define SPACE_MARGIN_BYTES   (512ull * 1024 * 1024)
#define MAKE_BASE_TIMEOUT_MS (3600u * 1000)
#define MACHINE_ID_PATH      "/etc/machine-id"

void build_free(struct build *b)
{
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
	error_free(&b->digest_err);
	strv_free(&b->blocked);
	strv_free(&b->params);
	strv_free(&b->initramfs_digests);
	strv_free(&b->user_digests);
	strv_free(&b->packages_before);
	strv_free(&b->packages_after);
	for (size_t i = 0; i < b->kernels_before_count; i++)
		free(b->kernels_before[i].version);
	free(b->kernels_before);
	free(b->data_dir);
	free(b->base_path);
	free(b->base_digest);
	free(b->overlay);
	free(b->tree_dir);
	free(b->block_text);
	free(b->dropin_path);
	free(b->dropin_text);
	json_decref(b->steps);
}

/* One step: its line on the screen, its time in the manifest. */
static int step(struct build *b, const char *name, const char *what,
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

/* The maker's lines are its steps. */
static void on_maker_line(void *opaque, const char *line)
{
	log_step_progress(opaque, -1, line);
}

/* No base given: the project's own small Debian, from the machine's own mirror. */
static int make_base(struct build *b, struct error *err)
{
	CLEANUP_FREE char *script = data_make_base(b->data_dir);
	CLEANUP_FREE char *cache = str_format("%s/bases", b->options->cache_dir);
	CLEANUP_FREE char *path = str_format("%s/default-base.qcow2", b->options->cache_dir);
	const char *const argv[] = {"bash", script, "--cache-dir", cache, "--output", path, NULL};
	const struct proc_options options = {
		.log = b->log,
		.timeout_ms = MAKE_BASE_TIMEOUT_MS,
		.on_line = on_maker_line,
		.opaque = b->log,
	};

	if (proc_run(argv, &options, NULL, 0, err) < 0) {
		error_prefix(err, "cannot make the default base");
		return error_hint(err, "name a base image, or see 'gpuimg make-base --help'");
	}
	b->base_path = STEAL(path);
	return 0;
}

static int fetch(struct build *b, struct error *err)
{
	const struct options *o = b->options;
	CLEANUP_FREE char *cache = str_format("%s/downloads", o->cache_dir);
	const struct fetch_options options = {
		.url = o->base,
		.sha256 = o->base_sha256,
		.sums_url = o->base_sums,
		.cache_dir = cache,
		.log = b->log,
	};
	CLEANUP_FREE char *digest = NULL;

	if (fetch_base(&options, &b->base_path, &digest, err) < 0)
		return -1;
	if (str_starts(digest, "sha256:"))
		b->base_digest = str_copy(digest + strlen("sha256:"));
	return 0;
}

static int get_base(struct build *b, struct error *err)
{
	const char *base = b->options->base;

	if (!base)
		return step(b, "base", "make the default base, or take it from the cache",
		            make_base, err);
	if (fetch_is_url(base))
		return step(b, "fetch", "fetch the base", fetch, err);
	b->base_path = str_copy(base);
	return 0;
}

static int start_reader(struct appliance **ret, struct build *b, const char *image,
                        const char *format, struct error *err)
{
	const struct appliance_options options = {
		.image = image,
		.format = format,
		.read_only = true,
		.kvm = b->accel.kvm,
		.work_dir = b->work_dir,
		.cache_dir = b->options->cache_dir,
		.log = b->log,
	};

	log_detail(b->log, "a file system that only the appliance reads: one is started");
	return appliance_start(ret, &options, err);
}

/* guest_open without an appliance where that is enough, else with one. */
static int open_guest(struct build *b, struct disk *disk, const char *format,
                      struct appliance **reader, struct guest **ret, struct rootfs **ret_root,
                      struct error *err)
{
	int result = guest_open(ret, ret_root, disk, NULL, err);

	if (result != 1)
		return result;
	if (!b->accel.reason && accel_probe(&b->accel, b->options->cache_dir, b->log, err) < 0)
		return -1;
	if (start_reader(reader, b, disk_path(disk), format, err) < 0)
		return -1;
	return guest_open(ret, ret_root, disk, *reader, err);
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
static void choose_epoch(struct build *b)
{
	const char *given = getenv("SOURCE_DATE_EPOCH");
	uint64_t value;

	if (given && str_parse_uint(given, INT64_MAX, &value) == 0) {
		b->source_date_epoch = (int64_t)value;
		return;
	}
	for (size_t i = 0; i < b->guest->kernel_count; i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		struct rootfs_stat st;

		if (rootfs_stat(b->base_root, b->guest->kernels[i].image, &st, &ignored) == 1 &&
		    st.mtime_s > b->source_date_epoch)
			b->source_date_epoch = st.mtime_s;
	}
}

/* All that refuses a base without touching it; the cheapest first. */
static int preflight(struct build *b, struct error *err)
{
	if (image_check(&b->base_info, b->base_path, err) < 0 ||
	    disk_open(&b->base_disk, b->base_path, image_format_name(b->base_info.format), false,
	              err) < 0 ||
	    disk_probe(b->base_disk, err) < 0)
		return -1;
	if (open_guest(b, b->base_disk, image_format_name(b->base_info.format), &b->reader,
	               &b->guest, &b->base_root, err) < 0 ||
	    guest_check_supported(b->guest, b->base_root, err) < 0 ||
	    bootchain_read(&b->before, b->base_root, err) < 0 ||
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
	choose_epoch(b);
	return 0;
}

bool build_has_stage(const struct build *b, const struct stage *s)
{
	return strv_has(&b->options->stages, s->name);
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
	if (strv_has(&o->stages, "initramfs") && !strv_has(&o->stages, "modprobe")) {
		error_set(err, "profile '%s': stage 'initramfs' needs stage 'modprobe'",
		          o->profile);
		return error_code(err, EXIT_USAGE);
	}
	if ((o->run.count || o->upload.count) && !strv_has(&o->stages, "user")) {
		error_set(err, "profile '%s' has no stage 'user', which --run and --upload need",
		          o->profile);
		return error_code(err, EXIT_USAGE);
	}
	return 0;
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
	char text[34];
	int there = rootfs_stat(b->root, MACHINE_ID_PATH, &st, err);

	if (there < 0 || (there == 1 && st.size_bytes > 0) ||
	    !strv_has(&b->options->stages, "seal"))
		return there < 0 ? -1 : 0;
	if (getentropy(random, sizeof(random)) < 0)
		return error_errno(err, errno, "cannot get random bytes");
	for (size_t i = 0; i < sizeof(random); i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	text[32] = '\n';
	return rootfs_write(b->root, MACHINE_ID_PATH, text, 33, 0444, err);
}

static int apply_stages(struct build *b, struct error *err)
{
	if (put_machine_id(b, err) < 0)
		return -1;
	for (size_t i = 0; stages[i]; i++) {
		if (!build_has_stage(b, stages[i]) || !stages[i]->apply)
			continue;
		if (step(b, stages[i]->name, stages[i]->summary, stages[i]->apply, err) < 0)
			return error_prefix(err, "stage '%s', apply, image '%s'", stages[i]->name,
			                    b->base_path);
	}
	return 0;
}

/* The base's digest costs a read of the whole file: beside the work, not before it. */
static void *digest_thread(void *opaque)
{
	struct build *b = opaque;

	digest_file(b->base_path, "SHA256", &b->base_digest, &b->digest_err);
	return NULL;
}

static int read_result(struct build *b, struct error *err)
{
	struct image_info info;

	if (image_check(&info, b->result_path, err) < 0 ||
	    disk_open(&b->result_disk, b->result_path, "qcow2", false, err) < 0 ||
	    disk_probe(b->result_disk, err) < 0 ||
	    open_guest(b, b->result_disk, "qcow2", &b->result_reader, &b->result_guest,
	               &b->result_root, err) < 0)
		return -1;
	if (packages_read(&b->packages_after, b->result_root, err) < 0)
		return -1;
	return bootchain_read(&b->after, b->result_root, err);
}

static int digest_initramfs(struct build *b, struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/digest", b->work_dir);

	for (size_t i = 0; i < b->result_guest->kernel_count; i++) {
		CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		char *digest = NULL;

		if (fd < 0)
			return error_errno(err, errno, "cannot make '%s'", path);
		if (!b->result_guest->kernels[i].has_initramfs) {
			strv_add(&b->initramfs_digests, "");
			continue;
		}
		if (rootfs_copy_out(b->result_root, b->result_guest->kernels[i].initramfs, fd,
		                    err) < 0 ||
		    digest_file(path, "SHA256", &digest, err) < 0)
			return -1;
		strv_take(&b->initramfs_digests, digest);
	}
	unlink(path);
	return 0;
}

/* Reads the exported image, not the working copy. */
static int prove(struct build *b, struct error *err)
{
	if (read_result(b, err) < 0) {
		err->code = EXIT_PROOF; /* it is our own file that was refused, not an input */
		return error_prefix(err, "cannot read the exported image back");
	}
	for (size_t i = 0; stages[i]; i++)
		if (build_has_stage(b, stages[i]) && stages[i]->verify &&
		    stages[i]->verify(b, err) < 0) {
			err->code = EXIT_PROOF;
			return error_prefix(err, "stage '%s', verify", stages[i]->name);
		}
	if (digest_initramfs(b, err) < 0)
		return -1;
	findings_log(&b->findings, b->log);
	if (b->findings.bad == 0)
		return 0;
	error_set(err, "the proof failed: %zu of %zu points do not hold", b->findings.bad,
	          b->findings.count);
	error_hint(err, "each one is named above with its cure");
	return error_code(err, EXIT_PROOF);
}

static int export_step(struct build *b, struct error *err)
{
	const char *compression = b->options->compression;

	if (!compression)
		compression =
			b->base_info.has_compressed_clusters ? b->base_info.compression : "zstd";
	return export_image(b->overlay, b->result_path, compression, b->log, err);
}

static int boot_step(struct build *b, struct error *err)
{
	enum verdict verdict;
	struct smoke s = {
		.options = b->options,
		.image = b->result_path,
		.image_format = "qcow2",
		.control = b->base_path,
		.control_format = image_format_name(b->base_info.format),
		.params = &b->params,
		.kvm = b->accel.kvm,
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
		error_set(err, "the boot test is void: its control, the base, did not fail");
		return error_code(err, EXIT_VOID);
	}
	error_set(err, "the boot test failed");
	error_hint(err, "the console logs are '%s.*.log'", b->console_prefix);
	return error_code(err, EXIT_PROOF);
}

static int overlay_step(struct build *b, struct error *err)
{
	b->overlay = str_format("%s/overlay.qcow2", b->work_dir);
	return export_overlay(b->overlay, b->base_path, image_format_name(b->base_info.format),
	                      b->log, err);
}

/* The middle of the pipeline: from an accepted base to a proven file under a temporary name. */
int build_make_image(struct build *b, const struct backend *backend, struct error *err)
{
	pthread_t digest;
	bool digests = !b->base_digest && pthread_create(&digest, NULL, digest_thread, b) == 0;
	int result = 0;

	if (overlay_step(b, err) < 0 ||
	    step(b, "open", "open the image for the stages", backend->open, err) < 0 ||
	    apply_stages(b, err) < 0 ||
	    step(b, "commit", "write the changes to the image", backend->commit, err) < 0 ||
	    step(b, "export", "write the compressed image", export_step, err) < 0 ||
	    step(b, "prove", "read the exported image back", prove, err) < 0)
		result = -1;
	if (digests)
		pthread_join(digest, NULL);
	if (result == 0 && !b->base_digest)
		result = b->digest_err.message
		                 ? error_take(err, &b->digest_err)
		                 : digest_file(b->base_path, "SHA256", &b->base_digest, err);
	if (result == 0 && b->options->boot_test)
		result = step(b, "boot-test", "boot the base and the image under QEMU", boot_step,
		              err);
	return result;
}

/* The tree, the overlay's changes and the exported image may all be there at once. */
static int check_space(struct build *b, const char *output_dir, struct error *err)
{
	uint64_t free_bytes, size_bytes, used;

	if (rootfs_statvfs(b->base_root, "/", &free_bytes, &size_bytes, err) < 0)
		return -1;
	used = size_bytes - free_bytes;
	if (workdir_check_space(b->work_dir, 2 * used + SPACE_MARGIN_BYTES, err) < 0)
		return -1;
	return workdir_check_space(output_dir, used + SPACE_MARGIN_BYTES / 2, err);
}

int build_accept(struct build *b, const char *output_dir, const struct backend **ret_backend,
                 struct error *err)
{
	if (check_profile(b, err) < 0 || get_base(b, err) < 0 ||
	    step(b, "preflight", "look at the base image", preflight, err) < 0 ||
	    check_stages(b, err) < 0 || check_space(b, output_dir, err) < 0)
		return -1;
	return backend_choose(ret_backend, b, err);
}
