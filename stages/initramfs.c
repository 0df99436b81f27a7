/* SPDX-License-Identifier: Apache-2.0 */
/*
 * initramfs: udev in the initramfs loads nouveau before the root file system is there, so the
 * block must be inside every kernel's initramfs. mkinitramfs is called for each kernel by
 * its version: 'update-initramfs -u -k all' skips a kernel that has none, and does nothing at all
 * where update-initramfs.conf says update_initramfs=no, both with exit code 0. The new file is
 * made beside the old one, read, and only then renamed.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "builder/initramfs.h"
#include "builder/proof.h"
#include "stages/stages.h"

#define GENERATOR          "/usr/sbin/mkinitramfs"
#define MARGIN_BYTES       (8UL * 1024 * 1024)
#define ESTIMATE_BYTES     (64UL * 1024 * 1024) /* for a first initramfs, if no other tells */
#define GENERATE_TIMEOUT_S 3600
/* Sourced by mkinitramfs after its configuration, and not copied into the initramfs. */
#define HOOKS_DIR "/usr/share/initramfs-tools/conf-hooks.d"
#define TYPE_HOOK HOOKS_DIR "/zz-gpuimg-root-type"
#define WORKERS   2

/*
 * The generator writes the new file beside the old one: free space for the largest that may
 * come is needed, and for the first ones of kernels that had none.
 */
static uint64_t space_needed(const struct guest *g)
{
	uint64_t largest = 0, missing = 0;

	for (size_t i = 0; i < g->kernel_count; i++) {
		if (g->kernels[i].initramfs_bytes > largest)
			largest = g->kernels[i].initramfs_bytes;
		missing += !g->kernels[i].has_initramfs;
	}
	if (!largest)
		largest = ESTIMATE_BYTES;
	return largest * (missing + 1) + MARGIN_BYTES;
}

