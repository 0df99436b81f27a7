/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bubblewrap maps one id at most, and its --userns does not change ids on the way in, so that
 * host root is nobody there and cannot even make a directory. So the namespace is made here,
 * and bubblewrap is started as its root.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "sandbox-private.h"
#include "tree.h"

/* What a guest program may use up of the host; no package script comes near. */
#define FILES_SOFT     1024
#define FILES_HARD     4096
#define PROCESSES_MAX  4096
#define FILE_BYTES_MAX ((rlim_t)64 << 30)

#define KEYRING_TRIES 30 /* a tenth of a second apart */

/* A child that sits in a new user namespace until 'go' is closed. */
struct holder {
	pid_t pid;
	int go; /* write end */
};

static void send_errno(int fd, int errnum)
{
	while (write(fd, &errnum, sizeof(errnum)) < 0 && errno == EINTR)
		;
}

/* After fork, perhaps beside other threads: async-signal-safe calls only. */
static void holder_main(pid_t parent, int report_fd, int go_fd)
{
	int fd;
	char c;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || unshare(CLONE_NEWUSER) < 0) {
		send_errno(report_fd, errno);
		_exit(1);
	}
	send_errno(report_fd, 0);
	while (read(go_fd, &c, 1) < 0 && errno == EINTR)
		;
	/* guests need no namespaces of their own; this is a lesser hardening, so it may fail */
	fd = open("/proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && write(fd, "0", 1) != 1)
		_exit(1);
	_exit(0);
}

static int explain_unshare(int errnum, struct error *err)
{
	switch (errnum) {
	case ENOSPC:
	case EUSERS:
		error_set(err, "cannot make a user namespace for the sandbox: this host allows no "
		               "more of them (user.max_user_namespaces)");
		error_hint(err, "'sysctl user.max_user_namespaces=10000', or --exec=appliance");
		break;
	case EPERM:
		error_set(err, "cannot make a user namespace for the sandbox: not permitted, as in "
		               "a chroot or a confined container");
		error_hint(err,
		           "run outside the chroot, or give the container CAP_SYS_ADMIN and no "
		           "seccomp or AppArmor profile, or use --exec=appliance");
		break;
	default:
		error_errno(err, errnum, "cannot make a user namespace for the sandbox");
		error_hint(err, "the kernel needs CONFIG_USER_NS; --exec=appliance works without");
	}
	return error_code(err, EXIT_HOST);
}

