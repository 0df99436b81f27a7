/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PE files of an EFI system partition. They are made here, field by field, so that each can be
 * wrong in its own way. Real ones are too large to be kept.
 */
#include <endian.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "builder/fd.h"
#include "builder/uki.h"
#include "tests/unit/pe-maker.h"
#include "tests/unit/tap.h"

static void sign(struct image *pe, uint32_t size)
{
	put32(pe, OPTIONAL_AT + 112 + 32, (uint32_t)pe->size);
	put32(pe, OPTIONAL_AT + 112 + 36, size);
	pe->size += size;
}

static int open_image(const struct image *pe)
{
	int fd = memfd_create("uki", MFD_CLOEXEC);

	if (fd < 0 || fd_write_all(fd, pe->bytes, pe->size) < 0)
		printf("Bail out! cannot make a file in memory\n");
	return fd;
}

static const struct part plain[] = {
	{".text", "code", 0},
	{".bss", "", 4096},
	{".sdmagic", "#### LoaderInfo: systemd-stub 257.7 ####", 0},
	{".osrel", "ID=debian\n", 0},
	{".cmdline", "root=LABEL=r ro pci=nocrs\r\n\n", 0},
	{".uname", "6.12.48+deb13-amd64", 0},
	{".initrd", "\0initramfs", 10},
	{".linux", "kernel", 0},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static char *text_of(const struct uki *u, const char *name, int fd)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const struct uki_section *s = uki_find(u, name);
	char *text = NULL;

	if (!s || uki_text(&text, s, fd, "x.efi", &err) < 0)
		return NULL;
	return text;
}

static void check_text(const struct uki *u, int fd, const char *section, const char *want,
                       const char *what)
{
	CLEANUP_FREE char *text = text_of(u, section, fd);

	check_str(text, want, "%s", what);
}

static void test_plain(void)
{
	static struct image pe;
	CLEANUP_UKI struct uki u = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	pe_make(&pe, plain, COUNT(plain));
	CLEANUP_CLOSE int fd = open_image(&pe);
	check(uki_read(&u, fd, "x.efi", &err) == 0 && u.count == COUNT(plain), "a UKI is read");
	check(uki_is_unified(&u) && !u.is_signed && u.profiles == 0,
	      "it is unified, not signed, and has no profiles");
	check_text(&u, fd, ".cmdline", "root=LABEL=r ro pci=nocrs",
	           "its command line is without line ends");
	check_text(&u, fd, ".uname", "6.12.48+deb13-amd64", "its kernel's version is read");
	check_text(&u, fd, ".osrel", "ID=debian", "and its os-release");
	check(!uki_find(&u, ".cmd") && !uki_find(&u, ".cmdline2"), "names are compared whole");
	check(uki_find(&u, ".sdmagic") && uki_find(&u, ".cmdline")->size_bytes == 28,
	      "a name may fill its eight bytes, and padding does not count");
	check(uki_find(&u, ".bss")->size_bytes == 0, "what only memory has is empty");
	check_str(uki_identify(&u, fd), "uki", "it is named");
}

static void test_copy(void)
{
	static struct image pe;
	CLEANUP_UKI struct uki u = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int to = memfd_create("copy", MFD_CLOEXEC),
			  full = open("/dev/full", O_WRONLY);
	char got[16] = {0};

	pe_make(&pe, plain, COUNT(plain));
	/* an empty text has no raw data, so this one is set by hand */
	put32(&pe, section_at(6) + 16, ALIGNMENT);
	put32(&pe, section_at(6) + 20, DATA_AT);
	memcpy(pe.bytes + DATA_AT, "\0initramfs", 10);
	CLEANUP_CLOSE int fd = open_image(&pe);
	check(uki_read(&u, fd, "x.efi", &err) == 0 &&
	              uki_copy(uki_find(&u, ".initrd"), fd, to, "x.efi", &err) == 0,
	      "a section is copied");
	check(pread(to, got, sizeof(got), 0) == 10 && memcmp(got, "\0initramfs", 10) == 0,
	      "byte for byte, NUL bytes too, without the padding");
	check(lseek(fd, 0, SEEK_CUR) == (off_t)pe.size, "the descriptor's place is left alone");
	check(full < 0 || (uki_copy(uki_find(&u, ".initrd"), fd, full, "x.efi", &err) < 0 &&
	                   strstr(err.message, "'x.efi'")),
	      "a full disk is an error");
	error_free(&err);
	check(ftruncate(fd, DATA_AT + 4) == 0 &&
	              uki_copy(uki_find(&u, ".initrd"), fd, to, "x.efi", &err) < 0 &&
	              err.code == EXIT_INPUT,
	      "a file that became shorter is an error");
}

