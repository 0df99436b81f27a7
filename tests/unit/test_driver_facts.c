/* SPDX-License-Identifier: Apache-2.0 */
/* Names of packages and versions, and what is found of a driver in roots that are made here. */
#include "builder/driver-facts.h"
#include "builder/driver.h"
#include "driver-fixture.h"
#include "tap.h"

static void check_version(const char *package, const char *version, const char *branch)
{
	CLEANUP_FREE char *got = driver_upstream_version(package);
	CLEANUP_FREE char *got_branch = driver_branch_of(package);

	check_str(got, version, "the driver's version in '%s'", package);
	check_str(got_branch, branch, "the branch in '%s'", package);
}

static void test_versions(void)
{
	check_version("535.309.01", "535.309.01", "535");
	check_version("1:535.261.03-0ubuntu1", "535.261.03", "535");
	check_version("535.309.01-0+deb12u1", "535.309.01", "535");
	check_version("550.163.01-2~deb13u1", "550.163.01", "550");
	check_version("580.95.05~bpo12-1", "580.95.05", "580");
	check_version("535.183.06-0ubuntu0.22.04.1", "535.183.06", "535");
	check_version("580", "580", "580");
	check_version("", NULL, NULL);
	check_version("1:", NULL, NULL);
	check_version("none", NULL, NULL);
	check_version(".5", NULL, NULL);
}

static void check_packages(const char *list, bool want)
{
	CLEANUP_STRV struct strv names = strv_split(list, " ");
	CLEANUP_STRV struct strv wrong = {0};
	CLEANUP_FREE char *all = NULL;

	for (size_t i = 0; i < names.count; i++)
		if (driver_is_package(names.items[i]) != want)
			strv_add(&wrong, names.items[i]);
	all = strv_join(&wrong, " ");
	check_str(all, "", "%zu packages that are %s the driver's", names.count,
	          want ? "of" : "none of");
}

static void test_packages(void)
{
	check_packages("nvidia-driver nvidia-kernel-dkms nvidia-open-kernel-dkms "
	               "nvidia-kernel-support nvidia-alternative nvidia-smi nvidia-persistenced "
	               "nvidia-cuda-mps libcuda1 libcuda1:i386 libcudadebugger1 libnvcuvid1 "
	               "libnvidia-ml1 libnvidia-eglcore libnvidia-ptxjitcompiler1 "
	               "firmware-nvidia-gsp firmware-nvidia-tesla-535-gsp "
	               "libgl1-nvidia-glvnd-glx libegl-nvidia0 libglx-nvidia0 "
	               "xserver-xorg-video-nvidia nvidia-legacy-check nvidia-tesla-535-smi "
	               "nvidia-tesla-535-kernel-dkms libnvidia-tesla-535-cuda1",
	               true);
	check_packages("nvidia-headless-535-server nvidia-utils-535-server nvidia-dkms-535-server "
	               "nvidia-compute-utils-580-server libnvidia-compute-535-server "
	               "linux-modules-nvidia-535-server-6.8.0-51-generic "
	               "linux-modules-nvidia-535-server-open-generic "
	               "linux-objects-nvidia-535-server-6.8.0-51-generic "
	               "linux-signatures-nvidia-6.8.0-51-generic nvidia-firmware-535-535.183.06",
	               true);
	check_packages("cuda-drivers cuda-drivers-580 cuda-drivers-fabricmanager-535 nvidia-open "
	               "nvidia-open-570 nvidia-driver-cuda nvidia-kernel-open-dkms "
	               "libnvidia-nscq-535 nvidia-fabricmanager nvidia-fabricmanager-535 "
	               "nvidia-imex libnvsdm nvidia-modprobe nvidia-settings=535.1-1",
	               true);
	check_packages("nvidia-container-toolkit nvidia-container-toolkit-base "
	               "nvidia-container-runtime libnvidia-container1 libnvidia-container-tools "
	               "nvidia-docker2 nvidia-detect nvidia-support nvidia-installer-cleanup "
	               "glx-alternative-nvidia glx-alternative-mesa update-glx "
	               "firmware-nvidia-graphics nvidia-prime linux-modules-nvidia-fs-6.8.0",
	               false);
	check_packages("cuda-toolkit-12-4 cuda cuda-compat-12-4 nvidia-cuda-toolkit "
	               "nvidia-cuda-dev libcudart12 libcudnn8 nvidia-cudnn nvidia-cg-toolkit "
	               "libnvidia-ml-dev libnvidia-egl-wayland1 linux-image-nvidia "
	               "linux-modules-6.8.0-1018-nvidia datacenter-gpu-manager bash",
	               false);
}

