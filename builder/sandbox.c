/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "proc.h"
#include "sandbox-private.h"
#include "tree.h"

#define TIMEOUT_MS      (15 * 60 * 1000)
#define GONE_TIMEOUT_MS (10 * 1000)

static void launch_free(struct launch *l)
{
	strv_free(&l->args);
	for (size_t i = 0; i < l->fd_count; i++)
		close(l->fds[i]);
}

static bool is_in_userns(pid_t pid, int userns_fd)
{
	CLEANUP_FREE char *path = str_format("/proc/%d/ns/user", (int)pid);
	struct stat its, ours;

	return stat(path, &its) == 0 && fstat(userns_fd, &ours) == 0 && its.st_ino == ours.st_ino &&
	       its.st_dev == ours.st_dev;
}

/*
 * After a normal end nothing is left. What was stopped from here is being killed by the
 * kernel, which takes a moment: when the first process of a process namespace has ended, so
 * have all others.
 */
static void wait_until_gone(struct sandbox *s, int pid_fd)
{
	pid_t pid = 0;
	ssize_t size = read(pid_fd, &pid, sizeof(pid));
	CLEANUP_CLOSE int pidfd =
		size == sizeof(pid) && pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
	struct pollfd gone = {.fd = pidfd, .events = POLLIN};

	if (pidfd < 0 || !is_in_userns(pid, s->userns_fd))
		return; /* gone; the number may already be somebody else's */
	syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0);
	if (poll(&gone, 1, GONE_TIMEOUT_MS) <= 0)
		log_warn(s->log, "processes of the sandbox have not ended yet, ignoring");
}

static int launch_run(struct sandbox *s, struct launch *l, const struct guest_command *command,
                      struct error *err)
{
	/* bubblewrap's own environment can be read inside, in /proc/1/environ */
	const char *const env[] = {GUEST_PATH, NULL};
	struct sandbox_entry entry = {
		.userns_fd = s->userns_fd, .tree_dir = s->dir, .parent = getpid()};
	const struct proc_options options = {
		.env = env,
		.log = s->log,
		.timeout_ms = command->timeout_ms ? command->timeout_ms : TIMEOUT_MS,
		.pass_fds = l->fds,
		.pass_count = l->fd_count,
		.in_child = sandbox_enter,
		.in_child_data = &entry,
	};
	int first[2], result;

	if (pipe2(first, O_CLOEXEC) < 0)
		return error_errno(err, errno, "cannot make a pipe");
	entry.pid_fd = first[1];
	strv_add(&l->args, "--");
	for (const char *const *arg = command->argv; *arg; arg++)
		strv_add(&l->args, *arg);
	result = proc_run((const char *const *)l->args.items, &options, command->ret_stdout,
	                  command->max_bytes, err);
	close(first[1]);
	wait_until_gone(s, first[0]);
	close(first[0]);
	return result;
}

static int run_with_network(struct sandbox *s, struct launch *l,
                            const struct guest_command *command, struct error *err)
{
	CLEANUP_ERROR struct error second = ERROR_INIT;
	struct resolv resolv;
	int result;

	if (resolv_prepare(&resolv, s->tree, s->log, err) < 0)
		return -1;
	launch_bind_file(l, fcntl(resolv.data_fd, F_DUPFD_CLOEXEC, 3), "0644", resolv.bind_path);
	result = launch_run(s, l, command, err);
	if (resolv_restore(&resolv, s->tree, &second) == 0)
		return result;
	if (result < 0) {
		log_warn(s->log, "%s", second.message);
		return -1;
	}
	return error_set(err, "%s", second.message);
}

int sandbox_run(struct sandbox *sandbox, const struct guest_command *command, struct error *err)
{
	struct launch l CLEANUP(launch_free) = {.fd_count = 0};
	int result = launch_prepare(sandbox, &l, command, err);

	if (result == 0 && command->network)
		result = run_with_network(sandbox, &l, command, err);
	else if (result == 0)
		result = launch_run(sandbox, &l, command, err);
	return result < 0 ? error_prefix(err, "cannot run '%s' in the sandbox", command->argv[0])
	                  : 0;
}

/* They become names in /dev/disk. */
static int check_id(const char *id, struct error *err)
{
	CLEANUP_FREE char *shown = NULL;

	if (!id || (*id && !id[strspn(id, "0123456789abcdefABCDEF-")]))
		return 0;
	shown = str_printable(id, 80);
	error_set(err, "'%s' is not the UUID of a file system or partition", shown);
	return error_code(err, EXIT_INPUT);
}

/* It becomes a name in /dev/mapper. */
static int check_mapper(const char *path, struct error *err)
{
	static const char dir[] = "/dev/mapper/";
	const char *name = str_starts(path, dir) ? path + strlen(dir) : "";
	CLEANUP_FREE char *shown = NULL;

	if (*name && *name != '.' &&
	    !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	                       "+_.-")])
		return 0;
	shown = str_printable(path, 80);
	error_set(err, "'%s' is not the name of a logical volume", shown);
	return error_code(err, EXIT_INPUT);
}

/* They become variables that scripts put into lines of their own. */
static int check_text(const char *text, const char *what, struct error *err)
{
	CLEANUP_FREE char *shown = NULL;

	if (!text)
		return 0;
	shown = str_printable(text, 4096);
	if (str_equal(shown, text))
		return 0;
	error_set(err, "'%s' is not a name that we dare to give to guest programs as %s", shown,
	          what);
	return error_code(err, EXIT_INPUT);
}

static int check_devices(const struct sandbox_devices *d, struct error *err)
{
	if (!d)
		return 0;
	if (check_id(d->root_uuid, err) < 0 || check_id(d->root_partuuid, err) < 0 ||
	    check_id(d->boot_uuid, err) < 0 || check_id(d->boot_partuuid, err) < 0 ||
	    check_id(d->esp_uuid, err) < 0 || check_id(d->esp_partuuid, err) < 0)
		return -1;
	if (d->root_device && check_mapper(d->root_device, err) < 0)
		return -1;
	if (check_text(d->root_subvol, "the root's subvolume", err) < 0)
		return -1;
	return check_text(d->esp_path, "where the ESP is mounted", err);
}

int sandbox_new(struct sandbox **ret, const struct sandbox_options *options, struct error *err)
{
	CLEANUP_SANDBOX struct sandbox *s = mem_alloc(sizeof(*s));

	*s = (struct sandbox){.dir = str_copy(options->dir),
	                      .data_dir = str_copy(options->data_dir),
	                      .devices = options->devices,
	                      .log = options->log,
	                      .userns_fd = -1,
	                      .can_size = sandbox_can_size()};
	if (check_devices(options->devices, err) < 0 ||
	    tree_rootfs(&s->tree, s->dir, NULL, err) < 0 ||
	    sandbox_userns_new(&s->userns_fd, err) < 0)
		return -1;
	*ret = STEAL(s);
	return 0;
}

void sandbox_free(struct sandbox *sandbox)
{
	if (!sandbox)
		return;
	rootfs_close(sandbox->tree);
	if (sandbox->userns_fd >= 0)
		close(sandbox->userns_fd);
	free(sandbox->dir);
	free(sandbox->data_dir);
	free(sandbox);
}