static void test_sizes(void)
{
	static const struct part parts[] = {
		{".long", "text", 0x1000}, /* VirtualSize > SizeOfRawData: zeroes follow */
		{".cut", "abcdef\n", 3},   {".nul", "abc", 0},    {".over", "over", 0},
		{"/4", "debug", 0},        {"ninebytes", "x", 0},
	};
	static struct image pe;
	CLEANUP_UKI struct uki u = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	pe_make(&pe, parts, COUNT(parts));
	put32(&pe, section_at(2) + 8, 0); /* an old linker */
	put32(&pe, section_at(3) + 20, DATA_AT + 1);
	CLEANUP_CLOSE int fd = open_image(&pe);
	check(uki_read(&u, fd, "x.efi", &err) == 0, "sections of odd sizes are read");
	check(uki_find(&u, ".long")->size_bytes == ALIGNMENT,
	      "what is larger in memory ends with the file's part");
	check_text(&u, fd, ".long", "text", "and its text before the zeroes");
	check_text(&u, fd, ".cut", "abc", "what is smaller in memory is cut");
	check_text(&u, fd, ".nul", "abc", "without a size in memory, the file's counts");
	check_text(&u, fd, ".over", "ext", "one section over another is read from its own place");
	check(uki_find(&u, "/4") && uki_find(&u, "ninebyte"), "any name may stand there");
	check(!uki_is_unified(&u), "without .linux it is no unified kernel image");
}

static void test_profiles(void)
{
	static const struct part parts[] = {
		{".cmdline", "base", 0},   {".linux", "kernel", 0}, {".profile", "ID=main", 0},
		{".profile", "ID=two", 0}, {".cmdline", "two", 0},  {".profile", "ID=three", 0},
		{".uname", "3", 0},
	};
	static const char *const want[] = {"base", "two", "base"};
	static struct image pe;
	CLEANUP_UKI struct uki u = {0}, single = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	pe_make(&pe, parts, COUNT(parts));
	CLEANUP_CLOSE int fd = open_image(&pe);
	check(uki_read(&u, fd, "x.efi", &err) == 0 && u.profiles == 3, "profiles are counted");
	for (unsigned i = 0; i < COUNT(want); i++) {
		CLEANUP_FREE char *text = NULL;

		check(uki_text(&text, uki_find_in_profile(&u, i, ".cmdline"), fd, "x", &err) == 0,
		      "profile %u has a command line", i);
		check_str(text, want[i], "its own, or that of all");
		check(uki_find_in_profile(&u, i, ".linux"), "and the kernel of all");
	}
	check(!uki_find_in_profile(&u, 0, ".uname") && uki_find_in_profile(&u, 2, ".uname"),
	      "what only one has, the others have not");
	check(!uki_find_in_profile(&u, 3, ".linux"), "a profile that is not there has nothing");

	pe_make(&pe, plain, COUNT(plain));
	CLEANUP_CLOSE int single_fd = open_image(&pe);
	check(uki_read(&single, single_fd, "x", &err) == 0 &&
	              uki_find_in_profile(&single, 0, ".cmdline") ==
	                      uki_find(&single, ".cmdline") &&
	              !uki_find_in_profile(&single, 1, ".cmdline"),
	      "an image without profiles is its own profile 0");
}

