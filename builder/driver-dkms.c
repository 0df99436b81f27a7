/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "driver-command.h"
#include "driver-dkms.h"
#include "driver-kernel.h"

#define DKMS_PROGRAM "/usr/sbin/dkms"
#define DKMS_TREE    "/var/lib/dkms"
#define CONF_DIR     "/etc/dkms/framework.conf.d"
#define CONF_PATH    CONF_DIR "/zz-gpuimg.conf" /* the last one wins */

#define KERNEL_TIMEOUT_MS 3600000
#define CONF_MAX_BYTES    (1024UL * 1024)
/* Exit codes of dkms 3; dkms 2 has 9 and 1 for them, and for others too: its words tell. */
#define DKMS_EXCLUDED   77
#define DKMS_NO_HEADERS 21
#define ERROR_LINE_MAX  300

/*
 * common.postinst, of every -dkms package, adds its module and then builds it for what it takes for
 * the kernels of interest; a build that exits 0 and leaves "added" as status is gone past by dkms 2
 * and 3 alike. Hooks of kernel and header packages call autoinstall (from dkms 3.1 on,
 * kernel_postinst).
 */
const char driver_dkms_stub[] =
	"#!/bin/sh\n"
	"# For the time of this package transaction: NVIDIA's modules are registered, and built\n"
	"# later, for every kernel and by its name.\n"
	"real=" DKMS_PROGRAM "\n"
	"[ -x \"$real\" ] || exit 0\n"
	"action=; modules=; kernel=; version=; previous=\n"
	"for word; do\n"
	"	case $previous in\n"
	"	-m | --module) modules=$word ;;\n"
	"	-v) version=$word ;;\n"
	"	-k | --kernelver) kernel=$word ;;\n"
	"	-*) ;;\n"
	"	*)\n"
	"		case $word in\n"
	"		build | install | autoinstall | match | kernel_postinst) action=$word ;;\n"
	"		nvidia/* | nvidia-*/* | nvidia | nvidia-*) modules=$word ;;\n"
	"		esac\n"
	"		;;\n"
	"	esac\n"
	"	previous=$word\n"
	"done\n"
	"case $action in\n"
	"build | install)\n"
	"	case $modules in\n"
	"	nvidia | nvidia/* | nvidia-*) exit 0 ;;\n"
	"	esac\n"
	"	;;\n"
	"autoinstall | kernel_postinst)\n"
	"	[ -n \"$kernel\" ] || exit 0\n"
	"	for source in " DKMS_TREE "/*/*/source; do\n"
	"		[ -e \"$source/dkms.conf\" ] || continue\n"
	"		version=${source%/source}\n"
	"		modules=${version%/*}\n"
	"		modules=${modules##*/}\n"
	"		case $modules in\n"
	"		nvidia | nvidia-*) continue ;;\n"
	"		esac\n"
	"		grep -q '^[[:space:]]*AUTOINSTALL=.*[yY]' \"$source/dkms.conf\" || continue\n"
	"		\"$real\" install -m \"$modules\" -v \"${version##*/}\" -k \"$kernel\" || exit\n"
	"	done\n"
	"	exit 0\n"
	"	;;\n"
	"match) exit 0 ;;\n"
	"esac\n"
	"exec \"$real\" \"$@\"\n";

/* For the time of our calls: modules that are links into DKMS's tree would dangle after
 * unregistering, and what follows a transaction (an initramfs, modprobe) is for a running node. */
static const char framework_conf[] = "# While this image is built.\n"
				     "symlink_modules=\"\"\n"
				     "modprobe_on_install=\"\"\n"
				     "post_transaction=\"\"\n";

/* One module for one kernel. */
struct job {
	struct rootfs *root;
	struct log *log;
	const char *kernel;
	char *name, *version; /* of the module, as DKMS knows it */
	bool no_initrd;       /* dkms 2 rebuilds the initramfs unless it is told not to */
	int64_t deadline_ms;
	char *output; /* of the last command */
	int status;
};

