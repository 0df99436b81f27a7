/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accel.h"
#include "clock.h"
#include "proc.h"
#include "str.h"

#define QEMU              "qemu-system-x86_64"
#define DEADLINE_MS       6000
#define TOOL_TIMEOUT_MS   10000
#define RECORD_NAME       "accel.json"
#define RECORD_MAX_BYTES  65536
#define CONSOLE_MAX_BYTES (1 << 20)
#define TAIL_BYTES        400
#define TICK_MS           100

void accel_free(struct accel *a)
{
	free(a->reason);
	*a = (struct accel){0};
}

/* --- The host's kernel --- */

/* The newest readable one that matches; *unreadable is set to one that is not. */
static char *newest_match(const char *pattern, char **unreadable)
{
	char *best = NULL;
	glob_t found;

	if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0)
		return NULL;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		const char *path = found.gl_pathv[i];
		struct stat st;

		if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
			continue;
		if (access(path, R_OK) < 0) {
			free(*unreadable);
			*unreadable = str_copy(path);
		} else if (!best || strverscmp(path, best) > 0) {
			free(best);
			best = str_copy(path);
		}
	}
	globfree(&found);
	return best;
}

static int no_kernel(struct error *err, const char *unreadable)
{
	if (unreadable) {
		error_errno(err, EACCES, "cannot read the kernel '%s'", unreadable);
		error_hint(err,
		           "make it readable (chmod 0644 '%s'), or name another with "
		           "SUPERMIN_KERNEL",
		           unreadable);
	} else {
		error_set(err, "cannot find a kernel in '/boot/vmlinuz-*' or "
		               "'/lib/modules/*/vmlinuz'");
		error_hint(err, "install one (Debian: linux-image-amd64), or name one with "
		                "SUPERMIN_KERNEL");
	}
	return error_code(err, EXIT_HOST);
}

int accel_host_kernel(char **ret_path, struct error *err)
{
	static const char *const patterns[] = {"/boot/vmlinuz-*", "/lib/modules/*/vmlinuz"};
	const char *named = getenv("SUPERMIN_KERNEL");
	CLEANUP_FREE char *unreadable = NULL;

	if (named && *named) {
		if (access(named, R_OK) < 0 && errno == EACCES)
			return no_kernel(err, named);
		if (access(named, R_OK) < 0) {
			error_errno(err, errno, "cannot read the kernel '%s' (SUPERMIN_KERNEL)",
			            named);
			return error_code(err, EXIT_HOST);
		}
		*ret_path = str_copy(named);
		return 0;
	}
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		char *path = newest_match(patterns[i], &unreadable);

		if (path) {
			*ret_path = path;
			return 0;
		}
	}
	return no_kernel(err, unreadable);
}

/* --- The record --- */

static char *read_small(const char *path)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	CLEANUP_FREE char *text = mem_alloc(RECORD_MAX_BYTES);
	ssize_t size = fd >= 0 ? read(fd, text, RECORD_MAX_BYTES) : -1;

	return size > 0 ? mem_copy(text, (size_t)size) : NULL;
}

/* What the answer depends on: this boot of the host, QEMU, and the kernel that was tried. */
static char *record_key(const struct accel_host *host, const char *version, const char *kernel)
{
	CLEANUP_FREE char *boot_id = read_small(host->boot_id_path);
	struct stat st;

	if (!boot_id || stat(kernel, &st) < 0)
		return NULL;
	return str_format("%s|%s|%s|%lld|%lld", str_trim(boot_id), version, kernel,
	                  (long long)st.st_size, (long long)st.st_mtime);
}

static bool record_read(const char *cache_dir, const char *key, struct accel *ret)
{
	CLEANUP_FREE char *path = str_format("%s/" RECORD_NAME, cache_dir);
	CLEANUP_FREE char *text = read_small(path);
	json_t *record = text ? json_loads(text, 0, NULL) : NULL;
	const char *its_key = json_string_value(json_object_get(record, "key"));
	const char *reason = json_string_value(json_object_get(record, "reason"));
	const json_t *kvm = json_object_get(record, "kvm");
	bool good = str_equal(its_key, key) && reason && json_is_boolean(kvm);

	if (good) {
		ret->kvm = json_is_true(kvm);
		ret->remembered = true;
		ret->reason = str_copy(reason);
	}
	json_decref(record);
	return good;
}

