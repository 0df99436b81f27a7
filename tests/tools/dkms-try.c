/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a driver's modules by driver_dkms_build_kernels() in a root file system that is given as a
 * tar, for all its kernels, and says how long each step took. For measurements and for a look at a
 * new DKMS; needs root, bubblewrap and the network.
 *
 *   dkms-try ROOT.tar EMPTY-DIRECTORY PACKAGE...
 */
#include <stdio.h>
#include <string.h>

#include "builder/clock.h"
#include "builder/driver-dkms.h"
#include "try-root.h"

#define INSTALL_MS     (30 * 60 * 1000)
#define ROOT_MAX_BYTES (16ull << 30)
#define STUB_PATH      "/usr/local/sbin/dkms"
#define INITRD_PATH    "/usr/local/sbin/update-initramfs"

struct attempt {
	struct log *log;
	struct try_root in;
	char *dir;
	int64_t step_ms;
};

static void attempt_free(struct attempt *a)
{
	try_root_free(&a->in);
	log_close(a->log);
	free(a->dir);
}

static void told(struct attempt *a, const char *step)
{
	int64_t now_ms = clock_ms();

	printf("%-32s %8.1f s\n", step, (double)(now_ms - a->step_ms) / 1000);
	fflush(stdout);
	a->step_ms = now_ms;
}

static int open_root(struct attempt *a, const char *tar, struct error *err)
{
	if (try_root_unpack(&a->in, tar, ROOT_MAX_BYTES, a->dir, a->log, err) < 0)
		return -1;
	return try_root_open(&a->in, a->dir, a->dir, a->log, err);
}

static int install(struct attempt *a, char **packages, struct error *err)
{
	static const char initrd[] = "#!/bin/sh\nexit 0\n";
	const char *const update[] = {"apt-get", "-q", "update", NULL};
	CLEANUP_STRV struct strv argv =
		strv_split("apt-get -q -y --no-install-recommends "
	                   "-oDPkg::Path=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin "
	                   "install",
	                   " ");
	struct guest_command c = {.argv = update, .timeout_ms = INSTALL_MS, .network = true};

	for (; *packages; packages++)
		strv_add(&argv, *packages);
	if (rootfs_write(a->in.root, STUB_PATH, driver_dkms_stub, strlen(driver_dkms_stub), 0755,
	                 err) < 0 ||
	    rootfs_write(a->in.root, INITRD_PATH, initrd, strlen(initrd), 0755, err) < 0 ||
	    rootfs_run(a->in.root, &c, err) < 0)
		return -1;
	c.argv = (const char *const *)argv.items;
	if (rootfs_run(a->in.root, &c, err) < 0 || rootfs_remove(a->in.root, STUB_PATH, err) < 0)
		return -1;
	return rootfs_remove(a->in.root, INITRD_PATH, err);
}

static int try_all(struct attempt *a, char **argv, struct error *err)
{
	CLEANUP_STRV struct strv registered = {0};
	CLEANUP_STRV struct strv kernels = {0};

	if (open_root(a, argv[1], err) < 0)
		return -1;
	told(a, "root extracted");
	if (install(a, argv + 3, err) < 0 || driver_dkms_list(&registered, a->in.root, err) < 0)
		return -1;
	told(a, "packages installed");
	for (size_t i = 0; i < registered.count; i++)
		printf("registered: %s\n", registered.items[i]);
	if (rootfs_list(a->in.root, "/lib/modules", &kernels, err) < 0 ||
	    driver_dkms_build_kernels(a->in.root, &kernels, a->log, err) < 0)
		return -1;
	told(a, "modules built");
	return 0;
}

int main(int argc, char **argv)
{
	CLEANUP(attempt_free) struct attempt a = {.step_ms = clock_ms()};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *log_path = argc > 2 ? str_format("%s/log", argv[2]) : NULL;

	if (argc < 4) {
		fputs("usage: dkms-try ROOT.tar EMPTY-DIRECTORY PACKAGE...\n", stderr);
		return EXIT_USAGE;
	}
	a.dir = str_format("%s/tree", argv[2]);
	if (log_open(&a.log, log_path, LOG_NORMAL, &err) == 0 && try_all(&a, argv, &err) == 0)
		return EXIT_OK;
	error_print(&err, a.log);
	return (int)error_exit_code(&err);
}
