/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A root with a driver in it as Debian's packages put it there: modules under other names, loaded
 * by install lines, libraries in a directory of their own, and links of update-alternatives that
 * lead to all of it. Two kernels and a rescue one.
 */
#ifndef GPUIMG_TESTS_DRIVER_FIXTURE_H
#define GPUIMG_TESTS_DRIVER_FIXTURE_H

#include <fcntl.h>

#include "builder/guest.h"
#include "builder/proc.h"
#include "builder/workdir.h"
#include "dir-rootfs.h"
#include "module-maker.h"

#define OLD        "6.1.0-1-test"
#define NEW        "6.1.0-2-test"
#define VERSION    "535.309.01"
#define LIB        "/usr/lib/x86_64-linux-gnu"
#define KEY        "DKMS module signing key"
#define UBUNTU_KEY "gpu-node Secure Boot Module Signature key"
#define ETC_DEB    "/etc/nvidia/nvidia-" VERSION

static inline void fixture_fail(const char *what, const char *path)
{
	printf("Bail out! cannot %s '%s'\n", what, path);
	exit(1);
}

static inline void fixture_dirs(const char *root, const char *path)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);
	CLEANUP_ERROR struct error err = ERROR_INIT;

	*strrchr(full, '/') = '\0';
	if (workdir_make_parents(full, &err) < 0)
		fixture_fail("make", full);
}

static inline void fixture_data(const char *root, const char *path, const void *data, size_t size)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);
	CLEANUP_CLOSE int fd = -1;

	fixture_dirs(root, path);
	unlink(full);
	fd = open(full, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		fixture_fail("write", full);
}

static inline void fixture_text(const char *root, const char *path, const char *text)
{
	fixture_data(root, path, text, strlen(text));
}

static inline void fixture_link(const char *root, const char *path, const char *target)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);

	fixture_dirs(root, path);
	unlink(full);
	if (symlink(target, full) < 0)
		fixture_fail("link", full);
}

static inline void fixture_remove(const char *root, const char *path)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);

	if (unlink(full) < 0)
		fixture_fail("remove", full);
}

static inline void fixture_depmod(const char *root, const char *kver)
{
	const char *const argv[] = {"depmod", "-b", root, kver, NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct proc_options options = {.timeout_ms = 60000};

	if (proc_run(argv, &options, NULL, 0, &err) < 0)
		fixture_fail("run depmod in", err.message);
}

/* One module of a kernel's; more: further fields; signer NULL: not signed. */
static inline void fixture_module(const char *root, const char *kver, const char *file,
                                  const char *fields, const char *signer)
{
	CLEANUP_FREE char *path = str_format("/usr/lib/modules/%s/%s", kver, file);
	CLEANUP_FREE char *all =
		str_format("vermagic=%s SMP preempt mod_unload modversions |%s", kver, fields);
	struct made_module m;

	module_make(&m, EM_X86_64, all);
	if (signer)
		module_sign(&m, signer);
	fixture_data(root, path, m.data, m.size);
}

/* The five modules by DKMS: "nvidia-current", "nvidia-current-open". */
static inline void fixture_kernel(const char *root, const char *kver, const char *package,
                                  const char *version, const char *license)
{
	static const struct {
		const char *role, *suffix, *license;
	} modules[] = {{"nvidia", "", NULL},
	               {"nvidia_modeset", "-modeset", NULL},
	               {"nvidia_drm", "-drm", "MIT"},
	               {"nvidia_uvm", "-uvm", "Dual MIT/GPL"},
	               {"nvidia_peermem", "-peermem", "Linux-OpenIB"}};
	CLEANUP_FREE char *order = str_format("/usr/lib/modules/%s/modules.order", kver);
	CLEANUP_FREE char *builtin = str_format("/usr/lib/modules/%s/modules.builtin", kver);
	CLEANUP_FREE char *firmware =
		str_format("firmware=nvidia/%s/gsp_tu10x.bin|firmware=nvidia/%s/gsp_ga10x.bin|",
	                   version, version);

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		CLEANUP_FREE char *file =
			str_format("updates/dkms/%s%s.ko", package, modules[i].suffix);
		CLEANUP_FREE char *fields =
			str_format("license=%s|version=%s|name=%s|%s",
		                   modules[i].license ? modules[i].license : license, version,
		                   modules[i].role, i == 0 ? firmware : "");

		fixture_module(root, kver, file, fields, KEY);
	}
	fixture_text(root, order, "");
	fixture_text(root, builtin, "");
	fixture_depmod(root, kver);
}

/* Debian's links: PATH -> /etc/alternatives/glx--NAME -> /etc/alternatives/nvidia--NAME -> TARGET.
 */
