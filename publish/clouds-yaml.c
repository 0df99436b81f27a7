/* SPDX-License-Identifier: Apache-2.0 */
/* Of clouds.yaml only what signing in needs; what we would have to misread is refused. */
#include <string.h>
#include <unistd.h>

#include "builder/str.h"
#include "publish/clouds-yaml.h"
#include "publish/secret.h"
#include "publish/yaml-doc.h"

#define FILE_MAX_BYTES (1024UL * 1024)

const char *const cloud_field_names[CLOUD_FIELDS] = {
	[CLOUD_AUTH_TYPE] = "auth_type",
	[CLOUD_AUTH_URL] = "auth_url",
	[CLOUD_USERNAME] = "username",
	[CLOUD_USER_ID] = "user_id",
	[CLOUD_USER_DOMAIN_NAME] = "user_domain_name",
	[CLOUD_USER_DOMAIN_ID] = "user_domain_id",
	[CLOUD_PROJECT_NAME] = "project_name",
	[CLOUD_PROJECT_ID] = "project_id",
	[CLOUD_PROJECT_DOMAIN_NAME] = "project_domain_name",
	[CLOUD_PROJECT_DOMAIN_ID] = "project_domain_id",
	[CLOUD_APPLICATION_CREDENTIAL_ID] = "application_credential_id",
	[CLOUD_APPLICATION_CREDENTIAL_NAME] = "application_credential_name",
	[CLOUD_PASSWORD] = "password",
	[CLOUD_APPLICATION_CREDENTIAL_SECRET] = "application_credential_secret",
	[CLOUD_REGION_NAME] = "region_name",
	[CLOUD_INTERFACE] = "interface",
	[CLOUD_VERIFY] = "verify",
	[CLOUD_CACERT] = "cacert",
};

/* Signing in without them would end with other rights, or not at all. */
static const char *const unknown_to_us[] = {"<<",       "profile",      "cert",     "key",
                                            "passcode", "system_scope", "trust_id", "auth_methods"};

bool cloud_field_secret(enum cloud_field field)
{
	return field == CLOUD_PASSWORD || field == CLOUD_APPLICATION_CREDENTIAL_SECRET;
}

void cloud_set(struct cloud *cloud, enum cloud_field field, const char *value)
{
	if (!value)
		return;
	secret_free(cloud->values[field]);
	cloud->values[field] = str_copy(value);
}

void cloud_free(struct cloud *cloud)
{
	for (int i = 0; i < CLOUD_FIELDS; i++)
		secret_free(cloud->values[i]);
	free(cloud->name);
	*cloud = (struct cloud){0};
}

/* Of the cloud itself or its 'auth': fields may stand in either. */
static int take_fields(struct yaml_doc *doc, const yaml_node_t *map, struct cloud *cloud,
                       struct error *err)
{
	for (size_t i = 0; i < sizeof(unknown_to_us) / sizeof(unknown_to_us[0]); i++)
		if (yaml_doc_member(doc, map, unknown_to_us[i]))
			return yaml_doc_complain(doc, yaml_doc_member(doc, map, unknown_to_us[i]),
			                         err, "'%s' is not known to gpuimg",
			                         unknown_to_us[i]);
	for (int i = 0; i < CLOUD_FIELDS; i++) {
		const yaml_node_t *value = yaml_doc_member(doc, map, cloud_field_names[i]);

		if (value && !yaml_doc_text(value))
			return yaml_doc_complain(doc, value, err, "'%s' must be one text",
			                         cloud_field_names[i]);
		cloud_set(cloud, (enum cloud_field)i, yaml_doc_text(value));
	}
	return 0;
}

static char *names_of(struct yaml_doc *doc, const yaml_node_t *clouds)
{
	CLEANUP_STRV struct strv names = {0};

	for (yaml_node_pair_t *p = clouds->data.mapping.pairs.start;
	     p < clouds->data.mapping.pairs.top; p++) {
		const char *name = yaml_doc_text(yaml_doc_node(doc, p->key));

		strv_add(&names, name ? name : "?");
	}
	return strv_join(&names, ", ");
}

/* The cloud that is meant; its name becomes the cloud's. NULL: this file does not say it. */
static yaml_node_t *find_cloud(struct yaml_doc *doc, const char *name, struct cloud *cloud,
                               struct error *err)
{
	yaml_node_t *clouds = yaml_doc_member(doc, yaml_doc_root(doc), "clouds"), *found;
	CLEANUP_FREE char *all = NULL;
	yaml_node_pair_t *first;

	if (!clouds || clouds->type != YAML_MAPPING_NODE) {
		yaml_doc_complain(doc, clouds, err, "there is no mapping 'clouds'");
		return NULL;
	}
	first = clouds->data.mapping.pairs.start;
	if (!name && clouds->data.mapping.pairs.top - first == 1)
		name = yaml_doc_text(yaml_doc_node(doc, first->key));
	all = names_of(doc, clouds);
	if (!name) {
		yaml_doc_complain(doc, clouds, err, "which cloud is meant? There are: %s", all);
		error_hint(err, "set 'cloud' in the targets file, or OS_CLOUD");
		return NULL;
	}
	found = yaml_doc_member(doc, clouds, name);
	if (!found)
		yaml_doc_complain(doc, clouds, err, "there is no cloud '%s', only: %s", name, all);
	else if (!cloud->name)
		cloud->name = str_copy(name);
	return found;
}

