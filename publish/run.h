/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner: every location is a job of its own, some at once; one that fails stops no other. The
 * order of a job's calls, what is refused before the first byte, and what becomes of each are known
 * here alone.
 */
#ifndef GPUIMG_PUBLISH_RUN_H
#define GPUIMG_PUBLISH_RUN_H

#include <time.h>

#include "publish/progress.h"
#include "publish/publish.h"

enum publish_outcome {
	OUTCOME_PUBLISHED,
	OUTCOME_UNCHANGED, /* it was there: nothing was written */
	OUTCOME_FAILED,
	OUTCOME_SKIPPED,   /* --only named others, or the run was stopped before its turn */
	OUTCOME_PLANNED,   /* --plan: would be published */
	OUTCOME_LEFTOVERS, /* --abort: what is left there was listed, or removed */
};

struct publish_result {
	const struct publish_location *where;
	enum publish_outcome outcome;
	const char *stage;  /* "check", "probe", "begin", "send", "commit", "wait", "verify",
	                     * "name" */
	struct error error; /* of OUTCOME_FAILED; code EXIT_PUBLISH: running again may help */
	const char *boot_type;
	char *id, *ref, *verified;
	bool id_is_number;
	uint64_t sent_bytes, resumed_from;
	json_t *extra;
	struct strv leftovers;
	time_t started, finished;
};

struct publish_options {
	const struct strv *only; /* "TARGET" or "TARGET/LOCATION"; empty: all */
	bool plan, abort, remove, replace, fail_fast, json;
	const enum publish_verify *verify; /* NULL: each backend's own */
	unsigned jobs;                     /* at once; 0: 2 */
	unsigned tries, stall_timeout_s;   /* 0: the transport's */
	struct log *log;
};

/* 'results' has one for each location, in their order. -1 only for what is no location's fault. */
int publish_run(struct publish_result **ret, const struct publish_image *image,
                const struct publish_targets *targets, const struct publish_options *options,
                struct error *err);
void publish_results_free(struct publish_result *results, size_t count);
const char *publish_outcome_name(enum publish_outcome outcome);
/* EXIT_OK: all is published or unchanged; EXIT_PUBLISH: at least one may succeed later; else the
 * code of the first that failed for good. */
enum exit_code publish_exit_code(const struct publish_result *results, size_t count);

/* The record (docs/publish.md, schema 1); owned by the caller. */
json_t *publish_results_json(const struct publish_image *image,
                             const struct publish_result *results, size_t count);
/* What --only left out keeps its row of an earlier record of the same content (NULL: there is
 * none): the ids that were given then are still good. */
void publish_results_keep(json_t *record, const json_t *earlier);
/* A table for people, to stdout. */
void publish_results_print(const struct publish_result *results, size_t count);
/* Whether a consumer can use what one of these targets gives; EXIT_USAGE: none, or there is no such
 * consumer. Before anything is sent. */
int publish_consumer_check(const char *consumer, const struct publish_targets *targets,
                           struct error *err);
/* What a consumer needs, to stdout: capvco, cozystack, kubevirt, cdi, capo. From a record, so that
 * it can be asked for later too. EXIT_USAGE: nothing was published that it could use. */
int publish_consumer_print(const json_t *record, const char *consumer, struct error *err);

#endif
