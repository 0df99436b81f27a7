/* SPDX-License-Identifier: Apache-2.0 */
/* Options; run from the root of the source tree (profiles/ is read). */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "builder/options.h"
#include "tap.h"

struct parsed {
	struct options o;
	struct error err;
	int result;
};

static void parsed_free(struct parsed *p)
{
	options_free(&p->o);
	error_free(&p->err);
}
#define CLEANUP_PARSED __attribute__((cleanup(parsed_free)))

/* The words of 'line', parsed as the arguments of 'command'. */
static struct parsed parse(const char *command, const char *line)
{
	struct parsed p = {.err = ERROR_INIT};
	CLEANUP_STRV struct strv argv = {0};
	CLEANUP_STRV struct strv words = strv_split(line, " ");

	strv_add(&argv, command);
	strv_add_all(&argv, &words);
	p.result = options_parse(&p.o, command, (int)argv.count, argv.items, &p.err);
	return p;
}

static void test_defaults(void)
{
	CLEANUP_PARSED struct parsed p = parse("build", "dir/ubuntu-24.04.qcow2");

	check(p.result == 0, "an image alone is enough");
	check_str(p.o.output, "dist/ubuntu-24.04-gpu.qcow2",
	          "the artifact is named after the base");
	check_str(p.o.profile, "gpu-base", "the profile is gpu-base");
	check(p.o.nocrs && p.o.realloc && p.o.module_blacklist && p.o.boot_test,
	      "everything that protects is on");
	check(p.o.bar_bytes == 32ull << 30, "the BAR is 32 GiB");
	check(strv_has(&p.o.stages, "modprobe") && strv_has(&p.o.stages, "seal"),
	      "the profile says which stages run");
}

static void test_urls(void)
{
	CLEANUP_PARSED struct parsed bare = parse("build", "https://h/x.img?token=1");
	CLEANUP_PARSED struct parsed sums =
		parse("build", "https://h/a/x.img?token=1 --base-sums=https://h/SHA256SUMS");
	CLEANUP_PARSED struct parsed local = parse("build", "x.img --base-sums=https://h/S");

	check(bare.result < 0 && bare.err.code == EXIT_USAGE, "a URL needs a checksum");
	check(sums.result == 0, "a URL with sums is taken");
	check_str(sums.o.output, "dist/x-gpu.qcow2", "a query is no part of a name");
	check(local.result < 0, "sums without a URL are refused");
}

static void test_lists(void)
{
	CLEANUP_PARSED struct parsed p =
		parse("build", "--cmdline-add=a=1 --cmdline-add b x.qcow2 --no-nocrs --block=foo");

	check(p.result == 0 && p.o.cmdline.add.count == 2, "lists add up, each once");
	check(!p.o.nocrs && p.o.realloc, "--no-nocrs leaves realloc alone");
	check(strv_has(&p.o.block, "foo"), "a module to block");
}

static void test_firmware(void)
{
	CLEANUP_PARSED struct parsed all = parse("boot", "--firmware=all x");
	CLEANUP_PARSED struct parsed secure = parse("boot", "--firmware=uefi-secure-boot x");
	CLEANUP_PARSED struct parsed both = parse("boot", "--firmware=both x");
	CLEANUP_PARSED struct parsed last = parse("boot", "--firmware=both --firmware=uefi x");

	check(both.o.firmware.count == 2, "both is BIOS and UEFI");
	check(all.o.firmware.count == 3 && strv_has(&all.o.firmware, "uefi-secure-boot"),
	      "all is these and UEFI with Secure Boot");
	check(secure.o.firmware.count == 1 && strv_has(&secure.o.firmware, "uefi-secure-boot"),
	      "which can be asked for alone");
	check(last.o.firmware.count == 1 && strv_has(&last.o.firmware, "uefi"),
	      "the last one wins");
}

