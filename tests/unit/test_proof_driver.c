/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole driver holds; then one thing after another is broken in it, and the proof must say which,
 * as bad where a driver is wanted, and otherwise as bad or as a note.
 */
#include "builder/proof-driver.h"
#include "driver-fixture.h"
#include "tap.h"

struct judged {
	struct findings f;
	int result;
};

static void judged_free(struct judged *j)
{
	findings_free(&j->f);
}
#define CLEANUP_JUDGED __attribute__((cleanup(judged_free)))

static struct judged judge(const char *dir, const struct driver_want *want)
{
	struct guest_kernel kernels[] = {
		{.version = (char *)(uintptr_t)OLD},
		{.version = (char *)(uintptr_t)NEW},
		{.version = (char *)(uintptr_t) "0-rescue", .rescue = true}};
	struct guest guest = {.kernels = kernels, .kernel_count = 3};
	char scratch[] = "/tmp/gpuimg-proof-scratch-XXXXXX";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ROOTFS struct rootfs *root = open_dir(dir);
	CLEANUP_DRIVER_FACTS struct driver_facts facts = {0};
	const struct strv none = {0};
	struct judged j = {0};

	if (!mkdtemp(scratch) || driver_facts_read(&facts, root, &guest, &none, &err) < 0)
		fixture_fail("read the facts of", dir);
	j.result = proof_driver(&j.f, root, &guest, &facts, want, scratch, &err);
	if (j.result < 0)
		printf("# %s\n", err.message);
	workdir_remove(scratch);
	return j;
}

static size_t count_of(const struct judged *j, enum finding_verdict verdict, const char *id,
                       const char *text)
{
	size_t count = 0;

	for (size_t i = 0; i < j->f.count; i++)
		count += j->f.items[i].verdict == verdict &&
		         (!id || strcmp(j->f.items[i].id, id) == 0) &&
		         (!text || strstr(j->f.items[i].what, text));
	return count;
}

static void show(const struct judged *j)
{
	for (size_t i = 0; i < j->f.count; i++)
		if (j->f.items[i].verdict != FINDING_OK)
			printf("# %s: %s\n", j->f.items[i].id, j->f.items[i].what);
}

/* --- What is broken --- */

static void no_module(const char *dir)
{
	fixture_remove(dir, "/usr/lib/modules/" NEW "/updates/dkms/nvidia-current-uvm.ko");
	fixture_depmod(dir, NEW);
}

static void no_kernel(const char *dir)
{
	static const char *const suffixes[] = {"", "-modeset", "-drm", "-uvm", "-peermem"};

	for (size_t i = 0; i < 5; i++) {
		CLEANUP_FREE char *path = str_format(
			"/usr/lib/modules/" NEW "/updates/dkms/nvidia-current%s.ko", suffixes[i]);

		fixture_remove(dir, path);
	}
	fixture_depmod(dir, NEW);
}

static void no_depmod(const char *dir)
{
	fixture_text(dir, "/usr/lib/modules/" NEW "/modules.dep", "kernel/other.ko:\n");
	fixture_remove(dir, "/usr/lib/modules/" NEW "/modules.dep.bin");
}

static void torn(const char *dir)
{
	fixture_text(dir, "/usr/lib/modules/" NEW "/updates/dkms/nvidia-current.ko", "torn");
}

static void other_kernel(const char *dir)
{
	fixture_kernel(dir, NEW, "nvidia-current", VERSION, "NVIDIA");
	fixture_module(dir, OLD "/../" NEW, "updates/dkms/nvidia-current-uvm.ko",
	               "version=" VERSION "|name=nvidia_uvm|license=Dual MIT/GPL|", KEY);
}

static void ubuntu_key(const char *dir)
{
	fixture_module(dir, NEW, "updates/dkms/nvidia-current-uvm.ko",
	               "version=" VERSION "|name=nvidia_uvm|license=Dual MIT/GPL|", UBUNTU_KEY);
}

