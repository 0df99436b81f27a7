/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oci: a KubeVirt containerDisk in an OCI registry. One layer that is a tar around the image, a
 * config, a manifest, an index; the tag comes last. Everything has its digest for a name, and the
 * registry checks that: what cannot be taken back, and is not shown, is the same wherever it comes
 * from.
 */
#include <ctype.h>
#include <string.h>

#include "builder/digest.h"
#include "publish/oci.h"

#define LAYER_WARN_BYTES (10ull * 1000 * 1000 * 1000)
#define TAG_ROUNDS       3
#define ACCEPT                                                                                     \
	"Accept: " OCI_INDEX ", " OCI_MANIFEST                                                     \
	", application/vnd.docker.distribution.manifest.list.v2+json"                              \
	", application/vnd.docker.distribution.manifest.v2+json"

/* --- Settings --- */

static int read_tag(struct publish_job *job, char **ret, struct error *err)
{
	const json_t *value = json_object_get(job->where->settings, "tag");
	CLEANUP_FREE char *tag = NULL;

	if (!value) {
		*ret = oci_clean_tag(job->image->version);
		return 0;
	}
	tag = str_copy(json_is_string(value) ? json_string_value(value) : "");
	if (!oci_is_tag(tag)) {
		error_set(err, "'tag' is no tag: '%s'", tag);
		error_hint(err, "letters, digits, '.', '_' and '-', not '.' or '-' first, at most "
		                "128");
		return error_code(err, EXIT_USAGE);
	}
	*ret = STEAL(tag);
	return 0;
}

static int read_chunk(const struct publish_job *job, uint64_t *ret, struct error *err)
{
	const char *text = publish_setting(job->where, "chunk_bytes");
	const json_t *value = json_object_get(job->where->settings, "chunk_bytes");

	*ret = 0;
	if (!value || (text && str_parse_size(text, ret) == 0))
		return 0;
	error_set(err, "'chunk_bytes' must be a size, like 64M; 0 sends a blob as one body");
	return error_code(err, EXIT_USAGE);
}

static bool is_env_name(const char *name)
{
	if (!isalpha((unsigned char)*name) && *name != '_')
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && *name != '_')
			return false;
	return true;
}

static int add_env(const char *name, const json_t *value, struct strv *ret, struct error *err)
{
	if (!is_env_name(name) ||
	    !(json_is_string(value) || json_is_integer(value) || json_is_boolean(value))) {
		error_set(err, "'env': '%s' is no name of a variable, or its value is no text",
		          name);
		return error_code(err, EXIT_USAGE);
	}
	if (json_is_string(value))
		strv_addf(ret, "%s=%s", name, json_string_value(value));
	else if (json_is_integer(value))
		strv_addf(ret, "%s=%lld", name, (long long)json_integer_value(value));
	else
		strv_addf(ret, "%s=%s", name, json_is_true(value) ? "true" : "false");
	return 0;
}

static int read_env(const struct publish_job *job, struct strv *ret, struct error *err)
{
	json_t *map = json_object_get(job->where->settings, "env"), *value;
	const char *name;

	if (map && !json_is_object(map)) {
		error_set(err, "'env' must be a mapping of names to values");
		return error_code(err, EXIT_USAGE);
	}
	json_object_foreach(map, name, value)
	{
		if (add_env(name, value, ret, err) < 0)
			return -1;
	}
	strv_sort(ret);
	return 0;
}

/* In plain text only on this host, or where the targets file says so. */
static char *origin_of(const struct publish_job *job, const char *host)
{
	bool plain = publish_flag(job->where, "plain_http", oci_is_loopback(host));

	return str_format("%s://%s", plain ? "http" : "https", host);
}

