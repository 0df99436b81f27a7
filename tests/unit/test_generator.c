/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which generator a guest has, as the packages and hooks of Debian 12 to forky, Ubuntu, Enterprise
 * Linux and Arch tell; how dracut is called and configured; and the proof of what it makes.
 */
#include <sys/mman.h>

#include "builder/generator.h"
#include "builder/proc.h"
#include "builder/proof.h"
#include "fake-rootfs.h"
#include "tap.h"

#define PACKAGE(name) "Package: " name "\nStatus: install ok installed\nVersion: 1\n\n"
#define REMOVED(name) "Package: " name "\nStatus: deinstall ok config-files\nVersion: 1\n\n"
#define STATUS(text)                                                                               \
	{                                                                                          \
		"/var/lib/dpkg/status", text                                                       \
	}
#define HOOK(name)                                                                                 \
	{                                                                                          \
		"/etc/kernel/postinst.d/" name, "#!/bin/sh\n"                                      \
	}
#define MKINITRAMFS                                                                                \
	{                                                                                          \
		"/usr/sbin/mkinitramfs", ""                                                        \
	}
#define UPDATE "/usr/sbin/update-initramfs\n"
#define DRACUT                                                                                     \
	{"/usr/bin/dracut", ""},                                                                   \
	{                                                                                          \
		"/usr/lib/dracut/dracut-functions.sh", ""                                          \
	}
#define DRACUT_INSTALL                                                                             \
	{                                                                                          \
		"/usr/lib/kernel/install.d/50-dracut.install", ""                                  \
	}
#define KERNEL_CONF(value)                                                                         \
	{                                                                                          \
		"/etc/kernel/install.conf", "# x\ninitrd_generator=" value "\n"                    \
	}
#define FILES_MAX 12
#define KVER      "6.12.1-t"

