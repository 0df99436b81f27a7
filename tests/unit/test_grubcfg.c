/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>

#include "builder/grubcfg.h"
#include "tests/unit/tap.h"

#define GOLDEN "tests/golden/grub/"

static char *read_golden(const char *name)
{
	CLEANUP_FREE char *path = str_format(GOLDEN "%s", name);
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *text = mem_alloc(65536);
	ssize_t n = fd >= 0 ? read(fd, text, 65535) : -1;

	if (!check(n > 0, "the sample %s can be read (tests run from the source tree)", path))
		exit(tap_done());
	return text;
}

/* Parses what must be valid; an error is shown. */
static struct grub_config parse(const char *text)
{
	struct grub_config config = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (grubcfg_parse(&config, text, "grub.cfg", &err) < 0)
		printf("# %s\n", err.message);
	return config;
}

static char *joined_args(const struct grub_config *config, size_t index)
{
	return index < config->count ? strv_join(&config->entries[index].args, " ") : NULL;
}

static const char *initrd(const struct grub_config *config, size_t index, size_t which)
{
	if (index >= config->count || which >= config->entries[index].initrds.count)
		return NULL;
	return config->entries[index].initrds.items[which];
}

static void test_debian(void)
{
	CLEANUP_FREE char *text = read_golden("debian-12.cfg");
	CLEANUP_GRUBCFG struct grub_config config = parse(text);
	CLEANUP_FREE char *normal = joined_args(&config, 0), *recovery = joined_args(&config, 2);
	size_t recoveries = 0;

	if (!check(config.count == 5, "Debian with two kernels has five entries"))
		return;
	check_str(config.entries[0].title, "Debian GNU/Linux", "the first has its plain title");
	check_str(config.entries[0].kernel, "/vmlinuz-6.1.0-57-amd64", "its kernel is known");
	check_str(initrd(&config, 0, 0), "/initrd.img-6.1.0-57-amd64", "so is its initrd");
	check_str(normal,
	          "root=UUID=0f2f6c0e-7a3c-4b57-9d0e-1d5a4c3b2a19 ro pci=nocrs pci=realloc "
	          "module_blacklist=nouveau,nova_core,nova_drm console=tty0 console=ttyS0,115200 "
	          "dyndbg=file pci.c +p",
	          "its arguments come without GRUB's quotes");
	check(config.entries[0].args.count == 8, "a quoted blank does not split a word");
	check_str(config.entries[4].title,
	          "Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux "
	          "6.1.0-49-amd64 (recovery mode)",
	          "an entry in a submenu has the submenu's title before its own");
	check_str(recovery,
	          "root=UUID=0f2f6c0e-7a3c-4b57-9d0e-1d5a4c3b2a19 ro single pci=nocrs pci=realloc "
	          "module_blacklist=nouveau,nova_core,nova_drm",
	          "the recovery entry has GRUB_CMDLINE_LINUX only");
	for (size_t i = 0; i < config.count; i++)
		recoveries += config.entries[i].recovery;
	check(recoveries == 2, "the recovery entries are known as such");
	check(strncmp(text, "#", 1) == 0 && config.entries[0].line > 100 &&
	              config.entries[0].line < 200,
	      "an entry knows the line of its linux command");
	check(config.sources.count == 2, "both sources of custom.cfg are told");
	check_str(config.sources.count ? config.sources.items[0] : NULL,
	          "${config_directory}/custom.cfg", "a source keeps its variable");
}

static void test_ubuntu(void)
{
	CLEANUP_FREE char *text = read_golden("ubuntu-24.04.cfg");
	CLEANUP_GRUBCFG struct grub_config config = parse(text);
	CLEANUP_FREE char *recovery = joined_args(&config, 2);

	if (!check(config.count == 3, "Ubuntu with one kernel has three entries"))
		return;
	check(strv_has(&config.entries[0].args, "$vt_handoff"),
	      "a variable that may be empty stays as a word of its own");
	check(config.entries[0].args.count == 9, "and takes nothing else along");
	check_str(recovery,
	          "root=UUID=0f2f6c0e-7a3c-4b57-9d0e-1d5a4c3b2a19 ro single nomodeset pci=nocrs "
	          "pci=realloc",
	          "Ubuntu's recovery entry is read");
}