static int oci_check(struct publish_job *job, struct error *err)
{
	struct oci *o = job->own = mem_alloc(sizeof(*o));
	const char *repository = publish_setting(job->where, "repository");
	CLEANUP_STRV struct strv env = {0};

	if (oci_place_parse(&o->place, repository ? repository : "", err) < 0 ||
	    read_tag(job, &o->tag, err) < 0 || read_chunk(job, &o->chunk_bytes, err) < 0 ||
	    read_env(job, &env, err) < 0 || oci_login_find(job, &o->place, &o->login, err) < 0 ||
	    oci_documents_make(&o->docs, job->image, job->boot_type, &env, err) < 0)
		return -1;
	o->origin = origin_of(job, o->place.api);
	if (o->docs.layer_bytes > LAYER_WARN_BYTES) {
		CLEANUP_FREE char *size = str_size(o->docs.layer_bytes);

		log_warn(job->log,
		         "%s/%s: the layer has %s, and some registries (GHCR, GitLab) take no more "
		         "than 10 GB",
		         job->where->target, job->where->location, size);
	}
	return 0;
}

static void oci_end(struct publish_job *job)
{
	struct oci *o = job->own;

	if (!o)
		return;
	oci_place_free(&o->place);
	oci_login_free(&o->login);
	oci_challenge_free(&o->challenge);
	oci_documents_free(&o->docs);
	free(o->origin);
	free(o->tag);
	free(o->token);
	free(STEAL(job->own));
}

/* --- What is there --- */

static int ask_manifest(struct publish_job *job, const char *method, const char *reference,
                        struct http_reply *ret, struct error *err)
{
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = oci_url(job->own, "manifests/", reference);
	const struct http_request request = {.method = method,
	                                     .url = url,
	                                     .headers = &headers,
	                                     .idempotent = true,
	                                     .follow = true};

	strv_add(&headers, ACCEPT);
	if (oci_send(job, &request, ret, NULL, err) < 0)
		return -1;
	return ret->status == 200 || ret->status == 404 ? 0
	                                                : http_error(job->http, &request, ret, err);
}

/* Digest of what a tag or digest names; *ret NULL: nothing. */
static int manifest_digest(struct publish_job *job, const char *reference, char **ret,
                           struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply head = {0};
	CLEANUP_HTTP_REPLY struct http_reply get = {0};
	CLEANUP_FREE char *hex = NULL;
	const char *digest;

	*ret = NULL;
	if (ask_manifest(job, "HEAD", reference, &head, err) < 0)
		return -1;
	if (head.status == 404)
		return 0;
	digest = http_header(&head, "docker-content-digest");
	if (digest) {
		*ret = str_copy(digest);
		return 0;
	}
	if (ask_manifest(job, "GET", reference, &get, err) < 0)
		return -1;
	hex = digest_memory(get.body ? get.body : "", get.size);
	*ret = get.status == 200 ? str_format("sha256:%s", hex) : NULL;
	return 0;
}

/* Whether all that the index names is there, as far as a registry tells without sending it. */
static int is_whole(struct publish_job *job, bool *ret, struct error *err)
{
	const struct oci *o = job->own;
	CLEANUP_FREE char *manifest = NULL;
	bool layer, config;

	if (manifest_digest(job, o->docs.manifest_digest, &manifest, err) < 0 ||
	    oci_has_blob(job, o->docs.config_digest, strlen(o->docs.config), &config, err) < 0 ||
	    oci_has_blob(job, o->docs.layer_digest, o->docs.layer_bytes, &layer, err) < 0)
		return -1;
	*ret = layer && config && str_equal(manifest, o->docs.manifest_digest);
	return 0;
}

static void tell_outcome(struct publish_job *job)
{
	const struct oci *o = job->own;

	free(job->ref);
	free(job->id);
	job->ref = str_format("%s/%s@%s", o->place.host, o->place.path, o->docs.index_digest);
	job->id = str_copy(o->docs.index_digest);
	json_decref(job->extra);
	job->extra = json_pack("{s:s, s:s, s:s}", "tag", o->tag, "manifest",
	                       o->docs.manifest_digest, "layer", o->docs.layer_digest);
}

