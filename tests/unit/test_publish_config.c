/* SPDX-License-Identifier: Apache-2.0 */
/* The targets file: what it says, and what is refused, with the line where it stands. */
#include "disk-fixture.h"
#include "publish/publish.h"
#include "tap.h"

static void write_text(const char *path, const char *text, mode_t mode)
{
	unlink(path);
	put(path, 0, text, strlen(text));
	chmod(path, mode);
}

static void refused(const char *text, const char *where, const char *part)
{
	CLEANUP_PUBLISH_TARGETS struct publish_targets t = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int result;

	write_text("targets.yaml", text, 0600);
	result = publish_targets_read(&t, "targets.yaml", &err);
	check(result == -1 && error_exit_code(&err) == EXIT_USAGE &&
	              str_starts(err.message, where) && strstr(err.message, part),
	      "refused: %s", err.message ? err.message : "not at all");
	check(t.count == 0, "nothing is left of it");
}

static void test_refusals(void)
{
	refused("", "targets.yaml: ", "'targets'");
	refused("targets: []\n", "targets.yaml: ", "'targets'");
	refused("targets: {\n", "targets.yaml:2: ", "");
	refused("targets:\n  a: {type: dir, path: /x}\nother: 1\n",
	        "targets.yaml:3: ", "unknown key");
	refused("targets:\n  a:\n    path: /x\n", "targets.yaml:3: ", "'type' is missing");
	refused("targets:\n  a:\n    type: ftp\n", "targets.yaml:3: ", "no type ftp");
	refused("targets:\n  a: word\n", "targets.yaml:2: ", "must be a mapping");
	refused("targets:\n  'a b': {type: dir, path: /x}\n", "targets.yaml:2: ", "not a name");
	refused("targets:\n  a:\n    type: dir\n", "targets.yaml:3: ", "needs 'path'");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    pth: /y\n",
	        "targets.yaml:5: ", "no key 'pth'");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    path: /y\n",
	        "targets.yaml:5: ", "twice");
	refused("targets:\n  a: {type: dir, path: /x}\n  a: {type: dir, path: /y}\n",
	        "targets.yaml:2: ", "'a/default' stands there twice");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    locations: [b, b]\n",
	        "targets.yaml:2: ", "'a/b' stands there twice");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    locations: 5\n",
	        "targets.yaml:5: ", "list of names");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    locations:\n      b: {pth: /}\n",
	        "targets.yaml:6: ", "no key 'pth'");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    locations: [a/b]\n",
	        "targets.yaml:3: ", "no name of a location");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    boot_type: efi\n",
	        "targets.yaml:3: ", "boot_type 'efi'");
	refused("targets:\n  a:\n    type: http\n    url: http://h\n    move: no\n",
	        "targets.yaml:5: ", "truth value");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    boot_type: [uefi]\n",
	        "targets.yaml:5: ", "'boot_type' must be one text");
	refused("targets:\n  a:\n    type: vco\n    url: u\n    customer: c\n    tags: [a, b]\n",
	        "targets.yaml:6: ", "'tags' must be one text");
	refused("targets:\n  a:\n    type: dir\n    path: true\n",
	        "targets.yaml:4: ", "'path' must be one text");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    locations:\n      b: /y\n",
	        "targets.yaml:6: ", "location 'b' must be a mapping");
	refused("targets:\n  a:\n    type: dir\n    path: /x\n    locations:\n"
	        "      b: {type: s3}\n",
	        "targets.yaml:6: ", "'type' belongs to a target");
	refused("targets:\n  a:\n    type: http\n    url: http://h\n    verify_tls: 1\n",
	        "targets.yaml:5: ", "'verify_tls' must be true or false");
	refused("targets:\n  a:\n    type: http\n    url: http://h\n    move: 'no'\n",
	        "targets.yaml:5: ", "'move' must be true or false");
	refused("targets:\n  a:\n    type: vco\n    url: u\n    customer: c\n    memory: 8G\n",
	        "targets.yaml:6: ", "'memory' must be a whole number");
	refused("targets:\n  a:\n    type: vco\n    url: u\n    customer: c\n    memory: [8]\n",
	        "targets.yaml:6: ", "'memory' must be a whole number");
	refused("targets:\n  a:\n    type: http\n    url: http://h\n    verify_tls: False\n",
	        "targets.yaml:5: ", "truth value");
	refused("targets:\n  a:\n    type: http\n    url: [[x]]\n",
	        "targets.yaml:4: ", "texts only");
}

static void test_secret_refusals(void)
{
	refused("targets:\n  a:\n    type: http\n    url: http://h\n    password: hunter2hunter2\n",
	        "targets.yaml:5: ", "does not belong here");
	refused("targets:\n  a:\n    type: http\n    url: http://h\n    token: {value: x}\n",
	        "targets.yaml:5: ", "{env: NAME} or {file: PATH}");
	refused("targets:\n  a:\n    type: http\n    url: http://h\n    token: {env: A, file: b}\n",
	        "targets.yaml:5: ", "{env: NAME} or {file: PATH}");
	refused("targets:\n  a:\n    type: s3\n    endpoint: http://h\n    bucket: b\n"
	        "    secret_key: 5\n",
	        "targets.yaml:6: ", "does not belong here");
	write_text("open.txt", "hunter2hunter2\n", 0644);
	refused("targets:\n  a:\n    type: http\n    url: http://h\n    token: {file: open.txt}\n",
	        "targets.yaml:5: ", "everybody on this host can read it");
}