static void job_free(struct job *j)
{
	free(j->name);
	free(j->version);
	free(j->output);
}

#define CLEANUP_JOB CLEANUP(job_free)

bool driver_dkms_is_there(struct rootfs *root)
{
	return rootfs_exists(root, DKMS_PROGRAM);
}

static bool is_nvidia(const char *name)
{
	return str_equal(name, "nvidia") || str_starts(name, "nvidia-");
}

static int list_versions(struct strv *ret, struct rootfs *root, const char *name, struct error *err)
{
	CLEANUP_FREE char *dir = str_format(DKMS_TREE "/%s", name);
	CLEANUP_STRV struct strv versions = {0};

	if (!rootfs_is_dir(root, dir))
		return 0;
	if (rootfs_list(root, dir, &versions, err) < 0)
		return -1;
	for (size_t i = 0; i < versions.count; i++) {
		CLEANUP_FREE char *source = str_format("%s/%s/source", dir, versions.items[i]);
		struct rootfs_stat st;
		int found = rootfs_lstat(root, source, &st, err);

		if (found < 0)
			return -1;
		if (found)
			strv_addf(ret, "%s/%s", name, versions.items[i]);
	}
	return 0;
}

int driver_dkms_list(struct strv *ret, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_STRV struct strv found = {0};

	if (rootfs_list(root, DKMS_TREE, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++)
		if (is_nvidia(names.items[i]) &&
		    list_versions(&found, root, names.items[i], err) < 0)
			return -1;
	strv_add_all(ret, &found);
	return 0;
}

/* --- what went wrong --- */

/* The lines of dkms.conf that say for which kernels it is, joined. */
static char *exclusive_directives(const struct job *j)
{
	CLEANUP_FREE char *path =
		str_format(DKMS_TREE "/%s/%s/source/dkms.conf", j->name, j->version);
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_STRV struct strv shown = {0};
	CLEANUP_STRV struct strv lines = {0};
	void *text = NULL;

	if (!rootfs_exists(j->root, path) ||
	    rootfs_read(j->root, path, CONF_MAX_BYTES, &text, NULL, &ignored) < 0)
		return str_copy("BUILD_EXCLUSIVE");
	lines = strv_split(text, "\r\n");
	free(text);
	for (size_t i = 0; i < lines.count; i++)
		if (str_starts(lines.items[i], "BUILD_EXCLUSIVE"))
			strv_take(&shown, str_printable(lines.items[i], 200));
	return shown.count ? strv_join(&shown, ", ") : str_copy("BUILD_EXCLUSIVE");
}

static int fail_excluded(const struct job *j, const char *directives, struct error *err)
{
	error_set(err, "kernel '%s': module '%s' %s is not made for it: its dkms.conf says %s",
	          j->kernel, j->name, j->version, directives);
	error_hint(err, "remove that kernel from the base, or take another driver branch");
	return error_code(err, EXIT_INPUT);
}

static int fail_full(const struct job *j, struct error *err)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *left = NULL;
	uint64_t free_bytes = 0, size_bytes = 0;

	(void)rootfs_statvfs(j->root, DKMS_TREE, &free_bytes, &size_bytes, &ignored);
	left = str_size(free_bytes);
	error_set(err, "kernel '%s': no space left to compile module '%s' %s (%s free)", j->kernel,
	          j->name, j->version, left);
	error_hint(err,
	           "give the build more room: --work-dir=DIR on a larger file system, or a base "
	           "with a larger root");
	return error_code(err, EXIT_HOST);
}

/* What the compiler said first: with several jobs at once, make's own last lines may not show it.
 * NULL: it said nothing of the kind. Owned by the caller. */