static int oci_probe(struct publish_job *job, enum publish_found *ret, struct error *err)
{
	const struct oci *o = job->own;
	CLEANUP_FREE char *digest = NULL;
	bool whole = false;

	if (manifest_digest(job, o->tag, &digest, err) < 0)
		return -1;
	if (digest && !str_equal(digest, o->docs.index_digest)) {
		*ret = FOUND_DIFFERENT;
		job->ref =
			str_format("%s/%s:%s is %s", o->place.host, o->place.path, o->tag, digest);
		return 0;
	}
	if (digest) {
		if (is_whole(job, &whole, err) < 0)
			return -1;
		*ret = whole ? FOUND_SAME : FOUND_PARTIAL;
		if (!whole)
			return 0;
		tell_outcome(job);
		free(job->verified);
		job->verified = str_copy("registry-digest");
		return 0;
	}
	if (oci_has_blob(job, o->docs.layer_digest, o->docs.layer_bytes, &whole, err) < 0)
		return -1;
	*ret = whole || publish_recalled(job, "upload") ? FOUND_PARTIAL : FOUND_ABSENT;
	return 0;
}

/* --- What is sent --- */

static int oci_send_layer(struct publish_job *job, struct error *err)
{
	const struct publish_image *i = job->image;
	const struct oci *o = job->own;
	const struct oci_blob layer = {
		.digest = o->docs.layer_digest,
		.body = {.head = i->tar_head,
	                 .head_size = i->tar_head_size,
	                 .fd = i->fd,
	                 .fd_size = i->size_bytes,
	                 .tail = i->tar_tail,
	                 .tail_size = i->tar_tail_size},
		.large = true,
	};

	return oci_push(job, &layer, err);
}

static int check_stored(const struct http_reply *reply, const char *want, struct error *err)
{
	const char *digest = http_header(reply, "docker-content-digest");

	if (!digest || strcmp(digest, want) == 0)
		return 0;
	error_set(err, "what was stored is not what was sent: the registry calls it %s, not %s",
	          digest, want);
	return error_code(err, EXIT_PROOF);
}

/* 1: whether it happened is not known, or it may later; the error says why. */
static int put_manifest(struct publish_job *job, const char *reference, const char *type,
                        const char *text, const char *digest, bool idempotent, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv headers = {0};
	CLEANUP_FREE char *url = oci_url(job->own, "manifests/", reference);
	const struct http_body body = {.head = text, .head_size = strlen(text), .fd = -1};
	const struct http_request request = {.method = "PUT",
	                                     .url = url,
	                                     .headers = &headers,
	                                     .body = &body,
	                                     .idempotent = idempotent};

	strv_addf(&headers, "Content-Type: %s", type);
	if (oci_send(job, &request, &reply, NULL, err) < 0)
		return error_exit_code(err) == EXIT_PUBLISH ? 1 : -1;
	if (reply.status == 201 || reply.status == 200 || reply.status == 202)
		return check_stored(&reply, digest, err);
	http_error(job->http, &request, &reply, err);
	return error_exit_code(err) == EXIT_PUBLISH ? 1 : -1;
}

static int refuse_tag(const struct oci *o, const char *digest, struct error *err)
{
	error_set(err, "another publisher has just set '%s/%s:%s' to %s", o->place.host,
	          o->place.path, o->tag, digest);
	error_hint(err, "give the image another version, or pass --replace");
	return error_code(err, EXIT_INPUT);
}

/* The protocol cannot set a tag only if it is as it was: it is looked at just before, and by
 * verify() after. */