static void test_signature(void)
{
	static struct image pe;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct uki u = {0};
	int fd;

	pe_make(&pe, plain, COUNT(plain));
	sign(&pe, 1024);
	fd = open_image(&pe);
	check(uki_read(&u, fd, "x.efi", &err) == 0 && u.is_signed, "a signature is seen");
	uki_free(&u);
	close(fd);

	put32(&pe, OPTIONAL_AT + 112 + 36, 0);
	fd = open_image(&pe);
	check(uki_read(&u, fd, "x.efi", &err) == 0 && !u.is_signed, "an empty one is none");
	uki_free(&u);
	close(fd);

	put32(&pe, OPTIONAL_AT + 112 + 36, 1024);
	put32(&pe, OPTIONAL_AT + 108, 4);
	fd = open_image(&pe);
	check(uki_read(&u, fd, "x.efi", &err) == 0 && !u.is_signed,
	      "nor is what stands behind the last directory");
	uki_free(&u);
	close(fd);

	/* PE32, as a 32-bit firmware has it: its directories begin 16 bytes earlier */
	put32(&pe, OPTIONAL_AT + 108, 0);
	put16(&pe, OPTIONAL_AT, 0x10b);
	put32(&pe, OPTIONAL_AT + 92, 16);
	put32(&pe, OPTIONAL_AT + 96 + 36, 1024);
	put32(&pe, OPTIONAL_AT + 96 + 32, DATA_AT);
	fd = open_image(&pe);
	check(uki_read(&u, fd, "x.efi", &err) == 0 && u.is_signed && u.count == COUNT(plain),
	      "32-bit programs are read too");
	uki_free(&u);
	close(fd);
}

static void check_refused(const struct image *pe, const char *why)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int fd = open_image(pe);
	struct uki u = {0};

	if (!check(uki_read(&u, fd, "/EFI/x.efi", &err) < 0 && err.code == EXIT_INPUT &&
	                   strstr(err.message, why) && strstr(err.message, "'/EFI/x.efi'") &&
	                   !u.sections,
	           "refused: %s", why))
		printf("# got: %s\n", err.message ? err.message : "no error");
	uki_free(&u);
}

/* One field of a good image is given another value. */
static void check_patched(size_t at, uint32_t value, const char *why)
{
	static struct image pe;

	pe_make(&pe, plain, COUNT(plain));
	put32(&pe, at, value);
	check_refused(&pe, why);
}

static void check_cut(size_t size, const char *why)
{
	static struct image pe;

	pe_make(&pe, plain, COUNT(plain));
	pe.size = size;
	check_refused(&pe, why);
}

static void test_damaged(void)
{
	static struct part many[97];
	static struct image pe;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct uki u = {0};
	int fd;

	check_patched(0, 0, "not a PE file");
	check_patched(PE_AT, 0x00004550 + 1, "not a PE file");
	check_patched(0x3c, 0xffffffff, "not a PE file");
	check_patched(0x3c, FILE_BYTES, "not a PE file");
	check_patched(COFF_AT, 0x00008664, "it has no sections");
	check_patched(COFF_AT, 0xffff8664, "more than 96 sections");
	check_patched(COFF_AT + 16, 0, "its optional header is not one");
	check_patched(COFF_AT + 16, 111, "its optional header is not one");
	check_patched(OPTIONAL_AT, 0x107, "its optional header is not one");
	check_patched(OPTIONAL_AT + 112 + 36, 0xffffffff, "its signature is not inside");
	check_patched(section_at(4) + 16, 0xffffffff, "a section that is not inside");
	check_patched(section_at(4) + 20, 0xffffffff, "a section that is not inside");
	check_patched(section_at(4) + 20, FILE_BYTES, "a section that is not inside");
	check_cut(0, "not a PE file");
	check_cut(63, "not a PE file");
	check_cut(PE_AT + 10, "not a PE file");
	check_cut(OPTIONAL_AT + 60, "it ends inside of its headers");
	check_cut(TABLE_AT + 50, "it ends inside of its headers");
	check_cut(DATA_AT + 100, "a section that is not inside");

	for (size_t i = 0; i < COUNT(many); i++)
		many[i] = (struct part){".x", "", 0};
	pe_make(&pe, many, 96);
	fd = open_image(&pe);
	check(uki_read(&u, fd, "x", &err) == 0 && u.count == 96, "96 sections are read");
	uki_free(&u);
	close(fd);
	pe_make(&pe, many, 97);
	check_refused(&pe, "more than 96 sections");

	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	check(uki_read(&u, fd, "null", &err) < 0 && strstr(err.message, "not a regular file"),
	      "a device is refused");
	close(fd);
}

