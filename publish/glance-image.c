/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/evp.h>
#include <string.h>

#include "builder/json-text.h"
#include "publish/glance.h"

#define GIB                (1024ull * 1024 * 1024)
#define PROPERTY_MAX_BYTES 255

/* Ours, fixed for ever: another one would make other ids of the same images. */
static const unsigned char our_namespace[16] = {0x3a, 0xd0, 0xbd, 0xa3, 0x45, 0x79, 0x47, 0x59,
                                                0x81, 0x76, 0xfb, 0xf1, 0x7d, 0x0b, 0x85, 0xdd};

/* What Glance says itself, or we do: not for 'properties' of a target. */
static const char *const reserved[] = {"id",
                                       "name",
                                       "status",
                                       "visibility",
                                       "protected",
                                       "os_hidden",
                                       "tags",
                                       "size",
                                       "virtual_size",
                                       "checksum",
                                       "os_hash_algo",
                                       "os_hash_value",
                                       "owner",
                                       "created_at",
                                       "updated_at",
                                       "disk_format",
                                       "min_disk",
                                       "min_ram",
                                       "container_format",
                                       "file",
                                       "schema",
                                       "self",
                                       "locations",
                                       "direct_url",
                                       "stores",
                                       "os_glance_*",
                                       "gpuimg_*",
                                       "hw_firmware_type",
                                       "architecture",
                                       "os_secure_boot"};

char *uuid5(const unsigned char name_space[16], const char *name)
{
	size_t length = strlen(name);
	CLEANUP_FREE unsigned char *text = mem_alloc(16 + length + 1);
	unsigned char d[EVP_MAX_MD_SIZE];

	memcpy(text, name_space, 16);
	memcpy(text + 16, name, length + 1);
	EVP_Digest(text, 16 + length, d, NULL, EVP_sha1(), NULL);
	d[6] = (unsigned char)((d[6] & 0x0f) | 0x50);
	d[8] = (unsigned char)((d[8] & 0x3f) | 0x80);
	return str_format("%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
	                  d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7], d[8], d[9], d[10], d[11],
	                  d[12], d[13], d[14], d[15]);
}

char *glance_id(const char *sha256, const char *boot_type, unsigned generation)
{
	CLEANUP_FREE char *name = str_format("%s %s %u", sha256, boot_type, generation);

	return uuid5(our_namespace, name);
}

const char *glance_text(const json_t *image, const char *key)
{
	const char *text = json_string_value(json_object_get(image, key));

	return text ? text : "";
}

enum glance_state glance_state(const json_t *seen)
{
	static const struct {
		const char *status;
		enum glance_state state;
	} known[] = {
		{"queued", GLANCE_QUEUED},     {"saving", GLANCE_WORKING},
		{"uploading", GLANCE_WORKING}, {"importing", GLANCE_WORKING},
		{"active", GLANCE_ACTIVE},     {"killed", GLANCE_BURNT},
		{"deleted", GLANCE_BURNT},     {"pending_delete", GLANCE_BURNT},
		{"deactivated", GLANCE_OTHER},
	};

	if (!seen)
		return GLANCE_ABSENT;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (str_equal(glance_text(seen, "status"), known[i].status))
			return known[i].state;
	return GLANCE_OTHER;
}

static bool is_reserved(const char *key)
{
	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++) {
		size_t length = strlen(reserved[i]);

		if (reserved[i][length - 1] == '*' ? strncmp(key, reserved[i], length - 1) == 0
		                                   : strcmp(key, reserved[i]) == 0)
			return true;
	}
	return false;
}

/* Glance takes texts only. */
static char *property_text(const json_t *value)
{
	if (json_is_integer(value))
		return str_format("%lld", (long long)json_integer_value(value));
	if (json_is_boolean(value))
		return str_copy(json_is_true(value) ? "true" : "false");
	return str_copy(json_string_value(value) ? json_string_value(value) : "");
}

static int add_properties(json_t *wanted, json_t *properties, struct error *err)
{
	const char *key;
	json_t *value;

	if (properties && !json_is_object(properties)) {
		error_set(err, "'properties' must be a mapping");
		return error_code(err, EXIT_USAGE);
	}
	json_object_foreach(properties, key, value)
	{
		CLEANUP_FREE char *text = property_text(value);

		if (is_reserved(key) || !*key || strlen(key) > PROPERTY_MAX_BYTES) {
			error_set(err, "'properties' cannot set '%s'", key);
			error_hint(err, "gpuimg or Glance says it; how it boots is 'boot_type'");
			return error_code(err, EXIT_USAGE);
		}
		json_object_set_new(wanted, key, json_text(text));
	}
	return 0;
}

