/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Console transcripts of real runs (tests/golden/console/, see its README) and lines of our own
 * where the weather of a serial line has to be made up.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "builder/boot-internal.h"
#include "tests/unit/tap.h"

#define BAR_BYTES (UINT64_C(32) << 30)
#define MAX_BYTES (4 << 20)

static struct console *new_console(void)
{
	return console_new("n1", BAR_BYTES, 40);
}

static struct boot_facts facts_of_driver(const struct console *c, bool early_only, uint64_t reads,
                                         bool driver)
{
	const struct boot_end end = {.how = "test",
	                             .early_only = early_only,
	                             .driver = driver,
	                             .has_card = true,
	                             .card = {.reads = reads}};
	struct boot_facts f = {0};

	boot_facts_gather(c, &end, &f);
	return f;
}

static struct boot_facts facts_of(const struct console *c, bool early_only, uint64_t reads)
{
	return facts_of_driver(c, early_only, reads, false);
}

static void feed(struct console *c, const char *text)
{
	console_feed(c, text, strlen(text));
}

static bool told_unseen(const struct boot_facts *f, const char *name)
{
	for (size_t i = 0; i < f->unseen.count; i++)
		if (str_starts(f->unseen.items[i], name))
			return true;
	return false;
}

/* --- Frames --- */

/* A line as the guest sends it; what: "early 1 kernel Ni4x". */
static char *frame_line(const char *what)
{
	return str_format("GPUIMG-n1 %s %" PRIu32 " ;", what, frames_cksum(what, strlen(what)));
}

static void send_line(struct frames *f, const char *before, const char *what, const char *after)
{
	CLEANUP_FREE char *line = frame_line(what);
	CLEANUP_FREE char *all = str_format("%s%s%s", before, line, after);

	frames_line(f, all);
}

static void test_frame(void)
{
	struct frames *f = frames_new("n1");
	char *value;

	check(frames_cksum("123456789", 9) == 930766865, "the checksum is that of POSIX cksum");
	send_line(f, "", "early 1 kernel Ni4xLjAt", "");
	send_line(f, "[  OK  ] Started x.", "early 2 kernel NTc=", "[   40.1] random: crng");
	check(!frames_whole(f, FRAME_EARLY), "a frame without its end is not whole");
	send_line(f, "", "early 0 end 3", "");
	check(!frames_whole(f, FRAME_EARLY), "a frame with a line missing is not whole");
	check(!frames_value(f, FRAME_EARLY, "kernel"), "and tells nothing");
	send_line(f, "", "early 3 empty =", "");
	check(frames_whole(f, FRAME_EARLY), "with the missing line it is whole");
	value = frames_value(f, FRAME_EARLY, "kernel");
	check_str(value, "6.1.0-57", "a value in two pieces, amid other text, is put together");
	free(value);
	value = frames_value(f, FRAME_EARLY, "empty");
	check_str(value, "", "an empty value is a value");
	free(value);
	check(!frames_value(f, FRAME_EARLY, "other"), "a fact that was not told is NULL");
	check(!frames_whole(f, FRAME_LATE), "the late frame is another one");
	frames_free(f);
}

static void test_broken_lines(void)
{
	static const char *const broken[] = {
		"",
		"GPUIMG-n1 ",
		"GPUIMG-n1 early 1 kernel Ni4x 1 ;",
		"GPUIMG-n1 early 1 kernel Ni[   40.123456] random: crng init done",
		"GPUIMG-n2 early 1 kernel Ni4x 1 ;",
		"GPUIMG-n1 early 99999999999999999999 kernel Ni4x 1 ;",
	};
	static const char *const forged[] = {"middle 1 kernel Ni4x", "early 513 kernel Ni4x",
	                                     "early -1 kernel Ni4x", "early 0 end 99999"};
	struct frames *f = frames_new("n1");

	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++)
		frames_line(f, broken[i]);
	for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++)
		send_line(f, "", forged[i], "");
	send_line(f, "", "early 0 end 1", "");
	check(!frames_whole(f, FRAME_EARLY), "broken and forged lines count for nothing");
	send_line(f, "GPUIMG-n1 early 1 ker", "early 1 kernel !!!!", "");
	check(frames_whole(f, FRAME_EARLY), "a line behind a broken one is found");
	check(!frames_value(f, FRAME_EARLY, "kernel"), "what is not base64 has no value");
	frames_free(f);
}