static int check_space(struct rootfs *root, uint64_t needed, struct error *err)
{
	uint64_t free_bytes, size_bytes;

	if (rootfs_statvfs(root, "/boot", &free_bytes, &size_bytes, err) < 0)
		return -1;
	if (free_bytes < needed) {
		CLEANUP_FREE char *have = str_size(free_bytes);
		CLEANUP_FREE char *need = str_size(needed);

		error_set(err,
		          "the image's /boot is too full for a new initramfs: %s free, %s needed",
		          have, need);
		error_hint(err,
		           "remove an old kernel from the base, or use one with a larger /boot");
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

static int initramfs_check(struct build *b, struct error *err)
{
	if (!rootfs_exists(b->base_root, GENERATOR)) {
		error_set(err, "the image has no '%s' (package initramfs-tools-core)", GENERATOR);
		return error_code(err, EXIT_INPUT);
	}
	return check_space(b->base_root, space_needed(b->guest), err);
}

/* One kernel's job, for a thread of its own. */
struct job {
	struct build *b;
	const struct guest_kernel *kernel;
	struct error err;
	int result;
};

static int generate(struct job *job, const char *made, struct error *err)
{
	struct build *b = job->b;
	/* TMPDIR: /tmp is in memory in the sandbox; /var/tmp is the image's own disk. */
	CLEANUP_FREE char *epoch =
		str_format("SOURCE_DATE_EPOCH=%lld", (long long)b->source_date_epoch);
	const char *const env[] = {"TMPDIR=/var/tmp", epoch, NULL};
	const char *const argv[] = {GENERATOR, "-o", made, job->kernel->version, NULL};
	const struct guest_command command = {
		.argv = argv,
		.env = env,
		.timeout_ms = GENERATE_TIMEOUT_S * 1000u,
	};
	struct rootfs_stat st;

	if (rootfs_run(b->root, &command, err) < 0)
		return -1;
	switch (rootfs_lstat(b->root, made, &st, err)) {
	case 1:
		if (S_ISREG(st.mode) && st.size_bytes > 0)
			return 0;
		return error_set(err, "'%s' ended with exit code 0, but made no proper '%s'",
		                 GENERATOR, made);
	case 0:
		return error_set(err, "'%s' ended with exit code 0 without having written '%s'",
		                 GENERATOR, made);
	}
	return -1;
}

static int build_one(struct job *job, struct error *err)
{
	struct rootfs *root = job->b->root;
	CLEANUP_FREE char *made = str_format("%s.gpuimg-new", job->kernel->initramfs);

	if (rootfs_remove(root, made, err) < 0 || generate(job, made, err) < 0 ||
	    rootfs_rename(root, made, job->kernel->initramfs, err) < 0) {
		error_prefix(err, "kernel '%s'", job->kernel->version);
		return error_hint(err, "the generator's messages are in the log");
	}
	return 0;
}

static void *job_thread(void *opaque)
{
	struct job *job = opaque;

	job->result = build_one(job, &job->err);
	return NULL;
}

/* In the sandbox, kernels side by side; the appliance runs one command at a time. */
static int run_jobs(struct build *b, struct job *jobs, size_t count)
{
	size_t at_once = b->sandbox ? WORKERS : 1;
	int failures = 0;

	for (size_t i = 0; i < count; i += at_once) {
		pthread_t threads[WORKERS];
		size_t n = count - i < at_once ? count - i : at_once;
		bool started[WORKERS] = {false};

		for (size_t j = 1; j < n; j++)
			started[j] =
				pthread_create(&threads[j], NULL, job_thread, &jobs[i + j]) == 0;
		job_thread(&jobs[i]);
		for (size_t j = 1; j < n; j++) {
			if (started[j])
				pthread_join(threads[j], NULL);
			else
				job_thread(&jobs[i + j]);
		}
		for (size_t j = 0; j < n; j++)
			failures += jobs[i + j].result < 0;
		log_step_progress(b->log, (double)(i + n) / (double)count, NULL);
	}
	return failures;
}

/*
 * The fsck hook asks the root's block device for its type. Where there is none (the sandbox), it
 * leaves fsck out with no more than a warning, and nodes would never check their root.
 */
static int put_root_type(struct build *b, struct error *err)
{
	const struct guest_mount *usr = guest_find_mount(b->guest, "/usr");
	const char *type = b->guest->mounts[0].volume->type;
	CLEANUP_FREE char *text =
		str_format("# While the image is built: no block device can be asked.\n"
	                   "[ \"${FSTYPE:-auto}\" != auto ] || FSTYPE=%s%s%s\n",
	                   type, usr ? "," : "", usr ? usr->volume->type : "");

	if (!rootfs_is_dir(b->root, HOOKS_DIR))
		return 0;
	return rootfs_write(b->root, TYPE_HOOK, text, strlen(text), 0644, err);
}

static int initramfs_apply(struct build *b, struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE struct job *jobs = NULL;
	size_t count;
	int result = 0;

	/* A user's script may have installed a kernel. */
	if (guest_read_kernels(b->guest, b->root, err) < 0)
		return -1;
	count = b->guest->kernel_count;
	jobs = mem_alloc(count * sizeof(*jobs));
	for (size_t i = 0; i < count; i++)
		jobs[i] = (struct job){.b = b, .kernel = &b->guest->kernels[i]};
	if (put_root_type(b, err) < 0)
		return -1;
	if (run_jobs(b, jobs, count) > 0)
		result = -1;
	if (rootfs_remove(b->root, TYPE_HOOK, result < 0 ? &ignored : err) < 0)
		result = -1;
	for (size_t i = 0; i < count; i++) {
		if (jobs[i].result < 0 && !err->message)
			error_take(err, &jobs[i].err);
		error_free(&jobs[i].err);
	}
	return result;
}

static uint64_t bytes_before(const struct build *b, const char *version)
{
	for (size_t i = 0; i < b->kernels_before_count; i++)
		if (strcmp(b->kernels_before[i].version, version) == 0)
			return b->kernels_before[i].initramfs_bytes;
	return 0;
}

static int initramfs_verify(struct build *b, struct error *err)
{
	for (size_t i = 0; i < b->result_guest->kernel_count; i++) {
		const struct guest_kernel *k = &b->result_guest->kernels[i];
		CLEANUP_FREE char *scratch = str_format("%s/initramfs-%s", b->work_dir, k->version);
		struct proof_initramfs p = {
			.root = b->result_root,
			.guest = b->result_guest,
			.kernel = k,
			.block_path = b->block_path,
			.block_text = b->block_text,
			.blocked = &b->blocked,
			.scratch = scratch,
			.bytes_before = bytes_before(b, k->version),
		};

		if (mkdir(scratch, 0700) < 0)
			return error_set(err, "cannot make the directory '%s'", scratch);
		if (proof_initramfs(&b->findings, &p, err) < 0)
			return -1;
	}
	return 0;
}

const struct stage stage_initramfs = {
	.name = "initramfs",
	.summary = "rebuild every kernel's initramfs, make missing ones",
	.check = initramfs_check,
	.apply = initramfs_apply,
	.verify = initramfs_verify,
};
