/* SPDX-License-Identifier: Apache-2.0 */
/*
 * publish: a finished image to all locations of a targets file. It only reads the image; what it
 * leaves on this host is "<image>.published.json", and between runs "<image>.publish-state.json".
 */
#include <stdio.h>
#include <string.h>

#include "builder/command.h"
#include "builder/fd.h"
#include "builder/sums-file.h"
#include "builder/supervise.h"
#include "publish/run.h"

#define TARGETS_DEFAULT  "targets.yaml"
#define RECORD_MAX_BYTES ((size_t)16 * 1024 * 1024)

struct job {
	const struct options *options;
};

static char *record_path(const char *image)
{
	CLEANUP_FREE char *stem = str_copy(image);

	if (str_ends(stem, ".qcow2"))
		stem[strlen(stem) - strlen(".qcow2")] = '\0';
	return str_format("%s.published.json", stem);
}

static int write_record(const json_t *record, const char *path, struct error *err)
{
	CLEANUP_FREE char *text = json_dumps(record, JSON_INDENT(2));
	CLEANUP_FREE char *lines = NULL;

	if (!text)
		return error_set(err, "cannot write '%s': a value is not UTF-8", path);
	lines = str_format("%s\n", text);
	return whole_file_write(path, lines, strlen(lines), err) < 0 ? error_code(err, EXIT_HOST)
	                                                             : 0;
}

/* What is no record of ours says nothing of earlier runs; NULL: it is none. */
static json_t *read_record(const char *path)
{
	CLEANUP_FREE char *text = NULL;

	return fd_read_path(path, RECORD_MAX_BYTES, &text) == 0 && text ? json_loads(text, 0, NULL)
	                                                                : NULL;
}

static bool read_verify(const char *word, enum publish_verify *ret)
{
	if (!word)
		return false;
	*ret = strcmp(word, "full") == 0    ? VERIFY_FULL
	       : strcmp(word, "quick") == 0 ? VERIFY_QUICK
	                                    : VERIFY_NONE;
	return true;
}

/* stdout: events and the record as lines, or a table, or what a consumer needs. */
static int print_all(const json_t *record, const struct publish_result *results, size_t count,
                     const struct options *o, struct error *err)
{
	if (o->json) {
		json_t *last = json_pack("{s:s, s:O}", "event", "result", "record", record);
		CLEANUP_FREE char *text = json_dumps(last, JSON_COMPACT);

		json_decref(last);
		puts(text ? text : "{}");
		return 0;
	}
	if (o->consumer)
		return publish_consumer_print(record, o->consumer, err);
	publish_results_print(results, count);
	return 0;
}

/* One that only looked leaves the record of what was published before as it is. */
static int report(const struct publish_image *image, const struct publish_result *results,
                  size_t count, const struct options *o, struct error *err)
{
	CLEANUP_FREE char *path = record_path(image->path);
	json_t *record = publish_results_json(image, results, count);
	json_t *earlier = read_record(path);
	int result;

	publish_results_keep(record, earlier);
	json_decref(earlier);
	result = o->plan || o->abort ? 0 : write_record(record, path, err);

	if (result == 0)
		result = print_all(record, results, count, o, err);
	json_decref(record);
	return result;
}

static void tell_hint(const struct publish_result *results, size_t count, struct log *log)
{
	size_t failed = 0;

	for (size_t i = 0; i < count; i++)
		failed += results[i].outcome == OUTCOME_FAILED;
	if (failed)
		log_warn(log, "%zu of %zu locations failed%s", failed, count,
		         publish_exit_code(results, count) == EXIT_PUBLISH
		                 ? "; run again to go on where it stopped"
		                 : "");
}

static int run(const struct options *o, struct log *log, enum exit_code *ret, struct error *err)
{
	CLEANUP_PUBLISH_IMAGE struct publish_image image = {.fd = -1};
	CLEANUP_PUBLISH_TARGETS struct publish_targets targets = {0};
	struct publish_result *results = NULL;
	enum publish_verify verify;
	const struct publish_options options = {
		.only = &o->only,
		.plan = o->plan,
		.abort = o->abort,
		.remove = o->remove,
		.replace = o->replace,
		.fail_fast = o->fail_fast,
		.json = o->json,
		.verify = read_verify(o->verify, &verify) ? &verify : NULL,
		.jobs = (unsigned)o->jobs,
		.tries = (unsigned)o->tries,
		.stall_timeout_s = o->stall_timeout_s,
		.log = log,
	};
	int result;

	if (publish_targets_read(&targets, o->targets ? o->targets : TARGETS_DEFAULT, err) < 0 ||
	    (o->consumer && publish_consumer_check(o->consumer, &targets, err) < 0))
		return -1;
	log_step_begin(log, "digest", "read the image once");
	result = publish_image_open(&image, o->base, o->image_name, o->image_version,
	                            publish_targets_digests(&targets), log, err);
	log_step_end(log, result == 0);
	if (result < 0)
		return -1;
	log_step_begin(log, "publish", o->base);
	result = publish_run(&results, &image, &targets, &options, err);
	log_step_end(log, result == 0 && publish_exit_code(results, targets.count) == EXIT_OK);
	if (result < 0)
		return -1;
	*ret = publish_exit_code(results, targets.count);
	result = report(&image, results, targets.count, o, err);
	tell_hint(results, targets.count, log);
	publish_results_free(results, targets.count);
	return result;
}

static int work(void *opaque)
{
	const struct job *job = opaque;
	struct error err = ERROR_INIT;
	struct log *log = NULL;
	enum exit_code code = EXIT_OK;

	if (log_open(&log, NULL, job->options->level, &err) < 0 ||
	    run(job->options, log, &code, &err) < 0) {
		error_print(&err, log);
		code = error_exit_code(&err);
	}
	log_close(log);
	error_free(&err);
	return (int)code;
}

static void cleanup(void *opaque, int exit_code)
{
	(void)opaque;
	if (exit_code < 0)
		fprintf(stderr, "gpuimg: ended by signal %d; run again to go on\n", -exit_code);
}

enum exit_code command_publish(const struct options *o, struct error *err)
{
	struct job job = {.options = o};
	const struct supervised s = {.work = work, .cleanup = cleanup, .opaque = &job};
	int result = supervise(&s, err);

	return result < 0 ? error_exit_code(err) : (enum exit_code)result;
}
