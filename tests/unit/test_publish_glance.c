/* SPDX-License-Identifier: Apache-2.0 */
/* What of the backend glance needs no server: ids, clouds.yaml, the catalog, properties. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "publish/glance.h"
#include "tap.h"

#define CLOUDS                                                                                     \
	"clouds:\n"                                                                                \
	"  one:\n"                                                                                 \
	"    region_name: R1\n"                                                                    \
	"    verify: false\n"                                                                      \
	"    auth: {auth_url: 'https://one/v3', username: alice, project_name: images}\n"          \
	"  two:\n"                                                                                 \
	"    auth_type: v3applicationcredential\n"                                                 \
	"    auth: {auth_url: https://two, application_credential_id: abc}\n"
#define SECURE "clouds: {one: {auth: {password: hidden}}}\n"

static void test_uuid5(void)
{
	/* RFC 9562, A.4: the namespace of DNS. */
	static const unsigned char dns[16] = {0x6b, 0xa7, 0xb8, 0x10, 0x9d, 0xad, 0x11, 0xd1,
	                                      0x80, 0xb4, 0x00, 0xc0, 0x4f, 0xd4, 0x30, 0xc8};
	CLEANUP_FREE char *example = uuid5(dns, "www.example.com");
	CLEANUP_FREE char *python = uuid5(dns, "python.org");
	CLEANUP_FREE char *first = glance_id("ab", "uefi", 0);
	CLEANUP_FREE char *again = glance_id("ab", "uefi", 0);
	CLEANUP_FREE char *next = glance_id("ab", "uefi", 1);
	CLEANUP_FREE char *bios = glance_id("ab", "bios", 0);

	check_str(example, "2ed6657d-e927-568b-95e1-2665a8aea6a2", "the RFC's example is met");
	check_str(python, "886313e1-3b8a-5372-9b90-0c9aee199e5d", "so is that of Python's manual");
	check_str(first, again, "the same bytes have the same id");
	check_str(first, "6cbc2fe7-71f8-5f13-b6d5-e5a98e348c8f", "and the id never changes");
	check(strcmp(first, next) != 0 && strcmp(first, bios) != 0,
	      "another generation or boot type has another");
}

static void test_clouds(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOUD struct cloud cloud = {0};
	CLEANUP_CLOUD struct cloud two = {0};

	check(cloud_parse(&cloud, "one", false, CLOUDS, "clouds.yaml", &err) == 0 &&
	              cloud_parse(&cloud, NULL, true, SECURE, "secure.yaml", &err) == 0,
	      "clouds.yaml and secure.yaml are read");
	check_str(cloud.values[CLOUD_USERNAME], "alice", "a field of 'auth'");
	check_str(cloud.values[CLOUD_REGION_NAME], "R1", "a field of the cloud");
	check_str(cloud.values[CLOUD_VERIFY], "false", "a truth value as text");
	check_str(cloud.values[CLOUD_PASSWORD], "hidden", "the password of secure.yaml");
	check(cloud_parse(&two, "two", false, CLOUDS, "clouds.yaml", &err) == 0 &&
	              cloud_parse(&two, NULL, true, SECURE, "secure.yaml", &err) == 0 &&
	              !two.values[CLOUD_PASSWORD],
	      "secure.yaml adds nothing to a cloud that it does not name");
}

static void refused(const char *name, const char *text, const char *part)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOUD struct cloud cloud = {0};
	int result = cloud_parse(&cloud, name, false, text, "clouds.yaml", &err);

	if (!check(result < 0 && err.message && strstr(err.message, part) &&
	                   error_exit_code(&err) == EXIT_USAGE,
	           "refused: %s", part))
		printf("# got: %s\n", err.message ? err.message : "(no error)");
}

static void test_cloud_refusals(void)
{
	refused(NULL, CLOUDS, "which cloud is meant? There are: one, two");
	refused("three", CLOUDS, "there is no cloud 'three', only: one, two");
	refused("one", "[a]", "there is no mapping 'clouds'");
	refused("one", "", "there is no mapping 'clouds'");
	refused("one", "clouds: {one: 3}", "must be a mapping");
	refused("one", "clouds:\n  one:\n    auth: x\n", "clouds.yaml:3: 'auth'");
	refused("one", "clouds: {one: {auth: {password: [a]}}}", "'password' must be one text");
	refused("one", "clouds: {one: {profile: vendor}}", "'profile' is not known");
	refused("one", "clouds: {one: {<<: {a: b}}}", "'<<' is not known");
	refused("one", "clouds: {one: {cert: a.pem}}", "'cert' is not known");
	refused("one", "clouds: {one: {auth: {system_scope: all}}}", "'system_scope' is not");
	refused("one", "clouds: {one: \"", "clouds.yaml:1");
}

