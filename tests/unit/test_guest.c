/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small disks with trees that look like a distribution's, in every layout that needs no running
 * kernel: what is mounted where, which kernels there are, and what is refused in which words.
 */
#include <zlib.h>

#include "builder/disk-internal.h"
#include "builder/guest.h"
#include "tests/unit/disk-fixture.h"

#define SLOT_MIB   16
#define LINUX      "0FC63DAF-8483-4772-8E79-3D69D8477DE4"
#define ESP        "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
#define XBOOTLDR   "BC13C2FF-59E6-4262-A352-B275FD6F7172"
#define ROOT_UUID  "11111111-1111-4111-8111-111111111111"
#define BOOT_UUID  "22222222-2222-4222-8222-222222222222"
#define KERNEL     "6.1.0-10-amd64"
#define FSTAB_ROOT "UUID=" ROOT_UUID " / ext4 errors=remount-ro 0 1\n"
#define FSTAB_BOOT "UUID=" BOOT_UUID " /boot ext4 defaults 0 2\n"
#define FSTAB_ESP  "UUID=1234-ABCD /boot/efi vfat umask=0077 0 1\n"
#define RELEASE    "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"
#define STATUS     "Package: initramfs-tools\nStatus: install ok installed\nVersion: 1\n\n"

struct part {
	const char *file, *type, *name;
};

struct opened {
	struct disk *disk;
	struct guest *guest;
	struct rootfs *root;
};

static void close_opened(struct opened *o)
{
	rootfs_close(o->root);
	guest_free(o->guest);
	disk_close(o->disk);
}

#define CLEANUP_OPENED __attribute__((cleanup(close_opened)))

static void text(const char *path, const char *content)
{
	CLEANUP_FREE char *dir = str_copy(path);

	for (char *slash = strchr(dir, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (mkdir(dir, 0755) < 0 && errno != EEXIST)
			fixture_fail(dir, NULL);
		*slash = '/';
	}
	unlink(path);
	make_file(path, 0);
	put(path, 0, content, strlen(content));
}

static void dir(const char *path)
{
	CLEANUP_FREE char *file = str_format("%s/x", path);

	text(file, "");
	unlink(file);
}

static void kernel(const char *boot, const char *version)
{
	CLEANUP_FREE char *image = str_format("%s/vmlinuz-%s", boot, version);
	CLEANUP_FREE char *initrd = str_format("%s/initrd.img-%s", boot, version);

	text(image, "kernel");
	text(initrd, "initramfs");
}

static void modules(const char *version)
{
	CLEANUP_FREE char *dep = str_format("tree/usr/lib/modules/%s/modules.dep", version);

	text(dep, "");
}

/* A new tree/ as Debian has it, without anything in /boot. */
static void tree(const char *fstab)
{
	static const unsigned char elf[20] = {0x7f, 'E', 'L', 'F', 2, 1, 1, [18] = 62};

	fixture_remove("tree");
	text("tree/etc/os-release", RELEASE);
	text("tree/etc/fstab", fstab);
	text("tree/var/lib/dpkg/status", STATUS);
	text("tree/usr/sbin/mkinitramfs", "#!/bin/sh\n");
	text("tree/etc/kernel/postinst.d/initramfs-tools", "#!/bin/sh\n");
	text("tree/usr/bin/true", "");
	put("tree/usr/bin/true", 0, elf, sizeof(elf));
	modules(KERNEL);
	dir("tree/boot");
	if (symlink("usr/lib", "tree/lib") < 0 || symlink("usr/bin", "tree/bin") < 0 ||
	    symlink("usr/sbin", "tree/sbin") < 0)
		fixture_fail("make links", NULL);
}

static void tree_with_kernel(const char *fstab)
{
	tree(fstab);
	kernel("tree/boot", KERNEL);
	text("tree/boot/grub/grub.cfg", "# none\n");
}

static void ext4(const char *file, const char *from, const char *uuid, const char *label)
{
	CLEANUP_FREE char *size = str_format("%dM", SLOT_MIB);

	unlink(file);
	run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-U", uuid, "-L", label, "-d", from,
	    file, size);
}

