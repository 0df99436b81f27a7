/* SPDX-License-Identifier: Apache-2.0 */
/* What replies of VCO mean, in the forms that are known or likely. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "publish/vco.h"

#define TOKEN_MAX_BYTES 65536u
#define OTHER_LINUX     "Linux - other"

static bool is_header_text(const char *text)
{
	for (; *text; text++)
		if (*text <= ' ' || *text > '~')
			return false;
	return true;
}

char *vco_read_token(const char *body)
{
	static const char *const names[] = {"jwt", "token", "access_token"};
	json_t *json = json_loads(body, JSON_DECODE_ANY, NULL);
	CLEANUP_FREE char *copy = str_copy(body);
	const char *text = json_string_value(json);
	char *token;

	for (size_t i = 0; !text && i < sizeof(names) / sizeof(names[0]); i++)
		text = json_string_value(json_object_get(json, names[i]));
	if (!text && !json && strchr(copy, '.'))
		text = str_trim(copy);
	token = text && *text && strlen(text) < TOKEN_MAX_BYTES && is_header_text(text)
	                ? str_copy(text)
	                : NULL;
	json_decref(json);
	return token;
}

/*
 * In the body as JSON, or in the header: the API's description does not say. Where both are there
 * the body counts, since a web framework may put an ETag of its own on any reply.
 */
char *vco_read_etag(const struct http_reply *reply)
{
	json_t *json = reply->body ? json_loads(reply->body, JSON_DECODE_ANY, NULL) : NULL;
	const char *text = json_string_value(json);
	char *etag;

	if (!text)
		text = json_string_value(json_object_get(json, "etag"));
	if (!text)
		text = json_string_value(json_object_get(json, "ETag"));
	if (!text)
		text = http_header(reply, "etag");
	CLEANUP_STRV struct strv words = strv_split(text ? text : "", "\" ");
	etag = words.count == 1 ? str_copy(words.items[0]) : NULL;
	json_decref(json);
	return etag;
}

static bool is_one_of(const char *const *list, const char *word)
{
	for (; word && *list; list++)
		if (strcasecmp(word, *list) == 0)
			return true;
	return false;
}

/* "sha256=…" somewhere in its tags, which are one text or a list of texts. */
static const char *tagged_digest(const json_t *image)
{
	const json_t *tags = json_object_get(image, "tags");
	const char *found = NULL;

	if (json_is_string(tags))
		found = strstr(json_string_value(tags), "sha256=");
	for (size_t i = 0; !found && i < json_array_size(tags); i++) {
		const char *tag = json_string_value(json_array_get(tags, i));

		found = tag ? strstr(tag, "sha256=") : NULL;
	}
	return found ? found + strlen("sha256=") : NULL;
}

bool vco_is_tagged(const json_t *image, const char *sha256)
{
	const char *digest = tagged_digest(image);

	return digest && strncasecmp(digest, sha256, strlen(sha256)) == 0;
}

/* Words of older servers, and what others may be called; see docs/publish.md. */
static enum vco_verdict judge_status(const char *status, const char *ready_status)
{
	static const char *const ready[] = {"CREATED", "AVAILABLE", "ACTIVE", "ENABLED", NULL};
	static const char *const working[] = {"CREATING",   "PENDING",    "QUEUED",
	                                      "UPLOADING",  "IMPORTING",  "DOWNLOADING",
	                                      "CONVERTING", "PROCESSING", NULL};
	const char *const own[] = {ready_status, NULL};

	if (is_one_of(ready, status) || is_one_of(own, status))
		return VCO_READY;
	if (is_one_of(working, status))
		return VCO_WORKING;
	return status && strcasecmp(status, "DISABLED") == 0 ? VCO_DISABLED : VCO_UNKNOWN;
}

enum vco_verdict vco_judge(const json_t *image, const char *boot_type, const char *sha256,
                           const char *ready_status)
{
	static const char *const dead[] = {"DESTROYED", "DELETED", "ERROR", "FAILED", NULL};
	const char *status = json_string_value(json_object_get(image, "status"));
	const char *boot = json_string_value(json_object_get(image, "boot_type"));

	if (is_one_of(dead, status))
		return VCO_ABSENT;
	if ((boot && !str_equal(boot, boot_type)) ||
	    (tagged_digest(image) && !vco_is_tagged(image, sha256)))
		return VCO_OTHER;
	return judge_status(status, ready_status);
}

static bool is_size(uint64_t told, uint64_t bytes)
{
	static const uint64_t units[] = {1, 1024ull * 1024, 1024ull * 1024 * 1024};

	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (told == bytes / units[i] || told == (bytes + units[i] - 1) / units[i])
			return true;
	return false;
}

int vco_compare_size(const json_t *image, uint64_t file_bytes, uint64_t virtual_bytes)
{
	json_int_t told = json_integer_value(json_object_get(image, "size"));

	if (told <= 0) /* also while it is being made */
		return 0;
	return is_size((uint64_t)told, file_bytes) || is_size((uint64_t)told, virtual_bytes) ? 1
	                                                                                     : -1;
}

/* "12" in "Debian 12", and not in "Debian 12.5" or "Debian 112". */
static bool has_version(const char *name, const char *version)
{
	size_t length = strlen(version);

	for (const char *at = name; length && (at = strstr(at, version)); at++)
		if ((at == name || (!isdigit((unsigned char)at[-1]) && at[-1] != '.')) &&
		    !isdigit((unsigned char)at[length]) &&
		    (at[length] != '.' || !isdigit((unsigned char)at[length + 1])))
			return true;
	return false;
}

const char *vco_pick_os(const json_t *reply, const char *distro, const char *version)
{
	const json_t *group, *name;
	size_t i, j;

	json_array_foreach(json_object_get(reply, "result"), i, group)
	{
		if (!str_equal(json_string_value(json_object_get(group, "os_type")), "Linux"))
			continue;
		json_array_foreach(json_object_get(group, "os_names"), j, name)
		{
			const char *text = json_string_value(name);

			if (text && strcasestr(text, distro) && has_version(text, version))
				return text;
		}
	}
	return OTHER_LINUX;
}

char *vco_fill_in(const char *url, const struct publish_image *image)
{
	static const char *const names[] = {"{name}", "{version}", "{sha256}"};
	const char *const values[] = {image->name, image->version, image->sha256};
	char *text = str_copy(url);

	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		CLEANUP_FREE char *value = http_escape(values[k], false);
		char *at;

		while ((at = strstr(text, names[k]))) { /* no value has a '{' in it */
			char *fresh = str_format("%.*s%s%s", (int)(at - text), text, value,
			                         at + strlen(names[k]));

			free(text);
			text = fresh;
		}
	}
	return text;
}
