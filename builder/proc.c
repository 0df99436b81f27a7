/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "proc.h"
#include "str.h"

#define DEFAULT_TIMEOUT_MS (5 * 60 * 1000)
#define TAIL_LINES         6
#define LINE_MAX_BYTES     4096
#define LOG_MAX_BYTES      ((size_t)64 << 20) /* of one run: guest programs must not fill our disk */

extern char **environ;

bool proc_have(const char *program)
{
	CLEANUP_STRV struct strv dirs = strv_split(getenv("PATH") ? getenv("PATH") : "", ":");

	if (strchr(program, '/'))
		return access(program, X_OK) == 0;
	for (size_t i = 0; i < dirs.count; i++) {
		CLEANUP_FREE char *path = str_format("%s/%s", dirs.items[i], program);

		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

/* Between fork and exec: async-signal-safe calls only. Never returns. */
static void child_exec(const char *const *argv, const struct proc_options *o, pid_t parent,
                       const int fds[3], int report_fd)
{
	sigset_t none;
	int errnum;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	for (int i = 0; i < 3; i++)
		if (dup2(fds[i], i) < 0)
			_exit(127);
	/* What our own parent left open to us is none of a child's business either. */
	close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
	for (size_t i = 0; i < o->pass_count; i++)
		fcntl(o->pass_fds[i], F_SETFD, 0);
	errnum = o->in_child ? o->in_child(o->in_child_data) : 0;
	if (errnum == 0) {
		execvpe(argv[0], (char *const *)argv, o->env ? (char *const *)o->env : environ);
		errnum = errno;
	}
	while (write(report_fd, &errnum, sizeof(errnum)) < 0 && errno == EINTR)
		;
	_exit(127);
}

/* All of ours that go into a child's 0..2 must be above 2, or dup2 would overwrite one. */
static int above_stdio(int fd)
{
	return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static int fork_exec(struct proc *p, const char *const *argv, const struct proc_options *o,
                     const int fds[3], struct error *err)
{
	CLEANUP_CLOSE int in = above_stdio(fds[0]);
	CLEANUP_CLOSE int out = above_stdio(fds[1]);
	CLEANUP_CLOSE int error_out = above_stdio(fds[2]);
	int report[2], errnum = 0;
	pid_t parent = getpid(), pid;
	ssize_t n;

	if (in < 0 || out < 0 || error_out < 0 || pipe2(report, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot start '%s'", argv[0]);
	pid = fork();
	if (pid == 0)
		child_exec(argv, o, parent, (const int[]){in, out, error_out}, report[1]);
	errnum = pid < 0 ? errno : 0;
	close(report[1]);
	do {
		n = pid < 0 ? 0 : read(report[0], &errnum, sizeof(errnum));
	} while (n < 0 && errno == EINTR);
	close(report[0]);
	if (errnum) {
		if (pid > 0)
			waitpid(pid, NULL, 0);
		error_errno(err, errnum, "cannot start '%s'", argv[0]);
		return error_code(err, EXIT_HOST);
	}
	p->pid = pid;
	return 0;
}

int proc_start(struct proc *p, const char *const *argv, const struct proc_options *options,
               int out_fd, int err_fd, struct error *err)
{
	CLEANUP_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int fds[3] = {options->stdin_fd > 0 ? options->stdin_fd : null, out_fd >= 0 ? out_fd : null,
	              err_fd >= 0 ? err_fd : null};

	if (null < 0)
		return error_errno(err, errno, "cannot open '/dev/null'");
	return fork_exec(p, argv, options, fds, err);
}

int proc_wait(struct proc *p, unsigned timeout_ms, int *ret_status, struct error *err)
{
	int64_t deadline = clock_ms() + timeout_ms;

	for (;;) {
		pid_t pid = waitpid(p->pid, ret_status, WNOHANG);

		if (pid == p->pid) {
			p->pid = 0;
			return 1;
		}
		if (pid < 0 && errno != EINTR)
			return error_errno(err, errno, "cannot wait for process %d", (int)p->pid);
		if (clock_ms() >= deadline)
			return 0;
		poll(NULL, 0, 10);
	}
}

void proc_kill(struct proc *p)
{
	if (p->pid <= 0)
		return;
	kill(-p->pid, SIGKILL);
	kill(p->pid, SIGKILL);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	p->pid = 0;
}

/* Output of a run: whole lines for the tail and the callback, or bytes for a capture. */
struct output {
	char line[LINE_MAX_BYTES];
	size_t length;
	char *tail[TAIL_LINES];
	size_t tail_next;
	char *captured;
	size_t captured_size;
	size_t captured_max;
	size_t logged;
	bool log_full;
	bool overflow;
};

static void output_line(struct output *out, const struct proc_options *o)
{
	size_t slot = out->tail_next++ % TAIL_LINES;

	out->line[out->length] = '\0';
	out->length = 0;
	free(out->tail[slot]);
	out->tail[slot] = str_printable(out->line, 300);
	if (o->on_line)
		o->on_line(o->opaque, out->line);
}

static void output_log(struct output *out, struct log *log, const char *data, size_t size)
{
	static const char full[] = "\nfurther output left out\n";
	size_t left = LOG_MAX_BYTES - out->logged;
	size_t part = size < left ? size : left;

	if (out->log_full)
		return;
	log_raw(log, data, part);
	out->logged += part;
	out->log_full = part < size;
	if (out->log_full)
		log_raw(log, full, sizeof(full) - 1);
}

static void output_text(struct output *out, const struct proc_options *o, const char *data,
                        size_t size)
{
	output_log(out, o->log, data, size);
	for (size_t i = 0; i < size; i++) {
		bool end = data[i] == '\n' || data[i] == '\r';

		if (end ? out->length > 0 : out->length + 1 >= sizeof(out->line))
			output_line(out, o);
		if (!end)
			out->line[out->length++] = data[i];
	}
}

static void output_capture(struct output *out, const char *data, size_t size)
{
	if (size > out->captured_max - out->captured_size) {
		out->overflow = true;
		return;
	}
	out->captured = mem_grow(out->captured, out->captured_size + size + 1, 1);
	memcpy(out->captured + out->captured_size, data, size);
	out->captured_size += size;
}

static char *output_tail(struct output *out)
{
	CLEANUP_STRV struct strv lines = {0};

	if (out->length)
		output_line(out, &(struct proc_options){0});
	for (size_t i = 0; i < TAIL_LINES; i++) {
		const char *line = out->tail[(out->tail_next + i) % TAIL_LINES];

		if (line)
			strv_add(&lines, line);
	}
	return strv_join(&lines, "\n  | ");
}

static void output_free(struct output *out)
{
	for (size_t i = 0; i < TAIL_LINES; i++)
		free(out->tail[i]);
	free(out->captured);
}

/* Reads both pipes until they close, the child has ended, or the deadline. 0 or -1 (timeout). */
static int pump(struct output *out, const struct proc_options *o, int text_fd, int capture_fd,
                int64_t deadline)
{
	struct pollfd fds[2] = {{.fd = text_fd, .events = POLLIN},
	                        {.fd = capture_fd, .events = POLLIN}};
	char buffer[16384];

	while (fds[0].fd >= 0 || fds[1].fd >= 0) {
		int64_t left = deadline - clock_ms();

		if (left <= 0)
			return -1;
		if (poll(fds, 2, left > 1000 ? 1000 : (int)left) < 0 && errno != EINTR)
			return -1;
		for (int i = 0; i < 2; i++) {
			ssize_t n;

			if (fds[i].fd < 0 || !fds[i].revents)
				continue;
			n = read(fds[i].fd, buffer, sizeof(buffer));
			if (n > 0 && i == 0)
				output_text(out, o, buffer, (size_t)n);
			else if (n > 0)
				output_capture(out, buffer, (size_t)n);
			else if (n == 0 || errno != EINTR)
				fds[i].fd = -1;
			if (out->overflow)
				return 0;
		}
	}
	return 0;
}

static int run_failed(const char *name, struct output *out, struct error *err, const char *how)
{
	CLEANUP_FREE char *tail = output_tail(out);

	return error_set(err, "'%s' %s%s%s", name, how, *tail ? "; it said:\n  | " : "", tail);
}

static int run_finish(struct proc *p, const char *name, struct output *out, int64_t deadline,
                      int *ret_exit, struct error *err)
{
	int64_t left = deadline - clock_ms();
	CLEANUP_FREE char *how = NULL;
	int status = 0;
	int ended;

	if (out->overflow)
		return error_set(err, "'%s' wrote more than %zu bytes", name, out->captured_max);
	ended = proc_wait(p, left > 0 ? (unsigned)left : 0, &status, err);
	if (ended < 0)
		return -1;
	if (ended == 0)
		return run_failed(name, out, err, "did not end in time and was stopped");
	if (WIFSIGNALED(status)) {
		how = str_format("was ended by signal %d", WTERMSIG(status));
		return run_failed(name, out, err, how);
	}
	if (ret_exit) {
		*ret_exit = WEXITSTATUS(status);
		return 0;
	}
	if (WEXITSTATUS(status) == 0)
		return 0;
	how = str_format("failed with exit code %d", WEXITSTATUS(status));
	return run_failed(name, out, err, how);
}

int proc_run_status(const char *const *argv, const struct proc_options *options, char **ret_stdout,
                    size_t max_bytes, int *ret_exit, struct error *err)
{
	const struct proc_options none = {0};
	const struct proc_options *o = options ? options : &none;
	int64_t deadline = clock_ms() + (o->timeout_ms ? o->timeout_ms : DEFAULT_TIMEOUT_MS);
	struct output out = {.captured_max = max_bytes};
	struct proc p = {0};
	int text[2] = {-1, -1}, capture[2] = {-1, -1}, result = -1;

	if (pipe2(text, O_CLOEXEC) < 0 || (ret_stdout && pipe2(capture, O_CLOEXEC) < 0)) {
		error_errno(err, errno, "cannot make a pipe");
	} else {
		result = proc_start(&p, argv, o, ret_stdout ? capture[1] : text[1], text[1], err);
	}
	if (text[1] >= 0)
		close(text[1]);
	if (capture[1] >= 0)
		close(capture[1]);
	if (result == 0) {
		pump(&out, o, text[0], capture[0], deadline);
		result = run_finish(&p, argv[0], &out, deadline, ret_exit, err);
	}
	proc_kill(&p);
	if (text[0] >= 0)
		close(text[0]);
	if (capture[0] >= 0)
		close(capture[0]);
	if (result == 0 && ret_stdout) {
		output_capture(&out, "", 0);
		out.captured[out.captured_size] = '\0';
		*ret_stdout = STEAL(out.captured);
	}
	output_free(&out);
	return result;
}

int proc_run(const char *const *argv, const struct proc_options *options, char **ret_stdout,
             size_t max_bytes, struct error *err)
{
	return proc_run_status(argv, options, ret_stdout, max_bytes, NULL, err);
}