/* esp.img, with a loader at 'program' ("EFI/BOOT/BOOTX64.EFI"), if it is not NULL. */
static void esp(const char *const *programs)
{
	unlink("esp.img");
	make_file("esp.img", SLOT_MIB * MIB);
	run("mkfs.vfat", "-i", "1234ABCD", "-n", "ESP", "esp.img");
	text("program", "MZ");
	for (; programs && *programs; programs++) {
		CLEANUP_FREE char *to = str_format("::/%s", *programs);
		CLEANUP_FREE char *above = str_copy(to);

		for (char *slash = strchr(above + 3, '/'); slash; slash = strchr(slash + 1, '/')) {
			*slash = '\0';
			run("mmd", "-D", "s", "-i", "esp.img", above);
			*slash = '/';
		}
		run("mcopy", "-i", "esp.img", "program", to);
	}
}

static void disk_of(const char *label, const struct part *parts)
{
	CLEANUP_STRV struct strv script = {0};
	CLEANUP_FREE char *joined = NULL;
	size_t count = 0;

	strv_addf(&script, "label: %s", label);
	for (; parts[count].file; count++) {
		unsigned start = 2048 + (unsigned)count * SLOT_MIB * 2048;
		CLEANUP_FREE char *name = parts[count].name
		                                  ? str_format(",name=\"%s\"", parts[count].name)
		                                  : str_copy("");

		strv_addf(&script, "start=%u,size=%u,type=%s%s", start, SLOT_MIB * 2048,
		          parts[count].type, name);
	}
	joined = strv_join(&script, "\n");
	unlink("disk.img");
	make_file("disk.img", (count * SLOT_MIB + 2) * MIB);
	run_with(joined, "sfdisk", "-q", "disk.img");
	for (size_t i = 0; i < count; i++)
		put_file("disk.img", (1 + i * SLOT_MIB) * MIB, parts[i].file);
}

#define gpt(...) disk_of("gpt", (const struct part[]){__VA_ARGS__, {0}})
#define dos(...) disk_of("dos", (const struct part[]){__VA_ARGS__, {0}})
#define ROOT_PART                                                                                  \
	{                                                                                          \
		"root.img", LINUX, NULL                                                            \
	}
#define BOOT_PART                                                                                  \
	{                                                                                          \
		"boot.img", LINUX, NULL                                                            \
	}
#define ESP_PART                                                                                   \
	{                                                                                          \
		"esp.img", ESP, NULL                                                               \
	}
#define FILES(...) ((const char *const[]){__VA_ARGS__, NULL})

static int try_open(struct opened *ret, const char *path, struct error *err)
{
	*ret = (struct opened){0};
	if (disk_open(&ret->disk, path, "raw", false, err) < 0 || disk_probe(ret->disk, err) < 0)
		fixture_fail("open a disk", err->message);
	return guest_open(&ret->guest, &ret->root, ret->disk, NULL, err);
}

static struct opened must_open(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct opened o;
	int result = try_open(&o, "disk.img", &err);

	if (result != 0)
		fixture_fail("open a guest", result > 0 ? "it wants an appliance" : err.message);
	return o;
}

/* A refused input, with both parts in its message and a hint. */
static void check_refused(const char *path, const char *part, const char *other, const char *what)
{
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int result = try_open(&o, path, &err);

	check(result < 0 && err.code == EXIT_INPUT && err.hint && contains(err.message, part) &&
	              contains(err.message, other),
	      "refused in words: %s", what);
}

