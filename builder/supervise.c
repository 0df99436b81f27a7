/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "str.h"
#include "supervise.h"

#define REAP_PAUSE_MS 20
#define REAP_ROUNDS   500 /* ten seconds */

/* Our children as the kernel lists them; needs CONFIG_PROC_CHILDREN, which distributions set. */
static size_t kill_children(void)
{
	CLEANUP_FREE char *path = str_format("/proc/self/task/%d/children", (int)getpid());
	CLEANUP_FCLOSE FILE *file = fopen(path, "re");
	size_t count = 0;
	int pid;

	while (file && fscanf(file, "%d", &pid) == 1) {
		kill(pid, SIGKILL);
		count++;
	}
	return count;
}

/*
 * As the subreaper we inherit the orphans of everybody below us, so killing our children over
 * and over until none is left ends the whole tree, however deep.
 */
static void end_descendants(void)
{
	for (int round = 0; round < REAP_ROUNDS; round++) {
		bool left = kill_children() > 0;

		while (waitpid(-1, NULL, WNOHANG) > 0)
			left = true;
		if (!left && waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
			return;
		poll(NULL, 0, REAP_PAUSE_MS);
	}
}

static void child_main(const struct supervised *s, pid_t parent, const sigset_t *old_mask)
{
	int code;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_BUILD);
	sigprocmask(SIG_SETMASK, old_mask, NULL);
	code = s->work(s->opaque);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fputs("gpuimg: error: cannot write the result to standard output\n", stderr);
		code = code == EXIT_OK ? EXIT_BUILD : code;
	}
	/* Not exit(): a thread that nobody could call off may still be in a library. */
	fflush(NULL);
	_exit(code);
}

static time_t now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/* Waits for the work or for a signal to us; the signal's number, or 0. */
static int wait_work(const struct supervised *s, pid_t pid, int signal_fd, int *ret_status)
{
	struct pollfd fd = {.fd = signal_fd, .events = POLLIN};
	time_t begin = now_s();

	for (;;) {
		struct signalfd_siginfo info;
		pid_t ended;

		poll(&fd, 1, 1000);
		while ((ended = waitpid(-1, ret_status, WNOHANG)) > 0)
			if (ended == pid)
				return 0;
		if (read(signal_fd, &info, sizeof(info)) == sizeof(info) &&
		    info.ssi_signo != SIGCHLD)
			return (int)info.ssi_signo;
		if (s->timeout_s && now_s() - begin > (time_t)s->timeout_s) {
			fprintf(stderr, "gpuimg: error: not done after %u s, ended\n",
			        s->timeout_s);
			return SIGTERM;
		}
	}
}

int supervise(const struct supervised *s, struct error *err)
{
	sigset_t mask, old;
	CLEANUP_CLOSE int signal_fd = -1;
	pid_t parent = getpid(), pid;
	struct sigaction hangup;
	int status = 0, by_signal;

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	/* Under nohup it is ignored, and must stay so: a blocked signal comes all the same. */
	if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
		sigaddset(&mask, SIGHUP);
	sigaddset(&mask, SIGCHLD);
	sigprocmask(SIG_BLOCK, &mask, &old);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	fflush(NULL);
	pid = signal_fd < 0 ? -1 : fork();
	if (pid < 0)
		return error_errno(err, errno, "cannot start the work");
	if (pid == 0)
		child_main(s, parent, &old);
	by_signal = wait_work(s, pid, signal_fd, &status);
	if (by_signal)
		kill(pid, SIGKILL);
	end_descendants();
	if (!by_signal && WIFSIGNALED(status))
		by_signal = WTERMSIG(status);
	s->cleanup(s->opaque, by_signal ? -by_signal : WEXITSTATUS(status));
	return by_signal ? 128 + by_signal : WEXITSTATUS(status);
}
