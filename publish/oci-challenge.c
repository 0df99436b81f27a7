/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WWW-Authenticate (RFC 9110, 11.3): challenges and their parameters are both separated by commas,
 * and quoted values hold commas of their own ("repository:a:pull,push").
 */
#include <string.h>
#include <strings.h>

#include "publish/oci.h"

#define SCOPES_MAX 32

enum scheme { SCHEME_OTHER, SCHEME_BASIC, SCHEME_BEARER };

static size_t token_length(const char *p)
{
	return strspn(p, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
	                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
}

static const char *skip_blank(const char *p)
{
	return p + strspn(p, " \t");
}

/* A token or a quoted text at *p, which is moved behind it. Owned by the caller. */
static char *take_value(const char **p)
{
	char *value, *to;

	if (**p != '"') {
		size_t length = strcspn(*p, ", \t");

		value = mem_copy(*p, length);
		*p += length;
		return value;
	}
	to = value = mem_alloc(strlen(*p));
	for ((*p)++; **p && **p != '"'; (*p)++) {
		if (**p == '\\' && (*p)[1])
			(*p)++;
		*to++ = **p;
	}
	*p += **p == '"';
	return value;
}

static void keep_first(char **place, char **value)
{
	if (!*place)
		*place = STEAL(*value);
}

static void take_parameter(struct oci_challenge *c, enum scheme scheme, const char *name,
                           size_t length, char *value)
{
	CLEANUP_FREE char *owned = value;

	if (scheme != SCHEME_BEARER)
		return;
	if (length == 5 && strncasecmp(name, "realm", 5) == 0) {
		keep_first(&c->realm, &owned);
	} else if (length == 7 && strncasecmp(name, "service", 7) == 0) {
		keep_first(&c->service, &owned);
	} else if (length == 5 && strncasecmp(name, "scope", 5) == 0) {
		CLEANUP_STRV struct strv words = strv_split(owned, " ");

		for (size_t i = 0; i < words.count && c->scopes.count < SCOPES_MAX; i++)
			if (!strv_has(&c->scopes, words.items[i]))
				strv_add(&c->scopes, words.items[i]);
	}
}

static enum scheme take_scheme(struct oci_challenge *c, const char *name, size_t length)
{
	if (length == 5 && strncasecmp(name, "basic", 5) == 0) {
		c->basic = true;
		return SCHEME_BASIC;
	}
	if (length == 6 && strncasecmp(name, "bearer", 6) == 0) {
		c->bearer = true;
		return SCHEME_BEARER;
	}
	return SCHEME_OTHER;
}

void oci_challenge_read(struct oci_challenge *c, const char *header)
{
	enum scheme scheme = SCHEME_OTHER;
	const char *p = header;

	while (*(p += strspn(p, ", \t"))) {
		size_t length = token_length(p);
		const char *name = p, *after = skip_blank(p + length);

		if (!length) { /* nothing that we know the grammar of */
			p++;
			continue;
		}
		if (*after != '=' || after[1] == '=') {
			scheme = take_scheme(c, name, length);
			p = after;
			continue;
		}
		p = skip_blank(after + 1);
		take_parameter(c, scheme, name, length, take_value(&p));
	}
}

void oci_challenge_free(struct oci_challenge *c)
{
	free(c->realm);
	free(c->service);
	strv_free(&c->scopes);
	*c = (struct oci_challenge){0};
}