static void check_mount(const struct opened *o, size_t index, const char *path, int number,
                        bool implicit)
{
	const struct guest_mount *m =
		index < o->guest->mount_count ? &o->guest->mounts[index] : NULL;

	check_str(m ? m->path : NULL, path, "mount %zu is %s", index, path);
	check(m && m->volume->number == number && m->implicit == implicit, "it is partition %d, %s",
	      number, implicit ? "without fstab" : "by fstab");
}

static bool file_is(struct rootfs *r, const char *path, const char *content)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE void *data = NULL;

	return rootfs_read(r, path, 1000, &data, NULL, &err) == 0 && strcmp(data, content) == 0;
}

static void test_plain(void)
{
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	tree_with_kernel(FSTAB_ROOT);
	ext4("root.img", "tree", ROOT_UUID, "root");
	dos({"root.img", "83", NULL});
	o = must_open();
	check(o.guest->mount_count == 1, "one file system is one mount");
	check_mount(&o, 0, "/", 1, false);
	check_str(o.guest->id, "debian", "its distribution is known");
	check_str(o.guest->arch, "x86_64", "its architecture is known");
	check_str(o.guest->generator, "initramfs-tools", "its generator is known");
	check_str(o.guest->grub_dir, "/boot/grub", "GRUB's directory is known");
	check(!o.guest->is_el, "Debian is no Enterprise Linux");
	check(o.guest->kernel_count == 1 && o.guest->kernels[0].has_initramfs &&
	              o.guest->kernels[0].initramfs_bytes == strlen("initramfs"),
	      "its kernel has an initramfs");
	check(guest_check_supported(o.guest, o.root, &err) == 0, "it is supported");
	check(guest_in_user_space(o.guest), "no appliance is needed");
	check(!guest_has_uefi_loader(o.guest, o.root), "without an ESP there is no UEFI loader");
}

/* Ubuntu's: /boot on ext4, the ESP below it. */
static void test_separate_boot(void)
{
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_ROOTFS struct rootfs *again = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;

	tree(FSTAB_ESP "# a comment\nLABEL=BOOT\t/boot//  ext4 defaults 0 2\n" FSTAB_ROOT
	               "/dev/fd0 /media/floppy auto noauto 0 0\nLABEL=cloud /mnt auto nofail 0 2\n"
	               "/tmp /var/tmp none nodev,bind 0 0\n");
	ext4("root.img", "tree", ROOT_UUID, "root");
	fixture_remove("tree");
	kernel("tree", KERNEL);
	dir("tree/efi");
	text("tree/grub/grub.cfg", "# none\n");
	ext4("boot.img", "tree", BOOT_UUID, "BOOT");
	esp(FILES("EFI/BOOT/BOOTX64.EFI"));
	gpt(ESP_PART, ROOT_PART, BOOT_PART);
	o = must_open();
	check(o.guest->mount_count == 3, "root, /boot and ESP are mounted, and no more");
	check_mount(&o, 1, "/boot", 3, false);
	check_mount(&o, 2, "/boot/efi", 1, false);
	check(file_is(o.root, "/boot/vmlinuz-" KERNEL, "kernel"), "/boot is what fstab names");
	check(file_is(o.root, "/boot/efi/EFI/BOOT/BOOTX64.EFI", "MZ"), "the ESP can be read");
	check(guest_has_uefi_loader(o.guest, o.root), "its UEFI loader is seen");
	check(guest_open_again(&again, o.guest, o.disk, &err) == 0 &&
	              file_is(again, "/boot/efi/EFI/BOOT/BOOTX64.EFI", "MZ"),
	      "a second handle sees the same");
	check(guest_check_supported(o.guest, o.root, &err) == 0, "it is supported");
}

