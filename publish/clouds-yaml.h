/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How to reach a cloud: the part of OpenStack's clouds.yaml that we need, secure.yaml over it, or
 * the OS_* variables where there is no file. Values are secrets as far as cloud_field_secret[] says
 * so; cloud_free() wipes them all.
 */
#ifndef GPUIMG_CLOUDS_YAML_H
#define GPUIMG_CLOUDS_YAML_H

#include <stdbool.h>

#include "builder/cleanup.h"
#include "builder/error.h"

enum cloud_field {
	CLOUD_AUTH_TYPE,
	CLOUD_AUTH_URL,
	CLOUD_USERNAME,
	CLOUD_USER_ID,
	CLOUD_USER_DOMAIN_NAME,
	CLOUD_USER_DOMAIN_ID,
	CLOUD_PROJECT_NAME,
	CLOUD_PROJECT_ID,
	CLOUD_PROJECT_DOMAIN_NAME,
	CLOUD_PROJECT_DOMAIN_ID,
	CLOUD_APPLICATION_CREDENTIAL_ID,
	CLOUD_APPLICATION_CREDENTIAL_NAME,
	CLOUD_PASSWORD,
	CLOUD_APPLICATION_CREDENTIAL_SECRET,
	CLOUD_REGION_NAME,
	CLOUD_INTERFACE,
	CLOUD_VERIFY,
	CLOUD_CACERT,
	CLOUD_FIELDS,
};

struct cloud {
	char *name;                 /* in clouds.yaml; NULL: from elsewhere */
	char *values[CLOUD_FIELDS]; /* NULL: not said */
};

extern const char *const cloud_field_names[CLOUD_FIELDS]; /* as in clouds.yaml */
bool cloud_field_secret(enum cloud_field field);

/*
 * The cloud of this name (NULL: $OS_CLOUD, else the only one) from the first of
 * $OS_CLIENT_CONFIG_FILE, ./clouds.yaml, ~/.config/openstack/, /etc/openstack/; over it the same
 * cloud of $OS_CLIENT_SECURE_FILE, or of secure.yaml beside that file or in the same places.
 * Without a name and a file: the OS_* variables. EXIT_USAGE: nothing there says which cloud is
 * meant, no such cloud, what we do not know, a file with secrets that everybody can read.
 */
int cloud_read(struct cloud *ret, const char *name, struct error *err);
/*
 * One file's text over what is there: of the cloud of this name (NULL: the cloud's own, else the
 * only one). optional: it may be missing, as in secure.yaml. path is for messages.
 */
int cloud_parse(struct cloud *cloud, const char *name, bool optional, const char *text,
                const char *path, struct error *err);
/* Over what is there; NULL changes nothing. */
void cloud_set(struct cloud *cloud, enum cloud_field field, const char *value);
void cloud_free(struct cloud *cloud);
#define CLEANUP_CLOUD CLEANUP(cloud_free)

#endif
