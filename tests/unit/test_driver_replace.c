/* SPDX-License-Identifier: Apache-2.0 */
/* A driver that is there already, by each way that it may have come: refused, and taken out. */
#include "builder/apt-internal.h"
#include "builder/driver-replace.h"
#include "builder/packages.h"
#include "script-rootfs.h"
#include "tap.h"

#define APT_MARK "apt-mark -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "
#define KERNEL   "6.1.0-57-amd64"
#define MODULE   "/lib/modules/" KERNEL "/updates/dkms/nvidia-current.ko"
#define LIBRARY  "/usr/lib/x86_64-linux-gnu/libcuda.so.535.309.01"
#define DEP      "/lib/modules/" KERNEL "/modules.dep"

static char kernel_name[] = KERNEL, rescue_name[] = "0-rescue-1234", x86_64[] = "x86_64";
static struct guest_kernel kernels[] = {{.version = rescue_name, .rescue = true},
                                        {.version = kernel_name}};
static struct guest guest = {.arch = x86_64, .kernels = kernels, .kernel_count = 2};

struct world {
	bool uninstall_fails, purge_forgets;
};

static void put_status(struct script_rootfs *s, bool with_driver)
{
	CLEANUP_FREE char *text = str_format(
		"Package: linux-image-amd64\nStatus: hold ok installed\nVersion: 6.1.1\n\n%s",
		with_driver ? "Package: nvidia-kernel-dkms\nStatus: hold ok installed\n"
			      "Version: 535.309.01-0+deb12u1\n\n"
			      "Package: libcuda1\nStatus: install ok installed\n"
			      "Version: 535.309.01-0+deb12u1\n\n"
			    : "");

	script_file_put(s, "/var/lib/dpkg/status", text);
}

/* The session's programs write to a file, and their exit code to another one. */
static int run_apt(struct script_rootfs *s, const char *command)
{
	const struct world *w = s->opaque;

	script_file_put(s, APT_DIR "/output.status", "0\n");
	script_file_put(s, APT_DIR "/output.tail", "");
	if (strstr(command, " --no-autoremove --purge remove ")) {
		put_status(s, false);
		if (!w->purge_forgets)
			script_drop(s, MODULE);
	}
	return 0;
}

static int run(struct script_rootfs *s, const char *command, char **ret_output)
{
	const struct world *w = s->opaque;

	if (str_starts(command, APT_DIR "/output "))
		return run_apt(s, command);
	if (str_equal(command, "depmod -a " KERNEL) && !script_has(s, MODULE))
		script_file_put(s, DEP, "kernel/fs/ext4.ko:\n");
	if (str_ends(command, " --advanced-options"))
		*ret_output = str_copy("  --skip-module-unload\n      What it does.\n");
	if (str_starts(command, "/usr/bin/nvidia-installer --uninstall --silent")) {
		if (w->uninstall_fails)
			script_file_put(s, "/var/tmp/gpuimg-uninstall.log",
			                "ERROR: no backup log\n");
		else
			script_drop(s, "/usr/bin/nvidia-installer");
		return w->uninstall_fails;
	}
	return 0;
}

static struct script_rootfs new_root(struct world *w)
{
	struct script_rootfs s = script_rootfs(run, w);

	put_status(&s, false);
	script_file_put(&s, "/var/lib/dpkg/info/libc6.list", "/.\n/usr/lib/libc.so.6\n");
	script_file_put(&s, DEP, "kernel/fs/ext4.ko:\n");
	script_file_put(&s, "/usr/lib/libc.so.6", "");
	return s;
}

static void put_module(struct script_rootfs *s)
{
	script_file_put(s, MODULE, "no module, but in its place");
	script_file_put(s, DEP, "updates/dkms/nvidia-current.ko:\nkernel/fs/ext4.ko:\n");
}

