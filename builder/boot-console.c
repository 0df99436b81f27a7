/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serial console of a guest, line by line. Kernel lines may stand behind other text (a
 * status line of systemd that had no newline yet), so they are looked for anywhere in a line.
 * A kernel that was told 'quiet' says next to nothing: then the frames and the login prompt
 * stand for it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "boot-internal.h"

#define LINE_MAX_BYTES   4096
#define TEXT_MAX_BYTES   400
#define NVIDIA_LINES_MAX 40
/* QEMU's pci-testdev: its BAR 2 is the large one. */
#define TESTDEV_MARK "[1b36:0005]"
#define TESTDEV_BAR  "BAR 2"
#define TESTDEV_REG  "reg 0x18:"

struct console {
	char line[LINE_MAX_BYTES];
	size_t length;
	struct console_seen seen;
	struct frames *frames;
	char *testdev; /* "0000:00:02.0" */
	uint64_t bar_bytes;
	unsigned phys_bits;
};

struct console *console_new(const char *nonce, uint64_t bar_bytes, unsigned phys_bits)
{
	struct console *c = mem_alloc(sizeof(*c));

	c->frames = frames_new(nonce);
	c->bar_bytes = bar_bytes;
	c->phys_bits = phys_bits;
	return c;
}

void console_free(struct console *c)
{
	if (!c)
		return;
	frames_free(c->frames);
	free(c->testdev);
	free(c->seen.bar_address);
	free(c->seen.bar_message);
	free(c->seen.panic_message);
	free(c->seen.disk_message);
	free(c->seen.kernel_version);
	free(c->seen.cmdline);
	free(c->seen.firmware_version);
	free(c->seen.refusal);
	strv_free(&c->seen.nvidia);
	free(c);
}

const struct console_seen *console_seen(const struct console *c)
{
	return &c->seen;
}

const struct frames *console_frames(const struct console *c)
{
	return c->frames;
}

bool console_range_good(const struct console *c, uint64_t start, uint64_t end)
{
	return start > 0 && end > start && end - start == c->bar_bytes - 1 &&
	       end < (UINT64_C(1) << c->phys_bits);
}

static void set_text(char **where, const char *text)
{
	free(*where);
	*where = str_printable(text, TEXT_MAX_BYTES);
}

static void enter(struct console *c, enum boot_phase phase)
{
	if (phase > c->seen.phase)
		c->seen.phase = phase;
}

static void kernel_runs(struct console *c, enum boot_phase phase)
{
	c->seen.kernel = true;
	enter(c, phase);
}

/* "[mem 0x800000000-0xfffffffff 64bit pref]": 0, or -1 where there is no such range. */
static int parse_range(const char *text, uint64_t *ret_start, uint64_t *ret_end)
{
	const char *at = strstr(text, "[mem 0x");
	char *next;

	if (!at)
		return -1;
	*ret_start = strtoull(at + strlen("[mem "), &next, 16);
	if (*next != '-')
		return -1;
	*ret_end = strtoull(next + 1, &next, 16);
	return 0;
}

/*
 * The kernel tells where it found the BAR, then whether it could keep it ("can't claim"), then
 * where it moved it, or that it could not. The last word counts. Wordings of 5.x to 7.x.
 */
static void testdev_line(struct console *c, const char *text)
{
	static const char *const bad[] = {"can't claim", "no space", "failed to assign",
	                                  "can't assign"};
	static const char *const passing[] = {"trying firmware assignment", "conflicts with",
	                                      "assigned to", "releasing"};
	struct console_seen *s = &c->seen;
	uint64_t start, end;

	if (!strstr(text, TESTDEV_BAR) && !strstr(text, TESTDEV_REG))
		return;
	for (size_t i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
		if (strstr(text, passing[i]))
			return;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (!strstr(text, bad[i]))
			continue;
		s->bar_assigned = FACT_NO;
		set_text(&s->bar_message, text);
		return;
	}
	if (parse_range(text, &start, &end) < 0)
		return;
	s->bar_assigned = console_range_good(c, start, end) ? FACT_YES : FACT_NO;
	set_text(&s->bar_message, text);
	free(s->bar_address);
	s->bar_address = str_format("0x%" PRIx64 "-0x%" PRIx64, start, end);
}

/* "pci 0000:00:02.0: [1b36:0005] type 00 …" names the device, later lines are about it. */
static void pci_line(struct console *c, const char *line)
{
	const char *at = strstr(line, "pci ");
	const char *colon = at ? strstr(at, ": ") : NULL;
	CLEANUP_FREE char *device = NULL;

	if (!colon || colon - at > 24)
		return;
	device = mem_copy(at + 4, (size_t)(colon - at) - 4);
	if (!c->testdev && str_starts(colon + 2, TESTDEV_MARK))
		c->testdev = STEAL(device);
	else if (c->testdev && str_equal(device, c->testdev))
		testdev_line(c, at);
}

/* "DMI: QEMU Standard PC (i440FX + PIIX, 1996), BIOS 1.16.2-debian-1.16.2-1 04/01/2014" */
static void dmi_line(struct console *c, const char *line)
{
	const char *at = strstr(line, "DMI: ");
	const char *bios = at ? strstr(at, ", BIOS ") : NULL;

	if (bios && !c->seen.firmware_version)
		set_text(&c->seen.firmware_version, bios + strlen(", BIOS "));
}

