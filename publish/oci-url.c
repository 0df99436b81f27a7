/* SPDX-License-Identifier: Apache-2.0 */
/* Names and addresses of registries. What a registry answers is looked at before we go there. */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "publish/oci.h"

#define LOWER      "abcdefghijklmnopqrstuvwxyz0123456789"
#define LETTERS    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
#define PATH_BYTES 255 /* of a repository, as registries have it */
#define TAG_MAX    128

/* Components of lower-case letters and digits, with one separator between two of them. */
static bool is_path(const char *path)
{
	const char *p = path;

	if (strlen(path) > PATH_BYTES)
		return false;
	for (;;) {
		size_t word = strspn(p, LOWER), dashes, between;

		if (!word)
			return false;
		p += word;
		if (!*p)
			return true;
		dashes = strspn(p, "-");
		between = dashes                                ? dashes
		          : strncmp(p, "__", 2) == 0            ? 2
		          : *p == '.' || *p == '_' || *p == '/' ? 1
		                                                : 0;
		if (!between)
			return false;
		p += between;
	}
}

/* Without a dot or a port the first word would be a directory at Docker's hub. */
static bool is_host(const char *host)
{
	size_t length = strlen(host);
	const char *port = strrchr(host, ':');

	if (*host == '[')
		return strspn(host, "[]:." LETTERS) == length && strchr(host, ']');
	if (port && (!port[1] || strspn(port + 1, "0123456789") != strlen(port + 1)))
		return false;
	return strspn(host, LETTERS ".-:") == length && isalnum((unsigned char)*host) &&
	       (port || strchr(host, '.') || strcmp(host, "localhost") == 0);
}

int oci_place_parse(struct oci_place *ret, const char *repository, struct error *err)
{
	const char *slash = strchr(repository, '/');
	CLEANUP_FREE char *host =
		slash ? mem_copy(repository, (size_t)(slash - repository)) : str_copy("");

	if (!slash || !is_host(host) || !is_path(slash + 1)) {
		error_set(err, "'%s' is no repository", repository);
		error_hint(err, "write it as HOST/PATH or HOST:PORT/PATH in lower case, without "
		                "\"https://\", tag and digest: registry.example/team/gpu-node");
		return error_code(err, EXIT_USAGE);
	}
	ret->path = str_copy(slash + 1);
	ret->api = str_copy(strcmp(host, "docker.io") == 0 ? "registry-1.docker.io" : host);
	ret->host = STEAL(host);
	return 0;
}

void oci_place_free(struct oci_place *p)
{
	free(p->host);
	free(p->api);
	free(p->path);
	*p = (struct oci_place){0};
}

bool oci_is_loopback(const char *host)
{
	size_t name = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");

	if (strncmp(host, "127.", 4) == 0)
		return strspn(host, "0123456789.") == name;
	return (name == 9 && strncasecmp(host, "localhost", 9) == 0) ||
	       (name == 5 && strncmp(host, "[::1]", 5) == 0);
}

/* Of URLs that others give: no user in it, nothing that would end a line or a header. */
static bool is_plain_url(const char *url)
{
	CLEANUP_FREE char *host = http_authority(url);

	for (const char *p = url; *p; p++)
		if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
			return false;
	return host && *host && !strchr(host, '@');
}

static size_t name_length(const char *host)
{
	return *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
}

bool oci_realm_is_safe(const char *origin, const char *realm)
{
	CLEANUP_FREE char *ours = http_authority(origin);
	CLEANUP_FREE char *theirs = http_authority(realm);

	if (!ours || !theirs || !is_plain_url(realm))
		return false;
	if (str_starts(realm, "https://"))
		return true;
	if (str_starts(origin, "https://"))
		return false;
	return (oci_is_loopback(ours) && oci_is_loopback(theirs)) ||
	       (name_length(ours) == name_length(theirs) &&
	        strncasecmp(ours, theirs, name_length(ours)) == 0);
}

char *oci_join_location(const char *url, const char *location)
{
	const char *host = strstr(url, "://");
	CLEANUP_FREE char *base = str_copy(url);
	CLEANUP_FREE char *joined = NULL;
	size_t origin;

	if (!host || !location || !*location)
		return NULL;
	origin = (size_t)(host - url) + 3 + strcspn(host + 3, "/?#");
	base[origin + strcspn(base + origin, "?#")] = '\0';
	if (str_starts(location, "//"))
		joined = str_format("%.*s:%s", (int)(host - url), url, location);
	else if (*location == '/')
		joined = str_format("%.*s%s", (int)origin, url, location);
	else if (*location == '?')
		joined = str_format("%s%s", base, location);
	else if (location[strcspn(location, ":/?#")] == ':')
		joined = str_copy(location);
	else {
		char *last = strrchr(base + origin, '/');

		if (last)
			*last = '\0';
		joined = str_format("%s/%s", base, location);
	}
	joined[strcspn(joined, "#")] = '\0';
	if (!is_plain_url(joined) ||
	    (str_starts(url, "https://") && !str_starts(joined, "https://")))
		return NULL;
	return STEAL(joined);
}

char *oci_add_query(const char *url, const char *name, const char *value)
{
	CLEANUP_FREE char *escaped = http_escape(value, false);
	const char *mark = strchr(url, '?');
	const char *between = !mark ? "?" : mark[1] && !str_ends(url, "&") ? "&" : "";

	return str_format("%s%s%s=%s", url, between, name, escaped);
}

bool oci_is_tag(const char *text)
{
	size_t length = strlen(text);

	return length > 0 && length <= TAG_MAX && *text != '.' && *text != '-' &&
	       strspn(text, LETTERS "._-") == length;
}

char *oci_clean_tag(const char *version)
{
	char *tag = mem_copy(version, strnlen(version, TAG_MAX));

	for (char *p = tag; *p; p++)
		if (!strchr(LETTERS "._-", *p) || (p == tag && (*p == '.' || *p == '-')))
			*p = '_';
	return tag;
}