static const struct generator_case {
	const char *what, *want;
	struct fake_file files[FILES_MAX];
} generator_cases[] = {
	{"Debian 12: initramfs-tools by its package",
         "initramfs-tools",
         {STATUS(PACKAGE("initramfs-tools") PACKAGE("initramfs-tools-core")),
          HOOK("initramfs-tools"), MKINITRAMFS}},
	{"Debian 13 with dracut, whose predecessor left its hook and configuration",
         "dracut",
         {STATUS(REMOVED("initramfs-tools") PACKAGE("dracut") PACKAGE("dracut-core")),
          HOOK("initramfs-tools"), HOOK("dracut"), DRACUT}},
	{"forky: dracut owns update-initramfs and is dracut all the same",
         "dracut",
         {STATUS(PACKAGE("dracut") PACKAGE("dracut-core")),
          HOOK("dracut"),
          DRACUT,
          {"/var/lib/dpkg/info/dracut.list", "/.\n" UPDATE}}},
	{"both, and update-initramfs is dracut's: the hook of initramfs-tools does nothing",
         "dracut",
         {STATUS(PACKAGE("initramfs-tools") PACKAGE("dracut")),
          HOOK("initramfs-tools"),
          HOOK("dracut"),
          DRACUT,
          MKINITRAMFS,
          {"/var/lib/dpkg/info/dracut.list", "/.\n" UPDATE}}},
	{"both, and update-initramfs is its own: the hook of initramfs-tools writes last",
         "initramfs-tools",
         {STATUS(PACKAGE("initramfs-tools") PACKAGE("dracut")),
          HOOK("initramfs-tools"),
          HOOK("dracut"),
          DRACUT,
          MKINITRAMFS,
          {"/var/lib/dpkg/info/initramfs-tools.list", "/.\n" UPDATE}}},
	{"both, and only dracut has a hook",
         "dracut",
         {STATUS(PACKAGE("initramfs-tools") PACKAGE("dracut")),
          {"/usr/share/kernel/postinst.d/dracut", ""},
          DRACUT,
          MKINITRAMFS}},
	{"dracut-core beside initramfs-tools is not called by a hook",
         "initramfs-tools",
         {STATUS(PACKAGE("initramfs-tools") PACKAGE("dracut-core")), HOOK("initramfs-tools"),
          DRACUT, DRACUT_INSTALL, MKINITRAMFS}},
	{"the same with systemd-boot, and kernel-install told to use dracut",
         "dracut",
         {STATUS(PACKAGE("initramfs-tools") PACKAGE("dracut-core")), HOOK("initramfs-tools"),
          HOOK("zz-systemd-boot"), DRACUT, DRACUT_INSTALL, MKINITRAMFS, KERNEL_CONF("dracut")}},
	{"kernel-install's configuration means nothing where no hook calls it",
         "initramfs-tools",
         {STATUS(PACKAGE("initramfs-tools") PACKAGE("dracut-core")), HOOK("initramfs-tools"),
          DRACUT, MKINITRAMFS, KERNEL_CONF("dracut")}},
	{"kernel-install told to use a generator that is not there",
         "initramfs-tools",
         {STATUS(PACKAGE("initramfs-tools")), HOOK("initramfs-tools"), HOOK("zz-systemd-boot"),
          MKINITRAMFS, KERNEL_CONF("dracut")}},
	{"dracut-core alone with systemd-boot",
         "dracut",
         {STATUS(PACKAGE("dracut-core")), HOOK("zz-systemd-boot"), DRACUT, DRACUT_INSTALL}},
	{"dracut-core alone without anything that calls it",
         "none",
         {STATUS(PACKAGE("dracut-core")), DRACUT, DRACUT_INSTALL}},
	{"tiny-initramfs, by its name for the refusal",
         "tiny-initramfs",
         {STATUS(PACKAGE("tiny-initramfs"))}},
	{"a Debian without any", "none", {STATUS(PACKAGE("dpkg"))}},
	{"Enterprise Linux 9 and 10: dracut by its files",
         "dracut",
         {{"/var/lib/rpm/rpmdb.sqlite", ""}, DRACUT, DRACUT_INSTALL}},
	{"Fedora told to use mkosi-initrd",
         "mkosi-initrd",
         {DRACUT, DRACUT_INSTALL, {"/usr/bin/mkosi-initrd", ""}, KERNEL_CONF("mkosi-initrd")}},
	{"Arch: mkinitcpio", "mkinitcpio", {{"/usr/bin/mkinitcpio", ""}}},
	{"Arch: booster", "booster", {{"/usr/bin/booster", ""}}},
	{"a program named dracut without its modules is none", "none", {{"/usr/bin/dracut", ""}}},
	{"an image with neither packages nor programs", "none", {{"/etc/os-release", "ID=x\n"}}},
};

static void test_detection(void)
{
	for (size_t i = 0; i < sizeof(generator_cases) / sizeof(generator_cases[0]); i++) {
		const struct generator_case *c = &generator_cases[i];
		struct fake_rootfs root = fake_rootfs(c->files);
		CLEANUP_ERROR struct error err = ERROR_INIT;
		struct guest g = {0};

		check(guest_read_generator(&g, &root.base, &err) == 0, "%s: read", c->what);
		check_str(g.generator, c->want, "%s", c->what);
		free(g.generator);
	}
	check(!generator_find("mkinitcpio") && !generator_find("none") && !generator_find(NULL),
	      "those that we cannot run are not found");
}

struct fake_guest {
	struct volume volume;
	struct guest_mount mount;
	struct guest_kernel kernel;
	struct guest guest;
};

static struct guest *fake_guest(struct fake_guest *f, const char *type, const char *lv,
                                const char *generator)
{
	*f = (struct fake_guest){
		.volume = {.type = (char *)type, .lv = (char *)lv},
		.mount = {.path = (char *)"/", .volume = &f->volume},
		.kernel = {.version = (char *)KVER,
	                   .initramfs = (char *)"/boot/initrd.img-" KVER,
	                   .has_initramfs = true},
		.guest = {.mounts = &f->mount, .mount_count = 1, .generator = (char *)generator}};
	return &f->guest;
}

static char *dracut_conf(const char *type, const char *lv, const struct strv *blocked)
{
	const struct generator *d = generator_find("dracut");
	CLEANUP_STRV struct strv paths = {0};
	struct fake_guest f;
	char *text;

	fake_guest(&f, type, lv, "dracut");
	for (size_t i = 0; d->block_paths[i]; i++)
		strv_add(&paths, d->block_paths[i]);
	text = d->conf_text(&f.guest, blocked, &paths);
	return text;
}

