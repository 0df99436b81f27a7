/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A .run file: what its head says, what an image must have for it, and an installation by the
 * stand-in of tests/fixtures/make-run.sh, a real script that is run for what the image would run.
 */
#include <fcntl.h>

#include "builder/driver-run.h"
#include "builder/proc.h"
#include "script-rootfs.h"
#include "tap.h"

#define MAKE_RUN "tests/fixtures/make-run.sh"
#define OLD      "6.1.0-56-amd64"
#define NEW      "6.1.0-57-amd64"
#define ARGS     "/var/lib/nvidia/stand-in-args"

static char old_name[] = OLD, new_name[] = NEW, rescue_name[] = "0-rescue-1234";
static char x86_64[] = "x86_64", debian[] = "debian";

/* A directory of the host that the stand-in takes for the root. */
struct world {
	char dir[64];
	char *run;                   /* the .run file */
	const char *fails, *forgets; /* kernels */
	bool no_libraries;
};

static int host(const char *const *argv, const char *const *env, char **ret_output)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct proc_options o = {.env = env};
	int status = -1;

	if (proc_run_status(argv, &o, ret_output, 1 << 20, &status, &err) < 0) {
		printf("Bail out! %s\n", err.message);
		exit(1);
	}
	return status;
}

static void host_write(const struct world *w, const char *path, const char *text)
{
	CLEANUP_FREE char *full = str_format("%s%s", w->dir, path);
	CLEANUP_FREE char *dir = mem_copy(full, (size_t)(strrchr(full, '/') - full));
	CLEANUP_FREE char *output = NULL;
	int fd;

	host((const char *const[]){"mkdir", "-p", dir, NULL}, NULL, &output);
	fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	if (fd < 0 || write(fd, text, strlen(text)) < 0 || close(fd) < 0) {
		printf("Bail out! cannot write %s\n", full);
		exit(1);
	}
}

/* What the stand-in has made comes into the root in memory. */
static void take_over(struct script_rootfs *s, const struct world *w)
{
	CLEANUP_FREE char *names = NULL;
	CLEANUP_STRV struct strv paths = {0};

	host((const char *const[]){"find", w->dir, "-type", "f", "-printf", "/%P\n", NULL}, NULL,
	     &names);
	paths = strv_split(names, "\n");
	for (size_t i = 0; i < paths.count; i++) {
		CLEANUP_FREE char *full = str_format("%s%s", w->dir, paths.items[i]);
		CLEANUP_FREE char *text = NULL;

		host((const char *const[]){"cat", full, NULL}, NULL, &text);
		if (!w->no_libraries || !strstr(paths.items[i], "libcuda"))
			script_file_put(s, paths.items[i], text);
	}
}

static int run_installer(struct script_rootfs *s, const char *command, char **ret_output)
{
	struct world *w = s->opaque;
	CLEANUP_FREE char *file = str_format("%s/var/tmp/copy.run", w->dir);
	CLEANUP_FREE char *root = str_format("STANDIN_ROOT=%s", w->dir);
	CLEANUP_FREE char *fails = str_format("STANDIN_FAILS=%s", w->fails ? w->fails : "");
	CLEANUP_FREE char *forgets = str_format("STANDIN_FORGETS=%s", w->forgets ? w->forgets : "");
	const char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", root, fails, forgets,
	                           NULL};
	CLEANUP_STRV struct strv argv = strv_split(command, " ");
	int status;

	free(argv.items[1]);
	argv.items[1] = str_copy(file);
	host_write(w, "/var/tmp/copy.run",
	           fw_find(&s->base, "/var/tmp/gpuimg-run/driver.run")->data);
	status = host((const char *const *)argv.items, env, ret_output);
	take_over(s, w);
	script_drop(s, "/var/tmp/copy.run");
	return status;
}

/* modules.dep of what is there. */
static void run_depmod(struct script_rootfs *s, const char *kernel)
{
	CLEANUP_FREE char *dir = str_format("/lib/modules/%s", kernel);
	CLEANUP_FREE char *dep = str_format("%s/modules.dep", dir);
	CLEANUP_STRV struct strv lines = {0};
	CLEANUP_FREE char *text = NULL;

	for (size_t i = 0; i < s->files.count; i++) {
		const char *path = s->files.entries[i].path;

		if (str_below(path, dir) && str_ends(path, ".ko"))
			strv_addf(&lines, "%s:\n", path + strlen(dir) + 1);
	}
	text = strv_join(&lines, "");
	script_file_put(s, dep, text);
}

