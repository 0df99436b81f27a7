/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "builder/accel.h"
#include "builder/proc.h"
#include "builder/str.h"
#include "tests/unit/tap.h"

/* A directory of our own, with a QEMU that does what each test says. */
struct bench {
	char dir[32];
	char *qemu, *boot_id, *kernel;
	struct accel_host host;
};

static void write_file(const char *path, const char *text, mode_t mode)
{
	FILE *file = fopen(path, "we");

	if (!file || fputs(text, file) < 0 || fclose(file) != 0)
		abort();
	chmod(path, mode);
}

/* The script answers --version, and leaves a mark for each boot. */
static void set_qemu(struct bench *b, const char *version, const char *boot)
{
	char *text = str_format("#!/bin/sh\n"
	                        "[ \"$1\" = --version ] && { echo '%s'; exit 0; }\n"
	                        "echo x >>'%s/boots'\n%s\n",
	                        version, b->dir, boot);

	write_file(b->qemu, text, 0755);
	free(text);
}

static void bench_init(struct bench *b)
{
	strcpy(b->dir, "/tmp/test-accel-XXXXXX");
	if (!mkdtemp(b->dir))
		abort();
	b->qemu = str_format("%s/qemu-system-x86_64", b->dir);
	b->boot_id = str_format("%s/boot-id", b->dir);
	b->kernel = str_format("%s/vmlinuz", b->dir);
	write_file(b->boot_id, "first-boot\n", 0644);
	write_file(b->kernel, "kernel\n", 0644);
	b->host = (struct accel_host){.qemu = "qemu-system-x86_64",
	                              .kvm_device = "/dev/null",
	                              .boot_id_path = b->boot_id,
	                              .kernel = b->kernel,
	                              .deadline_ms = 1500};
}

static void bench_forget(const struct bench *b)
{
	char *record = str_format("%s/accel.json", b->dir);
	char *boots = str_format("%s/boots", b->dir);

	unlink(record);
	unlink(boots);
	free(record);
	free(boots);
}

static long bench_boots(const struct bench *b)
{
	char *path = str_format("%s/boots", b->dir);
	struct stat st;
	long boots = stat(path, &st) == 0 ? (long)st.st_size / 2 : 0;

	free(path);
	return boots;
}

