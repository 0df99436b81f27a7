/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "driver-hold.h"
#include "driver-kernel.h"
#include "driver-run.h"
#include "packages.h"

/* It is packed by xz or zstd: libraries and programs take about three times its size. */
#define UNPACKED_FACTOR 3

/* What nvidia-installer looks for before it compiles, and depmod, without which it gives up late.
 */
static const struct tool {
	const char *name;
	const char *paths[4];
	const char *package; /* on Debian and Ubuntu */
} tools[] = {
	{"a C compiler (cc)", {"/usr/bin/cc", "/usr/local/bin/cc"}, "gcc"},
	{"make", {"/usr/bin/make", "/usr/local/bin/make"}, "make"},
	{"a linker (ld)", {"/usr/bin/ld", "/usr/local/bin/ld"}, "binutils"},
	{"the C library's headers", {"/usr/include/stdio.h"}, "libc6-dev"},
	{"depmod", {"/usr/sbin/depmod", "/sbin/depmod", "/usr/bin/depmod"}, "kmod"},
};

static bool has_tool(struct rootfs *root, const struct tool *tool)
{
	for (const char *const *path = tool->paths; *path; path++)
		if (rootfs_exists(root, *path))
			return true;
	return false;
}

static int check_tools(struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_STRV struct strv packages = {0};
	CLEANUP_FREE char *name_list = NULL;
	CLEANUP_FREE char *package_list = NULL;

	for (size_t i = 0; i < sizeof(tools) / sizeof(*tools); i++) {
		if (has_tool(root, &tools[i]))
			continue;
		strv_add(&names, tools[i].name);
		strv_add(&packages, tools[i].package);
	}
	if (names.count == 0)
		return 0;
	name_list = strv_join(&names, ", ");
	package_list = strv_join(&packages, " ");
	error_set(err, "the installer compiles in the image, which lacks %s", name_list);
	error_hint(err, "install in the base (on Debian and Ubuntu): apt-get install %s",
	           package_list);
	return error_code(err, EXIT_INPUT);
}

int driver_run_keep_tools(struct rootfs *root, struct error *err)
{
	CLEANUP_FREE char *status = NULL;
	CLEANUP_STRV struct strv names = {0};

	if (packages_read_status(&status, root, err) < 0)
		return -1;
	if (!status)
		return 0;
	for (size_t i = 0; i < sizeof(tools) / sizeof(*tools); i++)
		if (packages_has(status, tools[i].package))
			strv_add(&names, tools[i].package);
	if (packages_has(status, "dkms"))
		strv_add(&names, "dkms");
	return driver_keep(root, &names, err);
}

static int check_arch(const struct driver_run_head *head, const char *path,
                      const struct guest *guest, struct error *err)
{
	if (str_equal(head->arch, guest->arch))
		return 0;
	error_set(err, "'%s' is for %s, and the image is for %s", path, head->arch, guest->arch);
	return error_code(err, EXIT_INPUT);
}

static int check_branch(const struct driver_plan *plan, const char *path, bool allow_forward,
                        struct error *err)
{
	if (!plan->forwarded || allow_forward)
		return 0;
	error_set(err, "'%s' is driver %s, of branch %s: branch %s was asked for", path,
	          plan->version, plan->branch, plan->branch_asked);
	error_hint(err, "say --driver-branch=%s, or allow another one with --allow-branch-forward",
	           plan->branch);
	return error_code(err, EXIT_INPUT);
}

static int add_kernels(struct driver_plan *plan, struct rootfs *root, const struct guest *guest,
                       struct error *err)
{
	CLEANUP_STRV struct strv without = {0};

	plan->kernels = mem_grow(NULL, guest->kernel_count + 1, sizeof(*plan->kernels));
	for (size_t i = 0; i < guest->kernel_count; i++) {
		const struct guest_kernel *k = &guest->kernels[i];

		if (k->rescue)
			continue;
		if (!driver_kernel_has_headers(root, k->version))
			strv_add(&without, k->version);
		plan->kernels[plan->kernel_count++] = (struct driver_kernel){
			.version = str_copy(k->version), .how = DRIVER_INSTALLER};
	}
	if (without.count)
		return driver_kernel_no_headers(&without, err);
	if (plan->kernel_count == 0) {
		error_set(err, "the image has no kernel that a driver could be for");
		return error_code(err, EXIT_INPUT);
	}
	return 0;
}

int driver_run_plan(struct driver_plan *ret, const char *path, const char *branch,
                    enum driver_flavour flavour, bool allow_forward, struct rootfs *root,
                    const struct guest *guest, struct error *err)
{
	CLEANUP_DRIVER_RUN_HEAD struct driver_run_head head = {0};
	CLEANUP_DRIVER_PLAN struct driver_plan plan = {.source = DRIVER_RUN, .flavour = flavour};

	if (driver_run_read_head(&head, path, err) < 0 || check_arch(&head, path, guest, err) < 0)
		return -1;
	plan.branch = driver_branch_of(head.version);
	plan.branch_asked = str_copy(branch ? branch : plan.branch);
	plan.version = STEAL(head.version);
	plan.forwarded = !str_equal(plan.branch, plan.branch_asked);
	plan.download_bytes = head.size_bytes; /* copied, not downloaded: it needs its space too */
	plan.installed_bytes = head.size_bytes * UNPACKED_FACTOR;
	if (check_branch(&plan, path, allow_forward, err) < 0 ||
	    add_kernels(&plan, root, guest, err) < 0 || check_tools(root, err) < 0)
		return -1;
	*ret = plan;
	plan = (struct driver_plan){0};
	return 0;
}
