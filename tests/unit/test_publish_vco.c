/* SPDX-License-Identifier: Apache-2.0 */
/* What replies of VCO mean, in all the forms that they may have. */
#include <stdlib.h>

#include "publish/vco.h"
#include "tap.h"

#define SUM   "1111111111111111111111111111111111111111111111111111111111111111"
#define OTHER "2222222222222222222222222222222222222222222222222222222222222222"

static void check_token(const char *body, const char *want, const char *name)
{
	CLEANUP_FREE char *token = vco_read_token(body);

	check_str(token, want, "%s", name);
}

static void test_tokens(void)
{
	check_token("a.b.c", "a.b.c", "a bare token");
	check_token("  a.b.c\n", "a.b.c", "one with spaces around it");
	check_token("\"a.b.c\"", "a.b.c", "one as a JSON text");
	check_token("{\"jwt\": \"a.b.c\"}", "a.b.c", "an object with 'jwt'");
	check_token("{\"token\": \"a.b.c\"}", "a.b.c", "an object with 'token'");
	check_token("{\"access_token\": \"x\", \"expires_in\": 1}", "x", "'access_token'");
	check_token("{\"jwt\": 7, \"token\": \"t.t.t\"}", "t.t.t", "one that is a text counts");
	check_token("", NULL, "nothing is no token");
	check_token("\"\"", NULL, "nor is an empty text");
	check_token("{}", NULL, "nor an empty object");
	check_token("sign in please", NULL, "nor is a sentence");
	check_token("<html>www.example</html> x", NULL, "nor is a page");
	check_token("\"a.b\\r\\nX-Evil: 1\"", NULL, "nor what would be a header of its own");
	check_token("a.b.\xc3\xbf", NULL, "nor what is not ASCII");
}

static void check_etag(const char *body, const char *header, const char *want, const char *name)
{
	CLEANUP_HTTP_REPLY struct http_reply reply = {0};
	CLEANUP_FREE char *etag = NULL;

	if (body) {
		reply.body = str_copy(body);
		reply.size = strlen(body);
	}
	if (header)
		strv_addf(&reply.headers, "etag: %s", header);
	etag = vco_read_etag(&reply);
	check_str(etag, want, "%s", name);
}

static void test_etags(void)
{
	check_etag(NULL, "\"abc\"", "abc", "an ETag in the header loses its quotes");
	check_etag("", "abc", "abc", "one without any stays");
	check_etag("{\"etag\": \"\\\"abc\\\"\"}", NULL, "abc", "an ETag in the body");
	check_etag("{\"ETag\": \"abc\"}", NULL, "abc", "in capitals too");
	check_etag("\"abc\"", NULL, "abc", "the body may be the ETag");
	check_etag("{\"etag\": \"abc\"}", "W/\"page\"", "abc", "the body counts more");
	check_etag("{\"status\": \"ok\"}", "abc", "abc", "a body without one counts nothing");
	check_etag("<html>", "abc", "abc", "nor does one that is no JSON");
	check_etag(NULL, NULL, NULL, "no ETag is none");
	check_etag(NULL, "\"\"", NULL, "an empty one is none");
	check_etag("{\"etag\": 7}", NULL, NULL, "a number is none");
	check_etag(NULL, "a b", NULL, "two words are none");
}

static enum vco_verdict judge(const char *text)
{
	json_t *image = json_loads(text, 0, NULL);
	enum vco_verdict found = vco_judge(image, "uefi", SUM, "FINE");

	json_decref(image);
	return found;
}

static void test_judge(void)
{
	check(judge("{\"status\": \"CREATED\", \"boot_type\": \"uefi\"}") == VCO_READY,
	      "a created image of our boot type is ours");
	check(judge("{\"status\": \"created\", \"boot_type\": \"uefi\", \"tags\": \"sha256=" SUM
	            ",gpu\"}") == VCO_READY,
	      "with our digest in its tags too");
	check(judge("{\"status\": \"ACTIVE\", \"tags\": [\"gpu\", \"sha256=" SUM "\"]}") ==
	              VCO_READY,
	      "tags may be a list");
	check(judge("{\"status\": \"CREATED\", \"boot_type\": \"bios\"}") == VCO_OTHER,
	      "another boot type makes it another image");
	check(judge("{\"status\": \"CREATING\", \"boot_type\": \"bios\"}") == VCO_OTHER,
	      "before it is ready too");
	check(judge("{\"status\": \"CREATED\", \"tags\": \"gpu,sha256=" OTHER "\"}") == VCO_OTHER,
	      "another digest in its tags too");
	check(judge("{\"status\": \"CREATED\", \"tags\": \"sha256=1111\"}") == VCO_OTHER,
	      "half a digest is another one");
	check(judge("{\"status\": \"CREATING\", \"boot_type\": \"uefi\"}") == VCO_WORKING,
	      "one that is being created is waited for");
	check(judge("{\"status\": \"SOMETHING\"}") == VCO_UNKNOWN,
	      "a status of a later day is not taken for one that passes");
	check(judge("{\"status\": 7}") == VCO_UNKNOWN, "nor is one that is no text");
	check(judge("{}") == VCO_UNKNOWN, "nor none at all");
	check(judge("{\"status\": \"fine\"}") == VCO_READY, "the word of 'ready_status' is ready");
	check(judge("{\"status\": \"DISABLED\", \"boot_type\": \"uefi\"}") == VCO_DISABLED,
	      "a disabled one is there");
	check(judge("{\"status\": \"DISABLED\", \"boot_type\": \"bios\"}") == VCO_OTHER,
	      "a disabled one of another boot type is another one");
	check(judge("{\"status\": \"DELETED\", \"boot_type\": \"bios\"}") == VCO_ABSENT,
	      "one in the recycle bin is not there");
	check(judge("{\"status\": \"ERROR\"}") == VCO_ABSENT, "nor is one that failed");
}

