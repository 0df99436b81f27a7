/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "builder/boot.h"
#include "builder/str.h"
#include "tests/unit/tap.h"

/* The strings are never freed as facts: only the lists are. */
static char bar_address[] = "0x800000000-0xfffffffff";
static char bar_message[] = "pci 0000:00:06.0: BAR 2 [mem size 0x800000000 64bit pref]: "
			    "failed to assign";
static char ended[] = "all facts are in";
static char good_cmdline[] = "root=UUID=1 ro console=ttyS0 pci=nocrs pci=realloc "
			     "module_blacklist=nouveau,nova_core";

static struct boot_facts good(void)
{
	return (struct boot_facts){.ended = ended,
	                           .kernel_started = FACT_YES,
	                           .userspace = FACT_YES,
	                           .booted = FACT_YES,
	                           .window_dropped = FACT_YES,
	                           .bar_assigned = FACT_YES,
	                           .bar_address = bar_address,
	                           .nouveau_loaded = FACT_NO,
	                           .nouveau_loadable_by_alias = FACT_NO,
	                           .nouveau_loadable_by_name = FACT_YES,
	                           .nouveau_exists = FACT_YES,
	                           .card_probed = FACT_NO,
	                           .disk_ok = FACT_YES,
	                           .nic_ok = FACT_YES,
	                           .serial_ok = FACT_YES,
	                           .cmdline = good_cmdline};
}

static struct boot_facts bad_base(void)
{
	struct boot_facts f = good();

	f.bar_assigned = FACT_NO;
	f.bar_address = NULL;
	f.bar_message = bar_message;
	f.nouveau_loaded = FACT_YES;
	f.nouveau_loadable_by_alias = FACT_YES;
	f.card_probed = FACT_YES;
	f.card_reads = 2;
	return f;
}

/* base: NULL for the image alone. word: NULL for no reason at all, else it stands in one. */
static void expect(enum verdict want, const char *word, const struct boot_facts *base,
                   const struct boot_facts *built, const char *what)
{
	CLEANUP_STRV struct strv params = strv_split("pci=nocrs pci=realloc", " ");
	CLEANUP_STRV struct strv reasons = {0};
	CLEANUP_FREE char *all = NULL;
	enum verdict got = base ? boot_judge_pair(base, built, &params, &reasons)
	                        : boot_judge(built, &params, &reasons);

	all = strv_join(&reasons, "; ");
	if (!check(got == want && (word ? strstr(all, word) != NULL : reasons.count == 0), "%s",
	           what))
		printf("# got %s: %s\n", verdict_name(got), all);
}

static void test_alone(void)
{
	struct boot_facts f = good();

	expect(VERDICT_PASSED, NULL, NULL, &f, "a good image passes without a reason");
	f.nouveau_loadable_by_name = FACT_YES;
	expect(VERDICT_PASSED, NULL, NULL, &f, "that a person can load nouveau by name is no flaw");
	f.bar_assigned = FACT_NO;
	f.bar_message = bar_message;
	expect(VERDICT_FAILED, "failed to assign", NULL, &f,
	       "an unassigned BAR fails, in the kernel's words");
	f = good();
	f.nouveau_loaded = FACT_YES;
	expect(VERDICT_FAILED, "is loaded", NULL, &f, "loaded nouveau fails");
	f = good();
	f.nouveau_loadable_by_alias = FACT_YES;
	expect(VERDICT_FAILED, "udev would load", NULL, &f, "nouveau loadable by alias fails");
	f = good();
	f.card_probed = FACT_YES;
	f.card_reads = 7;
	expect(VERDICT_FAILED, "7 reads", NULL, &f,
	       "reads of the card fail, whatever modprobe says");
}

