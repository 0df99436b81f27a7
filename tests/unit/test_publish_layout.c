/* SPDX-License-Identifier: Apache-2.0 */
/* Where images lie, and the index that names them. */
#include <stdlib.h>

#include "publish/layout.h"
#include "tap.h"

static char sha_a[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static char sha_b[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
static char name[] = "node", one[] = "1.0", two[] = "2.0", arch[] = "amd64";

static struct publish_image image(char *version, char *sha256)
{
	return (struct publish_image){.name = name,
	                              .version = version,
	                              .sha256 = sha256,
	                              .arch = arch,
	                              .size_bytes = 5,
	                              .virtual_bytes = 10};
}

static enum layout_index_state look(const struct publish_image *i, const char *text)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	enum layout_index_state state = INDEX_SAME;
	int result = layout_index_look(i, text, &state, &err);

	check(result == 0, "the index is read: %s", err.message ? err.message : "good");
	return state;
}

static char *merge(const struct publish_image *i, const char *text)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char *merged = NULL;
	int result = layout_index_merge(i, text, &merged, &err);

	check(result == 0, "the index is written: %s", err.message ? err.message : "good");
	return merged;
}

static void test_paths(void)
{
	const struct publish_image i = image(one, sha_a);
	CLEANUP_FREE char *file = layout_file(&i);
	CLEANUP_FREE char *sums = layout_sums(&i);
	CLEANUP_FREE char *index = layout_index(&i);
	CLEANUP_FREE char *want = str_format("node/1.0/%s/node.qcow2", sha_a);
	CLEANUP_FREE char *want_sums = str_format("node/1.0/%s/SHA256SUMS", sha_a);

	check_str(file, want, "an image lies below its content's digest");
	check_str(sums, want_sums, "its sums beside it");
	check_str(index, "node/index.json", "the index lies above all versions");
}

static void test_sums(void)
{
	const struct publish_image i = image(one, sha_a), other = image(one, sha_b);
	CLEANUP_FREE char *text = layout_sums_text(&i);
	CLEANUP_FREE char *want = str_format("%s  node.qcow2\n", sha_a);

	check_str(text, want, "sums are in the form of sha256sum(1)");
	check(layout_sums_match(&i, text), "they match their image");
	check(!layout_sums_match(&other, text), "and no other");
	check(!layout_sums_match(&i, "<html>error</html>"), "an error page is no sum");
}

static void test_index(void)
{
	const struct publish_image a = image(one, sha_a), b = image(two, sha_b),
				   a_changed = image(one, sha_b);
	CLEANUP_FREE char *first = merge(&a, NULL);
	CLEANUP_FREE char *both = merge(&b, first);
	CLEANUP_FREE char *replaced = merge(&a_changed, both);
	CLEANUP_FREE char *again = merge(&b, both);

	check(look(&a, NULL) == INDEX_ABSENT, "in no index there is nothing");
	check(look(&a, first) == INDEX_SAME, "what was put in is found");
	check(look(&b, first) == INDEX_ABSENT, "another version is not");
	check(look(&a_changed, first) == INDEX_DIFFERENT,
	      "a version with other content is told apart");
	check(look(&a, both) == INDEX_SAME && look(&b, both) == INDEX_SAME,
	      "a second version leaves the first one");
	check(look(&a_changed, replaced) == INDEX_SAME && look(&b, replaced) == INDEX_SAME,
	      "replacing one leaves the other");
	check_str(again, both, "putting it in again changes no byte");
}

static void refuses(const char *text, const char *what)
{
	const struct publish_image a = image(one, sha_a);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *merged = NULL;
	enum layout_index_state state;

	check(layout_index_look(&a, text, &state, &err) == -1 &&
	              error_exit_code(&err) == EXIT_INPUT && err.hint,
	      "%s is refused as an index", what);
	check(layout_index_merge(&a, text, &merged, &err) == -1 && !merged,
	      "and nothing is written over %s", what);
}

int main(void)
{
	test_paths();
	test_sums();
	test_index();
	refuses("<html>", "an error page");
	refuses("{\"schema\": 2, \"versions\": {}}", "an index of a later gpuimg");
	refuses("{\"schema\": 1}", "one without versions");
	refuses("[]", "a list");
	return tap_done();
}