static void check_size(const char *size, int want, const char *name)
{
	CLEANUP_FREE char *text = str_format("{\"size\": %s}", size);
	json_t *image = json_loads(text, 0, NULL);

	check(vco_compare_size(image, 1500000000, 10737418240) == want, "%s", name);
	json_decref(image);
}

static void test_sizes(void)
{
	check_size("1500000000", 1, "a size may be that of the file, in bytes");
	check_size("10737418240", 1, "or that of its disk");
	check_size("10", 1, "or that in GiB");
	check_size("10240", 1, "or in MiB");
	check_size("1431", 1, "or the file's in MiB, rounded up");
	check_size("1430", 1, "or down");
	check_size("1500000001", -1, "one byte more is another image");
	check_size("11", -1, "so is a GiB more");
	check_size("10241", -1, "or a MiB");
	check_size("0", 0, "0 says nothing");
	check_size("-1", 0, "nor does what is below");
	check_size("\"10\"", 0, "nor a text");
}

static void check_os(const char *distro, const char *version, const char *want)
{
	json_t *list = json_loads(
		"{\"result\": [{\"os_type\": \"Windows\", \"os_names\": [\"Debian 12\"]},"
		" {\"os_type\": \"Linux\", \"os_names\": [7, \"Debian 11\", \"Debian 112\", "
		"\"Debian 12.5\", \"Debian GNU/Linux 12\", \"Ubuntu server 24.04\", "
		"\"Linux - other\"]}]}",
		0, NULL);

	check_str(vco_pick_os(list, distro, version), want, "%s %s is '%s'", distro, version, want);
	json_decref(list);
}

static void test_os(void)
{
	check_os("debian", "12", "Debian GNU/Linux 12");
	check_os("debian", "12.5", "Debian 12.5");
	check_os("ubuntu", "24.04", "Ubuntu server 24.04");
	check_os("ubuntu", "24", "Linux - other");
	check_os("fedora", "41", "Linux - other");
	check_os("linux", "", "Linux - other");
	check_str(vco_pick_os(NULL, "debian", "12"), "Linux - other", "no list has no names");
}

static void test_urls(void)
{
	static const char *const good[] = {"https://try.example/api/1", "http://127.0.0.1:80/api/1",
	                                   "http://127.0.0.1", "http://[::1]:80/",
	                                   "http://localhost/api/1"};
	static const char *const bad[] = {"http://try.example/api/1",
	                                  "http://127.0.0.1.example/",
	                                  "http://localhost.example",
	                                  "ftp://127.0.0.1/",
	                                  "https://",
	                                  "https://a@b/",
	                                  "https://a/?x=1",
	                                  "https://a/#f",
	                                  "http://127.0.0.1@b/",
	                                  "http://127.0.0.1:80@b/",
	                                  ""};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		check(vco_is_safe_url(good[i]), "a token may go to '%s'", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		check(!vco_is_safe_url(bad[i]), "a token does not go to '%s'", bad[i]);
}

static void test_fill_in(void)
{
	const struct publish_image image = {
		.name = (char *)"node", .version = (char *)"1.0+a", .sha256 = (char *)SUM};
	CLEANUP_FREE char *all = vco_fill_in("https://x/{name}/{version}/{sha256}/{name}", &image);
	CLEANUP_FREE char *none = vco_fill_in("https://x/{other}/y", &image);

	check_str(all, "https://x/node/1.0%2Ba/" SUM "/node", "placeholders are filled in");
	check_str(none, "https://x/{other}/y", "what is none stays");
}

int main(void)
{
	test_tokens();
	test_etags();
	test_judge();
	test_sizes();
	test_os();
	test_urls();
	test_fill_in();
	return tap_done();
}
