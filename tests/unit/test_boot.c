/* SPDX-License-Identifier: Apache-2.0 */
/*
 * boot_run() against a QEMU of ours: shell scripts that behave as guests do on a bad day. The
 * real one is met by the tests in tests/qemu.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/boot-internal.h"
#include "builder/proc.h"
#include "tests/unit/tap.h"

struct bench {
	char dir[32];
	char *work, *qemu, *qemu_img, *image, *console, *seed;
	struct boot_options options;
};

static void write_script(const char *path, const char *text)
{
	CLEANUP_FCLOSE FILE *file = fopen(path, "we");

	if (!file || fputs(text, file) < 0)
		abort();
	fchmod(fileno(file), 0755);
}

/* guest: what it does once started; $nonce and $seed are set. */
static void set_guest(const struct bench *b, const char *guest)
{
	CLEANUP_FREE char *text = str_format(
		"#!/bin/bash\n"
		"case $1 in\n"
		"-device) echo 'name \"pci-testdev\"'; echo 'name \"x-pci-proxy-dev\"'; exit ;;\n"
		"-help) echo usage; exit ;;\n"
		"esac\n"
		"seed=$(echo \"$*\" | sed 's/.*file=\\([^ ]*\\.iso\\).*/\\1/')\n"
		"nonce=$(echo \"$seed\" | sed 's/.*boot-\\(.*\\)\\.iso/\\1/')\n"
		"line() { s=$(printf %%s \"$*\" | cksum); echo \"GPUIMG-$nonce $* ${s%%%% *} ;\"; }\n"
		"banner() { echo 'Linux version 6.1.0 (x)'; echo 'Command line: ro'; }\n"
		"%s\n",
		guest);

	write_script(b->qemu, text);
}

static void bench_init(struct bench *b)
{
	CLEANUP_FREE char *path = NULL;
	const char *source = getenv("GPUIMG_SOURCE");

	strcpy(b->dir, "/tmp/test-boot-XXXXXX");
	if (!mkdtemp(b->dir))
		abort();
	b->work = str_format("%s/work,dir", b->dir);
	b->qemu = str_format("%s/qemu-system-x86_64", b->dir);
	b->qemu_img = str_format("%s/qemu-img", b->dir);
	b->image = str_format("%s/image.qcow2", b->dir);
	b->console = str_format("%s/console.log", b->dir);
	b->seed = str_format("%s/seed.iso", b->dir);
	mkdir(b->work, 0700);
	write_script(b->image, "image");
	write_script(b->qemu_img,
	             "#!/bin/sh\nfor last; do :; done\necho overlay >\"${last#file:}\"\n");
	path = str_format("%s:%s", b->dir, getenv("PATH"));
	setenv("PATH", path, 1);
	b->options = (struct boot_options){.image = b->image,
	                                   .format = "qcow2",
	                                   .timeout_s = 20,
	                                   .console_path = b->console,
	                                   .work_dir = b->work,
	                                   .data_dir = source ? source : "."};
}