static void test_cache(void)
{
	CLEANUP_PARSED struct parsed plain = parse("build", "x.qcow2");
	CLEANUP_PARSED struct parsed off = parse("build", "--no-cache --compact --cache-size=1M x");
	CLEANUP_PARSED struct parsed ls = parse("cache", "ls -v");
	CLEANUP_PARSED struct parsed prune = parse("cache", "prune --max-size=0 --kind=initramfs");
	CLEANUP_PARSED struct parsed all = parse("cache", "--all prune");

	check(plain.o.cache && plain.o.cache_bytes == 10ull << 30 && !plain.o.compact,
	      "results are kept, up to 10 GiB, and clusters are taken over");
	check(off.result == 0 && !off.o.cache && off.o.compact && off.o.cache_bytes == 1 << 20,
	      "each of these can be said otherwise");
	check(ls.result == 0 && ls.o.level == LOG_VERBOSE, "the cache can be listed");
	check_str(ls.o.action, "ls", "the action stands where others have an image");
	check(ls.o.cache_bytes == 10ull << 30 && !ls.o.all, "and its bound is the default");
	check(prune.result == 0 && prune.o.cache_bytes == 0, "a prune may leave nothing");
	check_str(prune.o.kind, "initramfs", "or be of one kind");
	check(all.result == 0 && all.o.all, "or of all, said before or after the action");
}

static void test_cache_refused(void)
{
	static const char *const lines[] = {
		"",
		"list",
		"ls prune",
		"ls --all",
		"prune --kind=../x",
		"prune --kind=",
		"prune --max-size=lots",
		"prune --max-size=-1",
		"prune --no-cache",
		"ls --compact",
		"-c x.yaml ls",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		CLEANUP_PARSED struct parsed p = parse("cache", lines[i]);

		check(p.result < 0 && p.err.code == EXIT_USAGE && p.err.message && p.err.hint,
		      "'cache %s' is a usage error with a hint", lines[i]);
	}
}

static void test_refused(void)
{
	static const char *const lines[] = {
		"--nonsense x",
		"--timeout=0 x",
		"--timeout=abc x",
		"--bar-size=3G x",
		"--bar-size=1T x",
		"--exec=vm x",
		"--compression=xz x",
		"--cmdline-add=a;b x",
		"--cmdline-add=$x x",
		"--block=../evil x",
		"a b",
		"--profile=../x x",
		"--cache-size=0 x",
		"--cache-size=ten x",
		"--no-cache=yes x",
		"--max-size=1G x",
		"--all x",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		CLEANUP_PARSED struct parsed p = parse("build", lines[i]);

		check(p.result < 0 && p.err.code == EXIT_USAGE && p.err.message,
		      "'%s' is a usage error", lines[i]);
	}
}

static void test_driver(void)
{
	CLEANUP_PARSED struct parsed old = parse("build", "--driver-branch=535 x.img");
	CLEANUP_PARSED struct parsed new = parse("build", "--driver-branch=580 x.img");
	CLEANUP_PARSED struct parsed given =
		parse("build", "--driver-branch=535 --driver-flavour=open --dkms=unregister x.img");
	CLEANUP_PARSED struct parsed source =
		parse("build", "--driver-branch=580 --driver-source=nvidia-repo x.img");
	CLEANUP_PARSED struct parsed host =
		parse("build", "--profile=container-host --driver-branch=580 x.img");
	CLEANUP_PARSED struct parsed any = parse("inspect", "--profile=gpu-baked x.img");

	check(old.result == 0 && old.o.driver_flavour == DRIVER_PROPRIETARY,
	      "an older branch is baked with proprietary modules");
	check(new.result == 0 && new.o.driver_flavour == DRIVER_OPEN,
	      "a newer one with open modules");
	check(given.result == 0 && given.o.driver_flavour == DRIVER_OPEN && given.o.dkms_unregister,
	      "unless something else is asked for");
	check(source.o.driver_source == DRIVER_NVIDIA_REPO, "a source is known by its name");
	check_str(host.o.containerd_runtime, "nvidia", "a container host's runtime is nvidia's");
	check(any.result == 0 && strv_has(&any.o.needs, "driver-branch"),
	      "inspect asks for a driver of any branch");
}