static int run(struct script_rootfs *s, const char *command, char **ret_output)
{
	if (str_starts(command, "depmod -a "))
		run_depmod(s, command + strlen("depmod -a "));
	else if (str_starts(command, "sh /var/tmp/gpuimg-run/driver.run "))
		return run_installer(s, command, ret_output);
	else if (str_starts(command, "/usr/sbin/dkms install"))
		script_file_put(s, "/lib/modules/" NEW "/modules.dep", "updates/dkms/nvidia.ko:\n");
	return 0;
}

/* --- the fixture --- */

static void world_new(struct world *w, const char *version)
{
	CLEANUP_FREE char *output = NULL;

	snprintf(w->dir, sizeof(w->dir), "/tmp/gpuimg-run-XXXXXX");
	if (!mkdtemp(w->dir))
		exit(1);
	w->run = str_format("%s.run", w->dir);
	if (host((const char *const[]){"sh", MAKE_RUN, w->run, version, NULL}, NULL, &output) != 0)
		printf("Bail out! %s fails\n", MAKE_RUN);
	host_write(w, "/lib/modules/" OLD "/build/include/x", "");
	host_write(w, "/lib/modules/" NEW "/build/include/x", "");
}

static void world_free(struct world *w)
{
	CLEANUP_FREE char *output = NULL;

	host((const char *const[]){"rm", "-rf", w->dir, w->run, NULL}, NULL, &output);
	free(w->run);
	w->run = NULL;
}

static struct script_rootfs new_root(struct world *w)
{
	static const char *const files[] = {"/usr/bin/cc",
	                                    "/usr/bin/make",
	                                    "/usr/bin/ld",
	                                    "/usr/include/stdio.h",
	                                    "/usr/sbin/depmod",
	                                    "/lib/modules/" OLD "/build/include/x",
	                                    "/lib/modules/" NEW "/build/include/x"};
	struct script_rootfs s = script_rootfs(run, w);

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		script_file_put(&s, files[i], "");
	return s;
}

static struct guest_kernel kernels[] = {
	{.version = rescue_name, .rescue = true}, {.version = old_name}, {.version = new_name}};
static struct guest guest = {.id = debian, .arch = x86_64, .kernels = kernels, .kernel_count = 3};

static int install(struct script_rootfs *s, enum driver_flavour flavour, bool dkms,
                   struct error *err)
{
	CLEANUP_DRIVER_PLAN struct driver_plan plan = {0};
	struct world *w = s->opaque;

	if (driver_run_plan(&plan, w->run, NULL, flavour, false, &s->base, &guest, err) < 0)
		return -1;
	return driver_run_install(&s->base, w->run, &plan, dkms, NULL, err);
}

static bool succeeds(int result, const struct error *err)
{
	if (result < 0)
		printf("# %s\n", err->message);
	return result == 0;
}

/* --- the head --- */

static int read_version(const char *path, char **ret, struct error *err)
{
	CLEANUP_DRIVER_RUN_HEAD struct driver_run_head head = {0};

	if (driver_run_read_head(&head, path, err) < 0)
		return -1;
	*ret = STEAL(head.version);
	return 0;
}

static char *version_of(const char *text)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char path[] = "/tmp/gpuimg-head-XXXXXX";
	int fd = mkstemp(path);
	char *version = NULL;

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		exit(1);
	close(fd);
	if (read_version(path, &version, &err) < 0)
		version = str_format("%s (%d)", strrchr(err.message, ':') + 2,
		                     (int)error_exit_code(&err));
	unlink(path);
	return version;
}

static void check_head(const char *text, const char *want, const char *holds)
{
	CLEANUP_FREE char *got = version_of(text);

	check_str(got, want, "%s", holds);
}

#define LABEL "#! /bin/sh\nskip=1073\nlabel=\"NVIDIA Accelerated Graphics Driver for Linux-"

