/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "publish/run.h"

#define JOBS_DEFAULT 2
#define JOBS_MAX     16

struct run {
	const struct publish_image *image;
	const struct publish_targets *targets;
	const struct publish_options *options;
	struct publish_state *state;
	struct progress *progress;
	struct progress_row **rows;
	struct publish_result *results;
	pthread_mutex_t lock;
	size_t next;
	atomic_bool stop;
};

const char *publish_outcome_name(enum publish_outcome outcome)
{
	static const char *const names[] = {"published", "unchanged", "failed",
	                                    "skipped",   "planned",   "leftovers"};

	return names[outcome];
}

void publish_progress(struct publish_job *job, uint64_t done_bytes, uint64_t all_bytes)
{
	if (job->row)
		progress_bytes(job->row, done_bytes, all_bytes);
}

void publish_on_sent(void *telling, uint64_t sent_bytes)
{
	const struct publish_telling *t = telling;

	publish_progress(t->job, t->before_bytes + sent_bytes, t->all_bytes);
}

void publish_phase(struct publish_job *job, const char *what)
{
	if (job->row)
		progress_phase(job->row, what);
}

int publish_check_stop(const struct publish_job *job, struct error *err)
{
	if (!*job->stop)
		return 0;
	error_set(err, "stopped");
	return error_code(err, EXIT_PUBLISH);
}

/* A location asks for a way to boot that the image does not have: a VM of it would never start. */
static int check_boot_type(struct publish_job *job, struct error *err)
{
	const struct strv *types = &job->image->boot_types;
	CLEANUP_FREE char *all = NULL;

	if (!job->where->boot_type) {
		job->boot_type = types->count ? types->items[0] : "bios";
		return 0;
	}
	job->boot_type = job->where->boot_type;
	if (strv_has(types, job->boot_type))
		return 0;
	all = strv_join(types, ", ");
	error_set(err, "the target wants boot type '%s', and the image boots by %s", job->boot_type,
	          types->count ? all : "nothing that its manifest says");
	error_hint(err,
	           "correct 'boot_type' in the targets file, or build an image that supports it");
	return error_code(err, EXIT_INPUT);
}

static int call(struct publish_job *job, struct publish_result *r, const char *stage,
                int (*function)(struct publish_job *, struct error *), struct error *err)
{
	r->stage = stage;
	if (!function)
		return 0;
	if (*job->stop) {
		error_set(err, "stopped before '%s'", stage);
		return error_code(err, EXIT_PUBLISH);
	}
	return function(job, err);
}

static int refuse_different(struct publish_job *job, struct error *err)
{
	if (job->replace)
		return 0;
	error_set(err, "something else stands there under this name%s%s", job->ref ? ": " : "",
	          job->ref ? job->ref : "");
	error_hint(err, "give the image another name or version, or pass --replace");
	return error_code(err, EXIT_INPUT);
}

/* A server that checks digests refuses what was changed while it was sent: the image is to blame
 * then, and running again would end the same way for as long as somebody writes to it. */
static int blame_image(const struct publish_job *job, struct error *err)
{
	CLEANUP_ERROR struct error changed = ERROR_INIT;

	if (publish_image_check(job->image, &changed) == 0)
		return -1;
	error_free(err);
	return error_take(err, &changed);
}

static int send_all(struct publish_job *job, struct publish_result *r, struct error *err)
{
	const struct publish_backend *b = job->backend;

	publish_phase(job, "sends");
	if (call(job, r, "begin", b->begin, err) < 0 || call(job, r, "send", b->send, err) < 0)
		return blame_image(job, err);
	/* What was sent is what was digested: before anything gets its name. */
	if (publish_image_check(job->image, err) < 0)
		return -1;
	publish_phase(job, "completes");
	return call(job, r, "commit", b->commit, err);
}

static int settle(struct publish_job *job, struct publish_result *r, struct error *err)
{
	if (job->backend->wait) {
		publish_phase(job, "waits for the server");
		if (call(job, r, "wait", job->backend->wait, err) < 0)
			return -1;
	}
	r->stage = "verify";
	if (!job->backend->verify || job->verify == VERIFY_NONE) {
		if (!job->verified)
			job->verified = str_copy("none");
		return 0;
	}
	publish_phase(job, "verifies");
	return job->backend->verify(job, job->verify, err);
}

/* It is there under its name. Nothing is written then, but where the run that sent it was killed
 * before it had verified, that is made good. */