static void bench_free(struct bench *b)
{
	const char *const argv[] = {"rm", "-rf", b->dir, NULL};
	struct error err = ERROR_INIT;

	if (proc_run(argv, NULL, NULL, 0, &err) < 0)
		printf("# %s\n", err.message);
	error_free(&err);
	free(b->qemu);
	free(b->boot_id);
	free(b->kernel);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct accel probe(struct bench *b)
{
	struct error err = ERROR_INIT;
	struct accel a = {0};

	check(accel_probe_host(&a, &b->host, b->dir, NULL, &err) == 0,
	      "the probe comes to an answer%s%s", err.message ? ": " : "",
	      err.message ? err.message : "");
	error_free(&err);
	if (!a.reason)
		a.reason = str_copy("");
	return a;
}

static void test_good(struct bench *b)
{
	struct accel a;

	bench_forget(b);
	set_qemu(b, "QEMU 1",
	         "echo 'Linux version 6.1'; echo 'Kernel panic - not syncing: VFS'; sleep 30");
	double begin = now();

	a = probe(b);
	check(a.kvm && !a.remembered, "a kernel that runs to its panic means that KVM works");
	check(now() - begin < 1.4, "success ends the probe before the deadline");
	accel_free(&a);
	a = probe(b);
	check(a.kvm && a.remembered && bench_boots(b) == 1,
	      "the second probe remembers and boots nothing");
	accel_free(&a);
}

static void test_record_keys(struct bench *b)
{
	struct accel a;

	set_qemu(b, "QEMU 2", "echo nothing works; exit 1");
	a = probe(b);
	check(!a.kvm && !a.remembered, "another version of QEMU is tried anew");
	accel_free(&a);
	a = probe(b);
	check(!a.kvm && a.remembered, "a bad answer is remembered too");
	accel_free(&a);
	write_file(b->boot_id, "second-boot\n", 0644);
	a = probe(b);
	check(!a.remembered, "another boot of the host is tried anew");
	accel_free(&a);
	write_file(b->kernel, "another kernel\n", 0644);
	a = probe(b);
	check(!a.remembered, "another kernel is tried anew");
	accel_free(&a);
}

static void test_bad_record(struct bench *b)
{
	char *record = str_format("%s/accel.json", b->dir);
	struct accel a;

	bench_forget(b);
	write_file(record, "{\"key\": 5, \"kvm\": \"yes\"", 0644);
	a = probe(b);
	check(!a.remembered && bench_boots(b) == 1, "a broken record is left aside");
	accel_free(&a);
	free(record);
}

static void test_hang(struct bench *b)
{
	struct accel a;
	double begin, took;

	bench_forget(b);
	set_qemu(b, "QEMU 3", "sleep 60 & sleep 60");
	begin = now();
	a = probe(b);
	took = now() - begin;
	check(!a.kvm && took >= 1.4 && took < 3,
	      "case 15: a guest that hangs costs the deadline, no more");
	check(strstr(a.reason, "hung under KVM") != NULL, "the reason says that it hung: %s",
	      a.reason);
	accel_free(&a);
}

static void test_half_way(struct bench *b)
{
	struct accel a;

	bench_forget(b);
	set_qemu(b, "QEMU 3", "echo 'Linux version 6.1'; sleep 60");
	a = probe(b);
	check(!a.kvm && strstr(a.reason, "not at its end"),
	      "a kernel that stops after its banner does not count");
	accel_free(&a);
	bench_forget(b);
	set_qemu(b, "QEMU 3", "echo 'Kernel panic - not syncing'; sleep 60");
	a = probe(b);
	check(!a.kvm, "a panic without the kernel's banner does not count");
	accel_free(&a);
}

static void test_ends_at_once(struct bench *b)
{
	struct accel a;
	double begin = now();

	bench_forget(b);
	set_qemu(b, "QEMU 4", "echo 'no permission for this' >&2; exit 1");
	a = probe(b);
	check(!a.kvm && now() - begin < 1.4,
	      "a QEMU that exits at once does not cost the deadline");
	check(strstr(a.reason, "no permission for this") != NULL, "its message is told: %s",
	      a.reason);
	accel_free(&a);
}

static void test_flood(struct bench *b)
{
	struct accel a;
	double begin = now();

	bench_forget(b);
	set_qemu(b, "QEMU 5", "exec yes flood");
	a = probe(b);
	check(!a.kvm && now() - begin < 3, "a guest that floods its console ends at the deadline");
	accel_free(&a);
}

static void test_host_lacks(struct bench *b)
{
	struct accel_host host = b->host;
	struct error err = ERROR_INIT;
	struct accel a = {0};

	bench_forget(b);
	host.kvm_device = "/nonexistent/kvm";
	check(accel_probe_host(&a, &host, b->dir, NULL, &err) == 0 && !a.kvm &&
	              strstr(a.reason, "/nonexistent/kvm") && bench_boots(b) == 0,
	      "without the device nothing is booted, and the reason names it");
	accel_free(&a);
	host = b->host;
	host.qemu = "qemu-that-is-not-there";
	check(accel_probe_host(&a, &host, b->dir, NULL, &err) < 0 &&
	              error_exit_code(&err) == EXIT_HOST && err.hint,
	      "without QEMU it is an error of the host, with a hint");
	error_free(&err);
	check(accel_probe_host(&a, &b->host, "/nonexistent/cache", NULL, &err) == 0 && !a.kvm,
	      "a record that cannot be kept is no error");
	accel_free(&a);
	error_free(&err);
}

static void test_user_decides(struct bench *b)
{
	struct accel a;

	bench_forget(b);
	setenv("GPUIMG_ACCEL", "kvm", 1);
	a = probe(b);
	check(a.kvm && bench_boots(b) == 0, "GPUIMG_ACCEL=kvm decides without a boot");
	accel_free(&a);
	setenv("GPUIMG_ACCEL", "tcg", 1);
	a = probe(b);
	check(!a.kvm && strstr(a.reason, "GPUIMG_ACCEL"), "GPUIMG_ACCEL=tcg decides, and is named");
	accel_free(&a);
	unsetenv("GPUIMG_ACCEL");
}

static void test_kernel(const struct bench *b)
{
	struct error err = ERROR_INIT;
	char *path = NULL;

	setenv("SUPERMIN_KERNEL", b->kernel, 1);
	check(accel_host_kernel(&path, &err) == 0, "SUPERMIN_KERNEL names the kernel");
	check_str(path, b->kernel, "and it is that one");
	free(path);
	path = NULL;
	setenv("SUPERMIN_KERNEL", "/nonexistent/vmlinuz", 1);
	check(accel_host_kernel(&path, &err) < 0 && !path &&
	              strstr(err.message, "/nonexistent/vmlinuz"),
	      "a kernel that cannot be read is named in the error");
	error_free(&err);
	unsetenv("SUPERMIN_KERNEL");
}

/* Ubuntu keeps kernels at 0600: asked as somebody who is not root. */
static void test_unreadable_kernel(struct bench *b)
{
	pid_t pid;
	int status = -1;

	if (geteuid() != 0) {
		check(true, "case 16: an unreadable kernel # SKIP needs root");
		return;
	}
	chmod(b->kernel, 0600);
	setenv("SUPERMIN_KERNEL", b->kernel, 1);
	pid = fork();
	if (pid == 0) {
		struct error err = ERROR_INIT;
		char *path = NULL;
		bool refused = setresuid(65534, 65534, 65534) == 0 &&
		               accel_host_kernel(&path, &err) < 0 &&
		               strstr(err.message, b->kernel) && err.hint &&
		               strstr(err.hint, "chmod") && err.code == EXIT_HOST;

		_exit(refused ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	check(status == 0, "case 16: an unreadable kernel is named with its cure");
	unsetenv("SUPERMIN_KERNEL");
}

int main(void)
{
	struct bench b;
	char *path;

	bench_init(&b);
	path = str_format("%s:%s", b.dir, getenv("PATH"));
	setenv("PATH", path, 1);
	free(path);
	unsetenv("GPUIMG_ACCEL");
	test_good(&b);
	test_record_keys(&b);
	test_bad_record(&b);
	test_hang(&b);
	test_half_way(&b);
	test_ends_at_once(&b);
	test_flood(&b);
	test_host_lacks(&b);
	test_user_decides(&b);
	test_kernel(&b);
	test_unreadable_kernel(&b);
	bench_free(&b);
	return tap_done();
}
