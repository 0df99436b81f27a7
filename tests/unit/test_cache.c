/* SPDX-License-Identifier: Apache-2.0 */
/* The cache: what comes out is what went in, or nothing; with one process and with many. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "builder/cache-internal.h"
#include "builder/digest.h"
#include "builder/tree.h"
#include "tap.h"

#define CHILDREN 6
#define ROUNDS   40
#define KEYS     5

static void write_file(const char *path, const void *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		printf("Bail out! cannot write %s\n", path);
	cleanup_close(&fd);
}

static void write_text(const char *path, const char *text)
{
	write_file(path, text, strlen(text));
}

/* NULL: not there. */
static char *read_text(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	CLEANUP_FREE char *text = mem_alloc(1 << 20);

	return fd >= 0 && read(fd, text, (1 << 20) - 1) >= 0 ? str_copy(text) : NULL;
}

static bool exists(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0;
}

static void set_age(const char *path, time_t seconds)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT},
	                                  {.tv_sec = time(NULL) - seconds}};

	if (utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) < 0)
		printf("Bail out! cannot set the time of %s\n", path);
}

/* A cache with a log file of its own, in the current directory. */
struct fixture {
	struct cache *cache;
	struct log *log;
};

static struct fixture open_fixture(const char *dir, uint64_t max_bytes, bool disabled,
                                   const char *log_name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct fixture f = {0};

	if (log_open(&f.log, log_name, LOG_QUIET, &err) < 0 ||
	    cache_open(&f.cache, dir, max_bytes, disabled, f.log, &err) < 0)
		printf("Bail out! %s\n", err.message);
	return f;
}

static void close_fixture(struct fixture *f)
{
	cache_close(f->cache);
	log_close(f->log);
}
#define CLEANUP_FIXTURE __attribute__((cleanup(close_fixture)))

static bool logged(const char *log_name, const char *words)
{
	CLEANUP_FREE char *text = read_text(log_name);

	return text && strstr(text, words);
}

static struct cache_key *key_of(const char *kind, const char *value)
{
	struct cache_key *key = cache_key_new(kind);

	cache_key_add(key, "input", value);
	return key;
}

static char *path_of(const char *dir, struct cache_key *key, const char *suffix)
{
	return str_format("%s/results/%s/%s.%s", dir, key->kind, cache_key_hex(key), suffix);
}

static void put_text(struct cache *cache, const char *kind, const char *value, const char *text)
{
	CLEANUP_CACHE_KEY struct cache_key *key = key_of(kind, value);

	write_text("from", text);
	cache_put(cache, key, "from", NULL);
}

/* What the cache has; NULL: nothing. */
static char *get_text(struct cache *cache, const char *kind, const char *value)
{
	CLEANUP_CACHE_KEY struct cache_key *key = key_of(kind, value);
	CLEANUP_ERROR struct error err = ERROR_INIT;

	unlink("to");
	return cache_get(cache, key, "to", NULL, &err) == 1 ? read_text("to") : NULL;
}

static bool has(struct cache *cache, const char *kind, const char *value)
{
	CLEANUP_FREE char *text = get_text(cache, kind, value);

	return text != NULL;
}

/* --- Keys --- */

static char *hex_of(void (*fill)(struct cache_key *key))
{
	CLEANUP_CACHE_KEY struct cache_key *key = cache_key_new("kind");

	fill(key);
	return str_copy(cache_key_hex(key));
}

static void fill_ab(struct cache_key *key)
{
	cache_key_add(key, "a", "bc");
}

static void fill_shifted(struct cache_key *key)
{
	cache_key_add(key, "ab", "c");
}

static void fill_empty(struct cache_key *key)
{
	cache_key_add(key, "a", "");
}

static void fill_null(struct cache_key *key)
{
	cache_key_add(key, "a", NULL);
}

static void fill_int(struct cache_key *key)
{
	cache_key_add_int(key, "a", 1);
}

