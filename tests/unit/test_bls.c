/* SPDX-License-Identifier: Apache-2.0 */
/* Boot entries of type 1, read as both boot loaders read them, and edited. */
#include "builder/bls.h"
#include "builder/cmdline.h"
#include "tests/unit/tap.h"

/* Fabricated after what these distributions' kernel-install hooks write. */
static const char el8[] = "title Rocky Linux (4.18.0-553.el8_10.x86_64) 8.10 (Green Obsidian)\n"
			  "version 4.18.0-553.el8_10.x86_64\n"
			  "linux /boot/vmlinuz-4.18.0-553.el8_10.x86_64\n"
			  "initrd /boot/initramfs-4.18.0-553.el8_10.x86_64.img $tuned_initrd\n"
			  "options $kernelopts $tuned_params\n"
			  "id rocky-20240601120000-4.18.0-553.el8_10.x86_64\n"
			  "grub_users $grub_users\n"
			  "grub_arg --unrestricted\n"
			  "grub_class kernel\n";

static const char el9[] =
	"title AlmaLinux (5.14.0-503.el9.x86_64) 9.5 (Teal Serval)\n"
	"version 5.14.0-503.el9.x86_64\n"
	"linux /vmlinuz-5.14.0-503.el9.x86_64\n"
	"initrd /initramfs-5.14.0-503.el9.x86_64.img $tuned_initrd\n"
	"options root=/dev/mapper/almalinux-root ro crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M "
	"rd.lvm.lv=almalinux/root dyndbg=\"file drm* +p\" $tuned_params\n"
	"grub_users $grub_users\n"
	"grub_arg --unrestricted\n"
	"grub_class almalinux\n";

/* As 90-loaderentry.install of systemd pads it. */
static const char systemd[] =
	"# Boot Loader Specification type#1 entry\n"
	"# File created by /usr/lib/kernel/install.d/90-loaderentry.install (systemd 257.7-1)\n"
	"title      Debian GNU/Linux 13 (trixie)\n"
	"version    6.12.48+deb13-amd64\n"
	"machine-id 0123456789abcdef0123456789abcdef\n"
	"sort-key   debian\n"
	"options    root=UUID=11111111-2222-3333-4444-555555555555 ro console=ttyS0 "
	"systemd.machine_id=0123456789abcdef0123456789abcdef\n"
	"linux      /0123456789abcdef0123456789abcdef/6.12.48+deb13-amd64/linux\n"
	"initrd     /0123456789abcdef0123456789abcdef/6.12.48+deb13-amd64/initrd.img-6.12.48\n";

static int parse(struct bls_entry *ret, const char *text)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	*ret = (struct bls_entry){0};
	return bls_parse(ret, text, strlen(text), "e.conf", &err);
}

static int parse_as_grub(struct bls_entry *ret, const char *text)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	*ret = (struct bls_entry){0};
	return bls_parse_as_grub(ret, text, strlen(text), "e.conf", &err);
}

/* The options as one line, by either reader; "refused" if there is no entry. */
static char *options_of(const char *text, bool as_grub)
{
	CLEANUP_BLS struct bls_entry e = {0};

	if ((as_grub ? parse_as_grub(&e, text) : parse(&e, text)) < 0)
		return str_copy("refused");
	return cmdline_join(&e.options);
}

static void check_options(const char *text, const char *spec, const char *grub, const char *what)
{
	CLEANUP_FREE char *by_spec = options_of(text, false), *by_grub = options_of(text, true);

	check_str(by_spec, spec, "%s: options as the specification has them", what);
	check_str(by_grub, grub, "%s: options as GRUB reads them", what);
}

static void test_forms(void)
{
	CLEANUP_BLS struct bls_entry e8 = {0}, e9 = {0}, sd = {0};
	CLEANUP_FREE char *options = NULL;

	check(parse(&e8, el8) == 0, "an entry of EL 8 is read");
	check_str(e8.title, "Rocky Linux (4.18.0-553.el8_10.x86_64) 8.10 (Green Obsidian)",
	          "its title has its blanks");
	check_str(e8.version, "4.18.0-553.el8_10.x86_64", "its version is known");
	check_str(e8.linux_path, "/boot/vmlinuz-4.18.0-553.el8_10.x86_64", "its kernel is known");
	check(e8.initrds.count == 2 && str_equal(e8.initrds.items[1], "$tuned_initrd"),
	      "a variable on the initrd line is a word of its own");
	check(e8.options.count == 2 && str_equal(e8.options.items[0], "$kernelopts"),
	      "$kernelopts stays as it stands");
	check(e8.options_lines == 1 && e8.grub_stops_at == 0, "nothing is odd about it");

	check(parse_as_grub(&e9, el9) == 0, "an entry of EL 9 is read as GRUB reads it");
	options = cmdline_join(&e9.options);
	check(strstr(options, "64G-:512M rd.lvm.lv=almalinux/root dyndbg=\"file drm* +p\" $tuned"),
	      "its options are all there, quotes too");
	check(e9.options.count == 6, "a word with blanks in quotes is one word");

	check(parse(&sd, systemd) == 0, "an entry of systemd's kernel-install is read");
	check_str(sd.version, "6.12.48+deb13-amd64", "padding is not part of a value");
	check(sd.options.count == 4 && sd.initrds.count == 1 && !sd.efi, "it is complete");
}

