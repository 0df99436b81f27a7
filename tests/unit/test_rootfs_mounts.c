/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several file systems as one tree. Most are lists in memory, so that a test sees who was asked
 * for what; at the end stand an ext4 root and a FAT partition, as an image has them.
 */
#include "builder/disk.h"
#include "builder/extfs.h"
#include "builder/fatfs.h"
#include "builder/rootfs-mounts.h"
#include "tests/unit/disk-fixture.h"

/* A file system as a list: content NULL is a directory, "->x" a link to x. */
struct item {
	const char *path;
	const char *content;
};

struct fake {
	struct rootfs rootfs; /* first */
	const struct item *items;
	unsigned *closed; /* counts */
	uint64_t device;
};

static const struct item *find_item(struct rootfs *r, const char *path)
{
	const struct item *i = ((struct fake *)r)->items;

	while (i->path && strcmp(i->path, path) != 0)
		i++;
	return i->path ? i : NULL;
}

static int fake_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                      struct error *err)
{
	const struct item *i = find_item(r, path);

	if (strstr(path, "broken"))
		return error_set(err, "this one is broken");
	if (!i)
		return 0;
	*ret = (struct rootfs_stat){
		.inode = (uint64_t)(i - ((struct fake *)r)->items),
		.device = ((struct fake *)r)->device,
		.mode = S_IFREG | 0644,
		.size_bytes = i->content ? strlen(i->content) : 0,
	};
	if (!i->content)
		ret->mode = S_IFDIR | 0755;
	else if (str_starts(i->content, "->"))
		ret->mode = S_IFLNK | 0777;
	return 1;
}

static int fake_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	(void)err;
	*ret = str_copy(find_item(r, path)->content + 2);
	return 0;
}

static int fake_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	size_t length = strcmp(path, "/") == 0 ? 0 : strlen(path);

	(void)err;
	for (const struct item *i = ((struct fake *)r)->items; i->path; i++)
		if (strncmp(i->path, path, length) == 0 && i->path[length] == '/' &&
		    i->path[length + 1] && !strchr(i->path + length + 1, '/'))
			strv_add(ret, i->path + length + 1);
	return 0;
}

static int fake_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                     size_t *ret_size, struct error *err)
{
	const char *content = find_item(r, path)->content;

	(void)err;
	(void)max_bytes;
	*ret = str_copy(content);
	*ret_size = strlen(content);
	return 0;
}

static int fake_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	const char *content = find_item(r, path)->content;

	(void)err;
	return write(fd, content, strlen(content)) < 0 ? -1 : 0;
}

static int fake_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                        uint64_t *ret_size_bytes, struct error *err)
{
	(void)err;
	*ret_free_bytes = find_item(r, path) ? 1000 : 0;
	*ret_size_bytes = 2000 + (uint64_t)strlen(((struct fake *)r)->items[1].path);
	return 0;
}

static int fake_xattrs(struct rootfs *r, const char *path, struct rootfs_xattr **ret,
                       size_t *ret_count, struct error *err)
{
	(void)r;
	(void)err;
	*ret = mem_alloc(sizeof(**ret));
	(*ret)->name = str_format("user.%s", path);
	*ret_count = 1;
	return 0;
}

static void fake_close(struct rootfs *r)
{
	(*((struct fake *)r)->closed)++;
	free(r);
}

static const struct rootfs_ops fake_ops = {
	.name = "fake",
	.lstat = fake_lstat,
	.readlink = fake_readlink,
	.list = fake_list,
	.read = fake_read,
	.copy_out = fake_copy_out,
	.statvfs = fake_statvfs,
	.close = fake_close,
	.xattrs = fake_xattrs,
};

/* The same, without extended attributes. */
static const struct rootfs_ops plain_ops = {
	.name = "plain",
	.lstat = fake_lstat,
	.readlink = fake_readlink,
	.list = fake_list,
	.read = fake_read,
	.copy_out = fake_copy_out,
	.statvfs = fake_statvfs,
	.close = fake_close,
};