static void fill_digit(struct cache_key *key)
{
	cache_key_add(key, "a", "1");
}

static void fill_one(struct cache_key *key)
{
	CLEANUP_STRV struct strv list = {0};

	strv_add(&list, "x y");
	cache_key_add_list(key, "a", &list);
}

static void fill_two(struct cache_key *key)
{
	CLEANUP_STRV struct strv list = {0};

	strv_add(&list, "x");
	strv_add(&list, "y");
	cache_key_add_list(key, "a", &list);
}

static void fill_pair(struct cache_key *key)
{
	cache_key_add(key, "a", "b");
	cache_key_add(key, "c", "d");
}

/* Without lengths, the bytes of fill_pair(). */
static void fill_like_pair(struct cache_key *key)
{
	cache_key_add(key, "a", "bctd");
}

static void fill_nothing(struct cache_key *key)
{
	(void)key;
}

static void fill_file(struct cache_key *key)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (cache_key_add_file(key, "a", "input-file", &err) < 0)
		printf("Bail out! %s\n", err.message);
}

static void test_keys(void)
{
	void (*const fills[])(struct cache_key *) = {
		fill_ab,  fill_shifted, fill_empty, fill_null,      fill_int,    fill_digit,
		fill_one, fill_two,     fill_pair,  fill_like_pair, fill_nothing};
	CLEANUP_STRV struct strv seen = {0};
	CLEANUP_FREE char *again = hex_of(fill_ab);
	CLEANUP_CACHE_KEY struct cache_key *other = cache_key_new("other-kind");

	for (size_t i = 0; i < sizeof(fills) / sizeof(fills[0]); i++) {
		char *hex = hex_of(fills[i]);

		check(strlen(hex) == 64 && !strv_has(&seen, hex),
		      "inputs of form %zu have a key of their own", i);
		strv_take(&seen, hex);
	}
	check_str(again, seen.items[0], "the same inputs give the same key");
	check(!strv_has(&seen, cache_key_hex(other)), "the kind is part of the key");
	check(json_object_get(other->inputs, "program") &&
	              json_object_get(other->inputs, "cache_format"),
	      "the program and the format are always inputs");
	write_text("input-file", "one");
	CLEANUP_FREE char *one = hex_of(fill_file);
	write_text("input-file", "two");
	CLEANUP_FREE char *two = hex_of(fill_file);
	check(strcmp(one, two) != 0, "a file counts by its content");
}

static void test_key_misuse(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("misuse", 0, false, "log");
	CLEANUP_CACHE_KEY struct cache_key *late = key_of("kind", "x");
	CLEANUP_CACHE_KEY struct cache_key *outside = key_of("../kind", "x");
	CLEANUP_CACHE_KEY struct cache_key *missing = cache_key_new("kind");
	CLEANUP_ERROR struct error err = ERROR_INIT;

	write_text("from", "text");
	cache_key_hex(late);
	cache_key_add(late, "more", "y");
	cache_put(f.cache, late, "from", NULL);
	check(cache_get(f.cache, late, "late", NULL, &err) == 0 && logged("log", "not kept"),
	      "an input that comes after the digest makes the key useless, and is told");
	cache_put(f.cache, outside, "from", NULL);
	check(!exists("misuse/kind") && cache_get(f.cache, outside, "late", NULL, &err) == 0,
	      "a kind never leads outside");
	check(cache_key_add_file(missing, "a", "no-such-file", &err) < 0 &&
	              strstr(err.message, "no-such-file"),
	      "an input that cannot be read is an error with its path");
}

/* --- Entries --- */

