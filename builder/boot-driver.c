/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the boot test makes of a baked NVIDIA driver. Nowhere is a card that answers, so the module
 * is not expected to stay: it must be found, fit this kernel, be allowed to run, and stop for
 * nothing but the card. Only the driver's own words for that are taken; whatever else stops it
 * counts against the image.
 */
#include <stdlib.h>
#include <string.h>

#include "boot-internal.h"

#define TEXT_MAX_BYTES 400
#define LISTED_MAX     40

/*
 * What nvidia.ko prints before it fails with "No such device". Seen with 535: "not supported by
 * the", "is invalid", "probe routine failed", "None of the"; the others are of other states and
 * branches.
 */
static const char *const no_card_marks[] = {
	"NVRM: No NVIDIA GPU found",
	"NVRM: No NVIDIA graphics adapter found",
	"NVRM: No NVIDIA devices probed",
	"NVRM: installed in this system is not supported by the",
	"NVRM: None of the NVIDIA devices were initialized",
	"NVRM: None of the NVIDIA graphics adapters were initialized",
	"NVRM: The NVIDIA probe routine failed",
	"RmInitAdapter failed",
	"fallen off the bus",
	"PCI I/O region assigned to your NVIDIA device is invalid",
	NULL,
};

/* The same lines come where another driver has the card: then these do too. */
static const char *const taken_marks[] = {"obtained ownership of", NULL};

/*
 * Units that fail for lack of a card, and what they say then. Seen with 535: persistenced's; those
 * of the others are from reports of their users. A library that is missing, or one of another
 * version, is said in other words.
 */
static const struct {
	const char *unit;
	const char *marks[4];
} card_units[] = {
	{"nvidia-persistenced.service", {"Failed to query NVIDIA devices"}},
	{"nvidia-powerd.service",
         {"No matching GPU found", "Failed to initialize RM Client",
          "Allocate Root client failed"}},
	{"nvidia-fabricmanager.service",
         {"request to query NVSwitch device information from NVSwitch driver failed"}},
	{"nvidia-cdi-refresh.service", {"failed to initialize NVML: Driver Not Loaded"}},
};

/* Debian's driver has its modules loaded by this one, which others use too. */
#define MODULES_LOAD "systemd-modules-load.service"

struct cause {
	const char *mark;
	const char *text;
};

/* What modprobe and the kernel say where it is not the card. */
static const struct cause causes[] = {
	{"not found", "there is no such module for this kernel"},
	{"Exec format error", "the module is not made for this kernel"},
	{"nvalid module format", "the module is not made for this kernel"},
	{"version magic", "the module is not made for this kernel"},
	{"Unknown symbol", "the module needs what this kernel does not have"},
	{"module loading is restricted",
         "Secure Boot has locked this kernel down, which then takes only modules that are signed by a "
         "key it knows"},
	{"unavailable key",
         "this kernel takes only modules that are signed by a key it knows, and this one is signed by "
         "another"},
	{"module is rejected", "this kernel takes only modules that are signed by a key it knows"},
	{"Key was rejected", "this kernel takes only modules that are signed by a key it knows"},
	{"Required key", "this kernel takes only modules that are signed"},
	{"install command", "the image's own modprobe configuration forbids it"},
	{"blacklisted", "the image's own kernel parameters forbid it"},
	{"not permitted", "the image's own kernel parameters, or a lockdown, forbid it"},
	{"annot allocate memory", "the guest of the boot test has too little memory for it"},
};

/* The first line that has one; NULL: none has. */
static const char *has_one_of(const struct strv *lines, const char *const *marks)
{
	for (size_t i = 0; i < lines->count; i++)
		if (line_has_one_of(lines->items[i], marks))
			return lines->items[i];
	return NULL;
}

/* --- From the guest's words --- */

/* Of several lines one: reports have one line for each point. */
static char *text_of(const struct console *c, const char *key)
{
	CLEANUP_FREE char *raw = frames_value(console_frames(c), FRAME_LATE, key);
	CLEANUP_STRV struct strv lines = {0};
	CLEANUP_FREE char *line = NULL;

	if (!raw)
		return NULL;
	lines = strv_split(raw, "\r\n");
	line = strv_join(&lines, "; ");
	return str_printable(str_trim(line), TEXT_MAX_BYTES);
}

