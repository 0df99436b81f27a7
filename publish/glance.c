/* SPDX-License-Identifier: Apache-2.0 */
/*
 * glance: OpenStack. An image's id follows from its bytes and boot type, so a second run finds what
 * the first one made, whatever became of it. It is made under an unfinished name; what clusters
 * look for, name, tags and visibility, comes when Glance's own digest of it is right. Cluster API
 * needs a name to be there exactly once: an older image of it is renamed (--replace), never
 * deleted.
 */
#include <string.h>

#include "builder/json-text.h"
#include "publish/glance.h"
#include "publish/secret.h"

#define CHANGE_TRIES 3

/* --- Settings and credentials --- */

/* Of the targets file, over what the cloud's own file says. */
static const struct {
	const char *key;
	enum cloud_field field;
} fields[] = {
	{"auth_url", CLOUD_AUTH_URL},
	{"username", CLOUD_USERNAME},
	{"user_id", CLOUD_USER_ID},
	{"user_domain_name", CLOUD_USER_DOMAIN_NAME},
	{"user_domain_id", CLOUD_USER_DOMAIN_ID},
	{"project_name", CLOUD_PROJECT_NAME},
	{"project_id", CLOUD_PROJECT_ID},
	{"project_domain_name", CLOUD_PROJECT_DOMAIN_NAME},
	{"project_domain_id", CLOUD_PROJECT_DOMAIN_ID},
	{"application_credential_id", CLOUD_APPLICATION_CREDENTIAL_ID},
	{"interface", CLOUD_INTERFACE},
};

static int take_secret(struct publish_job *job, struct cloud *cloud, enum cloud_field field,
                       struct error *err)
{
	CLEANUP_SECRET char *value = NULL;

	if (publish_secret(job, cloud_field_names[field], &value, err) < 0)
		return -1;
	cloud_set(cloud, field, value);
	return 0;
}

