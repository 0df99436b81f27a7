/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "boot-cache.h"
#include "smoke.h"

/* One boot in a thread of its own. */
struct runner {
	struct boot_options options;
	struct boot_facts facts;
	struct error err;
	char *work_dir, *console;
	char *stalled; /* how the first try ended, if it was made once more */
	const char *sha256;
	bool remembered; /* the facts came from the cache */
	int result;
};

static void run_again(struct runner *r)
{
	boot_facts_free(&r->facts);
	r->facts = (struct boot_facts){0};
	r->result = boot_run(&r->options, &r->facts, &r->err);
}

/* The console of a try that stalled is what explains it: the next one must not write over it. */
static void keep_stalled(struct runner *r)
{
	const char *path = r->options.console_path;
	CLEANUP_FREE char *kept = path ? str_format("%s.stalled", path) : NULL;
	struct stat st;

	r->stalled = str_copy(r->facts.ended);
	/* The user may have named a device, which is not ours to rename. */
	if (kept && lstat(path, &st) == 0 && S_ISREG(st.st_mode) && rename(path, kept) < 0)
		log_warn(r->options.log, "cannot keep the console '%s' as '%s': %s, ignoring", path,
		         kept, strerror(errno));
}

/*
 * Without KVM a guest hangs half-way once in a while, for no fault of its own (seen once in
 * eight boots on a machine that was five times overloaded). One more try is told, and no third
 * one made.
 */
static void *boot_thread(void *opaque)
{
	struct runner *r = opaque;

	if (r->remembered)
		return NULL;
	r->result = boot_run(&r->options, &r->facts, &r->err);
	if (r->result == 0 && !r->options.kvm && r->facts.ended &&
	    str_starts(r->facts.ended, BOOT_STALLED)) {
		log_warn(r->options.log, "'%s': %s; boots it once more", r->options.image,
		         r->facts.ended);
		keep_stalled(r);
		run_again(r);
	}
	return NULL;
}

static void runner_free(struct runner *r)
{
	boot_facts_free(&r->facts);
	error_free(&r->err);
	free(r->work_dir);
	free(r->console);
	free(r->stalled);
}

/* What the user named is for one console; several firmwares have one each. */
static char *console_of(const struct smoke *s, const char *firmware, bool control)
{
	const char *named = s->options->console;

	if (named && !control)
		return s->firmware.count > 1 ? str_format("%s.%s", named, firmware)
		                             : str_copy(named);
	if (s->console_prefix)
		return str_format("%s.%s.%s.log", s->console_prefix, firmware,
		                  control ? "base" : "image");
	return NULL;
}

static int look_up(struct runner *r, const struct smoke *s, const char *sha256, struct error *err)
{
	int found;

	r->sha256 = sha256;
	if (!s->cache || !sha256)
		return 0;
	found = boot_cache_get(s->cache, &r->options, sha256, &r->facts, err);
	r->remembered = found == 1;
	if (r->remembered)
		log_note(s->log, "'%s' was booted before, takes the facts of that boot",
		         r->options.image);
	return found < 0 ? -1 : 0;
}

static int prepare(struct runner *r, const struct smoke *s, const char *firmware, const char *role,
                   struct error *err)
{
	const struct options *o = s->options;
	bool control = strcmp(role, "base") == 0;