static struct rootfs *fake_new(const struct rootfs_ops *ops, const struct item *items,
                               unsigned *closed)
{
	struct fake *f = mem_alloc(sizeof(*f));

	f->rootfs.ops = ops;
	f->items = items;
	f->closed = closed;
	f->device = 7;
	return &f->rootfs;
}

static const struct item root_items[] = {
	{"/", NULL},
	{"/boot", NULL},
	{"/boot/hidden", "below the mount"},
	{"/bootstrap", "beside it"},
	{"/etc", NULL},
	{"/etc/kernel", "->/boot/vmlinuz"},
	{"/etc/esp", "->../boot/efi"},
	{"/etc/file", "in the root"},
	{"/esp", "->boot/efi"},
	{"/broken", NULL},
	{NULL, NULL},
};

static const struct item boot_items[] = {
	{"/", NULL},
	{"/efi", NULL},
	{"/vmlinuz", "->vmlinuz-6.1"},
	{"/vmlinuz-6.1", "a kernel"},
	{"/out", "->../etc/file"},
	{"/absolute", "->/etc/file"},
	{NULL, NULL},
};

static const struct item esp_items[] = {
	{"/", NULL},
	{"/EFI", NULL},
	{"/EFI/grub.cfg", "on the ESP"},
	{NULL, NULL},
};

/* The root alone. */
static struct rootfs *make_root(unsigned *closed)
{
	return rootfs_mounts_new(fake_new(&fake_ops, root_items, closed));
}

static void must_add(struct rootfs *r, const char *path, struct rootfs *fs)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (rootfs_mounts_add(r, path, fs, &err) < 0)
		fixture_fail("mount", err.message);
}

static struct rootfs *make_mounted(unsigned *closed)
{
	struct rootfs *r = make_root(closed);

	must_add(r, "/boot", fake_new(&fake_ops, boot_items, closed));
	must_add(r, "/etc/esp", fake_new(&plain_ops, esp_items, closed));
	return r;
}

static void check_content(struct rootfs *r, const char *path, const char *want, const char *name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE void *data = NULL;

	if (rootfs_read(r, path, 1000, &data, NULL, &err) < 0)
		printf("# %s\n", err.message);
	check_str(data, want, "%s", name);
}

static void test_paths(void)
{
	unsigned closed = 0;
	struct rootfs *r = make_mounted(&closed);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0}, boot = {0};
	CLEANUP_FREE char *joined = NULL;

	check_content(r, "/etc/file", "in the root", "a file beside the mounts is the root's");
	check_content(r, "/bootstrap", "beside it",
	              "a name that begins as a mount's is the root's");
	check_content(r, "/boot/vmlinuz-6.1", "a kernel",
	              "a path below a mount is what is mounted");
	check_content(r, "/boot/efi/EFI/grub.cfg", "on the ESP", "the longest mount wins");
	check(!rootfs_exists(r, "/boot/hidden"), "what a mount covers is not there");
	check(rootfs_list(r, "/boot", &boot, &err) == 0 && boot.count == 5,
	      "a mount point lists what is mounted");
	check(rootfs_list(r, "/boot/efi", &names, &err) == 0, "one inside another too");
	joined = strv_join(&names, "|");
	check_str(joined, "EFI", "with its own names");
	rootfs_close(r);
	check(closed == 3, "all are closed with it");
}