static int read_cloud(struct publish_job *job, struct cloud *cloud, struct error *err)
{
	const char *name = publish_setting(job->where, "cloud");

	if ((name || !publish_setting(job->where, "auth_url")) && cloud_read(cloud, name, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
		cloud_set(cloud, fields[i].field, publish_setting(job->where, fields[i].key));
	return take_secret(job, cloud, CLOUD_PASSWORD, err) < 0 ||
	                       take_secret(job, cloud, CLOUD_APPLICATION_CREDENTIAL_SECRET, err) < 0
	               ? -1
	               : 0;
}

static bool is_no(const char *text)
{
	return text && (strcasecmp(text, "false") == 0 || strcasecmp(text, "no") == 0 ||
	                strcasecmp(text, "off") == 0 || strcmp(text, "0") == 0);
}

/* The address may or may not end in "/v2". */
static char *base_of(const char *url)
{
	CLEANUP_FREE char *base = http_trimmed(url);

	return str_format("%s%s", base, str_ends(base, "/v2") ? "" : "/v2");
}

static int find_service(struct publish_job *job, const struct cloud *cloud, struct error *err)
{
	struct glance *g = job->own;
	const char *interface = cloud->values[CLOUD_INTERFACE];
	const struct keystone_wanted wanted = {
		.type = "image",
		.interface = interface ? interface : "public",
		.region = publish_setting(job->where, "region"),
		.location = job->where->location,
		.otherwise = cloud->values[CLOUD_REGION_NAME],
	};
	CLEANUP_FREE char *url = NULL;
	const char *token;

	if (keystone_token(g->keystone, false, &token, err) < 0 ||
	    keystone_endpoint(keystone_catalog(g->keystone), &wanted, &url, &g->region, err) < 0)
		return -1;
	if (!str_starts(url, "http://") && !str_starts(url, "https://")) {
		error_set(err, "the cloud's catalog names '%s' as Glance's address", url);
		return error_code(err, EXIT_HOST);
	}
	g->base = base_of(url);
	return 0;
}

static void set_id(struct publish_job *job, const char *id, unsigned generation)
{
	struct glance *g = job->own;
	char *copy = str_copy(id);

	free(g->id);
	g->id = copy;
	g->generation = generation;
	json_decref(g->seen);
	g->seen = NULL;
}

/* That of the slot, if it is one of these bytes and boot type; else the first. */
static void recall_id(struct publish_job *job)
{
	const json_int_t kept =
		json_integer_value(json_object_get(publish_slot(job), "generation"));
	unsigned generation = kept > 0 && kept < GLANCE_GENERATIONS_MAX ? (unsigned)kept : 0;
	const char *known = publish_recalled(job, "image_id");
	CLEANUP_FREE char *id = glance_id(job->image->sha256, job->boot_type, generation);
	CLEANUP_FREE char *first = glance_id(job->image->sha256, job->boot_type, 0);

	if (str_equal(known, id))
		set_id(job, id, generation);
	else
		set_id(job, first, 0);
}

static int glance_check(struct publish_job *job, struct error *err)
{
	struct glance *g = job->own = mem_alloc(sizeof(*g));

	if (glance_wanted(job->image, job->where, job->boot_type, &g->wanted, err) < 0 ||
	    read_cloud(job, &g->cloud, err) < 0)
		return -1;
	if (!publish_setting(job->where, "ca_file"))
		http_trust(job->http, g->cloud.values[CLOUD_CACERT],
		           is_no(g->cloud.values[CLOUD_VERIFY]));
	if (keystone_new(&g->keystone, &g->cloud, job->http, job->secrets, err) < 0 ||
	    find_service(job, &g->cloud, err) < 0)
		return -1;
	g->name = str_copy(glance_text(g->wanted, "name"));
	recall_id(job);
	return 0;
}

static void glance_end(struct publish_job *job)
{
	struct glance *g = job->own;

	if (!g)
		return;
	keystone_free(g->keystone);
	cloud_free(&g->cloud);
	free(g->base);
	free(g->region);
	free(g->name);
	free(g->id);
	json_decref(g->wanted);
	json_decref(g->seen);
	free(STEAL(job->own));
}

/* --- Looking --- */

static bool is_ours(const struct publish_job *job, const json_t *image)
{
	const struct glance *g = job->own;
	const char *project = keystone_project_id(g->keystone);

	return *glance_text(image, "gpuimg_sha256") &&
	       (!project || str_equal(glance_text(image, "owner"), project));
}

static bool is_unfinished(const json_t *image)
{
	return str_ends(glance_text(image, "name"), GLANCE_UNFINISHED);
}

/* Whether it stores these bytes, or may come to. */
static bool is_usable(const struct publish_job *job, const json_t *image)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	const char *how;

	switch (glance_state(image)) {
	case GLANCE_QUEUED:
	case GLANCE_WORKING:
		return true;
	case GLANCE_ACTIVE:
		return glance_stored(job->image, image, &how, &ignored) == 0;
	case GLANCE_ABSENT:
	case GLANCE_BURNT:
	case GLANCE_OTHER:
		break;
	}
	return false;
}

/* The number behind an id of these bytes, -1: it is none of ours. */
static int generation_of(const struct publish_job *job, const char *id)
{
	for (unsigned i = 0; i < GLANCE_GENERATIONS_MAX; i++) {
		CLEANUP_FREE char *one = glance_id(job->image->sha256, job->boot_type, i);

		if (strcmp(one, id) == 0)
			return (int)i;
	}
	return -1;
}

/* Without a slot: an image of a later generation, found by our own property. */
static int find_by_digest(struct publish_job *job, struct error *err)
{
	struct glance *g = job->own;
	CLEANUP_FREE char *query = str_format("gpuimg_sha256=%s", job->image->sha256);
	json_t *all = NULL, *image;
	size_t i;

	if (glance_list(job, query, &all, err) < 0)
		return -1;
	json_array_foreach(all, i, image)
	{
		int generation = generation_of(job, glance_text(image, "id"));

		if (generation < 0 || !is_ours(job, image) || !is_usable(job, image))
			continue;
		set_id(job, glance_text(image, "id"), (unsigned)generation);
		g->seen = json_incref(image);
		break;
	}
	json_decref(all);
	return 0;
}

/* Others that have the name which this one shall get; as a list. */
static int find_namesakes(struct publish_job *job, json_t **ret, struct error *err)
{
	const struct glance *g = job->own;
	CLEANUP_FREE char *escaped = http_escape(g->name, false);
	CLEANUP_FREE char *query = str_format("name=%s", escaped);
	json_t *all = NULL, *others, *image;
	size_t i;

	if (glance_list(job, query, &all, err) < 0)
		return -1;
	others = json_array();
	json_array_foreach(all, i, image) if (!str_equal(glance_text(image, "id"), g->id) &&
	                                      str_equal(glance_text(image, "name"), g->name))
		json_array_append(others, image);
	json_decref(all);
	*ret = others;
	return 0;
}

static int refuse_namesake(const struct publish_job *job, const json_t *image, struct error *err)
{
	const struct glance *g = job->own;

	error_set(err, "another image is named '%s': %s", g->name, glance_text(image, "id"));
	error_hint(err, "give the image another name or version, or pass --replace: then that one "
	                "is renamed");
	return error_code(err, EXIT_INPUT);
}

/* The name is free, or will be. */
static int check_namesakes(struct publish_job *job, struct error *err)
{
	json_t *others = NULL;
	int result = 0;

	if (find_namesakes(job, &others, err) < 0)
		return -1;
	if (json_array_size(others) && !job->replace)
		result = refuse_namesake(job, json_array_get(others, 0), err);
	json_decref(others);
	return result;
}

static void tell_outcome(struct publish_job *job)
{
	const struct glance *g = job->own;

	if (!g->seen)
		return;
	free(job->id);
	job->id = str_copy(g->id);
	free(job->ref);
	job->ref = str_format("%s/%s", g->region, g->id);
	json_decref(job->extra);
	job->extra = json_pack("{s:o, s:o, s:i}", "region", json_text(g->region), "image_name",
	                       json_text(g->name), "generation", (int)g->generation);
}

static int judge_active(struct publish_job *job, enum publish_found *ret)
{
	const struct glance *g = job->own;
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	const char *how;
	json_t *patch;

	if (glance_stored(job->image, g->seen, &how, &ignored) < 0) {
		/* Damaged on its way, and nobody uses it yet: the next generation takes over. */
		*ret = is_unfinished(g->seen) ? FOUND_ABSENT : FOUND_DIFFERENT;
		return 0;
	}
	patch = glance_patch(g->wanted, g->seen);
	*ret = json_array_size(patch) ? FOUND_PARTIAL : FOUND_SAME;
	json_decref(patch);
	if (*ret == FOUND_SAME) {
		free(job->verified);
		job->verified = str_copy(how);
	}
	return 0;
}

static int judge(struct publish_job *job, enum publish_found *ret, struct error *err)
{
	const struct glance *g = job->own;

	switch (glance_state(g->seen)) {
	case GLANCE_QUEUED:
		*ret = FOUND_PARTIAL;
		return 0;
	case GLANCE_WORKING:
		*ret = FOUND_BUSY;
		return 0;
	case GLANCE_ACTIVE:
		return judge_active(job, ret);
	case GLANCE_ABSENT:
	case GLANCE_BURNT:
		*ret = FOUND_ABSENT;
		return 0;
	case GLANCE_OTHER:
		break;
	}
	error_set(err, "image %s is '%s'", g->id, glance_text(g->seen, "status"));
	error_hint(err, "reactivate or delete it, then run again");
	return error_code(err, EXIT_INPUT);
}

static int glance_probe(struct publish_job *job, enum publish_found *ret, struct error *err)
{
	const struct glance *g = job->own;

	if (glance_look(job, err) < 0 || (!g->seen && find_by_digest(job, err) < 0) ||
	    check_namesakes(job, err) < 0)
		return -1;
	tell_outcome(job);
	return judge(job, ret, err);
}

/* --- Making it --- */

static int remember(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;

	json_object_set_new(publish_slot(job), "image_id", json_string(g->id));
	json_object_set_new(publish_slot(job), "generation", json_integer(g->generation));
	return publish_remember(job, err);
}

static int next_generation(struct publish_job *job, struct error *err)
{
	struct glance *g = job->own;
	CLEANUP_FREE char *id = NULL;

	if (g->generation + 1 >= GLANCE_GENERATIONS_MAX) {
		error_set(err, "this image was published and deleted %d times here",
		          GLANCE_GENERATIONS_MAX);
		return error_code(err, EXIT_INPUT);
	}
	id = glance_id(job->image->sha256, job->boot_type, g->generation + 1);
	set_id(job, id, g->generation + 1);
	return 0;
}

/* Under the next id that was never used. 409 and then 404: it was, and is deleted (or somebody
 * else's). */
static int make(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;

	for (;;) {
		int status = 0;

		if (g->seen && next_generation(job, err) < 0)
			return -1;
		if (remember(job, err) < 0 || glance_create(job, &status, err) < 0)
			return -1;
		if (status != 201 && glance_look(job, err) < 0)
			return -1;
		if (is_usable(job, g->seen))
			return 0;
		if (!g->seen && next_generation(job, err) < 0)
			return -1;
	}
}

static int glance_begin(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;

	if (!is_usable(job, g->seen) && make(job, err) < 0)
		return -1;
	tell_outcome(job);
	return remember(job, err);
}

/* --- The name --- */

/* Until nothing is left to change; others may change it too. */
static int settle_properties(struct publish_job *job, const json_t *wanted, struct error *err)
{
	const struct glance *g = job->own;

	for (int tries = 0; tries < CHANGE_TRIES; tries++) {
		json_t *patch = glance_patch(wanted, g->seen);
		bool done = json_array_size(patch) == 0, changed = false;
		int result = done ? 0 : glance_change(job, g->id, patch, &changed, err);

		json_decref(patch);
		if (done || result < 0)
			return result;
		if (glance_look(job, err) < 0)
			return -1;
		if (!g->seen)
			break;
	}
	error_set(err, "image %s does not keep the properties that it is given", g->id);
	return error_code(err, EXIT_PUBLISH);
}

/* Whoever looks by name finds this one from here on; nobody's image is deleted. */
static int rename_namesake(struct publish_job *job, const json_t *image, struct error *err)
{
	const struct glance *g = job->own;
	const char *id = glance_text(image, "id");
	CLEANUP_FREE char *name = str_format("%s.replaced-%.8s", g->name, id);
	json_t *patch = json_pack("[{s:s, s:s, s:o}]", "op", "replace", "path", "/name", "value",
	                          json_text(name));
	bool done;
	int result = glance_change(job, id, patch, &done, err);

	json_decref(patch);
	if (result < 0)
		return error_prefix(err, "cannot rename the older image %s", id);
	log_note(job->log, "the older image %s is named '%s' now", id, name);
	return 0;
}

static int make_way(struct publish_job *job, struct error *err)
{
	json_t *others = NULL, *image;
	int result = find_namesakes(job, &others, err);
	size_t i;

	json_array_foreach(others, i, image) if (result == 0) result =
		job->replace ? rename_namesake(job, image, err) : refuse_namesake(job, image, err);
	json_decref(others);
	return result;
}

/* Somebody else took the name at the same time: two of a name are worse than none. */
static int step_back(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;
	CLEANUP_FREE char *name = str_format("%s" GLANCE_UNFINISHED, g->name);
	json_t *wanted = json_pack("{s:o}", "name", json_text(name));
	CLEANUP_ERROR struct error second = ERROR_INIT;

	if (settle_properties(job, wanted, &second) < 0)
		log_warn(job->log, "%s, ignoring", second.message);
	json_decref(wanted);
	return error_prefix(err, "the image stays unnamed");
}

static int take_name(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;

	if (make_way(job, err) < 0 || settle_properties(job, g->wanted, err) < 0)
		return -1;
	return make_way(job, err) < 0 ? step_back(job, err) : 0;
}

/* Glance says what it counted when the bytes came; its store may have others now. */
static int read_back(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = str_format("%s/images/%s/file", g->base, g->id);
	const struct http_request request = {.method = "GET", .url = url, .headers = &headers};
	const char *token;

	if (keystone_token(g->keystone, false, &token, err) < 0)
		return -1;
	strv_addf(&headers, "X-Auth-Token: %s", token);
	return publish_read_back(job, &request, err);
}

static int prove(struct publish_job *job, struct error *err)
{
	const struct glance *g = job->own;
	const char *how;

	if (publish_image_check(job->image, err) < 0 ||
	    glance_stored(job->image, g->seen, &how, err) < 0)
		return -1;
	if (job->verify == VERIFY_FULL)
		return read_back(job, err);
	if (job->verify == VERIFY_QUICK)
		job->verified = str_copy(how);
	return 0;
}

/* The proof comes before the name: what is damaged is never found by it. */
static int glance_wait(struct publish_job *job, struct error *err)
{
	if (glance_wait_active(job, err) < 0)
		return -1;
	tell_outcome(job);
	publish_phase(job, "verifies");
	return prove(job, err) < 0 ? -1 : take_name(job, err);
}

/* glance_wait() has proved the bytes; what it wrote since is looked at here. */
static int glance_verify(struct publish_job *job, enum publish_verify how, struct error *err)
{
	const struct glance *g = job->own;
	const char *word;
	json_t *patch;
	size_t left;

	(void)how;
	if (glance_look(job, err) < 0 || glance_stored(job->image, g->seen, &word, err) < 0)
		return -1;
	patch = glance_patch(g->wanted, g->seen);
	left = json_array_size(patch);
	json_decref(patch);
	if (left == 0)
		return 0;
	error_set(err, "image %s has other properties than it was given", g->id);
	return error_code(err, EXIT_PROOF);
}

/* --- Leftovers --- */

/* One of another image may be on its way just now: only this image's are removed. */
static int one_leftover(struct publish_job *job, const json_t *image, bool remove, struct strv *ret,
                        struct error *err)
{
	bool same = str_equal(glance_text(image, "gpuimg_sha256"), job->image->sha256);

	if (remove && same && glance_delete(job, glance_text(image, "id"), err) < 0)
		return -1;
	strv_addf(ret, "%s '%s', %s%s", glance_text(image, "id"), glance_text(image, "name"),
	          glance_text(image, "status"),
	          !remove ? ""
	          : same  ? ": removed"
	                  : ": kept, of another image");
	return 0;
}

static int glance_leftovers(struct publish_job *job, bool remove, struct strv *ret,
                            struct error *err)
{
	CLEANUP_FREE char *own = str_format("status=active&gpuimg_sha256=%s", job->image->sha256);
	const char *const queries[] = {"status=queued", "status=saving", "status=importing", own};
	int result = 0;

	for (size_t q = 0; result == 0 && q < sizeof(queries) / sizeof(queries[0]); q++) {
		json_t *all = NULL, *image;
		size_t i;

		result = glance_list(job, queries[q], &all, err);
		json_array_foreach(all, i, image) if (result == 0 && is_ours(job, image) &&
		                                      is_unfinished(image)) result =
			one_leftover(job, image, remove, ret, err);
		json_decref(all);
	}
	return result;
}

static const char *const keys[] = {"cloud",
                                   "region",
                                   "interface",
                                   "auth_url",
                                   "username",
                                   "user_id",
                                   "user_domain_name",
                                   "user_domain_id",
                                   "project_name",
                                   "project_id",
                                   "project_domain_name",
                                   "project_domain_id",
                                   "application_credential_id",
                                   "visibility",
                                   "?protected",
                                   "#min_ram",
                                   "*properties",
                                   "*tags",
                                   NULL};
static const char *const secret_keys[] = {"password", "application_credential_secret", NULL};

const struct publish_backend publish_glance = {
	.type = "glance",
	.verify_default = VERIFY_QUICK,
	.digests = DIGEST_MD5 | DIGEST_SHA512,
	.keys = keys,
	.secret_keys = secret_keys,
	.check = glance_check,
	.probe = glance_probe,
	.begin = glance_begin,
	.send = glance_send_image,
	.wait = glance_wait,
	.verify = glance_verify,
	.leftovers = glance_leftovers,
	.end = glance_end,
};