static void test_round_trip(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("deep/er/cache", 0, false, "log");
	CLEANUP_CACHE_KEY struct cache_key *key = key_of("kind", "value");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *got = NULL;
	CLEANUP_FREE char *from = NULL;
	json_t *meta = json_pack("{s:s}", "word", "meta"), *ret_meta = NULL;
	struct stat st;

	write_text("from", "the data");
	check(cache_get(f.cache, key, "got", &ret_meta, &err) == 0 && !ret_meta && !exists("got"),
	      "what was never put is a miss, and makes no file");
	cache_put(f.cache, key, "from", meta);
	check(cache_get(f.cache, key, "got", &ret_meta, &err) == 1, "what was put is a hit");
	got = read_text("got");
	check_str(got, "the data", "with its content");
	check_str(json_string_value(json_object_get(ret_meta, "word")), "meta", "and its meta");
	check(stat("got", &st) == 0 && (st.st_mode & 07777) == 0644,
	      "as readable as the umask lets it be");
	from = read_text("from");
	check_str(from, "the data", "the file that was put stays");
	check(stat("deep/er/cache", &st) == 0 && (st.st_mode & 0777) == 0700 &&
	              stat("deep/er/cache/results", &st) == 0 && (st.st_mode & 0777) == 0700,
	      "the directories are made, for their user alone");
	check(cache_get(f.cache, key, "got", NULL, &err) < 0 && strstr(err.message, "'got'"),
	      "a file that is there already is not written");
	check(!has(f.cache, "kind", "other") && !has(f.cache, "other", "value"),
	      "another input or kind is a miss");
	check(!logged("log", "warning"), "none of it is worth a warning");
	json_decref(meta);
	json_decref(ret_meta);
}

static void test_replace(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("replace", 0, false, "log");
	CLEANUP_FREE char *empty = NULL;
	CLEANUP_FREE char *second = NULL;

	put_text(f.cache, "kind", "a", "");
	empty = get_text(f.cache, "kind", "a");
	check_str(empty, "", "nothing is a result too");
	put_text(f.cache, "kind", "a", "second");
	second = get_text(f.cache, "kind", "a");
	check_str(second, "second", "the last one put wins");
}

enum harm {
	FLIPPED,
	CUT,
	LONGER,
	GARBLED,
	EMPTY_JSON,
	NO_DATA,
	OTHER_KEY,
	LINK_DATA,
	LINK_JSON,
	FIFO
};

static void do_harm(enum harm harm, const char *data, const char *json)
{
	CLEANUP_FREE char *text = read_text(json);
	char *key = text ? strstr(text, "\"key\": \"") : NULL;

	switch (harm) {
	case FLIPPED:
		write_text(data, "The data");
		break;
	case CUT:
		write_text(data, "the");
		break;
	case LONGER:
		write_text(data, "the data and more");
		break;
	case GARBLED:
		write_text(json, "{\"format\": 1, ");
		break;
	case EMPTY_JSON:
		write_text(json, "");
		break;
	case NO_DATA:
		unlink(data);
		break;
	case OTHER_KEY:
		if (key)
			key[strlen("\"key\": \"")] ^= 1;
		write_text(json, text ? text : "");
		break;
	case LINK_DATA:
		rename(data, "outside");
		if (symlink("../../../outside", data) < 0)
			printf("Bail out! no symlink\n");
		break;
	case LINK_JSON:
		rename(json, "outside");
		if (symlink("../../../outside", json) < 0)
			printf("Bail out! no symlink\n");
		break;
	case FIFO:
		unlink(data);
		if (mkfifo(data, 0600) < 0)
			printf("Bail out! no FIFO\n");
		break;
	}
}