static void test_fstab_names(void)
{
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_FREE char *escaped =
		str_copy(FSTAB_ROOT "LABEL=a\\040b /srv/data\\040x ext4 defaults 0 0\n"
	                            "/dev/disk/by-label/a\\x20b /var ext4 nofail 0 0\n"
	                            "LABEL=gone /opt ext4 defaults,nofail 0 0\n"
	                            "server:/x /var/mail nfs defaults 0 0\n"
	                            "tmpfs /var/tmp tmpfs defaults 0 0\n"
	                            "LABEL=alsogone /home ext4 defaults 0 0\n");

	tree_with_kernel(escaped);
	dir("tree/srv/data x");
	dir("tree/var/lib/dpkg");
	ext4("root.img", "tree", ROOT_UUID, "root");
	fixture_remove("tree");
	text("tree/lib/dpkg/status", STATUS);
	ext4("boot.img", "tree", BOOT_UUID, "a b");
	gpt(ROOT_PART, BOOT_PART);
	o = must_open();
	check(o.guest->mount_count == 3, "what is not needed, or not on the disk, is left out");
	check_mount(&o, 1, "/srv/data x", 2, false);
	check_mount(&o, 2, "/var", 2, false);
}

static void test_implicit(void)
{
	const struct part xbootldr = {"boot.img", XBOOTLDR, NULL};

	tree(FSTAB_ROOT);
	dir("tree/efi");
	ext4("root.img", "tree", ROOT_UUID, "root");
	fixture_remove("tree");
	kernel("tree", KERNEL);
	dir("tree/efi");
	ext4("boot.img", "tree", BOOT_UUID, "BOOT");
	esp(FILES("EFI/systemd/systemd-bootx64.efi"));
	gpt(ESP_PART, xbootldr, ROOT_PART);
	{
		CLEANUP_OPENED struct opened o = must_open();

		check(o.guest->mount_count == 3, "XBOOTLDR and ESP are mounted without fstab");
		check_mount(&o, 1, "/boot", 2, true);
		check_mount(&o, 2, "/efi", 1, true);
		check(file_is(o.root, "/boot/vmlinuz-" KERNEL, "kernel"), "the kernel is there");
		check(guest_has_uefi_loader(o.guest, o.root), "systemd-boot is a UEFI loader");
	}
	tree_with_kernel(FSTAB_ROOT);
	dir("tree/boot/efi");
	ext4("root.img", "tree", ROOT_UUID, "root");
	esp(NULL);
	gpt(ROOT_PART, ESP_PART);
	{
		CLEANUP_OPENED struct opened o = must_open();

		check(o.guest->mount_count == 2, "an ESP without /efi");
		check_mount(&o, 1, "/boot/efi", 2, true);
		check(disk_boots_uefi(o.disk) && !guest_has_uefi_loader(o.guest, o.root),
		      "an empty ESP is no UEFI loader");
	}
	dos({"root.img", "83", NULL}, {"esp.img", "ef", NULL});
	{
		CLEANUP_OPENED struct opened o = must_open();

		check(o.guest->mount_count == 1, "without a GPT nothing is mounted by itself");
	}
	tree(FSTAB_ROOT);
	dir("tree/efi"); /* both empty: since systemd 254 the ESP comes to /boot */
	text("tree/usr/lib/modules/" KERNEL "/vmlinuz", "kernel");
	ext4("root.img", "tree", ROOT_UUID, "root");
	esp(FILES("EFI/Linux/debian-" KERNEL "+3.efi"));
	gpt(ESP_PART, ROOT_PART);
	{
		CLEANUP_OPENED struct opened o = must_open();

		check_mount(&o, 1, "/boot", 1, true);
		check(o.guest->kernel_count == 1, "a UKI's kernel is found among the modules");
		check_str(o.guest->kernels[0].image, "/usr/lib/modules/" KERNEL "/vmlinuz",
		          "by its own path");
		check_str(o.guest->kernels[0].version, KERNEL, "and version");
	}
}