static int keep(struct publish_job *job, struct publish_result *r, struct error *err)
{
	bool asked = job->verify_asked && job->verify == VERIFY_FULL;
	bool owed = publish_was_begun(job) && job->verify != VERIFY_NONE;

	r->outcome = OUTCOME_UNCHANGED;
	if (job->plan)
		return 0;
	if (job->backend->verify && (asked || owed)) {
		free(STEAL(job->verified));
		publish_phase(job, "verifies");
		r->stage = "verify";
		if (job->backend->verify(job, job->verify, err) < 0)
			return -1;
	}
	publish_forget(job);
	return 0;
}

static int publish(struct publish_job *job, struct publish_result *r, struct error *err)
{
	enum publish_found found = FOUND_ABSENT;

	publish_phase(job, "looks");
	r->stage = "probe";
	if (job->backend->probe(job, &found, err) < 0)
		return -1;
	if (found == FOUND_SAME && !publish_is_damaged(job))
		return keep(job, r, err);
	if (found == FOUND_DIFFERENT && refuse_different(job, err) < 0)
		return -1;
	r->outcome = OUTCOME_PLANNED;
	if (job->plan)
		return 0;
	if (found != FOUND_BUSY && send_all(job, r, err) < 0)
		return -1;
	if (settle(job, r, err) < 0 || call(job, r, "name", job->backend->name, err) < 0)
		return -1;
	r->outcome = OUTCOME_PUBLISHED;
	publish_forget(job);
	return 0;
}

static int list_leftovers(struct publish_job *job, struct publish_result *r, bool remove,
                          struct error *err)
{
	r->stage = "abort";
	r->outcome = OUTCOME_LEFTOVERS;
	if (!job->backend->leftovers)
		return 0;
	publish_phase(job, remove ? "removes leftovers" : "lists leftovers");
	if (job->backend->leftovers(job, remove, &r->leftovers, err) < 0)
		return -1;
	if (remove)
		publish_forget(job);
	return 0;
}

static int run_job(struct run *run, struct publish_job *job, struct publish_result *r,
                   struct error *err)
{
	if (check_boot_type(job, err) < 0)
		return -1;
	r->boot_type = job->boot_type;
	if (call(job, r, "check", job->backend->check, err) < 0)
		return -1;
	if (run->options->abort)
		return list_leftovers(job, r, run->options->remove, err);
	return publish(job, r, err);
}

static int open_job(struct run *run, struct publish_job *job, struct error *err)
{
	const struct publish_options *o = run->options;
	const struct http_options http = {
		.tries = o->tries,
		.stall_timeout_s = o->stall_timeout_s,
		.ca_file = publish_setting(job->where, "ca_file"),
		.insecure = !publish_flag(job->where, "verify_tls", true),
		.secrets = job->secrets,
		.stop = &run->stop,
		.log = o->log,
	};

	return http_new(&job->http, &http, err);
}

static void take_outcome(struct publish_result *r, struct publish_job *job)
{
	r->id = STEAL(job->id);
	r->ref = STEAL(job->ref);
	r->verified = STEAL(job->verified);
	r->id_is_number = job->id_is_number;
	r->sent_bytes = job->sent_bytes;
	r->resumed_from = job->resumed_from;
	r->extra = STEAL(job->extra);
}

/* Values of secrets do not outlive their job. */
static void wipe(struct strv *secrets)
{
	for (size_t i = 0; i < secrets->count; i++)
		explicit_bzero(secrets->items[i], strlen(secrets->items[i]));
	strv_free(secrets);
}

static void tell_end(struct progress_row *row, const struct publish_result *r)
{
	CLEANUP_FREE char *sent = str_size(r->sent_bytes);
	CLEANUP_FREE char *text =
		r->outcome == OUTCOME_FAILED
			? str_format("%s: %s", r->stage, r->error.message)
			: str_format("%s%s%s sent", r->ref ? r->ref : "", r->ref ? ", " : "", sent);

	progress_end(row, publish_outcome_name(r->outcome), text);
}

static void serve(struct run *run, size_t index)
{
	const struct publish_location *where = &run->targets->items[index];
	struct publish_result *r = &run->results[index];
	struct strv secrets = {0};
	struct publish_job job = {
		.image = run->image,
		.where = where,
		.backend = publish_backend_find(where->type),
		.state = run->state,
		.secrets = &secrets,
		.log = run->options->log,
		.stop = &run->stop,
		.replace = run->options->replace,
		.plan = run->options->plan,
		.row = run->rows[index],
	};

	job.verify_asked = run->options->verify != NULL;
	if (!job.backend) { /* publish_targets_read() has refused it */
		error_set(&r->error, "there is no type '%s'", where->type);
		r->outcome = OUTCOME_FAILED;
		return;
	}
	job.verify = run->options->verify ? *run->options->verify : job.backend->verify_default;
	r->started = time(NULL);
	r->stage = "check";
	if (open_job(run, &job, &r->error) < 0 || run_job(run, &job, r, &r->error) < 0) {
		r->outcome = OUTCOME_FAILED;
		if (run->options->fail_fast)
			run->stop = true;
	}
	if (job.backend->end)
		job.backend->end(&job);
	r->finished = time(NULL);
	take_outcome(r, &job);
	http_free(job.http);
	json_decref(job.slot);
	wipe(&secrets);
	tell_end(run->rows[index], r);
}

