/* SPDX-License-Identifier: Apache-2.0 */
#include "builder/driver-hold.h"
#include "tap.h"

static const char status[] = "Package: linux-image-6.1.0-1-amd64\n"
			     "Status: install ok installed\n"
			     "Version: 6.1.1-1\n"
			     "Depends: kmod\n"
			     "\n"
			     "Package: linux-image-amd64\n"
			     "Status: install ok installed\n"
			     "Version: 6.1.1-1\n"
			     "Depends: linux-image-6.1.0-1-amd64 (= 6.1.1-1)\n"
			     "\n"
			     "Package: linux-generic\n"
			     "Status: install ok installed\n"
			     "Version: 6.8.0.1\n"
			     "Depends: linux-image-generic (= 6.8.0.1), linux-headers-generic\n"
			     "\n"
			     "Package: linux-base\n"
			     "Status: install ok installed\n"
			     "Version: 4.9\n"
			     "Depends: debconf\n"
			     "Description: says linux-image- and is no kernel\n"
			     "\n"
			     "Package: linux-image-5.10.0-1-amd64\n"
			     "Status: deinstall ok config-files\n"
			     "Version: 5.10.1-1\n"
			     "\n"
			     "Package: nvidia-smi\n"
			     "Status: install ok installed\n"
			     "Version: 535.261.03-1\n"
			     "\n";

static void test_names(void)
{
	struct driver_plan plan = {0};
	CLEANUP_STRV struct strv names = {0};

	strv_add(&plan.driver_packages, "nvidia-smi");
	driver_hold_names(&names, &plan, status);
	check(strv_has(&names, "nvidia-smi"), "packages of the driver are held");
	check(strv_has(&names, "linux-image-6.1.0-1-amd64"), "a kernel is held");
	check(strv_has(&names, "linux-image-amd64") && strv_has(&names, "linux-generic"),
	      "metapackages of kernels are held, or the next upgrade brings another kernel");
	check(!strv_has(&names, "linux-base"), "what only speaks of kernels is not");
	check(!strv_has(&names, "linux-image-5.10.0-1-amd64"), "what is not installed is not");
	check(names.count == 4, "and nothing else is");
	strv_free(&plan.driver_packages);
}

static void test_no_dpkg(void)
{
	struct driver_plan plan = {0};
	CLEANUP_STRV struct strv names = {0};

	driver_hold_names(&names, &plan, NULL);
	check(names.count == 0, "a system without dpkg has nothing to hold");
}

static void test_texts(void)
{
	CLEANUP_STRV struct strv held = {0};
	CLEANUP_STRV struct strv installed = {0};
	CLEANUP_FREE char *preferences = NULL;
	CLEANUP_FREE char *unattended = NULL;

	strv_add(&held, "linux-image-6.1.0+deb12-amd64");
	strv_add(&held, "nvidia-smi");
	strv_add(&installed, "nvidia-smi=535.261.03-1");
	strv_add(&installed, "nvidia-smi-extra=1");
	preferences = driver_preferences_text(&held, &installed);
	unattended = driver_unattended_text(&held);
	check(strstr(preferences,
	             "\nPackage: nvidia-smi\nPin: version 535.261.03-1\nPin-Priority: 1001\n"),
	      "a preference pins the version that is installed");
	check(!strstr(preferences, "linux-image-6.1.0"),
	      "what has no version is not pinned to nothing");
	check(strstr(unattended, "\"^linux-image-6\\\\.1\\\\.0\\\\+deb12-amd64$\";"),
	      "unattended-upgrades' expressions mean the names, and nothing else");
}

int main(void)
{
	test_names();
	test_no_dpkg();
	test_texts();
	return tap_done();
}
