/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "boot-internal.h"
#include "proc.h"

#define QEMU                "qemu-system-x86_64"
#define TOOL_TIMEOUT_MS     60000
#define HELP_MAX_BYTES      (4 << 20)
#define VARS_MAX_BYTES      (16 << 20)
#define CONSOLE_MAX_BYTES   (16 << 20) /* a guest that writes more floods us */
#define WORK_NEED_BYTES     (UINT64_C(512) << 20)
#define DEFAULT_BAR_BYTES   (UINT64_C(32) << 30)
#define DEFAULT_MEMORY      (UINT64_C(2) << 30)
#define TAIL_BYTES          2048
#define TICK_MS             200
#define PANIC_GRACE_MS      2000
#define CLOUD_DONE_GRACE_MS 60000

/* How patient we are, by accelerator. */
struct patience {
	unsigned timeout_s;
	unsigned settle_s;     /* that the guest waits for its own rest */
	unsigned quiet_ms;     /* silence after a login prompt, when no frame came */
	unsigned quiet_max_ms; /* with a console that is never silent */
	unsigned stall_ms;     /* silence before a login prompt: emulators do hang, rarely */
};
static const struct patience patience_tcg = {900, 150, 20000, 90000, 300000};
static const struct patience patience_kvm = {180, 60, 8000, 30000, 90000};

/* What this host's QEMU offers. */
struct host_qemu {
	bool has_card;
	bool has_sandbox;
};

struct run {
	const struct boot_options *o;
	const struct patience *patience;
	struct boot_files files;
	struct console *console;
	struct fake_gpu *gpu; /* NULL: this QEMU cannot carry it */
	struct proc qemu;
	int out_fd, err_fd; /* our ends; -1 once QEMU has closed its own */
	int console_fd;     /* the file that keeps the console */
	int64_t begin, last_output, panic_at, login_at, cloud_done_at;
	size_t console_bytes;
	char tail[TAIL_BYTES + 1]; /* of QEMU's own messages */
	int status;                /* of QEMU, once it has ended */
	char *how;                 /* how the run ended */
};

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int host_error(struct error *err)
{
	return error_code(err, EXIT_HOST);
}

static int ask_qemu(const char *const *argv, struct log *log, char **ret, struct error *err)
{
	const struct proc_options options = {.log = log, .timeout_ms = TOOL_TIMEOUT_MS};

	if (proc_run(argv, &options, ret, HELP_MAX_BYTES, err) == 0)
		return 0;
	error_hint(err, "install QEMU: the package 'qemu-system-x86' (Debian, Ubuntu)");
	return host_error(err);
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
		return host_error(err);
	}
	return 0;
}

static int check_space(const char *dir, struct error *err)
{
	struct statvfs fs;
	uint64_t free_bytes;

	if (statvfs(dir, &fs) < 0) {
		error_errno(err, errno, "cannot use the work directory '%s'", dir);
		return host_error(err);
	}
	free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (free_bytes < WORK_NEED_BYTES) {
		CLEANUP_FREE char *have = str_size(free_bytes);
		CLEANUP_FREE char *need = str_size(WORK_NEED_BYTES);

		error_set(err, "cannot run the boot test in '%s': %s free, %s needed", dir, have,
		          need);
		return host_error(err);
	}
	return 0;
}

static char *make_nonce(void)
{
	uint64_t random = 0;

	if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random))
		random = (uint64_t)now_ms();
	return str_format("%016llx", (unsigned long long)random);
}

static int make_overlay(struct run *r, struct error *err)
{
	CLEANUP_FREE char *image = realpath(r->o->image, NULL);
	const struct proc_options options = {.log = r->o->log, .timeout_ms = TOOL_TIMEOUT_MS};

	if (!image)
		return error_errno(err, errno, "cannot boot the image '%s'", r->o->image);

	const char *const argv[] = {"qemu-img", "create", "-q", "-f",         "qcow2",
	                            "-b",       image,    "-F", r->o->format, r->files.overlay,
	                            NULL};

	if (proc_run(argv, &options, NULL, 0, err) == 0)
		return 0;
	error_prefix(err, "cannot make an overlay over '%s'", image);
	return host_error(err);
}

/* OVMF writes to its variables. */
static int copy_vars(const char *from, const char *to, struct error *err)
{
	CLEANUP_CLOSE int in = open(from, O_RDONLY | O_CLOEXEC);
	CLEANUP_CLOSE int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	CLEANUP_FREE char *data = mem_alloc(VARS_MAX_BYTES);
	ssize_t size = in >= 0 && out >= 0 ? read(in, data, VARS_MAX_BYTES) : -1;

	if (size < 0)
		return error_errno(err, errno, "cannot copy '%s' to '%s'", from, to);
	if (size == 0 || size == VARS_MAX_BYTES)
		return error_set(err, "cannot copy '%s' to '%s': not a file of variables", from,
		                 to);
	if (write(out, data, (size_t)size) != size)
		return error_errno(err, errno, "cannot copy '%s' to '%s'", from, to);
	return 0;
}

