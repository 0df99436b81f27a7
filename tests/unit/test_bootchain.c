/* SPDX-License-Identifier: Apache-2.0 */
/* Boot entries as each boot loader finds them, and where parameters are edited. */
#include <stdlib.h>
#include <unistd.h>

#include "builder/bootchain.h"
#include "builder/param-places.h"
#include "builder/proof.h"
#include "builder/tree.h"
#include "fake-rootfs.h"
#include "pe-maker.h"
#include "tap.h"

static const struct volume root_volume = {.number = 1,
                                          .type = (char *)"ext4",
                                          .uuid = (char *)"11111111-2222-4333-8444-555555555555"};
static const struct volume boot_volume = {.number = 16, .type = (char *)"ext4"};
static const struct volume esp_volume = {.number = 15, .type = (char *)"vfat"};

/* Borrowed constants; never freed. */
struct layout {
	struct guest_mount mounts[3];
	struct guest_kernel kernels[2];
	struct guest guest;
};

static void add_mount(struct layout *l, const char *path, const char *subvol,
                      const struct volume *v)
{
	l->mounts[l->guest.mount_count++] =
		(struct guest_mount){.path = (char *)path, .subvol = (char *)subvol, .volume = v};
	l->guest.mounts = l->mounts;
}

static void add_kernel(struct layout *l, const char *version, const char *image,
                       const char *initramfs)
{
	l->kernels[l->guest.kernel_count++] = (struct guest_kernel){.version = (char *)version,
	                                                            .image = (char *)image,
	                                                            .initramfs = (char *)initramfs,
	                                                            .has_initramfs = true};
	l->guest.kernels = l->kernels;
}

static struct bootchain read_files(const struct layout *l, const struct fake_file *files)
{
	struct fake_rootfs root = fake_rootfs(files);
	struct error err = ERROR_INIT;
	struct bootchain chain = {0};

	check(bootchain_read(&chain, &root.base, &l->guest, "/var/tmp", &err) == 0,
	      "the entries are read: %s", err.message ? err.message : "no error");
	error_free(&err);
	return chain;
}

static char *args_of(const struct boot_entry *e)
{
	return strv_join(&e->args, " ");
}

static void test_grub_paths(void)
{
	static const struct fake_file files[] = {
		{"/boot/grub/grub.cfg",
	         "menuentry 'one' {\n linux /vmlinuz-6.1 root=UUID=x ro\n initrd /initrd.img-6.1\n}\n"
	         "source $prefix/custom.cfg\n"},
		{"/boot/grub/custom.cfg",
	         "menuentry 'own' {\n linux /vmlinuz-6.1 root=UUID=x\n}\n"},
		{NULL, NULL},
	};
	struct layout l = {.guest = {.grub_dir = (char *)"/boot/grub"}};
	struct bootchain c;

	add_mount(&l, "/", NULL, &root_volume);
	add_mount(&l, "/boot", NULL, &boot_volume);
	c = read_files(&l, files);
	check(c.count == 2, "an entry of a file that grub.cfg sources is one too");
	check_str(c.count ? c.entries[0].kernel : NULL, "/boot/vmlinuz-6.1",
	          "a path counts from the file system that /boot is");
	check_str(c.count > 1 ? c.entries[1].file : NULL, "/boot/grub/custom.cfg",
	          "an entry names the file that holds it");
	bootchain_free(&c);
}

static void test_btrfs_paths(void)
{
	struct layout l = {0};

	add_mount(&l, "/", "@rootfs", &root_volume);

	char *with = bootchain_guest_path(&l.guest, "/boot", "/@rootfs/boot/vmlinuz-6.1");
	char *other = bootchain_guest_path(&l.guest, "/boot", "/@rootfs-old/boot/vmlinuz-6.1");

	check_str(with, "/boot/vmlinuz-6.1", "the root's subvolume is no part of a guest's path");
	check_str(other, "/@rootfs-old/boot/vmlinuz-6.1",
	          "a subvolume of a longer name is another one");
	free(with);
	free(other);
}

#define HASHES_64 "################################################################"
#define HASHES    HASHES_64 HASHES_64

#define EL_ENTRY(options)                                                                          \
	"title Rocky\nversion 5.14\nlinux /boot/vmlinuz-5.14\ninitrd /boot/initramfs-5.14.img "    \
	"$tuned_initrd\noptions " options "\n"

