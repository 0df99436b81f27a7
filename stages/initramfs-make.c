/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the guest's initramfs generator for each kernel, by its version. The new file is made beside
 * the old one, looked at, and only then renamed.
 */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/reuse.h"
#include "stages/initramfs-make.h"

#define GENERATE_TIMEOUT_S 3600
/* Generators read the same programs in the same order: the second finds them read. */
#define STAGGER_MS  2000
#define WORKERS_MAX 4 /* a generator takes some 200 MB of memory and of disk */

/* One kernel's job, for a thread of its own. */
struct job {
	struct build *b;
	const struct generator *generator;
	const char *program;
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
	CLEANUP_STRV struct strv argv = {0};
	struct guest_command command = {.env = env, .timeout_ms = GENERATE_TIMEOUT_S * 1000u};
	struct rootfs_stat st;

	job->generator->make_argv(&argv, b->root, job->program, job->kernel->version, made);
	command.argv = (const char *const *)argv.items;
	if (rootfs_run(b->root, &command, err) < 0)
		return -1;
	switch (rootfs_lstat(b->root, made, &st, err)) {
	case 1:
		if (S_ISREG(st.mode) && st.size_bytes > 0)
			return 0;
		return error_set(err, "'%s' ended with exit code 0, but made no proper '%s'",
		                 job->program, made);
	case 0:
		return error_set(err, "'%s' ended with exit code 0 without having written '%s'",
		                 job->program, made);
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

static int run_with_temporary(struct build *b, struct queue *q, const struct generator *g,
                              struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	const char *temporary = NULL;
	int result;

	if (generator_put_temporary(&temporary, g, b->guest, b->root, err) < 0)
		return -1;
	run_jobs(b, q);
	result = gather(q, err);
	if (temporary && rootfs_remove(b->root, temporary, result < 0 ? &ignored : err) < 0)
		return -1;
	return result;
}

static void add_jobs(struct build *b, struct queue *q, const struct generator *g,
                     const char *program)
{
	q->jobs = mem_alloc(b->guest->kernel_count * sizeof(*q->jobs));
	for (size_t i = 0; i < b->guest->kernel_count; i++) {
		const struct guest_kernel *k = &b->guest->kernels[i];

		if (k->rescue)
			log_note(b->log,
			         "'%s' is a rescue initramfs: left as it is, with what it carries",
			         k->initramfs);
		else
			q->jobs[q->count++] = (struct job){
				.b = b, .generator = g, .program = program, .kernel = k};
	}
}

int initramfs_make_all(struct build *b, const struct generator *g, const char *program,
                       struct error *err)
{
	struct queue q = {.lock = PTHREAD_MUTEX_INITIALIZER};
	int result;

	add_jobs(b, &q, g, program);
	result = take_reused(b, &q, err);
	if (result == 0 && q.done < q.count)
		result = run_with_temporary(b, &q, g, err);
	if (result == 0)
		keep_made(b, &q);
	free(q.jobs);
	return result;
}