/* --- Kernel lines --- */

static const char banner[] = "[    0.000000] Linux version 6.1.0 (x) #1\n"
			     "[    0.000000] Command line: ro console=ttyS0\n";
static const char device[] = "[    1.2] pci 0000:00:02.0: [1b36:0005] type 00 class 0x00ff00\n";

struct bar_case {
	const char *what;
	const char *lines;
	enum fact assigned;
	const char *address;
};

static const struct bar_case bar_cases[] = {
	{"a BAR that the firmware placed well is assigned",
         "[    1.2] pci 0000:00:02.0: BAR 2 [mem 0x800000000-0xfffffffff 64bit pref]\n", FACT_YES,
         "0x800000000-0xfffffffff"},
	{"the wording of 6.1's first releases is read too",
         "[    1.2] pci 0000:00:02.0: reg 0x18: [mem 0x800000000-0xfffffffff 64bit pref]\n",
         FACT_YES, "0x800000000-0xfffffffff"},
	{"a BAR that the firmware placed beyond the CPU is not",
         "[    1.2] pci 0000:00:02.0: BAR 2 [mem 0x10000000000-0x107ffffffff 64bit pref]\n",
         FACT_NO, NULL},
	{"a range of another size is not the BAR",
         "[    1.2] pci 0000:00:02.0: BAR 2 [mem 0x800000000-0x8ffffffff 64bit pref]\n", FACT_NO,
         NULL},
	{"the kernel's failure is the last word",
         "[    1.2] pci 0000:00:02.0: BAR 2 [mem 0x800000000-0xfffffffff 64bit pref]\n"
         "[    1.3] pci 0000:00:02.0: BAR 2 [mem size 0x800000000 64bit pref]: can't assign; no "
         "space\n"
         "[    1.4] pci 0000:00:02.0: BAR 2: trying firmware assignment [mem "
         "0x800000000-0xfffffffff 64bit pref]\n",
         FACT_NO, NULL},
	{"an assignment after a failure is the last word",
         "[    1.3] pci 0000:00:02.0: can't claim BAR 2 [mem 0x10000000000-0x107ffffffff 64bit "
         "pref]: no compatible bridge window\n"
         "[    1.4] pci 0000:00:02.0: BAR 2: assigned [mem 0x800000000-0xfffffffff 64bit pref]\n",
         FACT_YES, "0x800000000-0xfffffffff"},
	{"so it is in the newer wording",
         "[    1.3] pci 0000:00:02.0: BAR 2 [mem 0x10000000000-0x107ffffffff 64bit pref]: can't "
         "claim; no compatible bridge window\n"
         "[    1.4] pci 0000:00:02.0: BAR 2 [mem 0x800000000-0xfffffffff 64bit pref]: assigned\n",
         FACT_YES, "0x800000000-0xfffffffff"},
	{"other devices' BARs do not count",
         "[    1.4] pci 0000:00:03.0: BAR 2 [mem 0x800000000-0xfffffffff 64bit pref]: assigned\n",
         FACT_UNSEEN, NULL},
	{"other BARs of the device do not count",
         "[    1.4] pci 0000:00:02.0: BAR 0 [mem 0x800000000-0xfffffffff 64bit pref]: assigned\n",
         FACT_UNSEEN, NULL},
};