static void test_damage(void)
{
	static const char *const names[] = {"a changed byte",      "data cut short",
	                                    "data that grew",      "garbled JSON",
	                                    "an empty JSON",       "missing data",
	                                    "another key's JSON",  "a link for the data",
	                                    "a link for the JSON", "a FIFO for the data"};

	for (int harm = FLIPPED; harm <= FIFO; harm++) {
		CLEANUP_FIXTURE struct fixture f = open_fixture("damage", 0, false, "log");
		CLEANUP_CACHE_KEY struct cache_key *key = key_of("kind", "value");
		CLEANUP_FREE char *data = path_of("damage", key, "data");
		CLEANUP_FREE char *json = path_of("damage", key, "json");
		bool was_there;

		unlink("outside");
		put_text(f.cache, "kind", "value", "the data");
		was_there = exists(data) && exists(json);
		do_harm((enum harm)harm, data, json);
		check(was_there && !has(f.cache, "kind", "value") && !exists("to"),
		      "%s is a miss that leaves no file", names[harm]);
		check(!exists(data) && !exists(json) && logged("log", cache_key_hex(key)),
		      "and the entry is removed, with a warning that names it");
		if (harm == LINK_DATA || harm == LINK_JSON)
			check(exists("outside"), "what the link leads to stays");
		put_text(f.cache, "kind", "value", "the data");
		check(has(f.cache, "kind", "value"), "and can be put again");
	}
}

static void test_large(void)
{
	size_t size = (3u << 20) + 17;
	CLEANUP_FIXTURE struct fixture f = open_fixture("large", 0, false, "log");
	CLEANUP_CACHE_KEY struct cache_key *key = key_of("kind", "large");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE unsigned char *data = mem_alloc(size);
	CLEANUP_FREE char *data_path = path_of("large", key, "data");
	CLEANUP_CLOSE int fd = -1;

	for (size_t i = 0; i < size; i++)
		data[i] = (unsigned char)(i * 31 + (i >> 9));
	write_file("from", data, size);
	cache_put(f.cache, key, "from", NULL);
	check(cache_get(f.cache, key, "large.out", NULL, &err) == 1 &&
	              system("cmp -s from large.out") == 0,
	      "a file of several pieces comes back as it was");
	unlink("large.out");
	fd = open(data_path, O_WRONLY | O_CLOEXEC);
	check(pwrite(fd, "\x99", 1, (off_t)size - 1) == 1 &&
	              cache_get(f.cache, key, "large.out", NULL, &err) == 0,
	      "its last byte counts");
}

static void test_full_target(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("target", 0, false, "log");
	CLEANUP_CACHE_KEY struct cache_key *key = key_of("kind", "a");
	CLEANUP_ERROR struct error err = ERROR_INIT;

	put_text(f.cache, "kind", "a", "text");
	check(cache_get(f.cache, key, "no/such/dir/to", NULL, &err) < 0 &&
	              strstr(err.message, "no/such/dir/to"),
	      "a place that cannot be written is an error with its path");
	check(has(f.cache, "kind", "a"), "and the entry is none the worse");
}

static void put_linked(struct cache *cache, const char *value, const char *from, const char *sha256)
{
	CLEANUP_CACHE_KEY struct cache_key *key = key_of("kind", value);

	cache_put_linked(cache, key, from, sha256, NULL);
}

static void test_linked(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("hard", 0, false, "log");
	CLEANUP_FREE char *hex = digest_memory("artifact", 8);
	CLEANUP_FREE char *other = digest_memory("Artifact", 8);
	CLEANUP_FREE char *got = NULL, *again = NULL, *through = NULL;
	CLEANUP_CACHE_ITEMS struct cache_items list = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct stat st;

	write_text("artifact", "artifact");
	put_linked(f.cache, "a", "artifact", hex);
	got = get_text(f.cache, "kind", "a");
	check_str(got, "artifact", "a file that was linked in comes out");
	check(stat("to", &st) == 0 && st.st_nlink == 1, "as a file of its own");
	check(cache_list(f.cache, false, &list, &err) == 0 && list.count == 1 &&
	              system("ls -A hard/results/kind | grep -q tmp") != 0,
	      "and no temporary file is left");
	unlink("artifact");
	again = get_text(f.cache, "kind", "a");
	check_str(again, "artifact", "also when the file is gone");
	write_text("artifact", "artifact");
	if (symlink("artifact", "artifact-link") < 0)
		printf("Bail out! no symlink\n");
	put_linked(f.cache, "b", "artifact-link", hex);
	through = get_text(f.cache, "kind", "b");
	check_str(through, "artifact", "a symbolic link gives the file that it leads to");
	put_linked(f.cache, "c", "artifact", other);
	check(!has(f.cache, "kind", "c"), "a file that is not what was said is a miss");
}