static void test_initrdless(void)
{
	CLEANUP_FREE char *text = read_golden("ubuntu-initrdless.cfg");
	CLEANUP_GRUBCFG struct grub_config config = parse(text);

	if (!check(config.count == 2, "both sides of an 'if' give an entry"))
		return;
	check(config.entries[0].initrds.count == 2, "an initrd command may name several images");
	check_str(initrd(&config, 0, 1), "/boot/initrd.img-6.8.0-1029-aws",
	          "the side with initrd has it");
	check(config.entries[1].initrds.count == 0, "the initrdless side has none");
	check(strv_has(&config.entries[1].args, "panic=-1"), "each side has its own arguments");
}

static void test_xen(void)
{
	CLEANUP_FREE char *text = read_golden("debian-12-xen.cfg");
	CLEANUP_GRUBCFG struct grub_config config = parse(text);
	CLEANUP_FREE char *args = joined_args(&config, 3);

	if (!check(config.count == 6, "Xen entries count beside the plain ones"))
		return;
	check(!config.entries[0].xen && config.entries[3].xen, "and are known as such");
	check_str(config.entries[3].kernel, "/vmlinuz-6.1.0-57-amd64",
	          "the kernel is the hypervisor's first module");
	check_str(args, "root=UUID=0f2f6c0e-7a3c-4b57-9d0e-1d5a4c3b2a19 ro pci=nocrs quiet",
	          "the module's arguments come without the placeholder");
	check_str(initrd(&config, 3, 0), "/initrd.img-6.1.0-57-amd64",
	          "the second module is the initrd, its option is none");
	check_str(config.entries[4].title,
	          "Advanced options for Debian GNU/Linux (with Xen hypervisor)>Xen hypervisor, "
	          "version 4.17-amd64>Debian GNU/Linux, with Xen 4.17-amd64 and Linux "
	          "6.1.0-57-amd64",
	          "titles of nested submenus are joined");
	check(config.entries[5].recovery, "a recovery entry under Xen is one");
}

static void test_elsewhere(void)
{
	CLEANUP_FREE char *text = read_golden("el-9.cfg");
	CLEANUP_GRUBCFG struct grub_config el = parse(text);
	CLEANUP_GRUBCFG struct grub_config uki =
		parse("menuentry 'a' {\n chainloader /EFI/Linux/debian-6.12.efi\n}\n");
	CLEANUP_GRUBCFG struct grub_config windows =
		parse("menuentry 'Windows' {\n chainloader /EFI/Microsoft/Boot/bootmgfw.efi\n}\n"
	              "configfile /boot/other.cfg\n");

	check(el.count == 0 && el.loads_blscfg, "a blscfg command is told");
	check(!el.loads_uki && el.sources.count == 2, "and does not hide what else is there");
	check(uki.loads_uki && uki.count == 0, "a chainloaded unified kernel image is told");
	check(!windows.loads_uki && !windows.loads_blscfg, "another system's loader is not one");
	check(windows.sources.count == 1, "a configfile is told as a source");
}