/* What a variable is after the file was read in the way that dracut does it. */
static char *sourced(const char *conf, const char *variable)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *script =
		str_format("add_drivers=' mine '\n%s\necho $%s", conf, variable);
	const char *const argv[] = {"bash", "-c", script, NULL};
	char *out = NULL, *trimmed;

	if (proc_run(argv, &(struct proc_options){.timeout_ms = 10000}, &out, 65536, &err) < 0)
		return str_format("failed: %s", err.message);
	trimmed = str_copy(str_trim(out));
	free(out);
	return trimmed;
}

static void check_sourced(const char *conf, const char *variable, const char *want,
                          const char *holds)
{
	CLEANUP_FREE char *got = sourced(conf, variable);

	check_str(got, want, "%s", holds);
}

static void test_conf(void)
{
	CLEANUP_STRV struct strv blocked = {0};
	CLEANUP_FREE char *ext = NULL;
	CLEANUP_FREE char *lvm = NULL;
	CLEANUP_FREE char *btrfs = NULL;
	CLEANUP_FREE char *odd = NULL;
	CLEANUP_FREE char *omitted = NULL;

	strv_add(&blocked, "nouveau");
	strv_add(&blocked, "nova-core");
	strv_add(&blocked, "$(touch /tmp/gpuimg-evil)");
	ext = dracut_conf("ext3", NULL, &blocked);
	lvm = dracut_conf("xfs", "/dev/vg/root", &blocked);
	odd = dracut_conf("ext4", "/dev/vg/$(id)", &blocked);
	btrfs = dracut_conf("btrfs", NULL, &blocked);
	check_sourced(ext, "hostonly", "no", "rebuilds on the node are not host-only");
	check_sourced(ext, "add_drivers", "mine virtio_blk virtio_scsi virtio_pci nvme ext4",
	              "drivers are added to what other files add; ext4 mounts ext3");
	check_sourced(ext, "install_items",
	              "/etc/modprobe.d/gpuimg-gpu-block.conf "
	              "/usr/lib/modprobe.d/gpuimg-gpu-block.conf",
	              "both block files are installed");
	check_sourced(ext, "add_dracutmodules", "", "a plain root needs no module of its own");
	check_sourced(lvm, "add_drivers", "mine virtio_blk virtio_scsi virtio_pci nvme xfs dm_mod",
	              "a logical volume needs the device mapper");
	check_sourced(lvm, "add_dracutmodules", "lvm", "and dracut's support of it");
	check_sourced(lvm, "kernel_cmdline", "rd.lvm.lv=vg/root",
	              "and is activated, whatever the kernel's command line says");
	check_sourced(odd, "kernel_cmdline", "rd.auto", "one with an odd name with all others");
	check_sourced(ext, "kernel_cmdline", "", "nothing is added for a plain root");
	check_sourced(btrfs, "add_dracutmodules", "btrfs", "btrfs needs its own module");
	omitted = sourced(ext, "omit_drivers");
	check(str_starts(omitted, "nouveau nova_core nvidia "),
	      "what is blocked is left out, in the kernel's spelling");
	check(strstr(omitted, " amdgpu"), "and so are other drivers of GPUs");
	check(!strstr(ext, "touch"), "a name that a shell would run is not written");
}

static void check_argv(const char *generator, const char *program, const char *text,
                       const char *want, const char *what)
{
	const struct fake_file files[] = {{program, text}, {NULL, NULL}};
	struct fake_rootfs root = fake_rootfs(files);
	CLEANUP_STRV struct strv argv = {0};
	CLEANUP_FREE char *line = NULL;

	generator_find(generator)->make_argv(&argv, &root.base, program, KVER, "/boot/out");
	line = strv_join(&argv, " ");
	check_str(line, want, "%s", what);
}

#define DRACUT_OPTIONS                                                                              \
	"--force --no-hostonly --no-hostonly-cmdline --reproducible --tmpdir /var/tmp --kver " KVER \
	" /boot/out"