static void two_versions(const char *dir)
{
	fixture_kernel(dir, NEW, "nvidia-current", "550.163.01", "NVIDIA");
	fixture_text(dir, "/usr/lib/firmware/nvidia/550.163.01/gsp_tu10x.bin", "firmware");
	fixture_text(dir, "/usr/lib/firmware/nvidia/550.163.01/gsp_ga10x.bin", "firmware");
}

static void open_flavour(const char *dir)
{
	fixture_kernel(dir, OLD, "nvidia-current", VERSION, "Dual MIT/GPL");
	fixture_kernel(dir, NEW, "nvidia-current", VERSION, "Dual MIT/GPL");
}

static void no_firmware(const char *dir)
{
	fixture_remove(dir, "/usr/lib/firmware/nvidia/" VERSION "/gsp_ga10x.bin");
}

static void other_library(const char *dir)
{
	fixture_text(dir, LIB "/libcuda.so.550.163.01", "library");
}

static void no_library(const char *dir)
{
	fixture_remove(dir, "/etc/alternatives/glx--libnvidia-ml.so.1-x86_64-linux-gnu");
}

static void no_smi(const char *dir)
{
	fixture_remove(dir, "/usr/bin/nvidia-smi");
}

static void blocked(const char *dir)
{
	fixture_text(dir, "/etc/modprobe.d/block.conf", "install nvidia /bin/false\n");
}

/* The name that Debian gives the file: 'modprobe -i' passes by it, so the link has to be cut. */
static void no_alternative(const char *dir)
{
	fixture_remove(dir, "/etc/nvidia/nvidia-modprobe.conf");
}

static void blocked_by_name(const char *dir)
{
	fixture_modprobe(dir, "nvidia-tesla-535");
}

static void not_held(const char *dir)
{
	fixture_text(dir, "/var/lib/dpkg/status",
	             "Package: nvidia-kernel-dkms\nStatus: install ok installed\nVersion: 1\n\n"
	             "Package: libcuda1\nStatus: hold ok installed\n\n");
}

static void registered(const char *dir)
{
	fixture_dirs(dir, "/var/lib/dkms/nvidia-current/" VERSION "/");
}

static void cdi(const char *dir)
{
	fixture_text(dir, "/etc/cdi/nvidia.yaml", "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n");
}

static void unsigned_module(const char *dir)
{
	fixture_module(dir, NEW, "updates/dkms/nvidia-current.ko",
	               "version=" VERSION "|name=nvidia|license=NVIDIA|", NULL);
}

static void no_change(const char *dir)
{
	(void)dir;
}

static const enum driver_flavour proprietary = DRIVER_PROPRIETARY;

struct row {
	const char *sentence;
	void (*breaks)(const char *dir);
	const char *id, *text;
	enum finding_verdict if_not_wanted; /* FINDING_OK: nothing is said */
	struct driver_want want;            /* 'required' is set for each row */
};

