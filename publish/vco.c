/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vco: VM images of whitesky.cloud's VCO, location by location: an upload in parts, or an import
 * from an address that the platform can reach. An image's boot type cannot be changed later, and a
 * VM whose own differs is refused there, so it is part of what must be equal.
 */
#include <string.h>

#include "builder/clock.h"
#include "publish/secret.h"
#include "publish/vco.h"

#define READY_TIMEOUT_S 7200
#define UNKNOWN_PART    12    /* of it for a status that we do not know: ten minutes */
#define APPEAR_MS       60000 /* an image that was taken shows in the list by then */
#define STATUS_SHOWN    64
#define POLL_FIRST_MS   2000
#define POLL_MAX_MS     30000
#define DIGITS          12

static int check_settings(const struct publish_location *w, struct error *err)
{
	static const char *const numbers[] = {"memory", "boot_disk_size", "ready_timeout"};
	const char *url = publish_setting(w, "url"), *iam = publish_setting(w, "iam_url");

	if (!url || !vco_is_safe_url(url) || !publish_setting(w, "customer"))
		error_set(err, "'url' must be the https address of the API, up to '/api/1', and "
		               "'customer' a text");
	else if (json_object_get(w->settings, "iam_url") && (!iam || !vco_is_safe_url(iam)))
		error_set(err, "'iam_url' must be the https address of where tokens come from");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		uint64_t number = publish_number(w, numbers[i], 1);

		if (number == 0 || number > INT32_MAX)
			error_set(err, "'%s' must be from 1 to %d", numbers[i], INT32_MAX);
	}
	return err->message ? error_code(err, EXIT_USAGE) : 0;
}

static int vco_check(struct publish_job *job, struct error *err)
{
	struct vco *v = job->own = mem_alloc(sizeof(*v));
	const struct publish_location *w = job->where;
	const char *location = publish_setting(w, "location"), *iam = publish_setting(w, "iam_url");
	const char *tags = publish_setting(w, "tags");
	CLEANUP_FREE char *customer = NULL;
	CLEANUP_FREE char *place = http_escape(location ? location : w->location, false);

	if (check_settings(w, err) < 0)
		return -1;
	customer = http_escape(publish_setting(w, "customer"), false);
	v->api = http_trimmed(publish_setting(w, "url"));
	v->iam = iam ? http_trimmed(iam) : NULL;
	v->images = str_format("%s/customers/%s/locations/%s/vm-images", v->api, customer, place);
	v->name = str_format("%s-%s-%.*s", job->image->name, job->image->version, DIGITS,
	                     job->image->sha256);
	v->tags =
		str_format("sha256=%s%s%s", job->image->sha256, tags ? "," : "", tags ? tags : "");
	v->by_url = publish_setting(w, "source_url") != NULL;
	if (publish_secret(job, "token", &v->token, err) < 0)
		return -1;
	if (v->token && *v->token)
		return 0;
	error_set(err, "no credentials: 'token' is missing");
	error_hint(err, "write 'token: {env: NAME}' or '{file: PATH}', a JWT, in the targets file");
	return error_code(err, EXIT_USAGE);
}

static void vco_end(struct publish_job *job)
{
	struct vco *v = job->own;

	if (!v)
		return;
	secret_free(v->token);
	free(v->api);
	free(v->iam);
	free(v->images);
	free(v->name);
	free(v->tags);
	free(v->status);
	free(STEAL(job->own));
}

/* The image's record; *ret NULL: there is none. */
static int get_image(struct publish_job *job, json_int_t id, json_t **ret, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *path = str_format("/%lld", (long long)id);
	const struct vco_call call = {.method = "GET", .path = path, .idempotent = true};

	*ret = NULL;
	if (vco_send(job, &call, &reply, NULL, err) < 0)
		return -1;
	if (reply.status == 404)
		return 0;
	if (reply.status != 200)
		return vco_error(job, &call, &reply, err);
	*ret = json_loads(reply.body ? reply.body : "", 0, NULL);
	return *ret ? 0 : error_set(err, "the record of image %lld is no JSON", (long long)id);
}

