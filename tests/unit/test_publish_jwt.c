/* SPDX-License-Identifier: Apache-2.0 */
/* When a token ends, of tokens and of what only looks like one. */
#include <openssl/evp.h>
#include <stdlib.h>

#include "builder/str.h"
#include "publish/jwt.h"
#include "tap.h"

/* A token with this payload, in base64url without padding. */
static char *make_token(const char *payload)
{
	size_t size = strlen(payload);
	CLEANUP_FREE char *text = mem_alloc(4 * (size / 3 + 1) + 1);

	EVP_EncodeBlock((unsigned char *)text, (const unsigned char *)payload, (int)size);
	for (char *p = text; *p; p++) {
		if (*p == '+')
			*p = '-';
		else if (*p == '/')
			*p = '_';
	}
	text[strcspn(text, "=")] = '\0';
	return str_format("eyJhbGciOiJub25lIn0.%s.c2lnbmF0dXJl", text);
}

static time_t ends(const char *payload)
{
	CLEANUP_FREE char *token = make_token(payload);

	return jwt_expires(token);
}

static void test_tokens(void)
{
	check(ends("{\"exp\":1796014800}") == 1796014800, "the end is read");
	check(ends("{\"exp\":1796014800 }") == 1796014800, "with one byte of padding too");
	check(ends("{\"exp\": 1796014800 }") == 1796014800, "and with two");
	check(ends("{\"exp\":1796014800.5}") == 1796014800, "a fraction is dropped");
	check(ends("{\"sub\":\"\xc3\xbf\xc3\xbf?>?>\xc3\xbe\",\"exp\":42}") == 42,
	      "both letters of the URL alphabet are known");
	check(ends("{\"sub\":\"a\"}") == 0, "a token without an end has none");
}

static void test_doubtful(void)
{
	check(ends("{\"exp\":\"1796014800\"}") == 0, "an end that is a text is none");
	check(ends("{\"exp\":-5}") == 0, "an end before all time is none");
	check(ends("{\"exp\":1e300}") == 0, "an end after all time is none");
	check(ends("{\"exp\":null}") == 0, "nor is null");
	check(ends("[1796014800]") == 0, "nor is a list");
	check(ends("{\"exp\":17") == 0, "half an object is none");
}

static void test_garbage(void)
{
	CLEANUP_FREE char *huge = mem_alloc(200001);

	memset(huge, 'A', 200000);
	huge[5] = '.';
	check(jwt_expires(huge) == 0, "a huge payload is not read");
	check(jwt_expires("") == 0, "an empty text is no token");
	check(jwt_expires("secret") == 0, "nor is a plain word");
	check(jwt_expires("..") == 0, "nor are dots");
	check(jwt_expires("a.b.c") == 0, "nor is a payload of one letter");
	check(jwt_expires("a.*&^%.c") == 0, "nor one that is not base64");
	check(jwt_expires("a.eyJleHAiOjQyfQ") == 42, "a missing signature is the server's matter");
}

int main(void)
{
	test_tokens();
	test_doubtful();
	test_garbage();
	return tap_done();
}