static void test_readers(void)
{
	check_options("linux /l\noptions a b\noptions c\n", "a b c", "a b",
	              "several options lines add up, but not for GRUB");
	check_options("linux /l\n\noptions a\n", "a", "", "an empty line ends GRUB's reading");
	check_options("linux /l\nversion\noptions a\n", "a", "", "so does a key without a value");
	check_options("linux /l\noptions\ta b\n", "a b", "",
	              "GRUB looks for a blank before it looks for a tab");
	check_options("linux\t/l\noptions\tb\n", "b", "b", "a tab alone is fine");
	check_options("\t linux /l\n  # options x\n  options   a \t b  \n", "a b", "a b",
	              "blanks around keys and values do not count");
	check_options("linux /l\r\noptions a b\r\n", "a b", "a b", "CRLF does not count");
	check_options("linux /l\roptions a\r", "a", "",
	              "a lone carriage return is a line break, but not for GRUB");
	check_options("\xef\xbb\xbflinux /l\noptions a\n", "refused", "refused",
	              "a BOM makes the first key another one");
	check_options("\xef\xbb\xbftitle T\nlinux /l\noptions a", "a", "a",
	              "a BOM before the title costs only the title");
	check_options("linux /l\noptions \"a b\"\n", "a b", "\"a b\"",
	              "quotes around a whole value are systemd-boot's");
	check_options("linux /l\nOptions a\n", "", "", "keys have no capitals");
	check_options("linux /l\noptions a # b\n", "a # b", "a # b",
	              "a comment is a line of its own");
}

static void test_choice(void)
{
	CLEANUP_BLS struct bls_entry spec = {0}, grub = {0}, efi = {0}, cut = {0};
	static const char twice[] = "title A\nlinux /old\ntitle B\nlinux /new\n"
				    "initrd /a\ninitrd /b /c\n";

	check(parse(&spec, twice) == 0 && parse_as_grub(&grub, twice) == 0, "keys may stand twice");
	check_str(spec.linux_path, "/new", "the last kernel counts");
	check_str(grub.linux_path, "/old", "for GRUB, the first one");
	check_str(grub.title, "A", "and the first title");
	check(spec.initrds.count == 3 && grub.initrds.count == 3, "initrd lines add up for both");
	check(spec.options_lines == 0, "that there are no options is told");

	check(parse(&efi, "title X\nefi /EFI/x.efi\n") == 0 && !efi.linux_path,
	      "an entry may boot an EFI program");
	check_str(efi.efi, "/EFI/x.efi", "which is known");
	bls_free(&efi);
	check(parse(&efi, "uki /EFI/Linux/x.efi\n") == 0 && str_equal(efi.efi, "/EFI/Linux/x.efi"),
	      "or a unified kernel image");

	check(parse_as_grub(&cut, "linux /l\n\n# c\n\noptions a\n\n") == 0 &&
	              cut.grub_stops_at == 2,
	      "the line at which GRUB stops is told");
	bls_free(&cut);
	check(parse_as_grub(&cut, "linux /l\noptions a\n\n# c\n\n") == 0 && cut.grub_stops_at == 0,
	      "unless nothing is lost");
}

static void check_refused(const char *text, size_t size, const char *why)
{
	CLEANUP_ERROR struct error err = ERROR_INIT, grub_err = ERROR_INIT;
	struct bls_entry e = {0};

	check(bls_parse(&e, text, size, "e.conf", &err) < 0 && err.code == EXIT_INPUT &&
	              strstr(err.message, why) && strstr(err.message, "'e.conf'") && !e.title,
	      "refused with its name, since %s", why);
	check(bls_parse_as_grub(&e, text, size, "e.conf", &grub_err) < 0 &&
	              strstr(grub_err.message, why),
	      "for GRUB too");
}