static char *first_compile_error(const char *make_log)
{
	const char *at = strstr(make_log, " error: ");
	const char *begin = at;

	if (!at)
		return NULL;
	while (begin > make_log && begin[-1] != '\n')
		begin--;

	CLEANUP_FREE char *line = mem_copy(begin, strcspn(begin, "\r\n"));

	return str_printable(line, ERROR_LINE_MAX);
}

static int fail_compile(const struct job *j, const char *make_log, struct error *err)
{
	CLEANUP_FREE char *first = first_compile_error(make_log);
	CLEANUP_FREE char *tail = driver_log_tail(*make_log ? make_log : j->output);

	error_set(err, "kernel '%s': module '%s' %s was not %s: dkms exited with %d%s%s", j->kernel,
	          j->name, j->version, *make_log ? "compiled" : "made", j->status,
	          *make_log ? "; the last lines of its make.log:" : "; it said:", tail);
	if (first)
		error_hint(err, "the first error is: %s; a newer branch may know this kernel",
		           first);
	error_hint(err, "the log of the build has all of it; a newer branch may know this kernel");
	return -1;
}

/* Of a build that failed: a successful one takes the log elsewhere. */
static char *read_make_log(const struct job *j)
{
	CLEANUP_FREE char *path =
		str_format(DKMS_TREE "/%s/%s/build/make.log", j->name, j->version);
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	void *text = NULL;
	size_t size = 0;

	if (!rootfs_exists(j->root, path) ||
	    rootfs_read(j->root, path, 64 * CONF_MAX_BYTES, &text, &size, &ignored) < 0)
		return str_copy("");
	log_raw(j->log, text, size);
	return text;
}

static int fail_build(const struct job *j, struct error *err)
{
	CLEANUP_FREE char *make_log = NULL;
	CLEANUP_FREE char *directives = NULL;
	CLEANUP_STRV struct strv kernels = {0};

	if (j->status == DKMS_EXCLUDED || strstr(j->output, "BUILD_EXCLUSIVE")) {
		directives = exclusive_directives(j);
		return fail_excluded(j, directives, err);
	}
	if (j->status == DKMS_NO_HEADERS) {
		strv_add(&kernels, j->kernel);
		return driver_kernel_no_headers(&kernels, err);
	}
	make_log = read_make_log(j);
	if (driver_log_says_full(j->output) || driver_log_says_full(make_log))
		return fail_full(j, err);
	return fail_compile(j, make_log, err);
}

/* --- one module for one kernel --- */

static int run_dkms(struct job *j, const char *action, const char *more, struct error *err)
{
	const char *argv[] = {DKMS_PROGRAM, action,    "-m", j->name, "-v", j->version,
	                      "-k",         j->kernel, NULL, NULL,    NULL};
	int64_t left_ms = j->deadline_ms - clock_ms();
	size_t n = 8;

	if (j->no_initrd)
		argv[n++] = "--no-initrd";
	argv[n] = more;
	free(STEAL(j->output));
	if (left_ms <= 0)
		return error_set(err, "kernel '%s': its modules were not made in %d minutes",
		                 j->kernel, KERNEL_TIMEOUT_MS / 60000);
	if (driver_command(j->root, argv, NULL, (unsigned)left_ms, j->log, &j->output, &j->status,
	                   err) < 0)
		return error_prefix(err, "kernel '%s': module '%s' %s", j->kernel, j->name,
		                    j->version);
	return 0;
}

/* "nvidia-current" of "nvidia-current.ko.xz"; NULL: no module. */
static char *module_name(const char *file)
{
	const char *ko = strstr(file, ".ko");

	return ko && (ko[3] == '\0' || ko[3] == '.') ? mem_copy(file, (size_t)(ko - file)) : NULL;
}

