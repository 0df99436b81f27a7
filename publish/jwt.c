/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <openssl/evp.h>
#include <string.h>

#include "builder/str.h"
#include "publish/jwt.h"

#define PAYLOAD_MAX_BYTES 65536u
#define EXPIRES_MAX       1e12 /* a number that no clock will show */

/* base64url without padding, as tokens have it. NULL: it is none. */
static char *decode(const char *text, size_t length)
{
	size_t padded = (length + 3) / 4 * 4;
	CLEANUP_FREE char *plain = mem_alloc(padded + 1);
	char *data = mem_alloc(padded + 1);
	int size;

	memset(plain, '=', padded);
	memcpy(plain, text, length);
	for (size_t i = 0; i < length; i++) {
		if (plain[i] == '-')
			plain[i] = '+';
		else if (plain[i] == '_')
			plain[i] = '/';
	}
	size = EVP_DecodeBlock((unsigned char *)data, (const unsigned char *)plain, (int)padded);
	if (size < 0) {
		free(data);
		return NULL;
	}
	data[size] = '\0';
	return data;
}

time_t jwt_expires(const char *token)
{
	const char *payload = strchr(token, '.');
	size_t length = payload ? strcspn(payload + 1, ".") : 0;
	CLEANUP_FREE char *text =
		length && length < PAYLOAD_MAX_BYTES ? decode(payload + 1, length) : NULL;
	json_t *claims = text ? json_loads(text, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
	const json_t *expires = json_object_get(claims, "exp");
	double seconds = json_number_value(expires); /* 0 of what is no number */
	time_t when = seconds > 0 && seconds < EXPIRES_MAX ? (time_t)seconds : 0;

	json_decref(claims);
	return when;
}