static int set_tag(struct publish_job *job, struct error *err)
{
	const struct oci *o = job->own;

	for (unsigned round = 1;; round++) {
		CLEANUP_FREE char *digest = NULL;
		int result;

		if (manifest_digest(job, o->tag, &digest, err) < 0)
			return -1;
		if (str_equal(digest, o->docs.index_digest))
			return 0;
		if (digest && !job->replace)
			return refuse_tag(o, digest, err);
		result = put_manifest(job, o->tag, OCI_INDEX, o->docs.index, o->docs.index_digest,
		                      false, err);
		if (result <= 0)
			return result;
		if (round == TAG_ROUNDS || !oci_pause(job, round))
			return -1;
		error_free(err);
	}
}

static int oci_commit(struct publish_job *job, struct error *err)
{
	const struct oci *o = job->own;
	const struct oci_blob config = {
		.digest = o->docs.config_digest,
		.body = {.head = o->docs.config, .head_size = strlen(o->docs.config), .fd = -1},
	};

	if (oci_push(job, &config, err) < 0 ||
	    put_manifest(job, o->docs.manifest_digest, OCI_MANIFEST, o->docs.manifest,
	                 o->docs.manifest_digest, true, err) != 0 ||
	    set_tag(job, err) < 0)
		return -1;
	tell_outcome(job);
	return 0;
}

/* --- Whether it is so --- */

static int read_back(struct publish_job *job, struct error *err)
{
	const struct oci *o = job->own;
	CLEANUP_FREE char *url = oci_url(o, "blobs/", o->docs.layer_digest);
	CLEANUP_FREE char *hex = NULL;
	const struct http_request request = {.method = "GET", .url = url, .follow = true};

	if (publish_digest_back(job, &request, oci_send, o->docs.layer_bytes, &hex, err) < 0)
		return -1;
	if (str_equal(hex, job->image->layer_sha256))
		return 0;
	error_set(err, "what was stored is not what was sent: read back, the layer's SHA-256 is %s",
	          hex);
	error_hint(err, "delete the blob there, run again, and tell who runs this registry");
	return error_code(err, EXIT_PROOF);
}

static int oci_verify(struct publish_job *job, enum publish_verify how, struct error *err)
{
	const struct oci *o = job->own;
	CLEANUP_FREE char *digest = NULL;
	bool whole;

	if (manifest_digest(job, o->tag, &digest, err) < 0 || is_whole(job, &whole, err) < 0)
		return -1;
	if (digest && !str_equal(digest, o->docs.index_digest))
		return refuse_tag(o, digest, err);
	if (!digest || !whole) {
		error_set(err, "the registry '%s' took everything, and has not got it all",
		          o->place.host);
		return error_code(err, EXIT_PROOF);
	}
	if (how == VERIFY_FULL && read_back(job, err) < 0)
		return -1;
	free(job->verified);
	job->verified = str_copy(how == VERIFY_FULL ? "read back" : "registry-digest");
	return 0;
}

/* The protocol lists no uploads: only the one that we remember is known. */
static int oci_leftovers(struct publish_job *job, bool remove, struct strv *ret, struct error *err)
{
	const struct oci *o = job->own;
	const char *upload = publish_recalled(job, "upload");
	CLEANUP_FREE char *shown = upload ? http_shown(upload) : NULL;

	(void)err;
	if (!upload || !http_same_origin(o->origin, upload))
		return 0;
	if (remove)
		oci_cancel(job, upload);
	strv_addf(ret, "%s%s", shown, remove ? ": removed" : "");
	return 0;
}

static const char *const keys[] = {"!repository", "tag",  "user", "?plain_http",
                                   "chunk_bytes", "*env", NULL};
static const char *const secret_keys[] = {"password", "token", NULL};

const struct publish_backend publish_oci = {
	.type = "oci",
	.verify_default = VERIFY_QUICK,
	.digests = DIGEST_LAYER,
	.keys = keys,
	.secret_keys = secret_keys,
	.check = oci_check,
	.probe = oci_probe,
	.send = oci_send_layer,
	.commit = oci_commit,
	.verify = oci_verify,
	.leftovers = oci_leftovers,
	.end = oci_end,
};
