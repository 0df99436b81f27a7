/* SPDX-License-Identifier: Apache-2.0 */
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

int main(void)
{
	test_alone();
	test_unseen();
	test_boot();
	test_params();
	test_pair();
	test_pair_nouveau();
	test_units();
	check_str(verdict_name(VERDICT_VOID), "void", "a verdict has a name");
	return tap_done();
}
