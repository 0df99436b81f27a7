/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verdicts. A fact that decides and was not seen counts against the image (or voids the
 * control): a test that looked away must not pass.
 */
#include "boot-internal.h"
#include "cmdline.h"

const char *verdict_name(enum verdict v)
{
	static const char *const names[] = {"passed", "failed", "void"};

	return names[v];
}

static const char *text_or(const char *text, const char *instead)
{
	return text ? text : instead;
}

/* What came of a chain that was stopped half-way would only hide the cause. */
static bool judge_refusal(const struct boot_facts *f, struct strv *reasons)
{
	if (!f->refusal || f->kernel_started == FACT_YES)
		return false;
	strv_addf(reasons, "Secure Boot stops the image's boot chain: %s", f->refusal);
	return true;
}

static void judge_boot(const struct boot_facts *f, struct strv *reasons)
{
	const char *ended = text_or(f->ended, "unknown end");

	if (f->kernel_started != FACT_YES)
		strv_addf(reasons, "no kernel spoke on the serial console (%s)", ended);
	else if (f->booted == FACT_NO)
		strv_addf(reasons, "the image did not boot to its end (%s)", ended);
}

static void judge_bar(const struct boot_facts *f, struct strv *reasons)
{
	if (f->bar_assigned == FACT_NO)
		strv_addf(reasons, "the large BAR is not assigned where the CPU reaches it: %s",
		          text_or(f->bar_message, "no word from the kernel"));
	if (f->bar_assigned == FACT_UNSEEN)
		strv_add(reasons, "whether the large BAR is assigned could not be seen");
}

/* A driver that ran reads the card too. Then a read tells nothing, where no other one was there. */
static bool reads_are_nvidias(const struct boot_facts *f)
{
	return boot_driver_runs(&f->driver) && f->nouveau_loaded == FACT_NO &&
	       f->nouveau_loadable_by_alias == FACT_NO;
}

/* Either sight is enough; each counts by itself. */
static void judge_nouveau(const struct boot_facts *f, struct strv *reasons)
{
	if (f->nouveau_loaded == FACT_YES)
		strv_add(reasons, "nouveau or nova is loaded");
	if (f->nouveau_loadable_by_alias == FACT_YES)
		strv_add(reasons, "udev would load nouveau or nova for an NVIDIA card");
	if (f->card_probed == FACT_YES && !reads_are_nvidias(f))
		strv_addf(reasons, "a driver touched the NVIDIA-like card (%llu reads of BAR0)%s",
		          (unsigned long long)f->card_reads,
		          f->driver.asked ? ", and that it was NVIDIA's could not be seen" : "");
	if (f->nouveau_loadable_by_alias == FACT_UNSEEN && f->card_probed == FACT_UNSEEN)
		strv_add(reasons, "whether nouveau or nova claims an NVIDIA card could not be "
		                  "seen, neither by its alias nor by reads of the card");
}

static void judge_params(const struct boot_facts *f, const struct strv *expect,
                         struct strv *reasons)
{
	CLEANUP_STRV struct strv tokens = {0};

	if (!expect || !expect->count)
		return;
	if (!f->cmdline) {
		strv_add(reasons, "the kernel's command line could not be seen");
		return;
	}
	tokens = cmdline_split(f->cmdline);
	for (size_t i = 0; i < expect->count; i++) {
		CLEANUP_FREE char *why = NULL;

		if (!cmdline_holds(&tokens, expect->items[i], &why))
			strv_addf(reasons,
			          "the running kernel's command line does not hold '%s': "
			          "%s",
			          expect->items[i], text_or(why, "it is not there"));
	}
}

static void judge_devices(const struct boot_facts *f, struct strv *reasons)
{
	if (f->disk_ok == FACT_NO)
		strv_add(reasons, "the root disk does not work beside the large BAR");
	if (f->nic_ok == FACT_NO)
		strv_add(reasons, "no network interface has an address");
}

/* base: NULL if there is none. notes: what is told, and changes no verdict. */
static void judge_units(const struct boot_facts *f, const struct boot_facts *base,
                        struct strv *reasons, struct strv *notes)
{
	bool base_seen = base && base->booted == FACT_YES && base->userspace == FACT_YES;