static void start_line(struct console *c, const char *line)
{
	static const char version_mark[] = "Linux version ", cmdline_mark[] = "ommand line: ";
	const char *version = strstr(line, version_mark);
	const char *cmdline = strstr(line, cmdline_mark);

	if (version && !c->seen.banner) {
		CLEANUP_FREE char *word = NULL;

		version += strlen(version_mark);
		word = mem_copy(version, strcspn(version, " "));
		set_text(&c->seen.kernel_version, word);
		c->seen.banner = true;
		kernel_runs(c, PHASE_KERNEL);
	}
	if (cmdline && c->seen.banner && !c->seen.cmdline)
		c->seen.cmdline = str_printable(cmdline + strlen(cmdline_mark), LINE_MAX_BYTES);
}

/* "[   12.345678] ": a quiet kernel's warnings and errors still come. */
static bool has_stamp(const char *line)
{
	for (; (line = strchr(line, '[')); line++) {
		size_t blanks = strspn(line + 1, " ");
		size_t whole = strspn(line + 1 + blanks, "0123456789");
		const char *dot = line + 1 + blanks + whole;
		size_t part = *dot == '.' ? strspn(dot + 1, "0123456789") : 0;

		if (whole && part == 6 && str_starts(dot + 1 + part, "] "))
			return true;
	}
	return false;
}

bool line_has_one_of(const char *line, const char *const *marks)
{
	for (; *marks; marks++)
		if (strstr(line, *marks))
			return true;
	return false;
}

static void disk_line(struct console *c, const char *line)
{
	static const char *const marks[] = {"EXT4-fs error",       "XFS: Internal error",
	                                    "Corruption detected", "BTRFS error",
	                                    "BTRFS critical",      "I/O error, dev vd",
	                                    "I/O error, dev sd",   "I/O error on dev vd",
	                                    "I/O error on dev sd", NULL};

	if (c->seen.disk_error || !line_has_one_of(line, marks))
		return;
	c->seen.disk_error = true;
	set_text(&c->seen.disk_message, line);
}

static void end_line(struct console *c, const char *line)
{
	static const char panic_mark[] = "Kernel panic - not syncing";
	const char *panic = strstr(line, panic_mark);

	if (panic && !c->seen.panic) {
		c->seen.panic = true;
		set_text(&c->seen.panic_message, panic);
	}
	if (strstr(line, "reboot: Power down"))
		c->seen.power_off = true;
	if (strstr(line, "reboot: Restarting system"))
		c->seen.restart = true;
}

static void phase_line(struct console *c, const char *line)
{
	static const char *const userspace[] = {"Welcome to ", "Run /sbin/init as init",
	                                        "cloud-init[", "Reached target ", NULL};

	if (strstr(line, "Cloud-init v. ") && strstr(line, " finished at "))
		c->seen.cloud_done = true;
	if (strstr(line, "Run /init as init process"))
		enter(c, PHASE_INITRAMFS);
	if (line_has_one_of(line, userspace))
		enter(c, PHASE_USERSPACE);
}

/* "node-1 login: ", at the begin of a line; the kernel may have gone on behind it. */
static void prompt_line(struct console *c, const char *line)
{
	const char *blank = strchr(line, ' ');

	if (!blank || blank == line || !str_starts(blank, " login: "))
		return;
	c->seen.login = true;
	kernel_runs(c, PHASE_USERSPACE);
}

/* "[   12.345678] NVRM: No NVIDIA GPU found.", "[   11.1] nvidia-nvlink: ...". */
static void nvidia_line(struct console *c, const char *line)
{
	static const char *const marks[] = {"] NVRM: ", "] nvidia", NULL};
	struct strv *lines = &c->seen.nvidia;

	if (!has_stamp(line) || !line_has_one_of(line, marks))
		return;
	if (lines->count == NVIDIA_LINES_MAX)
		strv_remove(lines, 0);
	strv_take(lines, str_printable(line, TEXT_MAX_BYTES));
}

static void take_line(struct console *c, const char *line)
{
	static const char *const nouveau[] = {
		"] nouveau 0000:", "] NovaCore 0000:", "] nova_core 0000:", NULL};

	start_line(c, line);
	if (has_stamp(line))
		kernel_runs(c, PHASE_KERNEL);
	if (frames_line(c->frames, line))
		kernel_runs(c, PHASE_USERSPACE);
	prompt_line(c, line);
	secure_boot_line(&c->seen, line);
	if (!c->seen.kernel)
		return;
	pci_line(c, line);
	dmi_line(c, line);
	disk_line(c, line);
	end_line(c, line);
	phase_line(c, line);
	if (strstr(line, "ignored, not CPU addressable"))
		c->seen.window_dropped = true;
	if (line_has_one_of(line, nouveau))
		c->seen.nouveau = true;
	nvidia_line(c, line);
}

void console_feed(struct console *c, const char *data, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		bool end = data[i] == '\n' || data[i] == '\r';

		if (!end && data[i])
			c->line[c->length++] = data[i];
		if (!end && c->length + 1 < sizeof(c->line))
			continue;
		c->line[c->length] = '\0';
		c->length = 0;
		take_line(c, c->line);
	}
	/* A prompt waits without a newline, and so does shim's box with its one key "OK". */
	c->line[c->length] = '\0';
	prompt_line(c, c->line);
	if (!c->seen.kernel)
		secure_boot_line(&c->seen, c->line);
}
