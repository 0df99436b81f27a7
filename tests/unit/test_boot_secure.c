/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Secure Boot in the boot test: what firmware and loaders say when they refuse (OVMF, shim and GRUB
 * as recorded from Debian 12, systemd-boot by its sources), the guest's word, verdicts, QEMU's
 * command line, and what the manifest claims of it.
 */
#include <stdlib.h>

#include "builder/boot-internal.h"
#include "builder/manifest.h"
#include "tests/unit/tap.h"

#define BAR_BYTES (UINT64_C(32) << 30)

#define KERNEL        "[    0.000000] Linux version 6.1.0-57-amd64 (x)\n"
#define ENABLED       "[    0.000000] secureboot: Secure boot enabled\n"
#define LOCKED_DOWN   "[    0.000000] Kernel is locked down from EFI Secure Boot; see man x\n"
#define DISABLED      "[    0.000000] secureboot: Secure boot disabled\n"
#define ENABLED_BARE  "[    0.000000] Secure boot enabled\n"
#define DISABLED_BARE "[    0.000000] Secure boot disabled\n"

/* --- The console --- */

static struct console *fed(const char *text)
{
	struct console *c = console_new("n1", BAR_BYTES, 40);

	console_feed(c, text, strlen(text));
	return c;
}

static const struct {
	const char *text;
	const char *word; /* of the refusal; NULL: it is none */
	const char *what;
} refusals[] = {
	{"BdsDxe: failed to load Boot0001 \"UEFI Misc Device\" from PciRoot(0x0)/Pci(0x1,0x0): "
         "Access Denied\r\n",
         "the firmware does not start the image's boot loader", "a loader that nobody signed"},
	{"\x1b[04;01H\xb3                Verification failed: (0x1A) Security Violation      "
         "\xb3\x1b[05;01H",
         "shim does not start", "shim's box, which ends without a newline"},
	{"import_mok_state() failed: Security Policy Violation\n", "shim does not start",
         "a policy of shim's"},
	{"error: bad shim signature.\r\n", "GRUB does not start the kernel",
         "a kernel that nobody signed"},
	{"error: ../../grub-core/kern/efi/sb.c:182:bad shim signature.\n",
         "GRUB does not start the kernel", "the same from a newer GRUB"},
	{"Error loading \\EFI\\Linux\\debian.efi: Security violation\n", "systemd-boot does not",
         "a unified kernel image that nobody signed"},
	{"BdsDxe: failed to start Boot0001 \"UEFI Misc Device\": Not Found\n", NULL,
         "a loader that is missing"},
	{"BdsDxe: loading Boot0001 \"UEFI Misc Device\"\nWelcome to GRUB!\n", NULL,
         "a chain that starts"},
	{KERNEL "[    9.1] x: Access Denied\nerror: bad shim signature.\n", NULL,
         "the same words once a kernel runs"},
};

static void test_refusals(void)
{
	for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++) {
		struct console *c = fed(refusals[i].text);
		const char *got = console_seen(c)->refusal;

		if (!check(refusals[i].word ? got && strstr(got, refusals[i].word) : !got,
		           "%s is %s refusal", refusals[i].what, refusals[i].word ? "a" : "no"))
			printf("# got: %s\n", got ? got : "(null)");
		check(!got || (!strchr(got, '\x1b') && !strstr(got, "\xb3")),
		      "and nothing of a screen is in its words");
		console_free(c);
	}
}

static void test_first_refusal(void)
{
	struct console *c = fed("BdsDxe: failed to load Boot0001 \"UEFI Misc Device\": "
	                        "Access Denied\nBdsDxe: failed to start Boot0002 \"EFI Internal "
	                        "Shell\": Security Violation\n");
	const struct console_seen *seen = console_seen(c);

	check(seen->refusal && strstr(seen->refusal, "Boot0001"),
	      "the first refusal counts, not that of the firmware's own shell");
	check(!secure_boot_gave_up(seen, 5000, 5000, false), "the firmware may have another way");
	check(secure_boot_gave_up(seen, 25000, 25000, false), "until it is silent");
	check(secure_boot_gave_up(seen, 95000, 0, false), "or takes too long, menus and all");
	check(secure_boot_gave_up(seen, 15000, 15000, true), "with KVM, less of both");
	console_feed(c, "BdsDxe: No bootable option or device was found.\n", 48);
	check(secure_boot_gave_up(seen, 0, 0, false), "or says that it has none");
	console_feed(c, KERNEL, strlen(KERNEL));
	check(!secure_boot_gave_up(seen, 95000, 95000, false),
	      "a kernel that runs was not stopped");
	console_free(c);
}

