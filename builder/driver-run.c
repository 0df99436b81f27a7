/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "clock.h"
#include "driver-command.h"
#include "driver-dkms.h"
#include "driver-kernel.h"
#include "driver-run.h"

#define RUN_DIR  "/var/tmp/gpuimg-run" /* in the image: its /tmp is memory in the sandbox */
#define RUN_FILE RUN_DIR "/driver.run"
#define RUN_TMP  RUN_DIR "/tmp"
#define RUN_LOG  RUN_DIR "/installer.log"

#define KERNEL_TIMEOUT_MS (60 * 60 * 1000)
#define CHECK_TIMEOUT_MS  (10 * 60 * 1000)

/*
 * Taken where this version of the installer has them. /proc is the build machine's: what runs
 * there (a driver, nouveau, X) is not the image's. The initramfs and the block of nouveau are
 * stages of ours; scripts in /usr/lib/nvidia are those with which distributions refuse it; units
 * for suspending are for desktops.
 */
static const char *const wanted_options[] = {
	"--skip-module-load",
	"--allow-installation-with-running-driver",
	"--no-nouveau-check",
	"--no-disable-nouveau",
	"--no-x-check",
	"--no-runlevel-check",
	"--no-check-for-alternate-installs",
	"--no-distro-scripts",
	"--no-rebuild-initramfs",
	"--no-systemd",
};

struct installer {
	struct rootfs *root;
	struct log *log;
	const char *path; /* of the file on the host */
	const struct driver_plan *plan;
	bool dkms;
	char *help;          /* of --advanced-options */
	struct strv options; /* for every kernel */
};

static void installer_free(struct installer *in)
{
	free(in->help);
	strv_free(&in->options);
}

#define CLEANUP_INSTALLER CLEANUP(installer_free)

bool driver_run_offers(const char *help, const char *option)
{
	size_t length = strlen(option);

	for (const char *at = help; (at = strstr(at, option)); at += length) {
		char next = at[length];
		bool begins = at == help || (!isalnum((unsigned char)at[-1]) && at[-1] != '-');

		if (begins && !isalnum((unsigned char)next) && next != '-' && next != '_')
			return true;
	}
	return false;
}

/* Its script, in the image, with files of its own beside it. */
static int run_file(struct installer *in, const struct strv *args, unsigned timeout_ms,
                    char **ret_output, int *ret_status, struct error *err)
{
	static const char *const env[] = {"TMPDIR=" RUN_TMP, NULL};
	CLEANUP_STRV struct strv argv = strv_split("sh " RUN_FILE, " ");

	strv_add_all(&argv, args);
	return driver_command(in->root, (const char *const *)argv.items, env, timeout_ms, in->log,
	                      ret_output, ret_status, err);
}

static int put_file(struct installer *in, struct error *err)
{
	CLEANUP_CLOSE int fd = open(in->path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "cannot open the driver's installer '%s'", in->path);
	if (rootfs_mkdir(in->root, RUN_DIR, 0700, err) < 0 ||
	    rootfs_mkdir(in->root, RUN_TMP, 0700, err) < 0 ||
	    rootfs_copy_in(in->root, RUN_FILE, fd, 0700, err) < 0)
		return error_prefix(err, "cannot copy '%s' into the image", in->path);
	return 0;
}

static int check_file(struct installer *in, struct error *err)
{
	CLEANUP_STRV struct strv args = strv_split("--check", " ");
	CLEANUP_FREE char *output = NULL;
	CLEANUP_FREE char *tail = NULL;
	int status;

	if (run_file(in, &args, CHECK_TIMEOUT_MS, &output, &status, err) < 0)
		return -1;
	if (status == 0)
		return 0;
	tail = driver_log_tail(output);
	error_set(err, "'%s' is damaged, by its own check (exit %d)%s", in->path, status, tail);
	error_hint(err, "download it again");
	return error_code(err, EXIT_INPUT);
}

static int read_help(struct installer *in, struct error *err)
{
	CLEANUP_STRV struct strv args = strv_split("--advanced-options", " ");
	int status;

	if (run_file(in, &args, CHECK_TIMEOUT_MS, &in->help, &status, err) < 0)
		return -1;
	if (driver_run_offers(in->help, "--kernel-name"))
		return 0;
	error_set(err, "'%s' does not say which options it has (exit %d)", in->path, status);
	return error_code(err, EXIT_INPUT);
}

/*
 * Never left to the installer, whose choice hangs on the GPU of the build machine. 515 to 555 have
 * the source's directory in place of the type; older ones have no open modules.
 */