void vco_take_id(struct publish_job *job, json_int_t id)
{
	struct vco *v = job->own;

	v->seen = true;
	free(job->id);
	free(job->ref);
	job->id = str_format("%lld", (long long)id);
	job->id_is_number = true;
	job->ref = str_format("%s/%lld", job->where->location, (long long)id);
}

static int compare_size(const struct publish_job *job, const json_t *image)
{
	return vco_compare_size(image, job->image->size_bytes, job->image->virtual_bytes);
}

/* The platform compares the MD5 that we send. One that others made under our name, without our tag,
 * has that name for a proof alone, and its size where that is told. */
static bool is_by_name(struct publish_job *job, const json_t *image)
{
	return !vco_is_tagged(image, job->image->sha256) && !vco_is_finished(job);
}

static enum vco_verdict judge(struct publish_job *job, const json_t *image)
{
	enum vco_verdict verdict = vco_judge(image, job->boot_type, job->image->sha256,
	                                     publish_setting(job->where, "ready_status"));

	return verdict == VCO_READY && is_by_name(job, image) && compare_size(job, image) < 0
	               ? VCO_OTHER
	               : verdict;
}

/* Whoever reads the record later shall know how little an image was taken for. Once. */
static void note_how(struct publish_job *job, const json_t *image)
{
	struct vco *v = job->own;
	bool by_name = is_by_name(job, image);
	bool no_boot_type = !json_string_value(json_object_get(image, "boot_type"));

	if (v->noted || (!by_name && !no_boot_type))
		return;
	v->noted = true;
	if (by_name)
		log_note(job->log,
		         "%s: image %s has no tag of gpuimg: it is taken for this one by its %s",
		         job->where->location, job->ref, job->verified);
	if (no_boot_type)
		log_note(
			job->log,
			"%s: the platform does not tell the boot type of image %s: see that it is %s",
			job->where->location, job->ref, job->boot_type);
}

/* What it is called goes into messages; as a setting only what is whole and needs no escapes. */
static void take_status(struct vco *v, const char *status)
{
	free(v->status);
	v->status = status ? str_printable(status, STATUS_SHOWN) : NULL;
	v->can_be_set =
		status && *status && str_equal(status, v->status) && !strpbrk(status, "\"\\");
}

/* Of several images of one name the best counts. */
static void take_verdict(struct publish_job *job, const json_t *image, json_int_t id,
                         enum vco_verdict *ret)
{
	struct vco *v = job->own;
	enum vco_verdict verdict = judge(job, image);

	if (verdict <= *ret)
		return;
	*ret = verdict;
	vco_take_id(job, id);
	take_status(v, json_string_value(json_object_get(image, "status")));
	free(STEAL(job->verified));
	if (verdict != VCO_READY)
		return;
	job->verified = str_copy(!is_by_name(job, image)        ? "server-md5"
	                         : compare_size(job, image) > 0 ? "name and size"
	                                                        : "name");
	note_how(job, image);
}

/* The list tells no boot type, so each image of this name is asked for. */
static int look_at(struct publish_job *job, const json_t *item, enum vco_verdict *ret,
                   struct error *err)
{
	const struct vco *v = job->own;
	const json_t *id = json_object_get(item, "image_id");
	json_t *image;

	if (!str_equal(json_string_value(json_object_get(item, "name")), v->name))
		return 0;
	if (!json_is_integer(id))
		return error_set(err, "the platform lists '%s' without an id", v->name);
	if (get_image(job, json_integer_value(id), &image, err) < 0)
		return -1;
	if (image)
		take_verdict(job, image, json_integer_value(id), ret);
	json_decref(image);
	return 0;
}

int vco_look(struct publish_job *job, enum vco_verdict *ret, struct error *err)
{
	const struct vco *v = job->own;
	const struct vco_call call = {.method = "GET", .path = "", .idempotent = true};
	json_t *reply = NULL;
	const json_t *list, *item;
	size_t i;
	int result = 0;

	*ret = VCO_ABSENT;
	if (vco_json(job, &call, &reply, err) < 0)
		return -1;
	list = json_object_get(reply, "result");
	if (!json_is_array(list)) /* not: there are none, and all is sent again */
		result = error_set(err, "'%s' gave no list of images", v->images);
	json_array_foreach(list, i, item)
	{
		if (result == 0 && *ret != VCO_READY)
			result = look_at(job, item, ret, err);
	}
	json_decref(reply);
	return result;
}