static void test_link_across(void)
{
	CLEANUP_FREE char *path = str_format("/dev/shm/gpuimg-cache-test-%d", (int)getpid());
	CLEANUP_FIXTURE struct fixture f = open_fixture("across", 0, false, "log");
	CLEANUP_FREE char *hex = digest_memory("far", 3);
	CLEANUP_FREE char *got = NULL;
	struct stat here, there;

	if (stat(".", &here) < 0 || stat("/dev/shm", &there) < 0 || access("/dev/shm", W_OK) < 0 ||
	    here.st_dev == there.st_dev) {
		check(true, "a file of another file system # SKIP needs /dev/shm");
		return;
	}
	write_text(path, "far");
	put_linked(f.cache, "a", path, hex);
	unlink(path);
	got = get_text(f.cache, "kind", "a");
	check_str(got, "far", "a file of another file system is copied");
}

static void test_spoilt_link(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("spoilt", 0, false, "log");
	CLEANUP_FREE char *hex = digest_memory("artifact", 8);
	CLEANUP_CLOSE int fd = -1;
	bool cloned;

	write_text("artifact", "artifact");
	put_linked(f.cache, "a", "artifact", hex);
	fd = open("artifact", O_WRONLY | O_CLOEXEC);
	if (pwrite(fd, "A", 1, 0) != 1)
		printf("Bail out! cannot write\n");
	cloned = has(f.cache, "kind", "a");
	check(cloned ? !logged("log", "warning") : logged("log", "is removed"),
	      "a file that is changed later spoils its entry at most, which is told");
	check(exists("artifact"), "and stays itself");
}

/* --- The bound --- */

static uint64_t results_bytes(struct cache *cache)
{
	CLEANUP_CACHE_ITEMS struct cache_items list = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	uint64_t bytes = 0;

	if (cache_list(cache, false, &list, &err) < 0)
		printf("Bail out! %s\n", err.message);
	for (size_t i = 0; i < list.count; i++)
		bytes += list.items[i].size_bytes;
	return bytes;
}

static void age_entry(const char *dir, const char *kind, const char *value, time_t seconds)
{
	CLEANUP_CACHE_KEY struct cache_key *key = key_of(kind, value);
	CLEANUP_FREE char *json = path_of(dir, key, "json");

	set_age(json, seconds);
}

static void put_bytes(struct cache *cache, const char *kind, const char *value, size_t size)
{
	CLEANUP_CACHE_KEY struct cache_key *key = key_of(kind, value);
	CLEANUP_FREE char *data = mem_alloc(size);

	write_file("from", data, size);
	cache_put(cache, key, "from", NULL);
}

static void test_bound(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("bound", 100000, false, "log");
	int newest = 0;

	put_bytes(f.cache, "kind", "a", 30000);
	put_bytes(f.cache, "other", "b", 30000);
	put_bytes(f.cache, "kind", "c", 30000);
	check(has(f.cache, "kind", "a") && has(f.cache, "other", "b") && has(f.cache, "kind", "c"),
	      "what fits stays");
	age_entry("bound", "kind", "a", 300);
	age_entry("bound", "other", "b", 200);
	age_entry("bound", "kind", "c", 100);
	check(has(f.cache, "kind", "a"), "the oldest one is used again");
	put_bytes(f.cache, "kind", "d", 30000);
	check(!has(f.cache, "other", "b"),
	      "the one that was not used for longest goes, of any kind");
	check(has(f.cache, "kind", "a") && has(f.cache, "kind", "c") && has(f.cache, "kind", "d"),
	      "the others stay");
	check(results_bytes(f.cache) <= 100000, "the bound holds");
	put_bytes(f.cache, "kind", "big", 98000);
	check(has(f.cache, "kind", "big") && !has(f.cache, "kind", "a") &&
	              !has(f.cache, "kind", "d"),
	      "the new one stays, though all others have to go");
	for (int i = 0; i < 8; i++) {
		CLEANUP_FREE char *value = str_format("quick %d", i);

		put_bytes(f.cache, "kind", value, 98000);
		newest += has(f.cache, "kind", value);
	}
	check(newest == 8, "and so does each that is put within the same second");
	age_entry("bound", "kind", "quick 7", -1000);
	put_bytes(f.cache, "kind", "big", 98000);
	check(has(f.cache, "kind", "big"),
	      "and one that was put while the clock was ahead does not push it out");
	put_bytes(f.cache, "kind", "bigger", 100001);
	check(!has(f.cache, "kind", "bigger") && has(f.cache, "kind", "big") &&
	              logged("log", "larger than the cache"),
	      "one that alone is too large is not kept, which is told, and costs no other one");
}