static void write_text(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) < 0 || fchmod(fd, mode) < 0)
		perror(path);
	if (fd >= 0)
		close(fd);
}

static bool reads(const char *name, const char *part)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOUD struct cloud cloud = {0};
	bool good = cloud_read(&cloud, name, &err) == 0;

	if (!part)
		return good && str_equal(cloud.values[CLOUD_PASSWORD], "hidden");
	if (good || !strstr(err.message, part))
		printf("# got: %s\n", good ? "(read)" : err.message);
	return !good && strstr(err.message, part);
}

static void test_cloud_files(void)
{
	char dir[] = "/tmp/gpuimg-clouds-XXXXXX";
	CLEANUP_FREE char *clouds = NULL;
	CLEANUP_FREE char *secure = NULL;

	if (!check(mkdtemp(dir) != NULL, "there is a directory to work in"))
		return;
	clouds = str_format("%s/clouds.yaml", dir);
	secure = str_format("%s/secure.yaml", dir);
	write_text(clouds, CLOUDS, 0644);
	write_text(secure, SECURE, 0600);
	unsetenv("OS_CLOUD");
	unsetenv("OS_CLIENT_SECURE_FILE");
	setenv("OS_CLIENT_CONFIG_FILE", clouds, 1);
	check(reads("one", NULL),
	      "secure.yaml beside clouds.yaml is merged; clouds.yaml may be open");
	check(reads(NULL, "which cloud"), "without a name it is asked for");
	setenv("OS_CLOUD", "one", 1);
	check(reads(NULL, NULL), "OS_CLOUD names the cloud");
	chmod(secure, 0644);
	check(reads("one", "everybody"), "a secret that everybody can read is refused");
	check(!reads("two", "everybody"), "unless it is not one of this cloud");
	chmod(secure, 0640);
	check(reads("one", NULL), "its group may read it");
	setenv("OS_CLIENT_CONFIG_FILE", "/nonexistent/clouds.yaml", 1);
	check(reads("one", "cannot read"), "a file that is named and not there is told");
	unlink(clouds);
	unlink(secure);
	check(rmdir(dir) == 0, "nothing is left behind");
}

static void test_cloud_variables(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOUD struct cloud cloud = {0};

	if (access("/etc/openstack/clouds.yaml", F_OK) == 0 || access("clouds.yaml", F_OK) == 0)
		return;
	unsetenv("OS_CLIENT_CONFIG_FILE");
	unsetenv("OS_CLOUD");
	setenv("HOME", "/nonexistent", 1);
	check(reads("one", "there is no clouds.yaml"), "no file at all is told");
	setenv("OS_AUTH_URL", "https://three/v3", 1);
	setenv("OS_PROJECT_DOMAIN_NAME", "Images", 1);
	check(cloud_read(&cloud, NULL, &err) == 0, "without files the variables form a cloud");
	check_str(cloud.values[CLOUD_AUTH_URL], "https://three/v3", "its address");
	check_str(cloud.values[CLOUD_PROJECT_DOMAIN_NAME], "Images", "its project's domain");
	unsetenv("OS_AUTH_URL");
	unsetenv("OS_PROJECT_DOMAIN_NAME");
}

static char *body_of(const struct cloud *cloud, struct error *err)
{
	json_t *body = NULL;
	char *text;

	if (keystone_body(cloud, &body, err) < 0)
		return NULL;
	text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(body);
	return text;
}

static void test_bodies(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOUD struct cloud cloud = {0};
	CLEANUP_FREE char *password = NULL;
	CLEANUP_FREE char *credential = NULL;

	cloud_set(&cloud, CLOUD_USERNAME, "alice");
	cloud_set(&cloud, CLOUD_PASSWORD, "pw");
	check(!body_of(&cloud, &err) && strstr(err.message, "project_name"),
	      "a password without a project is refused");
	cloud_set(&cloud, CLOUD_PROJECT_NAME, "images");
	cloud_set(&cloud, CLOUD_PROJECT_DOMAIN_NAME, "Dom");
	password = body_of(&cloud, &err);
	check_str(password,
	          "{\"auth\":{\"identity\":{\"methods\":[\"password\"],\"password\":{\"user\":"
	          "{\"domain\":{\"id\":\"default\"},\"name\":\"alice\",\"password\":\"pw\"}}},"
	          "\"scope\":{\"project\":{\"domain\":{\"name\":\"Dom\"},\"name\":\"images\"}}}}",
	          "a password signs in to a project");
	cloud_set(&cloud, CLOUD_AUTH_TYPE, "v3applicationcredential");
	cloud_set(&cloud, CLOUD_APPLICATION_CREDENTIAL_ID, "id1");
	cloud_set(&cloud, CLOUD_APPLICATION_CREDENTIAL_SECRET, "s");
	credential = body_of(&cloud, &err);
	check_str(credential,
	          "{\"auth\":{\"identity\":{\"application_credential\":{\"id\":\"id1\","
	          "\"secret\":\"s\"},\"methods\":[\"application_credential\"]}}}",
	          "an application credential needs no scope");
	cloud_set(&cloud, CLOUD_AUTH_TYPE, "v3oidcpassword");
	error_free(&err);
	check(!body_of(&cloud, &err) && strstr(err.message, "v3oidcpassword"),
	      "another way to sign in is refused");
}

