/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "builder/boot.h"
#include "builder/disk-internal.h"
#include "builder/finding.h"
#include "builder/json-text.h"
#include "builder/manifest.h"
#include "builder/packages.h"
#include "builder/sums-file.h"
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

#define HASH_1 "1111111111111111111111111111111111111111111111111111111111111111"
#define HASH_2 "2222222222222222222222222222222222222222222222222222222222222222"
#define HASH_B "ABCDEF2222222222222222222222222222222222222222222222222222222222"

/* One directory, and the artifact "a.qcow2" with its digest. */
struct sums {
	char *dir, *path, *lock;
	struct strv names, digests;
};

static struct sums make_sums(const char *dir, const char *sub)
{
	struct sums s = {.dir = str_format("%s/%s", dir, sub)};

	s.path = str_format("%s/SHA256SUMS", s.dir);
	s.lock = str_format("%s/.SHA256SUMS.lock", s.dir);
	strv_add(&s.names, "a.qcow2");
	strv_add(&s.digests, HASH_1);
	check(mkdir(s.dir, 0777) == 0, "a directory is made");
	return s;
}

static void sums_release(struct sums *s)
{
	free(s->dir);
	free(s->path);
	free(s->lock);
	strv_free(&s->names);
	strv_free(&s->digests);
}

#define CLEANUP_SUMS CLEANUP(sums_release)

static int put(const struct sums *s, struct error *err)
{
	return sums_file_update(s->dir, &s->names, &s->digests, 200, err);
}

static int take_out(const struct sums *s, struct error *err)
{
	return sums_file_update(s->dir, &s->names, NULL, 200, err);
}

static ino_t inode(const char *path)
{
	struct stat st = {0};

	return lstat(path, &st) == 0 ? st.st_ino : 0;
}

static size_t count_entries(const char *path)
{
	DIR *dir = opendir(path);
	size_t count = 0;

	while (dir && readdir(dir))
		count++;
	if (dir)
		closedir(dir);
	return count - 2;
}

static void test_sums(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SUMS struct sums s = make_sums(dir, "sums");
	struct stat st = {0};
	mode_t old_mask = umask(027);
	ino_t before;

	check(take_out(&s, &err) == 0 && count_entries(s.dir) == 0,
	      "no line to take out: no file is made");
	check(put(&s, &err) == 0, "sums are made");
	check_str(read_text(s.path), HASH_1 "  a.qcow2\n", "in the form that sha256sum reads");
	check(stat(s.path, &st) == 0 && (st.st_mode & 07777) == 0640, "the umask is obeyed");
	umask(old_mask);
	before = inode(s.path);
	check(put(&s, &err) == 0 && inode(s.path) == before,
	      "sums that stay the same are not written");
	check(count_entries(s.dir) == 1, "neither a lock nor a temporary file is left");
	check(take_out(&s, &err) == 0 && count_entries(s.dir) == 0,
	      "with the last line the file goes");
}

#define OTHERS                                                                                     \
	"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n# a comment  a.qcow2\n"               \
	"1111  a.qcow2\n" HASH_2 " *b.qcow2\n" HASH_B "  b.qcow2\r\n" HASH_2 "  xa.qcow2\n"        \
	"SHA256 (a.qcow2) = " HASH_2 "\n" HASH_2 "   a.qcow2\n" HASH_2 "\t a.qcow2\n" HASH_2       \
	"  \n\n  a.qcow2\n" HASH_2 "0  a.qcow2\nx" HASH_2 "  a.qcow2\n"

static void test_sums_of_others(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SUMS struct sums s = make_sums(dir, "others");

	write_text(s.path, HASH_B "  a.qcow2\n" OTHERS HASH_2 " *a.qcow2\nlast");
	check(put(&s, &err) == 0, "sums are updated");
	check_str(read_text(s.path), OTHERS "last\n" HASH_1 "  a.qcow2\n",
	          "lines of others stay byte for byte, ours are replaced, a last newline is added");
	check(take_out(&s, &err) == 0, "sums are taken out");
	check_str(read_text(s.path), OTHERS "last\n", "and only ours");
	write_text(s.path, HASH_2 "  b.qcow2");
	check(take_out(&s, &err) == 0, "there is nothing to take out");
	check_str(read_text(s.path), HASH_2 "  b.qcow2", "so nothing is written");
	write_text(s.path, HASH_2 "  b.qcow2\n" HASH_2 "  a.qcow2");
	check(take_out(&s, &err) == 0, "our last line may lack its newline");
	check_str(read_text(s.path), HASH_2 "  b.qcow2\n", "it goes");
}

static void write_big(const char *path, size_t size)
{
	CLEANUP_FCLOSE FILE *file = fopen(path, "w");

	for (size_t i = 0; file && i < size; i++)
		putc(i % 100 == 99 ? '\n' : i % 1000 == 5 ? '\0' : 'x', file);
}

