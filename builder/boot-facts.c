/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the console to facts. The guest's own frames come first, the kernel's lines stand in
 * where no frame came; what neither tells is unseen, with the reason.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "boot-internal.h"
#include "cmdline.h"

#define TEXT_MAX_BYTES 400
#define LISTED_MAX     64
#define CMDLINE_MAX    4096
#define RESOURCE_UNSET 0x20000000U /* IORESOURCE_UNSET: sysfs shows a range that is none */

/* Drivers of the kernel's own that claim an NVIDIA card; nvidia itself is boot-driver.c's. */
static const char *const unwanted[] = {"nouveau", "nova_core", "nova_drm",
                                       "nova",    "nvidiafb",  "rivafb"};

/* What the facts are made from. */
struct source {
	const struct frames *frames;
	const struct console *console;
	const struct console_seen *seen;
	const struct boot_end *end;
	bool early, late;
	char *why_early; /* why a fact of the early frame is missing */
	char *why_late;
};

static void source_init(struct source *s, const struct console *c, const struct boot_end *end)
{
	*s = (struct source){
		.frames = console_frames(c), .console = c, .seen = console_seen(c), .end = end};
	s->early = frames_whole(s->frames, FRAME_EARLY);
	s->late = frames_whole(s->frames, FRAME_LATE);
	if (!s->seen->kernel)
		s->why_early = str_format("no kernel spoke on the serial console (%s)", end->how);
	else
		s->why_early = str_format(
			"the guest did not run our seed: no cloud-init, or it does not look for a "
			"NoCloud volume, or it did not get that far (%s)",
			end->how);
	if (end->early_only && s->early)
		s->why_late = str_copy("not asked for: the run ends with the early facts");
	else if (s->early)
		s->why_late = str_format("the guest's late facts did not come (%s)", end->how);
	else
		s->why_late = str_copy(s->why_early);
}

static void source_free(struct source *s)
{
	free(s->why_early);
	free(s->why_late);
}

/* The newest word on a fact: the late frame's, else the early one's. */
static char *value(const struct source *s, const char *key)
{
	char *text = frames_value(s->frames, FRAME_LATE, key);

	return text ? text : frames_value(s->frames, FRAME_EARLY, key);
}

static char *printable_value(const struct source *s, const char *key, size_t max)
{
	CLEANUP_FREE char *raw = value(s, key);

	return raw ? str_printable(str_trim(raw), max) : NULL;
}

static bool is_unwanted(const char *module)
{
	for (size_t i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++)
		if (str_equal(module, unwanted[i]))
			return true;
	return false;
}

/* The unwanted modules that a list from the guest names, '-' turned to '_'. */
static struct strv unwanted_in(const char *text)
{
	CLEANUP_STRV struct strv words = strv_split(text, " \t\r\n");
	struct strv found = {0};

	for (size_t i = 0; i < words.count; i++) {
		for (char *p = words.items[i]; *p; p++)
			if (*p == '-')
				*p = '_';
		if (is_unwanted(words.items[i]) && !strv_has(&found, words.items[i]))
			strv_add(&found, words.items[i]);
	}
	return found;
}

/* Whether the fact 'key' names an unwanted module that is not in 'refused' (may be NULL). */
static enum fact names_unwanted(const struct source *s, const char *key, const struct strv *refused)
{
	CLEANUP_FREE char *text = value(s, key);
	CLEANUP_STRV struct strv found = {0};

	if (!text)
		return FACT_UNSEEN;
	found = unwanted_in(text);
	for (size_t i = 0; i < found.count; i++)
		if (!refused || !strv_has(refused, found.items[i]))
			return FACT_YES;
	return FACT_NO;
}

/* In either frame: a module may come late, and one that was unloaded has been there. */
static enum fact loaded(const struct source *s)
{
	CLEANUP_FREE char *early = frames_value(s->frames, FRAME_EARLY, "modules");
	CLEANUP_STRV struct strv found = {0};

	if (s->seen->nouveau)
		return FACT_YES;
	if (early)
		found = unwanted_in(early);
	return found.count ? FACT_YES : names_unwanted(s, "modules", NULL);
}

/* The kernel refuses these by itself, whatever modprobe would try. */
static struct strv refused_by_kernel(const char *cmdline)
{
	CLEANUP_STRV struct strv tokens = {0};

	if (!cmdline)
		return (struct strv){0};
	tokens = cmdline_split(cmdline);
	return cmdline_module_blacklist(&tokens);
}

static void module_facts(const struct source *s, struct boot_facts *f)
{
	CLEANUP_STRV struct strv refused = refused_by_kernel(f->cmdline);

	f->nouveau_loaded = loaded(s);
	f->nouveau_exists = names_unwanted(s, "exists", NULL);
	f->nouveau_loadable_by_alias = names_unwanted(s, "alias", &refused);
	f->nouveau_loadable_by_name = names_unwanted(s, "byname", &refused);
}