static void test_unseen(void)
{
	struct boot_facts f = good();

	f.bar_assigned = FACT_UNSEEN;
	expect(VERDICT_FAILED, "could not be seen", NULL, &f, "an unseen BAR does not pass");
	f = good();
	f.nouveau_loadable_by_alias = FACT_UNSEEN;
	expect(VERDICT_PASSED, NULL, NULL, &f, "no reads of the card stand in for the alias");
	f.card_probed = FACT_UNSEEN;
	expect(VERDICT_FAILED, "neither by its alias nor by reads", NULL, &f,
	       "nouveau seen by neither sight does not pass");
	f = good();
	f.card_probed = FACT_UNSEEN;
	expect(VERDICT_PASSED, NULL, NULL, &f, "the alias stands in for reads of the card");
	f = good();
	f.cmdline = NULL;
	expect(VERDICT_FAILED, "command line could not be seen", NULL, &f,
	       "parameters that could not be seen do not pass");
	f = (struct boot_facts){0};
	expect(VERDICT_FAILED, "no kernel spoke", NULL, &f, "nothing seen at all does not pass");
}

static void test_boot(void)
{
	struct boot_facts f = good();

	f.booted = FACT_NO;
	expect(VERDICT_FAILED, "did not boot to its end", NULL, &f, "half a boot does not pass");
	f.booted = FACT_UNSEEN;
	f.early_only = true;
	expect(VERDICT_PASSED, NULL, NULL, &f, "an end that nobody asked for is not missed");
	f = good();
	f.disk_ok = FACT_NO;
	expect(VERDICT_FAILED, "root disk", NULL, &f, "a disk that does not work fails");
	f = good();
	f.nic_ok = FACT_NO;
	expect(VERDICT_FAILED, "network", NULL, &f, "a NIC that does not work fails");
}

static void test_params(void)
{
	static char cancelled[] = "pci=nocrs pci=realloc pci=realloc=off";
	static char joined[] = "pci=nocrs,realloc=on";
	struct boot_facts f = good();

	f.cmdline = cancelled;
	expect(VERDICT_FAILED, "'pci=realloc'", NULL, &f,
	       "a parameter that a later one cancels is not held");
	f.cmdline = joined;
	expect(VERDICT_PASSED, NULL, NULL, &f, "a parameter held in other words is held");
}

static void test_pair(void)
{
	struct boot_facts base = bad_base(), built = good();

	expect(VERDICT_PASSED, NULL, &base, &built, "base fails, built passes: passed");
	base.bar_assigned = FACT_YES;
	base.bar_address = bar_address;
	expect(VERDICT_VOID, "proves nothing", &base, &built, "a base whose BAR is assigned voids");
	built.bar_assigned = FACT_NO;
	expect(VERDICT_FAILED, "control", &base, &built,
	       "a built image that fails is failed, even where the control is void too");
	built = good();
	base = bad_base();
	base.bar_assigned = FACT_UNSEEN;
	expect(VERDICT_VOID, "could not be seen", &base, &built,
	       "a base whose BAR is unseen voids");
	base = bad_base();
	base.window = built.window = WINDOW_REACHABLE;
	base.bar_assigned = FACT_YES;
	base.nouveau_loaded = base.nouveau_loadable_by_alias = base.card_probed = FACT_NO;
	expect(VERDICT_PASSED, NULL, &base, &built, "in a reachable window the base need not fail");
}

static void test_pair_nouveau(void)
{
	struct boot_facts base = bad_base(), built = good();

	base.nouveau_loaded = base.nouveau_loadable_by_alias = base.card_probed = FACT_NO;
	expect(VERDICT_VOID, "leaves the card alone in the base too", &base, &built,
	       "a base that blocks nouveau voids");
	base.nouveau_exists = FACT_NO;
	expect(VERDICT_PASSED, "no nouveau and no nova", &base, &built,
	       "a kernel without nouveau voids that fact alone, and is told");
	base = bad_base();
	base.nouveau_loaded = base.nouveau_exists = FACT_UNSEEN;
	base.nouveau_loadable_by_alias = base.card_probed = FACT_UNSEEN;
	expect(VERDICT_VOID, "whether nouveau claims the card", &base, &built,
	       "a base where nouveau is unseen voids");
	base.card_probed = FACT_YES;
	expect(VERDICT_PASSED, NULL, &base, &built,
	       "reads of the card by the base are proof enough");
}

