/* SPDX-License-Identifier: Apache-2.0 */
/* build: base image in, proven node image out. The driver of the whole pipeline. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "data.h"
#include "digest.h"
#include "manifest.h"
#include "pipeline.h"
#include "plan.h"
#include "reuse.h"
#include "smoke.h"
#include "sums-file.h"
#include "supervise.h"
#include "workdir.h"

/* The last resort; every step has deadlines of its own. */
#define BUILD_TIMEOUT_S (6u * 3600)
#define FILES_WANTED    16384

/* Names of what a build leaves, all derived from the artifact's. */
struct names {
	char *artifact, *partial, *manifest, *log, *console, *lock, *sums, *dir;
};

struct job {
	const struct options *options;
	struct names names;
	char *work_dir;
	int work_lock_fd;
	int name_lock_fd; /* held for the whole build; -1 for a plan */
};

static const char *file_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void names_make(struct names *n, const char *output)
{
	CLEANUP_FREE char *stem = str_copy(output);
	CLEANUP_FREE char *copy = str_copy(output);
	const char *base = file_name(output);

	if (str_ends(stem, ".qcow2"))
		stem[strlen(stem) - strlen(".qcow2")] = '\0';
	n->artifact = str_copy(output);
	n->dir = str_copy(dirname(copy));
	n->partial = str_format("%s/.%s.partial", n->dir, base);
	/* "st" and "st.qcow2" share manifest and log. SHA256SUMS has a ".lock", so this is another.
	 */
	n->lock = str_format("%s/.%s.build.lock", n->dir, file_name(stem));
	n->sums = str_format("%s/%s", n->dir, SUMS_FILE_NAME);
	n->manifest = str_format("%s.manifest.json", stem);
	n->log = str_format("%s.log", stem);
	n->console = str_format("%s.console", stem);
}

static void names_free(struct names *n)
{
	free(n->artifact);
	free(n->partial);
	free(n->manifest);
	free(n->log);
	free(n->console);
	free(n->lock);
	free(n->sums);
	free(n->dir);
}

static void print_json(json_t *value)
{
	CLEANUP_FREE char *text = json_dumps(value, JSON_INDENT(2));

	puts(text ? text : "null");
	json_decref(value);
}

/* The lines of image and manifest in SHA256SUMS; digests NULL: they go. */
static int update_sums(const struct names *n, const struct strv *digests, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	strv_add(&names, file_name(n->artifact));
	strv_add(&names, file_name(n->manifest));
	return sums_file_update(n->dir, &names, digests, SUMS_FILE_WAIT_MS, err);
}

/*
 * The artifact's name comes last: what stands under it was proven. If anything fails before, or
 * a signal comes, cleanup() takes manifest and sums away again.
 */
static int publish_names(struct build *b, const struct names *n, const json_t *manifest,
                         struct error *err)
{
	CLEANUP_FREE char *manifest_digest = NULL;
	CLEANUP_STRV struct strv digests = {0};

	if (manifest_write(manifest, n->manifest, err) < 0 ||
	    digest_file(n->manifest, "SHA256", &manifest_digest, err) < 0)
		return -1;
	strv_add(&digests, b->result_digest);
	strv_add(&digests, manifest_digest);
	if (update_sums(n, &digests, err) < 0)
		return -1;
	if (rename(n->partial, n->artifact) < 0)
		return error_errno(err, errno, "cannot give the image its name '%s'", n->artifact);
	return 0;
}

static size_t proof_points(const struct build *b)
{
	return b->reused ? json_array_size(json_object_get(b->reused, "proof"))
	                 : b->findings.count - b->findings.bad;
}

static void report(const struct build *b, const struct names *n)
{
	if (b->boot_report)
		smoke_print(b->boot_report, b->log);
	else
		log_note(b->log, "the boot test was left out");
	log_note(b->log, "proof: %zu points hold%s", proof_points(b),
	         b->reused ? ", as they were found when the image was built" : "");
	if (b->driver.forwarded)
		log_warn(b->log,
		         "branch %s was asked for, and is forwarded to %s: driver %s is in it",
		         b->driver.branch_asked, b->driver.branch, b->driver.version);
	log_note(b->log, "image     %s", n->artifact);
	log_note(b->log, "manifest  %s", n->manifest);
	log_note(b->log, "log       %s", n->log);
	log_note(b->log,
	         "next: upload the image where your GPU pools run; its boot types are in the "
	         "manifest. On a node, 'cat /proc/cmdline' and 'lsmod' show what was done");
	if (!b->options->json)
		puts(n->artifact);
}