static const struct row rows[] = {
	{"a kernel that lacks one of the modules",
         no_module,
         "driver.modules",
         "kernel " NEW " has a part of the driver only; it lacks nvidia_uvm",
         FINDING_NOTE,
         {0}},
	{"a kernel without any",
         no_kernel,
         "driver.kernels",
         "kernel " NEW " has no modules",
         FINDING_BAD,
         {0}},
	{"modules that depmod has not seen",
         no_depmod,
         "driver.modules",
         "modules.dep does not name it",
         FINDING_BAD,
         {0}},
	{"a kernel that cannot find its modules",
         no_depmod,
         "driver.loadable",
         "kernel " NEW ": 'modprobe nvidia' loads nothing",
         FINDING_NOTE,
         {0}},
	{"a damaged module",
         torn,
         "driver.modules",
         "nvidia-current.ko' is missing, damaged",
         FINDING_BAD,
         {0}},
	{"a module for another kernel",
         other_kernel,
         "driver.vermagic",
         "cannot be loaded by kernel " NEW,
         FINDING_BAD,
         {0}},
	{"two versions", two_versions, "driver.versions", VERSION ", 550.163.01", FINDING_BAD, {0}},
	{"a version that is not the one that is wanted",
         two_versions,
         "driver.version",
         "550.163.01, not " VERSION,
         FINDING_OK,
         {.version = VERSION}},
	{"another branch",
         two_versions,
         "driver.branch",
         "550.163.01, not of branch 535",
         FINDING_OK,
         {.branch = "535"}},
	{"open modules where proprietary ones are wanted",
         open_flavour,
         "driver.flavour",
         "is not proprietary: its license is Dual MIT/GPL",
         FINDING_OK,
         {.flavour = &proprietary}},
	{"firmware that is missing",
         no_firmware,
         "driver.firmware",
         "'/lib/firmware/nvidia/" VERSION "/gsp_ga10x.bin'",
         FINDING_NOTE,
         {0}},
	{"a library of another version",
         other_library,
         "driver.userspace",
         "libcuda.so.550.163.01' is not of the modules' version " VERSION,
         FINDING_BAD,
         {0}},
	{"a library that is missing",
         no_library,
         "driver.userspace",
         "no libnvidia-ml.so",
         FINDING_NOTE,
         {0}},
	{"nvidia-smi that is missing",
         no_smi,
         "driver.userspace",
         "no program nvidia-smi",
         FINDING_NOTE,
         {0}},
	{"a block of the driver's own name",
         blocked,
         "driver.loadable",
         "kernel " OLD ": 'modprobe nvidia' loads nothing",
         FINDING_NOTE,
         {0}},
	{"no alternative for Debian's names",
         no_alternative,
         "driver.loadable",
         "'modprobe nvidia_uvm' loads nothing",
         FINDING_NOTE,
         {0}},
	{"an alternative that leads to another driver",
         blocked_by_name,
         "driver.loadable",
         "'modprobe nvidia' loads nothing",
         FINDING_NOTE,
         {0}},
	{"DKMS that still knows it",
         registered,
         "driver.dkms",
         "nvidia-current/" VERSION,
         FINDING_NOTE,
         {0}},
	{"a CDI spec", cdi, "driver.cdi", "'/etc/cdi/nvidia.yaml'", FINDING_NOTE, {0}},
	{"a key that DKMS made where signed modules are wanted",
         no_change,
         "driver.signed",
         KEY,
         FINDING_OK,
         {.require_signed = true}},
	{"a key that Ubuntu made for DKMS where signed modules are wanted",
         ubuntu_key,
         "driver.signed",
         UBUNTU_KEY,
         FINDING_OK,
         {.require_signed = true}},
	{"a module that is not signed",
         unsigned_module,
         "driver.signed",
         "nvidia-current.ko' is not signed",
         FINDING_OK,
         {.require_signed = true}},
};

static void run_row(const struct row *row)
{
	char dir[] = "/tmp/gpuimg-proof-XXXXXX";
	struct driver_want want = row->want;
	static const struct driver_want nothing = {0};

	if (!mkdtemp(dir))
		fixture_fail("make", dir);
	fixture_root(dir);
	row->breaks(dir);
	want.required = true;
	{
		CLEANUP_JUDGED struct judged wanted = judge(dir, &want);
		CLEANUP_JUDGED struct judged other = judge(dir, &nothing);

		if (!check(wanted.result == 0 &&
		                   count_of(&wanted, FINDING_BAD, row->id, row->text) > 0,
		           "%s: bad (%s)", row->sentence, row->id))
			show(&wanted);
		if (!check(other.result == 0 &&
		                   (row->if_not_wanted == FINDING_OK
		                            ? count_of(&other, FINDING_BAD, row->id, NULL) == 0
		                            : count_of(&other, row->if_not_wanted, row->id,
		                                       row->text) > 0),
		           "%s: the right verdict where no driver is wanted", row->sentence))
			show(&other);
	}
	workdir_remove(dir);
}