static void test_lost_boot(void)
{
	tree(FSTAB_ROOT FSTAB_BOOT);
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	check_refused("disk.img", "'/boot'", BOOT_UUID, "a /boot that is not on the disk");

	tree(FSTAB_ROOT "UUID=" BOOT_UUID " /boot ext4 nofail 0 2\n");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	check_refused("disk.img", "'/boot'", BOOT_UUID, "the same with nofail");

	tree(FSTAB_ROOT);
	ext4("root.img", "tree", ROOT_UUID, "root");
	fixture_remove("tree");
	kernel("tree", KERNEL);
	ext4("boot.img", "tree", BOOT_UUID, "BOOT");
	gpt(ROOT_PART, BOOT_PART);
	check_refused("disk.img", "partition 2", "fstab", "a /boot that fstab does not name");

	tree_with_kernel(FSTAB_ROOT FSTAB_BOOT);
	ext4("root.img", "tree", ROOT_UUID, "root");
	fixture_remove("tree");
	dir("tree/lost+found");
	ext4("boot.img", "tree", BOOT_UUID, "BOOT");
	gpt(ROOT_PART, BOOT_PART);
	check_refused("disk.img", "hidden", "partition 2", "kernels hidden below an empty /boot");

	tree_with_kernel(FSTAB_ROOT "/dev/vda2 /boot ext4 defaults 0 0\n");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART, BOOT_PART);
	check_refused("disk.img", "/dev/vda2", "/boot", "a device letter");

	tree_with_kernel(FSTAB_ROOT "/data/boot /boot none bind 0 0\n");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	check_refused("disk.img", "/data/boot", "bind", "a bind mount");
	tree_with_kernel(FSTAB_ROOT "/data/var /var/tmp/x none bind 0 0\n");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	check_refused("disk.img", "/var/tmp/x", "bind", "also below one that would be let pass");

	tree_with_kernel(FSTAB_ROOT "LABEL=x /boot/../etc ext4 defaults 0 0\n");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	check_refused("disk.img", "/boot/../etc", "plain path", "a mount point with dots");
	tree_with_kernel(FSTAB_ROOT "LABEL=x /opt/\\033[2J ext4 defaults 0 0\n");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	check_refused("disk.img", "/opt/?[2J", "plain path", "one that a terminal would obey");

	tree_with_kernel(FSTAB_ROOT FSTAB_BOOT FSTAB_BOOT);
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART, BOOT_PART);
	check_refused("disk.img", "two file systems", "/boot", "two mounts in one place");
}

static void el_tree(void)
{
	tree(FSTAB_ROOT);
	text("tree/etc/os-release", "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n");
	fixture_remove("tree/var/lib/dpkg");
	text("tree/usr/bin/dracut", "");
	text("tree/usr/lib/dracut/dracut-functions.sh", "");
	text("tree/boot/grub2/grub.cfg", "blscfg\n");
}

static void test_el_kernels(void)
{
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	el_tree();
	modules("5.14.0-70.el9.x86_64");
	text("tree/boot/vmlinuz-5.14.0-70.el9.x86_64", "kernel");
	text("tree/boot/initramfs-5.14.0-70.el9.x86_64.img", "initramfs");
	text("tree/boot/vmlinuz-0-rescue-0123456789abcdef0123456789abcdef", "kernel");
	text("tree/boot/initramfs-0-rescue-0123456789abcdef0123456789abcdef.img", "rescue");
	text("tree/boot/vmlinuz-5.14.0-70.el9.x86_64.rpmsave", "kernel");
	text("tree/boot/loader/entries/0123-5.14.0-70.el9.x86_64.conf", "title x\n");
	text("tree/usr/lib/modules/5.14.0-70.el9.x86_64/vmlinuz", "kernel");
	text("tree/usr/lib/modules/5.14.0-7.el9.x86_64/vmlinuz", "kernel");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	o = must_open();
	check(o.guest->is_el, "Rocky is of the family");
	check_str(o.guest->grub_dir, "/boot/grub2", "its GRUB lives in grub2");
	check(o.guest->kernel_count == 2, "a rescue kernel is listed, copies are not");
	check(o.guest->kernels[0].rescue && o.guest->kernels[0].has_initramfs &&
	              o.guest->kernels[0].initramfs_bytes == strlen("rescue"),
	      "it is called one");
	check(!o.guest->kernels[1].rescue, "the other is not");
	check_str(o.guest->kernels[1].initramfs, "/boot/initramfs-5.14.0-70.el9.x86_64.img",
	          "an initramfs has dracut's name");
	check_str(o.guest->kernels[1].image, "/boot/vmlinuz-5.14.0-70.el9.x86_64",
	          "the kernel in /boot goes before that of the modules");
	check(guest_check_supported(o.guest, o.root, &err) == 0,
	      "nobody asks a rescue kernel for modules");
}

