/* SPDX-License-Identifier: Apache-2.0 */
/*
 * initramfs: udev in the initramfs loads nouveau before the root file system is there, so the
 * block must be inside every kernel's initramfs. mkinitramfs is called for each kernel by
 * its version: 'update-initramfs -u -k all' skips a kernel that has none, and does nothing at all
 * where update-initramfs.conf says update_initramfs=no, both with exit code 0. The new file is
 * made beside the old one, read, and only then renamed.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/initramfs.h"
#include "builder/proof.h"
#include "builder/reuse.h"
#include "stages/stages.h"

#define GENERATOR          "/usr/sbin/mkinitramfs"
#define MARGIN_BYTES       (8UL * 1024 * 1024)
#define ESTIMATE_BYTES     (64UL * 1024 * 1024) /* for a first initramfs, if no other tells */
#define GENERATE_TIMEOUT_S 3600
/* Sourced by mkinitramfs after its configuration, and not copied into the initramfs. */
#define HOOKS_DIR "/usr/share/initramfs-tools/conf-hooks.d"
#define TYPE_HOOK HOOKS_DIR "/zz-gpuimg-root-type"
/* Generators read the same programs in the same order: the second finds them read. */
#define STAGGER_MS  2000
#define WORKERS_MAX 4 /* a generator takes some 200 MB of memory and of disk */

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
	bool reused;
	struct error err;
	int result;
};

/* The jobs of all kernels, and the next one that nobody has taken yet. */
struct queue {
	pthread_mutex_t lock;
	struct job *jobs;
	size_t count, next, done;
};

static int generate(struct job *job, const char *made, struct error *err)
{
	struct build *b = job->b;
	/* TMPDIR: /tmp is in memory in the sandbox; /var/tmp is the image's own disk. */
	CLEANUP_FREE char *epoch =
		str_format("SOURCE_DATE_EPOCH=%lld", (long long)b->source_date_epoch);
	/* The bytes do not depend on the number of threads, only the time does. */
	CLEANUP_FREE char *threads =
		str_format("ZSTD_NBTHREADS=%ld", sysconf(_SC_NPROCESSORS_ONLN));
	const char *const env[] = {"TMPDIR=/var/tmp", epoch, threads, NULL};
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

/* NULL: all are taken. */
static struct job *take_job(struct queue *q)
{
	struct job *job = NULL;

	pthread_mutex_lock(&q->lock);
	while (q->next < q->count && !job) {
		job = &q->jobs[q->next++];
		if (job->reused)
			job = NULL;
	}
	pthread_mutex_unlock(&q->lock);
	return job;
}

static void *worker(void *opaque)
{
	struct queue *q = opaque;
	struct job *job;

	while ((job = take_job(q))) {
		job->result = build_one(job, &job->err);
		pthread_mutex_lock(&q->lock);
		q->done++;
		log_step_progress(job->b->log, (double)q->done / (double)q->count, NULL);
		pthread_mutex_unlock(&q->lock);
	}
	return NULL;
}

static void *late_worker(void *opaque)
{
	poll(NULL, 0, STAGGER_MS);
	return worker(opaque);
}

/*
 * In the sandbox, kernels side by side; the appliance runs one command at a time. Where the bytes
 * are to be the same each time (SOURCE_DATE_EPOCH), one after the other: a file that one generator
 * opens first has another mtime for the moment in which it is filled (tree-lazy-fill.c), and the
 * other one might copy that.
 */
static void run_jobs(const struct build *b, struct queue *q)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	bool one = !b->sandbox || b->clamp_times || cpus < 1;
	size_t workers = one ? 1 : (size_t)cpus, started = 0;
	pthread_t threads[WORKERS_MAX];

	if (workers > WORKERS_MAX)
		workers = WORKERS_MAX;
	while (started + 1 < workers && started + 1 < q->count &&
	       pthread_create(&threads[started], NULL, late_worker, q) == 0)
		started++;
	worker(q);
	while (started > 0)
		pthread_join(threads[--started], NULL);
}

/* What an earlier build made from the very same inputs need not be made again. */
static int take_reused(struct build *b, struct queue *q, struct error *err)
{
	if (reuse_begin_initramfs(b, err) < 0)
		return -1;
	for (size_t i = 0; i < q->count; i++) {
		const struct guest_kernel *k = q->jobs[i].kernel;
		int found = reuse_initramfs(b, k->version, k->initramfs, err);

		if (found < 0)
			return error_prefix(err, "kernel '%s'", k->version);
		q->jobs[i].reused = found == 1;
		q->done += found == 1;
	}
	return 0;
}

static void keep_made(struct build *b, const struct queue *q)
{
	for (size_t i = 0; i < q->count; i++)
		if (!q->jobs[i].reused)
			reuse_keep_initramfs(b, q->jobs[i].kernel->version,
			                     q->jobs[i].kernel->initramfs);
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

/* The first failure of all jobs. */
static int gather(struct queue *q, struct error *err)
{
	int result = 0;

	for (size_t i = 0; i < q->count; i++) {
		struct job *job = &q->jobs[i];

		if (job->result < 0 && result == 0)
			result = error_take(err, &job->err);
		error_free(&job->err);
	}
	return result;
}

static int make_all(struct build *b, struct queue *q, struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	int result;

	if (take_reused(b, q, err) < 0)
		return -1;
	if (q->done == q->count)
		return 0;
	if (put_root_type(b, err) < 0)
		return -1;
	run_jobs(b, q);
	result = gather(q, err);
	if (rootfs_remove(b->root, TYPE_HOOK, result < 0 ? &ignored : err) < 0)
		return -1;
	if (result == 0)
		keep_made(b, q);
	return result;
}

static int initramfs_apply(struct build *b, struct error *err)
{
	struct queue q = {.lock = PTHREAD_MUTEX_INITIALIZER};
	int result;

	/* A user's script may have installed a kernel. */
	if (guest_read_kernels(b->guest, b->root, err) < 0)
		return -1;
	q.count = b->guest->kernel_count;
	q.jobs = mem_alloc(q.count * sizeof(*q.jobs));
	for (size_t i = 0; i < q.count; i++)
		q.jobs[i] = (struct job){.b = b, .kernel = &b->guest->kernels[i]};
	result = make_all(b, &q, err);
	free(q.jobs);
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