/* Nothing changes a boot type later, and nothing of others is deleted, --replace or not. */
static int is_other(const struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;

	error_set(err,
	          "image '%s', named '%s', has another boot type than %s or other content, "
	          "which cannot be changed",
	          job->ref, v->name, job->boot_type);
	error_hint(err, "publish it under another name or version");
	return error_code(err, EXIT_INPUT);
}

/* It is there: a second one of its name would be in the way once somebody enables this one. */
static int is_disabled(const struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;

	error_set(err, "image %s, named '%s', is there and disabled", job->ref, v->name);
	error_hint(err, "have it enabled there, or delete it, and run again: nothing that was sent "
	                "is sent twice");
	return error_code(err, EXIT_INPUT);
}

static int vco_probe(struct publish_job *job, enum publish_found *ret, struct error *err)
{
	struct vco *v = job->own;
	enum vco_verdict verdict;

	if (vco_look(job, &verdict, err) < 0)
		return -1;
	v->seen = verdict != VCO_ABSENT;
	switch (verdict) {
	case VCO_OTHER:
		return is_other(job, err);
	case VCO_DISABLED:
		return is_disabled(job, err);
	case VCO_UNKNOWN:
	case VCO_WORKING:
		*ret = FOUND_BUSY;
		return 0;
	case VCO_READY:
		*ret = FOUND_SAME;
		return 0;
	case VCO_ABSENT:
		break;
	}
	*ret = publish_was_begun(job) ? FOUND_PARTIAL : FOUND_ABSENT;
	return 0;
}

/* On failure the platform removes the record. Of what was sent nothing is of use then, but where
 * the image was made of somebody else's parts, ours are still there. */
static int dropped(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;

	if (!vco_is_finished(job)) {
		error_set(err, "image %s, which another run made, is gone again: its import failed",
		          job->ref ? job->ref : v->name);
		error_hint(err, "run again to have another one made");
		return error_code(err, EXIT_PUBLISH);
	}
	publish_forget(job);
	error_set(err, "the platform took the image%s%s and dropped it again: its import failed",
	          job->ref ? " " : "", job->ref ? job->ref : "");
	error_hint(err, "%s",
	           v->by_url ? "see that the platform can reach 'source_url' (HEAD and GET), and "
	                       "that this very image lies there"
	                     : "run again; if it stays so, ask who runs this location");
	return error_code(err, EXIT_PUBLISH);
}

static int not_as_sent(struct publish_job *job, struct error *err)
{
	error_set(err, "image %s does not have the boot type %s or the content that it was given",
	          job->ref, job->boot_type);
	return error_code(err, EXIT_PROOF);
}

static const char *status_of(const struct publish_job *job)
{
	const struct vco *v = job->own;

	return v->status ? v->status : "(none)";
}

static int not_ready(const struct publish_job *job, enum vco_verdict verdict, struct error *err)
{
	const struct vco *v = job->own;

	if (!job->ref)
		error_set(err, "the image does not show in the platform's list yet");
	else
		error_set(err, "image %s is not ready yet: its status is '%s'%s", job->ref,
		          status_of(job),
		          verdict == VCO_UNKNOWN ? ", which gpuimg does not know" : "");
	if (verdict == VCO_UNKNOWN && v->can_be_set)
		error_hint(err,
		           "if VMs can be made of it, say 'ready_status: \"%s\"' in the targets "
		           "file; else run again to wait for it: nothing is sent twice",
		           v->status);
	error_hint(err, "run again to wait for it; nothing is sent twice");
	return error_code(err, EXIT_PUBLISH);
}

/* Of another verdict than that it is ready. */
static int refuse(struct publish_job *job, enum vco_verdict verdict, struct error *err)
{
	switch (verdict) {
	case VCO_OTHER: /* where we made none, somebody was faster while we sent */
		return vco_is_finished(job) ? not_as_sent(job, err) : is_other(job, err);
	case VCO_DISABLED:
		return is_disabled(job, err);
	case VCO_ABSENT:
		return dropped(job, err);
	default:
		return not_ready(job, verdict, err);
	}
}