static void test_prune(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("prune", 0, false, "log");
	CLEANUP_CACHE_ITEMS struct cache_items removed = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	put_bytes(f.cache, "kind", "a", 1000);
	put_bytes(f.cache, "other", "b", 1000);
	check(cache_prune(f.cache, "kind", 0, &removed, &err) == 0 && removed.count == 1 &&
	              str_equal(removed.items[0].kind, "kind") &&
	              removed.items[0].size_bytes > 1000,
	      "a prune of one kind tells what it removed");
	check(!has(f.cache, "kind", "a") && has(f.cache, "other", "b"), "and leaves the others");
	check(cache_prune(f.cache, NULL, 100000, NULL, &err) == 0 && has(f.cache, "other", "b"),
	      "what fits into the size stays");
	check(cache_prune(f.cache, NULL, 0, NULL, &err) == 0 && results_bytes(f.cache) == 0,
	      "a prune to nothing removes all");
}

static void test_leftovers(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("left", 0, false, "log");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CACHE_KEY struct cache_key *key = key_of("kind", "orphan");
	CLEANUP_FREE char *orphan = path_of("left", key, "data");
	CLEANUP_CLOSE int held = -1;

	put_bytes(f.cache, "kind", "a", 1000);
	write_text("left/results/kind/.dead.tmp", "x");
	write_text("left/results/kind/.held.tmp", "x");
	write_text("left/results/.young.tmp", "x");
	write_text("left/results/.old.tmp", "x");
	write_text("left/results/kind/notes", "x");
	write_text(orphan, "x");
	set_age("left/results/.old.tmp", 90000);
	held = open("left/results/kind/.held.tmp", O_RDONLY | O_CLOEXEC);
	check(flock(held, LOCK_EX | LOCK_NB) == 0 &&
	              cache_prune(f.cache, NULL, 1 << 20, NULL, &err) == 0 &&
	              has(f.cache, "kind", "a"),
	      "a prune with room keeps the entries");
	check(!exists("left/results/kind/.dead.tmp") && !exists("left/results/.old.tmp") &&
	              !exists(orphan),
	      "what a dead process left is removed");
	check(exists("left/results/kind/.held.tmp") && exists("left/results/.young.tmp"),
	      "what a living one writes stays");
	check(exists("left/results/kind/notes"), "what is not ours stays");
}

/* --- Directories that are not to be used --- */

static void test_disabled(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("off", 0, true, "log");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *hex = NULL;

	put_text(f.cache, "kind", "a", "text");
	check(!has(f.cache, "kind", "a") && !exists("off"), "a disabled cache makes nothing");
	check(cache_digest_file(f.cache, "from", NULL, &hex, &err) == 0 && strlen(hex) == 64,
	      "and still computes digests");
}

static void unusable(const char *dir, const char *words, const char *sentence)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture(dir, 0, false, "unusable.log");

	put_text(f.cache, "kind", "a", "text");
	check(!has(f.cache, "kind", "a") && logged("unusable.log", words), "%s", sentence);
}