static int add_visibility(json_t *wanted, const struct publish_location *where, struct error *err)
{
	static const char *const known[] = {"private", "shared", "community", "public"};
	const char *visibility = publish_setting(where, "visibility");

	for (size_t i = 0; visibility && i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(visibility, known[i]) == 0)
			return json_object_set_new(wanted, "visibility", json_string(visibility));
	if (!visibility)
		return 0;
	error_set(err, "visibility '%s' is none of private, shared, community, public", visibility);
	return error_code(err, EXIT_USAGE);
}

static int add_tags(json_t *wanted, json_t *tags, struct error *err)
{
	json_t *tag, *list = json_array();
	size_t i;

	if (tags && !json_is_array(tags)) {
		json_decref(list);
		error_set(err, "'tags' must be a list");
		return error_code(err, EXIT_USAGE);
	}
	json_array_foreach(tags, i, tag)
	{
		CLEANUP_FREE char *text = property_text(tag);

		json_array_append_new(list, json_text(text));
	}
	return json_object_set_new(wanted, "tags", list);
}

static int add_numbers(json_t *wanted, const struct publish_image *image,
                       const struct publish_location *where, struct error *err)
{
	uint64_t ram = publish_number(where, "min_ram", UINT64_MAX);
	uint64_t gib = image->virtual_bytes / GIB + (image->virtual_bytes % GIB != 0);

	json_object_set_new(wanted, "min_disk", json_integer((json_int_t)gib));
	if (!json_object_get(where->settings, "min_ram"))
		return 0;
	if (ram > INT32_MAX) {
		error_set(err, "'min_ram' must be a whole number of MiB");
		return error_code(err, EXIT_USAGE);
	}
	return json_object_set_new(wanted, "min_ram", json_integer((json_int_t)ram));
}

static int add_protected(json_t *wanted, const json_t *protected, struct error *err)
{
	if (!protected)
		return 0;
	if (!json_is_boolean(protected)) {
		error_set(err, "'protected' must be true or false");
		return error_code(err, EXIT_USAGE);
	}
	return json_object_set_new(wanted, "protected", json_boolean(json_is_true(protected)));
}

/* In a way that properties of the target may change, unless they are reserved. */
static json_t *make_facts(const struct publish_image *i, const char *boot_type)
{
	bool is_x86 = str_equal(i->arch, "amd64");
	json_t *w = json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s}", "disk_format", "qcow2",
	                      "container_format", "bare", "os_type", "linux", "os_distro",
	                      json_text(i->os_distro), "gpuimg_sha256", i->sha256,
	                      "gpuimg_boot_type", boot_type, "hw_firmware_type",
	                      str_equal(boot_type, "bios") ? "bios" : "uefi");

	json_object_set_new(w, "architecture",
	                    json_text(is_x86                        ? "x86_64"
	                              : str_equal(i->arch, "arm64") ? "aarch64"
	                                                            : i->arch));
	json_object_set_new(w, "gpuimg_version", json_text(i->version));
	if (i->os_version && *i->os_version)
		json_object_set_new(w, "os_version", json_text(i->os_version));
	if (is_x86) /* PCIe passthrough wants it */
		json_object_set_new(w, "hw_machine_type", json_string("q35"));
	if (str_equal(boot_type, "uefi-secure-boot"))
		json_object_set_new(w, "os_secure_boot", json_string("required"));
	return w;
}

int glance_wanted(const struct publish_image *image, const struct publish_location *where,
                  const char *boot_type, json_t **ret, struct error *err)
{
	json_t *wanted = make_facts(image, boot_type);
	CLEANUP_FREE char *name = str_format("%s-%s", image->name, image->version);

	json_object_set_new(wanted, "name", json_text(name));
	json_object_set_new(wanted, "os_hidden", json_false());
	if (add_properties(wanted, json_object_get(where->settings, "properties"), err) < 0 ||
	    add_numbers(wanted, image, where, err) < 0 ||
	    add_protected(wanted, json_object_get(where->settings, "protected"), err) < 0 ||
	    add_visibility(wanted, where, err) < 0 ||
	    add_tags(wanted, json_object_get(where->settings, "tags"), err) < 0) {
		json_decref(wanted);
		return -1;
	}
	*ret = wanted;
	return 0;
}