static void test_big_sums(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SUMS struct sums s = make_sums(dir, "big");
	struct stat st = {0};
	off_t size = (off_t)3 * 1024 * 1024;

	write_big(s.path, (size_t)size);
	check(put(&s, &err) == 0 && stat(s.path, &st) == 0, "3 MiB of lines, with NUL in them");
	/* 3 MiB do not end with a newline: it gets one. */
	check(st.st_size == size + 1 + (off_t)strlen(HASH_1 "  a.qcow2\n"), "are not cut");
	write_big(s.path, SUMS_FILE_MAX_BYTES + 1);
	check(put(&s, &err) < 0 && strstr(err.message, s.path) && strstr(err.message, "bytes") &&
	              err.hint && strstr(err.hint, "move it away"),
	      "a file above the bound is an error that names it and tells what to do");
	check(stat(s.path, &st) == 0 && st.st_size == (off_t)SUMS_FILE_MAX_BYTES + 1,
	      "it stays whole");
	check(count_entries(s.dir) == 1, "no lock is left behind by an error");
}

static void test_odd_sums(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error link_err = ERROR_INIT;
	CLEANUP_ERROR struct error fifo_err = ERROR_INIT;
	CLEANUP_SUMS struct sums s = make_sums(dir, "odd");
	CLEANUP_FREE char *target = str_format("%s/target", s.dir);

	check(mkdir(s.path, 0777) == 0 && put(&s, &err) < 0 && strstr(err.message, s.path) &&
	              err.hint,
	      "what cannot be read is an error, not an empty file");
	check(err.code == EXIT_HOST, "of the host");
	rmdir(s.path);
	write_text(target, "x\n");
	check(symlink("target", s.path) == 0 && put(&s, &link_err) < 0 &&
	              strstr(link_err.message, "symbolic link"),
	      "a symbolic link is neither followed nor replaced");
	check_str(read_text(target), "x\n", "its target stays");
	unlink(s.path);
	check(mkfifo(s.path, 0666) == 0 && take_out(&s, &fifo_err) < 0,
	      "a pipe is refused, not waited for");
}

static void test_sums_lock(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error link_err = ERROR_INIT;
	CLEANUP_SUMS struct sums s = make_sums(dir, "lock");
	CLEANUP_FREE char *target = str_format("%s/target", dir);
	CLEANUP_FREE char *stale = str_format("%s/.SHA256SUMS.0123456789abcdef.new", s.dir);
	CLEANUP_FREE char *other = str_format("%s/.SHA256SUMS.0123456789abcdeg.new", s.dir);
	CLEANUP_CLOSE int fd = open(s.lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);

	check(fd >= 0 && flock(fd, LOCK_EX) == 0, "somebody has the lock");
	check(put(&s, &err) < 0 && strstr(err.message, s.lock) && err.code == EXIT_HOST,
	      "waiting for it has an end, and the error names it");
	check(access(s.path, F_OK) < 0 && access(s.lock, F_OK) == 0,
	      "nothing is written and the lock of the other stays");
	flock(fd, LOCK_UN);
	write_text(stale, "half");
	write_text(other, "else");
	check(put(&s, &err) == 0 && access(s.lock, F_OK) < 0, "a lock that is free is taken");
	check(access(stale, F_OK) < 0 && access(other, F_OK) == 0,
	      "what a killed build left is removed, what only looks like it is not");
	check(symlink(target, s.lock) == 0 && take_out(&s, &link_err) < 0 &&
	              access(target, F_OK) < 0,
	      "a symbolic link is not a lock");
}

#define WRITERS 4
#define ROUNDS  25

/* One build after the other into the same directory: the lines go and come again. */
static void write_often(const char *dir, int number)
{
	struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_STRV struct strv digests = {0};
	bool ok = true;

	strv_addf(&names, "w%d.qcow2", number);
	strv_add(&digests, HASH_1);
	for (int i = 0; i < ROUNDS && ok; i++)
		ok = sums_file_update(dir, &names, NULL, SUMS_FILE_WAIT_MS, &err) == 0 &&
		     sums_file_update(dir, &names, &digests, SUMS_FILE_WAIT_MS, &err) == 0;
	if (!ok)
		printf("# writer %d: %s\n", number, err.message);
	error_free(&err);
	fflush(stdout);
	_exit(ok ? 0 : 1);
}

static void test_two_builds(const char *dir)
{
	CLEANUP_SUMS struct sums s = make_sums(dir, "race");
	CLEANUP_STRV struct strv lines = {0};
	int failed = 0, status;

	for (int i = 0; i < WRITERS; i++)
		if (fork() == 0)
			write_often(s.dir, i);
	while (wait(&status) > 0)
		failed += status != 0;
	check(failed == 0, "builds into one directory at a time do not fail");
	lines = strv_split(read_text(s.path), "\n");
	strv_sort(&lines);
	check(lines.count == WRITERS, "each has its line (%zu of %d)", lines.count, WRITERS);
	for (size_t i = 0; i < lines.count; i++) {
		CLEANUP_FREE char *want = str_format(HASH_1 "  w%zu.qcow2", i);

		check_str(lines.items[i], want, "and it is whole");
	}
	check(count_entries(s.dir) == 1, "no lock and no temporary file is left");
}