static void test_unusable(void)
{
	write_text("a-file", "x");
	unusable("a-file", "'a-file", "a file in its place costs a warning, no more");
	if (mkdir("linked", 0700) < 0 || mkdir("elsewhere", 0700) < 0 ||
	    symlink("../elsewhere", "linked/results") < 0 || mkdir("open", 0700) < 0 ||
	    mkdir("open/results", 0777) < 0 || chmod("open/results", 0777) < 0)
		printf("Bail out! cannot make directories\n");
	unusable("linked", "'linked/results'", "a link in place of the results is not followed");
	check(!exists("elsewhere/kind"), "and nothing is made where it leads");
	unusable("open", "others may write", "results that others can write are not used");
	if (geteuid() != 0) {
		check(true, "a directory of another user # SKIP needs root");
		return;
	}
	if (mkdir("foreign", 0700) < 0 || chown("foreign", 65534, 65534) < 0 ||
	    mkdir("inner", 0700) < 0 || mkdir("inner/results", 0700) < 0 ||
	    chown("inner/results", 65534, 65534) < 0)
		printf("Bail out! cannot chown\n");
	unusable("foreign", "another user", "a directory of another user is not used");
	unusable("inner", "another user", "nor are results of another user");
}

/* --- Digests --- */

static char *digest_of(struct cache *cache, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char *hex = NULL;

	if (cache_digest_file(cache, path, NULL, &hex, &err) < 0)
		printf("# %s\n", err.message);
	return hex;
}

/* Puts another digest for each remembered file: so it shows where a digest came from. */
static size_t spoil_memo(const char *path, const char *hex)
{
	json_t *memo = json_load_file(path, 0, NULL), *value;
	size_t count = json_object_size(memo);
	const char *name;

	json_object_foreach(memo, name, value)
	{
		json_object_set_new(memo, name, json_string(hex));
	}
	if (memo)
		json_dump_file(memo, path, 0);
	json_decref(memo);
	return count;
}

static void test_digests(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("digests", 0, false, "log");
	CLEANUP_FREE char *fresh = NULL, *first = NULL, *second = NULL, *changed = NULL;
	CLEANUP_FREE char *repaired = NULL, *marker = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const char *const memo = "digests/results/digests.json";

	marker = str_format("%064d", 7);
	write_text("young", "abc");
	fresh = digest_of(f.cache, "young");
	check_str(fresh, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	          "a digest is the SHA-256 of the content");
	check(!exists(memo), "a file that changed just now is not remembered");
	nanosleep(&(struct timespec){2, 100000000}, NULL);
	first = digest_of(f.cache, "young");
	check_str(first, fresh, "later it has the same digest");
	check(spoil_memo(memo, marker) == 1, "and is remembered then");
	second = digest_of(f.cache, "young");
	check_str(second, marker, "what is remembered is not read again");
	write_text("young", "abd");
	changed = digest_of(f.cache, "young");
	check(changed && strcmp(changed, marker) != 0 && strcmp(changed, fresh) != 0,
	      "a file that changed is read");
	write_text(memo, "{\"x\": ");
	nanosleep(&(struct timespec){2, 100000000}, NULL);
	repaired = digest_of(f.cache, "young");
	check_str(repaired, changed, "a garbled record is ignored");
	check(spoil_memo(memo, marker) == 1, "and made anew");
	check(cache_digest_file(f.cache, "no-such-file", NULL, &repaired, &err) < 0 &&
	              strstr(err.message, "no-such-file"),
	      "a file that is not there is an error with its path");
}

static void test_digest_bound(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("many", 0, false, "log");
	json_t *memo = json_object();
	CLEANUP_FREE char *hex = NULL;

	for (int i = 0; i < 1500; i++) {
		CLEANUP_FREE char *name = str_format("old-%d", i);

		json_object_set_new(memo, name, json_string("x"));
	}
	json_dump_file(memo, "many/results/digests.json", 0);
	json_decref(memo);
	hex = digest_of(f.cache, "/proc/self/exe");
	memo = json_load_file("many/results/digests.json", 0, NULL);
	check(hex && json_object_size(memo) == 1000 && !json_object_get(memo, "old-0") &&
	              json_object_get(memo, "old-1499"),
	      "a thousand files are remembered, and the oldest forgotten");
	json_decref(memo);
}