static void test_plan_json(void)
{
	struct driver_kernel *kernels = mem_alloc(2 * sizeof(*kernels));
	struct driver_plan plan = {.source = DRIVER_NVIDIA_REPO,
	                           .flavour = DRIVER_OPEN,
	                           .branch_asked = str_copy("570"),
	                           .branch = str_copy("580"),
	                           .version = str_copy("580.95.05"),
	                           .forwarded = true,
	                           .kernels = kernels,
	                           .kernel_count = 2,
	                           .download_bytes = 7};
	CLEANUP_FREE char *text = NULL;
	json_t *json;

	kernels[0] = (struct driver_kernel){.version = str_copy(OLD), .how = DRIVER_PREBUILT};
	kernels[0].package = str_copy("linux-modules-nvidia-580=1");
	kernels[1] = (struct driver_kernel){.version = str_copy(NEW), .how = DRIVER_DKMS};
	strv_add(&plan.install, "nvidia-open=1");
	json = driver_plan_json(&plan);
	text = json_dumps(json, JSON_SORT_KEYS);
	check_str(text,
	          "{\"branch\": \"580\", \"branch_asked\": \"570\", \"download_bytes\": 7, "
	          "\"driver_packages\": [], \"flavour\": \"open\", \"forwarded\": true, "
	          "\"install\": [\"nvidia-open=1\"], \"installed_bytes\": 0, \"kernels\": "
	          "[{\"how\": \"prebuilt\", \"package\": \"linux-modules-nvidia-580=1\", "
	          "\"version\": \"" OLD "\"}, {\"how\": \"dkms\", \"package\": null, \"version\": "
	          "\"" NEW "\"}], \"packages\": [], \"source\": \"nvidia-repo\", \"version\": "
	          "\"580.95.05\"}",
	          "a plan says all of it in JSON");
	json_decref(json);
	driver_plan_free(&plan);
	check(!plan.kernels && !plan.branch, "what was in a plan is gone after it was freed");
}

/* --- Roots --- */

struct asked {
	struct driver_facts facts;
	struct rootfs *root;
};

static void asked_free(struct asked *a)
{
	driver_facts_free(&a->facts);
	rootfs_close(a->root);
}
#define CLEANUP_ASKED __attribute__((cleanup(asked_free)))

static struct asked ask(const char *dir, const char *packages)
{
	struct guest_kernel kernels[] = {
		{.version = (char *)(uintptr_t)OLD},
		{.version = (char *)(uintptr_t)NEW},
		{.version = (char *)(uintptr_t) "0-rescue", .rescue = true}};
	struct guest guest = {.kernels = kernels, .kernel_count = 3};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv all = strv_split(packages, " ");
	struct asked a = {.root = open_dir(dir)};

	if (driver_facts_read(&a.facts, a.root, &guest, &all, &err) < 0)
		fixture_fail("read the facts of", err.message);
	return a;
}

static const struct driver_module *module_at(const struct asked *a, const char *kver,
                                             const char *name)
{
	for (size_t i = 0; i < a->facts.module_count; i++)
		if (strcmp(a->facts.modules[i].kernel, kver) == 0 &&
		    strcmp(a->facts.modules[i].name, name) == 0)
			return &a->facts.modules[i];
	return NULL;
}

static void check_list(const struct strv *got, const char *want, const char *sentence)
{
	CLEANUP_FREE char *all = strv_join(got, "; ");

	check_str(all, want, "%s", sentence);
}

