/* SPDX-License-Identifier: Apache-2.0 */
/* Watches a guest: its console, QEMU's own messages, and when enough is enough. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "boot-run.h"
#include "clock.h"

#define CONSOLE_MAX_BYTES   (16 << 20) /* a guest that writes more floods us */
#define TICK_MS             200
#define PANIC_GRACE_MS      2000
#define CLOUD_DONE_GRACE_MS 60000
#define DRIVER_GRACE_MS     240000 /* facts.sh waits for modprobe and nvidia-smi */

static void keep_tail(struct run *r, const char *data, size_t size)
{
	size_t have = strlen(r->tail), drop;

	log_raw(r->o->log, data, size);
	if (size > TAIL_MAX_BYTES) {
		data += size - TAIL_MAX_BYTES;
		size = TAIL_MAX_BYTES;
	}
	drop = have + size > TAIL_MAX_BYTES ? have + size - TAIL_MAX_BYTES : 0;
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
	r->last_output = clock_ms();
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
		*at = clock_ms();
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

	if (seen->banner && r->gpu)
		fake_gpu_firmware_done(r->gpu);
	note_time(&r->panic_at, seen->panic);
	note_time(&r->login_at, seen->login);
	note_time(&r->cloud_done_at, seen->cloud_done);
	if (!secure_boot_stopped(seen))
		r->refused_at = 0;
	note_time(&r->refused_at, secure_boot_stopped(seen));
	log_step_progress(r->o->log, phases[phase].done, phases[phase].name);
}

static bool passed(int64_t at, int64_t patience_ms)
{
	return at && clock_ms() - at >= patience_ms;
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

/* How long the late facts may take once cloud-init has finished. */
static int64_t after_cloud_ms(const struct run *r)
{
	return r->patience->settle_s * 1000L + CLOUD_DONE_GRACE_MS +
	       (r->o->driver ? DRIVER_GRACE_MS : 0);
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
	if (r->refused_at && r->o->firmware == FIRMWARE_UEFI_SECURE_BOOT &&
	    secure_boot_gave_up(console_seen(r->console), clock_ms() - r->refused_at,
	                        clock_ms() - r->last_output, r->o->kvm))
		return str_format("Secure Boot stopped it: %s", console_seen(r->console)->refusal);
	if (!early && silent_after_login(r))
		return str_copy("a login prompt, and no facts");
	if (early && passed(r->cloud_done_at, after_cloud_ms(r)))
		return str_copy("cloud-init finished, and no late facts");
	if (!early && !r->login_at && passed(r->last_output, r->patience->stall_ms))
		return str_format("%s %u s", BOOT_STALLED, r->patience->stall_ms / 1000);
	if (clock_ms() - r->begin >= timeout_s * 1000L)
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
	return error_code(err, EXIT_HOST);
}

int boot_watch(struct run *r, struct error *err)
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