static void test_head(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *version = NULL;

	check_head(LABEL "x86_64 580.95.05\"\nscript=x\n", "580.95.05",
	           "a driver's version is read");
	check_head(LABEL "aarch64 570.86.15\"\n", "570.86.15", "of another architecture too");
	check_head(LABEL "x86_64 535.129.03-grid\"\n", "535.129.03", "and that of a vGPU guest");
	check_head("label=\"x\"\n", "it is no script (4)", "what is no script is refused");
	check_head("#!/bin/sh\nlabel=\"CUDA 12.6\"\n",
	           "no label of such a driver stands in its head (4)",
	           "so is the installer of something else");
	check_head(LABEL "x86_64 $(reboot)\"\n", "its label names no version (4)",
	           "and a label without a version");
	check_head(LABEL "x86_64 580.\"\n", "its label names no version (4)",
	           "or with half of one");
	check_head(LABEL "x86_64 580.95.05", "its label names no version (4)",
	           "or that is cut off");
	check_head(LABEL "../x 580.95.05\"\n", "its label names no architecture (4)",
	           "and one without an architecture");
	check(read_version("/nonexistent.run", &version, &err) < 0 &&
	              error_exit_code(&err) == EXIT_INPUT &&
	              strstr(err.message, "/nonexistent.run"),
	      "a missing file is refused by its name");
	check(read_version("/tmp", &version, &err) < 0 && strstr(err.message, "no regular file"),
	      "so is a directory");
}

/* --- the plan --- */

static char *plan_failure(struct script_rootfs *s, const char *branch, const struct guest *g)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DRIVER_PLAN struct driver_plan plan = {0};
	const struct world *w = s->opaque;

	if (driver_run_plan(&plan, w->run, branch, DRIVER_OPEN, false, &s->base, g, &err) == 0)
		return str_copy("planned");
	return str_format("%s # %s # %d", err.message, err.hint ? err.hint : "",
	                  (int)error_exit_code(&err));
}

static void test_plan(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DRIVER_PLAN struct driver_plan plan = {0};
	struct world w = {0};
	struct script_rootfs s;

	world_new(&w, "580.95.05");
	s = new_root(&w);
	check(driver_run_plan(&plan, w.run, "580", DRIVER_OPEN, false, &s.base, &guest, &err) ==
	                      0 &&
	              plan.source == DRIVER_RUN && plan.kernel_count == 2 && !plan.forwarded &&
	              plan.kernels[0].how == DRIVER_INSTALLER,
	      "a .run file is planned for every kernel but rescue ones");
	check_str(plan.version, "580.95.05", "with the version of its head");
	check_str(plan.branch, "580", "and the branch of that");
	check(plan.installed_bytes > plan.download_bytes && plan.download_bytes > 0,
	      "what it takes on the disk is foreseen");
	driver_plan_free(&plan);
	plan = (struct driver_plan){0};
	check(driver_run_plan(&plan, w.run, "570", DRIVER_OPEN, true, &s.base, &guest, &err) == 0 &&
	              plan.forwarded,
	      "another branch is taken where that is allowed, and told");
	rootfs_close(&s.base);
	world_free(&w);
}

static void check_plan_failure(struct script_rootfs *s, const char *branch, const struct guest *g,
                               const char *const *words, const char *holds)
{
	CLEANUP_FREE char *message = plan_failure(s, branch, g);
	bool all = true;

	for (; *words; words++)
		all = all && strstr(message, *words);
	check(all, "%s: %s", holds, message);
}

static void test_refusals(void)
{
	struct world w = {0};
	struct script_rootfs s;
	char arm[] = "aarch64";
	struct guest other = guest;

	other.arch = arm;
	world_new(&w, "580.95.05");
	s = new_root(&w);
	check_plan_failure(&s, "570", &guest,
	                   (const char *const[]){"580.95.05", "branch 570", "--driver-branch=580",
	                                         "# 4", NULL},
	                   "another branch than asked is refused");
	check_plan_failure(&s, NULL, &other,
	                   (const char *const[]){"x86_64", "aarch64", "# 4", NULL},
	                   "a file for another architecture is refused");
	script_drop(&s, "/usr/bin/cc");
	script_drop(&s, "/usr/bin/make");
	check_plan_failure(&s, NULL, &guest,
	                   (const char *const[]){"a C compiler (cc), make #",
	                                         "apt-get install gcc make", NULL},
	                   "a missing compiler is refused with its package");
	script_drop(&s, "/lib/modules/" NEW "/build");
	check_plan_failure(
		&s, NULL, &guest,
		(const char *const[]){"kernel '" NEW "'", "linux-headers-" NEW, "# 4", NULL},
		"a kernel without headers is refused by its name");
	rootfs_close(&s.base);
	world_free(&w);
}