static int print_result(const struct names *n, struct error *err)
{
	json_error_t why;
	json_t *manifest = json_load_file(n->manifest, 0, &why);

	if (!manifest)
		return error_set(err, "cannot read '%s': %s", n->manifest, why.text);
	print_json(manifest);
	return 0;
}

/* A failed build leaves nothing that an earlier one could be mistaken for either. */
static int remove_old(const struct names *n, struct error *err)
{
	const char *const paths[] = {n->partial, n->artifact, n->manifest};

	/* First, because it may be refused: then the older image is still there. */
	if (update_sums(n, NULL, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (unlink(paths[i]) < 0 && errno != ENOENT)
			return error_errno(err, errno, "cannot replace '%s'", paths[i]);
	return 0;
}

static bool is_same_file(const char *a, const char *b)
{
	struct stat first, second;

	return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

/* All that a build writes, or removes, under names of its own. */
static struct strv outputs_of(const struct names *n)
{
	static const char *const consoles[] = {"bios.image",
	                                       "bios.base",
	                                       "uefi.image",
	                                       "uefi.base",
	                                       "uefi-secure-boot.image",
	                                       "uefi-secure-boot.base"};
	const char *const fixed[] = {n->artifact, n->partial, n->manifest,
	                             n->log,      n->lock,    n->sums};
	struct strv outputs = {0};

	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		strv_add(&outputs, fixed[i]);
	for (size_t i = 0; i < sizeof(consoles) / sizeof(consoles[0]); i++) {
		strv_addf(&outputs, "%s.%s.log", n->console, consoles[i]);
		strv_addf(&outputs, "%s.%s.log.stalled", n->console, consoles[i]);
	}
	return outputs;
}

static struct strv inputs_of(const struct options *o)
{
	struct strv inputs = {0};

	if (o->base)
		strv_add(&inputs, o->base);
	strv_add_all(&inputs, &o->run);
	for (size_t i = 0; i < o->upload.count; i++)
		strv_take(&inputs, mem_copy(o->upload.items[i], strcspn(o->upload.items[i], ":")));
	return inputs;
}

/* A name that SHA256SUMS can tell in a line of its own, and is not. */
static int check_output(const struct names *n, struct error *err)
{
	if (!str_equal(file_name(n->artifact), SUMS_FILE_NAME) && !strpbrk(n->artifact, "\r\n"))
		return 0;
	error_set(err, "an image cannot be called '%s'", n->artifact);
	error_hint(err, "its name goes into a line of %s: give another one with --output",
	           SUMS_FILE_NAME);
	return error_code(err, EXIT_USAGE);
}

/* Nothing that goes in may be what a build replaces: the base, an upload, a script. */
static int check_inputs(const struct options *o, const struct names *n, struct error *err)
{
	CLEANUP_STRV struct strv outputs = outputs_of(n);
	CLEANUP_STRV struct strv inputs = inputs_of(o);

	if (check_output(n, err) < 0)
		return -1;
	for (size_t i = 0; i < inputs.count; i++) {
		for (size_t j = 0; j < outputs.count; j++) {
			if (!is_same_file(inputs.items[i], outputs.items[j]))
				continue;
			error_set(err,
			          "'%s' goes in, and the build would replace it: it is '%s' too",
			          inputs.items[i], outputs.items[j]);
			error_hint(err, "give the artifact another name with --output");
			return error_code(err, EXIT_USAGE);
		}
	}
	return 0;
}

/* Two builds of one name would take each other's file for their own. */
static int lock_names(struct job *job, struct error *err)
{
	struct stat locked, named;

	job->name_lock_fd = open(job->names.lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (job->name_lock_fd < 0) {
		error_errno(err, errno, "cannot write '%s'", job->names.lock);
		return error_code(err, EXIT_HOST);
	}
	/* A build that just ended may have taken away the file that we locked. */
	if (flock(job->name_lock_fd, LOCK_EX | LOCK_NB) == 0 &&
	    fstat(job->name_lock_fd, &locked) == 0 && stat(job->names.lock, &named) == 0 &&
	    locked.st_ino == named.st_ino && locked.st_dev == named.st_dev)
		return 0;
	error_set(err, "another build is making '%s', or an image with the same manifest",
	          job->names.artifact);
	error_hint(err, "wait for it, or give this one another name with --output");
	return error_code(err, EXIT_HOST);
}

static int finish(struct build *b, const struct names *n, struct error *err)
{
	json_t *manifest;
	int result;

	reuse_finish(b);
	manifest = manifest_make(b, n->artifact, b->result_digest, b->boot_report);
	result = publish_names(b, n, manifest, err);
	if (result == 0)
		reuse_keep_image(b, n->artifact, b->result_digest, manifest);
	json_decref(manifest);
	return result;
}

static int run(struct build *b, const struct job *job, struct error *err)
{
	const struct names *n = &job->names;
	const struct backend *backend = NULL;

	if (build_accept(b, job->options->plan ? job->work_dir : n->dir, &backend, err) < 0)
		return -1;
	if (b->options->plan) {
		if (build_plan(b, backend, err) < 0)
			return -1;
		if (b->options->json)
			print_json(plan_json(b, n->artifact));
		else
			plan_print(b, n->artifact);
		return 0;
	}
	if (remove_old(n, err) < 0 || build_make_image(b, backend, err) < 0 ||
	    finish(b, n, err) < 0)
		return -1;
	report(b, n);
	return b->options->json ? print_result(n, err) : 0;
}

/* Every program of the guest that waits for a file's content holds one descriptor of ours. */
static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= FILES_WANTED)
		return;
	limit.rlim_cur = limit.rlim_max < FILES_WANTED ? limit.rlim_max : FILES_WANTED;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static int work(void *opaque)
{
	const struct job *job = opaque;
	struct error err = ERROR_INIT;
	struct build b = {
		.options = job->options,
		.work_dir = job->work_dir,
		.base_hold_fd = -1,
		.result_path = job->names.partial,
		.console_prefix = job->names.console,
		.steps = json_array(),
	};
	int result = -1;

	raise_file_limit();
	/* libguestfs, QEMU and the rest put their temporary files where ours are. */
	setenv("TMPDIR", job->work_dir, 1);
	if (log_open(&b.log, job->options->plan ? NULL : job->names.log, job->options->level,
	             &err) == 0 &&
	    data_find_dir(&b.data_dir, job->options->data_dir, &err) == 0)
		result = run(&b, job, &err);
	if (result < 0) {
		error_print(&err, b.log);
		if (log_path(b.log))
			fprintf(stderr, "gpuimg: the log is '%s'\n", log_path(b.log));
	}
	result = result < 0 ? (int)error_exit_code(&err) : EXIT_OK;
	build_free(&b);
	log_close(b.log);
	error_free(&err);
	return result;
}

/* What a failed build has begun to write; an older artifact that it never touched stays whole. */
static void remove_unfinished(const struct job *job)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;

	unlink(job->names.partial);
	whole_file_sweep(job->names.manifest);
	if (access(job->names.artifact, F_OK) == 0)
		return;
	unlink(job->names.manifest);
	update_sums(&job->names, NULL, &ignored);
}

static void cleanup(void *opaque, int exit_code)
{
	const struct job *job = opaque;

	if (exit_code != EXIT_OK && !job->options->plan)
		remove_unfinished(job);
	if (job->options->keep_work && exit_code != EXIT_OK) {
		workdir_keep(job->work_dir);
		fprintf(stderr, "gpuimg: the work directory is kept: '%s'\n", job->work_dir);
	} else {
		workdir_remove(job->work_dir);
	}
	if (exit_code < 0)
		fprintf(stderr, "gpuimg: ended by signal %d; nothing was left under '%s'\n",
		        -exit_code, job->names.artifact);
}

static int prepare(struct job *job, struct error *err)
{
	const struct options *o = job->options;

	if (check_inputs(o, &job->names, err) < 0 || workdir_make_parents(o->cache_dir, err) < 0)
		return -1;
	if (!o->plan && (workdir_make_parents(job->names.dir, err) < 0 || lock_names(job, err) < 0))
		return -1;
	return workdir_make(&job->work_dir, &job->work_lock_fd, o->work_dir, err);
}

enum exit_code command_build(const struct options *o, struct error *err)
{
	struct job job = {.options = o, .work_lock_fd = -1, .name_lock_fd = -1};
	const struct supervised s = {
		.work = work, .cleanup = cleanup, .opaque = &job, .timeout_s = BUILD_TIMEOUT_S};
	int result = -1;

	names_make(&job.names, o->output);
	if (prepare(&job, err) == 0) {
		result = supervise(&s, err);
		if (!o->plan)
			unlink(job.names.lock);
	}
	if (job.name_lock_fd >= 0)
		close(job.name_lock_fd);
	if (job.work_lock_fd >= 0)
		close(job.work_lock_fd);
	names_free(&job.names);
	free(job.work_dir);
	return result < 0 ? error_exit_code(err) : (enum exit_code)result;
}
