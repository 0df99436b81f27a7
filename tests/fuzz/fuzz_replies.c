/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer entry for what servers of images answer: XML of S3, challenges of registries, tokens,
 * the index of versions. The first byte says which. What is taken out of a reply is a part of it;
 * an index that was merged takes the same image again without a change.
 */
#include <stdlib.h>
#include <string.h>

#include "publish/jwt.h"
#include "publish/layout.h"
#include "publish/oci.h"
#include "publish/xml-tags.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void fuzz_xml(const char *text)
{
	const char *at = NULL;
	char *part;

	while ((part = xml_tag(text, "Part", &at))) {
		CLEANUP_FREE char *number = xml_tag(part, "PartNumber", NULL);

		require(at > text && at <= text + strlen(text));
		require(!number || strlen(number) < strlen(part));
		free(part);
	}
}

static void fuzz_challenge(const char *text)
{
	struct oci_challenge c = {0};

	oci_challenge_read(&c, text);
	require(c.bearer || (!c.realm && !c.service && c.scopes.count == 0));
	require(!c.realm || strlen(c.realm) <= strlen(text));
	oci_challenge_free(&c);
}

static void fuzz_index(const char *text)
{
	static char name[] = "node", version[] = "1.0";
	static char sha256[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
	const struct publish_image image = {
		.name = name, .version = version, .sha256 = sha256, .size_bytes = 4096};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *once = NULL;
	CLEANUP_FREE char *twice = NULL;

	if (layout_index_merge(&image, text, &once, &err) < 0) {
		require(err.message && !once);
		return;
	}
	require(layout_index_merge(&image, once, &twice, &err) == 0);
	require(str_equal(once, twice));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	CLEANUP_FREE char *text = size > 0 ? mem_copy(data + 1, size - 1) : NULL;

	if (!text)
		return 0;
	if (data[0] % 4 == 0)
		fuzz_xml(text);
	else if (data[0] % 4 == 1)
		fuzz_challenge(text);
	else if (data[0] % 4 == 2)
		require(jwt_expires(text) >= 0);
	else
		fuzz_index(text);
	return 0;
}