static void test_kernelopts(void)
{
	static const struct fake_file files[] = {
		{"/boot/grub2/grub.cfg", "load_env\ninsmod blscfg\nblscfg\n"},
		{"/boot/grub2/grubenv",
	         "# GRUB Environment Block\nkernelopts=root=UUID=x ro quiet\n" HASHES},
		{"/boot/loader/entries/a.conf", EL_ENTRY("$kernelopts $tuned_params")},
		{"/boot/loader/entries/b.conf~", EL_ENTRY("old")},
		{NULL, NULL},
	};
	struct layout l = {.guest = {.grub_dir = (char *)"/boot/grub2", .is_el = true}};
	struct bootchain c;
	char *args;

	add_mount(&l, "/", NULL, &root_volume);
	add_kernel(&l, "5.14", "/boot/vmlinuz-5.14", "/boot/initramfs-5.14.img");
	c = read_files(&l, files);
	check(c.count == 1 && c.grub_reads_bls, "GRUB's blscfg reads the files that end in .conf");
	args = c.count ? args_of(&c.entries[0]) : NULL;
	check_str(args, "root=UUID=x ro quiet",
	          "$kernelopts is what grubenv has; what is not set "
	          "is empty");
	check(c.count && c.entries[0].uses_kernelopts, "that it was used is known");
	check(c.count && c.entries[0].initrds.count == 1, "a variable is no initramfs");
	free(args);
	bootchain_free(&c);
}

static void test_unread_bls(void)
{
	static const struct fake_file files[] = {
		{"/boot/grub/grub.cfg", "menuentry 'one' {\n linux /boot/vmlinuz-6.1 ro\n}\n"},
		{"/boot/loader/entries/a.conf", EL_ENTRY("ro")},
		{"/boot/EFI/Linux/left.efi", "no firmware reads ext4"},
		{NULL, NULL},
	};
	struct layout l = {.guest = {.grub_dir = (char *)"/boot/grub"}};
	struct bootchain c;

	add_mount(&l, "/", NULL, &root_volume);
	c = read_files(&l, files);
	check(c.count == 1 && c.unreadable.count == 0,
	      "BLS entries and UKIs that nothing reads are none");
	bootchain_free(&c);
}

static void test_stubs(void)
{
	static const struct fake_file files[] = {
		{"/boot/grub/grub.cfg", "menuentry 'one' {\n linux /boot/vmlinuz-6.1 ro\n}\n"},
		{"/boot/efi/EFI/debian/grub.cfg",
	         "search.fs_uuid x root\nset prefix=($root)/boot/grub\nconfigfile "
	         "$prefix/grub.cfg\n"},
		{"/boot/efi/EFI/over/grub.cfg", "menuentry 'two' {\n linux /boot/vmlinuz-6.1\n}\n"},
		{"/boot/efi/EFI/none/grub.cfg", "# nothing\n"},
		{NULL, NULL},
	};
	struct layout l = {.guest = {.grub_dir = (char *)"/boot/grub"}};
	struct bootchain c;

	add_mount(&l, "/", NULL, &root_volume);
	add_mount(&l, "/boot/efi", NULL, &esp_volume);
	c = read_files(&l, files);
	check(c.stub_count == 3, "each grub.cfg on the ESP is seen");
	check(c.stub_count == 3 && c.stubs[0].leads_on && !c.stubs[0].has_entries,
	      "a small one leads to the real one");
	check(c.stub_count == 3 && !c.stubs[1].leads_on && !c.stubs[1].has_entries,
	      "an empty one leads nowhere");
	check(c.stub_count == 3 && c.stubs[2].has_entries, "one with entries was written over");
	check(c.count == 2, "and its entries count");
	bootchain_free(&c);
}

static void test_unreadable(void)
{
	static const struct fake_file files[] = {
		{"/boot/grub2/grub.cfg", "blscfg\n"},
		{"/boot/loader/entries/a.conf", "title only\n"},
		{"/boot/loader/entries/b.conf", EL_ENTRY("ro")},
		{NULL, NULL},
	};
	struct layout l = {.guest = {.grub_dir = (char *)"/boot/grub2"}};
	struct bootchain c;

	add_mount(&l, "/", NULL, &root_volume);
	c = read_files(&l, files);
	check(c.count == 1 && c.unreadable.count == 1,
	      "an entry that cannot be understood is told, and the others are read");
	bootchain_free(&c);
}

/* A directory as a writable root. */
static struct rootfs *open_dir(const char *dir)
{
	struct error err = ERROR_INIT;
	struct rootfs *r = NULL;

	check(tree_rootfs(&r, dir, NULL, &err) == 0, "the directory opens: %s",
	      err.message ? err.message : "no error");
	error_free(&err);
	return r;
}

static char *read_back(struct rootfs *r, const char *path)
{
	struct error err = ERROR_INIT;
	void *text = NULL;

	rootfs_read(r, path, 65536, &text, NULL, &err);
	error_free(&err);
	return text;
}