static void test_driver_refused(void)
{
	static const char *const bad[] = {
		"--driver-branch=abc x.img",
		"--driver-branch=535.1 x.img",
		"--driver-source=run x.img",
		"--driver-branch=535 --driver-source=run x.img",
		"--driver-branch=535 --driver-source=debs --driver-path=/no/such x.img",
		"--driver-branch=535 --driver-path=/tmp x.img",
		"--driver-branch=535 --driver-repo=http://h/ x.img",
		"--driver-branch=535 --driver-source=nvidia-repo --driver-repo=http://h/ x.img",
		"--replace-driver x.img",
		"--default-runtime x.img",
		"--containerd-runtime=crun x.img",
		"--profile=gpu-baked x.img",
		"--profile=container-host x.img",
		"--toolkit-repo=http://h/ --containerd-runtime=nvidia x.img",
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CLEANUP_PARSED struct parsed p = parse("build", bad[i]);

		check(p.result < 0 && p.err.code == EXIT_USAGE, "refused: build %s", bad[i]);
	}
}

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (file) {
		fputs(text, file);
		fclose(file);
	}
}

static void test_yaml(void)
{
	char path[] = "/tmp/gpuimg-options.XXXXXX";
	CLEANUP_CLOSE int fd = mkstemp(path);
	CLEANUP_FREE char *line = str_format("-c %s --cmdline-add=c=3 --no-realloc", path);

	write_text(path, "base: from-yaml.qcow2\nnocrs: false\nboot-test: false\n"
	                 "cmdline-add: [a=1, b=2]\nfirmware: both\nbar-size: 64G\ntimeout: 90\n"
	                 "exec: sandbox\nwork-dir: /somewhere\n"
	                 "cache: false\ncache-size: 3G\ncompact: true\n");
	CLEANUP_PARSED struct parsed p = parse("build", line);

	check(fd >= 0 && p.result == 0, "image.yaml is read");
	check_str(p.o.base, "from-yaml.qcow2", "the base stands in it");
	check(!p.o.nocrs && !p.o.boot_test && !p.o.realloc, "what it switches off, and argv");
	check(p.o.cmdline.add.count == 3, "lists of both add up");
	check(p.o.bar_bytes == 64ull << 30 && p.o.timeout_s == 90 && p.o.exec == EXEC_SANDBOX,
	      "sizes, numbers and words are read");
	check_str(p.o.work_dir, "/somewhere", "a directory is read");
	check(!p.o.cache && p.o.cache_bytes == 3ull << 30 && p.o.compact,
	      "what is kept and how it is compressed are read");
	CLEANUP_FREE char *over = str_format("-c %s other.qcow2 --bar-size=16G", path);
	CLEANUP_PARSED struct parsed q = parse("build", over);

	check_str(q.o.base, "other.qcow2", "the command line's base wins");
	check(q.o.bar_bytes == 16ull << 30, "the command line's value wins");
	unlink(path);
}

static void test_yaml_refused(void)
{
	static const char *const texts[] = {
		"cache-size: 0\n",  "cache-size: lots\n", "cache: 10G\n", "compact: yes\n",
		"no-cache: true\n", "max-size: 1G\n",     "all: true\n",  "kind: initramfs\n"};
	char path[] = "/tmp/gpuimg-options.XXXXXX";
	CLEANUP_CLOSE int fd = mkstemp(path);
	CLEANUP_FREE char *line = str_format("-c %s x.qcow2", path);

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		write_text(path, texts[i]);
		CLEANUP_PARSED struct parsed p = parse("build", line);

		check(fd >= 0 && p.result < 0 && p.err.code == EXIT_USAGE,
		      "'%.*s' in image.yaml is a usage error", (int)strlen(texts[i]) - 1, texts[i]);
	}
	unlink(path);
}

int main(void)
{
	setenv("GPUIMG_DATA_DIR", ".", 1);
	test_defaults();
	test_urls();
	test_lists();
	test_firmware();
	test_cache();
	test_cache_refused();
	test_refused();
	test_driver();
	test_driver_refused();
	test_yaml();
	test_yaml_refused();
	return tap_done();
}