static void test_unsupported(void)
{
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	tree_with_kernel(FSTAB_ROOT);
	kernel("tree/boot", "6.9.9");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	o = must_open();
	check(guest_check_supported(o.guest, o.root, &err) < 0 && err.code == EXIT_INPUT &&
	              contains(err.message, "/lib/modules/6.9.9"),
	      "a kernel without modules is not supported");
	free(o.guest->generator);
	o.guest->generator = str_copy("mkinitcpio");
	error_free(&err);
	check(guest_check_supported(o.guest, o.root, &err) < 0 && err.code == EXIT_INPUT &&
	              contains(err.message, "mkinitcpio"),
	      "another generator is refused by name");
	free(o.guest->arch);
	o.guest->arch = str_copy("aarch64");
	error_free(&err);
	check(guest_check_supported(o.guest, o.root, &err) < 0 && contains(err.message, "aarch64"),
	      "another architecture is refused by name");
}

static void test_no_kernel(void)
{
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	el_tree();
	text("tree/usr/lib/modules/" KERNEL "/vmlinuz", "kernel");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	o = must_open();
	check(o.guest->kernel_count == 0, "what no boot entry names is not a kernel that boots");
	check(guest_check_supported(o.guest, o.root, &err) < 0 && err.hint &&
	              contains(err.message, "/lib/modules/" KERNEL),
	      "no kernel in /boot is an error that names what is there");
}

static void test_many_kernels(void)
{
	tree(FSTAB_ROOT);
	for (int i = 0; i < 65; i++) {
		CLEANUP_FREE char *image = str_format("tree/boot/vmlinuz-6.%d", i);

		text(image, "");
	}
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	check_refused("disk.img", "more than 64", "/boot", "more kernels than we count");
}

static void test_labels(void)
{
	static const struct {
		const char *first, *second, *what;
	} cases[] = {{"META", "STATE", "Talos"},
	             {"BOOT", "META", "Talos"},
	             {"USR-A", "USR-B", "Flatcar"},
	             {"BOTTLEROCKET-BOOT-A", "BOTTLEROCKET-ROOT-A", "Bottlerocket"},
	             {"ubuntu-seed", "ubuntu-data", "Ubuntu Core"}};

	tree_with_kernel(FSTAB_ROOT);
	ext4("root.img", "tree", ROOT_UUID, "root");
	esp(NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		gpt({"esp.img", LINUX, cases[i].first}, {"esp.img", LINUX, cases[i].second});
		check_refused("disk.img", cases[i].what, "replaced as a whole", cases[i].what);
	}
	gpt({"root.img", LINUX, "STATE"}, {"esp.img", LINUX, "OEM"});
	{
		CLEANUP_OPENED struct opened o = must_open();

		check_str(o.guest->id, "debian", "one label alone says nothing");
	}
}

static void refuse_tree(const char *part, const char *what)
{
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART);
	check_refused("disk.img", part, "disk.img", what);
}

