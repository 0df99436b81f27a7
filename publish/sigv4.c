/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "builder/digest.h"
#include "publish/sigv4.h"

#define HMAC_BYTES 32

static void hmac(const void *key, size_t key_size, const char *text, unsigned char ret[HMAC_BYTES])
{
	unsigned length = HMAC_BYTES;

	HMAC(EVP_sha256(), key, (int)key_size, (const unsigned char *)text, strlen(text), ret,
	     &length);
}

/* By name, then by value: what stands between them is no letter of the name, or "a-b" would come
 * before "a". Names hold neither '=' nor ':'. */
static int compare_pairs(const void *a, const void *b)
{
	const char *x = *(char *const *)a, *y = *(char *const *)b;
	size_t nx = strcspn(x, "=:"), ny = strcspn(y, "=:");
	int by_name = memcmp(x, y, nx < ny ? nx : ny);

	if (by_name)
		return by_name;
	return nx == ny ? strcmp(x + nx, y + ny) : nx < ny ? -1 : 1;
}

static void sort_pairs(struct strv *pairs)
{
	if (pairs->count)
		qsort(pairs->items, pairs->count, sizeof(pairs->items[0]), compare_pairs);
}

char *sigv4_query(const struct strv *query)
{
	CLEANUP_STRV struct strv pairs = {0};

	if (query)
		strv_add_all(&pairs, query);
	sort_pairs(&pairs);
	return strv_join(&pairs, "&");
}

/* "name:value" in lower case, blanks at both ends taken off, sorted by name. */
static struct strv canonical_headers(const struct strv *headers, const char *host)
{
	struct strv lines = {0};

	strv_addf(&lines, "host:%s", host);
	for (size_t i = 0; i < headers->count; i++) {
		CLEANUP_FREE char *line = str_copy(headers->items[i]);
		char *colon = strchr(line, ':');

		if (!colon)
			continue;
		for (char *p = line; p < colon; p++)
			*p = (char)tolower((unsigned char)*p);
		*colon = '\0';
		strv_addf(&lines, "%s:%s", line, str_trim(colon + 1));
	}
	sort_pairs(&lines);
	return lines;
}

static char *names_of(const struct strv *lines)
{
	CLEANUP_STRV struct strv names = {0};

	for (size_t i = 0; i < lines->count; i++)
		strv_take(&names, mem_copy(lines->items[i], strcspn(lines->items[i], ":")));
	return strv_join(&names, ";");
}

static char *signature(const struct sigv4 *s, const char *day, const char *to_sign)
{
	CLEANUP_FREE char *first = str_format("AWS4%s", s->secret_key);
	unsigned char key[HMAC_BYTES];

	hmac(first, strlen(first), day, key);
	hmac(key, sizeof(key), s->region, key);
	hmac(key, sizeof(key), s->service, key);
	hmac(key, sizeof(key), "aws4_request", key);
	hmac(key, sizeof(key), to_sign, key);
	explicit_bzero(first, strlen(first));
	return digest_hex(key, sizeof(key));
}

void sigv4_sign(const struct sigv4 *s, struct strv *ret)
{
	char when[32], day[16];
	struct tm tm;
	CLEANUP_STRV struct strv lines = {0};
	CLEANUP_FREE char *query = sigv4_query(s->query);
	CLEANUP_FREE char *scope = NULL;
	CLEANUP_FREE char *joined = NULL;
	CLEANUP_FREE char *names = NULL;
	CLEANUP_FREE char *request = NULL;
	CLEANUP_FREE char *digest = NULL;
	CLEANUP_FREE char *to_sign = NULL;
	CLEANUP_FREE char *signed_hex = NULL;

	gmtime_r(&s->now, &tm);
	strftime(when, sizeof(when), "%Y%m%dT%H%M%SZ", &tm);
	strftime(day, sizeof(day), "%Y%m%d", &tm);
	if (s->headers)
		strv_add_all(ret, s->headers);
	strv_addf(ret, "x-amz-content-sha256: %s", s->payload_sha256);
	strv_addf(ret, "x-amz-date: %s", when);
	if (s->session_token)
		strv_addf(ret, "x-amz-security-token: %s", s->session_token);
	lines = canonical_headers(ret, s->host);
	joined = strv_join(&lines, "\n");
	names = names_of(&lines);
	request = str_format("%s\n%s\n%s\n%s\n\n%s\n%s", s->method, s->path, query, joined, names,
	                     s->payload_sha256);
	digest = digest_memory(request, strlen(request));
	scope = str_format("%s/%s/%s/aws4_request", day, s->region, s->service);
	to_sign = str_format("AWS4-HMAC-SHA256\n%s\n%s\n%s", when, scope, digest);
	signed_hex = signature(s, day, to_sign);
	strv_addf(
		ret,
		"Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		s->access_key, scope, names, signed_hex);
}