static void found(const json_t *catalog, const struct keystone_wanted *w, const char *url,
                  const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *got = NULL;
	CLEANUP_FREE char *region = NULL;

	if (keystone_endpoint(catalog, w, &got, &region, &err) < 0)
		got = str_copy("refused");
	check_str(got, url, "%s", what);
}

static void test_catalog(void)
{
	json_t *catalog = json_loads(
		"[{\"type\":\"identity\",\"endpoints\":[{\"interface\":\"public\",\"region_id\":"
		"\"R1\",\"url\":\"http://id\"}]},{\"type\":\"image\",\"endpoints\":["
		"{\"interface\":\"public\",\"region_id\":\"R1\",\"url\":\"http://r1\"},"
		"{\"interface\":\"public\",\"region\":\"R2\",\"url\":\"http://r2\"},"
		"{\"interface\":\"admin\",\"region_id\":\"R1\",\"url\":\"http://adm\"}]}]",
		0, NULL);
	struct keystone_wanted w = {.type = "image", .interface = "public"};

	found(catalog, &w, "refused", "several regions and no word which: refused");
	w.otherwise = "R1";
	found(catalog, &w, "http://r1", "the cloud's own region");
	w.location = "R2";
	found(catalog, &w, "http://r2", "the location's name is a region");
	w.region = "R1";
	found(catalog, &w, "http://r1", "the region that was set comes first");
	w.region = "R3";
	found(catalog, &w, "refused", "a region that is not there: refused");
	w = (struct keystone_wanted){.type = "image", .interface = "admin", .location = "default"};
	found(catalog, &w, "http://adm", "the only one of an interface");
	w.interface = "internal";
	found(catalog, &w, "refused", "an interface that is not there: refused");
	json_decref(catalog);
}

static struct publish_image an_image(void)
{
	return (struct publish_image){
		.name = (char *)"node",
		.version = (char *)"1",
		.arch = (char *)"amd64",
		.os_distro = (char *)"debian",
		.os_version = (char *)"12",
		.size_bytes = 5,
		.virtual_bytes = (1ull << 30) + 1,
		.md5 = (char *)"m",
		.sha256 = (char *)"s2",
		.sha512 = (char *)"s5",
	};
}

static json_t *wanted_with(const char *settings, const char *boot_type, struct error *err)
{
	struct publish_location where = {.settings = json_loads(settings, 0, NULL)};
	struct publish_image image = an_image();
	json_t *wanted = NULL;

	glance_wanted(&image, &where, boot_type, &wanted, err);
	json_decref(where.settings);
	return wanted;
}

static void test_wanted(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	json_t *w = wanted_with("{\"visibility\": \"public\", \"min_ram\": \"512\", \"tags\": "
	                        "[\"gpu\"], \"protected\": true, \"properties\": {\"a/b\": 3}}",
	                        "uefi-secure-boot", &err);
	json_t *begin = glance_begin_with(w, "id1");
	json_t *bios = wanted_with("{}", "bios", &err);

	check_str(glance_text(w, "name"), "node-1", "the name has the version");
	check_str(glance_text(w, "hw_firmware_type"), "uefi", "Secure Boot is UEFI");
	check_str(glance_text(w, "os_secure_boot"), "required", "and is required");
	check_str(glance_text(bios, "hw_firmware_type"), "bios", "BIOS is BIOS");
	check(!json_object_get(bios, "os_secure_boot"), "and says nothing of Secure Boot");
	check_str(glance_text(w, "architecture"), "x86_64", "amd64 is x86_64 there");
	check_str(glance_text(w, "a/b"), "3", "a property is a text");
	check(json_integer_value(json_object_get(w, "min_disk")) == 2, "the disk is rounded up");
	check(json_integer_value(json_object_get(w, "min_ram")) == 512, "memory is as was said");
	check_str(glance_text(begin, "name"), "node-1.unfinished", "it begins without its name");
	check_str(glance_text(begin, "visibility"), "private", "seen by nobody else");
	check(!json_object_get(begin, "tags") && !json_object_get(begin, "protected"),
	      "without tags, and not protected");
	json_decref(w);
	json_decref(begin);
	json_decref(bios);
}

