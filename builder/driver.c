/* SPDX-License-Identifier: Apache-2.0 */
/* Names of a driver's kinds, versions and packages, and the plan as JSON. */
#include <ctype.h>
#include <string.h>

#include "driver.h"
#include "json-text.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *driver_source_name(enum driver_source source)
{
	static const char *const names[] = {[DRIVER_DISTRO] = "distro",
	                                    [DRIVER_NVIDIA_REPO] = "nvidia-repo",
	                                    [DRIVER_RUN] = "run",
	                                    [DRIVER_DEBS] = "debs"};

	return names[source];
}

const char *driver_flavour_name(enum driver_flavour flavour)
{
	return flavour == DRIVER_OPEN ? "open" : "proprietary";
}

const char *driver_how_name(enum driver_how how)
{
	static const char *const names[] = {[DRIVER_PREBUILT] = "prebuilt",
	                                    [DRIVER_DKMS] = "dkms",
	                                    [DRIVER_INSTALLER] = "installer"};

	return names[how];
}

/* Behind the epoch: "535.1" of "1:535.1". */
static const char *without_epoch(const char *version)
{
	size_t digits = strspn(version, "0123456789");

	return digits && version[digits] == ':' ? version + digits + 1 : version;
}

char *driver_branch_of(const char *version)
{
	const char *start = without_epoch(version);
	size_t digits = strspn(start, "0123456789");

	return digits ? mem_copy(start, digits) : NULL;
}

/* What follows is the distribution's: "-0ubuntu1", "-0+deb12u1", "~bpo12". */
char *driver_upstream_version(const char *package_version)
{
	const char *start = without_epoch(package_version);
	size_t length = strspn(start, "0123456789.");

	while (length && start[length - 1] == '.')
		length--;
	return length && isdigit((unsigned char)*start) ? mem_copy(start, length) : NULL;
}

static bool starts_with_any(const char *name, const char *const *prefixes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (str_starts(name, prefixes[i]))
			return true;
	return false;
}

/* Beginnings of names that sound like the driver's: what hands it through to containers, what
 * helps to choose or remove one, toolkits that are built on it, and what others made. */
static const char *const others[] = {
	"nvidia-container", /* -toolkit, -runtime */
	"libnvidia-container",
	"nvidia-ctk",
	"nvidia-docker",
	"nvidia-detect",
	"nvidia-support",
	"nvidia-installer-cleanup",
	"nvidia-driver-assistant",
	"nvidia-prime", /* and -primus: switches between two cards */
	"nvidia-primus",
	"nvidia-cuda-", /* the toolkit; but see 'parts' */
	"nvidia-cudnn",
	"nvidia-cg-",
	"nvidia-fs", /* GPUDirect Storage: modules and versions of its own */
	"nvidia-gds",
	"linux-modules-nvidia-fs-",
	"nvidia-hpc",
	"nvidia-mig-",
	"nvidia-nsight",
	"nvidia-openjdk",
	"nvidia-profiler",
	"nvidia-vaapi-driver",
	"nvidia-visual-profiler",
	"libnvidia-egl-", /* free libraries of Wayland, which come without a driver too */
};

/* Beginnings of the driver's names: Debian's, Ubuntu's and those of NVIDIA's own repository. */
static const char *const parts[] = {
	"nvidia-",
	"libnvidia-",
	"xserver-xorg-video-nvidia",
	"cuda-drivers",
	"libcudadebugger",
	"libnvcuvid",
	"libnvoptix",
	"libnvsdm",
	"libgl1-nvidia",
	"libegl-nvidia",
	"libgles-nvidia",
	"libglx-nvidia",
	"libegl1-nvidia",
	"libgles1-nvidia",
	"libgles2-nvidia",
	"linux-modules-nvidia-",
	"linux-objects-nvidia-",
	"linux-signatures-nvidia-",
};

bool driver_is_package(const char *name)
{
	CLEANUP_FREE char *plain = mem_copy(name, strcspn(name, ":=")); /* ":i386", "=1.0-1" */

	if (strcmp(plain, "libcuda1") == 0 || str_starts(plain, "libcuda1-") ||
	    strcmp(plain, "nvidia-cuda-mps") == 0)
		return true;
	/* firmware-nvidia-graphics is nouveau's */
	if (str_starts(plain, "firmware-nvidia-"))
		return str_ends(plain, "-gsp");
	return !str_ends(plain, "-dev") && !starts_with_any(plain, others, COUNT(others)) &&
	       starts_with_any(plain, parts, COUNT(parts));
}

static json_t *kernels_json(const struct driver_plan *plan)
{
	json_t *list = json_array();

	for (size_t i = 0; i < plan->kernel_count; i++) {
		const struct driver_kernel *k = &plan->kernels[i];

		json_array_append_new(
			list, json_pack("{s:o, s:s, s:o}", "version", json_text(k->version), "how",
		                        driver_how_name(k->how), "package", json_text(k->package)));
	}
	return list;
}

json_t *driver_plan_json(const struct driver_plan *plan)
{
	json_t *json = json_pack("{s:s, s:s, s:o, s:o, s:o, s:b}", "source",
	                         driver_source_name(plan->source), "flavour",
	                         driver_flavour_name(plan->flavour), "branch_asked",
	                         json_text(plan->branch_asked), "branch", json_text(plan->branch),
	                         "version", json_text(plan->version), "forwarded", plan->forwarded);

	json_object_set_new(json, "kernels", kernels_json(plan));
	json_object_set_new(json, "install", json_text_list(&plan->install));
	json_object_set_new(json, "packages", json_text_list(&plan->packages));
	json_object_set_new(json, "driver_packages", json_text_list(&plan->driver_packages));
	json_object_set_new(json, "download_bytes", json_integer((json_int_t)plan->download_bytes));
	json_object_set_new(json, "installed_bytes",
	                    json_integer((json_int_t)plan->installed_bytes));
	return json;
}

void driver_plan_free(struct driver_plan *plan)
{
	free(plan->branch_asked);
	free(plan->branch);
	free(plan->version);
	strv_free(&plan->install);
	strv_free(&plan->packages);
	strv_free(&plan->digests);
	strv_free(&plan->driver_packages);
	for (size_t i = 0; i < plan->kernel_count; i++) {
		free(plan->kernels[i].version);
		free(plan->kernels[i].package);
	}
	free(plan->kernels);
	*plan = (struct driver_plan){0};
}