static void test_immutable(void)
{
	static const char *const ids[][2] = {{"talos", "Talos"},
	                                     {"flatcar", "Flatcar"},
	                                     {"ubuntu-core", "Ubuntu Core"},
	                                     {"nixos", "NixOS"},
	                                     {"opensuse-microos", "MicroOS"}};

	tree_with_kernel(FSTAB_ROOT);
	dir("tree/ostree/repo");
	refuse_tree("ostree", "an ostree root");
	fixture_remove("tree");
	dir("tree/ostree/fedora-coreos-0123");
	refuse_tree("ostree", "a boot partition of an ostree system");
	tree_with_kernel(FSTAB_ROOT);
	text("tree/boot/loader/entries/ostree-1.conf", "options root=x ostree=/ostree/boot.1/x\n");
	refuse_tree("ostree=", "an ostree system by its command line");
	fixture_remove("tree");
	dir("tree/nix/store");
	text("tree/etc/NIXOS", "");
	refuse_tree("NixOS", "a NixOS that never ran");
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		CLEANUP_FREE char *release = str_format("ID=\"%s\"\n", ids[i][0]);

		tree_with_kernel(FSTAB_ROOT);
		text("tree/etc/os-release", release);
		refuse_tree(ids[i][1], ids[i][0]);
	}
}

/* 'magic' at an offset of an otherwise empty partition. */
static void closed(const void *magic, size_t size, uint64_t offset)
{
	unlink("closed.img");
	make_file("closed.img", SLOT_MIB * MIB);
	put("closed.img", offset, magic, size);
	gpt({"closed.img", LINUX, NULL});
}

static void make_raid(void)
{
	uint32_t super[64] = {[0] = 0xa92b4efc, [1] = 1, [36] = 8};

	closed(super, sizeof(super), 4096);
}

static void make_squashfs(void)
{
	uint8_t super[96] = {'h', 's', 'q', 's', [28] = 4};

	closed(super, sizeof(super), 0);
}

static void make_physical_volume(void)
{
	static const uint8_t type[8] = {'L', 'V', 'M', '2', ' ', '0', '0', '1'};
	uint8_t label[512] = "LABELONE\1";
	uint32_t crc;

	label[20] = 32;
	memcpy(label + 24, type, sizeof(type));
	memset(label + 32, 'a', 32);
	crc = (uint32_t)~crc32(~0xf597a6cfU, label + 20, sizeof(label) - 20);
	memcpy(label + 16, &crc, sizeof(crc));
	closed(label, sizeof(label), 512);
}

static void test_closed(void)
{
	static const uint8_t luks[592] = {'L', 'U', 'K', 'S', 0xba, 0xbe, 0, 1};

	closed(luks, sizeof(luks), 0);
	check_refused("disk.img", "encrypted (LUKS)", "partition 1", "a LUKS root");
	make_raid();
	check_refused("disk.img", "RAID", "linux_raid_member", "a RAID member");
	make_squashfs();
	check_refused("disk.img", "read-only", "squashfs", "a squashfs root");
	unlink("closed.img");
	make_file("closed.img", SLOT_MIB * MIB);
	run("mkswap", "-q", "closed.img");
	gpt({"closed.img", LINUX, NULL});
	check_refused("disk.img", "no operating system", "swap", "a disk with swap only");

	closed(luks, sizeof(luks), 0);
	tree(FSTAB_ROOT "/dev/mapper/luks-boot /boot ext4 defaults 0 0\n");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART, {"closed.img", LINUX, NULL});
	check_refused("disk.img", "/dev/mapper/luks-boot", "'/boot'", "/boot on LUKS");
}

static int result_of(const char *path)
{
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int result = try_open(&o, path, &err);

	if (result < 0)
		printf("# %s\n", err.message);
	return result;
}

