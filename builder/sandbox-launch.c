/* SPDX-License-Identifier: Apache-2.0 */
/* bubblewrap's command line: what a program in the sandbox has and sees. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "sandbox-private.h"

#define TMP_BYTES         "2147483648" /* installers unpack themselves there */
#define SMALL_TMPFS_BYTES "67108864"

static void add_args(struct strv *args, const char *const *more)
{
	for (; *more; more++)
		strv_add(args, *more);
}

void launch_bind_file(struct launch *l, int fd, const char *perms, const char *path)
{
	l->fds[l->fd_count++] = fd;
	strv_add(&l->args, "--perms");
	strv_add(&l->args, perms);
	strv_add(&l->args, "--ro-bind-data");
	strv_addf(&l->args, "%d", fd);
	strv_add(&l->args, path);
}

/*
 * bubblewrap itself would follow a link that a guest has put in the place of a mount point,
 * and not inside the guest.
 */
static int check_mount_points(struct sandbox *s, struct error *err)
{
	static const char *const points[] = {"/proc", "/sys", "/dev", "/run", "/tmp"};

	for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++) {
		struct rootfs_stat st = {0};
		int found = rootfs_lstat(s->tree, points[i], &st, err);

		if (found < 0)
			return -1;
		if (found == 0 || !S_ISDIR(st.mode)) {
			error_set(err, "'%s' in the sandbox's tree is no directory", points[i]);
			return error_code(err, EXIT_INPUT);
		}
	}
	return 0;
}

/* What package scripts and initramfs generators use; no mounts, no raw devices, no tracing. */
static void add_capabilities(struct strv *args)
{
	static const char *const needed[] = {
		"CAP_AUDIT_WRITE", "CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH",
		"CAP_FOWNER",      "CAP_FSETID", "CAP_KILL",         "CAP_NET_BIND_SERVICE",
		"CAP_SETFCAP",     "CAP_SETGID", "CAP_SETPCAP",      "CAP_SETUID",
		"CAP_SYS_CHROOT", /* ldconfig -r, in initramfs-tools */
	};

	strv_add(args, "--cap-drop");
	strv_add(args, "ALL");
	for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++) {
		strv_add(args, "--cap-add");
		strv_add(args, needed[i]);
	}
}

/* A tmpfs is the host's memory. */
static void add_tmpfs(const struct sandbox *s, struct strv *args, const char *perms,
                      const char *size_bytes, const char *path)
{
	strv_add(args, "--perms");
	strv_add(args, perms);
	if (s->can_size) {
		strv_add(args, "--size");
		strv_add(args, size_bytes);
	}
	strv_add(args, "--tmpfs");
	strv_add(args, path);
}

static void add_root(const struct sandbox *s, struct strv *args, bool network)
{
	static const char *const isolation[] = {"bwrap",
	                                        "--unshare-ipc",
	                                        "--unshare-pid",
	                                        "--unshare-uts",
	                                        "--unshare-cgroup-try",
	                                        "--die-with-parent",
	                                        "--new-session",
	                                        "--hostname",
	                                        "localhost",
	                                        NULL};
	static const char *const kernel[] = {"--proc", "/proc", "--dev", "/dev", NULL};
	static const char *const rest[] = {
		"--perms", "1777",    "--dir", "/run/lock", "--remount-ro",
		"/sys",    "--chdir", "/",     NULL};

	add_args(args, isolation);
	if (!network)
		strv_add(args, "--unshare-net");
	add_capabilities(args);
	strv_add(args, "--bind");
	strv_add(args, SANDBOX_TREE_POINT);
	strv_add(args, "/");
	add_args(args, kernel);
	add_tmpfs(s, args, "1777", SMALL_TMPFS_BYTES, "/dev/shm");
	add_tmpfs(s, args, "0755", SMALL_TMPFS_BYTES, "/run");
	add_tmpfs(s, args, "1777", TMP_BYTES, "/tmp");
	add_tmpfs(s, args, "0755", SMALL_TMPFS_BYTES, "/sys");
	add_args(args, rest);
}

static void set_env(struct strv *args, const char *name, const char *value)
{
	if (!value)
		return;
	strv_add(args, "--setenv");
	strv_add(args, name);
	strv_add(args, value);
}

/* "NAME=value" */
static int set_env_pair(struct strv *args, const char *pair, struct error *err)
{
	const char *equals = strchr(pair, '=');
	CLEANUP_FREE char *name = NULL;

	if (!equals || equals == pair)
		return error_set(err, "'%s' is no environment variable with a value", pair);
	name = mem_copy(pair, (size_t)(equals - pair));
	set_env(args, name, equals + 1);
	return 0;
}

static int add_env(struct strv *args, const char *const *more, struct error *err)
{
	static const char *const own[] = {
		GUEST_PATH,  "HOME=/root",   "LC_ALL=C.UTF-8", "TERM=dumb",
		"USER=root", "LOGNAME=root", "SHELL=/bin/sh",  "DEBIAN_FRONTEND=noninteractive",
		NULL};

	strv_add(args, "--clearenv");
	for (const char *const *pair = own; *pair; pair++)
		if (set_env_pair(args, *pair, err) < 0)
			return -1;
	for (; more && *more; more++)
		if (set_env_pair(args, *more, err) < 0)
			return -1;
	return 0;
}

/* GRUB's scripts write root=UUID=… only where this name leads to something that exists. */
static void add_disk_link(struct strv *args, const char *by, const char *id)
{
	CLEANUP_FREE char *link = id ? str_format("/dev/disk/%s/%s", by, id) : NULL;

	if (!link || strv_has(args, link))
		return;
	strv_add(args, "--symlink");
	strv_add(args, "../../null");
	strv_add(args, link);
}

