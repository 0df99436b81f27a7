/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who we are to a registry: what the targets file names, else what 'docker login', 'podman login'
 * or 'skopeo login' left. Programs that keep passwords for docker (credHelpers, credsStore) are not
 * run: what they would do with our environment and descriptors is not ours to know.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

#include "publish/oci.h"
#include "publish/secret.h"

#define FILE_MAX_BYTES (1024UL * 1024)

void oci_login_free(struct oci_login *l)
{
	char *values[] = {l->user, l->password, l->identity_token, l->bearer};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		secret_free(values[i]);
	*l = (struct oci_login){0};
}

/* docker's hub has three names, and its entry is a URL of a protocol that is long gone. */
static const char *usual_name(const char *host)
{
	return strcmp(host, "index.docker.io") == 0 || strcmp(host, "registry-1.docker.io") == 0
	               ? "docker.io"
	               : host;
}

/* "https://host/v1/" is "host"; podman's "host/path" stays. Owned by the caller. */
static char *entry_name(const char *key)
{
	const char *start = str_starts(key, "https://")  ? key + 8
	                    : str_starts(key, "http://") ? key + 7
	                                                 : key;
	CLEANUP_FREE char *name = str_copy(start);

	while (str_ends(name, "/"))
		name[strlen(name) - 1] = '\0';
	if (str_ends(name, "/v1") || str_ends(name, "/v2"))
		name[strlen(name) - 3] = '\0';
	return str_copy(usual_name(name));
}

static const json_t *find_entry(const json_t *map, const char *wanted)
{
	void *i;

	for (i = json_object_iter((json_t *)map); i; i = json_object_iter_next((json_t *)map, i)) {
		CLEANUP_FREE char *name = entry_name(json_object_iter_key(i));

		if (strcmp(name, wanted) == 0)
			return json_object_iter_value(i);
	}
	return NULL;
}

static char *decode(const char *text)
{
	size_t length = strlen(text);
	unsigned char *plain;
	int size;

	if (!length || length % 4 || length > FILE_MAX_BYTES)
		return NULL;
	plain = mem_alloc(length / 4 * 3 + 1);
	size = EVP_DecodeBlock(plain, (const unsigned char *)text, (int)length);
	if (size < 0) {
		free(plain);
		return NULL;
	}
	return (char *)plain; /* what padding stood for is NUL, like the end */
}

static char *copy_or_null(const json_t *text)
{
	const char *value = json_string_value(text);

	return value && *value ? str_copy(value) : NULL;
}

/* "auth" is base64 of "user:password"; older files have the two apart. */
static int take_entry(const json_t *entry, const char *name, const char *host,
                      struct oci_login *ret, struct error *err)
{
	const char *auth = json_string_value(json_object_get(entry, "auth"));
	CLEANUP_FREE char *both = auth && *auth ? decode(auth) : NULL;
	char *colon = both ? strchr(both, ':') : NULL;

	if (auth && *auth && !colon) {
		error_set(err, "'%s': \"auth\" of '%s' is not base64 of USER:PASSWORD", name, host);
		return error_code(err, EXIT_USAGE);
	}
	ret->identity_token = copy_or_null(json_object_get(entry, "identitytoken"));
	ret->bearer = copy_or_null(json_object_get(entry, "registrytoken"));
	if (colon) {
		*colon = '\0';
		ret->user = str_copy(both);
		ret->password = str_copy(colon + 1);
		explicit_bzero(colon + 1, strlen(colon + 1));
	} else {
		ret->user = copy_or_null(json_object_get(entry, "username"));
		ret->password = copy_or_null(json_object_get(entry, "password"));
	}
	return 0;
}

static bool is_empty(const struct oci_login *l)
{
	return !l->identity_token && !l->bearer && !(l->user && l->password);
}

static int refuse_helper(const char *name, const char *host, const char *helper, struct error *err)
{
	error_set(err,
	          "'%s' leaves the credentials of '%s' to the program docker-credential-%s, and "
	          "gpuimg runs no such program",
	          name, host, helper);
	error_hint(err, "name them in the targets file: 'user', and 'password: {env: NAME}' or "
	                "'password: {file: PATH}'");
	return error_code(err, EXIT_USAGE);
}

static int parse_entries(const json_t *root, const char *name, const struct oci_place *place,
                         struct oci_login *ret, bool *ret_found, struct error *err)
{
	const json_t *auths = json_object_get(root, "auths"), *entry = NULL;
	const char *host = usual_name(place->host);
	CLEANUP_FREE char *key = str_format("%s/%s", host, place->path);
	const char *helper =
		json_string_value(find_entry(json_object_get(root, "credHelpers"), host));

