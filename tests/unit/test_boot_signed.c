/* SPDX-License-Identifier: Apache-2.0 */
/* What inspect says about signatures in a boot chain, over roots that are directories. */
#include <fcntl.h>

#include "builder/inspect-internal.h"
#include "dir-rootfs.h"
#include "disk-fixture.h"
#include "pe-maker.h"

#define SHIM   "/boot/efi/EFI/BOOT/BOOTX64.EFI"
#define GRUB   "/boot/efi/EFI/BOOT/grubx64.efi"
#define KERNEL "/boot/vmlinuz-6.1.0"
#define UKI    "/boot/efi/EFI/Linux/one.efi"

/* --- Fixtures --- */

static int copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	CLEANUP_FREE char *data = NULL;
	size_t size = 0;

	if (strstr(path, "broken"))
		return error_set(err, "cannot read '%s': the disk fails", path);
	if (dir_read(r, path, sizeof(struct image), (void **)&data, &size, err) < 0)
		return -1;
	return write(fd, data, size) == (ssize_t)size ? 0 : error_errno(err, errno, "cannot copy");
}

/* A PE file, with or without something in its certificate table. */
static void put_program(const char *path, bool is_signed)
{
	static const struct part text = {".text", "code", 0};
	CLEANUP_FREE char *full = str_format("root%s", path);
	CLEANUP_FREE char *parent = str_copy(full);
	struct image pe;

	pe_make(&pe, &text, 1);
	if (is_signed) {
		put32(&pe, OPTIONAL_AT + 112 + 4 * 8, (uint32_t)pe.size);
		put32(&pe, OPTIONAL_AT + 112 + 4 * 8 + 4, ALIGNMENT);
		pe.size += ALIGNMENT;
	}
	*strrchr(parent, '/') = '\0';
	run("mkdir", "-p", parent);
	unlink(full);
	put(full, 0, pe.bytes, pe.size);
}

struct chain {
	struct boot_entry entries[4];
	size_t count;
};

static void add(struct chain *c, enum boot_source source, const char *kernel, bool is_signed)
{
	c->entries[c->count++] = (struct boot_entry){
		.source = source, .kernel = str_copy(kernel), .is_signed = is_signed};
}

/* The verdict's name and what it is about, "none" where nothing is said; entries are dropped. */
static char *said(struct chain *c, const char *id)
{
	static const char *const names[] = {"ok", "note", "bad"};
	struct dir_rootfs *root = (struct dir_rootfs *)open_dir("root");
	struct rootfs_ops ops = *root->base.ops;
	struct guest guest = {.arch = (char[]){"x86_64"}};
	struct inspect in = {.root = &root->base, .guest = &guest, .work_dir = "work"};
	char *text = NULL;

	ops.copy_out = copy_out;
	root->base.ops = &ops;
	strv_add(&in.chain.esps, "/boot/efi");
	in.chain.entries = c->entries;
	in.chain.count = c->count;
	inspect_secure_boot(&in);
	for (size_t i = 0; i < in.findings.count && !text; i++)
		if (str_equal(in.findings.items[i].id, id))
			text = str_format("%s: %s", names[in.findings.items[i].verdict],
			                  in.findings.items[i].what);
	for (size_t i = 0; i < c->count; i++)
		free(c->entries[i].kernel);
	c->count = 0;
	findings_free(&in.findings);
	strv_free(&in.chain.esps);
	rootfs_close(&root->base);
	return text ? text : str_copy("none");
}

static void expect(struct chain *c, const char *verdict, const char *word, const char *not_word,
                   const char *what)
{
	CLEANUP_FREE char *got = said(c, "boot.secure-boot");

	if (!check(str_starts(got, verdict) && (!word || strstr(got, word)) &&
	                   (!not_word || !strstr(got, not_word)),
	           "%s", what))
		printf("# got: %s\n", got);
}

/* --- Tests --- */

static void test_loaders(void)
{
	struct chain c = {0};

	expect(&c, "none", NULL, NULL, "without a loader nothing is said");
	put_program(SHIM, false);
	expect(&c, "ok", "BOOTX64.EFI' is not signed", NULL, "a loader that nobody signed");
	put_program(SHIM, true);
	put_program(KERNEL, true);
	add(&c, BOOT_GRUB, KERNEL, false);
	expect(&c, "ok", NULL, NULL, "signed loader and kernel");
	put_program(GRUB, false);
	add(&c, BOOT_GRUB, KERNEL, false);
	expect(&c, "note", "not '" GRUB "'", KERNEL, "the GRUB beside the shim is looked at");
	run("mv", "root" GRUB, "root/boot/efi/EFI/BOOT/GRUBX64.EFI");
	run("mv", "root/boot/efi/EFI/BOOT", "root/boot/efi/EFI/boot");
	add(&c, BOOT_GRUB, KERNEL, false);
	expect(&c, "note", "boot/GRUBX64.EFI", NULL, "in any case, as on FAT");
	run("rm", "-r", "root/boot/efi/EFI/boot");
	put_program(SHIM, true);
	put_program(GRUB, true);
	add(&c, BOOT_GRUB, KERNEL, false);
	expect(&c, "ok", NULL, NULL, "a signed GRUB");
}

static void test_kernels(void)
{
	struct chain c = {0};

	put_program(KERNEL, false);
	add(&c, BOOT_UKI, UKI, true);
	add(&c, BOOT_BLS, KERNEL, false);
	add(&c, BOOT_BLS, KERNEL, false);
	expect(&c, "note", "not '" KERNEL "':", UKI,
	       "a kernel beside a unified image is looked at, and named once");
	put_program(KERNEL, true);
	add(&c, BOOT_UKI, UKI, false);
	add(&c, BOOT_BLS, KERNEL, false);
	expect(&c, "note", "not '" UKI "'", KERNEL, "so is the unified image");
	add(&c, BOOT_GRUB, KERNEL, false);
	add(&c, BOOT_GRUB, "/boot/vmlinuz-gone", false);
	expect(&c, "ok", NULL, NULL, "a kernel that is not there is another point's");
}

static void test_unread(void)
{
	struct chain c = {0};
	CLEANUP_FREE char *unread = NULL;

	put_program("/boot/broken", true);
	add(&c, BOOT_GRUB, "/boot/broken", false);
	add(&c, BOOT_GRUB, KERNEL, false);
	expect(&c, "none", NULL, NULL, "of a kernel that cannot be read nothing is claimed");
	add(&c, BOOT_GRUB, "/boot/broken", false);
	unread = said(&c, "inspect.unread");
	check(strstr(unread, "note: ") == unread && strstr(unread, "the disk fails"),
	      "but why it could not be read");
	put_program(KERNEL, false);
	add(&c, BOOT_GRUB, "/boot/broken", false);
	add(&c, BOOT_GRUB, KERNEL, false);
	expect(&c, "note", "not '" KERNEL "':", "broken",
	       "and what is not signed is told all the same");
}

int main(void)
{
	static const char *const programs[] = {"mkdir", "mv", "rm", NULL};

	fixture_begin(programs);
	run("mkdir", "-p", "root/boot/efi/EFI", "work");
	test_loaders();
	test_kernels();
	test_unread();
	return tap_done();
}