static void test_debian(const char *dir)
{
	CLEANUP_ASKED struct asked a = {0};
	const struct driver_module *core, *uvm;

	fixture_root(dir);
	fixture_dirs(dir, "/var/lib/dkms/nvidia-current/" VERSION "/" OLD "/");
	fixture_link(dir, "/var/lib/dkms/nvidia-current/kernel-" OLD "-x86_64", VERSION "/" OLD);
	fixture_dirs(dir, "/var/lib/dkms/nvidia-current/original_module/");
	a = ask(dir, "bash=5.2 libcuda1=" VERSION "-1 nvidia-container-toolkit=1.17 nvidia-smi=1");
	check(driver_facts_any(&a.facts), "a driver of Debian's is one");
	check_list(&a.facts.packages, "libcuda1=" VERSION "-1; nvidia-smi=1",
	           "its packages are told, and those of the toolkit are not");
	check_list(&a.facts.held, "libcuda1; nvidia-kernel-dkms", "packages on hold are told");
	check_list(&a.facts.smi, "/usr/lib/nvidia/current/nvidia-smi",
	           "nvidia-smi is found through the alternatives' links");
	check_list(&a.facts.libraries,
	           VERSION " " LIB "/nvidia/current/libcuda.so." VERSION "; " VERSION " " LIB
	                   "/nvidia/current/libnvidia-ml.so." VERSION,
	           "both libraries are found where the links end, each once");
	check_list(&a.facts.dkms, "nvidia-current/" VERSION,
	           "what DKMS has registered is told without its links");
	check(a.facts.module_count == 10, "five modules of each kernel are found");
	core = module_at(&a, NEW, "nvidia_current");
	uvm = module_at(&a, OLD, "nvidia_current_uvm");
	if (!check(core && uvm, "they have Debian's names"))
		return;
	check_str(driver_module_role(core), "nvidia", "its core is NVIDIA's 'nvidia'");
	check_str(driver_module_role(uvm), "nvidia_uvm", "and its 'uvm' is nvidia_uvm");
	check(core->listed && !core->unread && str_equal(core->info.version, VERSION) &&
	              str_equal(core->info.signer, KEY) && str_equal(core->info.license, "NVIDIA"),
	      "the module says its version, licence and signer");
	check(a.facts.firmware_missing.count == 0, "the firmware that it asks for is there");
}

static void test_damage(const char *dir)
{
	static const char module[] = "/usr/lib/modules/" OLD "/updates/dkms/nvidia-current-uvm.ko";
	CLEANUP_ASKED struct asked a = {0};
	const struct driver_module *uvm, *extra;

	fixture_text(dir, module, "torn");
	fixture_remove(dir, "/usr/lib/modules/" OLD "/updates/dkms/nvidia-current-drm.ko");
	fixture_module(dir, OLD, "kernel/nvidia-535srv/nvidia.ko.xz", "version=1|", NULL);
	fixture_remove(dir, "/usr/lib/firmware/nvidia/" VERSION "/gsp_ga10x.bin");
	fixture_text(dir, "/usr/lib/firmware/updates/" OLD "/nvidia/" VERSION "/gsp_ga10x.bin.zst",
	             "firmware");
	a = ask(dir, "");
	uvm = module_at(&a, OLD, "nvidia_current_uvm");
	extra = module_at(&a, OLD, "nvidia");
	check(uvm && uvm->unread && !uvm->info.version, "a damaged module is told as unread");
	check_str(uvm ? driver_module_role(uvm) : NULL, "nvidia_uvm",
	          "its role is known by the file's name");
	check(module_at(&a, OLD, "nvidia_current_drm") &&
	              module_at(&a, OLD, "nvidia_current_drm")->unread,
	      "a module that modules.dep names and that is gone, too");
	check(extra && !extra->listed && !extra->unread,
	      "a module that modules.dep does not name is found where Ubuntu puts it");
	check_list(&a.facts.firmware_missing, NEW " nvidia/" VERSION "/gsp_ga10x.bin",
	           "firmware is looked for where the kernel looks, for each kernel");
}