	for (size_t i = 0; i < f->failed_units.count; i++) {
		const char *unit = f->failed_units.items[i];

		if (base && strv_has(&base->failed_units, unit))
			continue;
		if (boot_driver_excuses(&f->driver, unit))
			strv_addf(notes,
			          "unit '%s' failed for lack of a card that answers, which is no "
			          "fault of the image",
			          unit);
		else if (base_seen)
			strv_addf(reasons, "unit '%s' failed, which it does not in the base", unit);
		else
			strv_addf(reasons,
			          "unit '%s' failed (no base was booted to its end to "
			          "compare with)",
			          unit);
	}
}

static enum verdict judge(const struct boot_facts *built, const struct boot_facts *base,
                          const struct strv *expect_params, struct strv *reasons)
{
	CLEANUP_STRV struct strv notes = {0};
	size_t before = reasons->count;
	enum verdict verdict;

	if (judge_refusal(built, reasons))
		return VERDICT_FAILED;
	judge_boot(built, reasons);
	judge_bar(built, reasons);
	judge_nouveau(built, reasons);
	boot_driver_judge(&built->driver, built->kernel, reasons);
	judge_params(built, expect_params, reasons);
	judge_devices(built, reasons);
	judge_units(built, base, reasons, &notes);
	verdict = reasons->count > before ? VERDICT_FAILED : VERDICT_PASSED;
	strv_add_all(reasons, &notes);
	return verdict;
}

enum verdict boot_judge(const struct boot_facts *built, const struct strv *expect_params,
                        struct strv *ret_reasons)
{
	enum verdict verdict = judge(built, NULL, expect_params, ret_reasons);

	if (verdict == VERDICT_PASSED && !secure_boot_shown(built, ret_reasons))
		return VERDICT_VOID;
	return verdict;
}

/* The base must not get a large BAR. */
static bool control_bar(const struct boot_facts *base, struct strv *reasons)
{
	if (base->bar_assigned == FACT_NO)
		return true;
	if (base->bar_assigned == FACT_YES)
		strv_addf(reasons,
		          "control: the base's large BAR is assigned too (%s), so this "
		          "test proves nothing",
		          text_or(base->bar_address, "address unknown"));
	else
		strv_addf(reasons,
		          "control: whether the base's large BAR is assigned could not be "
		          "seen (%s)",
		          text_or(base->ended, "unknown end"));
	return false;
}

/* The base must let nouveau have the card, if its kernel has it. */
static bool control_nouveau(const struct boot_facts *base, struct strv *reasons)
{
	if (base->nouveau_loaded == FACT_YES || base->nouveau_loadable_by_alias == FACT_YES ||
	    base->card_probed == FACT_YES)
		return true;
	if (base->nouveau_exists == FACT_NO) {
		strv_add(reasons, "control: the base's kernel has no nouveau and no nova, so that "
		                  "they stay away from the card proves nothing about the build");
		return true;
	}
	if (base->nouveau_loadable_by_alias == FACT_UNSEEN && base->card_probed == FACT_UNSEEN)
		strv_addf(reasons,
		          "control: whether nouveau claims the card in the base could not "
		          "be seen (%s)",
		          text_or(base->ended, "unknown end"));
	else
		strv_add(reasons, "control: nouveau leaves the card alone in the base too, so this "
		                  "test proves nothing");
	return false;
}

enum verdict boot_judge_pair(const struct boot_facts *base, const struct boot_facts *built,
                             const struct strv *expect_params, struct strv *ret_reasons)
{
	enum verdict verdict = judge(built, base, expect_params, ret_reasons);
	bool bar, nouveau;

	/* The firmware and its variables are the same for both: one that said so is enough. */
	if (verdict == VERDICT_PASSED && !secure_boot_shown(built, ret_reasons))
		verdict = VERDICT_VOID;
	if (base->window != WINDOW_UNREACHABLE)
		return verdict;
	bar = control_bar(base, ret_reasons);
	nouveau = control_nouveau(base, ret_reasons);
	if (verdict == VERDICT_PASSED && (!bar || !nouveau))
		return VERDICT_VOID;
	return verdict;
}