static void bench_free(struct bench *b)
{
	const char *const argv[] = {"rm", "-rf", b->dir, NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (proc_run(argv, NULL, NULL, 0, &err) < 0)
		printf("# %s\n", err.message);
	free(b->work);
	free(b->qemu);
	free(b->qemu_img);
	free(b->image);
	free(b->console);
	free(b->seed);
}

static bool work_is_empty(const struct bench *b)
{
	DIR *dir = opendir(b->work);
	const struct dirent *entry;
	bool empty = dir != NULL;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			empty = false;
	if (dir)
		closedir(dir);
	return empty;
}

/* Runs a guest that is expected to give facts, and how the run ended. */
static struct boot_facts run(const struct bench *b, const char *guest, const char *ended,
                             const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct boot_facts f = {0};

	set_guest(b, guest);
	if (!check(boot_run(&b->options, &f, &err) == 0, "%s gives facts", what))
		printf("# %s\n", err.message);
	if (!check(f.ended && strstr(f.ended, ended), "%s is told", what))
		printf("# got: %s\n", f.ended ? f.ended : "(null)");
	check(work_is_empty(b), "and nothing is left in the work directory");
	return f;
}

static void test_bad_guests(struct bench *b)
{
	struct boot_facts f;

	f = run(b, "banner; exec yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	        "flooded", "a guest that floods its console");
	check(f.seconds < 15, "it does not wait for the deadline");
	boot_facts_free(&f);
	f = run(b, "banner; echo '[ 2.1] Kernel panic - not syncing: no root'; exec sleep 60",
	        "gave up: Kernel panic - not syncing: no root", "a guest that panics");
	check(f.booted == FACT_NO && f.seconds < 15, "it does not wait for the deadline");
	boot_facts_free(&f);
	b->options.firmware = FIRMWARE_UEFI_SECURE_BOOT;
	f = run(b,
	        "echo 'BdsDxe: failed to load Boot0001 \"x\": Access Denied'; "
	        "echo 'BdsDxe: No bootable option or device was found.'; exec sleep 60",
	        "Secure Boot stopped it: the firmware", "a loader that Secure Boot refuses");
	check(f.refusal && f.seconds < 15, "it does not wait for the deadline");
	boot_facts_free(&f);
	b->options.firmware = FIRMWARE_BIOS;
	f = run(b, "banner; echo '[ 2.1] reboot: Power down'", "powered off",
	        "a guest that powers off");
	boot_facts_free(&f);
	f = run(b, "banner; echo '[ 2.1] reboot: Restarting system'", "restarted",
	        "a guest that restarts");
	boot_facts_free(&f);
	f = run(b, "banner; echo 'qemu: assertion' >&2; exit 1", "QEMU failed",
	        "a QEMU that fails in the middle");
	boot_facts_free(&f);
	b->options.timeout_s = 2;
	b->options.firmware = FIRMWARE_UEFI_SECURE_BOOT;
	f = run(b,
	        "echo 'error: prohibited by secure boot policy.'; "
	        "echo 'BdsDxe: No bootable option or device was found.'; exec sleep 60",
	        "deadline of 2 s passed; before that: GRUB does not",
	        "a loader that goes on after what it refuses");
	check(!f.refusal && f.seconds >= 2, "it is not given up before the deadline");
	boot_facts_free(&f);
	b->options.firmware = FIRMWARE_BIOS;
	f = run(b, "exec sleep 60", "deadline of 2 s", "a guest that never says a word");
	check(f.kernel_started == FACT_NO && f.seconds >= 2 && f.seconds < 8,
	      "it ends at its deadline");
	boot_facts_free(&f);
	f = run(b, "banner; sleep 60 & exec >&- 2>&-; exec sleep 60", "deadline of 2 s",
	        "a QEMU that closes its output and stays");
	boot_facts_free(&f);
	b->options.timeout_s = 20;
}

static void test_frames(struct bench *b)
{
	struct boot_facts f;
	struct stat st;

	b->options.early_only = true;
	f = run(b, "banner; line early 1 kernel Ni4x; line early 0 end 1; exec sleep 60",
	        "the early facts are in", "a guest that tells its early facts");
	check_str(f.kernel, "6.1", "the fact is the guest's");
	check_str(f.cmdline, "ro", "the kernel's own line stands in for what it left out");
	check(stat(b->console, &st) == 0 && st.st_size > 50, "the console log is kept");
	boot_facts_free(&f);
	b->options.early_only = false;
	f = run(b,
	        "banner; line early 1 kernel Ni4x; line early 0 end 1\n"
	        "line late 1 nic ZW5zMyAxMC4wLjIuMTU=; line late 0 end 1; exec sleep 60",
	        "all facts are in", "a guest that tells its late facts");
	check(f.booted == FACT_YES && f.nic_ok == FACT_YES, "it has booted, and its NIC works");
	boot_facts_free(&f);
}

/* The seed as QEMU gets it; the work directory's comma has to come doubled in the option. */
static void test_seed(struct bench *b)
{
	CLEANUP_FREE char *guest =
		str_format("cp \"$(echo \"$seed\" | sed 's/,,/,/g')\" '%s'", b->seed);
	const char *const argv[] = {"bsdtar", "-xOf", b->seed, "user-data", "meta-data", NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int fd = -1;
	CLEANUP_FREE char *text = NULL;
	struct boot_facts f = run(b, guest, "without a word", "a guest that ends at once");
	char label[7] = "";

	boot_facts_free(&f);
	fd = open(b->seed, O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && pread(fd, label, 6, 0x8028) == 6, "the seed is an ISO 9660 volume");
	check(strcasecmp(label, "cidata") == 0, "with the label that cloud-init looks for");
	if (!proc_have("bsdtar")) {
		check(true, "the seed's files can be read # SKIP no bsdtar");
		return;
	}
	if (!check(proc_run(argv, NULL, &text, 1 << 20, &err) == 0, "the seed's files can be read"))
		printf("# %s\n", err.message);
	check(text && strstr(text, "#cloud-config\n"), "user-data is a cloud-config");
	check(text && strstr(text, FAKE_GPU_MODALIAS), "it asks for the card's alias");
	check(text && !strstr(text, "@NONCE@") && !strstr(text, "@SCRIPT@") &&
	              !strstr(text, "@SETTLE@") && !strstr(text, "@MODALIAS@") &&
	              !strstr(text, "@DRIVER@"),
	      "no place of the templates is left open");
	check(text && (strstr(text, "\"nvidia\"]") != NULL) == b->options.driver,
	      "the guest is told to try a driver only where one is asked for");
}

static void expect_error(const struct boot_options *o, enum exit_code code, const char *word,
                         const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct boot_facts f = {0};

	if (!check(boot_run(o, &f, &err) < 0 && error_exit_code(&err) == code &&
	                   strstr(err.message, word),
	           "%s", what))
		printf("# code %d: %s\n", error_exit_code(&err),
		       err.message ? err.message : "(null)");
}

static void test_host_errors(struct bench *b)
{
	struct boot_options o = b->options;

	set_guest(b, "echo 'no such machine' >&2; exit 1");
	expect_error(&b->options, EXIT_HOST, "no such machine",
	             "a QEMU that does not start is the host's error, in its words");
	o.data_dir = "/nonexistent";
	expect_error(&o, EXIT_HOST, "/nonexistent/boot/smoke/",
	             "a missing template is named with its path");
	o = b->options;
	o.work_dir = "/nonexistent";
	expect_error(&o, EXIT_HOST, "/nonexistent", "a missing work directory is named");
	o = b->options;
	o.console_path = "/nonexistent/console.log";
	expect_error(&o, EXIT_HOST, "/nonexistent/console.log",
	             "a console log that cannot be written is named");
	write_script(b->qemu_img, "#!/bin/sh\necho 'bad image' >&2\nexit 1\n");
	expect_error(&b->options, EXIT_HOST, "bad image", "an overlay that fails is told");
	check(work_is_empty(b), "after all of these nothing is left in the work directory");
	write_script(b->qemu, "#!/bin/sh\necho 'name \"e1000\"'\n");
	expect_error(&b->options, EXIT_HOST, "pci-testdev", "a QEMU without the device is refused");
	setenv("PATH", "/nonexistent", 1);
	expect_error(&b->options, EXIT_HOST, "qemu-system-x86_64", "a missing QEMU is named");
}

static void test_usage_errors(const struct bench *b)
{
	struct boot_options o = b->options;

	o.bar_bytes = (UINT64_C(32) << 30) + 4096;
	expect_error(&o, EXIT_USAGE, "power of two", "a BAR that is no power of two is refused");
	o.bar_bytes = UINT64_C(1) << 50;
	expect_error(&o, EXIT_USAGE, "power of two", "a BAR of a pebibyte is refused");
	o.bar_bytes = 1 << 30;
	expect_error(&o, EXIT_USAGE, "out of the CPU's reach",
	             "a small BAR cannot be put out of reach, and that is said");
	o = b->options;
	o.memory_bytes = 4096;
	expect_error(&o, EXIT_USAGE, "memory", "a guest without memory is refused");
}

int main(void)
{
	struct bench b;

	bench_init(&b);
	test_frames(&b);
	test_bad_guests(&b);
	test_seed(&b);
	b.options.driver = true;
	test_seed(&b);
	b.options.driver = false;
	test_usage_errors(&b);
	test_host_errors(&b);
	setenv("PATH", "/usr/bin:/bin", 1);
	bench_free(&b);
	return tap_done();
}