static void test_libraries(const char *dir)
{
	CLEANUP_ASKED struct asked a = {0};

	fixture_text(dir, "/etc/ld.so.conf",
	             "# comment\ninclude /etc/ld.so.conf.d/*.conf\ninclude ld.so.conf # itself\n");
	fixture_text(dir, "/etc/ld.so.conf.d/cuda.conf",
	             "/usr/local/cuda/compat\n/opt/nvidia/lib # more\nrelative\n");
	fixture_text(dir, "/usr/local/cuda/compat/libcuda.so.999.1", "newer, by intent");
	fixture_text(dir, "/opt/nvidia/lib/libcuda.so.550.54.14", "another one");
	fixture_text(dir, "/opt/nvidia/lib/libcuda.so.1", "does not say");
	fixture_text(dir, LIB "/nvidia/tesla-535/libcuda.so.535.1.1", "nobody uses it");
	fixture_link(dir, LIB "/libnvidia-ml.so.1", "/etc/alternatives/gone");
	a = ask(dir, "");
	check_list(&a.facts.libraries,
	           VERSION " " LIB "/nvidia/current/libcuda.so." VERSION
	                   "; 550.54.14 /opt/nvidia/lib/libcuda.so.550.54.14",
	           "libraries are those that the dynamic linker finds, by its configuration");
}

static void check_any(const char *dir, const char *packages, bool want, const char *sentence)
{
	CLEANUP_ASKED struct asked a = ask(dir, packages);

	check(driver_facts_any(&a.facts) == want, "%s", sentence);
}

static void test_none(const char *dir)
{
	fixture_dirs(dir, "/usr/lib/modules/" OLD "/");
	fixture_text(dir, "/usr/lib/modules/" OLD "/modules.dep",
	             "kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko:\n"
	             "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.xz:\n");
	fixture_dirs(dir, "/var/lib/dkms/zfs/2.1/");
	check_any(dir, "bash=5 nvidia-container-toolkit=1.17 nvidia-detect=1", false,
	          "a root without a driver has none");
	check_any(dir, "libnvidia-ml1=535.1-1", true, "a library's package is a driver");
	fixture_dirs(dir, "/var/lib/dkms/nvidia/580.1/");
	check_any(dir, "", true, "a driver that only DKMS still has is one");
	fixture_text(dir, "/usr/bin/nvidia-uninstall", "program");
	CLEANUP_ASKED struct asked run = ask(dir, "");

	check_list(&run.facts.dkms, "nvidia/580.1; zfs/2.1", "what else DKMS has is told too");
	check_list(&run.facts.run_installers, "/usr/bin/nvidia-uninstall",
	           "what a .run installer left is told");
}

static void test_json(const char *dir)
{
	CLEANUP_ASKED struct asked a = ask(dir, "nvidia-smi=1");
	json_t *json = driver_facts_json(&a.facts);
	const json_t *first = json_array_get(json_object_get(json, "modules"), 0);
	static const char *const keys[] = {
		"packages", "nvidia_smi", "run_installer", "modules",
		"dkms",     "libraries",  "held",          "firmware_missing"};
	bool all = true;

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		all = all && json_is_array(json_object_get(json, keys[i]));
	check(all, "the facts' lists are all in JSON");
	check_str(json_string_value(json_object_get(first, "signer")), KEY,
	          "a module's signer is in JSON");
	json_decref(json);
}

int main(void)
{
	char dir[] = "/tmp/gpuimg-facts-XXXXXX", bare[] = "/tmp/gpuimg-facts-XXXXXX";

	test_versions();
	test_packages();
	test_plan_json();
	if (!proc_have("depmod")) {
		check(true, "roots with a driver # SKIP no depmod");
		return tap_done();
	}
	if (!mkdtemp(dir) || !mkdtemp(bare))
		fixture_fail("make", dir);
	test_debian(dir);
	test_json(dir);
	test_damage(dir);
	test_libraries(dir);
	test_none(bare);
	workdir_remove(dir);
	workdir_remove(bare);
	return tap_done();
}