#define SHELL "\"EFI Internal Shell\" from Fv(7CB8BDC9-F8EB)/FvFile(7C04A583-9E3E)"
#define DISK  "\"UEFI Misc Device 2\" from PciRoot(0x0)/Pci(0x2,0x0)"
#define DENIED                                                                                     \
	"BdsDxe: failed to load Boot0001 \"UEFI Misc Device\" from PciRoot(0x0)/Pci(0x1,0x0): "    \
	"Access Denied\r\n"
#define PROHIBITED "error: prohibited by secure boot policy.\n"
#define NOBODY     "error: verification requested but nobody cares: /boot/grub/x.mod.\n"

static const struct {
	const char *text;
	const char *word; /* of what stopped the chain; NULL: nothing did */
	const char *what;
} chains[] = {
	{PROHIBITED "error: bad shim signature.\n", "bad shim signature",
         "GRUB that goes on, then refuses the kernel"},
	{"error: bad shim signature.\n" PROHIBITED, "bad shim signature",
         "GRUB that refuses the kernel, then something else"},
	{PROHIBITED NOBODY, NULL, "GRUB that goes on from all that it refuses"},
	{DENIED "BdsDxe: starting Boot0002 " DISK "\r\n", NULL,
         "a firmware that skips a boot option and starts another one"},
	{DENIED "BdsDxe: starting Boot0002 " DISK "\r\nerror: bad shim signature.\n",
         "bad shim signature", "a chain by the second boot option that is stopped"},
	{DENIED "BdsDxe: starting Boot0002 " SHELL "\r\nBdsDxe: failed to start Boot0002 " SHELL
                ": Security Violation\r\n",
         "Boot0001", "a firmware that has only its own shell left"},
	{DENIED "BdsDxe: starting Boot0002 \"EFI Internal Shell\" from F", "Boot0001",
         "the same where the line is still to end"},
};

static void test_what_stops(void)
{
	for (size_t i = 0; i < sizeof(chains) / sizeof(*chains); i++) {
		const struct boot_end end = {.how = "test", .secure_boot = true};
		struct console *c = fed(chains[i].text);
		const struct console_seen *seen = console_seen(c);
		struct boot_facts f = {0};
		bool stopped = chains[i].word != NULL;

		boot_facts_gather(c, &end, &f);
		if (!check(stopped ? f.refusal && strstr(f.refusal, chains[i].word) : !f.refusal,
		           "%s %s", chains[i].what,
		           stopped ? "is stopped by that" : "has stopped nothing"))
			printf("# got: %s\n", f.refusal ? f.refusal : "(null)");
		check(secure_boot_gave_up(seen, 95000, 95000, false) == stopped,
		      "and silence after it %s the end", stopped ? "is" : "is not");
		check((strstr(f.ended, "before that: ") != NULL) == !stopped,
		      "what was refused on the way is told %s",
		      stopped ? "by itself" : "beside the end");
		boot_facts_free(&f);
		console_free(c);
	}
}

static enum fact fact_of(const char *text, bool asked)
{
	const struct boot_end end = {.how = "test", .secure_boot = asked};
	struct console *c = fed(text);
	struct boot_facts f = {0};
	enum fact fact;

	boot_facts_gather(c, &end, &f);
	fact = f.secure_boot;
	boot_facts_free(&f);
	console_free(c);
	return fact;
}

/* Early frames as a guest sends them, with one fact. */
static char *frame_of(const char *key, const char *base64)
{
	CLEANUP_FREE char *fact = str_format("early 1 %s %s", key, base64);
	const char *end = "early 0 end 1";

	return str_format(KERNEL "GPUIMG-n1 %s %u ;\nGPUIMG-n1 %s %u ;\n", fact,
	                  frames_cksum(fact, strlen(fact)), end, frames_cksum(end, strlen(end)));
}