struct waiting {
	int64_t began_ms, since_ms; /* since_ms: it has this status */
	char *status;               /* that was told last */
};

/* Every status once, and one that may never end as a warning: a wait of hours is not silent. */
static void tell_status(struct publish_job *job, struct waiting *w, enum vco_verdict verdict)
{
	CLEANUP_FREE char *phase = NULL;

	if (verdict == VCO_ABSENT || str_equal(w->status, status_of(job)))
		return;
	free(w->status);
	w->status = str_copy(status_of(job));
	w->since_ms = clock_ms();
	phase = str_format("waits for the server, status '%s'", w->status);
	publish_phase(job, phase);
	if (verdict == VCO_UNKNOWN)
		log_warn(job->log,
		         "%s: image %s has the status '%s', which gpuimg does not know: waits for "
		         "another one",
		         job->where->location, job->ref, w->status);
}

/* One that we know to pass is waited for; one that may be what a ready image is called here is not
 * for hours: running again waits on. */
static bool is_over(const struct publish_job *job, const struct waiting *w,
                    enum vco_verdict verdict)
{
	int64_t limit =
		(int64_t)publish_number(job->where, "ready_timeout", READY_TIMEOUT_S) * 1000;
	int64_t now = clock_ms();

	return now - w->began_ms > limit ||
	       (verdict == VCO_UNKNOWN && now - w->since_ms > limit / UNKNOWN_PART);
}

/* 1: it is ready; 0: look again later. */
static int judge_wait(struct publish_job *job, struct waiting *w, struct error *err)
{
	const struct vco *v = job->own;
	enum vco_verdict verdict;

	if (vco_look(job, &verdict, err) < 0)
		return -1;
	if (verdict == VCO_READY)
		return 1;
	if (verdict == VCO_OTHER || verdict == VCO_DISABLED ||
	    (verdict == VCO_ABSENT && (v->seen || clock_ms() - w->began_ms > APPEAR_MS)))
		return refuse(job, verdict, err);
	tell_status(job, w, verdict);
	return is_over(job, w, verdict) ? not_ready(job, verdict, err) : 0;
}

static int vco_wait(struct publish_job *job, struct error *err)
{
	struct waiting w = {.began_ms = clock_ms()};
	unsigned pause = POLL_FIRST_MS;
	int result;

	while ((result = judge_wait(job, &w, err)) == 0 && http_pause_ms(job->stop, pause))
		pause = pause * 2 < POLL_MAX_MS ? pause * 2 : POLL_MAX_MS;
	free(w.status);
	if (result == 0)
		return not_ready(job, VCO_WORKING, err); /* stopped */
	return result < 0 ? -1 : 0;
}

/* There is no way to read an image back; its MD5 was given, and the platform compares it. */
static int vco_verify(struct publish_job *job, enum publish_verify how, struct error *err)
{
	enum vco_verdict verdict;

	(void)how;
	if (vco_look(job, &verdict, err) < 0)
		return -1;
	return verdict == VCO_READY ? 0 : refuse(job, verdict, err);
}

/* The API lists no uploads and ends none: only our own state knows of one. */
static int vco_leftovers(struct publish_job *job, bool remove, struct strv *ret, struct error *err)
{
	const char *id = publish_recalled(job, "upload_id");

	(void)err;
	if (id)
		strv_addf(ret, "upload %s: %s", id,
		          remove ? "forgotten; the platform drops it by itself"
		                 : "the platform drops it by itself");
	return 0;
}

static const char *const keys[] = {"!url",       "!customer",      "location",        "iam_url",
                                   "os_name",    "#memory",        "#boot_disk_size", "tags",
                                   "source_url", "#ready_timeout", "ready_status",    NULL};
static const char *const secret_keys[] = {"token", NULL};

const struct publish_backend publish_vco = {
	.type = "vco",
	.verify_default = VERIFY_QUICK,
	.digests = DIGEST_MD5,
	.keys = keys,
	.secret_keys = secret_keys,
	.check = vco_check,
	.probe = vco_probe,
	.begin = vco_begin,
	.send = vco_send_parts,
	.commit = vco_finish,
	.wait = vco_wait,
	.verify = vco_verify,
	.leftovers = vco_leftovers,
	.end = vco_end,
};
