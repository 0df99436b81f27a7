/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <strings.h>
#include <time.h>

#include "builder/clock.h"
#include "builder/json-text.h"
#include "publish/keystone.h"
#include "publish/secret.h"

#define DEFAULT_DOMAIN "default" /* id: what OpenStack's own tools assume */

struct keystone {
	const struct cloud *cloud;
	struct http *http;
	struct strv *secrets;
	char *url; /* …/v3/auth/tokens */
	char *token;
	int64_t until_ms; /* by clock_ms(): the server's clock may be another */
	json_t *catalog;
	char *project_id;
};

static int usage(struct error *err, const char *message)
{
	error_set(err, "%s", message);
	return error_code(err, EXIT_USAGE);
}

static bool is_application_credential(const struct cloud *c)
{
	const char *type = c->values[CLOUD_AUTH_TYPE];

	return type ? str_equal(type, "v3applicationcredential")
	            : c->values[CLOUD_APPLICATION_CREDENTIAL_SECRET] != NULL;
}

/* {"id": …} or {"name": …, "domain": {…}}; *ret NULL: nothing names it. */
static json_t *named(const char *id, const char *name, const char *domain_id,
                     const char *domain_name)
{
	if (id)
		return json_pack("{s:o}", "id", json_text(id));
	if (!name)
		return NULL;
	if (domain_id || !domain_name)
		return json_pack("{s:o, s:{s:o}}", "name", json_text(name), "domain", "id",
		                 json_text(domain_id ? domain_id : DEFAULT_DOMAIN));
	return json_pack("{s:o, s:{s:o}}", "name", json_text(name), "domain", "name",
	                 json_text(domain_name));
}

static json_t *user_of(const struct cloud *c)
{
	return named(c->values[CLOUD_USER_ID], c->values[CLOUD_USERNAME],
	             c->values[CLOUD_USER_DOMAIN_ID], c->values[CLOUD_USER_DOMAIN_NAME]);
}

/* The credential fixes project and roles: a scope beside it would be refused. */
static int credential_body(const struct cloud *c, json_t **ret, struct error *err)
{
	const char *id = c->values[CLOUD_APPLICATION_CREDENTIAL_ID];
	const char *name = c->values[CLOUD_APPLICATION_CREDENTIAL_NAME];
	const char *secret = c->values[CLOUD_APPLICATION_CREDENTIAL_SECRET];
	json_t *user = id ? NULL : user_of(c), *credential;

	if (!secret || (!id && (!name || !user))) {
		json_decref(user);
		return usage(err, "an application credential needs 'application_credential_id' and "
		                  "'application_credential_secret'");
	}
	credential = json_pack("{s:o, s:o}", id ? "id" : "name", json_text(id ? id : name),
	                       "secret", json_text(secret));
	if (user)
		json_object_set_new(credential, "user", user);
	*ret = json_pack("{s:{s:{s:[s], s:o}}}", "auth", "identity", "methods",
	                 "application_credential", "application_credential", credential);
	return 0;
}

static int password_body(const struct cloud *c, json_t **ret, struct error *err)
{
	const char *password = c->values[CLOUD_PASSWORD];
	json_t *user = user_of(c);
	json_t *project =
		named(c->values[CLOUD_PROJECT_ID], c->values[CLOUD_PROJECT_NAME],
	              c->values[CLOUD_PROJECT_DOMAIN_ID], c->values[CLOUD_PROJECT_DOMAIN_NAME]);

	if (!user || !password || !project) {
		json_decref(user);
		json_decref(project);
		usage(err, !user       ? "no 'username' says who signs in to the cloud"
		           : !password ? "no 'password' to sign in to the cloud with"
		                       : "no 'project_name' says where the image shall belong to");
		return error_hint(
			err,
			"complete clouds.yaml or secure.yaml, or write 'password: {env: NAME}' "
			"or '{file: PATH}' in the targets file");
	}
	json_object_set_new(user, "password", json_text(password));
	*ret = json_pack("{s:{s:{s:[s], s:{s:o}}, s:{s:o}}}", "auth", "identity", "methods",
	                 "password", "password", "user", user, "scope", "project", project);
	return 0;
}

