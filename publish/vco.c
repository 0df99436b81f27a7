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
#define APPEAR_MS       60000 /* an image that was taken shows in the list by then */
#define POLL_FIRST_MS   2000
#define POLL_MAX_MS     30000
#define DIGITS          12

static int check_settings(const struct publish_location *w, struct error *err)
{
	static const char *const numbers[] = {"memory", "boot_disk_size", "ready_timeout"};
	const char *url = publish_setting(w, "url"), *iam = publish_setting(w, "iam_url");
	uint64_t number;

	if (!url || !vco_is_safe_url(url) || !publish_setting(w, "customer"))
		error_set(err, "'url' must be the https address of the API, up to '/api/1', and "
		               "'customer' a text");
	else if (json_object_get(w->settings, "iam_url") && (!iam || !vco_is_safe_url(iam)))
		error_set(err, "'iam_url' must be the https address of where tokens come from");
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const json_t *value = json_object_get(w->settings, numbers[i]);

		if (value && (!json_is_string(value) ||
		              str_parse_uint(json_string_value(value), INT32_MAX, &number) < 0 ||
		              number == 0))
			error_set(err, "'%s' must be a number above 0", numbers[i]);
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

/* Of several images of one name the best counts. */
static int rank(enum publish_found found)
{
	return found == FOUND_SAME ? 3 : found == FOUND_BUSY ? 2 : found == FOUND_DIFFERENT ? 1 : 0;
}

static void take_verdict(struct publish_job *job, const json_t *image, json_int_t id,
                         enum publish_found *ret)
{
	enum publish_found found = vco_judge(image, job->boot_type, job->image->sha256);

	if (rank(found) <= rank(*ret))
		return;
	*ret = found;
	vco_take_id(job, id);
	free(STEAL(job->verified));
	/* The platform compares the MD5 that we send. One that others made under our name, without
	 * our tag, has that name for a proof alone. */
	if (found == FOUND_SAME)
		job->verified =
			str_copy(vco_is_tagged(image, job->image->sha256) || vco_is_finished(job)
		                         ? "server-md5"
		                         : "name");
}

/* The list tells no boot type, so each image of this name is asked for. */
static int look_at(struct publish_job *job, const json_t *item, enum publish_found *ret,
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

int vco_look(struct publish_job *job, enum publish_found *ret, struct error *err)
{
	const struct vco *v = job->own;
	const struct vco_call call = {.method = "GET", .path = "", .idempotent = true};
	json_t *reply = NULL;
	const json_t *list, *item;
	size_t i;
	int result = 0;

	*ret = FOUND_ABSENT;
	if (vco_json(job, &call, &reply, err) < 0)
		return -1;
	list = json_object_get(reply, "result");
	if (!json_is_array(list)) /* not: there are none, and all is sent again */
		result = error_set(err, "'%s' gave no list of images", v->images);
	json_array_foreach(list, i, item)
	{
		if (result == 0 && *ret != FOUND_SAME)
			result = look_at(job, item, ret, err);
	}
	json_decref(reply);
	return result;
}

/* Nothing changes a boot type later, and nothing of others is deleted, --replace or not. */
static int vco_probe(struct publish_job *job, enum publish_found *ret, struct error *err)
{
	struct vco *v = job->own;

	if (vco_look(job, ret, err) < 0)
		return -1;
	if (*ret == FOUND_DIFFERENT) {
		error_set(err,
		          "image '%s', named '%s', has another boot type than %s or other content, "
		          "which cannot be changed",
		          job->ref, v->name, job->boot_type);
		error_hint(err, "publish it under another name or version");
		return error_code(err, EXIT_INPUT);
	}
	v->seen = *ret != FOUND_ABSENT;
	if (*ret == FOUND_ABSENT && publish_was_begun(job))
		*ret = FOUND_PARTIAL;
	return 0;
}

/* On failure the platform removes the record: nothing that was sent is of use then. */
static int dropped(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;

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

static int not_ready(const struct publish_job *job, struct error *err)
{
	error_set(err, "image %s is not ready yet", job->ref ? job->ref : "");
	error_hint(err, "run again to wait for it; nothing is sent twice");
	return error_code(err, EXIT_PUBLISH);
}

static int vco_wait(struct publish_job *job, struct error *err)
{
	const struct vco *v = job->own;
	int64_t began = clock_ms();
	int64_t limit =
		(int64_t)publish_number(job->where, "ready_timeout", READY_TIMEOUT_S) * 1000;
	unsigned pause = POLL_FIRST_MS;
	enum publish_found found;

	for (;;) {
		if (vco_look(job, &found, err) < 0)
			return -1;
		if (found == FOUND_SAME)
			return 0;
		if (found == FOUND_DIFFERENT)
			return not_as_sent(job, err);
		if (found == FOUND_ABSENT && (v->seen || clock_ms() - began > APPEAR_MS))
			return dropped(job, err);
		if (clock_ms() - began > limit || !http_pause_ms(job->stop, pause))
			return not_ready(job, err);
		pause = pause * 2 < POLL_MAX_MS ? pause * 2 : POLL_MAX_MS;
	}
}

/* There is no way to read an image back; its MD5 was given, and the platform compares it. */
static int vco_verify(struct publish_job *job, enum publish_verify how, struct error *err)
{
	enum publish_found found;

	(void)how;
	if (vco_look(job, &found, err) < 0)
		return -1;
	return found == FOUND_SAME ? 0 : not_as_sent(job, err);
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

static const char *const keys[] = {
	"!url",           "!customer", "location",   "iam_url",       "os_name", "memory",
	"boot_disk_size", "tags",      "source_url", "ready_timeout", NULL};
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