static void test_links(void)
{
	unsigned closed = 0;
	CLEANUP_ROOTFS struct rootfs *r = make_mounted(&closed);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *link = NULL, *real = NULL;

	check_content(r, "/etc/kernel", "a kernel", "a link of the root leads into a mount");
	check_content(r, "/boot/out", "in the root", "a link of a mount leads out of it");
	check_content(r, "/boot/absolute", "in the root", "an absolute one is from the top of all");
	check_content(r, "/esp/EFI/grub.cfg", "on the ESP", "a link to a mount point is followed");
	check_content(r, "/boot/efi/../../etc/file", "in the root", "'..' leaves a mount");
	check(rootfs_readlink(r, "/boot/vmlinuz", &link, &err) == 0, "a mount's link is read");
	check_str(link, "vmlinuz-6.1", "as it stands there");
	check(rootfs_resolve(r, "/esp", true, &real, &err) == 1, "a link is resolved");
	check_str(real, "/boot/efi", "to where the mount is");
}

static uint64_t device_of(struct rootfs *r, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct rootfs_stat st = {0};

	return rootfs_lstat(r, path, &st, &err) == 1 ? st.device : 0;
}

static void test_devices(void)
{
	unsigned closed = 0;
	CLEANUP_ROOTFS struct rootfs *r = make_mounted(&closed);
	uint64_t root = device_of(r, "/"), boot = device_of(r, "/boot");
	uint64_t esp = device_of(r, "/boot/efi");

	check(root && boot && esp && root != boot && boot != esp && root != esp,
	      "each has a device of its own, though they say the same of themselves");
	check(device_of(r, "/etc/file") == root && device_of(r, "/boot/vmlinuz") == boot &&
	              device_of(r, "/boot/efi/EFI") == esp,
	      "which all of its files have");
	check(device_of(r, "/boot/efi") == esp && device_of(r, "/") == root, "each time");
}

static void test_other_operations(void)
{
	unsigned closed = 0;
	CLEANUP_ROOTFS struct rootfs *r = make_mounted(&closed);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct rootfs_xattr *xattrs = NULL;
	uint64_t free_bytes = 0, size_bytes = 0;
	char copy[9] = {0};
	size_t count = 0;

	check(rootfs_copy_out(r, "/etc/kernel", fd, &err) == 0 && pread(fd, copy, 8, 0) == 8,
	      "a file of a mount is copied out");
	check_str(copy, "a kernel", "whole");
	check(rootfs_statvfs(r, "/boot/efi/EFI", &free_bytes, &size_bytes, &err) == 0 &&
	              free_bytes == 1000 && size_bytes == 2004,
	      "the free space is that of the mount");
	check(r->ops->xattrs(r, "/boot/efi/EFI", &xattrs, &count, &err) == 0 && count == 0,
	      "a file system without extended attributes has none");
	check(r->ops->xattrs(r, "/boot/vmlinuz", &xattrs, &count, &err) == 0 && count == 1,
	      "another one is asked for them");
	check_str(count ? xattrs[0].name : NULL, "user./vmlinuz", "by its own path");
	rootfs_xattrs_free(xattrs, count);
	check(!r->ops->write && !r->ops->remove && !r->ops->run, "nothing can be written");
}

/* Refused, with 'part' in the message, and the file system closed. */
static void check_refused(const char *path, const char *part, enum exit_code code, const char *name)
{
	unsigned closed = 0, mounted = 0;
	CLEANUP_ROOTFS struct rootfs *r = make_root(&closed);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct rootfs *fs = fake_new(&fake_ops, boot_items, &mounted);

	check(rootfs_mounts_add(r, path, fs, &err) < 0 && error_exit_code(&err) == code &&
	              contains(err.message, part) && contains(err.message, path) && mounted == 1 &&
	              closed == 0 && rootfs_exists(r, "/boot/hidden"),
	      "%s", name);
}

static void test_refused(void)
{
	check_refused("/none", "no such directory", EXIT_INPUT,
	              "a mount point that is missing is refused");
	check_refused("/none/below", "no such directory", EXIT_INPUT,
	              "also one below what is missing");
	check_refused("/etc/file", "not a directory", EXIT_INPUT, "also one that is a file");
	check_refused("/etc/esp", "no such directory", EXIT_INPUT, "also a link to nowhere");
	check_refused("boot", "not an absolute path", EXIT_INPUT, "also a relative one");
	check_refused("/broken", "this one is broken", EXIT_BUILD, "an error on the way is told");
}