int keystone_body(const struct cloud *c, json_t **ret, struct error *err)
{
	const char *type = c->values[CLOUD_AUTH_TYPE];

	if (is_application_credential(c))
		return credential_body(c, ret, err);
	if (!type || str_equal(type, "password") || str_equal(type, "v3password"))
		return password_body(c, ret, err);
	error_set(err, "auth_type '%s' is not known to gpuimg", type);
	error_hint(err, "password and v3applicationcredential are");
	return error_code(err, EXIT_USAGE);
}

/* With or without "/v3" and a '/' at its end. */
static char *tokens_url(const char *auth_url)
{
	CLEANUP_FREE char *base = http_trimmed(auth_url);

	return str_format("%s%s/auth/tokens", base, str_ends(base, "/v3") ? "" : "/v3");
}

int keystone_new(struct keystone **ret, const struct cloud *cloud, struct http *http,
                 struct strv *secrets, struct error *err)
{
	const char *auth_url = cloud->values[CLOUD_AUTH_URL];
	struct keystone *k;

	if (!auth_url || (!str_starts(auth_url, "http://") && !str_starts(auth_url, "https://")) ||
	    strpbrk(auth_url, "?#@"))
		return usage(err, "'auth_url' must be Keystone's http or https address, without "
		                  "query and user");
	for (int i = 0; i < CLOUD_FIELDS; i++)
		if (cloud_field_secret((enum cloud_field)i) && cloud->values[i] &&
		    *cloud->values[i])
			strv_add(secrets, cloud->values[i]);
	k = mem_alloc(sizeof(*k));
	k->cloud = cloud;
	k->http = http;
	k->secrets = secrets;
	k->url = tokens_url(auth_url);
	*ret = k;
	return 0;
}

static void drop_token(struct keystone *k)
{
	secret_free(STEAL(k->token));
}

void keystone_free(struct keystone *k)
{
	if (!k)
		return;
	drop_token(k);
	json_decref(k->catalog);
	free(k->url);
	free(k->project_id);
	free(k);
}

static bool read_time(const json_t *token, const char *key, time_t *ret)
{
	const char *text = json_string_value(json_object_get(token, key));
	struct tm tm = {0};

	if (!text || !strptime(text, "%Y-%m-%dT%H:%M:%S", &tm))
		return false;
	*ret = timegm(&tm);
	return true;
}

static int take_token(struct keystone *k, const struct http_reply *reply, int64_t asked_ms,
                      struct error *err)
{
	const char *text = http_header(reply, "x-subject-token");
	json_t *body = json_loadb(reply->body ? reply->body : "", reply->size, 0, NULL);
	const json_t *token = json_object_get(body, "token");
	const char *project =
		json_string_value(json_object_get(json_object_get(token, "project"), "id"));
	time_t issued = 0, expires = 0;

	if (!text || !*text || !read_time(token, "issued_at", &issued) ||
	    !read_time(token, "expires_at", &expires)) {
		json_decref(body);
		error_set(err, "'%s' answers with no token that we understand", k->url);
		return error_code(err, EXIT_HOST);
	}
	drop_token(k);
	k->token = str_copy(text);
	strv_add(k->secrets, text);
	k->until_ms = asked_ms + (int64_t)(expires - issued) * 1000;
	json_decref(k->catalog);
	k->catalog = json_incref(json_object_get(token, "catalog"));
	free(k->project_id);
	k->project_id = project ? str_copy(project) : NULL;
	json_decref(body);
	return 0;
}

static int post(struct keystone *k, const char *text, struct error *err)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_STRV struct strv headers = {0};
	const struct http_body body = {.head = text, .head_size = strlen(text), .fd = -1};
	/* Twice makes two tokens, which both run out. */
	const struct http_request request = {.method = "POST",
	                                     .url = k->url,
	                                     .headers = &headers,
	                                     .body = &body,
	                                     .idempotent = true};
	int64_t asked_ms = clock_ms();

	strv_add(&headers, "Content-Type: application/json");
	strv_add(&headers, "Accept: application/json");
	if (http_send(k->http, &request, &reply, NULL, err) < 0)
		return -1;
	if (reply.status == 200 || reply.status == 201)
		return take_token(k, &reply, asked_ms, err);
	http_error(k->http, &request, &reply, err);
	return error_prefix(err, "cannot sign in to the cloud");
}