static void test_argv(void)
{
	check_argv("dracut", "/usr/bin/dracut", "--no-uefi) uefi_l=no ;;\n",
	           "/usr/bin/dracut --no-uefi " DRACUT_OPTIONS,
	           "dracut is called generic, for a given kernel");
	check_argv("dracut", "/usr/bin/dracut", "--uefi) uefi=yes ;;\n",
	           "/usr/bin/dracut " DRACUT_OPTIONS, "without an option that 049 does not have");
	check_argv("initramfs-tools", "/usr/sbin/mkinitramfs", "",
	           "/usr/sbin/mkinitramfs -o /boot/out " KVER,
	           "mkinitramfs is called for a given kernel");
}

static void test_temporary(void)
{
	static const struct fake_file with[] = {{"/usr/share/initramfs-tools/conf-hooks.d/x", ""},
	                                        {NULL, NULL}};
	static const struct fake_file without[] = {{"/etc/fstab", ""}, {NULL, NULL}};
	const struct generator *g = generator_find("initramfs-tools");
	struct fake_rootfs root = fake_rootfs(with), bare = fake_rootfs(without);
	CLEANUP_FREE char *text = NULL;
	const char *path = NULL;
	struct fake_guest f;

	fake_guest(&f, "xfs", NULL, "initramfs-tools");
	check(g->temporary(&f.guest, &root.base, &path, &text) && strstr(text, "FSTYPE=xfs\n") &&
	              str_starts(path, "/usr/share/initramfs-tools/conf-hooks.d/"),
	      "initramfs-tools is told the root's type while it runs");
	check(!g->temporary(&f.guest, &bare.base, &path, &text),
	      "but not where it has no place for it");
}

/* ---- the proof ---- */

#define BLOCK_ETC  "etc/modprobe.d/gpuimg-gpu-block.conf"
#define BLOCK_USR  "usr/lib/modprobe.d/gpuimg-gpu-block.conf"
#define BLOCK_TEXT "blacklist nouveau\ninstall nouveau /bin/false\n"
#define MODULES    "usr/lib/modules/" KVER "/kernel/"

/* One file of a cpio archive in the form "newc", with its padding. */
static void add_member(FILE *to, const char *path, mode_t mode, const char *text)
{
	size_t size = strlen(text), name = strlen(path) + 1;

	fprintf(to, "070701%08x%08x%08x%08x%08x%08x%08zx%08x%08x%08x%08x%08zx%08x", 1, mode, 0, 0,
	        1, 0, size, 0, 0, 0, 0, name, 0);
	fwrite(path, 1, name, to);
	fwrite("\0\0\0", 1, (4 - (110 + name) % 4) % 4, to);
	fwrite(text, 1, size, to);
	fwrite("\0\0\0", 1, (4 - size % 4) % 4, to);
}

/* An initramfs in memory with these files and the directories above them, as a descriptor. */
static int make_initramfs(const struct fake_file *files)
{
	int fd = memfd_create("initramfs", MFD_CLOEXEC);
	FILE *to = fdopen(dup(fd), "w");
	CLEANUP_STRV struct strv dirs = {0};

	for (; files->path; files++) {
		for (const char *at = files->path; (at = strchr(at, '/')); at++) {
			CLEANUP_FREE char *dir = mem_copy(files->path, (size_t)(at - files->path));

			if (strv_has(&dirs, dir))
				continue;
			strv_add(&dirs, dir);
			add_member(to, dir, S_IFDIR | 0755, "");
		}
		add_member(to, files->path,
		           strcmp(files->path, "sbin") == 0 ? S_IFLNK | 0777 : S_IFREG | 0644,
		           files->text);
	}
	add_member(to, "TRAILER!!!", 0, "");
	fclose(to);
	return fd;
}

/* What dracut makes: everything under /usr. */
static const struct fake_file good[] = {
	{"sbin", "usr/sbin"}, /* a link */
	{BLOCK_ETC, BLOCK_TEXT},
	{BLOCK_USR, BLOCK_TEXT},
	{MODULES "drivers/virtio_blk.ko.xz", "x"},
	{MODULES "drivers/virtio_scsi.ko.xz", "x"},
	{MODULES "drivers/nvme.ko.xz", "x"},
	{MODULES "fs/ext4.ko.xz", "x"},
	{MODULES "drivers/md/dm-mod.ko.xz", "x"},
	{"usr/sbin/lvm", "x"},
	{"usr/sbin/fsck.ext4", "x"},
	{NULL, NULL},
};