static void test_bounds(void)
{
	CLEANUP_FREE char *large = mem_alloc(70000), *many = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv words = {0};
	struct bls_entry e = {0};

	memset(large, 'x', 65536);
	memcpy(large, "linux /x\n#", 10);
	check(parse(&e, large) == 0, "64 KiB are read");
	bls_free(&e);
	large[65536] = 'x';
	check_refused(large, 65537, "it is larger than 64 KiB");
	check_refused("linux /a\0b\n", 11, "it has a NUL byte");
	check_refused("", 0, "it has neither 'linux' nor 'efi'");
	check_refused("title T\noptions linux\nlinux\n", 27, "it has neither 'linux' nor 'efi'");
	memcpy(large, "linux /x\noptions y", 18);
	memset(large + 18, 'y', 16384);
	check_refused(large, 18 + 16384, "longer than 16 KiB");
	strv_add(&words, "linux /x\noptions");
	for (int i = 0; i < 4097; i++)
		strv_add(&words, "a");
	many = strv_join(&words, " ");
	check_refused(many, strlen(many), "more than 4096 options");
	check(bls_parse_as_grub(&e, "title T\n\nlinux /l\n", 18, "e", &err) < 0 && err.hint &&
	              strstr(err.hint, "line 2"),
	      "a kernel that GRUB does not come to is told with the line where it stops");
}

static char *set(const char *text, const char *line)
{
	CLEANUP_STRV struct strv words = cmdline_split(line);

	return bls_set_options(text, &words);
}

static void check_set(const char *text, const char *line, const char *want, const char *what)
{
	CLEANUP_FREE char *once = set(text, line), *twice = set(once, line);

	check_str(once, want, "%s", what);
	check_str(twice, want, "the same once more: %s", what);
}

static void test_set(void)
{
	check_set("title T\nlinux /l\noptions a b\ninitrd /i\n", "a c",
	          "title T\nlinux /l\noptions a c\ninitrd /i\n", "options stay in their place");
	check_set("options a\n# c\noptions b\nlinux /l\n", "x", "options x\n# c\nlinux /l\n",
	          "further options lines go");
	check_set("options    a b\nlinux      /l\n", "x", "options    x\nlinux      /l\n",
	          "padding stays");
	check_set("options\ta b\nlinux /l\n", "x", "options x\nlinux /l\n",
	          "a tab becomes a blank, since GRUB takes no tab beside blanks");
	check_set("linux /l\r\noptions a\r\ninitrd /i\r\n", "x",
	          "linux /l\r\noptions x\r\ninitrd /i\r\n", "CRLF stays");
	check_set("linux /l\noptions a", "x", "linux /l\noptions x", "a missing line end too");
	check_set("title T\nlinux /l\n", "x y", "title T\nlinux /l\noptions x y\n",
	          "a line is added at the end");
	check_set("linux /l", "x", "linux /l\noptions x\n", "behind a line that does not end");
	check_set("linux /l\r\n", "x", "linux /l\r\noptions x\r\n", "with the file's line ends");
	check_set("linux /l\n\n\ntitle T\n", "x", "linux /l\noptions x\n\n\ntitle T\n",
	          "before the empty line where GRUB stops");
	check_set("linux /l\n# options a\n", "x", "linux /l\noptions x\n# options a\n",
	          "a comment is no options line");
	check_set("optionsx a\nlinux /l\n", "x", "optionsx a\nlinux /l\noptions x\n",
	          "a longer key is another one");
	check_set("linux /l\noptions\n", "x", "linux /l\noptions x\n", "a line without words");
	check_set("linux /l\noptions a\noptions b\n", "", "linux /l\n", "no words, no line");
	check_set("", "x", "options x\n", "an empty text");
}

static void test_set_real(void)
{
	CLEANUP_BLS struct bls_entry e = {0}, again = {0};
	CLEANUP_STRV struct strv bad = {0};
	CLEANUP_FREE char *text = NULL, *broken = NULL;

	check(parse_as_grub(&e, el9) == 0, "an entry is read");
	text = bls_set_options(el9, &e.options);
	check_str(text, el9, "its own options change no byte of it");
	strv_add(&e.options, "pci=nocrs,realloc");
	free(STEAL(text));
	text = bls_set_options(el9, &e.options);
	check(parse_as_grub(&again, text) == 0 && again.options.count == e.options.count &&
	              cmdline_holds(&again.options, "pci=realloc", NULL) &&
	              cmdline_count(&again.options, "root=/dev/mapper/almalinux-root") == 1,
	      "a parameter is added, and what was there stays");
	check(strlen(text) == strlen(el9) + strlen(" pci=nocrs,realloc"), "and nothing else");

	strv_add(&bad, "a=\"x\nlinux /evil\"");
	broken = bls_set_options("linux /l\n", &bad);
	check_str(broken, "linux /l\noptions a=\"x linux /evil\"\n",
	          "a line break in a word does not begin a line");
}

int main(void)
{
	test_forms();
	test_readers();
	test_choice();
	test_bounds();
	test_set();
	test_set_real();
	return tap_done();
}
