/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/finding.h"
#include "builder/manifest.h"
#include "builder/packages.h"
#include "tap.h"

static char *read_text(const char *path)
{
	static char text[4096];
	FILE *file = fopen(path, "r");
	size_t size = file ? fread(text, 1, sizeof(text) - 1, file) : 0;

	text[size] = '\0';
	if (file)
		fclose(file);
	return text;
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (file) {
		fputs(text, file);
		fclose(file);
	}
}

static void test_write(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = str_format("%s/x.manifest.json", dir);
	CLEANUP_FREE char *nowhere = str_format("%s/no/x.json", dir);
	CLEANUP_FREE char *partial = str_format("%s.partial", path);
	json_t *value = json_pack("{s:i, s:s}", "schema", 1, "name", "caf\xc3\xa9");

	check(manifest_write(value, path, &err) == 0, "a manifest is written");
	check_str(read_text(path), "{\n  \"schema\": 1,\n  \"name\": \"caf\xc3\xa9\"\n}\n",
	          "indented, with a newline at its end");
	check(access(partial, F_OK) < 0, "no partial file is left");
	check(manifest_write(value, nowhere, &err) < 0 && strstr(err.message, nowhere),
	      "a directory that is not there is an error that names the file");
	json_decref(value);
}

static void test_sums(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = str_format("%s/SHA256SUMS", dir);
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_STRV struct strv digests = {0};

	strv_add(&names, "a.qcow2");
	strv_add(&digests, "1111");
	check(manifest_update_sums(dir, &names, &digests, &err) == 0, "sums are made");
	check_str(read_text(path), "1111  a.qcow2\n", "in the form that sha256sum reads");
	write_text(path, "0000  a.qcow2\n2222  b.qcow2\nrubbish\n");
	check(manifest_update_sums(dir, &names, &digests, &err) == 0, "sums are updated");
	check_str(read_text(path), "2222  b.qcow2\n1111  a.qcow2\n",
	          "other files keep their lines, ours is replaced, rubbish goes");
}

static void test_findings(void)
{
	struct findings f = {0};
	json_t *list;

	finding_ok(&f, "a", "fine %d", 1);
	finding_bad(&f, "b", "do it", "entry '%s' is wrong", "x\x1b[31m");
	finding_note(&f, "c", "by the way");
	list = findings_json(&f);
	check(f.count == 3 && f.bad == 1, "bad ones are counted");
	check_str(json_string_value(json_object_get(json_array_get(list, 1), "what")),
	          "entry 'x?[31m' is wrong", "what the guest wrote is made harmless");
	check_str(json_string_value(json_object_get(json_array_get(list, 1), "cure")), "do it",
	          "a bad one has its cure");
	check(!json_object_get(json_array_get(list, 0), "cure"), "a good one has none");
	json_decref(list);
	findings_free(&f);
}

static void test_packages(void)
{
	CLEANUP_STRV struct strv before = strv_split("a=1 b=1 c=1", " ");
	CLEANUP_STRV struct strv after = strv_split("a=1 b=2 d=1", " ");
	CLEANUP_STRV struct strv added = packages_minus(&after, &before);
	CLEANUP_STRV struct strv gone = packages_minus(&before, &after);
	CLEANUP_FREE char *added_text = strv_join(&added, " ");
	CLEANUP_FREE char *gone_text = strv_join(&gone, " ");

	check_str(added_text, "b=2 d=1", "packages that came, or changed their version");
	check_str(gone_text, "b=1 c=1", "packages that went");
}

int main(void)
{
	char dir[] = "/tmp/gpuimg-manifest.XXXXXX";

	if (!mkdtemp(dir))
		return 1;
	test_write(dir);
	test_sums(dir);
	test_findings();
	test_packages();
	CLEANUP_FREE char *remove = str_format("rm -rf '%s'", dir);

	return system(remove) == 0 ? tap_done() : 1;
}