static int check_file(const struct job *j, const char *file, size_t *ret_count, struct error *err)
{
	CLEANUP_FREE char *name = module_name(file);
	CLEANUP_FREE char *path = NULL;
	int found = name ? driver_kernel_find(j->root, j->kernel, name, &path, err) : 1;

	if (found < 0)
		return error_prefix(err, "kernel '%s'", j->kernel);
	if (found == 0)
		return error_set(err,
		                 "kernel '%s': DKMS reports success, but module '%s' is not below "
		                 "'/lib/modules/%s', or not in its modules.dep",
		                 j->kernel, name, j->kernel);
	if (name)
		++*ret_count;
	return 0;
}

/* Whether what was compiled (DKMS keeps a copy by kernel and architecture) is what the kernel
 * finds. */
static int check_installed(const struct job *j, struct error *err)
{
	CLEANUP_FREE char *dir = str_format(DKMS_TREE "/%s/%s/%s", j->name, j->version, j->kernel);
	CLEANUP_STRV struct strv arches = {0};
	size_t count = 0;

	if (rootfs_list(j->root, dir, &arches, err) < 0)
		return -1;
	for (size_t i = 0; i < arches.count; i++) {
		CLEANUP_FREE char *modules = str_format("%s/%s/module", dir, arches.items[i]);
		CLEANUP_STRV struct strv files = {0};

		if (rootfs_is_dir(j->root, modules) &&
		    rootfs_list(j->root, modules, &files, err) < 0)
			return -1;
		for (size_t k = 0; k < files.count; k++)
			if (check_file(j, files.items[k], &count, err) < 0)
				return -1;
	}
	if (count == 0)
		return error_set(err,
		                 "kernel '%s': DKMS reports success, but module '%s' %s was "
		                 "not made",
		                 j->kernel, j->name, j->version);
	return 0;
}

static int build_module(struct job *j, struct error *err)
{
	/* what was built for an earlier driver (nvidia-fs) is built anew; dkms 2 cannot */
	if (run_dkms(j, "build", j->no_initrd ? NULL : "--force", err) < 0)
		return -1;
	if (j->status != 0)
		return fail_build(j, err);
	/* a module of the same version somewhere else would be left in its place, with exit 0 */
	if (run_dkms(j, "install", "--force", err) < 0)
		return -1;
	if (j->status != 0)
		return fail_build(j, err);
	return check_installed(j, err);
}

static void set_module(struct job *j, const char *name_version)
{
	const char *slash = strchr(name_version, '/');

	free(j->name);
	free(j->version);
	j->name = mem_copy(name_version, (size_t)(slash - name_version));
	j->version = str_copy(slash + 1);
}

static int build_kernel(struct job *j, const struct strv *modules, struct error *err)
{
	CLEANUP_FREE char *names = strv_join(modules, ", ");
	int64_t begin_ms = clock_ms();

	log_note(j->log, "kernel '%s': compiles %s", j->kernel, names);
	j->deadline_ms = begin_ms + KERNEL_TIMEOUT_MS;
	for (size_t i = 0; i < modules->count; i++) {
		set_module(j, modules->items[i]);
		if (build_module(j, err) < 0)
			return -1;
	}
	log_note(j->log, "kernel '%s': %s installed after %lld s", j->kernel, names,
	         (long long)(clock_ms() - begin_ms) / 1000);
	return 0;
}

/* --- all of them --- */

static int check_headers(struct rootfs *root, const struct strv *versions, struct error *err)
{
	CLEANUP_STRV struct strv without = {0};

	for (size_t i = 0; i < versions->count; i++)
		if (!driver_kernel_has_headers(root, versions->items[i]))
			strv_add(&without, versions->items[i]);
	return without.count ? driver_kernel_no_headers(&without, err) : 0;
}

