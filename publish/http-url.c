/* SPDX-License-Identifier: Apache-2.0 */
/* URLs as texts: escaped, shown to people, compared. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "publish/http.h"

char *http_escape(const char *text, bool keep_slash)
{
	static const char plain[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
	char *escaped = mem_alloc(3 * strlen(text) + 1), *to = escaped;

	for (; *text; text++) {
		if (strchr(plain, *text) || (keep_slash && *text == '/'))
			*to++ = *text;
		else
			to += sprintf(to, "%%%02X", (unsigned char)*text);
	}
	return escaped;
}

char *http_trimmed(const char *url)
{
	size_t length = strlen(url);

	while (length && url[length - 1] == '/')
		length--;
	return mem_copy(url, length);
}

char *http_shown(const char *url)
{
	const char *host = strstr(url, "://");
	size_t scheme = host ? (size_t)(host - url) + 3 : 0;
	size_t length = strcspn(url + scheme, "?#");
	CLEANUP_FREE char *rest = mem_copy(url + scheme, length);
	size_t authority = strcspn(rest, "/");
	char *at = memrchr(rest, '@', authority);

	return str_format("%.*s%s", (int)scheme, url, at ? at + 1 : rest);
}

char *http_authority(const char *url)
{
	bool tls = str_starts(url, "https://");
	const char *host = tls ? url + 8 : str_starts(url, "http://") ? url + 7 : NULL;
	const char *usual = tls ? ":443" : ":80";
	char *text;

	if (!host || !strcspn(host, "/?#"))
		return NULL;
	text = mem_copy(host, strcspn(host, "/?#"));
	if (str_ends(text, usual))
		text[strlen(text) - strlen(usual)] = '\0';
	return text;
}

bool http_same_origin(const char *a, const char *b)
{
	CLEANUP_FREE char *host_a = http_authority(a);
	CLEANUP_FREE char *host_b = http_authority(b);

	return host_a && host_b && str_starts(a, "https") == str_starts(b, "https") &&
	       strcasecmp(host_a, host_b) == 0;
}