static void test_temporary(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = str_format("%s/y.manifest.json", dir);
	CLEANUP_FREE char *trap = str_format("%s.partial", path);
	CLEANUP_FREE char *target = str_format("%s/trapped", dir);
	struct stat st = {0};
	json_t *value = json_object();

	write_text(target, "mine\n");
	check(symlink("trapped", trap) == 0 && manifest_write(value, path, &err) == 0,
	      "a link waits where a temporary name could be");
	check_str(read_text(target), "mine\n", "nothing is written through it");
	check(lstat(path, &st) == 0 && S_ISREG(st.st_mode), "the manifest is a file");
	json_decref(value);
}

static void check_text(const char *text, const char *want, const char *name)
{
	json_t *value = json_text(text);

	check_str(json_string_value(value), want, "%s", name);
	json_decref(value);
}

static void test_json_text(void)
{
	CLEANUP_STRV struct strv list = {0};
	json_t *null = json_text(NULL), *array;

	check(json_is_null(null), "no text is null");
	json_decref(null);
	check_text("caf\xc3\xa9\x1b", "caf\xc3\xa9\x1b", "UTF-8 stays as it is");
	check_text("caf\xe9", "caf?", "Latin-1 is shown");
	check_text("a\xed\xa0\x80z", "a???z", "a surrogate is shown");
	check_text("a\xe0\x80\x80z", "a???z", "an overlong form is shown");
	strv_add(&list, "a");
	strv_add(&list, "\xff");
	array = json_text_list(&list);
	check(json_array_size(array) == 2, "a list keeps its length");
	json_decref(array);
}

/* The smallest build that has a manifest, with a byte of Latin-1 wherever text is the guest's. */
static void test_odd_values(void)
{
	static char bad[] = "caf\xe9";
	struct options o = {.profile = bad};
	struct guest_kernel kernel = {.version = bad, .image = bad, .initramfs = bad};
	struct guest guest = {.pretty_name = bad, .arch = bad, .generator = bad};
	struct guest result = {.kernels = &kernel, .kernel_count = 1};
	struct boot_entry entry = {.file = bad, .title = bad, .kernel = bad};
	struct disk disk = {0};
	struct build b = {
		.options = &o,
		.result_disk = &disk,
		.base_path = bad,
		.guest = &guest,
		.result_guest = &result,
		.after = {.entries = &entry, .count = 1},
		.export_stats = {.method = "x", .compression = "y"},
		.steps = json_array(),
	};
	json_t *manifest, *base, *inputs;

	strv_add(&entry.args, bad);
	strv_add(&b.packages_after, bad);
	strv_add(&o.upload, bad);
	finding_bad(&b.findings, bad, bad, "%s \xed\xa0\x80", bad);
	manifest = manifest_make(&b, "/x/\xe9.qcow2", HASH_1, NULL);
	base = json_object_get(manifest, "base");
	inputs = json_object_get(manifest, "inputs");
	check_str(json_string_value(json_object_get(base, "path")), "caf?", "the base is told");
	check_str(json_string_value(json_object_get(inputs, "profile")), "caf?", "so are inputs");
	check(json_array_size(json_object_get(inputs, "uploads")) == 1, "and lists of them");
	check(json_array_size(json_object_get(manifest, "kernels")) == 1, "no kernel vanishes");
	check(json_array_size(json_object_get(manifest, "entries")) == 1, "no entry vanishes");
	check(json_array_size(json_object_get(manifest, "proof")) == 1, "no finding vanishes");
	check(json_array_size(json_object_get(json_object_get(manifest, "packages"), "added")) == 1,
	      "no package vanishes");
	json_decref(manifest);
	json_decref(b.steps);
	findings_free(&b.findings);
	strv_free(&entry.args);
	strv_free(&b.packages_after);
	strv_free(&o.upload);
}

static void test_odd_facts(void)
{
	static char bad[] = "caf\xe9";
	struct boot_facts facts = {.kernel = bad}, back = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	json_t *json;

	strv_add(&facts.failed_units, bad);
	json = boot_facts_json(&facts);
	check(boot_facts_from_json(&back, json, &err) == 0 && back.failed_units.count == 1,
	      "no failed unit vanishes from the facts of a boot");
	check_str(back.kernel, "caf?", "and no text");
	json_decref(json);
	boot_facts_free(&back);
	strv_free(&facts.failed_units);
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
	test_temporary(dir);
	test_sums(dir);
	test_sums_of_others(dir);
	test_big_sums(dir);
	test_odd_sums(dir);
	test_sums_lock(dir);
	test_two_builds(dir);
	test_json_text();
	test_odd_values();
	test_odd_facts();
	test_findings();
	test_packages();
	CLEANUP_FREE char *remove = str_format("rm -rf '%s'", dir);

	return system(remove) == 0 ? tap_done() : 1;
}