static void test_holds(const char *dir, const char *held)
{
	CLEANUP_STRV struct strv names = strv_split(held, " ");
	const struct driver_want want = {.required = true,
	                                 .branch = "535",
	                                 .version = VERSION,
	                                 .flavour = &proprietary,
	                                 .held = &names};
	CLEANUP_JUDGED struct judged j = judge(dir, &want);

	if (!check(j.result == 0 && count_of(&j, FINDING_BAD, NULL, NULL) == 0 &&
	                   count_of(&j, FINDING_NOTE, NULL, NULL) == 0,
	           "a whole driver of Debian's holds, and nothing is noted"))
		show(&j);
	check(count_of(&j, FINDING_OK, "driver.loadable",
	               "kernel " NEW ": 'modprobe nvidia_uvm' loads nvidia_current, "
	               "nvidia_current_uvm") == 1,
	      "'modprobe nvidia_uvm' is followed through Debian's install lines");
	check(count_of(&j, FINDING_OK, "driver.firmware", "all 2 firmware files") == 2,
	      "the firmware of both kernels is counted");
	check(count_of(&j, FINDING_OK, "driver.hold", "2 packages") == 1, "holds are counted");
	not_held(dir);
	{
		CLEANUP_JUDGED struct judged after = judge(dir, &want);

		check(count_of(&after, FINDING_BAD, "driver.hold", "nvidia-kernel-dkms") == 1 &&
		              count_of(&after, FINDING_BAD, "driver.hold", "libcuda1") == 0,
		      "a package that is not on hold is named, and no other");
	}
}

static void test_signed_ones(const char *dir)
{
	const struct driver_want want = {.required = true, .require_signed = true};
	static const char *const suffixes[] = {"", "-modeset", "-drm", "-uvm", "-peermem"};
	static const char *const kernels[] = {OLD, NEW};

	for (size_t k = 0; k < 2; k++)
		for (size_t i = 0; i < 5; i++) {
			CLEANUP_FREE char *file =
				str_format("updates/dkms/nvidia-current%s.ko", suffixes[i]);
			CLEANUP_FREE char *role = str_format(
				"version=" VERSION "|license=NVIDIA|name=nvidia%s%s|",
				*suffixes[i] ? "_" : "", *suffixes[i] ? suffixes[i] + 1 : "");

			fixture_module(dir, kernels[k], file, role,
			               "Canonical Ltd. Kernel Module Signing");
		}
	CLEANUP_JUDGED struct judged j = judge(dir, &want);

	if (!check(count_of(&j, FINDING_BAD, NULL, NULL) == 0 &&
	                   count_of(&j, FINDING_OK, "driver.signed", "Canonical") == 10,
	           "modules that a distribution signed are signed"))
		show(&j);
}

static void test_absent(const char *dir)
{
	const struct driver_want want = {.required = true};
	static const struct driver_want nothing = {0};
	CLEANUP_JUDGED struct judged wanted = judge(dir, &want), other = judge(dir, &nothing);

	check(wanted.result == 0 && count_of(&wanted, FINDING_BAD, NULL, NULL) == 1 &&
	              count_of(&wanted, FINDING_BAD, "driver.present", NULL) == 1,
	      "a driver that is wanted and not there is one point");
	check(other.result == 0 && other.f.count == 0,
	      "nothing is said where none is there and none wanted");
	fixture_dirs(dir, "/var/lib/dkms/nvidia/580.1/");
	{
		CLEANUP_JUDGED struct judged left = judge(dir, &want);

		check(count_of(&left, FINDING_BAD, "driver.kernels", NULL) == 2,
		      "where only a registration is left, each kernel is named");
	}
}

int main(void)
{
	char dir[] = "/tmp/gpuimg-proof-XXXXXX", bare[] = "/tmp/gpuimg-proof-XXXXXX";

	if (!proc_have("depmod")) {
		check(true, "the proof of a driver # SKIP no depmod");
		return tap_done();
	}
	if (!mkdtemp(dir) || !mkdtemp(bare))
		fixture_fail("make", dir);
	fixture_root(dir);
	test_holds(dir, "nvidia-kernel-dkms libcuda1");
	test_signed_ones(dir);
	test_absent(bare);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		run_row(&rows[i]);
	workdir_remove(dir);
	workdir_remove(bare);
	return tap_done();
}
