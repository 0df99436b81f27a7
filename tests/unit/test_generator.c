/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which generator a guest has, as the packages and hooks of Debian 12 to forky, Ubuntu, Enterprise
 * Linux and Arch tell; how dracut is called and configured; and the proof of what it makes.
 */
#include <sys/mman.h>

#include "builder/data.h"
#include "builder/generator.h"
#include "builder/proc.h"
#include "builder/proof.h"
#include "builder/workdir.h"
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

static char *dracut_conf(const char *type, const char *lv, const struct strv *blocked,
                         const struct strv *gpu_modules)
{
	const struct generator *d = generator_find("dracut");
	CLEANUP_STRV struct strv paths = {0};
	struct fake_guest f;
	const struct generator_conf conf = {.guest = fake_guest(&f, type, lv, "dracut"),
	                                    .blocked = blocked,
	                                    .block_paths = &paths,
	                                    .gpu_modules = gpu_modules};

	for (size_t i = 0; d->block_paths[i]; i++)
		strv_add(&paths, d->block_paths[i]);
	return d->conf_text(&conf);
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

/* A word of its own in the list. */
static bool has_word(const char *list, const char *word)
{
	CLEANUP_STRV struct strv words = strv_split(list, " ");

	return strv_has(&words, word);
}

static void check_omitted(const char *omitted)
{
	static const char *const names[] = {"nvidia",
	                                    "nvidia_drm",
	                                    "nvidia_peermem",
	                                    "nvidia_current",
	                                    "nvidia_current_modeset",
	                                    "nvidia_current_open",
	                                    "nvidia_current_open_uvm",
	                                    "nvidia_tesla_535",
	                                    "nvidia_tesla_535_open_drm",
	                                    "nvidia_fs",
	                                    "nvidia_vgpu_vfio",
	                                    "nvidia_of_tomorrow",
	                                    "amdgpu"};

	check(str_starts(omitted, "nouveau nova_core nvidia "),
	      "what is blocked is left out, in the kernel's spelling");
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		check(has_word(omitted, names[i]), "dracut leaves '%s' out", names[i]);
}

static void test_conf(void)
{
	CLEANUP_STRV struct strv blocked = {0};
	CLEANUP_STRV struct strv gpu_modules = {0};
	CLEANUP_FREE char *ext = NULL;
	CLEANUP_FREE char *lvm = NULL;
	CLEANUP_FREE char *btrfs = NULL;
	CLEANUP_FREE char *odd = NULL;
	CLEANUP_FREE char *omitted = NULL;

	strv_add(&blocked, "nouveau");
	strv_add(&blocked, "nova-core");
	strv_add(&blocked, "$(touch /tmp/gpuimg-evil)");
	strv_add(&gpu_modules, "nvidia_of_tomorrow");
	ext = dracut_conf("ext3", NULL, &blocked, &gpu_modules);
	lvm = dracut_conf("xfs", "/dev/vg/root", &blocked, &gpu_modules);
	odd = dracut_conf("ext4", "/dev/vg/$(id)", &blocked, &gpu_modules);
	btrfs = dracut_conf("btrfs", NULL, &blocked, &gpu_modules);
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
	check_omitted(omitted);
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

static void test_gpu_modules(void)
{
	static const struct fake_file files[] = {
		{"/lib/modules/6.1.0/modules.dep",
	         "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko:\n"
	         "updates/dkms/nvidia-current-open-drm.ko.xz: updates/dkms/nvidia-current-open.ko.xz\n"
	         "updates/dkms/nvidia-current-open.ko.xz:\n"
	         "kernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko:\n"},
		{"/lib/modules/6.12.0/modules.dep", "extra/nvidia.ko.zst:\nextra/nvidia-fs.ko:\n"
	                                            "extra/nvidia.kotlin:\nextra/nvidia_uvm.ko\n"},
		{"/lib/modules/6.13.0/kernel/x", ""},
		{NULL, NULL},
	};
	static const struct fake_file none[] = {{"/etc/fstab", ""}, {NULL, NULL}};
	struct fake_rootfs root = fake_rootfs(files), bare = fake_rootfs(none);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv found = {0};
	CLEANUP_STRV struct strv nothing = {0};
	CLEANUP_FREE char *names = NULL;

	check(generator_gpu_modules(&found, &root.base, &err) == 0,
	      "the modules of all kernels are looked through");
	names = strv_join(&found, " ");
	check_str(names, "nvidia nvidia_current_open nvidia_current_open_drm nvidia_fs nvidia_uvm",
	          "NVIDIA's are found under the image's names, and no others");
	check(generator_gpu_modules(&nothing, &bare.base, &err) == 0 && nothing.count == 0,
	      "an image without modules has none");
}

static void put_text(const char *path, const char *text, mode_t mode)
{
	CLEANUP_FREE char *dir = str_copy(path);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	FILE *f;

	*strrchr(dir, '/') = '\0';
	if (workdir_make_parents(dir, &err) < 0 || !(f = fopen(path, "we"))) {
		printf("Bail out! cannot make %s\n", path);
		exit(1);
	}
	fputs(text, f);
	fclose(f);
	chmod(path, mode);
}

static void put_below(const char *dir, const char *path, const char *text)
{
	CLEANUP_FREE char *full = str_format("%s/%s", dir, path);

	put_text(full, text, 0644);
}

static bool has_file(const char *dir, const char *path)
{
	CLEANUP_FREE char *full = str_format("%s/%s", dir, path);

	return access(full, F_OK) == 0;
}

static char *run_hook(const char *hook, const char *argument, const char *const *env)
{
	const char *const argv[] = {hook, argument, NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char *out = NULL;

	if (proc_run(argv, &(struct proc_options){.timeout_ms = 10000, .env = env}, &out, 65536,
	             &err) < 0)
		return str_format("failed: %s", err.message);
	return out;
}

/* The hook as it stands in an image, but for the path of what it takes from initramfs-tools. */
static char *copy_hook(const char *dir)
{
	const struct generator *g = generator_find("initramfs-tools");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const char *source = getenv("GPUIMG_SOURCE");
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *sourced_path = NULL;
	CLEANUP_FREE char *changed = NULL;
	static const char theirs[] = "/usr/share/initramfs-tools/hook-functions";
	char *path = str_format("%s/hooks/zz-gpuimg-no-driver", dir), *at = NULL;

	if (data_read(source ? source : ".", g->drop_data, &text, &err) == 0)
		at = strstr(text, theirs);
	if (!check(at != NULL, "the hook is one of our data files") || !at)
		return path;
	sourced_path = str_format("%s/hook-functions", dir);
	*at = '\0';
	changed = str_format("%s%s%s", text, sourced_path, at + strlen(theirs));
	put_text(path, changed, 0755);
	return path;
}

static void test_hook_order(const char *dir, const char *hook)
{
	CLEANUP_FREE char *out = NULL;
	CLEANUP_FREE char *bad = str_format("%s/hooks/bad-syntax", dir);
	CLEANUP_FREE char *late = str_format("%s/hooks/zzz-late", dir);

	put_below(dir, "hooks/switched-off", "#!/bin/sh\n");
	put_below(dir, "hooks/directory/x", "");
	put_text(bad, "#!/bin/sh\nif\n", 0755);
	put_text(late, "#!/bin/sh\n", 0755);
	out = run_hook(hook, "prereqs", NULL);
	check_str(out, "zzz-late\n", "it runs after all hooks that run, and names no others");
}

static void test_hook(const char *dir)
{
	static const char *const kept[] = {
		"lib/modules/6/kernel/drivers/nvidiafb.ko",
		"lib/modules/6/kernel/drivers/platform/nvidia-wmi-ec-backlight.ko.xz",
		"lib/modules/6/kernel/drm.ko",
		"lib/firmware/nvidia/ad102/gsp/gsp-535.113.01.bin",
		"lib/firmware/nvidia/tu102/x",
	};
	static const char *const gone[] = {
		"lib/modules/6/updates/dkms/nvidia.ko",
		"lib/modules/6/updates/dkms/nvidia-current-open-uvm.ko.xz",
		"lib/modules/6/kernel/nvidia-535srv/nvidia-drm.ko",
		"lib/modules/6/queued/nvidia-modeset.ko.zst", /* by apply_add_modules() */
		"lib/firmware/nvidia/535.216.01/gsp_ga10x.bin",
		"lib/firmware/updates/nvidia/550.1/gsp_tu10x.bin",
	};
	CLEANUP_FREE char *hook = copy_hook(dir);
	CLEANUP_FREE char *dest = str_format("%s/dest", dir);
	CLEANUP_FREE char *dest_env = str_format("DESTDIR=%s", dest);
	CLEANUP_FREE char *list_env = str_format("__MODULES_TO_ADD=%s/queue", dir);
	CLEANUP_FREE char *out = NULL;
	CLEANUP_FREE char *queue = NULL;
	CLEANUP_FREE char *conf = NULL;
	const char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", dest_env, list_env, NULL};

	test_hook_order(dir, hook);
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		put_below(dest, kept[i], "");
	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		put_below(dest, gone[i], "");
	put_below(dir, "queue", "nvidia\nnvidiafb\nnvidia-drm\nneeds_it\n");
	put_below(
		dir, "hook-functions",
		"apply_add_modules() {\n"
		"  cp \"$__MODULES_TO_ADD\" \"$__MODULES_TO_ADD-seen\"; : >\"$__MODULES_TO_ADD\"\n"
		"  touch \"$DESTDIR/lib/modules/6/queued/nvidia-peermem.ko\"\n}\n");
	put_below(dest, "conf/modules", "ext4\nnvidia\nnvidia-drm modeset=1\nnvidiafb\n");
	out = run_hook(hook, NULL, env);
	check_str(out, "", "the hook runs");
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		check(has_file(dest, kept[i]), "it keeps '%s'", kept[i]);
	for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		check(!has_file(dest, gone[i]), "it removes '%s'", gone[i]);
	check(!has_file(dest, "lib/modules/6/queued/nvidia-peermem.ko"),
	      "and what another module's needs have brought");
	{
		CLEANUP_FREE char *seen = str_format("%s/queue-seen", dir);
		CLEANUP_FREE char *list = str_format("%s/conf/modules", dest);
		const char *const cat_queue[] = {"cat", seen, NULL};
		const char *const cat_conf[] = {"cat", list, NULL};
		CLEANUP_ERROR struct error err = ERROR_INIT;

		proc_run(cat_queue, NULL, &queue, 4096, &err);
		proc_run(cat_conf, NULL, &conf, 4096, &err);
	}
	check_str(queue, "nvidiafb\nneeds_it\n", "what waits to be copied has none of them");
	check_str(conf, "ext4\nnvidiafb\n", "nor has what is to be loaded by name");
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
	{.what = "NVIDIA's driver is in it, under a name of Debian's",
         .generator = "initramfs-tools",
         .with = MODULES "updates/dkms/nvidia-current-uvm.ko.xz",
         .want = "initramfs.gpu-driver",
         .want_text = "nvidia-current-uvm.ko.xz",
         .want_cure = "hooks"},
	{.what = "a module of the kernel whose name begins like the driver's",
         .generator = "initramfs-tools",
         .with = MODULES "drivers/platform/x86/nvidia-wmi-ec-backlight.ko.xz"},
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

/* ---- what the node makes later ---- */

#define DRIVER_DEP                                                                                 \
	{                                                                                          \
		"/lib/modules/" KVER "/modules.dep",                                               \
			"updates/dkms/nvidia-current.ko:\nupdates/dkms/nvidia-current-drm.ko:\n"   \
	}
#define DRACUT_CONF(text)                                                                          \
	{                                                                                          \
		"/etc/dracut.conf.d/x.conf", text                                                  \
	}

static const struct later_case {
	const char *what, *generator;
	enum finding_verdict verdict;
	const char *want; /* a piece of the text; NULL: no such point */
	struct fake_file files[FILES_MAX];
} later_cases[] = {
	{"dracut without omit_drivers",
         "dracut",
         FINDING_NOTE,
         "nvidia_current, nvidia_current_drm",
         {DRIVER_DEP}},
	{"dracut that omits one of two modules",
         "dracut",
         FINDING_NOTE,
         "driver: nvidia_current_drm",
         {DRIVER_DEP, DRACUT_CONF("omit_drivers+=\" nvidia-current \"\n")}},
	{"dracut that is told to pack the driver",
         "dracut",
         FINDING_BAD,
         "/boot: nvidia_current",
         {DRIVER_DEP, DRACUT_CONF("force_drivers+=\" nvidia-current ext4 \"\n")}},
	{"dracut that is told both: leaving out wins",
         "dracut",
         FINDING_OK,
         "leaves NVIDIA's driver out",
         {DRIVER_DEP, DRACUT_CONF("add_drivers+=\" nvidia-current \"\n"
                                  "omit_drivers+=\" nvidia_current nvidia_current_drm \"\n")}},
	{"dracut that is told something by a program",
         "dracut",
         FINDING_NOTE,
         "no omit_drivers",
         {DRIVER_DEP, DRACUT_CONF("add_drivers+=\" $(drivers) \"\n")}},
	{"dracut without a driver", "dracut", FINDING_OK, NULL, {DRACUT_CONF("hostonly=no\n")}},
	{"initramfs-tools with nothing that asks for it",
         "initramfs-tools",
         FINDING_OK,
         NULL,
         {DRIVER_DEP}},
	{"initramfs-tools with a list that names it",
         "initramfs-tools",
         FINDING_BAD,
         "/boot: nvidia_current",
         {DRIVER_DEP, {"/etc/initramfs-tools/modules", "# nvidia\next4\n nvidia-current x=1\n"}}},
	{"our hook does nothing while it is not executable",
         "initramfs-tools",
         FINDING_BAD,
         "/boot: nvidia_current",
         {DRIVER_DEP,
          {"/etc/initramfs-tools/modules", "nvidia_current\n"},
          {"/etc/initramfs-tools/hooks/zz-gpuimg-no-driver", ""}}},
	{"a list that names it, without a driver",
         "initramfs-tools",
         FINDING_OK,
         NULL,
         {{"/etc/initramfs-tools/modules", "nvidia-current\n"}}},
	{"initramfs-tools with Ubuntu's hook",
         "initramfs-tools",
         FINDING_NOTE,
         "framebuffer-nvidia",
         {DRIVER_DEP, {"/usr/share/initramfs-tools/hooks/framebuffer-nvidia", ""}}},
	{"a generator that we do not know", "booster", FINDING_OK, NULL, {DRIVER_DEP}},
};

static void test_later(const char *scratch)
{
	for (size_t i = 0; i < sizeof(later_cases) / sizeof(later_cases[0]); i++) {
		const struct later_case *c = &later_cases[i];
		struct fake_rootfs root = fake_rootfs(c->files);
		CLEANUP_ERROR struct error err = ERROR_INIT;
		struct findings f = {0};
		const struct finding *seen = NULL;
		const struct strv none = {0};
		struct fake_guest fake;
		struct guest *guest = fake_guest(&fake, "ext4", NULL, c->generator);

		guest->kernel_count = 0;
		check(proof_later_block(&f, &root.base, guest, &none, scratch, &err) == 0,
		      "%s: is judged", c->what);
		for (size_t n = 0; n < f.count; n++)
			if (str_equal(f.items[n].id, "initramfs.later"))
				seen = &f.items[n];
		check(c->want ? seen && seen->verdict == c->verdict && strstr(seen->what, c->want)
		              : !seen,
		      "%s: is told", c->what);
		findings_free(&f);
	}
}

static void test_in_scratch(void)
{
	char dir[] = "/tmp/gpuimg-generator-XXXXXX";
	const char *const argv[] = {"rm", "-rf", dir, NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (!mkdtemp(dir)) {
		check(false, "a temporary directory can be made");
		return;
	}
	test_hook(dir);
	test_later(dir);
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
	test_gpu_modules();
	test_in_scratch();
	return tap_done();
}