static void test_facts(void)
{
	CLEANUP_FREE char *on = frame_of("secure_boot", "b24=");
	CLEANUP_FREE char *off = frame_of("secure_boot", "b2Zm");
	CLEANUP_FREE char *none = frame_of("secure_boot", "bm9uZQ==");
	CLEANUP_FREE char *lying = str_format(ENABLED "%s", off);

	check(fact_of(KERNEL ENABLED, true) == FACT_YES, "the kernel says that it is on");
	check(fact_of(KERNEL LOCKED_DOWN, true) == FACT_YES,
	      "or that it locked itself down for it");
	check(fact_of(KERNEL DISABLED, true) == FACT_NO, "or that it is off");
	check(fact_of(KERNEL ENABLED_BARE, true) == FACT_YES &&
	              fact_of(KERNEL DISABLED_BARE, true) == FACT_NO,
	      "with or without the prefix");
	check(fact_of(KERNEL, true) == FACT_UNSEEN, "a quiet kernel says nothing");
	check(fact_of("EFI stub: Secure boot enabled\n", true) == FACT_UNSEEN,
	      "before a kernel runs nobody is believed");
	check(fact_of(on, true) == FACT_YES, "the firmware's variable says that it is on");
	check(fact_of(off, true) == FACT_NO && fact_of(none, true) == FACT_NO,
	      "or that it is off, or that there is none");
	check(fact_of(lying, true) == FACT_NO, "the variable is asked before the kernel's line");
}

/* Why the fact could not be seen; NULL: it is not told. */
static const char *told_unseen(const struct boot_facts *f)
{
	for (size_t i = 0; i < f->unseen.count; i++)
		if (str_starts(f->unseen.items[i], "secure_boot: "))
			return f->unseen.items[i];
	return NULL;
}

static void test_why_unseen(void)
{
	const struct boot_end asked = {.how = "test", .secure_boot = true};
	CLEANUP_FREE char *frames = frame_of("machine_id", "eA==");
	const char *const texts[] = {frames, KERNEL};
	const char *const reasons[] = {"cannot read the firmware's variable",
	                               "did not run our seed"};

	for (size_t i = 0; i < 2; i++) {
		struct console *c = fed(texts[i]);
		struct boot_facts f = {0};
		const char *why;

		boot_facts_gather(c, &asked, &f);
		why = told_unseen(&f);
		if (!check(f.secure_boot == FACT_UNSEEN && why && strstr(why, reasons[i]),
		           "a guest %s frames that does not tell it: why is said right",
		           i == 0 ? "with" : "without"))
			printf("# got: %s\n", why ? why : "(null)");
		boot_facts_free(&f);
		console_free(c);
	}
}

static void test_told_facts(void)
{
	static const char refused[] = "error: bad shim signature.\n";
	const struct boot_end asked = {.how = "test", .secure_boot = true};
	const struct boot_end not_asked = {.how = "test"};
	struct console *c = fed(refused);
	struct boot_facts f = {0};

	boot_facts_gather(c, &asked, &f);
	check(f.refusal && f.kernel_started == FACT_NO, "a refusal is among the facts");
	check(told_unseen(&f), "that it could not be seen is told");
	boot_facts_free(&f);
	boot_facts_gather(c, &not_asked, &f);
	check(!f.refusal && !told_unseen(&f), "but not where nobody asked for it");
	boot_facts_free(&f);
	console_free(c);
}

/* --- Verdicts --- */

static struct boot_facts good(void)
{
	return (struct boot_facts){.firmware = FIRMWARE_UEFI_SECURE_BOOT,
	                           .secure_boot = FACT_YES,
	                           .kernel_started = FACT_YES,
	                           .userspace = FACT_YES,
	                           .booted = FACT_YES,
	                           .bar_assigned = FACT_YES,
	                           .nouveau_loaded = FACT_NO,
	                           .nouveau_loadable_by_alias = FACT_NO,
	                           .nouveau_exists = FACT_YES,
	                           .card_probed = FACT_NO,
	                           .disk_ok = FACT_YES,
	                           .nic_ok = FACT_YES};
}

static struct boot_facts bad_base(void)
{
	struct boot_facts f = good();

	f.bar_assigned = FACT_NO;
	f.nouveau_loaded = FACT_YES;
	return f;
}

static void expect(enum verdict want, size_t reasons_count, const char *word,
                   const struct boot_facts *base, const struct boot_facts *built, const char *what)
{
	CLEANUP_STRV struct strv reasons = {0};
	enum verdict got = base ? boot_judge_pair(base, built, NULL, &reasons)
	                        : boot_judge(built, NULL, &reasons);
	CLEANUP_FREE char *all = strv_join(&reasons, "; ");

	if (!check(got == want && reasons.count == reasons_count && (!word || strstr(all, word)),
	           "%s", what))
		printf("# got %s: %s\n", verdict_name(got), all);
}