/*
 * No read means something only after udev has loaded what it wanted to: that is before our
 * early frame, and before a login prompt.
 */
static void card_facts(const struct source *s, struct boot_facts *f)
{
	if (!s->end->has_card) {
		strv_add(&f->unseen, "card_probed: this QEMU has no x-pci-proxy-dev, which carries "
		                     "the NVIDIA-like card");
		return;
	}
	f->card_reads = s->end->card.reads;
	/*
	 * Who read is told apart by the kernel's first lines. Without them (a quiet kernel) all
	 * reads are the system's: no firmware that we know reads BAR0 (fake-gpu.h).
	 */
	if (!s->seen->banner)
		f->card_reads += s->end->card.firmware_reads;
	if (f->card_reads)
		f->card_probed = FACT_YES;
	else if (s->early || s->late || s->seen->login)
		f->card_probed = FACT_NO;
	else
		strv_addf(&f->unseen,
		          "card_probed: not read so far, but drivers had no time to (%s)",
		          s->end->how);
}

/* "0000:00:02.0 0x0000000800000000 0x0000000fffffffff 0x000000000014220c", from sysfs. */
static bool bar_from_frame(const struct source *s, struct boot_facts *f)
{
	CLEANUP_FREE char *text = value(s, "bar");
	CLEANUP_STRV struct strv words = {0};
	uint64_t start, end, flags;

	if (!text)
		return false;
	words = strv_split(text, " \r\n");
	if (words.count < 4)
		return false;
	start = strtoull(words.items[1], NULL, 16);
	end = strtoull(words.items[2], NULL, 16);
	flags = strtoull(words.items[3], NULL, 16);
	if (flags & RESOURCE_UNSET || !console_range_good(s->console, start, end)) {
		f->bar_assigned = FACT_NO;
	} else {
		f->bar_assigned = FACT_YES;
		f->bar_address = str_format("0x%" PRIx64 "-0x%" PRIx64, start, end);
	}
	return true;
}

static void bar_facts(const struct source *s, struct boot_facts *f)
{
	const struct console_seen *seen = s->seen;

	if (seen->window_dropped)
		f->window_dropped = FACT_YES;
	else if (seen->banner)
		f->window_dropped = FACT_NO;
	f->bar_message = str_copy(seen->bar_message);
	if (bar_from_frame(s, f))
		return;
	f->bar_assigned = seen->bar_assigned;
	if (f->bar_assigned == FACT_YES)
		f->bar_address = str_copy(seen->bar_address);
}

static void disk_facts(const struct source *s, struct boot_facts *f)
{
	CLEANUP_FREE char *text = value(s, "disk");

	if (s->seen->disk_error)
		f->disk_ok = FACT_NO;
	else if (text)
		f->disk_ok = str_starts(text, "ok") ? FACT_YES : FACT_NO;
	else if (s->seen->login)
		f->disk_ok = FACT_YES; /* getty and what it needs were read from it */
}

static void nic_facts(const struct source *s, struct boot_facts *f)
{
	CLEANUP_FREE char *text = frames_value(s->frames, FRAME_LATE, "nic");

	if (text)
		f->nic_ok = *str_trim(text) ? FACT_YES : FACT_NO;
}

static void listed(const struct source *s, const char *key, struct strv *ret)
{
	CLEANUP_FREE char *text = frames_value(s->frames, FRAME_LATE, key);
	CLEANUP_STRV struct strv lines = {0};

	if (!text)
		return;
	lines = strv_split(text, "\r\n");
	for (size_t i = 0; i < lines.count && i < LISTED_MAX; i++)
		strv_take(ret, str_printable(lines.items[i], TEXT_MAX_BYTES));
}

static void boot_state(const struct source *s, struct boot_facts *f)
{
	f->kernel_started = s->seen->kernel ? FACT_YES : FACT_NO;
	f->serial_ok = s->seen->kernel ? FACT_YES : FACT_UNSEEN;
	f->userspace = s->early || s->late ? FACT_YES : FACT_UNSEEN;
	if (s->late)
		f->booted = FACT_YES;
	else if (s->early)
		f->booted = s->end->early_only ? FACT_UNSEEN : FACT_NO;
	else
		f->booted = s->seen->login ? FACT_YES : FACT_NO;
	if (s->seen->panic && !s->late)
		f->booted = FACT_NO;
}

/* With the last that a loader refused and went on from: no verdict, but maybe the cause. */
static char *ended(const struct source *s)
{
	const struct console_seen *seen = s->seen;

	if (s->end->secure_boot && seen->refusal && seen->refusal_goes_on && !seen->kernel)
		return str_format("%s; before that: %s", s->end->how, seen->refusal);
	return str_copy(s->end->how);
}