static void test_bar(void)
{
	for (size_t i = 0; i < sizeof(bar_cases) / sizeof(bar_cases[0]); i++) {
		struct console *c = new_console();
		struct boot_facts f;

		feed(c, banner);
		feed(c, device);
		feed(c, bar_cases[i].lines);
		f = facts_of(c, true, 0);
		check(f.bar_assigned == bar_cases[i].assigned, "%s", bar_cases[i].what);
		check_str(f.bar_address, bar_cases[i].address, "with that address");
		check(told_unseen(&f, "bar_assigned:") == (f.bar_assigned == FACT_UNSEEN),
		      "and is told if unseen");
		boot_facts_free(&f);
		console_free(c);
	}
}

static void test_bytes(void)
{
	static const char noise[] = "\0\xff\x1b[0m\r\r\n\n";
	struct console *c = new_console();
	struct boot_facts f;
	char *flood = mem_alloc(100001);

	memset(flood, 'x', 100000);
	console_feed(c, noise, sizeof(noise) - 1);
	feed(c, flood);
	feed(c, "\n");
	for (const char *p = banner; *p; p++)
		console_feed(c, p, 1);
	feed(c, "[  OK  ] Started it.");
	feed(c, device);
	f = facts_of(c, true, 0);
	check(f.kernel_started == FACT_YES,
	      "a banner that comes byte by byte behind noise is read");
	check_str(f.cmdline, "ro console=ttyS0", "so is the command line");
	check_str(f.kernel, "6.1.0", "and the kernel's version");
	boot_facts_free(&f);
	console_free(c);
	free(flood);
}

static void test_prompt(void)
{
	struct console *c = new_console();

	feed(c, banner);
	feed(c, "pam: the login: x\nStarting login: y\n");
	check(console_seen(c)->login, "a word before ' login: ' makes a prompt");
	console_free(c);
	c = new_console();
	feed(c, banner);
	feed(c,
	     "[   22.5] systemd[1]: Started serial login: x\nDebian GNU/Linux 12 node ttyS0\n\n");
	check(!console_seen(c)->login, "text about a login is no prompt");
	feed(c, "node log");
	feed(c, "in: ");
	check(console_seen(c)->login, "a prompt without newline, in two pieces, is seen");
	console_free(c);
}

static void test_nothing(void)
{
	struct console *c = new_console();
	struct boot_facts f = facts_of(c, false, 0);

	check(f.kernel_started == FACT_NO && f.booted == FACT_NO, "silence is no boot");
	check(f.bar_assigned == FACT_UNSEEN && f.card_probed == FACT_UNSEEN &&
	              f.window_dropped == FACT_UNSEEN && f.serial_ok == FACT_UNSEEN,
	      "silence tells nothing about the rest");
	check(told_unseen(&f, "bar_assigned:") && told_unseen(&f, "card_probed:") &&
	              told_unseen(&f, "nouveau_loadable_by_alias:") && told_unseen(&f, "nic_ok:"),
	      "all of it is told as unseen");
	boot_facts_free(&f);
	console_free(c);
}

static void test_panic(void)
{
	struct console *c = new_console();
	struct boot_facts f;

	feed(c, banner);
	feed(c, "[    2.1] Kernel panic - not syncing: VFS: Unable to mount root fs\n");
	check(console_seen(c)->panic, "a panic is seen");
	f = facts_of(c, false, 0);
	check(f.booted == FACT_NO, "a panic is no boot");
	check(f.card_probed == FACT_UNSEEN,
	      "an untouched card means nothing before drivers had their time");
	boot_facts_free(&f);
	f = facts_of(c, false, 2);
	check(f.card_probed == FACT_YES && f.card_reads == 2, "a touched card always counts");
	boot_facts_free(&f);
	console_free(c);
}