static void put_library(struct script_rootfs *s)
{
	script_file_put(s, LIBRARY, "");
	script_put(s, "/usr/lib/x86_64-linux-gnu/libcuda.so.1", S_IFLNK | 0777,
	           "libcuda.so.535.309.01");
	script_put(s, "/usr/lib/x86_64-linux-gnu/libother.so.1", S_IFLNK | 0777, "libother.so.1.2");
}

static void read_facts(struct driver_facts *facts, struct script_rootfs *s)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv packages = {0};

	if (packages_read(&packages, &s->base, &err) < 0 ||
	    driver_facts_read(facts, &s->base, &guest, &packages, &err) < 0) {
		printf("Bail out! %s\n", err.message);
		exit(1);
	}
}

/* "" or the message. */
static char *removal(struct script_rootfs *s, struct apt *apt)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DRIVER_FACTS struct driver_facts facts = {0};

	read_facts(&facts, s);
	if (driver_remove_existing(&s->base, &guest, &facts, apt, NULL, &err) == 0)
		return str_copy("");
	return str_copy(err.message);
}

static bool is_clean(struct script_rootfs *s)
{
	CLEANUP_DRIVER_FACTS struct driver_facts facts = {0};

	read_facts(&facts, s);
	return !driver_facts_any(&facts);
}

static void test_refusal(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DRIVER_FACTS struct driver_facts none = {0};
	CLEANUP_DRIVER_FACTS struct driver_facts facts = {0};
	struct world w = {0};
	struct script_rootfs s = new_root(&w);

	read_facts(&none, &s);
	check(driver_refuse_existing(&none, &err) == 0, "an image without a driver is taken");
	put_status(&s, true);
	put_module(&s);
	put_library(&s);
	script_file_put(&s, "/var/lib/dkms/nvidia-current/535.309.01/source/dkms.conf", "");
	script_file_put(&s, "/var/lib/dkms/zfs/2.1/source/dkms.conf", "");
	read_facts(&facts, &s);
	check(driver_refuse_existing(&facts, &err) < 0 && error_exit_code(&err) == EXIT_INPUT,
	      "one with a driver is refused as input");
	check(strstr(err.message, "version 535.309.01") &&
	              strstr(err.message, "nvidia-kernel-dkms=535.309.01-0+deb12u1") &&
	              strstr(err.message, "nvidia_current (unread) for " KERNEL) &&
	              strstr(err.message, "nvidia-current/535.309.01") &&
	              strstr(err.message, LIBRARY) && !strstr(err.message, "zfs"),
	      "with its version, packages, modules, registrations and libraries: %s", err.message);
	check(err.hint && strstr(err.hint, "--replace-driver"), "and the way out of it");
	rootfs_close(&s.base);
}

static void test_packages(void)
{
	struct world w = {0};
	struct script_rootfs s = new_root(&w);
	struct apt apt = {.root = &s.base};
	CLEANUP_FREE char *without = NULL;
	CLEANUP_FREE char *message = NULL;

	put_status(&s, true);
	put_module(&s);
	without = removal(&s, NULL);
	check(strstr(without, "cannot be removed without apt"), "packages need apt to be removed");
	message = removal(&s, &apt);
	check_str(message, "", "packages are taken out");
	check(script_ran(&s, APT_MARK "unhold nvidia-kernel-dkms"), "after their holds are lifted");
	check(!script_ran(&s, APT_MARK "unhold linux-image-amd64"),
	      "and those of a kernel are not");
	check(script_ran(&s,
	                 APT_DIR "/output apt-get -q -y --no-autoremove --purge remove -- libcuda1 "
	                         "nvidia-kernel-dkms"),
	      "by purging all of the driver's");
	check(script_ran(&s, "depmod -a " KERNEL) && script_ran(&s, "ldconfig") &&
	              !script_ran(&s, "depmod -a 0-rescue"),
	      "indexes of kernels and libraries are made anew");
	check(is_clean(&s), "nothing of it is found afterwards");
	rootfs_close(&s.base);
}