json_t *glance_begin_with(const json_t *wanted, const char *id)
{
	json_t *begin = json_copy((json_t *)wanted);
	CLEANUP_FREE char *name = str_format("%s" GLANCE_UNFINISHED, glance_text(wanted, "name"));

	json_object_set_new(begin, "id", json_string(id));
	json_object_set_new(begin, "name", json_text(name));
	json_object_del(begin, "tags");
	json_object_del(begin, "protected");
	json_object_del(begin, "os_hidden");
	if (json_object_get(begin, "visibility"))
		json_object_set_new(begin, "visibility", json_string("private"));
	return begin;
}

/* RFC 6901 */
static char *pointer_of(const char *key)
{
	char *pointer = mem_alloc(2 * strlen(key) + 2), *to = pointer;

	*to++ = '/';
	for (; *key; key++) {
		if (*key == '~' || *key == '/') {
			*to++ = '~';
			*to++ = *key == '~' ? '0' : '1';
		} else {
			*to++ = *key;
		}
	}
	return pointer;
}

static bool has_item(const json_t *list, const json_t *wanted)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item) if (json_equal(item, wanted)) return true;
	return false;
}

static json_t *merge_tags(const json_t *wanted, const json_t *seen)
{
	json_t *all = json_array(), *tag;
	size_t i;

	json_array_extend(all, (json_t *)seen);
	json_array_foreach(wanted, i, tag) if (!has_item(all, tag)) json_array_append(all, tag);
	return all;
}

json_t *glance_patch(const json_t *wanted, const json_t *seen)
{
	json_t *patch = json_array(), *value;
	const char *key;

	json_object_foreach((json_t *)wanted, key, value)
	{
		json_t *there = json_object_get(seen, key);
		bool is_tags = strcmp(key, "tags") == 0;
		json_t *next = is_tags ? merge_tags(value, there) : json_incref(value);
		CLEANUP_FREE char *pointer = pointer_of(key);
		bool same = is_tags ? json_array_size(next) == json_array_size(there)
		                    : json_equal(next, there);

		/* An old Glance knows no hiding. */
		if (same || (!there && strcmp(key, "os_hidden") == 0))
			json_decref(next);
		else
			json_array_append_new(patch, json_pack("{s:s, s:s, s:o}", "op",
			                                       there ? "replace" : "add", "path",
			                                       pointer, "value", next));
	}
	return patch;
}

static int other_bytes(const json_t *seen, const char *what, struct error *err)
{
	error_set(err, "what Glance stores as %s is not what was sent: other %s",
	          glance_text(seen, "id"), what);
	error_hint(err, "delete it there, run again, and tell who runs this cloud");
	return error_code(err, EXIT_PROOF);
}

int glance_stored(const struct publish_image *image, const json_t *seen, const char **ret_how,
                  struct error *err)
{
	const json_t *size = json_object_get(seen, "size");
	const json_t *virtual = json_object_get(seen, "virtual_size");
	const char *algorithm = glance_text(seen, "os_hash_algo");
	const char *hash = glance_text(seen, "os_hash_value");
	const char *md5 = glance_text(seen, "checksum");
	bool is_512 = strcmp(algorithm, "sha512") == 0, is_256 = strcmp(algorithm, "sha256") == 0;

	if ((uint64_t)json_integer_value(size) != image->size_bytes)
		return other_bytes(seen, "size", err);
	if (json_is_integer(virtual) &&
	    (uint64_t)json_integer_value(virtual) != image->virtual_bytes)
		return other_bytes(seen, "virtual size", err);
	if (*hash && (is_512 || is_256)) {
		*ret_how = is_512 ? "server-sha512" : "server-sha256";
		return str_equal(hash, is_512 ? image->sha512 : image->sha256)
		               ? 0
		               : other_bytes(seen, algorithm, err);
	}
	*ret_how = *md5 ? "server-md5" : "size";
	return !*md5 || str_equal(md5, image->md5) ? 0 : other_bytes(seen, "MD5", err);
}