static int holder_start(struct holder *h, struct error *err)
{
	int report[2], go[2], errnum = ECHILD;
	pid_t parent = getpid();
	ssize_t n;

	if (pipe2(report, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	if (pipe2(go, O_CLOEXEC) < 0) {
		error_errno(err, errno, "cannot make a pipe");
		close(report[0]);
		close(report[1]);
		return -1;
	}
	h->pid = fork();
	if (h->pid == 0) {
		close(go[1]);
		holder_main(parent, report[1], go[0]);
	}
	close(report[1]);
	close(go[0]);
	h->go = go[1];
	do {
		n = h->pid < 0 ? 0 : read(report[0], &errnum, sizeof(errnum));
	} while (n < 0 && errno == EINTR);
	close(report[0]);
	return n == sizeof(errnum) && errnum == 0 ? 0 : explain_unshare(errnum, err);
}

static void holder_end(struct holder *h)
{
	if (h->go >= 0)
		close(h->go);
	while (h->pid > 0 && waitpid(h->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int write_map(pid_t pid, const char *file, struct error *err)
{
	CLEANUP_FREE char *path = str_format("/proc/%d/%s", (int)pid, file);
	CLEANUP_FREE char *map = str_format("0 %u %u\n", TREE_UID_BASE, TREE_UID_COUNT);
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd >= 0 && write(fd, map, strlen(map)) == (ssize_t)strlen(map))
		return 0;
	error_errno(err, errno, "cannot map the ids %u to %u for the sandbox", TREE_UID_BASE,
	            TREE_UID_BASE + TREE_UID_COUNT - 1);
	error_hint(err, "a container with a user namespace of its own lacks these ids: run on the "
	                "host or in a container without one, or use --exec=appliance");
	return error_code(err, EXIT_HOST);
}

static int open_userns(pid_t pid, int *ret_fd, struct error *err)
{
	CLEANUP_FREE char *path = str_format("/proc/%d/ns/user", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0) {
		error_errno(err, errno, "cannot open '%s'", path);
		error_hint(err, "is /proc mounted?");
		return error_code(err, EXIT_HOST);
	}
	*ret_fd = fd;
	return 0;
}

int sandbox_userns_new(int *ret_fd, struct error *err)
{
	struct holder h CLEANUP(holder_end) = {.go = -1};

	if (holder_start(&h, err) < 0 || write_map(h.pid, "uid_map", err) < 0 ||
	    write_map(h.pid, "gid_map", err) < 0)
		return -1;
	return open_userns(h.pid, ret_fd, err);
}

/* From here to the end of the file: in a child between fork and exec, see proc.h. */

/*
 * The keys of our session are not for guest programs. A kernel without keyrings, or a container
 * that forbids them, has none for those either. The keyrings of runs that have ended count
 * until the kernel collects them, which takes a moment.
 */
static int join_keyring(void)
{
	for (int tries = 0; tries < KEYRING_TRIES; tries++) {
		if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) >= 0 ||
		    errno == ENOSYS || errno == EPERM)
			return 0;
		if (errno != EDQUOT)
			return errno;
		poll(NULL, 0, 100);
	}
	return EDQUOT;
}

static int become_root(int userns_fd)
{
	const struct rlimit no_core = {0};
	const struct rlimit processes = {PROCESSES_MAX, PROCESSES_MAX};
	const struct rlimit files = {FILES_SOFT, FILES_HARD};
	const struct rlimit file_size = {FILE_BYTES_MAX, FILE_BYTES_MAX};

	umask(022);
	setrlimit(RLIMIT_CORE, &no_core); /* the host's core handler is not for guest programs */
	setrlimit(RLIMIT_NPROC, &processes);
	setrlimit(RLIMIT_NOFILE, &files); /* ours is higher; some programs close all there may be */
	setrlimit(RLIMIT_FSIZE, &file_size);
	/* raw calls: the library's would signal all threads, of which the child has none */
	if (setns(userns_fd, CLONE_NEWUSER) < 0 || syscall(SYS_setgroups, 0, NULL) < 0 ||
	    syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		return errno;
	return join_keyring();
}

/* While still the host's root: afterwards a private directory above the tree would stop us. */
static int bind_tree(const char *dir)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ||
	    mount(dir, SANDBOX_TREE_POINT, NULL, MS_BIND, NULL) < 0)
		return errno;
	return 0;
}

static void close_all_but(int keep)
{
	if (syscall(SYS_close_range, 3, keep - 1, 0) == 0 &&
	    syscall(SYS_close_range, keep + 1, ~0U, 0) == 0)
		return;
	for (int fd = 3; fd < 4096; fd++) /* Linux before 5.9 */
		if (fd != keep)
			close(fd);
}

/* Ends as 'first' ends; 'alive' stays open for as long as this process lives. */
static void keep(pid_t first, int alive, int pid_fd)
{
	int status = 0;

	if (pid_fd >= 0 && write(pid_fd, &first, sizeof(first)) != sizeof(first))
		kill(first, SIGKILL);
	close_all_but(alive);
	while (waitpid(first, &status, 0) < 0 && errno == EINTR)
		;
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/*
 * bubblewrap's --die-with-parent leaves a gap: its child asks for the death signal only when
 * all is mounted, and lives on if bubblewrap is killed before. So all of bubblewrap runs in a
 * process namespace, which the kernel empties when its first process is gone. That one is
 * watched over by the process that proc.c knows, and both check that their parent lives.
 */
int sandbox_enter(const void *entry)
{
	const struct sandbox_entry *e = entry;
	struct pollfd alive = {.fd = -1, .events = POLLIN};
	int errnum = e->tree_dir ? bind_tree(e->tree_dir) : 0;
	int fds[2];
	pid_t first;

	if (errnum == 0)
		errnum = become_root(e->userns_fd);
	if (errnum)
		return errnum;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != e->parent)
		_exit(127);
	if (unshare(CLONE_NEWPID | CLONE_NEWNS) < 0 || pipe2(fds, O_CLOEXEC) < 0)
		return errno;
	first = _Fork();
	if (first < 0)
		return errno;
	if (first > 0)
		keep(first, fds[1], e->pid_fd);
	close(fds[1]);
	alive.fd = fds[0];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (poll(&alive, 1, 0) != 0)
		_exit(127);
	/* bubblewrap looks its child up in /proc: that must be this process namespace's. */
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return errno;
	return 0;
}