	r->work_dir = str_format("%s/boot-%s-%s", s->work_dir, firmware, role);
	r->console = console_of(s, firmware, control);
	if (mkdir(r->work_dir, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make the directory '%s'", r->work_dir);
	r->options = (struct boot_options){
		.image = control ? s->control : s->image,
		.format = control ? s->control_format : s->image_format,
		.window = o->window,
		.bar_bytes = o->bar_bytes,
		.timeout_s = o->timeout_s,
		.kvm = s->kvm,
		.console_path = r->console,
		.work_dir = r->work_dir,
		.data_dir = s->data_dir,
		.driver = s->driver && !control,
		.early_only = control, /* it shows its failure early; see finish_base() */
		.log = s->log,
	};
	if (boot_firmware_from_name(&r->options.firmware, firmware) < 0)
		return error_set(err, "there is no firmware '%s'", firmware);
	return look_up(r, s, control ? s->control_sha256 : s->image_sha256, err);
}

/* Whole boots without a second try, of a pair that proved its point. */
static void remember(const struct smoke *s, const struct runner *r)
{
	if (s->cache && r->sha256 && !r->remembered && !r->stalled)
		boot_cache_put(s->cache, &r->options, r->sha256, &r->facts);
}

/*
 * A unit that fails in the base too does not count against the image: only then is the rest of
 * the base's boot worth its minutes.
 */
static bool units_want_base(const struct boot_facts *f)
{
	for (size_t i = 0; i < f->failed_units.count; i++)
		if (!boot_driver_excuses(&f->driver, f->failed_units.items[i]))
			return true;
	return false;
}

static void finish_base(struct runner *image, struct runner *base)
{
	if (image->result < 0 || base->result < 0 || !units_want_base(&image->facts))
		return;
	log_note(base->options.log,
	         "units failed in the image: boots the base to its end, to compare");
	base->options.early_only = false;
	base->remembered = false;
	run_again(base);
}

static int run_both(struct runner *image, struct runner *base, struct error *err)
{
	pthread_t thread;
	bool beside = base && pthread_create(&thread, NULL, boot_thread, base) == 0;

	boot_thread(image);
	if (beside)
		pthread_join(thread, NULL);
	else if (base)
		boot_thread(base);
	if (base)
		finish_base(image, base);
	for (int i = 0; i < 2; i++) {
		struct runner *r = i ? base : image;

		if (!r || r->result == 0)
			continue;
		error_set(err, "%s", r->err.message);
		if (r->err.hint)
			error_hint(err, "%s", r->err.hint);
		return error_code(err, error_exit_code(&r->err));
	}
	return 0;
}

static json_t *reasons_json(const struct strv *reasons)
{
	json_t *list = json_array();

	for (size_t i = 0; i < reasons->count; i++)
		json_array_append_new(list, json_string(reasons->items[i]));
	return list;
}

static json_t *facts_json(const struct runner *r)
{
	json_t *facts = boot_facts_json(&r->facts);

	json_object_set_new(facts, "remembered", json_boolean(r->remembered));
	json_object_set_new(facts, "tries", json_integer(r->stalled ? 2 : 1));
	if (r->stalled)
		json_object_set_new(facts, "stalled", json_string(r->stalled));
	return facts;
}

static json_t *make_report(const char *firmware, enum verdict verdict, const struct strv *reasons,
                           const struct runner *image, const struct runner *base)
{
	json_t *report =
		json_pack("{s:s, s:s, s:s, s:o, s:o}", "firmware", firmware, "window",
	                  image->options.window == WINDOW_REACHABLE ? "reachable" : "unreachable",
	                  "verdict", verdict_name(verdict), "reasons", reasons_json(reasons),
	                  "image", facts_json(image));

	json_object_set_new(report, "base", base ? facts_json(base) : json_null());
	return report;
}

static int run_firmware(const struct smoke *s, const char *firmware, enum verdict *ret_verdict,
                        json_t **ret_report, struct error *err)
{
	struct runner image = {0}, base = {0};
	struct runner *control = s->control ? &base : NULL;
	CLEANUP_STRV struct strv reasons = {0};
	int result = -1;

	if (prepare(&image, s, firmware, "image", err) == 0 &&
	    (!control || prepare(&base, s, firmware, "base", err) == 0) &&
	    run_both(&image, control, err) == 0) {
		*ret_verdict =
			control ? boot_judge_pair(&base.facts, &image.facts, s->params, &reasons)
				: boot_judge(&image.facts, s->params, &reasons);
		*ret_report = make_report(firmware, *ret_verdict, &reasons, &image, control);
		if (*ret_verdict == VERDICT_PASSED) {
			remember(s, &image);
			if (control)
				remember(s, control);
		}
		result = 0;
	}
	runner_free(&image);
	runner_free(&base);
	return result;
}

/* Failed is worse than void, void worse than passed. */
static enum verdict worse(enum verdict a, enum verdict b)
{
	if (a == VERDICT_FAILED || b == VERDICT_FAILED)
		return VERDICT_FAILED;
	return a == VERDICT_VOID || b == VERDICT_VOID ? VERDICT_VOID : VERDICT_PASSED;
}

int smoke_run(const struct smoke *s, enum verdict *ret_verdict, json_t **ret_report,
              struct error *err)
{
	json_t *runs = json_array();
	enum verdict all = VERDICT_PASSED;

	for (size_t i = 0; i < s->firmware.count; i++) {
		enum verdict verdict;
		json_t *report = NULL;

		log_step_progress(s->log, -1, s->firmware.items[i]);
		if (run_firmware(s, s->firmware.items[i], &verdict, &report, err) < 0) {
			json_decref(runs);
			return -1;
		}
		all = worse(all, verdict);
		json_array_append_new(runs, report);
	}
	*ret_verdict = all;
	*ret_report = json_pack("{s:s, s:o}", "verdict", verdict_name(all), "runs", runs);
	return 0;
}

static const char *bar_text(const json_t *facts)
{
	const char *address = json_string_value(json_object_get(facts, "bar_address"));

	return address ? address : "unassigned";
}

static const char *text_of(const json_t *object, const char *key, const char *instead)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : instead;
}

static bool is_yes(const json_t *object, const char *key)
{
	return strcmp(text_of(object, key, ""), "yes") == 0;
}

/* "NVIDIA driver 535.261.03 (nvidia-current): its module runs, and finds no card that answers" */
static void print_driver(const json_t *facts, struct log *log)
{
	const json_t *driver = json_object_get(facts, "driver");
	const char *how = "its module does not load";

	if (!json_is_object(driver))
		return;
	if (is_yes(driver, "loaded"))
		how = "its module is loaded";
	else if (is_yes(driver, "no_card"))
		how = "its module runs, and finds no card that answers";
	else if (!json_is_string(json_object_get(driver, "exit_code")))
		how = "unseen";
	log_note(log, "  NVIDIA driver %s (%s): %s; %" JSON_INTEGER_FORMAT " reads of the card",
	         text_of(driver, "version", "of unknown version"),
	         text_of(driver, "module", "no module"), how,
	         json_integer_value(json_object_get(facts, "card_reads")));
}

/* Only where it is on: what it means that it is not, the reasons tell. */
static void print_secure_boot(const json_t *facts, struct log *log)
{
	if (is_yes(facts, "secure_boot"))
		log_note(log, "  Secure Boot is on in the guest, its kernel's lockdown: %s",
		         text_of(facts, "lockdown", "unseen"));
}

void smoke_print(const json_t *report, struct log *log)
{
	const json_t *runs = json_object_get(report, "runs");

	for (size_t i = 0; i < json_array_size(runs); i++) {
		const json_t *run = json_array_get(runs, i);
		const json_t *reasons = json_object_get(run, "reasons");
		const json_t *base = json_object_get(run, "base");
		const char *verdict = json_string_value(json_object_get(run, "verdict"));

		log_note(log, "boot test, %s, %s window: %s; BAR of the image %s%s%s",
		         json_string_value(json_object_get(run, "firmware")),
		         json_string_value(json_object_get(run, "window")), verdict,
		         bar_text(json_object_get(run, "image")),
		         json_is_null(base) ? "" : ", of the base ",
		         json_is_null(base) ? "" : bar_text(base));
		print_driver(json_object_get(run, "image"), log);
		print_secure_boot(json_object_get(run, "image"), log);
		for (size_t j = 0; j < json_array_size(reasons); j++)
			log_note(log, "  %s", json_string_value(json_array_get(reasons, j)));
	}
}