static void test_words(void)
{
	CLEANUP_GRUBCFG struct grub_config config = parse(
		"menuentry --class os --id=x \"A \\\"b\\\" \\$c\" --unrestricted {\r\n"
		"  linux /vmlinuz a\\ b 'c \\ d'\"e f\"g \"h\\qi\" \\\n j=\\\n1 k#l ${m}n '' # o\r\n"
		"  initrd newc:f:/f ($root)/i; initrd /k }\n"
		"menuentry $menuentry_id_option 'id' 'it'\\''s' { linuxefi ($root)/vmlinuz-2 "
		"if done x=\"$y z\"; }\n"
		"menuentry d { linux16 /three; }; menuentry e { $linux /four a; $initrd /i }\n"
		"linux=5 /no\n");

	if (!check(config.count == 4, "four linux commands are four entries"))
		return;
	check_str(config.entries[0].title, "A \"b\" $c",
	          "escapes are taken off and options are no title");
	check(config.entries[0].args.count == 6, "words split as in GRUB, empty ones count not");
	check_str(config.entries[0].args.items[0], "a b", "an escaped blank does not split");
	check_str(config.entries[0].args.items[1], "c \\ de fg", "quoted pieces make one word");
	check_str(config.entries[0].args.items[2], "h\\qi", "other escapes stay in double quotes");
	check_str(config.entries[0].args.items[3], "j=1", "a continued line may cut a word");
	check_str(config.entries[0].args.items[4], "k#l", "a # inside of a word is no comment");
	check_str(config.entries[0].args.items[5], "${m}n", "a variable stays as it stands");
	check_str(initrd(&config, 0, 0), "/f", "newc: is taken off an initrd");
	check_str(initrd(&config, 0, 1), "/i", "so is the root device");
	check_str(config.entries[1].title, "it's", "an id from a variable's option is no title");
	check_str(config.entries[1].kernel, "/vmlinuz-2", "linuxefi counts");
	check(strv_has(&config.entries[1].args, "done"), "reserved words are plain arguments");
	check_str(config.entries[2].kernel, "/three", "linux16 counts");
	check_str(config.entries[3].kernel, "/four", "a loader chosen by a variable counts");
	check_str(initrd(&config, 3, 0), "/i", "with its initrd");
}

static void test_shared_initrd(void)
{
	CLEANUP_GRUBCFG struct grub_config config =
		parse("menuentry a {\nif [ $x = 1 ]; then linux /a\nelif true; then linux /b\n"
	              "else linux /c\nfi\ninitrd /i\n}\n"
	              "menuentry b {\nlinux /d\nif true; then initrd /j; fi\n}\n"
	              "menuentry c {\nlinux /e\nlinux /f\ninitrd /k\n}\n"
	              "menuentry d {\ninitrd /l\n}\n"
	              "function f {\nlinux /g\n}\nfor i in 1 2; do linux /h $i; done\n"
	              "while true; do echo; done\nuntil true; do echo; done\ninitrd /m\n");

	if (!check(config.count == 8, "all linux commands are found"))
		return;
	for (size_t i = 0; i < 3; i++)
		check_str(initrd(&config, i, 0), "/i", "an initrd after 'fi' serves side %zu", i);
	check_str(initrd(&config, 3, 0), "/j", "an initrd inside an 'if' serves the kernel before");
	check(config.entries[4].initrds.count == 0, "a kernel that another replaces gets none");
	check_str(initrd(&config, 5, 0), "/k", "the kernel in force gets it");
	check(config.entries[0].initrds.count == 1, "other menu entries are left alone");
	check_str(config.entries[7].title, "", "a linux command outside of the menu has no title");
	check_str(initrd(&config, 7, 0), "/m", "and its initrd");
}

static void refused(const char *text, const char *part, const char *what)
{
	struct grub_config config = {.loads_uki = true};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int r = grubcfg_parse(&config, text, "/boot/grub/grub.cfg", &err);

	check(r < 0 && config.loads_uki, "%s is refused, the result not touched", what);
	check(err.message && strstr(err.message, part) && err.code == EXIT_INPUT,
	      "%s: the message says '%s'", what, part);
	if (err.message && !strstr(err.message, part))
		printf("# %s\n", err.message);
	if (r == 0)
		grubcfg_free(&config);
}

