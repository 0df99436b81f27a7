/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small disk images for tests: a directory of their own, programs that make file systems and
 * partition tables in plain files (none needs root), and bytes put where a test wants them.
 * A fixture that cannot be made ends the test program: a test without it would prove nothing.
 */
#ifndef GPUIMG_DISK_FIXTURE_H
#define GPUIMG_DISK_FIXTURE_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/error.h"
#include "builder/proc.h"
#include "builder/str.h"
#include "tests/unit/tap.h"

#define MIB ((uint64_t)1 << 20)

/* Every path of a test lies in here, the current directory of the test program. */
static char fixture_dir[] = "/tmp/gpuimg-test-XXXXXX";

static inline void fixture_fail(const char *what, const char *why)
{
	printf("Bail out! cannot %s: %s\n", what, why ? why : strerror(errno));
	exit(1);
}

static inline int fixture_remove_one(const char *path, const struct stat *st, int flag,
                                     struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static inline void fixture_remove(const char *path)
{
	nftw(path, fixture_remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

static inline void fixture_end(void)
{
	if (chdir("/") == 0)
		fixture_remove(fixture_dir);
}

/* A directory for the test; a machine that lacks one of the programs skips all of it. */
static inline void fixture_begin(const char *const *programs)
{
	/* Where e2fsprogs and others live, for users whose PATH lacks them. */
	CLEANUP_FREE char *path = str_format("%s:/usr/sbin:/sbin", getenv("PATH"));

	setenv("PATH", path, 1);
	for (; *programs; programs++)
		if (!proc_have(*programs)) {
			printf("1..0 # SKIP '%s' is not installed\n", *programs);
			exit(0);
		}
	if (!mkdtemp(fixture_dir) || chdir(fixture_dir) < 0)
		fixture_fail("make a directory", NULL);
	atexit(fixture_end);
}

/* Runs a program that must succeed; stdin_text may be NULL. */
static inline void fixture_run(const char *stdin_text, const char *const *argv)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int in = -1;
	struct proc_options options = {.timeout_ms = 60000};

	if (stdin_text) {
		in = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
		if (in < 0 || write(in, stdin_text, strlen(stdin_text)) < 0 ||
		    lseek(in, 0, SEEK_SET))
			fixture_fail("write a script", NULL);
		options.stdin_fd = in;
	}
	if (proc_run(argv, &options, NULL, 0, &err) < 0)
		fixture_fail("run a program", err.message);
}

#define run(...)            fixture_run(NULL, (const char *const[]){__VA_ARGS__, NULL})
#define run_with(text, ...) fixture_run(text, (const char *const[]){__VA_ARGS__, NULL})

/* Whether the program is there; says so as a skipped check if it is not. */
static inline bool fixture_have(const char *program, const char *what)
{
	if (proc_have(program))
		return true;
	printf("ok %d - %s # SKIP '%s' is not installed\n", ++tap_count, what, program);
	return false;
}

static inline int fixture_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0644);

	if (fd < 0)
		fixture_fail(path, NULL);
	return fd;
}

static inline void make_file(const char *path, uint64_t size)
{
	CLEANUP_CLOSE int fd = fixture_open(path, O_RDWR | O_CREAT | O_TRUNC);

	if (ftruncate(fd, (off_t)size) < 0)
		fixture_fail(path, NULL);
}

static inline uint64_t file_size(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		fixture_fail(path, NULL);
	return (uint64_t)st.st_size;
}

static inline void put(const char *path, uint64_t offset, const void *data, size_t size)
{
	CLEANUP_CLOSE int fd = fixture_open(path, O_RDWR | O_CREAT);

	if (pwrite(fd, data, size, (off_t)offset) != (ssize_t)size)
		fixture_fail(path, NULL);
}

static inline void get(const char *path, uint64_t offset, void *data, size_t size)
{
	CLEANUP_CLOSE int fd = fixture_open(path, O_RDONLY);

	if (pread(fd, data, size, (off_t)offset) != (ssize_t)size)
		fixture_fail(path, NULL);
}

/* Bytes that repeat nowhere and are the same in every run. */
static inline void fill(uint8_t *data, size_t size, uint64_t seed)
{
	uint64_t x = seed * 2654435761u + 88172645463325252u;

	for (size_t i = 0; i < size; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (uint8_t)(x >> 24);
	}
}

static inline void put_noise(const char *path, uint64_t offset, size_t size, uint64_t seed)
{
	CLEANUP_FREE uint8_t *data = mem_alloc(size);

	fill(data, size, seed);
	put(path, offset, data, size);
}

/* Copies the file 'from' into 'path' at an offset; zeroes stay holes. */
static inline void put_file(const char *path, uint64_t offset, const char *from)
{
	CLEANUP_CLOSE int in = fixture_open(from, O_RDONLY), out = fixture_open(path, O_RDWR);
	CLEANUP_FREE char *buffer = mem_alloc(MIB), *zero = mem_alloc(MIB);
	ssize_t n;

	for (; (n = read(in, buffer, MIB)) > 0; offset += (uint64_t)n)
		if (memcmp(buffer, zero, (size_t)n) != 0 &&
		    pwrite(out, buffer, (size_t)n, (off_t)offset) != n)
			fixture_fail(path, NULL);
}

static inline void convert(const char *from, const char *to)
{
	run("qemu-img", "convert", "-q", "-c", "-f", "raw", "-O", "qcow2", from, to);
}

static inline bool contains(const char *text, const char *part)
{
	bool found = text && strstr(text, part);

	if (!found)
		printf("# '%s' is not in '%s'\n", part, text ? text : "(null)");
	return found;
}

#endif