/* A kernel that DKMS would pass over after the hour that another one took. */
static int check_excluded(struct job *j, const struct strv *modules, const struct strv *versions,
                          struct error *err)
{
	for (size_t i = 0; i < versions->count * modules->count; i++) {
		const char *module = modules->items[i % modules->count];
		CLEANUP_FREE char *why = NULL;
		CLEANUP_FREE char *directive = NULL;
		int excluded;

		j->kernel = versions->items[i / modules->count];
		excluded = driver_dkms_excluded(j->root, module, j->kernel, &why, err);
		if (excluded < 0)
			return error_prefix(err, "kernel '%s'", j->kernel);
		if (excluded == 0)
			continue;
		set_module(j, module);
		directive = str_format("BUILD_EXCLUSIVE_CONFIG: %s", why);
		return fail_excluded(j, directive, err);
	}
	return 0;
}

/* "dkms: 2.8.7", "dkms-3.0.10" */
static int ask_version(struct job *j, struct error *err)
{
	const char *const argv[] = {DKMS_PROGRAM, "--version", NULL};
	const char *digit;

	if (driver_command(j->root, argv, NULL, 0, j->log, &j->output, &j->status, err) < 0)
		return -1;
	digit = strpbrk(j->output, "0123456789");
	j->no_initrd = digit && (*digit == '1' || *digit == '2') && digit[1] == '.';
	return 0;
}

static int build_all(struct job *j, const struct strv *modules, const struct strv *versions,
                     struct error *err)
{
	if (check_excluded(j, modules, versions, err) < 0 || ask_version(j, err) < 0)
		return -1;
	for (size_t i = 0; i < versions->count; i++) {
		CLEANUP_FREE char *detail =
			str_format("modules for kernel %zu of %zu", i + 1, versions->count);

		log_step_progress(j->log, (double)i / (double)versions->count, detail);
		j->kernel = versions->items[i];
		if (build_kernel(j, modules, err) < 0)
			return -1;
	}
	return 0;
}

static int build_registered(struct job *j, const struct strv *versions, struct error *err)
{
	CLEANUP_STRV struct strv modules = {0};

	if (!driver_dkms_is_there(j->root))
		return error_set(err,
		                 "the image has no '" DKMS_PROGRAM "' to compile modules with");
	if (driver_dkms_list(&modules, j->root, err) < 0)
		return -1;
	if (modules.count == 0)
		return error_set(err, "no module of NVIDIA's is registered with DKMS: '" DKMS_TREE
		                      "/nvidia*' has no sources");
	return build_all(j, &modules, versions, err);
}

int driver_dkms_build_kernels(struct rootfs *root, const struct strv *versions, struct log *log,
                              struct error *err)
{
	CLEANUP_JOB struct job job = {.root = root, .log = log};
	const bool had_dir = rootfs_is_dir(root, CONF_DIR);
	CLEANUP_ERROR struct error late = ERROR_INIT;
	int result;

	if (versions->count == 0)
		return 0;
	if (check_headers(root, versions, err) < 0 ||
	    rootfs_write(root, CONF_PATH, framework_conf, sizeof(framework_conf) - 1, 0644, err) <
	            0)
		return -1;
	result = build_registered(&job, versions, err);
	if (rootfs_remove(root, had_dir ? CONF_PATH : CONF_DIR, &late) < 0 && result == 0)
		return error_take(err, &late);
	return result;
}

int driver_dkms_build(struct rootfs *root, const struct driver_plan *plan, struct log *log,
                      struct error *err)
{
	CLEANUP_STRV struct strv versions = {0};

	for (size_t i = 0; i < plan->kernel_count; i++)
		if (plan->kernels[i].how == DRIVER_DKMS)
			strv_add(&versions, plan->kernels[i].version);
	return driver_dkms_build_kernels(root, &versions, log, err);
}

int driver_dkms_unregister(struct rootfs *root, struct log *log, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(root, DKMS_TREE, &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *dir = str_format(DKMS_TREE "/%s", names.items[i]);

		if (!is_nvidia(names.items[i]))
			continue;
		if (rootfs_remove(root, dir, err) < 0)
			return -1;
		log_note(log,
		         "DKMS no longer knows '%s': its modules stay, and are not built for "
		         "later kernels",
		         names.items[i]);
	}
	return 0;
}