static int add_flavour(struct installer *in, struct error *err)
{
	const bool is_open = in->plan->flavour == DRIVER_OPEN;

	if (driver_run_offers(in->help, "--kernel-module-type")) {
		strv_addf(&in->options, "--kernel-module-type=%s",
		          driver_flavour_name(in->plan->flavour));
	} else if (driver_run_offers(in->help, "--kernel-module-build-directory")) {
		strv_addf(&in->options, "--kernel-module-build-directory=%s",
		          is_open ? "kernel-open" : "kernel");
	} else if (is_open) {
		error_set(err, "driver %s of '%s' has no open modules", in->plan->version,
		          in->path);
		error_hint(err, "say --driver-flavour=proprietary");
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

static int choose_options(struct installer *in, struct error *err)
{
	strv_add(&in->options, "--silent");
	strv_add(&in->options, "--tmpdir=" RUN_TMP);
	strv_add(&in->options, "--log-file-name=" RUN_LOG);
	if (add_flavour(in, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(wanted_options) / sizeof(*wanted_options); i++)
		if (driver_run_offers(in->help, wanted_options[i]))
			strv_add(&in->options, wanted_options[i]);
	if (in->dkms)
		strv_add(&in->options, "--dkms");
	else if (driver_run_offers(in->help, "--no-dkms"))
		strv_add(&in->options, "--no-dkms");
	return 0;
}

/* Older ones call it --kernel-module-only; the letter is the same in all. */
static const char *modules_only(const struct installer *in)
{
	return driver_run_offers(in->help, "--kernel-modules-only") ? "--kernel-modules-only"
	                                                            : "-K";
}

static int fail_install(struct installer *in, const char *kernel, const char *output, int status,
                        struct error *err)
{
	CLEANUP_FREE char *from_file = driver_log_file_tail(in->root, RUN_LOG);
	CLEANUP_FREE char *from_output = driver_log_tail(output);

	error_set(err, "kernel '%s': the installer of driver %s failed (exit %d)%s%s", kernel,
	          in->plan->version, status, *from_file ? "; the last lines of its log:" : "",
	          *from_file ? from_file : from_output);
	if (driver_log_says_full(from_file) || driver_log_says_full(output)) {
		error_hint(err, "give the build more room: --work-dir=DIR on a larger file system, "
		                "or a base with a larger root");
		return error_code(err, EXIT_HOST);
	}
	return error_hint(err, "the log of the build has all that it said");
}

static int check_module(struct installer *in, const char *kernel, struct error *err)
{
	CLEANUP_FREE char *path = NULL;
	int found;

	if (driver_kernel_depmod(in->root, kernel, err) < 0)
		return -1;
	found = driver_kernel_find(in->root, kernel, "nvidia", &path, err);
	if (found < 0)
		return -1;
	return found ? 0
	             : error_set(
			       err,
			       "kernel '%s': the installer reports success, but module 'nvidia' is "
			       "not below '/lib/modules/%s'",
			       kernel, kernel);
}

static int install_for(struct installer *in, const char *kernel, bool first, struct error *err)
{
	CLEANUP_STRV struct strv args = {0};
	CLEANUP_FREE char *output = NULL;
	int64_t begin_ms = clock_ms();
	int status;

	strv_add_all(&args, &in->options);
	strv_addf(&args, "--kernel-name=%s", kernel);
	if (!first)
		strv_add(&args, modules_only(in));
	log_note(in->log, "kernel '%s': runs the installer of driver %s%s", kernel,
	         in->plan->version, first ? "" : ", modules only");
	if (run_file(in, &args, KERNEL_TIMEOUT_MS, &output, &status, err) < 0)
		return error_prefix(err, "kernel '%s'", kernel);
	if (status != 0)
		return fail_install(in, kernel, output, status, err);
	if (check_module(in, kernel, err) < 0)
		return -1;
	log_note(in->log, "kernel '%s': done after %lld s", kernel,
	         (long long)(clock_ms() - begin_ms) / 1000);
	return 0;
}

/* The installer registers and builds one kernel; a second --dkms would register again, and fail. */
static int install_rest(struct installer *in, struct error *err)
{
	CLEANUP_STRV struct strv rest = {0};

	for (size_t i = 1; i < in->plan->kernel_count; i++) {
		if (in->dkms)
			strv_add(&rest, in->plan->kernels[i].version);
		else if (install_for(in, in->plan->kernels[i].version, false, err) < 0)
			return -1;
	}
	return driver_dkms_build_kernels(in->root, &rest, in->log, err);
}

static bool has_library(struct rootfs *root, const char *name, const char *version)
{
	static const char *const dirs[] = {"/usr/lib/x86_64-linux-gnu",
	                                   "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++) {
		CLEANUP_FREE char *path = str_format("%s/%s.so.%s", dirs[i], name, version);

		if (rootfs_exists(root, path))
			return true;
	}
	return false;
}

/* What a node needs beside the modules. */
static int check_user_space(const struct installer *in, struct error *err)
{
	static const char *const libraries[] = {"libcuda", "libnvidia-ml"};
	const char *version = in->plan->version;

	for (size_t i = 0; i < sizeof(libraries) / sizeof(*libraries); i++)
		if (!has_library(in->root, libraries[i], version))
			return error_set(err,
			                 "the installer of driver %s reports success, but "
			                 "'%s.so.%s' is in no library directory",
			                 version, libraries[i], version);
	if (!rootfs_exists(in->root, "/usr/bin/nvidia-smi"))
		return error_set(err,
		                 "the installer of driver %s reports success, but "
		                 "'/usr/bin/nvidia-smi' is missing",
		                 version);
	return 0;
}

static int install_all(struct installer *in, struct error *err)
{
	if (put_file(in, err) < 0 || check_file(in, err) < 0 || read_help(in, err) < 0 ||
	    choose_options(in, err) < 0)
		return -1;
	if (install_for(in, in->plan->kernels[0].version, true, err) < 0 ||
	    install_rest(in, err) < 0)
		return -1;
	return check_user_space(in, err);
}

int driver_run_install(struct rootfs *root, const char *path, const struct driver_plan *plan,
                       bool dkms, struct log *log, struct error *err)
{
	CLEANUP_INSTALLER struct installer in = {.root = root,
	                                         .log = log,
	                                         .path = path,
	                                         .plan = plan,
	                                         .dkms = dkms && driver_dkms_is_there(root)};
	CLEANUP_ERROR struct error late = ERROR_INIT;
	int result;

	if (plan->kernel_count == 0)
		return error_set(err, "no kernel to install driver %s for", plan->version);
	if (dkms && !in.dkms)
		log_note(log,
		         "the image has no DKMS: the driver's modules are not registered, and not "
		         "built for later kernels");
	result = install_all(&in, err);
	if (rootfs_remove(root, RUN_DIR, &late) < 0 && result == 0)
		return error_take(err, &late);
	return result;
}