static void put(struct rootfs *r, const char *path, const char *text)
{
	struct error err = ERROR_INIT;

	check(rootfs_write(r, path, text, strlen(text), 0644, &err) == 0, "'%s' is written", path);
	error_free(&err);
}

static void apply(struct rootfs *r, const struct layout *l)
{
	struct error err = ERROR_INIT;
	struct bootchain c = {0};
	struct param_places p;
	struct log *log = NULL;
	struct cmdline_edit edit = {0};

	strv_add(&edit.add, "pci=nocrs");
	strv_add(&edit.add, "module_blacklist=nouveau");
	strv_add(&edit.remove, "quiet");
	check(log_open(&log, NULL, LOG_QUIET, &err) == 0 &&
	              bootchain_read(&c, r, &l->guest, "/var/tmp", &err) == 0 &&
	              param_places_find(&p, r, &c, &err) == 0 &&
	              param_places_apply(&p, r, &c, &edit, log, &err) == 0,
	      "the places are edited: %s", err.message ? err.message : "no error");
	log_close(log);
	bootchain_free(&c);
	strv_free(&edit.add);
	strv_free(&edit.remove);
	error_free(&err);
}

/* systemd-boot: an ESP with type 1 entries, no /etc/kernel/cmdline yet. */
static void test_places(void)
{
	static const char entry[] =
		"title      Debian\nversion    6.12\nsort-key   debian\n"
		"options    root=UUID=x ro quiet module_blacklist=floppy "
		"systemd.machine_id=0123456789abcdef0123456789abcdef\n"
		"linux      /debian/6.12/linux\ninitrd     /debian/6.12/initrd\n";
	char dir[] = "/var/tmp/test_bootchain.XXXXXX";
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct layout l = {0};
	struct rootfs *r = NULL;
	char *got;

	if (!mkdtemp(dir) || chown(dir, TREE_UID_BASE, TREE_UID_BASE) < 0 || chmod(dir, 0755) < 0) {
		check(true, "places are edited # SKIP needs root");
		rmdir(dir);
		return;
	}
	r = open_dir(dir);
	add_mount(&l, "/", NULL, &root_volume);
	add_mount(&l, "/boot/efi", NULL, &esp_volume);
	add_kernel(&l, "6.12", "/boot/vmlinuz-6.12", "/boot/initrd.img-6.12");
	put(r, "/boot/grub2/grub.cfg", "blscfg\n");
	l.guest.grub_dir = (char *)"/boot/grub2";
	put(r, "/boot/loader/entries/a.conf", entry);
	put(r, "/boot/loader/entries/b.conf", "version 6.1\nlinux /vmlinuz-6.1\n");
	put(r, "/boot/grub2/grubenv",
	    "# GRUB Environment Block\nkernelopts=root=UUID=y ro quiet\n" HASHES);
	put(r, "/usr/bin/kernel-install", "#!/bin/sh\n");
	apply(r, &l);
	got = read_back(r, "/boot/loader/entries/a.conf");
	check(got && strstr(got, "options    root=UUID=x ro module_blacklist=floppy,nouveau "
	                         "pci=nocrs\n"),
	      "an entry's options are edited, what stays keeps its place, names are merged");
	check(got && strstr(got, "sort-key   debian\n") && strstr(got, "linux      /debian/6.12"),
	      "its other lines stay");
	free(got);
	got = read_back(r, "/boot/loader/entries/b.conf");
	check(got && strstr(got, "options root=UUID=y ro pci=nocrs module_blacklist=nouveau\n"),
	      "an entry without options keeps what GRUB's variable gave it");
	free(got);
	got = read_back(r, KERNEL_CMDLINE_PATH);
	check(got && strstr(got, "root=UUID=x") && strstr(got, "pci=nocrs") &&
	              !strstr(got, "quiet"),
	      "/etc/kernel/cmdline is made from it");
	check(got && !strstr(got, "machine_id"), "without the base's machine-id");
	free(got);
	apply(r, &l);
	got = read_back(r, "/boot/loader/entries/a.conf");
	check(got && strstr(got, "module_blacklist=floppy,nouveau pci=nocrs\n"),
	      "twice gives the same as once");
	free(got);
	rootfs_close(r);
	tree_remove(dir, &ignored);
}

