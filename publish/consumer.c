/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each consumer of published images needs, from the record: cluster-api providers take ids,
 * KubeVirt a containerDisk by digest, CDI and Cozystack an HTTP address.
 */
#include <stdio.h>
#include <string.h>

#include "publish/run.h"

#define GIB (1024.0 * 1024 * 1024)

struct consumer {
	const char *name;
	const char *const *types;     /* backends whose results it can use */
	const char *header, *between; /* before the first, and before each further one */
	void (*print)(const json_t *image, const json_t *row);
};

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

/* Of a disk that holds the image: the virtual size counts, not the file's. */
static unsigned long disk_gib(const json_t *image)
{
	double bytes = (double)json_integer_value(json_object_get(image, "virtual_size"));
	unsigned long gib = (unsigned long)(bytes / GIB);

	return (double)gib * GIB < bytes ? gib + 1 : gib;
}

static char *id_text(const json_t *row)
{
	const json_t *id = json_object_get(row, "id");

	return json_is_integer(id) ? str_format("%lld", (long long)json_integer_value(id))
	                           : str_copy(text_of(row, "id"));
}

static void print_capvco(const json_t *image, const json_t *row)
{
	CLEANUP_FREE char *id = id_text(row);

	(void)image;
	printf("# location %s, boot type %s\nVCO_IMAGE_ID=%s\n", text_of(row, "location"),
	       text_of(row, "boot_type"), id);
}

static void print_capo(const json_t *image, const json_t *row)
{
	CLEANUP_FREE char *id = id_text(row);

	(void)image;
	printf("# target %s, location %s\nimage:\n  id: %s\n", text_of(row, "target"),
	       text_of(row, "location"), id);
}

static void print_kubevirt(const json_t *image, const json_t *row)
{
	printf("# target %s\nvolumes:\n  - name: root\n    containerDisk:\n      image: %s\n"
	       "      path: /disk/%s.qcow2\n",
	       text_of(row, "target"), text_of(row, "ref"), text_of(image, "name"));
}

static bool is_registry(const json_t *row)
{
	return strcmp(text_of(row, "type"), "oci") == 0;
}

/* CDI knows a checksum of HTTP sources from 1.65.0 on; a registry's digest is one by itself. */
static void print_cdi(const json_t *image, const json_t *row)
{
	printf("# target %s\napiVersion: cdi.kubevirt.io/v1beta1\nkind: DataVolume\nmetadata:\n"
	       "  name: %s\nspec:\n  source:\n",
	       text_of(row, "target"), text_of(image, "name"));
	if (is_registry(row))
		printf("    registry:\n      url: docker://%s\n", text_of(row, "ref"));
	else
		printf("    http:\n      url: %s\n      # from CDI 1.65.0 on:\n"
		       "      # checksum: sha256:%s\n",
		       text_of(row, "ref"), text_of(image, "sha256"));
	printf("  storage:\n    resources:\n      requests:\n        storage: %luGi\n",
	       disk_gib(image));
}

/* An entry of the values 'images' of Cozystack's default images. */
static void print_cozystack(const json_t *image, const json_t *row)
{
	const json_t *os = json_object_get(image, "os");

	printf("  - name: %s\n    url: %s\n    storage: %luGi\n    architecture: %s\n    os:\n"
	       "      family: linux\n      name: %s\n      version: \"%s\"\n"
	       "    description: \"sha256 %s\"\n",
	       text_of(image, "name"), text_of(row, "ref"), disk_gib(image), text_of(image, "arch"),
	       text_of(os, "distro"), text_of(os, "version"), text_of(image, "sha256"));
}

static const char *const vco[] = {"vco", NULL}, *const glance[] = {"glance", NULL},
			 *const oci[] = {"oci", NULL}, *const web[] = {"s3", "http", NULL},
			 *const both[] = {"oci", "s3", "http", NULL};

static const struct consumer consumers[] = {
	{"capvco", vco, "", "", print_capvco},
	{"capo", glance, "", "---\n", print_capo},
	{"kubevirt", oci, "", "---\n", print_kubevirt},
	{"cdi", both, "", "---\n", print_cdi},
	{"cozystack", web, "images:\n", "", print_cozystack},
};

static const struct consumer *find_consumer(const char *name, struct error *err)
{
	for (size_t i = 0; i < sizeof(consumers) / sizeof(consumers[0]); i++)
		if (strcmp(consumers[i].name, name) == 0)
			return &consumers[i];
	error_set(err, "'%s' is no consumer that we know", name);
	error_code(err, EXIT_USAGE);
	return NULL;
}

static bool takes(const struct consumer *c, const char *type)
{
	for (size_t i = 0; c->types[i]; i++)
		if (strcmp(c->types[i], type) == 0)
			return true;
	return false;
}

static bool is_usable(const struct consumer *c, const json_t *row)
{
	const char *result = text_of(row, "result");

	return (strcmp(result, "published") == 0 || strcmp(result, "unchanged") == 0) &&
	       takes(c, text_of(row, "type"));
}

int publish_consumer_check(const char *name, const struct publish_targets *targets,
                           struct error *err)
{
	const struct consumer *c = find_consumer(name, err);
	CLEANUP_STRV struct strv types = {0};
	CLEANUP_FREE char *list = NULL;

	if (!c)
		return -1;
	for (size_t i = 0; i < targets->count; i++)
		if (takes(c, targets->items[i].type))
			return 0;
	for (size_t i = 0; c->types[i]; i++)
		strv_add(&types, c->types[i]);
	list = strv_join(&types, ", ");
	error_set(err, "no target gives what '%s' could use", name);
	error_hint(err, "it takes targets of type: %s", list);
	return error_code(err, EXIT_USAGE);
}

static size_t print_rows(const struct consumer *c, const json_t *record)
{
	const json_t *image = json_object_get(record, "image");
	const json_t *row;
	size_t index, printed = 0;

	json_array_foreach(json_object_get(record, "results"), index, row)
	{
		if (!is_usable(c, row))
			continue;
		fputs(printed++ ? c->between : c->header, stdout);
		c->print(image, row);
	}
	return printed;
}

int publish_consumer_print(const json_t *record, const char *name, struct error *err)
{
	const struct consumer *c = find_consumer(name, err);

	if (!c)
		return -1;
	if (print_rows(c, record))
		return 0;
	error_set(err, "nothing was published that '%s' could use", name);
	error_hint(err, "docs/publish.md says which types of target each consumer takes");
	return error_code(err, EXIT_USAGE);
}
