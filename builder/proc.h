/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Child processes: argv arrays only, never a shell string; every wait has a deadline. A
 * child gets SIGKILL when the thread that started it ends (PR_SET_PDEATHSIG), sits in a
 * process group of its own, and inherits no descriptor but the ones named here.
 */
#ifndef GPUIMG_PROC_H
#define GPUIMG_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "error.h"
#include "log.h"

struct proc_options {
	const char *const *env; /* NULL: inherit ours */
	struct log *log;        /* gets stderr (and stdout, unless captured), bounded; or NULL */
	unsigned timeout_ms;    /* 0: five minutes */
	int stdin_fd;           /* 0 stands for /dev/null; not closed here */
	const int *pass_fds;    /* kept open in the child under the same numbers */
	size_t pass_count;
	/* Called for each whole line of output (NUL-terminated, no newline); may be NULL. */
	void (*on_line)(void *opaque, const char *line);
	void *opaque;
	/* Called in the child just before exec: async-signal-safe calls only. Returns 0, or an
	 * errno value that the start fails with. If it changes ids, the kernel forgets the death
	 * signal, and it has to set it anew. May be NULL. */
	int (*in_child)(const void *in_child_data);
	const void *in_child_data;
};

struct proc {
	pid_t pid; /* 0: not running */
};

/* Starts argv[0] (looked up in PATH) and returns; the caller owns 'out_fd' (closed in the
 * child's parent side by nobody but the caller); out_fd < 0 stands for /dev/null. */
int proc_start(struct proc *p, const char *const *argv, const struct proc_options *options,
               int out_fd, int err_fd, struct error *err);
/* Waits up to timeout_ms; *ret_status as from waitpid. 1: has ended, 0: still runs, -1. */
int proc_wait(struct proc *p, unsigned timeout_ms, int *ret_status, struct error *err);
/* SIGKILL to the child's process group and reap; safe to call twice. */
void proc_kill(struct proc *p);

/*
 * Runs to the end. Non-zero exit, a signal or the deadline are errors whose message holds the
 * program's name and the last lines that it wrote. ret_stdout (may be NULL: to the log) is
 * NUL-terminated, at most max_bytes: more is an error.
 */
int proc_run(const char *const *argv, const struct proc_options *options, char **ret_stdout,
             size_t max_bytes, struct error *err);
/* The same, but a non-zero exit is no error: *ret_exit gets it. */
int proc_run_status(const char *const *argv, const struct proc_options *options, char **ret_stdout,
                    size_t max_bytes, int *ret_exit, struct error *err);
/* Whether PATH has it. */
bool proc_have(const char *program);

#endif