/* Verdicts of one id, as letters: "ob" is one that holds and one that does not. */
static char *verdicts(const struct findings *f, const char *id)
{
	static const char letters[] = {
		[FINDING_OK] = 'o', [FINDING_NOTE] = 'n', [FINDING_BAD] = 'b'};
	char *text = mem_alloc(f->count + 1), *to = text;

	for (size_t i = 0; i < f->count; i++)
		if (str_equal(f->items[i].id, id))
			*to++ = letters[f->items[i].verdict];
	return text;
}

/* The UUID of a stub's search says which file system its prefix counts from. */
static void test_stub_target(void)
{
	static const struct volume own_boot = {
		.number = 16, .type = (char *)"ext4", .uuid = (char *)"b-o-o-t"};
	static const struct fake_file files[] = {
		{"/boot/grub/grub.cfg", "menuentry 'one' {\n linux /vmlinuz-6.1 ro\n}\n"},
		{"/boot/efi/EFI/a/grub.cfg",
	         "search.fs_uuid b-o-o-t root\nset prefix=($root)'/grub'\nconfigfile "
	         "$prefix/grub.cfg\n"},
		{"/boot/efi/EFI/b/grub.cfg",
	         "search.fs_uuid b-o-o-t root\nset prefix=($root)'/boot/grub2'\nconfigfile "
	         "$prefix/grub.cfg\n"},
		{NULL, NULL},
	};
	struct layout l = {.guest = {.grub_dir = (char *)"/boot/grub"}};
	struct fake_rootfs root = fake_rootfs(files);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv none = {0};
	struct findings f = {0};
	struct bootchain c;
	char *got;

	add_mount(&l, "/", NULL, &root_volume);
	add_mount(&l, "/boot", NULL, &own_boot);
	add_mount(&l, "/boot/efi", NULL, &esp_volume);
	c = read_files(&l, files);
	check(proof_entries(&f, &root.base, &l.guest, &c, NULL, &none, &none, &err) == 0,
	      "the entries are judged");
	got = verdicts(&f, "esp.stub");
	check_str(got, "ob",
	          "a stub that leads to the /boot of its own holds, one that leads to "
	          "nothing does not");
	free(got);
	findings_free(&f);
	bootchain_free(&c);
}

static void test_later_kernelopts(void)
{
	static const struct fake_file files[] = {
		{"/boot/grub2/grubenv",
	         "# GRUB Environment Block\nkernelopts=ro pci=nocrs\n" HASHES},
		{NULL, NULL},
	};
	struct fake_rootfs root = fake_rootfs(files);
	const struct param_places places = {.grubenv = "/boot/grub2/grubenv"};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv params = {0};
	struct findings f = {0};
	char *got;

	strv_add(&params, "pci=nocrs");
	strv_add(&params, "pci=realloc");
	check(proof_places(&f, &places, &root.base, &params, &err) == 0, "grubenv is judged");
	got = verdicts(&f, "cmdline.later");
	check_str(got, "ob", "what grubenv's kernelopts lack, later kernels lack");
	free(got);
	findings_free(&f);
}

/* The only grub.cfg of an Enterprise Linux 8 that boots by UEFI alone. */
static void test_el8_uefi(void)
{
	static const struct fake_file files[] = {
		{"/boot/efi/EFI/rocky/grub.cfg", "insmod blscfg\nblscfg\n"},
		{"/boot/efi/EFI/rocky/grubenv",
	         "# GRUB Environment Block\nkernelopts=root=UUID=x ro\n" HASHES},
		{"/boot/loader/entries/a.conf", EL_ENTRY("$kernelopts $tuned_params")},
		{NULL, NULL},
	};
	struct layout l = {.guest = {.is_el = true}};
	struct fake_rootfs root = fake_rootfs(files);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct param_places places;
	struct bootchain c;
	char *args;

	add_mount(&l, "/", NULL, &root_volume);
	add_mount(&l, "/boot/efi", NULL, &esp_volume);
	c = read_files(&l, files);
	args = c.count ? args_of(&c.entries[0]) : NULL;
	check_str(args, "root=UUID=x ro", "$kernelopts is what the grubenv beside it has");
	check(param_places_find(&places, &root.base, &c, &err) == 0, "places are found");
	check_str(places.grubenv, "/boot/efi/EFI/rocky/grubenv", "which is where they are edited");
	free(args);
	bootchain_free(&c);
}

static struct boot_entry make_entry(const char *title, const char *args)
{
	return (struct boot_entry){.source = BOOT_GRUB,
	                           .file = (char *)"/boot/grub/grub.cfg",
	                           .title = (char *)title,
	                           .kernel = (char *)"/boot/vmlinuz-6.1",
	                           .args = cmdline_split(args)};
}

#define ROOT_UUID "root=UUID=11111111-2222-4333-8444-555555555555"

