/* SPDX-License-Identifier: Apache-2.0 */
/* What the OCI backend makes and reads without a registry: documents, names, challenges, logins. */
#include <stdlib.h>

#include "publish/oci.h"
#include "tap.h"

#define LAYER_HEX "abababababababababababababababababababababababababababababababab"

static void make(struct oci_documents *d, const char *boot_type, const struct strv *env)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct publish_image image = {
		.fd = -1,
		.name = str_copy("gpu-node"),
		.version = str_copy("1.2.0"),
		.arch = str_copy("amd64"),
		.layer_sha256 = str_copy(LAYER_HEX),
		.size_bytes = 1000,
		.tar_head_size = 1024,
		.tar_tail_size = 24 + 1024,
	};

	check(oci_documents_make(d, &image, boot_type, env, &err) == 0, "documents are made (%s)",
	      boot_type);
	free(image.name);
	free(image.version);
	free(image.arch);
	free(image.layer_sha256);
}

/* The digests were computed by Python's json (sorted keys, no blanks) and hashlib. */
static void test_documents(void)
{
	const struct strv none = {0};
	CLEANUP_STRV struct strv env = {0};
	struct oci_documents d = {0};

	make(&d, "bios", &none);
	check_str(d.config,
	          "{\"architecture\":\"amd64\",\"config\":{\"Labels\":{\"gpuimg.boot-type\":"
	          "\"bios\"}},\"os\":\"linux\",\"rootfs\":{\"diff_ids\":[\"sha256:" LAYER_HEX
	          "\"],\"type\":\"layers\"}}",
	          "the config names the layer as its diff_id, and no time");
	check_str(d.config_digest,
	          "sha256:3da4073a52a7c26ab762fcd6e54671050408a05ce18a56734fbd3386729c5efc",
	          "the config has its golden digest");
	check_str(d.manifest_digest,
	          "sha256:b5a7dd08b25f04d1bd8e4297f32bd3cf73530f07c6b53d76c87db1f6f3ccf2cd",
	          "the manifest has its golden digest");
	check_str(d.index_digest,
	          "sha256:1d6ee33f360d117fa86db7eb5a157a39137797773bed0c6e9239c4ca7cba2870",
	          "the index has its golden digest");
	check(d.layer_bytes == 3072, "the layer is head, file and tail");
	oci_documents_free(&d);

	strv_add(&env, "A_KUBEVIRT_IO_B=c1.large");
	strv_add(&env, "Z=1");
	make(&d, "uefi", &env);
	check_str(d.index_digest,
	          "sha256:9bff53c7b94af5d741b27ac1312272cb2f3daf0d66f124594161b3fae0bb7980",
	          "variables and another boot type make another image");
	oci_documents_free(&d);
}

static void test_challenges(void)
{
	struct oci_challenge c = {0};

	oci_challenge_read(&c,
	                   "Bearer realm=\"https://auth.example/token\",service=\"reg, of "
	                   "\\\"us\\\"\", scope=\"repository:a/b:pull,push repository:c:pull\"");
	check(c.bearer && !c.basic, "bearer is bearer");
	check_str(c.realm, "https://auth.example/token", "its realm is read");
	check_str(c.service, "reg, of \"us\"", "a quoted value may hold commas and quotes");
	check(c.scopes.count == 2, "several scopes of one parameter are apart");
	check_str(c.scopes.count > 1 ? c.scopes.items[0] : NULL, "repository:a/b:pull,push",
	          "a comma in a scope parts nothing");
	check_str(c.scopes.count > 1 ? c.scopes.items[1] : NULL, "repository:c:pull",
	          "the second scope is read");
	oci_challenge_free(&c);

	oci_challenge_read(&c, "basic realm=\"x\", bEARER realm = https://h/t , scope=a,scope=b");
	check(c.basic && c.bearer, "two challenges of one header are both seen, in any case");
	check_str(c.realm, "https://h/t", "the realm is bearer's, not basic's");
	check(c.scopes.count == 2, "scope may be given twice");
	oci_challenge_free(&c);

	oci_challenge_read(&c, "Basic realm=\"registry\"");
	oci_challenge_read(&c, "Bearer realm=\"https://h/t\",service=s");
	check(c.basic && c.bearer && str_equal(c.service, "s"), "so are those of two headers");
	oci_challenge_free(&c);

	oci_challenge_read(&c, "Negotiate YWJj==, Digest realm=\"d\", nonce=\"n\"");
	check(!c.basic && !c.bearer && !c.realm, "others are none that we know");
	oci_challenge_free(&c);

	oci_challenge_read(&c, "Bearer realm=\"https://h/t\\");
	oci_challenge_read(&c, "Bearer realm=\"");
	oci_challenge_read(&c, "\"=,\x01,=,,Bearer");
	oci_challenge_read(&c, "");
	check(c.bearer, "what is cut off or no grammar at all ends the reading");
	oci_challenge_free(&c);
}