static void test_text_bound(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int fd = memfd_create("large", MFD_CLOEXEC);
	struct uki_section s = {".cmdline", 0, 1 << 20};
	CLEANUP_FREE char *text = NULL, *larger = NULL;

	check(ftruncate(fd, (1 << 20) + 1) == 0 && pwrite(fd, "a\nb\n", 4, 0) == 4 &&
	              uki_text(&text, &s, fd, "x", &err) == 0,
	      "1 MiB of text is read");
	check_str(text, "a\nb", "up to the first NUL");
	s.size_bytes++;
	check(uki_text(&larger, &s, fd, "x", &err) < 0 && !larger && err.code == EXIT_INPUT &&
	              strstr(err.message, "larger than 1 MiB"),
	      "more is refused");
}

static void check_identity(const struct part *part, const char *want)
{
	static struct image pe;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_UKI struct uki u = {0};

	pe_make(&pe, part, 1);
	CLEANUP_CLOSE int fd = open_image(&pe);
	check(uki_read(&u, fd, "x", &err) == 0, "a program is read");
	check_str(uki_identify(&u, fd), want, "%s '%s' means %s", part->name, part->text, want);
}

static void test_identify(void)
{
	static const struct {
		struct part part;
		const char *want;
	} cases[] = {
		{{".sdmagic", "#### LoaderInfo: systemd-boot 257.7-1 ####", 0}, "systemd-boot"},
		{{".sdmagic", "#### LoaderInfo: systemd-stub 252.39-1 ####", 0}, "systemd-stub"},
		{{".sdmagic", "#### LoaderInfo: systemd-addon 257.7-1 ####", 0}, "systemd-addon"},
		{{".sdmagic", "#### LoaderInfo: systemd-bootx 1 ####", 0}, "unknown"},
		{{".sdmagic", "systemd-boot", 0}, "unknown"},
		{{".sbat", "sbat,1,SBAT Version,sbat,1,x\ngrub,4,FSF,grub,2.12,y\n", 0}, "grub"},
		{{".sbat", "sbat,1,SBAT Version,sbat,1,x\r\nshim,4,UEFI shim,shim,1,y\r\n", 0},
	         "shim"},
		{{".sbat", "sbat,1,x\ngrubby,1,x\nx,grub,1\n", 0}, "unknown"},
		{{"mods", "mimg", 0}, "grub"},
		{{".setup", "HdrS", 0}, "linux"},
		{{".linux", "kernel", 0}, "uki"},
		{{".cmdline", "a", 0}, "unknown"},
		{{".text", "systemd-boot grub shim", 0}, "unknown"},
	};

	for (size_t i = 0; i < COUNT(cases); i++)
		check_identity(&cases[i].part, cases[i].want);
}

int main(void)
{
	test_plain();
	test_copy();
	test_sizes();
	test_profiles();
	test_signature();
	test_damaged();
	test_text_bound();
	test_identify();
	return tap_done();
}