static void add_links(struct strv *args, const struct sandbox_devices *d)
{
	static const char *const dirs[] = {"--dir", "/dev/disk",
	                                   "--dir", "/dev/disk/by-uuid",
	                                   "--dir", "/dev/disk/by-partuuid",
	                                   "--dir", "/dev/mapper",
	                                   NULL};
	const char *const uuids[] = {d->root_uuid, d->boot_uuid, d->esp_uuid};
	const char *const partuuids[] = {d->root_partuuid, d->boot_partuuid, d->esp_partuuid};

	add_args(args, dirs);
	for (size_t i = 0; i < sizeof(uuids) / sizeof(uuids[0]); i++) {
		add_disk_link(args, "by-uuid", uuids[i]);
		add_disk_link(args, "by-partuuid", partuuids[i]);
	}
	if (d->root_device) { /* root=/dev/mapper/… is written under the same condition */
		strv_add(args, "--symlink");
		strv_add(args, "../null");
		strv_add(args, d->root_device);
	}
}

static void add_devices(struct strv *args, const struct sandbox_devices *d)
{
	add_links(args, d);
	set_env(args, "GPUIMG_ROOT_UUID", d->root_uuid);
	set_env(args, "GPUIMG_ROOT_FS", d->root_fs);
	set_env(args, "GPUIMG_ROOT_PARTUUID", d->root_partuuid);
	set_env(args, "GPUIMG_ROOT_SUBVOL", d->root_subvol);
	set_env(args, "GPUIMG_ROOT_DEVICE", d->root_device);
	set_env(args, "GPUIMG_BOOT_UUID", d->boot_uuid);
	set_env(args, "GPUIMG_BOOT_FS", d->boot_fs);
	set_env(args, "GPUIMG_BOOT_PARTUUID", d->boot_partuuid);
	set_env(args, "GPUIMG_ESP_UUID", d->esp_uuid);
	set_env(args, "GPUIMG_ESP_PARTUUID", d->esp_partuuid);
	set_env(args, "GPUIMG_PARTMAP", d->partmap);
}

/*
 * kernel-install and bootctl ask block devices for their partition types, and stat(1) for the top
 * of the file system that entries' paths count from: here all is one file system without a device.
 * (BOOT_MNT is read from systemd 254 on.)
 */
static void add_boot_loader_env(struct strv *args, const struct sandbox_devices *d)
{
	/* Beside an ESP, only a FAT file system can be the other one that loaders read. */
	bool xbootldr = str_equal(d->boot_fs, "vfat") && !str_equal(d->esp_path, "/boot");

	set_env(args, "SYSTEMD_RELAX_ESP_CHECKS", "1");
	set_env(args, "SYSTEMD_RELAX_XBOOTLDR_CHECKS", "1");
	set_env(args, "SYSTEMD_ESP_PATH", d->esp_path);
	set_env(args, "SYSTEMD_XBOOTLDR_PATH", xbootldr ? "/boot" : NULL);
	set_env(args, "BOOT_MNT", xbootldr ? "/boot" : d->esp_path);
}

/*
 * A new /proc shows the host's command line too. kernel-install, ukify and dracut take what they
 * find there for the image's own where /etc/kernel/cmdline is missing: here they find nothing.
 */
static int hide_cmdline(struct launch *l, struct error *err)
{
	int fd = memfd_create("cmdline", MFD_CLOEXEC);

	if (fd < 0)
		return error_errno(err, errno, "cannot make an empty file in memory");
	launch_bind_file(l, fd, "0444", "/proc/cmdline");
	return 0;
}

/* Puts a script of ours over a program of the guest, if it is there and a regular file. */
static int add_stand_in(struct sandbox *s, struct launch *l, const char *program,
                        const char *script, struct error *err)
{
	CLEANUP_FREE char *source = str_format("%s/sandbox/%s", s->data_dir, script);
	CLEANUP_FREE char *path = NULL;
	struct rootfs_stat st = {0};
	int found = rootfs_resolve(s->tree, program, true, &path, err);
	int fd;

	if (found == 1)
		found = rootfs_lstat(s->tree, path, &st, err);
	if (found < 0)
		return -1;
	if (found == 0 || !S_ISREG(st.mode) || strv_has(&l->args, path))
		return 0; /* not there, or there under a second name */
	fd = open(source, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		error_errno(err, errno, "cannot open '%s'", source);
		error_hint(err, "run from the source tree, or pass --data-dir=DIR");
		return error_code(err, EXIT_HOST);
	}
	launch_bind_file(l, fd, "0755", path);
	return 0;
}

static int add_grub(struct sandbox *s, struct launch *l, struct error *err)
{
	static const char *const programs[][2] = {
		{"/usr/sbin/grub-probe", "grub-probe.sh"},
		{"/usr/sbin/grub2-probe", "grub-probe.sh"},
		{"/usr/bin/grub-mkrelpath", "grub-mkrelpath.sh"},
		{"/usr/bin/grub2-mkrelpath", "grub-mkrelpath.sh"},
	};

	add_devices(&l->args, s->devices);
	add_boot_loader_env(&l->args, s->devices);
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
		if (add_stand_in(s, l, programs[i][0], programs[i][1], err) < 0)
			return -1;
	return 0;
}

int launch_prepare(struct sandbox *s, struct launch *l, const struct guest_command *command,
                   struct error *err)
{
	if (check_mount_points(s, err) < 0)
		return -1;
	add_root(s, &l->args, command->network);
	if (hide_cmdline(l, err) < 0 || add_env(&l->args, command->env, err) < 0)
		return -1;
	return s->devices && s->devices->root_uuid ? add_grub(s, l, err) : 0;
}