/* The root file system around it; virtio_pci is built in. */
static const struct fake_file root_files[] = {
	{"/usr/lib/modules/" KVER "/modules.dep",
         "kernel/drivers/virtio_blk.ko.xz:\nkernel/drivers/virtio_scsi.ko.xz:\n"
         "kernel/drivers/nvme.ko.xz:\nkernel/fs/ext4.ko.xz:\nkernel/drivers/md/dm-mod.ko.xz:\n"},
	{"/lib/modules/" KVER "/modules.dep",
         "kernel/drivers/virtio_blk.ko.xz:\nkernel/drivers/virtio_scsi.ko.xz:\n"
         "kernel/drivers/nvme.ko.xz:\nkernel/fs/ext4.ko.xz:\nkernel/drivers/md/dm-mod.ko.xz:\n"},
	{"/lib/modules/" KVER "/modules.builtin", "kernel/drivers/virtio/virtio_pci.ko\n"},
	{"/etc/fstab", "UUID=x / ext4 defaults 0 1\n"},
	{"/sbin/fsck.ext4", "x"},
	{NULL, NULL},
};

struct proof_case {
	const char *what;
	const char *generator;
	const char *type, *lv;
	const char *without, *with; /* a file of 'good' left out, or one that is there too */
	const char *want;           /* the bad finding's id and a piece of its text; NULL: none */
	const char *want_text;
	const char *want_cure;
	bool inspect, no_block;
};

static const struct proof_case proof_cases[] = {
	{.what = "a good dracut image raises nothing", .generator = "dracut"},
	{.what = "so does one that was made for initramfs-tools", .generator = "initramfs-tools"},
	{.what = "without the file in /etc",
         .generator = "dracut",
         .without = BLOCK_ETC,
         .want = "initramfs.block",
         .want_text = "'/" BLOCK_ETC "'"},
	{.what = "without the file in /usr/lib",
         .generator = "dracut",
         .without = BLOCK_USR,
         .want = "initramfs.block",
         .want_text = "'/" BLOCK_USR "'"},
	{.what = "an image that nobody built needs no file of ours",
         .generator = "dracut",
         .without = BLOCK_USR,
         .inspect = true,
         .no_block = true},
	{.what = "without nvme, dracut",
         .generator = "dracut",
         .without = MODULES "drivers/nvme.ko.xz",
         .want = "initramfs.driver",
         .want_text = "'nvme'",
         .want_cure = "dracut.conf.d"},
	{.what = "without nvme, initramfs-tools",
         .generator = "initramfs-tools",
         .without = MODULES "drivers/nvme.ko.xz",
         .want = "initramfs.driver",
         .want_text = "'nvme'",
         .want_cure = "MODULES=most"},
	{.what = "without nvme, a generator that we do not know",
         .generator = "booster",
         .without = MODULES "drivers/nvme.ko.xz",
         .want = "initramfs.driver",
         .want_text = "'nvme'",
         .want_cure = "all hardware"},
	{.what = "a root on LVM", .generator = "dracut", .lv = "/dev/vg/root"},
	{.what = "a root on LVM without dm_mod",
         .generator = "dracut",
         .lv = "/dev/vg/root",
         .without = MODULES "drivers/md/dm-mod.ko.xz",
         .want = "initramfs.driver",
         .want_text = "'dm_mod'"},
	{.what = "a root on LVM without the program",
         .generator = "dracut",
         .lv = "/dev/vg/root",
         .without = "usr/sbin/lvm",
         .want = "initramfs.lvm",
         .want_text = "'lvm'"},
	{.what = "without dm_mod, but the root is a plain partition",
         .generator = "dracut",
         .without = MODULES "drivers/md/dm-mod.ko.xz"},
	{.what = "a dracut that was told to leave fsck out",
         .generator = "dracut",
         .without = "usr/sbin/fsck.ext4"},
	{.what = "initramfs-tools without fsck",
         .generator = "initramfs-tools",
         .without = "usr/sbin/fsck.ext4",
         .want = "initramfs.fsck",
         .want_text = "fsck.ext4"},
	{.what = "nouveau is in it",
         .generator = "dracut",
         .with = MODULES "drivers/nouveau.ko.xz",
         .want = "initramfs.gpu-module",
         .want_text = "'nouveau'",
         .want_cure = "omit_drivers"},
	{.what = "another kernel's modules are in it",
         .generator = "dracut",
         .with = "usr/lib/modules/5.10.0/kernel/x.ko",
         .want = "initramfs.version",
         .want_text = "'5.10.0'"},
};