/* What the guest tells about modules, against the command line of its kernel. */
static void module_case(const char *cmdline_base64, enum fact want, const char *what)
{
	static const char *const names[] = {"alias", "byname"};
	struct console *c = new_console();
	CLEANUP_FREE char *cmdline = str_format("early 1 cmdline %s", cmdline_base64);
	CLEANUP_STRV struct strv lines = {0};
	struct boot_facts f;

	feed(c, banner);
	strv_take(&lines, frame_line(cmdline));
	for (size_t i = 0; i < 2; i++) { /* "drm\nnouveau\n" */
		CLEANUP_FREE char *text =
			str_format("early %zu %s ZHJtCm5vdXZlYXUK", i + 2, names[i]);

		strv_take(&lines, frame_line(text));
	}
	strv_take(&lines, frame_line("early 0 end 3"));
	for (size_t i = 0; i < lines.count; i++) {
		feed(c, lines.items[i]);
		feed(c, "\r\n");
	}
	f = facts_of(c, true, 0);
	check(f.nouveau_loadable_by_alias == want && f.nouveau_loadable_by_name == want, "%s",
	      what);
	check(f.nouveau_loaded == FACT_UNSEEN && told_unseen(&f, "nouveau_loaded:"),
	      "a fact that the guest leaves out is unseen, and told");
	check(f.card_probed == FACT_NO, "an untouched card counts once the guest has told facts");
	boot_facts_free(&f);
	console_free(c);
}

static void test_modules(void)
{
	module_case("cm8=", FACT_YES, "what modprobe names is loadable"); /* "ro" */
	/* "module_blacklist=nouveau" */
	module_case("bW9kdWxlX2JsYWNrbGlzdD1ub3V2ZWF1", FACT_NO,
	            "what the kernel itself refuses is not loadable");
	/* "module_blacklist=nova_core" */
	module_case("bW9kdWxlX2JsYWNrbGlzdD1ub3ZhX2NvcmU=", FACT_YES,
	            "a refusal of another module does not help");
}

/* --- Transcripts --- */

struct transcript {
	const char *name;
	const char *nonce;
	bool early_only;
	uint64_t card_reads;
	bool driver;
};

static const struct transcript transcripts[] = {
	{"base-bios-unreachable", "69a82b10d46c4a0e", true, 2, false},
	{"base-uefi-unreachable", "4b36fbdbf67fdd84", true, 2, false},
	{"base-bios-reachable", "3693bf8376df0d3f", false, 2, false},
	{"built-bios-unreachable", "3c30cbddc7e76034", false, 0, false},
	{"built-uefi-unreachable", "82b5bead6accf93d", false, 0, false},
	{"no-cloud-init", "none", false, 2, false},
	{"driver-bios-unreachable", "3cc53de7346a1e70", false, 21, true},
	{"driver-missing", "e3dbef1845d92bde", false, 2, true},
};

static char *read_golden(const char *name, const char *suffix)
{
	const char *root = getenv("GPUIMG_SOURCE");
	CLEANUP_FREE char *path =
		str_format("%s/tests/golden/console/%s%s", root ? root : ".", name, suffix);
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	CLEANUP_FREE char *text = mem_alloc(MAX_BYTES);
	ssize_t size = fd >= 0 ? read(fd, text, MAX_BYTES) : -1;

	if (!check(size >= 0, "'%s' can be read", path))
		return NULL;
	return mem_copy(text, (size_t)size);
}

static void test_transcript(const struct transcript *t)
{
	CLEANUP_FREE char *console = read_golden(t->name, ".log");
	CLEANUP_FREE char *want = read_golden(t->name, ".json");
	CLEANUP_FREE char *got = NULL;
	CLEANUP_FREE char *with_newline = NULL;
	struct console *c = console_new(t->nonce, BAR_BYTES, 40);
	struct boot_facts f;
	json_t *json;

	if (console)
		feed(c, console);
	f = facts_of_driver(c, t->early_only, t->card_reads, t->driver);
	json = boot_facts_json(&f);
	got = json_dumps(json, JSON_INDENT(2));
	with_newline = str_format("%s\n", got);
	check_str(with_newline, want, "the facts of '%s' are as recorded", t->name);
	json_decref(json);
	boot_facts_free(&f);
	console_free(c);
}