static inline void fixture_alternative(const char *root, const char *path, const char *name,
                                       const char *target)
{
	CLEANUP_FREE char *glx = str_format("/etc/alternatives/glx--%s", name);
	CLEANUP_FREE char *nvidia = str_format("/etc/alternatives/nvidia--%s", name);

	fixture_link(root, path, glx);
	fixture_link(root, glx, nvidia);
	fixture_link(root, nvidia, target);
}

static inline void fixture_libraries(const char *root, const char *version)
{
	static const char *const names[] = {"libcuda.so", "libnvidia-ml.so"};

	for (size_t i = 0; i < 2; i++) {
		CLEANUP_FREE char *real =
			str_format(LIB "/nvidia/current/%s.%s", names[i], version);
		CLEANUP_FREE char *so = str_format(LIB "/nvidia/current/%s.1", names[i]);
		CLEANUP_FREE char *target = str_format("%s.%s", names[i], version);
		CLEANUP_FREE char *path = str_format(LIB "/%s.1", names[i]);
		CLEANUP_FREE char *name = str_format("%s.1-x86_64-linux-gnu", names[i]);

		fixture_text(root, real, "library");
		fixture_link(root, so, target);
		fixture_alternative(root, path, name, so);
	}
}

/* What nvidia-kernel-support has, led to by nvidia-alternative and glx-alternative-nvidia. */
static inline void fixture_modprobe(const char *root, const char *package)
{
	CLEANUP_FREE char *text = str_format(
		"install nvidia modprobe -i %s $CMDLINE_OPTS\n\n"
		"install nvidia-modeset modprobe nvidia ; modprobe -i %s-modeset $CMDLINE_OPTS\n\n"
		"install nvidia-drm modprobe nvidia-modeset ; modprobe -i %s-drm $CMDLINE_OPTS\n\n"
		"install nvidia-uvm modprobe nvidia ; modprobe -i %s-uvm $CMDLINE_OPTS\n\n"
		"remove nvidia modprobe -r -i nvidia-drm nvidia-modeset nvidia-uvm nvidia\n\n"
		"alias char-major-195* nvidia\n"
		"alias\tpci:v000010DEd*sv*sd*bc03sc02i00*\t\tnvidia\n",
		package, package, package, package);

	fixture_text(root, "/etc/nvidia/current/nvidia-modprobe.conf", text);
	fixture_link(root, ETC_DEB, "current");
	fixture_link(root, "/etc/modprobe.d/nvidia.conf",
	             "/etc/alternatives/glx--nvidia-modprobe.conf");
	fixture_link(root, "/etc/alternatives/glx--nvidia-modprobe.conf",
	             "/etc/nvidia/nvidia-modprobe.conf");
	fixture_link(root, "/etc/nvidia/nvidia-modprobe.conf",
	             "/etc/alternatives/nvidia--nvidia-modprobe.conf");
	fixture_link(root, "/etc/alternatives/nvidia--nvidia-modprobe.conf",
	             ETC_DEB "/nvidia-modprobe.conf");
}

/* A whole driver for both kernels, and our block beside it. */
static inline void fixture_root(const char *root)
{
	fixture_dirs(root, "/usr/lib/");
	fixture_link(root, "/lib", "usr/lib");
	fixture_kernel(root, OLD, "nvidia-current", VERSION, "NVIDIA");
	fixture_kernel(root, NEW, "nvidia-current", VERSION, "NVIDIA");
	fixture_modprobe(root, "nvidia-current");
	fixture_libraries(root, VERSION);
	fixture_text(root, "/usr/lib/nvidia/current/nvidia-smi", "program");
	fixture_alternative(root, "/usr/bin/nvidia-smi", "nvidia-smi",
	                    "/usr/lib/nvidia/current/nvidia-smi");
	fixture_text(root, "/usr/lib/firmware/nvidia/" VERSION "/gsp_tu10x.bin", "firmware");
	fixture_text(root, "/usr/lib/firmware/nvidia/" VERSION "/gsp_ga10x.bin", "firmware");
	fixture_text(root, "/etc/modprobe.d/gpuimg-gpu-block.conf",
	             "blacklist nouveau\ninstall nouveau /bin/false\n");
	fixture_text(root, "/var/lib/dpkg/status",
	             "Package: nvidia-kernel-dkms\nStatus: hold ok installed\nVersion: 1\n\n"
	             "Package: libcuda1\nStatus: hold ok installed\nArchitecture: amd64\n\n"
	             "Package: bash\nStatus: install ok installed\nVersion: 1\n");
}

#endif