/* A record that cannot be kept costs the next run a few seconds, no more. */
static void record_write(const char *cache_dir, const char *key, const struct accel *a,
                         struct log *log)
{
	CLEANUP_FREE char *path = str_format("%s/" RECORD_NAME, cache_dir);
	CLEANUP_FREE char *temporary =
		str_format("%s/." RECORD_NAME ".%d", cache_dir, (int)getpid());
	json_t *record =
		json_pack("{s:s, s:b, s:s}", "key", key, "kvm", (int)a->kvm, "reason", a->reason);

	if (!record || json_dump_file(record, temporary, JSON_INDENT(1)) < 0 ||
	    rename(temporary, path) < 0) {
		log_detail(log, "cannot keep the accelerator's record '%s': %s, ignoring", path,
		           strerror(errno));
		unlink(temporary);
	}
	json_decref(record);
}

/* --- The boot --- */

struct trial {
	struct proc qemu;
	int fd; /* console and QEMU's messages; -1 once closed */
	char *text;
	size_t size;
};

static int trial_start(struct trial *t, const struct accel_host *host, const char *kernel,
                       struct error *err)
{
	const char *const argv[] = {host->qemu,   "-accel",      "kvm",
	                            "-cpu",       "host",        "-m",
	                            "512",        "-nodefaults", "-no-user-config",
	                            "-no-reboot", "-display",    "none",
	                            "-serial",    "stdio",       "-kernel",
	                            kernel,       "-append",     "console=ttyS0 panic=-1",
	                            NULL};
	const struct proc_options options = {0};
	int fds[2], result;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	t->fd = fds[0];
	result = proc_start(&t->qemu, argv, &options, fds[1], fds[1], err);
	close(fds[1]);
	return result;
}

static void trial_read(struct trial *t)
{
	struct pollfd wait = {.fd = t->fd, .events = POLLIN};
	char buffer[4096];
	ssize_t n;

	if (poll(&wait, 1, TICK_MS) <= 0)
		return;
	n = read(t->fd, buffer, sizeof(buffer));
	if (n > 0 && t->size + (size_t)n <= CONSOLE_MAX_BYTES) {
		t->text = mem_grow(t->text, t->size + (size_t)n + 1, 1);
		for (ssize_t i = 0; i < n; i++)
			if (buffer[i]) /* a NUL would end the text */
				t->text[t->size++] = buffer[i];
		t->text[t->size] = '\0';
	} else if (n == 0 || (n < 0 && errno != EINTR)) {
		close(t->fd);
		t->fd = -1;
	}
}

static bool said(const struct trial *t, const char *what)
{
	return t->text && strstr(t->text, what);
}

/* The kernel has no root, so it panics: then it has come all the way through its own start. */
static bool reached_end(const struct trial *t)
{
	return said(t, "Linux version") && said(t, "Kernel panic - not syncing");
}

static char *last_words(const struct trial *t)
{
	CLEANUP_FREE char *printable = NULL;
	CLEANUP_FREE char *copy = NULL;
	size_t from = t->size > TAIL_BYTES ? t->size - TAIL_BYTES : 0;

	copy = str_copy(t->text ? t->text + from : "");
	printable = str_printable(str_trim(copy), TAIL_BYTES);
	return str_copy(*printable ? printable : "nothing");
}

static char *trial_reason(struct trial *t, bool good, double seconds)
{
	CLEANUP_FREE char *words = last_words(t);
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	int status = 0;

	if (good)
		return str_format("a Linux guest ran to its end under KVM in %.1f s", seconds);
	if (t->fd < 0 && proc_wait(&t->qemu, TICK_MS, &status, &ignored) == 1)
		return str_format("QEMU ended before a Linux guest ran under KVM; it said: %s",
		                  words);
	if (!said(t, "Linux version"))
		return str_format("a Linux guest hung under KVM (no kernel spoke in %.0f s)",
		                  seconds);
	return str_format("a Linux guest hung under KVM (not at its end after %.0f s)", seconds);
}