static void test_order(void)
{
	unsigned closed = 0;
	CLEANUP_ROOTFS struct rootfs *r = make_root(&closed);

	must_add(r, "/boot/", fake_new(&fake_ops, boot_items, &closed));
	check_content(r, "/boot/vmlinuz-6.1", "a kernel", "a slash at the end changes nothing");
	must_add(r, "/boot", fake_new(&fake_ops, esp_items, &closed));
	check_content(r, "/boot/EFI/grub.cfg", "on the ESP",
	              "of two at one place the last one wins");
	check(!rootfs_exists(r, "/boot/vmlinuz-6.1"), "and covers the first");
}

/* --- real file systems --------------------------------------------------------------------- */

static void make_text(const char *path, const char *text)
{
	make_file(path, 0);
	put(path, 0, text, strlen(text));
}

static void make_disk(void)
{
	run("mkdir", "-p", "root/boot/efi", "root/etc", "esp/EFI/BOOT");
	make_text("root/etc/file", "in the root");
	make_text("esp/EFI/BOOT/GRUB.CFG", "on the ESP");
	if (symlink("../boot/efi/EFI/BOOT/grub.cfg", "root/etc/stub") < 0)
		fixture_fail("make a link", NULL);
	make_file("root.img", 16 * MIB);
	run("mke2fs", "-q", "-t", "ext4", "-L", "ROOT", "-d", "root", "root.img");
	make_file("esp.img", 4 * MIB);
	run("mkfs.vfat", "-n", "ESP", "esp.img");
	run("mcopy", "-s", "-i", "esp.img", "esp/EFI", "::");
	make_file("disk.img", 24 * MIB);
	run_with("label: gpt\nstart=2048, size=8192, type=U\nstart=10240, size=32768, type=L\n",
	         "sfdisk", "-q", "disk.img");
	put_file("disk.img", MIB, "esp.img");
	put_file("disk.img", 5 * MIB, "root.img");
}

static void test_real(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_ROOTFS struct rootfs *r = NULL;
	struct rootfs *root = NULL, *esp = NULL;
	uint64_t free_bytes, size_bytes = 0;

	make_disk();
	if (disk_open(&disk, "disk.img", "raw", false, &err) < 0 || disk_probe(disk, &err) < 0 ||
	    extfs_open(&root, disk, disk_find_volume(disk, "LABEL=ROOT"), &err) < 0 ||
	    fatfs_open(&esp, disk, disk_find_volume(disk, "LABEL=ESP"), &err) < 0)
		fixture_fail("open a disk", err.message);
	r = rootfs_mounts_new(root);
	must_add(r, "/boot/efi", esp);
	check_content(r, "/etc/file", "in the root", "an ext4 root is read");
	check_content(r, "/boot/efi/efi/boot/grub.cfg", "on the ESP",
	              "so is FAT in it, without regard to case");
	check_content(r, "/etc/stub", "on the ESP", "a link of ext4 leads to FAT");
	check(device_of(r, "/etc") != device_of(r, "/boot/efi") &&
	              device_of(r, "/boot") == device_of(r, "/etc"),
	      "the two have different devices");
	check(rootfs_statvfs(r, "/boot/efi", &free_bytes, &size_bytes, &err) == 0 &&
	              size_bytes > 3 * MIB && size_bytes < 4 * MIB,
	      "and each its own size");
}

int main(void)
{
	fixture_begin(
		(const char *const[]){"mkfs.vfat", "mcopy", "mke2fs", "sfdisk", "qemu-nbd", NULL});
	test_paths();
	test_links();
	test_devices();
	test_other_operations();
	test_refused();
	test_order();
	test_real();
	return tap_done();
}