static void test_verdicts(void)
{
	static char refusal[] = "GRUB does not start the kernel";
	struct boot_facts base = bad_base(), built = good();

	expect(VERDICT_PASSED, 0, NULL, &base, &built, "a pair where it is on passes");
	expect(VERDICT_PASSED, 0, NULL, NULL, &built, "and so does an image alone");
	built.secure_boot = FACT_NO;
	expect(VERDICT_VOID, 1, "is off", &base, &built, "a pair where it is off is void");
	expect(VERDICT_VOID, 1, "is off", NULL, &built, "and so is an image alone");
	built.secure_boot = FACT_UNSEEN;
	expect(VERDICT_VOID, 1, "could not be seen", &base, &built, "unseen is not on");
	built.firmware = FIRMWARE_UEFI;
	expect(VERDICT_PASSED, 0, NULL, &base, &built, "without Secure Boot nobody asks for it");
	built = good();
	base.secure_boot = FACT_UNSEEN;
	expect(VERDICT_PASSED, 0, NULL, &base, &built,
	       "a base that is silent about it had the same firmware");
	built.secure_boot = FACT_NO;
	built.bar_assigned = FACT_NO;
	expect(VERDICT_FAILED, 1, "BAR", NULL, &built, "an image that fails is failed, not void");
	built = (struct boot_facts){.firmware = FIRMWARE_UEFI_SECURE_BOOT, .refusal = refusal};
	expect(VERDICT_FAILED, 1, refusal, NULL, &built,
	       "a chain that is stopped fails for that one reason");
	built = good();
	built.refusal = refusal;
	expect(VERDICT_PASSED, 0, NULL, NULL, &built,
	       "a chain that found another way was not stopped");
}

static void test_driver(void)
{
	static char one[] = "1", message[] = "modprobe: ERROR: could not insert 'nvidia': "
					     "Operation not permitted";
	struct boot_facts built = good();

	built.driver = (struct boot_driver){.asked = true,
	                                    .loaded = FACT_NO,
	                                    .no_card = FACT_NO,
	                                    .exit_code = one,
	                                    .message = message};
	strv_add(&built.driver.kernel_lines,
	         "[   11.1] Lockdown: modprobe: unsigned module loading "
	         "is restricted; see man kernel_lockdown.7");
	expect(VERDICT_FAILED, 1, "signed by a key it knows", NULL, &built,
	       "a driver's module that lockdown keeps out fails, and why is said");
	strv_free(&built.driver.kernel_lines);
	strv_add(&built.driver.kernel_lines,
	         "[   11.1] Loading of module with unavailable key is rejected");
	expect(VERDICT_FAILED, 1, "signed by a key it knows", NULL, &built,
	       "and so does one that is signed by a key of its own");
	strv_free(&built.driver.kernel_lines);
}

/* --- QEMU, firmware, manifest --- */

static char *recipe(enum boot_firmware firmware, enum boot_window window)
{
	char code[] = "/code", vars[] = "/vars", overlay[] = "/overlay", seed[] = "/seed";
	const struct boot_files files = {
		.overlay = overlay, .seed = seed, .vars = vars, .code = code};
	const struct boot_options o = {.firmware = firmware,
	                               .window = window,
	                               .bar_bytes = BAR_BYTES,
	                               .memory_bytes = UINT64_C(2) << 30};
	CLEANUP_STRV struct strv argv = boot_recipe_argv(&o, &files, 5, false);

	return strv_join(&argv, " ");
}

static void test_recipe(void)
{
	CLEANUP_FREE char *secure = recipe(FIRMWARE_UEFI_SECURE_BOOT, WINDOW_UNREACHABLE);
	CLEANUP_FREE char *healthy = recipe(FIRMWARE_UEFI_SECURE_BOOT, WINDOW_REACHABLE);
	CLEANUP_FREE char *plain = recipe(FIRMWARE_UEFI, WINDOW_UNREACHABLE);

	check(strstr(secure, "-machine q35,smm=on,memory-backend=ram0") &&
	              strstr(secure, "driver=cfi.pflash01,property=secure,value=on"),
	      "Secure Boot has SMM, and only SMM writes the variables");
	check(strstr(secure, "maxmem=1000G") && strstr(secure, "pci-hole64-size=2G") &&
	              strstr(secure, "x-pci-proxy-dev,id=gpu0,fd=5") &&
	              strstr(secure, "pci-testdev,membar=32768M") &&
	              strstr(secure, "disable-modern=on"),
	      "and all the rest of the recipe for UEFI");
	check(strstr(healthy, "X-PciMmio64Mb,string=65536") && !strstr(healthy, "maxmem"),
	      "in the reachable window too");
	check(!strstr(plain, "smm=on") && !strstr(plain, "cfi.pflash01"),
	      "UEFI without Secure Boot is as it was");
}

