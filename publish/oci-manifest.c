/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The documents of a containerDisk: config, manifest, and an index around it. KubeVirt starts
 * nothing of it; CDI reads the config's Env for labels and the index's platform to choose. No time
 * stands in them, so that the same image has the same digest on every host.
 */
#include <string.h>

#include "builder/digest.h"
#include "builder/json-text.h"
#include "publish/oci.h"

static char *digest_of(const char *text)
{
	CLEANUP_FREE char *hex = digest_memory(text, strlen(text));

	return str_format("sha256:%s", hex);
}

/* Sorted and compact: its bytes are what is digested. Takes the object. */
static char *write_document(json_t *object)
{
	char *text = object ? json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	json_decref(object);
	return text;
}

static json_t *descriptor(const char *type, const char *digest, uint64_t size)
{
	return json_pack("{s:s, s:s, s:I}", "mediaType", type, "digest", digest, "size",
	                 (json_int_t)size);
}

static json_t *annotations(const struct publish_image *image)
{
	return json_pack("{s:o, s:o}", "org.opencontainers.image.title", json_text(image->name),
	                 "org.opencontainers.image.version", json_text(image->version));
}

static char *make_config(const struct publish_image *image, const char *boot_type,
                         const struct strv *env, const char *layer)
{
	json_t *config = json_pack("{s:{s:o}}", "Labels", "gpuimg.boot-type", json_text(boot_type));

	if (env->count)
		json_object_set_new(config, "Env", json_text_list(env));
	return write_document(json_pack("{s:o, s:s, s:o, s:{s:s, s:[s]}}", "architecture",
	                                json_text(image->arch), "os", "linux", "config", config,
	                                "rootfs", "type", "layers", "diff_ids", layer));
}

static char *make_manifest(const struct publish_image *image, const struct oci_documents *d)
{
	return write_document(json_pack(
		"{s:i, s:s, s:o, s:[o], s:o}", "schemaVersion", 2, "mediaType", OCI_MANIFEST,
		"config", descriptor(OCI_CONFIG, d->config_digest, strlen(d->config)), "layers",
		descriptor(OCI_LAYER, d->layer_digest, d->layer_bytes), "annotations",
		annotations(image)));
}

static char *make_index(const struct publish_image *image, const struct oci_documents *d)
{
	json_t *entry = descriptor(OCI_MANIFEST, d->manifest_digest, strlen(d->manifest));

	json_object_set_new(
		entry, "platform",
		json_pack("{s:o, s:s}", "architecture", json_text(image->arch), "os", "linux"));
	return write_document(json_pack("{s:i, s:s, s:[o], s:o}", "schemaVersion", 2, "mediaType",
	                                OCI_INDEX, "manifests", entry, "annotations",
	                                annotations(image)));
}

int oci_documents_make(struct oci_documents *ret, const struct publish_image *image,
                       const char *boot_type, const struct strv *env, struct error *err)
{
	struct oci_documents *d = ret;

	d->layer_bytes = image->tar_head_size + image->size_bytes + image->tar_tail_size;
	d->layer_digest = str_format("sha256:%s", image->layer_sha256);
	d->config = make_config(image, boot_type, env, d->layer_digest);
	if (!d->config)
		return error_set(err, "cannot write the image's config");
	d->config_digest = digest_of(d->config);
	d->manifest = make_manifest(image, d);
	if (!d->manifest)
		return error_set(err, "cannot write the image's manifest");
	d->manifest_digest = digest_of(d->manifest);
	d->index = make_index(image, d);
	if (!d->index)
		return error_set(err, "cannot write the image's index");
	d->index_digest = digest_of(d->index);
	return 0;
}

void oci_documents_free(struct oci_documents *d)
{
	free(d->config);
	free(d->manifest);
	free(d->index);
	free(d->layer_digest);
	free(d->config_digest);
	free(d->manifest_digest);
	free(d->index_digest);
	*d = (struct oci_documents){0};
}