/* NULL where the guest told nothing, or told that there is nothing. */
static char *some_text_of(const struct console *c, const char *key)
{
	char *text = text_of(c, key);

	if (text && *text)
		return text;
	free(text);
	return NULL;
}

static void lines_of(const struct console *c, const char *key, struct strv *ret)
{
	CLEANUP_FREE char *text = frames_value(console_frames(c), FRAME_LATE, key);
	CLEANUP_STRV struct strv lines = {0};

	if (!text)
		return;
	lines = strv_split(text, "\r\n");
	for (size_t i = 0; i < lines.count && i < LISTED_MAX; i++)
		strv_take(ret, str_printable(lines.items[i], TEXT_MAX_BYTES));
}

/* nvidia.ko is "nvidia" under every file name that a distribution gave it. */
static enum fact is_loaded(const struct boot_driver *d)
{
	if (!d->exit_code)
		return FACT_UNSEEN;
	return strv_has(&d->modules, "nvidia") ? FACT_YES : FACT_NO;
}

static enum fact finds_no_card(const struct boot_driver *d)
{
	if (has_one_of(&d->kernel_lines, no_card_marks))
		return FACT_YES;
	return d->exit_code ? FACT_NO : FACT_UNSEEN;
}

void boot_driver_gather(const struct console *c, struct boot_driver *ret)
{
	struct boot_driver d = {.asked = true};

	d.exit_code = some_text_of(c, "driver_exit");
	d.message = text_of(c, "driver_message");
	d.module = some_text_of(c, "driver_module");
	d.version = some_text_of(c, "driver_version");
	d.vermagic = some_text_of(c, "driver_vermagic");
	d.smi = some_text_of(c, "driver_smi");
	lines_of(c, "driver_modules", &d.modules);
	lines_of(c, "driver_devices", &d.devices);
	lines_of(c, "driver_kernel", &d.kernel_lines);
	lines_of(c, "driver_units", &d.unit_lines);
	if (!d.exit_code)
		strv_add_all(&d.kernel_lines, &console_seen(c)->nvidia);
	d.loaded = is_loaded(&d);
	d.no_card = finds_no_card(&d);
	*ret = d;
}

void boot_driver_free(struct boot_driver *d)
{
	free(d->exit_code);
	free(d->message);
	free(d->module);
	free(d->version);
	free(d->vermagic);
	free(d->smi);
	strv_free(&d->modules);
	strv_free(&d->devices);
	strv_free(&d->kernel_lines);
	strv_free(&d->unit_lines);
	*d = (struct boot_driver){0};
}

/* --- Judged --- */

/* Without the guest's own word the kernel's lines must do: they are the module's. */
static bool stopped_by_card(const struct boot_driver *d)
{
	if (d->no_card != FACT_YES || has_one_of(&d->kernel_lines, taken_marks))
		return false;
	return !d->exit_code || (d->message && strstr(d->message, "No such device"));
}

bool boot_driver_runs(const struct boot_driver *d)
{
	return d->asked && (d->loaded == FACT_YES || stopped_by_card(d));
}

static bool is_line_of(const char *line, const char *unit)
{
	return str_starts(line, unit) && str_starts(line + strlen(unit), ": ");
}

/* marks: NULL ends them. */
static bool unit_said(const struct boot_driver *d, const char *unit, const char *const *marks)
{
	for (size_t i = 0; i < d->unit_lines.count; i++) {
		const char *line = d->unit_lines.items[i];

		if (is_line_of(line, unit) && line_has_one_of(line, marks))
			return true;
	}
	return false;
}

/*
 * "modprobe: ERROR: could not insert 'nvidia_current': No such device", which a modprobe around it
 * tells as 'nvidia': "Invalid argument", and systemd as "Failed to insert module 'nvidia_drm':
 * ...".
 */
static bool is_lack_of_card(const char *line)
{
	return strstr(line, "'nvidia") &&
	       (strstr(line, "No such device") || strstr(line, "Invalid argument"));
}