static int try_kvm(struct accel *ret, const struct accel_host *host, const char *kernel,
                   struct log *log, struct error *err)
{
	struct trial t = {.fd = -1};
	int64_t begin = clock_ms();
	int result = trial_start(&t, host, kernel, err);

	while (result == 0 && t.fd >= 0 && !reached_end(&t) &&
	       clock_ms() - begin < host->deadline_ms)
		trial_read(&t);
	if (result == 0) {
		ret->seconds = (double)(clock_ms() - begin) / 1000;
		ret->kvm = reached_end(&t);
		ret->reason = trial_reason(&t, ret->kvm, ret->seconds);
		if (t.text)
			log_raw(log, t.text, t.size);
	}
	proc_kill(&t.qemu);
	cleanup_close(&t.fd);
	free(t.text);
	return result;
}

/* --- The question --- */

static bool decided_by_user(struct accel *ret)
{
	const char *named = getenv("GPUIMG_ACCEL");

	if (!str_equal(named, "tcg") && !str_equal(named, "kvm"))
		return false;
	ret->kvm = str_equal(named, "kvm");
	ret->reason = str_format("GPUIMG_ACCEL=%s", named);
	return true;
}

static bool no_device(const struct accel_host *host, struct accel *ret)
{
	CLEANUP_CLOSE int fd = open(host->kvm_device, O_RDWR | O_CLOEXEC);

	if (fd >= 0)
		return false;
	ret->reason = str_format("cannot open '%s': %s", host->kvm_device, strerror(errno));
	return true;
}

static int qemu_version(const struct accel_host *host, char **ret, struct error *err)
{
	const char *const argv[] = {host->qemu, "--version", NULL};
	const struct proc_options options = {.timeout_ms = TOOL_TIMEOUT_MS};

	if (proc_run(argv, &options, ret, RECORD_MAX_BYTES, err) == 0)
		return 0;
	error_hint(err, "install QEMU: the package 'qemu-system-x86' (Debian, Ubuntu)");
	return error_code(err, EXIT_HOST);
}

static char *kernel_to_try(const struct accel_host *host, struct accel *ret)
{
	CLEANUP_ERROR struct error why = ERROR_INIT;
	char *kernel = NULL;

	if (host->kernel)
		return str_copy(host->kernel);
	if (accel_host_kernel(&kernel, &why) < 0)
		ret->reason = str_format("KVM cannot be tried: %s", why.message);
	return kernel;
}

static int probe(struct accel *a, const struct accel_host *host, const char *cache_dir,
                 struct log *log, struct error *err)
{
	CLEANUP_FREE char *version = NULL;
	CLEANUP_FREE char *kernel = NULL;
	CLEANUP_FREE char *key = NULL;

	if (decided_by_user(a))
		return 0;
	if (qemu_version(host, &version, err) < 0)
		return -1;
	if (no_device(host, a))
		return 0;
	kernel = kernel_to_try(host, a);
	if (!kernel)
		return 0;
	key = record_key(host, version, kernel);
	if (cache_dir && key && record_read(cache_dir, key, a))
		return 0;
	if (try_kvm(a, host, kernel, log, err) < 0)
		return -1;
	if (cache_dir && key)
		record_write(cache_dir, key, a, log);
	return 0;
}

int accel_probe_host(struct accel *ret, const struct accel_host *host, const char *cache_dir,
                     struct log *log, struct error *err)
{
	struct accel a = {0};

	if (probe(&a, host, cache_dir, log, err) < 0) {
		accel_free(&a);
		return error_prefix(err, "cannot find out whether KVM works");
	}
	log_detail(log, "accelerator: %s (%s%s)", a.kvm ? "kvm" : "tcg", a.reason,
	           a.remembered ? ", remembered" : "");
	*ret = a;
	return 0;
}

int accel_probe(struct accel *ret, const char *cache_dir, struct log *log, struct error *err)
{
	const struct accel_host host = {.qemu = QEMU,
	                                .kvm_device = "/dev/kvm",
	                                .boot_id_path = "/proc/sys/kernel/random/boot_id",
	                                .deadline_ms = DEADLINE_MS};

	return accel_probe_host(ret, &host, cache_dir, log, err);
}