static void test_refused(void)
{
	refused("a\nb 'c\nd\n", "line 2: the quote ' is not closed", "an open single quote");
	refused("a\n\"c\nd\n", "line 2: the quote \" is not closed", "an open double quote");
	refused("\nmenuentry a {\nlinux /x\n", "'}' should close line 2", "an open brace");
	refused("menuentry a {\n}\n}\n", "line 3: } where a command", "a brace too many");
	refused("if true; then\nmenuentry a {\n}\n", "'fi' should close line 1", "an open 'if'");
	refused("if true\nfi\n", "'then' should close line 1", "an 'if' without 'then'");
	refused("fi\n", "line 1: fi where a command", "a 'fi' without 'if'");
	refused("while true; do a\n", "'done' should close line 1", "an open loop");
	refused("echo a | b\n", "no '|'", "a pipe");
	refused("echo a ;; b\n", "no ';'", "a double semicolon");
	refused("linux /x $\n", "'$' without", "a lone $");
	refused("linux /x ${y\n", "'$' without", "an open ${");
	refused("menuentry a {\n} b\n", "line 2: b where a newline", "a word after a block");
	refused("menuentry a\n{\n}\n", "line 2: { where a command", "a brace on a line of its own");
	refused("echo \\", "end of the file", "a backslash at the end");
}

static char *repeated(const char *s, size_t count)
{
	char *text = mem_alloc(strlen(s) * count + 1), *end = text;

	while (count--)
		end = stpcpy(end, s);
	return text;
}

static void test_bounds(void)
{
	CLEANUP_FREE char *deep = repeated("submenu x {\n", 65), *deep_if = repeated("if ", 100000);
	CLEANUP_FREE char *many = repeated("linux /x;", 4097), *most = repeated("linux /x;", 4096);
	CLEANUP_FREE char *large = repeated("# 345678901234\n", ((size_t)4 << 20) / 15 + 1);
	CLEANUP_FREE char *sides = repeated("if a; then linux /x; fi\n", 4000);
	CLEANUP_FREE char *initrds = repeated("initrd /x\n", 100);
	CLEANUP_FREE char *product = str_format("%s%s", sides, initrds);
	CLEANUP_FREE char *args = repeated("quiet ", 3000), *line = str_format("linux /x %s", args);
	CLEANUP_GRUBCFG struct grub_config config = parse(most);

	check(config.count == 4096, "4096 entries are taken");
	refused(many, "more than 4096", "one entry more");
	refused(deep, "more than 64 levels", "a nest of 65 levels");
	refused(deep_if, "more than 64 levels", "an endless 'if if if'");
	refused(large, "larger than 4 MiB", "a text beyond 4 MiB");
	refused(product, "more than 16384 initrd", "a product of kernels and initrds");
	refused(line, "longer than 16384", "an endless command line");
}

/* Nothing is asserted but that it returns: the sanitizers do the rest. */
static size_t try_parse(const char *text)
{
	struct grub_config config = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int r = grubcfg_parse(&config, text, "fuzz", &err);

	if (r < 0)
		return 0;
	grubcfg_free(&config);
	return 1;
}

static void test_damage(const char *name, size_t step)
{
	CLEANUP_FREE char *text = read_golden(name);
	size_t length = strlen(text), good = 0, bad = 0;
	unsigned seed = 12345;

	for (size_t i = 0; i < length; i += step) {
		/* a copy of its own size, so that reading one byte too many is seen */
		CLEANUP_FREE char *cut = mem_copy(text, i);

		bad += !try_parse(cut);
	}
	check(bad > 0, "%s cut anywhere never crashes, and is refused at times", name);
	for (int i = 0; length && i < 3000; i++) {
		CLEANUP_FREE char *damaged = mem_copy(text, length);

		for (int flips = 0; flips < 4; flips++) {
			seed = seed * 1103515245 + 12345;
			((unsigned char *)damaged)[(seed >> 8) % length] ^= 1U << (seed >> 4) % 8;
		}
		good += try_parse(damaged);
	}
	check(good > 0 && good < 3000, "%s with random bit flips never crashes", name);
}

int main(void)
{
	test_debian();
	test_ubuntu();
	test_initrdless();
	test_xen();
	test_elsewhere();
	test_words();
	test_shared_initrd();
	test_refused();
	test_bounds();
	test_damage("ubuntu-initrdless.cfg", 1);
	test_damage("debian-12-xen.cfg", 13);
	return tap_done();
}