/* --- Many at once --- */

/*
 * The content differs from one writer to the next, but each result is of one piece. 1: a hit,
 * 0: a miss, -1: something else.
 */
static int one_round(struct cache *cache, unsigned child, unsigned round)
{
	CLEANUP_FREE char *value = str_format("%u", (child * 7 + round * 3) % KEYS);
	CLEANUP_CACHE_KEY struct cache_key *key = key_of("kind", value);
	CLEANUP_FREE char *from = str_format("from.%u", child);
	CLEANUP_FREE char *to = str_format("to.%u", child);
	CLEANUP_FREE char *text = str_format("%s by %u/%u %0*d", value, child, round, 3000, 0);
	CLEANUP_FREE char *got = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	json_t *meta = json_pack("{s:s}", "text", text), *its = NULL;
	int result;

	unlink(to);
	write_text(from, text);
	if (round % 3 != 2)
		cache_put(cache, key, from, meta);
	result = round % 10 == 9 ? cache_prune(cache, NULL, 8000, NULL, &err) : 0;
	if (result == 0)
		result = cache_get(cache, key, to, &its, &err);
	got = result == 1 ? read_text(to) : NULL;
	if (result == 1 && (!got || !str_starts(got, value) ||
	                    !str_equal(json_string_value(json_object_get(its, "text")), got)))
		result = -1;
	json_decref(meta);
	json_decref(its);
	return result;
}

static int child_main(unsigned child)
{
	CLEANUP_FREE char *log_name = str_format("log.%u", child);
	CLEANUP_FIXTURE struct fixture f = open_fixture("busy", 14000, false, log_name);
	int hits = 0;

	for (unsigned round = 0; round < ROUNDS; round++) {
		int result = one_round(f.cache, child, round);

		if (result < 0)
			return 1;
		hits += result;
	}
	if (logged(log_name, "warning"))
		return 2;
	return hits > 0 ? 0 : 3;
}

static void test_parallel(void)
{
	CLEANUP_FIXTURE struct fixture f = open_fixture("busy", 14000, false, "log");
	pid_t pids[CHILDREN];
	int bad = 0;

	fflush(NULL);
	for (unsigned i = 0; i < CHILDREN; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(child_main(i));
	}
	for (unsigned i = 0; i < CHILDREN; i++) {
		int status = -1;

		if (pids[i] < 0 || waitpid(pids[i], &status, 0) < 0 || status != 0) {
			printf("# child %u: status %x\n", i, (unsigned)status);
			bad++;
		}
	}
	check(bad == 0, "many processes put, get and prune, and every hit is one whole result");
	check(results_bytes(f.cache) <= 14000 && results_bytes(f.cache) > 0,
	      "and the bound holds in the end");
	check(system("ls -A busy/results/kind | grep -q tmp") != 0, "no temporary file is left");
}

int main(void)
{
	char dir[] = "/tmp/gpuimg-cache-XXXXXX";
	CLEANUP_ERROR struct error err = ERROR_INIT;

	umask(022);
	if (!mkdtemp(dir) || chdir(dir) < 0)
		return 1;
	test_keys();
	test_key_misuse();
	test_round_trip();
	test_replace();
	test_damage();
	test_large();
	test_full_target();
	test_linked();
	test_link_across();
	test_spoilt_link();
	test_bound();
	test_prune();
	test_leftovers();
	test_disabled();
	test_unusable();
	test_digests();
	test_digest_bound();
	test_parallel();
	if (chdir("/") < 0 || tree_remove(dir, &err) < 0)
		printf("# %s\n", err.message ? err.message : "cannot clean up");
	return tap_done();
}