static void test_units(void)
{
	struct boot_facts base = bad_base(), built = good();

	strv_add(&built.failed_units, "snapd.service");
	expect(VERDICT_FAILED, "'snapd.service'", NULL, &built, "alone, a failed unit counts");
	expect(VERDICT_FAILED, "does not in the base", &base, &built,
	       "a unit that fails in the built image only counts");
	strv_add(&base.failed_units, "snapd.service");
	expect(VERDICT_PASSED, NULL, &base, &built, "a unit that fails in the base too does not");
	strv_free(&base.failed_units);
	base.booted = FACT_UNSEEN;
	expect(VERDICT_FAILED, "no base was booted to its end", &base, &built,
	       "a base that was not run to its end excuses nothing");
	strv_free(&built.failed_units);
}

/* --- The driver --- */

static char exit_0[] = "0", exit_1[] = "1";
static char no_device[] = "modprobe: ERROR: could not insert 'nvidia_current': No such device";
static char kernel[] = "6.1.0-57-amd64";
static char vermagic[] = "6.1.0-57-amd64 SMP preempt mod_unload modversions ";
static char smi_no_driver[] = "exit code 9: NVIDIA-SMI has failed because it couldn't communicate "
			      "with the NVIDIA driver.";

/* As the real driver ends where the card does not answer; its reads are seen too. */
static struct boot_facts driver_without_card(void)
{
	struct boot_facts f = good();

	f.kernel = kernel;
	f.card_probed = FACT_YES;
	f.card_reads = 24;
	f.driver = (struct boot_driver){.asked = true,
	                                .loaded = FACT_NO,
	                                .no_card = FACT_YES,
	                                .exit_code = exit_1,
	                                .message = no_device,
	                                .vermagic = vermagic,
	                                .smi = smi_no_driver};
	strv_add(&f.driver.kernel_lines,
	         "[   19.4] NVRM: The NVIDIA probe routine failed for 1 device(s).");
	strv_add(&f.driver.kernel_lines,
	         "[   19.4] NVRM: None of the NVIDIA devices were initialized.");
	return f;
}

static void free_lists(struct boot_facts *f)
{
	strv_free(&f->driver.kernel_lines);
	strv_free(&f->driver.unit_lines);
	strv_free(&f->failed_units);
}

static void test_driver(void)
{
	struct boot_facts f = driver_without_card();

	expect(VERDICT_PASSED, NULL, NULL, &f,
	       "a driver that stops for lack of a card passes, and its reads of the card are its");
	f.driver.loaded = FACT_YES;
	f.driver.exit_code = exit_0;
	f.driver.message = NULL;
	f.driver.no_card = FACT_NO;
	expect(VERDICT_PASSED, NULL, NULL, &f, "so does one that is loaded");
	f.driver.loaded = FACT_NO;
	expect(VERDICT_FAILED, "no such module is loaded", NULL, &f,
	       "a modprobe that does nothing and succeeds is not believed");
	free_lists(&f);
	f = good();
	f.driver = (struct boot_driver){.asked = true};
	expect(VERDICT_FAILED, "whether the NVIDIA driver loads could not be seen", NULL, &f,
	       "a driver that nobody tried does not pass");
	f = driver_without_card();
	f.driver.exit_code = f.driver.message = NULL;
	expect(VERDICT_PASSED, NULL, NULL, &f,
	       "the kernel's lines on the console stand in for the guest's word");
	free_lists(&f);
}

