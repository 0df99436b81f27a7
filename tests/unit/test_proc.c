/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "builder/proc.h"
#include "builder/str.h"
#include "tap.h"

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int shell(const char *script, unsigned timeout_ms, char **ret, struct error *err)
{
	const char *const argv[] = {"sh", "-c", script, NULL};
	const struct proc_options options = {.timeout_ms = timeout_ms};

	return proc_run(argv, &options, ret, 1000, err);
}

static void test_success(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *out = NULL;
	CLEANUP_FREE char *none = NULL;

	check(shell("echo out; echo err >&2", 5000, &out, &err) == 0, "a program that ends with 0");
	check_str(out, "out\n", "its stdout alone is captured");
	check(shell(":", 5000, &none, &err) == 0 && none && !*none, "no output is an empty string");
}

static void test_failure(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const char *const missing[] = {"no-such-program-here", NULL};

	check(shell("echo first; echo last words >&2; exit 3", 5000, NULL, &err) < 0,
	      "a program that ends with 3 is an error");
	check(strstr(err.message, "exit code 3") && strstr(err.message, "last words"),
	      "which holds the code and the last lines");
	error_free(&err);
	check(shell("kill -SEGV $$", 5000, NULL, &err) < 0 && strstr(err.message, "signal 11"),
	      "a signal is told");
	error_free(&err);
	check(proc_run(missing, NULL, NULL, 0, &err) < 0 &&
	              strstr(err.message, "no-such-program-here") && err.code == EXIT_HOST,
	      "a missing program is named and is the host's fault");
}

static void test_bounds(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *out = NULL;
	double begin = now();

	check(shell("sleep 60 & sleep 60", 300, NULL, &err) < 0 && strstr(err.message, "in time"),
	      "a deadline stops a program");
	check(now() - begin < 5, "at once, its children too");
	error_free(&err);
	check(shell("yes", 5000, &out, &err) < 0 && strstr(err.message, "more than 1000 bytes"),
	      "output beyond the bound is an error");
}

static void test_status(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const char *const argv[] = {"sh", "-c", "exit 9", NULL};
	int code = 0;

	check(proc_run_status(argv, NULL, NULL, 0, &code, &err) == 0 && code == 9,
	      "an exit code can be asked for");
}

static void test_literal(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *out = NULL;
	const char *const argv[] = {"printf", "%s", "$(id) `id` 'x' \"y\" \n z", NULL};

	check(proc_run(argv, NULL, &out, 1000, &err) == 0, "an argument with shell characters");
	check_str(out, "$(id) `id` 'x' \"y\" \n z", "is passed as it is");
}

static void test_descriptors(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *out = NULL;

	check(shell("ls /proc/self/fd | wc -l", 5000, &out, &err) == 0, "a child's descriptors");
	/* 0, 1, 2 and the one by which ls reads the directory. */
	check(out && atoi(out) == 4, "are the standard ones alone");
}

static void keep_last(void *opaque, const char *line)
{
	char *last = opaque;

	snprintf(last, 16, "%s", line);
}

static void test_log(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const char *const argv[] = {"sh", "-c", "head -c 70000000 /dev/zero; echo; echo last",
	                            NULL};
	char path[] = "/tmp/gpuimg-test-XXXXXX", end[64] = "", last[16] = "";
	CLEANUP_CLOSE int fd = mkstemp(path);
	struct proc_options options = {.timeout_ms = 60000, .on_line = keep_last, .opaque = last};
	off_t size;

	if (!check(fd >= 0 && log_open(&options.log, path, LOG_QUIET, &err) == 0, "a log"))
		return;
	check(proc_run(argv, &options, NULL, 0, &err) == 0, "a program that floods it");
	log_detail(options.log, "one \033[2J\ntwo");
	log_close(options.log);
	unlink(path);
	size = lseek(fd, 0, SEEK_END);
	check(size > 64 << 20 && size < (64 << 20) + 200, "is cut there after 64 MiB");
	check_str(last, "last", "but is heard to its end");
	check(pread(fd, end, sizeof(end) - 1, size - 60) > 0 && pread(fd, end, 60, size - 60) == 60,
	      "the end of the log");
	for (size_t i = 0; i < 60; i++)
		if (!end[i])
			end[i] = '0';
	check(strstr(end, "0\nfurther output left out\n["), "tells it");
	check(strstr(end, "] one ?[2J\ntwo\n"), "what would drive a terminal is not written");
}

int main(void)
{
	test_success();
	test_failure();
	test_bounds();
	test_status();
	test_literal();
	test_descriptors();
	test_log();
	return tap_done();
}