static void test_run_file(void)
{
	struct world w = {0}, stuck = {.uninstall_fails = true};
	struct script_rootfs s = new_root(&w), t = new_root(&stuck);
	CLEANUP_FREE char *message = NULL;
	CLEANUP_FREE char *failed = NULL;

	script_file_put(&s, "/usr/bin/nvidia-installer", "");
	script_put(&s, "/usr/bin/nvidia-uninstall", S_IFLNK | 0777, "nvidia-installer");
	message = removal(&s, NULL);
	check_str(message, "", "a .run installation is taken out");
	check(script_ran(&s, "/usr/bin/nvidia-installer --uninstall --silent "
	                     "--log-file-name=/var/tmp/gpuimg-uninstall.log --skip-module-unload"),
	      "by its own program, which unloads nothing of this machine's");
	check(is_clean(&s), "nothing of it is found afterwards");
	script_file_put(&t, "/usr/bin/nvidia-installer", "");
	failed = removal(&t, NULL);
	check(strstr(failed, "'/usr/bin/nvidia-installer' failed (exit 1)") &&
	              strstr(failed, "| ERROR: no backup log"),
	      "where that fails, its words are told");
	check(!script_has(&t, "/var/tmp/gpuimg-uninstall.log"), "and its log does not stay");
	rootfs_close(&s.base);
	rootfs_close(&t.base);
}

static void test_leftovers(void)
{
	struct world w = {0};
	struct script_rootfs s = new_root(&w);
	CLEANUP_FREE char *message = NULL;

	put_module(&s);
	put_library(&s);
	script_file_put(&s, "/usr/local/bin/nvidia-smi", "");
	script_file_put(&s, "/var/lib/dkms/nvidia-current/535.309.01/source/dkms.conf", "");
	script_file_put(&s, "/var/lib/dkms/zfs/2.1/source/dkms.conf", "");
	message = removal(&s, NULL);
	check_str(message, "", "what nobody owns is deleted");
	check(!script_has(&s, MODULE) && !script_has(&s, LIBRARY) &&
	              !script_has(&s, "/usr/local/bin/nvidia-smi"),
	      "modules, libraries and programs");
	check(!script_has(&s, "/usr/lib/x86_64-linux-gnu/libcuda.so.1") &&
	              script_has(&s, "/usr/lib/x86_64-linux-gnu/libother.so.1"),
	      "with the links to them, and no others");
	check(!rootfs_exists(&s.base, "/var/lib/dkms/nvidia-current") &&
	              rootfs_exists(&s.base, "/var/lib/dkms/zfs/2.1/source/dkms.conf"),
	      "DKMS forgets NVIDIA's modules, and no others");
	check(is_clean(&s), "nothing of it is found afterwards");
	rootfs_close(&s.base);
}

static void check_owned(const char *listed)
{
	struct world w = {0};
	struct script_rootfs s = new_root(&w);
	CLEANUP_FREE char *list = str_format("/.\n%s\n", listed);
	CLEANUP_FREE char *message = NULL;

	put_module(&s);
	script_file_put(&s, "/var/lib/dpkg/info/some-bundle.list", list);
	message = removal(&s, NULL);
	check(strstr(message, "is of the package 'some-bundle'") && script_has(&s, MODULE),
	      "a file that a package of another name has as '%s' is left alone, and told", listed);
	rootfs_close(&s.base);
}

static void test_what_is_left(void)
{
	struct world w = {.purge_forgets = true};
	struct script_rootfs s = new_root(&w);
	struct apt apt = {.root = &s.base};
	CLEANUP_FREE char *message = NULL;

	put_status(&s, true);
	put_module(&s);
	message = removal(&s, &apt);
	check_str(message, "", "modules that a purge leaves behind are deleted");
	check(!script_has(&s, MODULE) && is_clean(&s), "so that nothing is found afterwards");
	rootfs_close(&s.base);
}

int main(void)
{
	test_refusal();
	test_packages();
	test_run_file();
	test_leftovers();
	check_owned(MODULE);
	check_owned("/usr" MODULE);
	test_what_is_left();
	return tap_done();
}