	/* podman's files may have an entry for a part of a registry: the longest one counts */
	while (!(entry = find_entry(auths, key)) && strchr(key, '/'))
		*strrchr(key, '/') = '\0';
	if (entry && take_entry(entry, name, host, ret, err) < 0)
		return -1;
	*ret_found = !is_empty(ret);
	if (*ret_found)
		return 0;
	oci_login_free(ret);
	if (!helper && entry)
		helper = json_string_value(json_object_get(root, "credsStore"));
	return helper ? refuse_helper(name, host, helper, err) : 0;
}

int oci_login_parse(const char *text, const char *name, const struct oci_place *place,
                    struct oci_login *ret, bool *ret_found, struct error *err)
{
	json_error_t why;
	json_t *root = json_loads(text, 0, &why);
	int result;

	*ret_found = false;
	/* jansson's own message quotes what it could not read, which may be a secret */
	if (!json_is_object(root)) {
		error_set(err, "cannot read '%s': %s", name,
		          root ? "not a JSON object" : "not JSON");
		json_decref(root);
		return error_code(err, EXIT_USAGE);
	}
	result = parse_entries(root, name, place, ret, ret_found, err);
	json_decref(root);
	return result;
}

/* Owned by the caller; NULL: no home, no file. *ret_named: somebody asked for this one. */
static char *docker_file(bool *ret_named)
{
	const char *file = getenv("REGISTRY_AUTH_FILE"), *dir = getenv("DOCKER_CONFIG");
	const char *home = getenv("HOME");

	*ret_named = file && *file;
	if (*ret_named)
		return str_copy(file);
	if (dir && *dir)
		return str_format("%s/config.json", dir);
	return home && *home ? str_format("%s/.docker/config.json", home) : NULL;
}

static int from_docker(const struct oci_place *place, struct oci_login *ret, struct error *err)
{
	bool named, open_to_all, found = false;
	CLEANUP_FREE char *path = docker_file(&named);
	CLEANUP_SECRET char *text = NULL;

	if (!path || (!named && access(path, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR)))
		return 0;
	if (secret_read_file(path, FILE_MAX_BYTES, &text, &open_to_all, err) < 0 ||
	    oci_login_parse(text, path, place, ret, &found, err) < 0)
		return -1;
	if (!found || !open_to_all)
		return 0;
	error_set(err, "'%s' holds the credentials of '%s', and everybody on this host can read it",
	          path, place->host);
	error_hint(err, "chmod 600 '%s'", path);
	return error_code(err, EXIT_USAGE);
}

/* They become lines of a header. */
static int check_login(const struct oci_login *l, struct error *err)
{
	const char *values[] = {l->user, l->password, l->identity_token, l->bearer};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		for (const char *p = values[i]; p && *p; p++)
			if ((unsigned char)*p < ' ' || *p == 0x7f) {
				error_set(err, "the registry's credentials hold a control byte");
				return error_code(err, EXIT_USAGE);
			}
	if (l->user && strchr(l->user, ':')) {
		error_set(err, "'user' holds a ':'");
		return error_code(err, EXIT_USAGE);
	}
	return 0;
}

static void hide(struct publish_job *job, const struct oci_login *l)
{
	const char *values[] = {l->password, l->identity_token, l->bearer};

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		if (values[i] && *values[i] && !strv_has(job->secrets, values[i]))
			strv_add(job->secrets, values[i]);
}

int oci_login_find(struct publish_job *job, const struct oci_place *place, struct oci_login *ret,
                   struct error *err)
{
	const char *user = publish_setting(job->where, "user");

	if (publish_secret(job, "password", &ret->password, err) < 0 ||
	    publish_secret(job, "token", &ret->bearer, err) < 0)
		return -1;
	if (!user != !ret->password) {
		error_set(err, "'%s' is there, and '%s' is not", user ? "user" : "password",
		          user ? "password" : "user");
		error_hint(err, "give both, or 'token' alone, or none to take what 'docker login' "
		                "left");
		return error_code(err, EXIT_USAGE);
	}
	ret->user = user ? str_copy(user) : NULL;
	if (!user && !ret->bearer && from_docker(place, ret, err) < 0)
		return -1;
	hide(job, ret);
	return check_login(ret, err);
}