static void remove_files(const struct boot_files *f)
{
	unlink(f->overlay);
	unlink(f->seed);
	if (f->vars)
		unlink(f->vars);
}

static int make_files(struct run *r, const char *nonce, struct error *err)
{
	struct boot_files *f = &r->files;

	if (r->o->firmware == FIRMWARE_UEFI) {
		CLEANUP_FREE char *template = NULL;

		if (boot_recipe_firmware(&f->code, &template, err) < 0)
			return -1;
		f->vars = str_format("%s/boot-%s.vars", r->o->work_dir, nonce);
		if (copy_vars(template, f->vars, err) < 0)
			return host_error(err);
	}
	if (boot_seed_write(f->seed, r->o->data_dir, nonce, r->patience->settle_s, err) < 0)
		return host_error(err);
	return make_overlay(r, err);
}

static int open_console(struct run *r, struct error *err)
{
	CLEANUP_FREE char *path = r->o->console_path ? str_copy(r->o->console_path)
	                                             : str_format("%s/console.log", r->o->work_dir);

	r->console_fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (r->console_fd >= 0)
		return 0;
	error_errno(err, errno, "cannot write the console log '%s'", path);
	return host_error(err);
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

static void keep_tail(struct run *r, const char *data, size_t size)
{
	size_t have = strlen(r->tail), drop;

	log_raw(r->o->log, data, size);
	if (size > TAIL_BYTES) {
		data += size - TAIL_BYTES;
		size = TAIL_BYTES;
	}
	drop = have + size > TAIL_BYTES ? have + size - TAIL_BYTES : 0;
	memmove(r->tail, r->tail + drop, have - drop);
	memcpy(r->tail + have - drop, data, size);
	r->tail[have - drop + size] = '\0';
}

static void keep_console(struct run *r, const char *data, size_t size)
{
	/* A full disk costs the log, not the test. */
	if (r->console_fd >= 0 && write(r->console_fd, data, size) != (ssize_t)size) {
		log_warn(r->o->log, "cannot write the console log: %s, ignoring", strerror(errno));
		close(r->console_fd);
		r->console_fd = -1;
	}
	r->console_bytes += size;
	r->last_output = now_ms();
	console_feed(r->console, data, size);
}

/* One of QEMU's two pipes has something to say, or has closed. */
static void read_pipe(struct run *r, int *fd, bool is_console)
{
	char buffer[16384];
	ssize_t n = read(*fd, buffer, sizeof(buffer));

	if (n > 0 && is_console)
		keep_console(r, buffer, (size_t)n);
	else if (n > 0)
		keep_tail(r, buffer, (size_t)n);
	else if (n == 0 || errno != EINTR) {
		close(*fd);
		*fd = -1;
	}
}

static void wait_for_output(struct run *r)
{
	struct pollfd fds[2] = {{.fd = r->out_fd, .events = POLLIN},
	                        {.fd = r->err_fd, .events = POLLIN}};

	if (poll(fds, 2, TICK_MS) <= 0)
		return;
	if (fds[1].revents)
		read_pipe(r, &r->err_fd, false);
	if (fds[0].revents)
		read_pipe(r, &r->out_fd, true);
}

static void note_time(int64_t *at, bool seen)
{
	if (seen && !*at)
		*at = now_ms();
}

static void note_progress(struct run *r)
{
	static const struct {
		const char *name;
		double done;
	} phases[] = {{"firmware", 0.02},
	              {"kernel", 0.15},
	              {"initramfs", 0.3},
	              {"userspace", 0.5},
	              {"done", 1}};
	const struct console_seen *seen = console_seen(r->console);
	enum boot_phase phase = r->how ? PHASE_DONE : seen->phase;

	if (seen->kernel && r->gpu)
		fake_gpu_firmware_done(r->gpu);
	note_time(&r->panic_at, seen->panic);
	note_time(&r->login_at, seen->login);
	note_time(&r->cloud_done_at, seen->cloud_done);
	log_step_progress(r->o->log, phases[phase].done, phases[phase].name);
}

static bool passed(int64_t at, int64_t patience_ms)
{
	return at && now_ms() - at >= patience_ms;
}

/* With no frame by the login prompt, none will come: cloud-init's first stage is long over. */
static bool silent_after_login(const struct run *r)
{
	return passed(r->login_at, r->patience->quiet_max_ms) ||
	       (passed(r->login_at, r->patience->quiet_ms) &&
	        passed(r->last_output, r->patience->quiet_ms));
}

static char *qemu_ended(struct run *r)
{
	const struct console_seen *seen = console_seen(r->console);
	CLEANUP_ERROR struct error ignored = ERROR_INIT;

	if (proc_wait(&r->qemu, TICK_MS, &r->status, &ignored) == 0)
		return NULL;
	if (r->status != 0)
		return str_copy("QEMU failed");
	if (seen->power_off)
		return str_copy("the guest powered off");
	if (seen->panic)
		return str_format("the guest's kernel gave up: %s", seen->panic_message);
	return str_copy(seen->restart ? "the guest restarted"
	                              : "the guest powered off or restarted without a word");
}

/* NULL: go on. */
static char *end_reason(struct run *r, unsigned timeout_s)
{
	const struct frames *frames = console_frames(r->console);
	bool early = frames_whole(frames, FRAME_EARLY);

	if (frames_whole(frames, FRAME_LATE))
		return str_copy("all facts are in");
	if (r->o->early_only && early)
		return str_copy("the early facts are in");
	if (r->console_bytes > CONSOLE_MAX_BYTES)
		return str_format("the guest flooded its console with more than %d MiB",
		                  CONSOLE_MAX_BYTES >> 20);
	if (r->out_fd < 0 && r->err_fd < 0) {
		char *how = qemu_ended(r);

		if (how)
			return how;
	}
	if (passed(r->panic_at, PANIC_GRACE_MS))
		return str_format("the guest's kernel gave up: %s",
		                  console_seen(r->console)->panic_message);
	if (!early && silent_after_login(r))
		return str_copy("a login prompt, and no facts");
	if (early && passed(r->cloud_done_at, r->patience->settle_s * 1000L + CLOUD_DONE_GRACE_MS))
		return str_copy("cloud-init finished, and no late facts");
	if (!early && !r->login_at && passed(r->last_output, r->patience->stall_ms))
		return str_format("%s %u s", BOOT_STALLED, r->patience->stall_ms / 1000);
	if (now_ms() - r->begin >= timeout_s * 1000L)
		return str_format("the deadline of %u s passed", timeout_s);
	return NULL;
}

/* QEMU that fails before the guest said a word has not run the test. */
static int check_qemu(const struct run *r, struct error *err)
{
	CLEANUP_FREE char *tail = NULL;

	if (r->status == 0)
		return 0;
	tail = str_copy(r->tail);
	if (r->console_bytes > 0) {
		log_warn(r->o->log, "QEMU failed in the middle of the boot test: %s",
		         str_trim(tail));
		return 0;
	}
	if (WIFSIGNALED(r->status))
		error_set(err, "cannot run the boot test: '%s' was ended by signal %d: %s", QEMU,
		          WTERMSIG(r->status), str_trim(tail));
	else
		error_set(err, "cannot run the boot test: '%s' failed with exit code %d: %s", QEMU,
		          WEXITSTATUS(r->status), str_trim(tail));
	error_hint(err, "run 'gpuimg doctor' to check this host");
	return host_error(err);
}

static int watch(struct run *r, struct error *err)
{
	unsigned timeout_s = r->o->timeout_s ? r->o->timeout_s : r->patience->timeout_s;

	while (!r->how) {
		wait_for_output(r);
		r->how = end_reason(r, timeout_s);
		note_progress(r);
	}
	log_detail(r->o->log, "the boot test ended: %s", r->how);
	proc_kill(&r->qemu);
	return check_qemu(r, err);
}

static void gather(struct run *r, struct boot_facts *ret)
{
	struct boot_end end = {
		.how = r->how, .early_only = r->o->early_only, .has_card = r->gpu != NULL};

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
	ret->seconds = (double)(now_ms() - r->begin) / 1000;
	ret->accelerator = str_copy(r->o->kvm ? "kvm" : "tcg");
}

static void run_free(struct run *r)
{
	proc_kill(&r->qemu);
	fake_gpu_stop(r->gpu);
	cleanup_close(&r->out_fd);
	cleanup_close(&r->err_fd);
	cleanup_close(&r->console_fd);
	remove_files(&r->files);
	free(r->files.overlay);
	free(r->files.seed);
	free(r->files.vars);
	free(r->files.code);
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
	                .begin = now_ms()};
	struct host_qemu host;

	r.files.overlay = str_format("%s/boot-%s.qcow2", o->work_dir, nonce);
	r.files.seed = str_format("%s/boot-%s.iso", o->work_dir, nonce);
	r.console = console_new(nonce, o->bar_bytes, BOOT_PHYS_BITS);
	if (host_qemu(&host, o->log, err) < 0 || check_space(o->work_dir, err) < 0 ||
	    open_console(&r, err) < 0 || make_files(&r, nonce, err) < 0 ||
	    start_qemu(&r, &host, err) < 0 || watch(&r, err) < 0)
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
		return host_error(err);
	}
	o.work_dir = work_dir;
	return run_checked(&o, ret, err);
}