/* Each stops the driver for another reason than the card, whatever else the kernel said. */
static void test_driver_stopped(void)
{
	static const struct {
		const char *message, *line, *reason;
	} cases[] = {
		{"could not insert 'nvidia_current': Exec format error",
	         "nvidia: version magic '6.1.0-56-amd64 SMP' should be '6.1.0-57-amd64 SMP'",
	         "not made for this kernel"},
		{"could not insert 'nvidia': Invalid module format", NULL,
	         "not made for this kernel"},
		{"could not insert 'nvidia': Unknown symbol in module, or unknown parameter",
	         "nvidia: Unknown symbol drm_open (err -2)", "needs what this kernel does not"},
		{"could not insert 'nvidia': Key was rejected by service",
	         "Loading of module with unavailable key is rejected", "signed by a key"},
		{"FATAL: Module nvidia not found in directory /lib/modules/6.1.0-57-amd64", NULL,
	         "no such module for this kernel"},
		{"Error running install command '/bin/false' for module nvidia: retcode 1", NULL,
	         "own modprobe configuration forbids"},
		{"could not insert 'nvidia_current': Operation not permitted",
	         "Module nvidia is blacklisted", "own kernel parameters forbid"},
		{"could not insert 'nvidia_current': Something new", NULL, "Something new"},
		{"", NULL, "not for lack of a card"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct boot_facts f = driver_without_card();

		f.driver.message = str_copy(cases[i].message);
		if (cases[i].line)
			strv_add(&f.driver.kernel_lines, cases[i].line);
		expect(VERDICT_FAILED, cases[i].reason, NULL, &f, cases[i].message);
		expect(VERDICT_FAILED, "that it was NVIDIA's could not be seen", NULL, &f,
		       "and reads of the card are not put down to it");
		free(f.driver.message);
		free_lists(&f);
	}
}

static void test_driver_and_others(void)
{
	static char other_vermagic[] = "6.1.0-5 SMP preempt", close_vermagic[] = "6.1.0-57-amd64x";
	static char mismatch[] = "exit code 18: Failed to initialize NVML: Driver/library version "
				 "mismatch";
	struct boot_facts f = driver_without_card();

	f.nouveau_loaded = FACT_YES;
	expect(VERDICT_FAILED, "nouveau or nova is loaded", NULL, &f,
	       "nouveau beside the driver fails");
	f.nouveau_loaded = FACT_NO;
	f.nouveau_loadable_by_alias = FACT_YES;
	expect(VERDICT_FAILED, "udev would load", NULL, &f, "so does nouveau that udev would load");
	f.nouveau_loadable_by_alias = FACT_UNSEEN;
	expect(VERDICT_FAILED, "could not be seen", NULL, &f,
	       "reads are nvidia's only where nouveau is seen to stay away");
	free_lists(&f);
	f = driver_without_card();
	strv_add(&f.driver.kernel_lines,
	         "NVRM: loaded and obtained ownership of the NVIDIA device");
	expect(VERDICT_FAILED, "another driver has the card", NULL, &f,
	       "a card that another driver has is no lack of one");
	free_lists(&f);
	f = driver_without_card();
	f.driver.vermagic = other_vermagic;
	expect(VERDICT_FAILED, "for kernel '6.1.0-5 SMP", NULL, &f,
	       "a module of another kernel fails");
	f.driver.vermagic = close_vermagic;
	expect(VERDICT_FAILED, "for kernel", NULL, &f, "a longer name is another kernel's");
	free_lists(&f);
	f = driver_without_card();
	f.driver.smi = mismatch;
	expect(VERDICT_FAILED, "not of its module's version", NULL, &f,
	       "libraries of another version fail");
	free_lists(&f);
}

static void test_driver_units(void)
{
	struct boot_facts base = bad_base(), f = driver_without_card();

	strv_add(&f.failed_units, "nvidia-persistenced.service");
	strv_add(&f.driver.unit_lines, "nvidia-persistenced.service: Failed to query NVIDIA "
	                               "devices. Please ensure that the NVIDIA device files exist");
	expect(VERDICT_PASSED, "for lack of a card", NULL, &f,
	       "a unit of NVIDIA's that fails for lack of a card is told, not held against it");
	expect(VERDICT_PASSED, "for lack of a card", &base, &f, "beside a base too");
	strv_add(&f.failed_units, "ssh.service");
	expect(VERDICT_FAILED, "'ssh.service'", &base, &f, "another unit counts as ever");
	strv_free(&f.failed_units);
	strv_add(&f.failed_units, "nvidia-persistenced.service");
	strv_free(&f.driver.unit_lines);
	strv_add(&f.driver.unit_lines, "nvidia-persistenced.service: error while loading shared "
	                               "libraries: libnvidia-cfg.so.1");
	strv_add(&f.driver.unit_lines, "other.service: Failed to query NVIDIA devices");
	expect(VERDICT_FAILED, "'nvidia-persistenced.service'", NULL, &f,
	       "one that fails for another reason counts, whatever others say");
	strv_free(&f.driver.unit_lines);
	strv_add(&f.driver.unit_lines, "nvidia-persistenced.service: Failed to query NVIDIA "
	                               "devices.");
	f.driver.no_card = FACT_NO;
	expect(VERDICT_FAILED, "'nvidia-persistenced.service'", NULL, &f,
	       "without the driver's word for the lack of a card there is no excuse");
	free_lists(&f);
	strv_add(&f.failed_units, "nvidia-persistenced.service");
	f.driver = (struct boot_driver){0};
	expect(VERDICT_FAILED, "'nvidia-persistenced.service'", NULL, &f,
	       "nor where no driver was asked for");
	strv_free(&f.failed_units);
}

/* By name alone none is excused: the words are those that users of each have reported. */
static void test_each_unit(void)
{
	static const struct {
		const char *unit, *lack, *other;
	} units[] = {
		{"nvidia-powerd.service", "No matching GPU found",
	         "ERROR! NVIDIA kernel module version mismatch"},
		{"nvidia-fabricmanager.service",
	         "request to query NVSwitch device information from NVSwitch driver failed with "
	         "error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]",
	         "fabric manager NVIDIA GPU driver interface version 535.1 don't match with driver "
	         "version 535.2"},
		{"nvidia-cdi-refresh.service",
	         "level=error msg=\"failed to generate CDI spec: failed to create device CDI specs: "
	         "failed to initialize NVML: Driver Not Loaded\"",
	         "level=error msg=\"failed to generate CDI spec: failed to create device CDI specs: "
	         "failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND\""},
	};

	for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++) {
		CLEANUP_FREE char *none =
			str_format("%s counts where it said nothing", units[i].unit);
		CLEANUP_FREE char *other =
			str_format("%s counts where it is not the card", units[i].unit);
		CLEANUP_FREE char *lack =
			str_format("%s is excused where it says so itself", units[i].unit);
		struct boot_facts f = driver_without_card();

		strv_add(&f.failed_units, units[i].unit);
		expect(VERDICT_FAILED, units[i].unit, NULL, &f, none);
		strv_addf(&f.driver.unit_lines, "%s: %s", units[i].unit, units[i].other);
		expect(VERDICT_FAILED, units[i].unit, NULL, &f, other);
		strv_addf(&f.driver.unit_lines, "%s: %s", units[i].unit, units[i].lack);
		expect(VERDICT_PASSED, "for lack of a card", NULL, &f, lack);
		free_lists(&f);
	}
}