static void test_locations(void)
{
	static const char url[] = "https://r.example/v2/a/blobs/uploads/?x=/y";
	static const struct {
		const char *location, *joined, *what;
	} cases[] = {
		{"https://r.example/v2/a/blobs/uploads/1?_state=z%3D",
	         "https://r.example/v2/a/blobs/uploads/1?_state=z%3D", "an absolute one is itself"},
		{"/v2/a/blobs/uploads/1", "https://r.example/v2/a/blobs/uploads/1",
	         "a path belongs to the host"},
		{"1?s=2", "https://r.example/v2/a/blobs/uploads/1?s=2",
	         "a name belongs to the directory"},
		{"?s=2", "https://r.example/v2/a/blobs/uploads/?s=2",
	         "a query belongs to the path"},
		{"//other.example/x", "https://other.example/x", "two slashes name a host"},
		{"/x#y", "https://r.example/x", "a fragment is dropped"},
		{"http://r.example/v2/", NULL, "from https down to http is refused"},
		{"https://u:p@r.example/x", NULL, "credentials in it are refused"},
		{"ftp://r.example/x", NULL, "another scheme is refused"},
		{"file:/etc/passwd", NULL, "a scheme without a host is refused"},
		{"/a b", NULL, "blanks are refused"},
		{"", NULL, "nothing is refused"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_FREE char *joined = oci_join_location(url, cases[i].location);

		check_str(joined, cases[i].joined, "Location: %s", cases[i].what);
	}
	check(oci_join_location(url, NULL) == NULL, "Location: none is none");
}

static void check_query(const char *url, const char *want)
{
	CLEANUP_FREE char *joined = oci_add_query(url, "digest", "sha256:ab");

	check_str(joined, want, "a digest stands at the end of '%s'", url);
}

static void test_urls(void)
{
	check_query("http://h/u", "http://h/u?digest=sha256%3Aab");
	check_query("http://h/u?", "http://h/u?digest=sha256%3Aab");
	check_query("http://h/u?_state=x", "http://h/u?_state=x&digest=sha256%3Aab");
	check_query("http://h/u?_state=x&", "http://h/u?_state=x&digest=sha256%3Aab");
	check(http_same_origin("https://H.example", "https://h.example:443/x?y"),
	      "the scheme's port may be left out");
	check(!http_same_origin("https://h.example", "http://h.example/"),
	      "another scheme is another origin");
	check(!http_same_origin("http://h:5000", "http://h:5001/"),
	      "another port is another origin");
	check(!http_same_origin("http://h", "http://h.evil.example/"),
	      "a longer host is another origin");
	check(oci_is_loopback("localhost:5000") && oci_is_loopback("127.0.0.1") &&
	              oci_is_loopback("127.1.2.3:80") && oci_is_loopback("[::1]:5000"),
	      "loopback is known by its names");
	check(!oci_is_loopback("127.0.0.1.example") && !oci_is_loopback("localhost.example:80"),
	      "a name that begins like loopback is none");
}

static void test_realms(void)
{
	check(oci_realm_is_safe("https://r.example", "https://auth.example/token"),
	      "a realm over https may be anywhere");
	check(!oci_realm_is_safe("https://r.example", "http://r.example/token"),
	      "a registry over https names no realm over http");
	check(oci_realm_is_safe("http://r.example:5000", "http://r.example:5001/token"),
	      "in plain text the realm is on the same host");
	check(!oci_realm_is_safe("http://r.example:5000", "http://evil.example/token"),
	      "in plain text no other host gets credentials");
	check(!oci_realm_is_safe("http://r.example:5000", "http://127.0.0.1/token"),
	      "nor does a server on our own host, for a registry elsewhere");
	check(oci_realm_is_safe("http://127.0.0.1:5000", "http://localhost:5001/token"),
	      "loopback is one host by all its names");
	check(!oci_realm_is_safe("http://r.example", "http://r.example@evil.example/token"),
	      "a user in a realm's address is refused");
	check(!oci_realm_is_safe("http://r.example", "token"), "a realm must be an address");
}

static void test_places(void)
{
	static const struct {
		const char *text, *host, *path;
	} cases[] = {
		{"registry.example:5000/team/gpu-node", "registry.example:5000", "team/gpu-node"},
		{"localhost/a", "localhost", "a"},
		{"[::1]:5000/a/b__c.d-e", "[::1]:5000", "a/b__c.d-e"},
		{"team/gpu-node", NULL, NULL},
		{"https://registry.example/a", NULL, NULL},
		{"registry.example/a:1", NULL, NULL},
		{"registry.example/a@sha256:ab", NULL, NULL},
		{"registry.example/Team", NULL, NULL},
		{"registry.example/a//b", NULL, NULL},
		{"registry.example/a/", NULL, NULL},
		{"registry.example/a..b", NULL, NULL},
		{"registry.example/a___b", NULL, NULL},
		{"registry.example/../b", NULL, NULL},
		{"registry.example:x/a", NULL, NULL},
		{"user@registry.example/a", NULL, NULL},
		{"registry.example", NULL, NULL},
		{"", NULL, NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		CLEANUP_OCI_PLACE struct oci_place place = {0};
		int result = oci_place_parse(&place, cases[i].text, &err);

		check(result == (cases[i].host ? 0 : -1) && str_equal(place.host, cases[i].host) &&
		              str_equal(place.path, cases[i].path),
		      "'%s' is %s", cases[i].text, cases[i].host ? "a repository" : "none");
	}
}

static void test_tags(void)
{
	static const char *const cases[][2] = {
		{"1.2.0", "1.2.0"},
		{"1.2.0+cuda", "1.2.0_cuda"},
		{"+1", "_1"},
		{".x", "_x"},
		{"-rc", "_rc"},
		{"a/b c", "a_b_c"},
		{"0123456789ab", "0123456789ab"},
	};
	char longest[200];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		CLEANUP_FREE char *tag = oci_clean_tag(cases[i][0]);

		check_str(tag, cases[i][1], "version '%s' becomes a tag", cases[i][0]);
		check(oci_is_tag(tag), "'%s' is a tag", tag);
	}
	memset(longest, 'v', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	CLEANUP_FREE char *cut = oci_clean_tag(longest);

	check(strlen(cut) == 128 && oci_is_tag(cut), "a long version is cut");
	check(!oci_is_tag(longest) && !oci_is_tag("") && !oci_is_tag(".a") && !oci_is_tag("a+b"),
	      "what is no tag is known");
}

static void login(const char *repository, const char *text, int want, const char *user,
                  const char *password, const char *identity, const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_OCI_PLACE struct oci_place place = {0};
	struct oci_login l = {0};
	bool found = false;

	oci_place_parse(&place, repository, &err);
	check(oci_login_parse(text, "config.json", &place, &l, &found, &err) == want, "%s: %s",
	      what, want ? "is refused" : "is read");
	check(found == (user || identity), "%s: %s", what,
	      user || identity ? "there is an entry" : "there is no entry");
	check_str(l.user, user, "%s: the user", what);
	check_str(l.password, password, "%s: the password", what);
	check_str(l.identity_token, identity, "%s: the identity token", what);
	if (want)
		check(error_exit_code(&err) == EXIT_USAGE && err.message &&
		              !strstr(err.message, "s3cret"),
		      "%s: the error shows no password", what);
	oci_login_free(&l);
}

static void test_logins(void)
{
	static const char two[] =
		"{\"auths\": {\"r.example\": {\"auth\": \"Ym9iOnB3\"}, \"r.example/team\": "
		"{\"auth\": \"YWxpY2U6czNjcmV0OndpdGg6Y29sb25z\"}, \"https://other.example/v2/\": "
		"{\"username\": \"u\", \"password\": \"p\"}, \"https://index.docker.io/v1/\": "
		"{\"auth\": \"Ym9iOnB3\", \"identitytoken\": \"idt\"}}, \"credsStore\": \"x\", "
		"\"credHelpers\": {\"h.example\": \"vault\"}}";

	login("r.example/b/c", two, 0, "bob", "pw", NULL, "an entry of the host");
	login("r.example/team/c", two, 0, "alice", "s3cret:with:colons", NULL,
	      "the longer entry of a path");
	login("r.example/teams/c", two, 0, "bob", "pw", NULL, "a path that only begins alike");
	login("other.example/c", two, 0, "u", "p", NULL, "an entry with scheme and version");
	login("docker.io/c/d", two, 0, "bob", "pw", "idt", "an entry of docker's hub");
	login("none.example/c", two, 0, NULL, NULL, NULL, "no entry");
	login("h.example/c", two, -1, NULL, NULL, NULL, "only a helper");
	login("s.example/c", "{\"auths\": {\"s.example\": {}}, \"credsStore\": \"desktop\"}", -1,
	      NULL, NULL, NULL, "an empty entry with a store");
	login("s.example/c", "{\"auths\": {\"s.example\": {}}}", 0, NULL, NULL, NULL,
	      "an empty entry");
	login("s.example/c", "{\"auths\": {\"s.example\": {\"auth\": \"bm9jb2xvbg==\"}}}", -1, NULL,
	      NULL, NULL, "auth without a colon");
	login("s.example/c", "{\"auths\": {\"s.example\": {\"auth\": \"s3cret\"}}}", -1, NULL, NULL,
	      NULL, "auth that is not base64");
	login("s.example/c", "[]", -1, NULL, NULL, NULL, "a list");
	login("s.example/c", "{\"auths\": {\"s3cret", -1, NULL, NULL, NULL, "a cut file");
	login("s.example/c", "{}", 0, NULL, NULL, NULL, "an empty object");
}

static void check_slice(const struct http_body *b, uint64_t at, uint64_t count, size_t head,
                        uint64_t offset, uint64_t file, size_t tail)
{
	struct http_body s = oci_slice(b, at, count);

	check(s.head_size == head && (s.fd >= 0 ? s.fd_size : 0) == file &&
	              (!file || s.fd_offset == offset) && s.tail_size == tail &&
	              http_body_size(&s) == head + file + tail,
	      "%llu bytes at %llu are cut out of the three pieces", (unsigned long long)count,
	      (unsigned long long)at);
}

static void test_slices(void)
{
	const struct http_body b = {.head = "0123456789",
	                            .head_size = 10,
	                            .fd = 0,
	                            .fd_offset = 5,
	                            .fd_size = 100,
	                            .tail = "0123456789",
	                            .tail_size = 10};
	struct http_body s;

	check_slice(&b, 0, 120, 10, 5, 100, 10);
	check_slice(&b, 0, 4, 4, 0, 0, 0);
	check_slice(&b, 4, 10, 6, 5, 4, 0);
	check_slice(&b, 10, 100, 0, 5, 100, 0);
	check_slice(&b, 50, 20, 0, 45, 20, 0);
	check_slice(&b, 100, 20, 0, 95, 10, 10);
	check_slice(&b, 112, 8, 0, 0, 0, 8);
	check_slice(&b, 110, 4, 0, 0, 0, 4);
	s = oci_slice(&b, 112, 3);
	check(s.tail_size == 3 && memcmp(s.tail, "234", 3) == 0, "a piece of the tail is its own");
	s = oci_slice(&b, 7, 2);
	check(s.head_size == 2 && memcmp(s.head, "78", 2) == 0, "so is a piece of the head");
}

int main(void)
{
	test_documents();
	test_challenges();
	test_locations();
	test_urls();
	test_realms();
	test_places();
	test_tags();
	test_logins();
	test_slices();
	return tap_done();
}