/* What the judge makes of a real run with a driver. */
static void test_driver_verdict(const struct transcript *t, enum verdict want, size_t reasons)
{
	CLEANUP_FREE char *console = read_golden(t->name, ".log");
	CLEANUP_STRV struct strv told = {0};
	CLEANUP_FREE char *all = NULL;
	struct console *c = console_new(t->nonce, BAR_BYTES, 40);
	struct boot_facts f;

	feed(c, console ? console : "");
	f = facts_of_driver(c, t->early_only, t->card_reads, t->driver);
	check(boot_judge(&f, NULL, &told) == want, "the verdict of '%s' is %s", t->name,
	      verdict_name(want));
	all = strv_join(&told, "; ");
	if (!check(told.count == reasons, "with %zu points told", reasons))
		printf("# got: %s\n", all);
	boot_facts_free(&f);
	console_free(c);
}

/* --- The driver, where no frame came --- */

static void driver_case(const char *lines, enum fact no_card, bool runs, const char *what)
{
	struct console *c = new_console();
	struct boot_facts f;

	feed(c, banner);
	feed(c, lines);
	feed(c, "node login: ");
	f = facts_of_driver(c, false, 3, true);
	check(f.driver.asked && f.driver.loaded == FACT_UNSEEN && f.driver.no_card == no_card &&
	              boot_driver_runs(&f.driver) == runs,
	      "%s", what);
	check(told_unseen(&f, "driver:"), "what modprobe said is told as unseen");
	boot_facts_free(&f);
	f = facts_of(c, false, 3);
	check(!f.driver.asked && !f.driver.kernel_lines.count && !told_unseen(&f, "driver:"),
	      "and nothing of it where no driver was asked for");
	boot_facts_free(&f);
	console_free(c);
}

static void test_driver_console(void)
{
	CLEANUP_STRV struct strv many = {0};
	CLEANUP_FREE char *flood = NULL;

	driver_case("[   19.472956] NVRM: The NVIDIA probe routine failed for 1 device(s).\n"
	            "[   19.473356] NVRM: None of the NVIDIA devices were initialized.\n",
	            FACT_YES, true, "the module's own lines on the console tell that it ran");
	driver_case("[   18.181567] nvidia: loading out-of-tree module taints kernel.\n"
	            "[   18.265012] nvidia: Unknown symbol drm_open (err -2)\n",
	            FACT_UNSEEN, false, "that it was looked at does not");
	driver_case("[   19.473356] NVRM: None of the NVIDIA devices were initialized.\n"
	            "[   19.473400] NVRM: loaded and obtained ownership of the NVIDIA device(s).\n",
	            FACT_YES, false, "nor that another driver has the card");
	driver_case("NVRM: No NVIDIA GPU found.\n", FACT_UNSEEN, false,
	            "what is no line of the kernel's counts for nothing");
	for (int i = 0; i < 1000; i++)
		strv_add(&many, "[   19.473356] NVRM: GPU has fallen off the bus.");
	flood = strv_join(&many, "\n");
	driver_case(flood, FACT_YES, true, "a flood of lines is bounded");
}

/* The console of a quiet kernel: the transcript without a line that the kernel wrote. */
static char *quiet_of(const char *console)
{
	CLEANUP_STRV struct strv lines = strv_split(console, "\r\n");
	CLEANUP_STRV struct strv kept = {0};

	for (size_t i = 0; i < lines.count; i++)
		if (lines.items[i][0] != '[' && !strstr(lines.items[i], "] "))
			strv_add(&kept, lines.items[i]);
	strv_add(&kept, "");
	return strv_join(&kept, "\r\n");
}