static void test_wants_appliance(void)
{
	make_physical_volume();
	check(result_of("disk.img") == 1, "LVM wants an appliance");
	if (fixture_have("mkfs.xfs", "XFS wants an appliance")) {
		make_file("xfs.img", 320 * MIB);
		run("mkfs.xfs", "-q", "-f", "xfs.img");
		check(result_of("xfs.img") == 1, "XFS wants an appliance");
		unlink("xfs.img");
	}
	if (!fixture_have("mkfs.btrfs", "btrfs wants an appliance"))
		return;
	make_file("btrfs.img", 160 * MIB);
	make_file("btrfs2.img", 160 * MIB);
	run("mkfs.btrfs", "-q", "-f", "btrfs.img");
	check(result_of("btrfs.img") == 1, "btrfs wants an appliance");
	run("mkfs.btrfs", "-q", "-f", "btrfs.img", "btrfs2.img");
	check_refused("btrfs.img", "one of 2 devices", "btrfs", "a btrfs on two devices");
}

/* An ext4 root beside what only the appliance mounts. */
static void test_mixed(void)
{
	make_physical_volume();
	run("mkfs.btrfs", "-q", "-f", "btrfs.img");
	tree_with_kernel(FSTAB_ROOT "/dev/vg/var /var ext4 defaults 0 0\n");
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART, {"closed.img", LINUX, NULL});
	check(result_of("disk.img") == 1, "/var on LVM beside an ext4 root wants an appliance");

	tree_with_kernel(FSTAB_ROOT);
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART, {"closed.img", LINUX, NULL});
	check(result_of("disk.img") == 0, "LVM that nothing mounts wants none");
}

static void test_two_systems(void)
{
	tree_with_kernel(FSTAB_ROOT);
	ext4("root.img", "tree", ROOT_UUID, "root");
	gpt(ROOT_PART, ROOT_PART);
	check_refused("disk.img", "partition 1", "partition 2", "two systems");
}

/* Logical volumes come from the appliance; here they are only named. */
static void test_logical_volumes(void)
{
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const struct volume *first, *second;
	char type[] = "ext4", uuid[] = BOOT_UUID, lv[] = "/dev/vg-a/lv-root", other[] = "/dev/vg/a";

	make_physical_volume();
	if (disk_open(&disk, "disk.img", "raw", false, &err) < 0 || disk_probe(disk, &err) < 0)
		fixture_fail("open a disk", err.message);
	first = disk_volume(disk, 0);
	disk_add_volume(disk, &(struct volume){.number = -1, .type = type, .uuid = uuid, .lv = lv});
	second = disk_volume(disk, 1);
	for (int i = 0; i < 50; i++)
		disk_add_volume(disk, &(struct volume){.number = -1, .type = type, .lv = other});
	check(disk_volume_count(disk) == 3, "a logical volume is added once");
	check(disk_volume(disk, 0) == first && disk_volume(disk, 1) == second,
	      "volumes stay where they are while others come");
	check(disk_find_volume(disk, "/dev/vg-a/lv-root") == second, "found by its own path");
	check(disk_find_volume(disk, "/dev/mapper/vg--a-lv--root") == second,
	      "found by the device mapper's name");
	check(!disk_find_volume(disk, "/dev/mapper/vg-a-lv-root"), "which doubles each '-'");
	check(disk_find_volume(disk, "UUID=" BOOT_UUID) == second, "found by its UUID");
	check(disk_find_volume(disk, "/dev/disk/by-uuid/" BOOT_UUID) == second,
	      "found by udev's link");
}

int main(void)
{
	fixture_begin(FILES("mke2fs", "mkfs.vfat", "mmd", "mcopy", "sfdisk", "mkswap", "qemu-nbd"));
	test_plain();
	test_separate_boot();
	test_fstab_names();
	test_implicit();
	test_lost_boot();
	test_el_kernels();
	test_unsupported();
	test_no_kernel();
	test_many_kernels();
	test_labels();
	test_immutable();
	test_closed();
	test_wants_appliance();
	test_mixed();
	test_two_systems();
	test_logical_volumes();
	return tap_done();
}