/* 'good' without one file and with another. */
static int make_case(const struct proof_case *c)
{
	struct fake_file files[sizeof(good) / sizeof(good[0]) + 1] = {{NULL, NULL}};
	size_t n = 0;

	for (size_t i = 0; good[i].path; i++)
		if (!c->without || strcmp(good[i].path, c->without) != 0)
			files[n++] = good[i];
	if (c->with)
		files[n] = (struct fake_file){c->with, "x"};
	return make_initramfs(files);
}

static void judge(const struct proof_case *c, const struct findings *f)
{
	const struct finding *bad = NULL;

	for (size_t i = 0; i < f->count; i++)
		if (f->items[i].verdict == FINDING_BAD) {
			if (bad || !c->want)
				printf("# %s: %s\n", f->items[i].id, f->items[i].what);
			bad = &f->items[i];
		}
	if (!c->want) {
		check(f->bad == 0, "%s", c->what);
		return;
	}
	if (!check(bad && f->bad == 1, "%s: is one point", c->what) || !bad)
		return;
	check(str_equal(bad->id, c->want) && strstr(bad->what, c->want_text), "%s: is named",
	      c->what);
	check((!c->want_cure || strstr(bad->cure, c->want_cure)), "%s: has its own cure", c->what);
}

static void run_proof(const struct proof_case *c, const char *scratch)
{
	struct fake_rootfs root = fake_rootfs(root_files);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv paths = {0};
	CLEANUP_STRV struct strv blocked = {0};
	CLEANUP_CLOSE int fd = make_case(c);
	struct findings findings = {0};
	struct fake_guest f;
	struct proof_initramfs p = {
		.root = &root.base,
		.guest = fake_guest(&f, c->type ? c->type : "ext4", c->lv, c->generator),
		.kernel = &f.kernel,
		.block_paths = &paths,
		.block_text = c->no_block ? NULL : BLOCK_TEXT,
		.blocked = &blocked,
		.scratch = scratch,
		.inspect = c->inspect,
		.fd = fd,
		.name = "x.efi (.initrd)",
	};

	strv_add(&blocked, "nouveau");
	strv_add(&paths, "/" BLOCK_ETC);
	if (str_equal(c->generator, "dracut"))
		strv_add(&paths, "/" BLOCK_USR);
	if (mkdir(scratch, 0700) < 0 || proof_initramfs(&findings, &p, &err) < 0)
		check(false, "%s: %s", c->what, err.message ? err.message : "no scratch");
	else
		judge(c, &findings);
	findings_free(&findings);
}

static void test_proof(void)
{
	char dir[] = "/tmp/gpuimg-generator-XXXXXX";
	const char *const argv[] = {"rm", "-rf", dir, NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (!mkdtemp(dir)) {
		check(false, "a temporary directory can be made");
		return;
	}
	for (size_t i = 0; i < sizeof(proof_cases) / sizeof(proof_cases[0]); i++) {
		CLEANUP_FREE char *scratch = str_format("%s/%zu", dir, i);

		run_proof(&proof_cases[i], scratch);
	}
	check(proc_run(argv, &(struct proc_options){.timeout_ms = 60000}, NULL, 0, &err) == 0,
	      "the scratch directories can be removed");
}

int main(void)
{
	test_detection();
	test_conf();
	test_argv();
	test_temporary();
	test_proof();
	return tap_done();
}