/* Whether the driver's modules are all that it could not load, and it was for lack of a card. */
static bool modules_load_excused(const struct boot_driver *d)
{
	static const char *const no_device[] = {"No such device", NULL};

	for (size_t i = 0; i < d->unit_lines.count; i++) {
		const char *line = d->unit_lines.items[i];

		if (is_line_of(line, MODULES_LOAD) &&
		    (strstr(line, "Failed to ") || strstr(line, "could not insert")) &&
		    !is_lack_of_card(line))
			return false;
	}
	return unit_said(d, MODULES_LOAD, no_device);
}

bool boot_driver_excuses(const struct boot_driver *d, const char *unit)
{
	bool no_card = d->no_card == FACT_YES || (d->smi && strstr(d->smi, "No devices"));

	if (!boot_driver_runs(d) || !no_card)
		return false;
	if (str_equal(unit, MODULES_LOAD))
		return modules_load_excused(d);
	for (size_t i = 0; i < sizeof(card_units) / sizeof(*card_units); i++)
		if (str_equal(unit, card_units[i].unit))
			return unit_said(d, unit, card_units[i].marks);
	return false;
}

static const char *cause_of(const struct boot_driver *d)
{
	for (size_t i = 0; i < sizeof(causes) / sizeof(*causes); i++) {
		const char *const marks[] = {causes[i].mark, NULL};

		if ((d->message && strstr(d->message, causes[i].mark)) ||
		    has_one_of(&d->kernel_lines, marks))
			return causes[i].text;
	}
	return NULL;
}

static void add_failure(const struct boot_driver *d, struct strv *reasons)
{
	const char *cause = cause_of(d);
	size_t lines = d->kernel_lines.count;
	CLEANUP_FREE char *kernel = lines ? str_format("; the kernel's last line about it is '%s'",
	                                               d->kernel_lines.items[lines - 1])
	                                  : str_copy("");

	strv_addf(
		reasons,
		"the NVIDIA driver does not load, and not for lack of a card%s%s: modprobe's exit "
		"code is %s, '%s'%s",
		cause ? ": " : "", cause ? cause : "", d->exit_code, d->message ? d->message : "",
		kernel);
}

static void judge_load(const struct boot_driver *d, struct strv *reasons)
{
	const char *taken = has_one_of(&d->kernel_lines, taken_marks);

	if (boot_driver_runs(d))
		return;
	if (!d->exit_code)
		strv_add(reasons, "whether the NVIDIA driver loads could not be seen");
	else if (taken)
		strv_addf(reasons, "another driver has the card before the NVIDIA driver: %s",
		          taken);
	else if (str_equal(d->exit_code, "0"))
		strv_add(reasons, "'modprobe nvidia' says that all is well, but no such module is "
		                  "loaded");
	else
		add_failure(d, reasons);
}

/* The first word of vermagic is the kernel that the module was compiled for. */
static void judge_vermagic(const struct boot_driver *d, const char *kernel, struct strv *reasons)
{
	size_t length = kernel ? strlen(kernel) : 0;

	if (!d->vermagic || !kernel)
		return;
	if (str_starts(d->vermagic, kernel) && (!d->vermagic[length] || d->vermagic[length] == ' '))
		return;
	strv_addf(reasons, "the NVIDIA module '%s' is for kernel '%s', and '%s' runs",
	          d->module ? d->module : "nvidia", d->vermagic, kernel);
}

/* One in the kernel and another beside it: "Failed to initialize NVML: Driver/library version
 * mismatch", "NVRM: API mismatch: the client has the version ...". */
static void judge_versions(const struct boot_driver *d, struct strv *reasons)
{
	static const char *const marks[] = {"NVRM: API mismatch", NULL};
	const char *line = has_one_of(&d->kernel_lines, marks);

	if (d->smi && strstr(d->smi, "version mismatch"))
		line = d->smi;
	if (line)
		strv_addf(reasons,
		          "the NVIDIA driver's libraries are not of its module's version: %s",
		          line);
}

void boot_driver_judge(const struct boot_driver *d, const char *kernel, struct strv *reasons)
{
	if (!d->asked)
		return;
	judge_load(d, reasons);
	judge_vermagic(d, kernel, reasons);
	judge_versions(d, reasons);
}