/* --- the installation --- */

static char *arguments(struct script_rootfs *s, size_t index)
{
	struct fake_entry *f = fw_find(&s->base, ARGS);
	CLEANUP_STRV struct strv lines = strv_split(f ? f->data : "", "\n");

	return str_format(" %s ", index < lines.count ? lines.items[index] : "");
}

static bool has_word(const char *arguments_line, const char *word)
{
	CLEANUP_FREE char *bounded = str_format(" %s ", word);

	return strstr(arguments_line, bounded) != NULL;
}

static void test_install(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *first = NULL;
	CLEANUP_FREE char *second = NULL;
	struct world w = {0};
	struct script_rootfs s;

	world_new(&w, "580.95.05");
	s = new_root(&w);
	check(succeeds(install(&s, DRIVER_OPEN, false, &err), &err), "it installs");
	first = arguments(&s, 0);
	second = arguments(&s, 1);
	check(has_word(first, "--silent") && has_word(first, "--kernel-name=" OLD) &&
	              has_word(first, "--kernel-module-type=open") &&
	              has_word(first, "--no-dkms") && has_word(first, "--skip-module-load") &&
	              has_word(first, "--allow-installation-with-running-driver"),
	      "for the first kernel, without a look at this machine: %s", first);
	check(!has_word(first, "--kernel-modules-only"), "with libraries and programs");
	check(has_word(second, "--kernel-name=" NEW) && has_word(second, "--kernel-modules-only"),
	      "for the second one, modules only: %s", second);
	check(script_has(&s, "/lib/modules/" OLD "/kernel/drivers/video/nvidia.ko") &&
	              script_has(&s, "/lib/modules/" NEW "/kernel/drivers/video/nvidia.ko"),
	      "each kernel has its modules");
	check(!rootfs_exists(&s.base, "/var/tmp/gpuimg-run"), "and nothing of the file stays");
	rootfs_close(&s.base);
	world_free(&w);
}

static void test_older_options(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *first = NULL;
	CLEANUP_FREE char *second = NULL;
	struct world w = {0};
	struct script_rootfs s;

	world_new(&w, "535.274.02");
	s = new_root(&w);
	check(succeeds(install(&s, DRIVER_PROPRIETARY, false, &err), &err),
	      "an older one, with fewer options, installs too");
	first = arguments(&s, 0);
	second = arguments(&s, 1);
	check(has_word(first, "--kernel-module-build-directory=kernel") &&
	              !has_word(first, "--skip-module-load"),
	      "by the options that it has: %s", first);
	check(has_word(second, "-K"), "further kernels too");
	rootfs_close(&s.base);
	world_free(&w);
	world_new(&w, "470.256.02");
	s = new_root(&w);
	check(install(&s, DRIVER_OPEN, false, &err) < 0 && error_exit_code(&err) == EXIT_INPUT &&
	              strstr(err.message, "no open modules"),
	      "one without open modules is refused for them");
	rootfs_close(&s.base);
	world_free(&w);
}

static void test_failures(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct world w = {.fails = NEW};
	struct script_rootfs s;

	world_new(&w, "580.95.05");
	s = new_root(&w);
	check(install(&s, DRIVER_OPEN, false, &err) < 0 &&
	              strstr(err.message, "kernel '" NEW "'") &&
	              strstr(err.message, "| ERROR: Unable to build the NVIDIA kernel module."),
	      "a failure has the kernel's name and the end of the installer's log");
	check(!rootfs_exists(&s.base, "/var/tmp/gpuimg-run"),
	      "after it, nothing of the file stays");
	rootfs_close(&s.base);
	world_free(&w);
	w = (struct world){.forgets = OLD};
	world_new(&w, "580.95.05");
	s = new_root(&w);
	check(install(&s, DRIVER_OPEN, false, &err) < 0 && strstr(err.message, "reports success") &&
	              strstr(err.message, OLD),
	      "exit 0 without modules is a failure");
	rootfs_close(&s.base);
	w.forgets = NULL;
	w.no_libraries = true;
	s = new_root(&w);
	check(install(&s, DRIVER_OPEN, false, &err) < 0 &&
	              strstr(err.message, "'libcuda.so.580.95.05'"),
	      "so are missing libraries");
	rootfs_close(&s.base);
	world_free(&w);
}

