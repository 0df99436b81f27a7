/* SPDX-License-Identifier: Apache-2.0 */
/* Whether this host can run a sandbox at all: asked before anything is made. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "proc.h"
#include "sandbox-private.h"
#include "tree.h"

#define PROBE_TIMEOUT_MS (30 * 1000)
#define HELP_BYTES_MAX   (64UL * 1024)

/* The part of a path that is there already, without links. */
static char *existing_part(const char *dir)
{
	CLEANUP_FREE char *path = str_copy(dir);
	char *real = realpath(path, NULL);

	while (!real && errno == ENOENT) {
		char *slash = strrchr(path, '/');

		if (!slash || slash == path)
			return realpath(slash ? "/" : ".", NULL);
		*slash = '\0';
		real = realpath(path, NULL);
	}
	return real;
}

static int check_exec(const char *path, struct error *err)
{
	struct statvfs st;

	if (statvfs(path, &st) < 0)
		return error_errno(err, errno, "cannot look at the file system of '%s'", path);
	if (!(st.f_flag & ST_NOEXEC))
		return 0;
	error_set(err, "the sandbox cannot run programs from '%s': it is mounted noexec", path);
	error_hint(err, "put the work directory on another file system");
	return error_code(err, EXIT_HOST);
}

static int check_dir(const char *dir, struct error *err)
{
	CLEANUP_FREE char *real = existing_part(dir);

	if (!real)
		return error_errno(err, errno, "cannot find the directory '%s'", dir);
	return check_exec(real, err);
}

/* Mounting a /proc is what fails in many a container; only doing it tells. */
static int check_bubblewrap(int userns_fd, struct error *err)
{
	static const char *const argv[] = {"bwrap",
	                                   "--unshare-pid",
	                                   "--unshare-net",
	                                   "--unshare-ipc",
	                                   "--unshare-uts",
	                                   "--die-with-parent",
	                                   "--ro-bind",
	                                   "/",
	                                   "/",
	                                   "--proc",
	                                   "/proc",
	                                   "--dev",
	                                   "/dev",
	                                   "--",
	                                   "true",
	                                   NULL};
	const struct sandbox_entry entry = {
		.userns_fd = userns_fd, .tree_dir = "/", .parent = getpid(), .pid_fd = -1};
	const struct proc_options options = {
		.timeout_ms = PROBE_TIMEOUT_MS,
		.in_child = sandbox_enter,
		.in_child_data = &entry,
	};

	if (proc_run(argv, &options, NULL, 0, err) == 0)
		return 0;
	error_prefix(err, "bubblewrap does not work on this host");
	error_hint(err, "in a container it needs /proc unmasked and CAP_SYS_ADMIN; "
	                "--exec=appliance works without");
	err->code = EXIT_HOST;
	return -1;
}

bool sandbox_can_size(void)
{
	static const char *const argv[] = {"bwrap", "--help", NULL};
	const struct proc_options options = {.timeout_ms = PROBE_TIMEOUT_MS};
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *help = NULL;

	return proc_run(argv, &options, &help, HELP_BYTES_MAX, &ignored) == 0 &&
	       strstr(help, "--size");
}

int sandbox_check_host(const char *dir, struct error *err)
{
	CLEANUP_CLOSE int userns_fd = -1;

	if (geteuid() != 0) {
		error_set(err, "the sandbox needs root, to give files to the ids that it maps");
		error_hint(err, "run as root, or use --exec=appliance");
		return error_code(err, EXIT_HOST);
	}
	if (!proc_have("bwrap")) {
		error_set(err, "the sandbox needs bubblewrap: there is no 'bwrap' in PATH");
		error_hint(err, "install the package bubblewrap, or use --exec=appliance");
		return error_code(err, EXIT_HOST);
	}
	if (dir && check_dir(dir, err) < 0)
		return -1;
	if (sandbox_userns_new(&userns_fd, err) < 0)
		return -1;
	return check_bubblewrap(userns_fd, err);
}