static void test_kept(void)
{
	static const struct fake_file files[] = {{"/boot/vmlinuz-6.1", "k"}, {NULL, NULL}};
	struct fake_rootfs root = fake_rootfs(files);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const struct strv none = {0};
	struct boot_entry was[] = {make_entry("Debian", ROOT_UUID " ro quiet"),
	                           make_entry("mine", ROOT_UUID " ro debug")};
	struct boot_entry is[] = {
		make_entry("Debian", ROOT_UUID " ro quiet"),
		make_entry("mine", ROOT_UUID " ro debug"),
		make_entry("other", "root=gpt-auto ro quiet "
	                            "systemd.machine_id=0123456789abcdef0123456789abcdef"),
		make_entry("firmware", ROOT_UUID " ro quiet systemd.machine_id=firmware")};
	const struct bootchain before = {.entries = was, .count = 2};
	const struct bootchain after = {.entries = is, .count = 4};
	struct findings f = {0};
	struct layout l = {0};
	char *got;

	add_mount(&l, "/", NULL, &root_volume);
	add_kernel(&l, "6.1", "/boot/vmlinuz-6.1", "/boot/initrd.img-6.1");
	check(proof_entries(&f, &root.base, &l.guest, &after, &before, &none, &none, &err) == 0,
	      "entries are judged");
	got = verdicts(&f, "cmdline.kept");
	check_str(got, "oobo",
	          "an entry is compared with the one of its title, else with one of its kernel");
	free(got);
	got = verdicts(&f, "cmdline.root");
	check_str(got, "oono", "root=gpt-auto is not another disk's");
	free(got);
	got = verdicts(&f, "cmdline.machine-id");
	check_str(got, "b", "a machine-id in an entry would be that of all nodes");
	free(got);
	findings_free(&f);
	for (size_t i = 0; i < 2; i++)
		strv_free(&was[i].args);
	for (size_t i = 0; i < 4; i++)
		strv_free(&is[i].args);
}

static void put_pe(struct rootfs *r, const char *path, const struct part *parts, size_t count)
{
	struct error err = ERROR_INIT;
	struct image pe;

	pe_make(&pe, parts, count);
	check(rootfs_write(r, path, pe.bytes, pe.size, 0644, &err) == 0, "'%s' is written", path);
	error_free(&err);
}

/* systemd-stub puts what addons say behind a UKI's own command line. */
static void test_addons(void)
{
	static const struct part uki[] = {{".cmdline", "ro pci=realloc", 0},
	                                  {".uname", "6.12", 0},
	                                  {".initrd", "i", 0},
	                                  {".linux", "k", 0}};
	static const struct part own[] = {{".cmdline", "pci=realloc=off", 0}};
	static const struct part all[] = {{".cmdline", "debug", 0}};
	char dir[] = "/var/tmp/test_bootchain.XXXXXX";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct bootchain c = {0};
	struct layout l = {0};
	struct rootfs *r;
	char *args;

	if (!mkdtemp(dir) || chown(dir, TREE_UID_BASE, TREE_UID_BASE) < 0 || chmod(dir, 0755) < 0) {
		check(true, "addons are read # SKIP needs root");
		rmdir(dir);
		return;
	}
	r = open_dir(dir);
	add_mount(&l, "/", NULL, &root_volume);
	add_mount(&l, "/boot/efi", NULL, &esp_volume);
	put_pe(r, "/boot/efi/EFI/Linux/a.efi", uki, 4);
	put_pe(r, "/boot/efi/EFI/Linux/a.efi.extra.d/x.addon.efi", own, 1);
	put_pe(r, "/boot/efi/loader/addons/y.addon.efi", all, 1);
	put_pe(r, "/boot/efi/loader/addons/z.efi", own, 1);
	check(bootchain_read(&c, r, &l.guest, "/var/tmp", &err) == 0 && c.count == 1,
	      "a UKI is one entry: %s", err.message ? err.message : "no error");
	args = c.count ? args_of(&c.entries[0]) : NULL;
	check_str(args, "ro pci=realloc pci=realloc=off debug",
	          "its addons' parameters come behind its own, then those for all");
	check(c.count && c.entries[0].own_args == 2, "and its own are known");
	free(args);
	bootchain_free(&c);
	rootfs_close(r);
	tree_remove(dir, &err);
}

int main(void)
{
	test_grub_paths();
	test_btrfs_paths();
	test_kernelopts();
	test_unread_bls();
	test_stubs();
	test_stub_target();
	test_unreadable();
	test_places();
	test_addons();
	test_later_kernelopts();
	test_el8_uefi();
	test_kept();
	return tap_done();
}