static void test_damaged(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int fd = -1;
	struct world w = {0};
	struct script_rootfs s;

	world_new(&w, "580.95.05");
	s = new_root(&w);
	fd = open(w.run, O_WRONLY | O_APPEND | O_CLOEXEC);
	check(fd >= 0 && write(fd, "x", 1) == 1 && install(&s, DRIVER_OPEN, false, &err) < 0 &&
	              error_exit_code(&err) == EXIT_INPUT && strstr(err.message, "damaged") &&
	              strstr(err.message, "Error in checksums"),
	      "a damaged file is refused by its own check");
	check(!script_has(&s, ARGS), "before it installs anything");
	rootfs_close(&s.base);
	world_free(&w);
}

static void test_dkms(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *first = NULL;
	struct world w = {0};
	struct script_rootfs s;

	world_new(&w, "580.95.05");
	s = new_root(&w);
	check(install(&s, DRIVER_OPEN, true, &err) == 0, "without DKMS in the image it installs");
	first = arguments(&s, 0);
	check(has_word(first, "--no-dkms"), "without registering");
	rootfs_close(&s.base);
	world_free(&w);
	world_new(&w, "580.95.05");
	s = new_root(&w);
	script_file_put(&s, "/usr/sbin/dkms", "");
	script_file_put(&s, "/lib/modules/" NEW "/updates/dkms/nvidia.ko", "module");
	script_file_put(&s, "/var/lib/dkms/nvidia/580.95.05/" NEW "/x86_64/module/nvidia.ko", "m");
	check(succeeds(install(&s, DRIVER_OPEN, true, &err), &err), "with DKMS it registers");
	free(STEAL(first));
	first = arguments(&s, 0);
	check(has_word(first, "--dkms") &&
	              script_ran(&s, "/usr/sbin/dkms build -m nvidia -v 580.95.05 -k " NEW),
	      "and DKMS builds for the second kernel");
	rootfs_close(&s.base);
	world_free(&w);
}

static void test_offers(void)
{
	static const char help[] =
		"  --dkms, --no-dkms\n  --kernel-name=KERNEL-NAME\n  -z, --no-x-check\n";

	check(driver_run_offers(help, "--no-dkms") && driver_run_offers(help, "--dkms") &&
	              driver_run_offers(help, "--kernel-name"),
	      "options are found in a help text");
	check(!driver_run_offers(help, "--no-x") && !driver_run_offers(help, "--kernel") &&
	              !driver_run_offers("", "--dkms"),
	      "and not a part of one");
}

static void test_keep_tools(void)
{
	static const char installed[] = "Status: install ok installed\nVersion: 1\n\n";
	static const char *const names[] = {"gcc", "libc6-dev", "dkms", "nvidia-kernel-dkms"};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct world w = {0};
	struct script_rootfs s;

	world_new(&w, "580.95.05");
	s = new_root(&w);
	check(driver_run_keep_tools(&s.base, &err) == 0 && s.commands.count == 0,
	      "an image without dpkg has no tools to keep");
	{
		CLEANUP_STRV struct strv status = {0};
		CLEANUP_FREE char *text = NULL;

		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
			strv_addf(&status, "Package: %s\n%s", names[i], installed);
		text = strv_join(&status, "");
		script_file_put(&s, "/var/lib/dpkg/status", text);
	}
	check(driver_run_keep_tools(&s.base, &err) == 0 && s.commands.count == 1 &&
	              str_ends(s.commands.items[0], " manual gcc libc6-dev dkms"),
	      "what an installer compiles with, and DKMS, stay when the driver's packages go");
	rootfs_close(&s.base);
	world_free(&w);
}

int main(void)
{
	test_head();
	test_plan();
	test_refusals();
	test_install();
	test_older_options();
	test_failures();
	test_damaged();
	test_dkms();
	test_offers();
	test_keep_tools();
	return tap_done();
}