static void test_settings(void)
{
	static const char *const bad[] = {
		"{\"properties\": {\"hw_firmware_type\": \"bios\"}}",
		"{\"properties\": {\"gpuimg_sha256\": \"x\"}}",
		"{\"properties\": {\"owner\": \"x\"}}",
		"{\"properties\": [\"x\"]}",
		"{\"tags\": \"x\"}",
		"{\"min_ram\": \"much\"}",
		"{\"protected\": \"maybe\"}",
		"{\"visibility\": \"secret\"}",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		json_t *wanted = wanted_with(bad[i], "uefi", &err);

		check(!wanted && error_exit_code(&err) == EXIT_USAGE, "refused: %s", bad[i]);
		json_decref(wanted);
	}
}

static void test_patch(void)
{
	json_t *wanted = json_loads("{\"name\": \"n\", \"tags\": [\"b\", \"b\"], \"a/b~\": \"1\", "
	                            "\"same\": \"x\", \"os_hidden\": false}",
	                            0, NULL);
	json_t *seen =
		json_loads("{\"name\": \"old\", \"tags\": [\"a\"], \"same\": \"x\"}", 0, NULL);
	json_t *patch = glance_patch(wanted, seen);
	CLEANUP_FREE char *text = json_dumps(patch, JSON_COMPACT);

	check_str(text,
	          "[{\"op\":\"replace\",\"path\":\"/name\",\"value\":\"n\"},"
	          "{\"op\":\"replace\",\"path\":\"/tags\",\"value\":[\"a\",\"b\"]},"
	          "{\"op\":\"add\",\"path\":\"/a~1b~0\",\"value\":\"1\"}]",
	          "only what differs is changed, and tags of others stay");
	json_decref(patch);
	patch = glance_patch(seen, seen);
	check(json_array_size(patch) == 0, "nothing is changed where all is as wanted");
	json_decref(patch);
	json_decref(wanted);
	json_decref(seen);
}

static void stored(const char *text, const char *want, const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct publish_image image = an_image();
	json_t *seen = json_loads(text, 0, NULL);
	const char *how = NULL;
	int result = glance_stored(&image, seen, &how, &err);

	check_str(result == 0 ? how : "other", want, "%s", what);
	check(result == 0 || error_exit_code(&err) == EXIT_PROOF, "and the exit code says it");
	json_decref(seen);
}

static void test_stored(void)
{
	stored("{\"size\": 5, \"os_hash_algo\": \"sha512\", \"os_hash_value\": \"s5\"}",
	       "server-sha512", "the server's SHA-512 counts");
	stored("{\"size\": 5, \"os_hash_algo\": \"sha512\", \"os_hash_value\": \"xx\", "
	       "\"checksum\": \"m\"}",
	       "other", "a right MD5 does not outweigh it");
	stored("{\"size\": 5, \"os_hash_algo\": \"sha256\", \"os_hash_value\": \"s2\"}",
	       "server-sha256", "SHA-256 does as well");
	stored("{\"size\": 5, \"os_hash_value\": null, \"checksum\": \"m\"}", "server-md5",
	       "an old server has MD5 only");
	stored("{\"size\": 5, \"checksum\": \"x\"}", "other", "which must be right");
	stored("{\"size\": 6, \"checksum\": \"m\"}", "other", "another size is other bytes");
	stored("{\"size\": 5, \"virtual_size\": 7, \"checksum\": \"m\"}", "other",
	       "and so is another virtual size");
}

static void test_states(void)
{
	json_t *saving = json_pack("{s:s}", "status", "saving");
	json_t *strange = json_pack("{s:s}", "status", "strange");

	check(glance_state(NULL) == GLANCE_ABSENT, "no image is absent");
	check(glance_state(saving) == GLANCE_WORKING, "one that is saved is worked on");
	check(glance_state(strange) == GLANCE_OTHER, "a status that we do not know is not guessed");
	json_decref(saving);
	json_decref(strange);
}

int main(void)
{
	test_uuid5();
	test_clouds();
	test_cloud_refusals();
	test_cloud_files();
	test_cloud_variables();
	test_bodies();
	test_catalog();
	test_wanted();
	test_settings();
	test_patch();
	test_stored();
	test_states();
	return tap_done();
}