static int take_cloud(struct yaml_doc *doc, const char *name, bool optional, struct cloud *cloud,
                      struct error *err)
{
	CLEANUP_ERROR struct error missing = ERROR_INIT;
	yaml_node_t *found = find_cloud(doc, name ? name : cloud->name, cloud, &missing), *auth;

	if (!found)
		return optional ? 0 : error_take(err, &missing);
	if (found->type != YAML_MAPPING_NODE)
		return yaml_doc_complain(doc, found, err, "a cloud must be a mapping");
	auth = yaml_doc_member(doc, found, "auth");
	if (auth && auth->type != YAML_MAPPING_NODE)
		return yaml_doc_complain(doc, auth, err, "'auth' must be a mapping");
	if (take_fields(doc, found, cloud, err) < 0)
		return -1;
	return auth ? take_fields(doc, auth, cloud, err) : 0;
}

int cloud_parse(struct cloud *cloud, const char *name, bool optional, const char *text,
                const char *path, struct error *err)
{
	struct yaml_doc doc;
	int result;

	if (yaml_doc_load(&doc, text, path, err) < 0)
		return -1;
	result = take_cloud(&doc, name, optional, cloud, err);
	yaml_doc_free(&doc);
	return result;
}

/* One file's part of the cloud, over what is there. */
static int add_file(struct cloud *cloud, const char *name, bool optional, const char *path,
                    struct error *err)
{
	CLEANUP_CLOUD struct cloud part = {.name = cloud->name ? str_copy(cloud->name) : NULL};
	CLEANUP_SECRET char *text = NULL;
	bool is_open;

	if (secret_read_file(path, FILE_MAX_BYTES, &text, &is_open, err) < 0 ||
	    cloud_parse(&part, name, optional, text, path, err) < 0)
		return -1;
	for (int i = 0; i < CLOUD_FIELDS; i++) {
		if (is_open && cloud_field_secret((enum cloud_field)i) && part.values[i])
			return secret_refuse_open(path, err);
		cloud_set(cloud, (enum cloud_field)i, part.values[i]);
	}
	if (!cloud->name)
		cloud->name = STEAL(part.name);
	return 0;
}

static char *if_there(char *path)
{
	if (access(path, F_OK) == 0)
		return path;
	free(path);
	return NULL;
}

/* As .yaml or .yml in the places of OpenStack's own tools; NULL: nowhere. */
static char *search(const char *stem, const char *beside)
{
	const char *home = getenv("HOME"), *slash = beside ? strrchr(beside, '/') : NULL;
	CLEANUP_FREE char *first =
		slash ? mem_copy(beside, (size_t)(slash - beside)) : str_copy(".");
	CLEANUP_FREE char *own = str_format("%s/.config/openstack", home ? home : "/nonexistent");
	const char *const dirs[] = {first, ".", own, "/etc/openstack"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		char *path = if_there(str_format("%s/%s.yaml", dirs[i], stem));

		if (!path)
			path = if_there(str_format("%s/%s.yml", dirs[i], stem));
		if (path)
			return path;
	}
	return NULL;
}

static const char *variable(const char *name)
{
	const char *value = getenv(name);

	return value && *value ? value : NULL;
}

static void take_variables(struct cloud *cloud)
{
	for (int i = 0; i < CLOUD_FIELDS; i++) {
		CLEANUP_FREE char *name = str_format("OS_%s", cloud_field_names[i]);

		for (char *p = name; *p; p++)
			*p = (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
		cloud_set(cloud, (enum cloud_field)i, variable(name));
	}
}

static int no_cloud(const char *name, struct error *err)
{
	error_set(err, "cannot find out how to reach the cloud%s%s%s: there is no clouds.yaml",
	          name ? " '" : "", name ? name : "", name ? "'" : "");
	error_hint(err,
	           "write one to ~/.config/openstack, name it in OS_CLIENT_CONFIG_FILE, or set "
	           "'auth_url' and the rest in the targets file");
	return error_code(err, EXIT_USAGE);
}

int cloud_read(struct cloud *ret, const char *name, struct error *err)
{
	CLEANUP_CLOUD struct cloud cloud = {0};
	const char *config = variable("OS_CLIENT_CONFIG_FILE");
	const char *secure = variable("OS_CLIENT_SECURE_FILE");
	CLEANUP_FREE char *path = config ? str_copy(config) : search("clouds", NULL);
	CLEANUP_FREE char *secure_path = NULL;

	name = name ? name : variable("OS_CLOUD");
	if (!path && !name && variable("OS_AUTH_URL")) {
		take_variables(&cloud);
	} else if (!path) {
		return no_cloud(name, err);
	} else {
		secure_path = secure ? str_copy(secure) : search("secure", path);
		if (add_file(&cloud, name, false, path, err) < 0 ||
		    (secure_path && add_file(&cloud, name, true, secure_path, err) < 0))
			return -1;
	}
	*ret = cloud;
	cloud = (struct cloud){0};
	return 0;
}
