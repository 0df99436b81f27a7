/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/digest.h"
#include "builder/str.h"
#include "tap.h"

/* The vectors of FIPS 180-4's examples. */
#define EMPTY_256 "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define ABC_256   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define ABC_1     "a9993e364706816aba3e25717850c26c9cd0d89d"
#define ABC_512                                                                                    \
	"ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"                         \
	"2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f"
#define MILLION_A_256 "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"

static void write_file(const char *path, const char *text, size_t times)
{
	FILE *f = fopen(path, "we");

	for (size_t i = 0; f && i < times; i++)
		fputs(text, f);
	if (!f || fclose(f) != 0)
		abort();
}

static void test_memory(void)
{
	CLEANUP_FREE char *empty = digest_memory(NULL, 0);
	CLEANUP_FREE char *abc = digest_memory("abc", 3);

	check_str(empty, EMPTY_256, "nothing has the digest of the empty string");
	check_str(abc, ABC_256, "memory gives the published SHA-256 in lower-case hex");
}

static void check_file(const char *path, const char *algorithm, const char *want,
                       const char *sentence)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *hex = NULL;

	check(digest_file(path, algorithm, &hex, &err) == 0, "%s: no error", sentence);
	check_str(hex, want, "%s", sentence);
}

static void check_refused(const char *path, const char *algorithm, const char *word,
                          enum exit_code code, const char *sentence)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *hex = NULL;
	int rc = digest_file(path, algorithm, &hex, &err);

	check(rc == -1 && !hex && strstr(err.message, word) && strstr(err.message, path) &&
	              error_exit_code(&err) == code,
	      "%s", sentence);
}

int main(void)
{
	char dir[] = "/tmp/gpuimg-digest-XXXXXX";
	CLEANUP_FREE char *file = NULL, *fifo = NULL;

	if (!mkdtemp(dir))
		return 1;
	file = str_format("%s/file", dir);
	fifo = str_format("%s/fifo", dir);

	test_memory();
	write_file(file, "abc", 1);
	check_file(file, "SHA256", ABC_256, "a file gives the published SHA-256");
	check_file(file, "SHA512", ABC_512, "a file gives the published SHA-512");
	check_file(file, "SHA1", ABC_1, "a file gives the published SHA-1");
	write_file(file, "aaaaaaaaaa", 100000);
	check_file(file, "SHA256", MILLION_A_256, "a file longer than one piece is read whole");
	write_file(file, "", 0);
	check_file(file, "SHA256", EMPTY_256, "an empty file has the empty digest");
	check_refused(file, "MD5", "unknown algorithm", EXIT_BUILD, "MD5 is refused by name");
	check_refused("/nonexistent/file", "SHA256", "No such file", EXIT_BUILD,
	              "a missing file is told with its path");
	check_refused(dir, "SHA256", "not a regular file", EXIT_INPUT, "a directory is refused");
	if (mkfifo(fifo, 0600) < 0)
		return 1;
	check_refused(fifo, "SHA256", "not a regular file", EXIT_INPUT,
	              "a FIFO is refused without waiting for a writer");
	unlink(fifo);
	unlink(file);
	rmdir(dir);
	return tap_done();
}