/* It has modules of others to load too. */
static void test_modules_load(void)
{
	struct boot_facts f = driver_without_card();

	strv_add(&f.failed_units, "systemd-modules-load.service");
	expect(VERDICT_FAILED, "'systemd-modules-load.service'", NULL, &f,
	       "without its own word systemd-modules-load is not excused");
	strv_add(&f.driver.unit_lines, "systemd-modules-load.service: Inserted module 'loop'");
	strv_add(&f.driver.unit_lines, "systemd-modules-load.service: Failed to insert module "
	                               "'nvidia_drm': Invalid argument");
	expect(VERDICT_FAILED, "'systemd-modules-load.service'", NULL, &f,
	       "nor where it does not say that the card is missing");
	strv_add(&f.driver.unit_lines, "systemd-modules-load.service: modprobe: ERROR: could not "
	                               "insert 'nvidia_current': No such device");
	expect(VERDICT_PASSED, "for lack of a card", NULL, &f,
	       "it is, where the driver's modules are all that it could not load");
	strv_add(&f.driver.unit_lines,
	         "systemd-modules-load.service: Failed to find module 'overlayed'");
	expect(VERDICT_FAILED, "'systemd-modules-load.service'", NULL, &f,
	       "and is not, where there is another");
	strv_free(&f.driver.unit_lines);
	strv_add(&f.driver.unit_lines, "systemd-modules-load.service: Failed to insert module "
	                               "'nvidia_drm': Exec format error");
	expect(VERDICT_FAILED, "'systemd-modules-load.service'", NULL, &f,
	       "nor where it is not the card");
	free_lists(&f);
}

int main(void)
{
	test_alone();
	test_unseen();
	test_boot();
	test_params();
	test_pair();
	test_pair_nouveau();
	test_units();
	test_driver();
	test_driver_stopped();
	test_driver_and_others();
	test_driver_units();
	test_each_unit();
	test_modules_load();
	check_str(verdict_name(VERDICT_VOID), "void", "a verdict has a name");
	return tap_done();
}