static void test_quiet(const struct transcript *t, enum fact bar)
{
	CLEANUP_FREE char *console = read_golden(t->name, ".log");
	CLEANUP_FREE char *quiet = console ? quiet_of(console) : str_copy("");
	struct console *whole_console = console_new(t->nonce, BAR_BYTES, 40);
	struct console *c = console_new(t->nonce, BAR_BYTES, 40);
	CLEANUP_STRV struct strv params = {0}, reasons = {0}, whole_reasons = {0};
	/* Nobody could tell the guest's reads from the firmware's. */
	const struct boot_end end = {.how = "test",
	                             .early_only = t->early_only,
	                             .has_card = true,
	                             .card = {.firmware_reads = t->card_reads}};
	struct boot_facts f, whole;

	check(!strstr(quiet, "Linux version") && !strstr(quiet, "pci 0000:"),
	      "no line of the kernel is left in the quiet '%s'", t->name);
	feed(whole_console, console ? console : "");
	whole = facts_of(whole_console, t->early_only, t->card_reads);
	feed(c, quiet);
	check(!console_seen(c)->banner && console_seen(c)->kernel,
	      "the guest's frames stand for a quiet kernel");
	boot_facts_gather(c, &end, &f);
	check(f.kernel_started == FACT_YES && f.serial_ok == FACT_YES && f.booted == whole.booted &&
	              f.userspace == FACT_YES,
	      "its boot is seen as far as it went");
	check(f.bar_assigned == bar, "the BAR is told by sysfs alone");
	check_str(f.bar_address, whole.bar_address, "with the same address");
	check_str(f.cmdline, whole.cmdline, "so is the command line");
	check(f.card_reads == t->card_reads && f.card_probed == whole.card_probed,
	      "no read of the card is put down to the firmware");
	check(f.window_dropped == FACT_UNSEEN && told_unseen(&f, "window_dropped:"),
	      "what only the kernel tells is unseen, and told");
	check(boot_judge(&f, &params, &reasons) == boot_judge(&whole, &params, &whole_reasons),
	      "the verdict is that of the whole console");
	check(reasons.count == whole_reasons.count, "for as many reasons");
	boot_facts_free(&f);
	boot_facts_free(&whole);
	console_free(c);
	console_free(whole_console);
}

static void test_quiet_signs(void)
{
	struct console *c = new_console();

	feed(c, "SeaBIOS (version 1.16.2)\nBooting from Hard Disk...\nGRUB [1.5] loading\n");
	feed(c, "GPUIMG-n2 early 1 kernel Ni4x 1 ;\nGPUIMG-n1 early 1 kernel Ni4x 1 ;\n");
	check(!console_seen(c)->kernel, "firmware, and frames that are not ours, are no kernel");
	feed(c, "[    2.125000] Kernel panic - not syncing: VFS: Unable to mount root fs\n");
	check(console_seen(c)->kernel && console_seen(c)->panic, "a quiet kernel's panic is seen");
	console_free(c);
	c = new_console();
	feed(c, "node login: ");
	check(console_seen(c)->kernel && console_seen(c)->login,
	      "a login prompt stands for a quiet kernel too");
	console_free(c);
}

int main(void)
{
	test_frame();
	test_broken_lines();
	test_bar();
	test_bytes();
	test_prompt();
	test_nothing();
	test_panic();
	test_modules();
	for (size_t i = 0; i < sizeof(transcripts) / sizeof(transcripts[0]); i++)
		test_transcript(&transcripts[i]);
	test_driver_verdict(&transcripts[6], VERDICT_PASSED, 2);
	test_driver_verdict(&transcripts[7], VERDICT_FAILED, 4);
	test_quiet(&transcripts[0], FACT_NO);
	test_quiet(&transcripts[3], FACT_YES);
	test_quiet(&transcripts[4], FACT_YES);
	test_quiet_signs();
	test_driver_console();
	return tap_done();
}
