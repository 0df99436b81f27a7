/* SPDX-License-Identifier: Apache-2.0 */
/* What a download may do with a URL: show it, follow it. */
#include <curl/curl.h>
#include <string.h>

#include "download.h"
#include "str.h"

DEFINE_CLEANUP(curlu, CURLU *, curl_url_cleanup)
#define CLEANUP_CURLU CLEANUP(cleanup_curlu)

static CURLU *parse(const char *url)
{
	CLEANUP_CURLU CURLU *u = curl_url();

	if (!u || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK)
		return NULL;
	return STEAL(u);
}

/* A copy of our own, so that free() is right for it; NULL if the URL has no such part. */
static char *part(CURLU *u, CURLUPart which, unsigned flags)
{
	char *value = NULL, *copy;

	if (curl_url_get(u, which, &value, flags) != CURLUE_OK)
		return NULL;
	copy = str_copy(value);
	curl_free(value);
	return copy;
}

char *download_show_url(const char *url)
{
	CLEANUP_CURLU CURLU *u = parse(url);
	CLEANUP_FREE char *plain = NULL;

	if (u && curl_url_set(u, CURLUPART_USER, NULL, 0) == CURLUE_OK &&
	    curl_url_set(u, CURLUPART_PASSWORD, NULL, 0) == CURLUE_OK &&
	    curl_url_set(u, CURLUPART_QUERY, NULL, 0) == CURLUE_OK &&
	    curl_url_set(u, CURLUPART_FRAGMENT, NULL, 0) == CURLUE_OK)
		plain = part(u, CURLUPART_URL, 0);
	return str_printable(plain ? plain : "(not a URL)", 500);
}

char *download_url_path(const char *url)
{
	CLEANUP_CURLU CURLU *u = parse(url);
	char *path = u ? part(u, CURLUPART_PATH, CURLU_URLDECODE) : NULL;

	return path ? path : str_copy("/");
}

static bool same_part(CURLU *a, CURLU *b, CURLUPart which)
{
	CLEANUP_FREE char *x = part(a, which, CURLU_DEFAULT_PORT);
	CLEANUP_FREE char *y = part(b, which, CURLU_DEFAULT_PORT);

	return x && y && strcasecmp(x, y) == 0;
}

/* Servers redirect within themselves without repeating the user name. */
static void carry_login(CURLU *from, CURLU *to)
{
	CLEANUP_FREE char *user = part(from, CURLUPART_USER, 0);
	CLEANUP_FREE char *password = part(from, CURLUPART_PASSWORD, 0);
	CLEANUP_FREE char *own = part(to, CURLUPART_USER, 0);

	if (!user || own || !same_part(from, to, CURLUPART_SCHEME) ||
	    !same_part(from, to, CURLUPART_HOST) || !same_part(from, to, CURLUPART_PORT))
		return;
	curl_url_set(to, CURLUPART_USER, user, 0);
	if (password)
		curl_url_set(to, CURLUPART_PASSWORD, password, 0);
}

int download_follow(const char *from, const char *to, char **ret_url, struct error *err)
{
	CLEANUP_CURLU CURLU *u = parse(from);
	CLEANUP_CURLU CURLU *target = parse(to);
	CLEANUP_FREE char *was = u ? part(u, CURLUPART_SCHEME, 0) : NULL;
	CLEANUP_FREE char *scheme = target ? part(target, CURLUPART_SCHEME, 0) : NULL;
	CLEANUP_FREE char *shown = download_show_url(to);
	char *url;

	error_code(err, EXIT_INPUT);
	if (!was || !scheme || (!str_equal(scheme, "http") && !str_equal(scheme, "https")))
		return error_set(err, "it redirects to '%s', which is not http or https", shown);
	if (str_equal(was, "https") && str_equal(scheme, "http"))
		return error_set(err, "it redirects from https to plain http, to '%s'", shown);
	carry_login(u, target);
	url = part(target, CURLUPART_URL, 0);
	if (!url)
		return error_set(err, "it redirects to '%s', which is not a URL", shown);
	*ret_url = url;
	err->code = EXIT_OK;
	return 0;
}