static int login(struct keystone *k, struct error *err)
{
	json_t *body = NULL;
	CLEANUP_SECRET char *text = NULL;

	if (keystone_body(k->cloud, &body, err) < 0)
		return -1;
	text = json_dumps(body, JSON_COMPACT);
	json_decref(body);
	if (!text)
		return usage(err, "a value of the cloud's credentials is not UTF-8");
	return post(k, text, err);
}

int keystone_token(struct keystone *k, bool fresh, const char **ret, struct error *err)
{
	bool is_old = !k->token || clock_ms() + KEYSTONE_MARGIN_S * 1000LL > k->until_ms;

	if ((fresh || is_old) && login(k, err) < 0)
		return -1;
	*ret = k->token;
	return 0;
}

const char *keystone_project_id(const struct keystone *k)
{
	return k->project_id;
}

const json_t *keystone_catalog(const struct keystone *k)
{
	return k->catalog;
}

static const char *region_of(const json_t *endpoint)
{
	const char *region = json_string_value(json_object_get(endpoint, "region_id"));

	if (!region)
		region = json_string_value(json_object_get(endpoint, "region"));
	return region ? region : "";
}

/* The service's endpoints of this interface; elements are borrowed from the catalog. */
static json_t *endpoints_of(const json_t *catalog, const struct keystone_wanted *w)
{
	const json_t *service;
	json_t *endpoint, *all = json_array();
	size_t s, e;

	json_array_foreach(catalog, s, service)
	{
		if (!str_equal(json_string_value(json_object_get(service, "type")), w->type))
			continue;
		json_array_foreach(json_object_get(service, "endpoints"), e, endpoint)
		{
			const char *interface =
				json_string_value(json_object_get(endpoint, "interface"));

			if (str_equal(interface, w->interface) &&
			    json_string_value(json_object_get(endpoint, "url")))
				json_array_append(all, endpoint);
		}
	}
	return all;
}

static const json_t *in_region(const json_t *endpoints, const char *region)
{
	const json_t *endpoint;
	size_t i;

	json_array_foreach(endpoints, i,
	                   endpoint) if (str_equal(region_of(endpoint), region)) return endpoint;
	return NULL;
}

static const json_t *choose(const json_t *endpoints, const struct keystone_wanted *w)
{
	const json_t *found;

	if (w->region)
		return in_region(endpoints, w->region);
	found = w->location ? in_region(endpoints, w->location) : NULL;
	if (!found && w->otherwise)
		return in_region(endpoints, w->otherwise);
	if (!found && json_array_size(endpoints) == 1)
		found = json_array_get(endpoints, 0);
	return found;
}

static int no_endpoint(const json_t *endpoints, const struct keystone_wanted *w, struct error *err)
{
	const char *region = w->region ? w->region : w->otherwise;
	CLEANUP_STRV struct strv regions = {0};
	CLEANUP_FREE char *all = NULL;
	const json_t *endpoint;
	size_t i;

	json_array_foreach(endpoints, i, endpoint)
	{
		strv_add(&regions, region_of(endpoint));
	}
	all = strv_join(&regions, ", ");
	if (regions.count == 0)
		error_set(err, "the cloud offers no service of type '%s' with interface '%s'",
		          w->type, w->interface);
	else if (region)
		error_set(err, "the cloud has no service of type '%s' in region '%s', only in: %s",
		          w->type, region, all);
	else
		error_set(err, "the cloud has a service of type '%s' in several regions: %s",
		          w->type, all);
	error_hint(err, "set 'region' or 'interface' in the targets file");
	return error_code(err, EXIT_USAGE);
}

int keystone_endpoint(const json_t *catalog, const struct keystone_wanted *w, char **ret_url,
                      char **ret_region, struct error *err)
{
	json_t *endpoints = endpoints_of(catalog, w);
	const json_t *found = choose(endpoints, w);
	int result = 0;

	if (found) {
		*ret_url = str_copy(json_string_value(json_object_get(found, "url")));
		*ret_region = str_copy(region_of(found));
	} else {
		result = no_endpoint(endpoints, w, err);
	}
	json_decref(endpoints);
	return result;
}