static bool is_wanted(const struct publish_location *where, const struct strv *only)
{
	CLEANUP_FREE char *whole = str_format("%s/%s", where->target, where->location);

	return !only || only->count == 0 || strv_has(only, where->target) || strv_has(only, whole);
}

static void *worker(void *opaque)
{
	struct run *run = opaque;

	for (;;) {
		size_t index;

		pthread_mutex_lock(&run->lock);
		index = run->next++;
		pthread_mutex_unlock(&run->lock);
		if (index >= run->targets->count)
			return NULL;
		if (!run->stop && is_wanted(&run->targets->items[index], run->options->only))
			serve(run, index);
	}
}

static int check_only(const struct run *run, struct error *err)
{
	const struct strv *only = run->options->only;

	for (size_t i = 0; only && i < only->count; i++) {
		const struct strv one = {.items = &only->items[i], .count = 1};
		bool found = false;

		for (size_t j = 0; j < run->targets->count && !found; j++)
			found = is_wanted(&run->targets->items[j], &one);
		if (found)
			continue;
		error_set(err, "--only=%s: there is no such target or location", only->items[i]);
		error_hint(err, "name a target, or TARGET/LOCATION, of the targets file");
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

static void add_rows(struct run *run)
{
	run->rows = mem_alloc(run->targets->count * sizeof(struct progress_row *));
	for (size_t i = 0; i < run->targets->count; i++) {
		CLEANUP_FREE char *name = str_format("%s/%s", run->targets->items[i].target,
		                                     run->targets->items[i].location);

		run->results[i].where = &run->targets->items[i];
		run->results[i].outcome = OUTCOME_SKIPPED;
		run->results[i].stage = "";
		run->rows[i] = progress_add(run->progress, name);
	}
}

static int run_workers(struct run *run, struct error *err)
{
	unsigned wanted = run->options->jobs ? run->options->jobs : JOBS_DEFAULT;
	pthread_t threads[JOBS_MAX];
	unsigned started = 0;
	int errnum = 0;

	while (started < wanted && started < JOBS_MAX && started < run->targets->count &&
	       (errnum = pthread_create(&threads[started], NULL, worker, run)) == 0)
		started++;
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	return started == 0 && run->targets->count
	               ? error_errno(err, errnum, "cannot start a thread")
	               : 0;
}

int publish_run(struct publish_result **ret, const struct publish_image *image,
                const struct publish_targets *targets, const struct publish_options *options,
                struct error *err)
{
	struct run run = {.image = image, .targets = targets, .options = options};
	int result = -1;

	pthread_mutex_init(&run.lock, NULL);
	run.results = mem_alloc(targets->count * sizeof(*run.results));
	if (check_only(&run, err) == 0 && publish_state_open(&run.state, image, err) == 0 &&
	    progress_new(&run.progress, options->log, options->json, err) == 0) {
		add_rows(&run);
		result = run_workers(&run, err);
	}
	progress_free(run.progress);
	publish_state_close(run.state);
	pthread_mutex_destroy(&run.lock);
	free(run.rows);
	if (result == 0)
		*ret = STEAL(run.results);
	publish_results_free(run.results, targets->count);
	return result;
}

void publish_results_free(struct publish_result *results, size_t count)
{
	for (size_t i = 0; results && i < count; i++) {
		error_free(&results[i].error);
		free(results[i].id);
		free(results[i].ref);
		free(results[i].verified);
		json_decref(results[i].extra);
		strv_free(&results[i].leftovers);
	}
	free(results);
}

enum exit_code publish_exit_code(const struct publish_result *results, size_t count)
{
	enum exit_code code = EXIT_OK;

	for (size_t i = 0; i < count; i++) {
		if (results[i].outcome != OUTCOME_FAILED)
			continue;
		if (error_exit_code(&results[i].error) == EXIT_PUBLISH)
			return EXIT_PUBLISH;
		if (code == EXIT_OK)
			code = error_exit_code(&results[i].error);
	}
	return code;
}