static void test_names(void)
{
	enum boot_firmware f;

	for (int i = 0; i < FIRMWARE_COUNT; i++)
		check(boot_firmware_from_name(&f, boot_firmware_name((enum boot_firmware)i)) == 0 &&
		              f == (enum boot_firmware)i,
		      "'%s' is a firmware's name", boot_firmware_name((enum boot_firmware)i));
	check(boot_firmware_from_name(&f, "both") < 0, "'both' is none");
	check(boot_firmware_is_uefi(FIRMWARE_UEFI_SECURE_BOOT) &&
	              !boot_firmware_is_uefi(FIRMWARE_BIOS),
	      "Secure Boot is a UEFI");
}

static void test_firmware_files(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *code = NULL;
	CLEANUP_FREE char *vars = NULL;

	if (boot_recipe_firmware(FIRMWARE_UEFI_SECURE_BOOT, &code, &vars, &err) == 0)
		check(!strstr(vars, "OVMF_VARS_4M.fd") && !strstr(vars, "OVMF_VARS.fd"),
		      "'%s' is not the template without keys", vars);
	else
		check(error_exit_code(&err) == EXIT_HOST && err.hint,
		      "a host without such firmware is told what to install");
}

/* The boot types that a manifest has, made anew from one that an earlier run left. */
static char *boot_types(const char *before, const char *boot_test)
{
	json_t *report = json_loads(boot_test, JSON_DECODE_ANY, NULL);
	struct build b = {.steps = json_array(), .base_path = (char[]){"base.qcow2"}};
	json_t *manifest;
	char *text;

	b.reused = json_pack("{s:{s:o}, s:{}}", "image", "boot_types", json_loads(before, 0, NULL),
	                     "base");
	manifest = manifest_make(&b, "x.qcow2", "00", json_is_null(report) ? NULL : report);
	text = json_dumps(json_object_get(json_object_get(manifest, "image"), "boot_types"),
	                  JSON_COMPACT);
	json_decref(manifest);
	json_decref(b.reused);
	json_decref(b.steps);
	json_decref(report);
	return text;
}

#define RUN(firmware, verdict) "{\"firmware\": \"" firmware "\", \"verdict\": \"" verdict "\"}"

static void test_manifest(void)
{
	static const struct {
		const char *before, *boot_test, *want, *what;
	} cases[] = {
		{"[\"bios\", \"uefi\"]", "{\"runs\": [" RUN("uefi-secure-boot", "passed") "]}",
	         "[\"bios\",\"uefi\",\"uefi-secure-boot\"]", "a pair that passed is claimed"},
		{"[\"bios\", \"uefi\"]", "{\"runs\": [" RUN("uefi", "passed") "]}",
	         "[\"bios\",\"uefi\"]", "a pair without Secure Boot claims nothing"},
		{"[\"uefi\"]",
	         "{\"runs\": [" RUN("uefi", "passed") "," RUN("uefi-secure-boot", "void") "]}",
	         "[\"uefi\"]", "nor does one that was void"},
		{"[\"uefi\"]", "{\"runs\": [" RUN("uefi-secure-boot", "failed") "]}", "[\"uefi\"]",
	         "nor one that failed"},
		{"[\"uefi\", \"uefi-secure-boot\"]", "null", "[\"uefi\"]",
	         "what an earlier run saw is not claimed by one without a boot test"},
		{"[\"uefi\", \"uefi-secure-boot\"]",
	         "{\"runs\": [" RUN("uefi-secure-boot", "passed") "]}",
	         "[\"uefi\",\"uefi-secure-boot\"]", "nor claimed twice"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		CLEANUP_FREE char *got = boot_types(cases[i].before, cases[i].boot_test);

		check_str(got, cases[i].want, "manifest: %s", cases[i].what);
	}
}

int main(void)
{
	test_refusals();
	test_first_refusal();
	test_what_stops();
	test_facts();
	test_told_facts();
	test_why_unseen();
	test_verdicts();
	test_driver();
	test_recipe();
	test_names();
	test_firmware_files();
	test_manifest();
	return tap_done();
}