/* Of a guest that did not start by UEFI the frame says "none", and its kernel no word. */
static void secure_boot_facts(const struct source *s, struct boot_facts *f)
{
	CLEANUP_FREE char *text = printable_value(s, "secure_boot", TEXT_MAX_BYTES);

	f->secure_boot = s->seen->secure_boot;
	if (text && *text)
		f->secure_boot = str_equal(text, "on") ? FACT_YES : FACT_NO;
	f->lockdown = printable_value(s, "lockdown", TEXT_MAX_BYTES);
	if (s->end->secure_boot && !s->seen->refusal_goes_on)
		f->refusal = str_copy(s->seen->refusal);
}

static void unseen(struct boot_facts *f, const char *name, bool missing, const char *why)
{
	if (missing)
		strv_addf(&f->unseen, "%s: %s", name, why);
}

/* A whole frame that leaves a fact out: the guest lacks the tool for it. */
static const char *why(bool frame, const char *no_frame)
{
	return frame ? "the guest told its other facts, but not this one: it lacks the tool for it"
	             : no_frame;
}

static void list_unseen(const struct source *s, struct boot_facts *f)
{
	const char *early = why(s->early || s->late, s->why_early);
	const char *late = why(s->late, s->why_late);

	unseen(f, "secure_boot", s->end->secure_boot && f->secure_boot == FACT_UNSEEN,
	       s->early || s->late ? "the guest told its other facts, but not this one: it cannot "
	                             "read the firmware's variable SecureBoot"
	                           : s->why_early);
	unseen(f, "userspace", f->userspace == FACT_UNSEEN, s->why_early);
	unseen(f, "booted", f->booted == FACT_UNSEEN, s->why_late);
	unseen(f, "window_dropped", f->window_dropped == FACT_UNSEEN,
	       s->seen->kernel ? "the kernel's own lines did not come (quiet console?)"
	                       : s->why_early);
	unseen(f, "bar_assigned", f->bar_assigned == FACT_UNSEEN,
	       s->seen->kernel
	               ? "the kernel said nothing about the large BAR (quiet console?), and "
	                 "no frame came"
	               : s->why_early);
	unseen(f, "nouveau_loaded", f->nouveau_loaded == FACT_UNSEEN, early);
	unseen(f, "nouveau_exists", f->nouveau_exists == FACT_UNSEEN, early);
	unseen(f, "nouveau_loadable_by_alias", f->nouveau_loadable_by_alias == FACT_UNSEEN, early);
	unseen(f, "nouveau_loadable_by_name", f->nouveau_loadable_by_name == FACT_UNSEEN, early);
	unseen(f, "disk_ok", f->disk_ok == FACT_UNSEEN, early);
	unseen(f, "nic_ok", f->nic_ok == FACT_UNSEEN, late);
	unseen(f, "serial_ok", f->serial_ok == FACT_UNSEEN, s->why_early);
	unseen(f, "failed_units", !s->late, s->why_late);
	unseen(f, "driver", f->driver.asked && !f->driver.exit_code, late);
	unseen(f, "cmdline", !f->cmdline, s->why_early);
	unseen(f, "machine_id", !f->machine_id, early);
	unseen(f, "host_keys", !f->host_keys.count, late);
}

void boot_facts_gather(const struct console *c, const struct boot_end *end, struct boot_facts *ret)
{
	struct boot_facts f = {.early_only = end->early_only};
	struct source s;

	source_init(&s, c, end);
	f.ended = ended(&s);
	boot_state(&s, &f);
	f.cmdline = printable_value(&s, "cmdline", CMDLINE_MAX);
	if (!f.cmdline)
		f.cmdline = str_copy(s.seen->cmdline);
	f.kernel = printable_value(&s, "kernel", TEXT_MAX_BYTES);
	if (!f.kernel)
		f.kernel = str_copy(s.seen->kernel_version);
	f.machine_id = printable_value(&s, "machine_id", TEXT_MAX_BYTES);
	f.firmware_version = str_copy(s.seen->firmware_version);
	secure_boot_facts(&s, &f);
	bar_facts(&s, &f);
	module_facts(&s, &f);
	card_facts(&s, &f);
	disk_facts(&s, &f);
	nic_facts(&s, &f);
	listed(&s, "failed", &f.failed_units);
	listed(&s, "host_keys", &f.host_keys);
	if (end->driver)
		boot_driver_gather(c, &f.driver);
	list_unseen(&s, &f);
	source_free(&s);
	*ret = f;
}

void boot_facts_free(struct boot_facts *f)
{
	free(f->ended);
	free(f->lockdown);
	free(f->refusal);
	free(f->bar_address);
	free(f->bar_message);
	free(f->cmdline);
	free(f->machine_id);
	free(f->kernel);
	free(f->accelerator);
	free(f->firmware_version);
	strv_free(&f->failed_units);
	strv_free(&f->host_keys);
	strv_free(&f->unseen);
	boot_driver_free(&f->driver);
	*f = (struct boot_facts){0};
}
