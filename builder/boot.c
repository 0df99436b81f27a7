/* SPDX-License-Identifier: Apache-2.0 */
/* One run of the boot test: asks this host's QEMU, starts it, tells what came of it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "boot-cache.h"
#include "boot-run.h"
#include "clock.h"

#define TOOL_TIMEOUT_MS   60000
#define HELP_MAX_BYTES    (4 << 20)
#define DEFAULT_BAR_BYTES (UINT64_C(32) << 30)
#define DEFAULT_MEMORY    (UINT64_C(2) << 30)

static const struct patience patience_tcg = {900, 150, 20000, 90000, 300000};
static const struct patience patience_kvm = {180, 60, 8000, 30000, 90000};

/* What this host's QEMU offers. */
struct host_qemu {
	bool has_card;
	bool has_sandbox;
};

static int ask_qemu(const char *const *argv, struct log *log, char **ret, struct error *err)
{
	const struct proc_options options = {.log = log, .timeout_ms = TOOL_TIMEOUT_MS};

	if (proc_run(argv, &options, ret, HELP_MAX_BYTES, err) == 0)
		return 0;
	error_hint(err, "install QEMU: the package 'qemu-system-x86' (Debian, Ubuntu)");
	return error_code(err, EXIT_HOST);
}

static int host_qemu(struct host_qemu *ret, struct log *log, struct error *err)
{
	const char *const devices_argv[] = {QEMU, "-device", "help", NULL};
	const char *const help_argv[] = {QEMU, "-help", NULL};
	CLEANUP_FREE char *devices = NULL;
	CLEANUP_FREE char *help = NULL;

	if (ask_qemu(devices_argv, log, &devices, err) < 0 ||
	    ask_qemu(help_argv, log, &help, err) < 0)
		return -1;
	ret->has_card = strstr(devices, "\"x-pci-proxy-dev\"") != NULL;
	ret->has_sandbox = strstr(help, "\n-sandbox ") != NULL;
	if (!strstr(devices, "\"pci-testdev\"")) {
		error_set(err, "cannot run the boot test: this host's '%s' has no pci-testdev",
		          QEMU);
		return error_code(err, EXIT_HOST);
	}
	return 0;
}

static char *make_nonce(void)
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		random = (uint64_t)clock_ms();
	return str_format("%016llx", (unsigned long long)random);
}

static int open_console(struct run *r, struct error *err)
{
	CLEANUP_FREE char *path = boot_console_path(r->o);

	r->console_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (r->console_fd >= 0)
		return 0;
	error_errno(err, errno, "cannot write the console log '%s'", path);
	return error_code(err, EXIT_HOST);
}

static int start_qemu(struct run *r, const struct host_qemu *host, struct error *err)
{
	CLEANUP_CLOSE int gpu_fd = -1;
	CLEANUP_STRV struct strv argv = {0};
	CLEANUP_FREE char *shown = NULL;
	struct proc_options options = {.pass_fds = &gpu_fd};
	int out[2], errors[2], result;

	if (host->has_card && fake_gpu_start(&r->gpu, &gpu_fd, err) < 0)
		return -1;
	options.pass_count = gpu_fd >= 0 ? 1 : 0;
	argv = boot_recipe_argv(r->o, &r->files, gpu_fd, host->has_sandbox);
	shown = strv_join(&argv, " ");
	log_detail(r->o->log, "running %s", shown);
	if (pipe2(out, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	r->out_fd = out[0];
	if (pipe2(errors, O_CLOEXEC) < 0) {
		close(out[1]);
		return error_errno(err, errno, "cannot make a pipe");
	}
	r->err_fd = errors[0];
	result = proc_start(&r->qemu, (const char *const *)argv.items, &options, out[1], errors[1],
	                    err);
	close(out[1]);
	close(errors[1]);
	return result;
}

static void gather(struct run *r, struct boot_facts *ret)
{
	struct boot_end end = {.how = r->how,
	                       .early_only = r->o->early_only,
	                       .driver = r->o->driver,
	                       .secure_boot = r->o->firmware == FIRMWARE_UEFI_SECURE_BOOT,
	                       .has_card = r->gpu != NULL};

	if (r->gpu) {
		end.card = fake_gpu_counts(r->gpu);
		log_detail(r->o->log,
		           "BAR0 of the card: %llu reads and %llu writes by the firmware, %llu and "
		           "%llu by the system",
		           (unsigned long long)end.card.firmware_reads,
		           (unsigned long long)end.card.firmware_writes,
		           (unsigned long long)end.card.reads, (unsigned long long)end.card.writes);
	}
	boot_facts_gather(r->console, &end, ret);
	ret->firmware = r->o->firmware;
	ret->window = r->o->window;
	ret->seconds = (double)(clock_ms() - r->begin) / 1000;
	ret->accelerator = str_copy(r->o->kvm ? "kvm" : "tcg");
}

static void run_free(struct run *r)
{
	proc_kill(&r->qemu);
	fake_gpu_stop(r->gpu);
	cleanup_close(&r->out_fd);
	cleanup_close(&r->err_fd);
	cleanup_close(&r->console_fd);
	boot_files_remove(&r->files);
	console_free(r->console);
	free(r->how);
}

static int run_checked(const struct boot_options *o, struct boot_facts *ret, struct error *err)
{
	CLEANUP_FREE char *nonce = make_nonce();
	CLEANUP(run_free)
	struct run r = {.o = o,
	                .patience = o->kvm ? &patience_kvm : &patience_tcg,
	                .out_fd = -1,
	                .err_fd = -1,
	                .console_fd = -1,
	                .begin = clock_ms()};
	struct host_qemu host;

	r.console = console_new(nonce, o->bar_bytes, BOOT_PHYS_BITS);
	if (host_qemu(&host, o->log, err) < 0 || boot_files_check_space(o->work_dir, err) < 0 ||
	    open_console(&r, err) < 0 ||
	    boot_files_make(&r.files, o, nonce, r.patience->settle_s, err) < 0 ||
	    start_qemu(&r, &host, err) < 0 || boot_watch(&r, err) < 0)
		return -1;
	gather(&r, ret);
	return 0;
}

int boot_run(const struct boot_options *options, struct boot_facts *ret, struct error *err)
{
	struct boot_options o = *options;
	CLEANUP_FREE char *work_dir = NULL;

	if (!o.bar_bytes)
		o.bar_bytes = DEFAULT_BAR_BYTES;
	if (!o.memory_bytes)
		o.memory_bytes = DEFAULT_MEMORY;
	if (boot_recipe_check(&o, err) < 0)
		return -1;
	/* Absolute: in a relative name QEMU may see a protocol ("nbd:…"). */
	work_dir = realpath(o.work_dir, NULL);
	if (!work_dir) {
		error_errno(err, errno, "cannot use the work directory '%s'", o.work_dir);
		return error_code(err, EXIT_HOST);
	}
	o.work_dir = work_dir;
	return run_checked(&o, ret, err);
}