static void test_secret_not_told(void)
{
	CLEANUP_PUBLISH_TARGETS struct publish_targets t = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	write_text("targets.yaml",
	           "targets:\n  a:\n    type: http\n    url: http://h\n"
	           "    password: hunter2hunter2\n",
	           0600);
	publish_targets_read(&t, "targets.yaml", &err);
	check(err.message && !strstr(err.message, "hunter2") && err.hint &&
	              !strstr(err.hint, "hunter2"),
	      "a secret in the file is refused without being told");
}

static const char good[] = "targets:\n"
			   "  cdn:\n"
			   "    type: s3\n"
			   "    endpoint: https://s3.example\n"
			   "    bucket: 2026\n"
			   "    region: eu\n"
			   "    path_style: false\n"
			   "    secret_key: {env: PUBLISH_TEST_KEY}\n"
			   "    access_key: {file: closed.txt}\n"
			   "    locations:\n"
			   "      one:\n"
			   "      two: {region: us, boot_type: uefi}\n"
			   "  disk: {type: dir, path: /srv, locations: [a, b]}\n";

static int secret_of(const struct publish_location *l, const char *key, char **ret,
                     struct strv *secrets, struct error *err)
{
	struct publish_job job = {.where = l, .secrets = secrets};

	return publish_secret(&job, key, ret, err);
}

static void test_good(void)
{
	CLEANUP_PUBLISH_TARGETS struct publish_targets t = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int result;

	write_text("closed.txt", "the-access-key\nmore\n", 0600);
	write_text("targets.yaml", good, 0644);
	result = publish_targets_read(&t, "targets.yaml", &err);
	check(result == 0 && t.count == 4, "a good file is read: %s",
	      err.message ? err.message : "four locations");
	if (t.count != 4)
		return;
	check_str(t.items[0].location, "one", "locations are in the file's order");
	check_str(publish_setting(&t.items[0], "region"), "eu", "the target's settings count");
	check_str(publish_setting(&t.items[1], "region"), "us", "those of a location over them");
	check_str(t.items[1].boot_type, "uefi", "a location asks for its own boot type");
	check_str(publish_setting(&t.items[0], "bucket"), "2026", "a number may be a name");
	check(publish_number(&t.items[0], "bucket", 1) == 2026,
	      "and is a number where one is wanted");
	check(!publish_flag(&t.items[0], "path_style", true), "false is false");
	check(publish_flag(&t.items[0], "verify_tls", true), "what is not said is as it was");
	check_str(t.items[3].target, "disk", "a list of names makes locations too");
	check(publish_targets_digests(&t) & DIGEST_PARTS, "digests are what the backends need");
}

static void test_secrets(void)
{
	CLEANUP_PUBLISH_TARGETS struct publish_targets t = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv secrets = {0};
	CLEANUP_FREE char *file = NULL;
	CLEANUP_FREE char *env = NULL;
	CLEANUP_FREE char *none = NULL;
	CLEANUP_FREE char *text = NULL;

	if (publish_targets_read(&t, "targets.yaml", &err) < 0)
		return;
	check(secret_of(&t.items[0], "access_key", &file, &secrets, &err) == 0, "from a file");
	check_str(file, "the-access-key", "a secret is the file's first line");
	unsetenv("PUBLISH_TEST_KEY");
	check(secret_of(&t.items[0], "secret_key", &env, &secrets, &err) == -1 &&
	              error_exit_code(&err) == EXIT_USAGE &&
	              strstr(err.message, "PUBLISH_TEST_KEY"),
	      "a variable that is not set is told by name");
	setenv("PUBLISH_TEST_KEY", "hunter2hunter2", 1);
	check(secret_of(&t.items[0], "secret_key", &env, &secrets, &err) == 0, "from a variable");
	check_str(env, "hunter2hunter2", "a secret is what the variable says");
	check(secret_of(&t.items[0], "session_token", &none, &secrets, &err) == 0 && !none,
	      "one that is not named is none");
	check(strv_has(&secrets, "hunter2hunter2") && strv_has(&secrets, "the-access-key"),
	      "both are known to what scrubs texts");
	text = json_dumps(t.items[0].settings, 0);
	check(!strstr(text, "hunter2") && !strstr(text, "the-access-key"),
	      "neither is among the settings");
	chmod("closed.txt", 0604);
	check(secret_of(&t.items[0], "access_key", &none, &secrets, &err) == -1 && !none,
	      "a file that was opened to all meanwhile is refused when it is read");
}

static void test_files(void)
{
	CLEANUP_PUBLISH_TARGETS struct publish_targets t = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	check(publish_targets_read(&t, "missing.yaml", &err) == -1 &&
	              error_exit_code(&err) == EXIT_USAGE && err.hint,
	      "a missing file is told, with what it should be");
	check(publish_targets_read(&t, ".", &err) == -1, "a directory is no file");
	make_file("huge.yaml", 2 * MIB);
	check(publish_targets_read(&t, "huge.yaml", &err) == -1 && strstr(err.message, "too large"),
	      "one of some megabytes is not read");
}

int main(void)
{
	static const char *const programs[] = {NULL};

	fixture_begin(programs);
	test_refusals();
	test_secret_refusals();
	test_secret_not_told();
	test_good();
	test_secrets();
	test_files();
	return tap_done();
}
