/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One directory tree, put by mke2fs -d into file systems of many kinds, must come out of each
 * as it went in; damaged ones must be refused in words.
 */
#include <fcntl.h>
#include <dirent.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "builder/disk.h"
#include "builder/extfs.h"
#include "tests/unit/disk-fixture.h"

#define SUPERBLOCK 1024

/* A whole-disk file system. */
struct opened {
	struct disk *disk;
	struct rootfs *root;
};

static void close_opened(struct opened *o)
{
	if (o->root)
		o->root->ops->close(o->root);
	disk_close(o->disk);
}

#define CLEANUP_OPENED __attribute__((cleanup(close_opened)))

static int try_open(struct opened *ret, const char *path, const char *format, struct error *err)
{
	*ret = (struct opened){0};
	if (disk_open(&ret->disk, path, format, false, err) < 0 || disk_probe(ret->disk, err) < 0)
		fixture_fail("open a disk", err->message);
	return extfs_open(&ret->root, ret->disk, disk_volume(ret->disk, 0), err);
}

static struct opened must_open(const char *path, const char *format)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct opened o;

	if (try_open(&o, path, format, &err) < 0)
		fixture_fail("open a file system", err.message);
	return o;
}

static void write_text(const char *path, const char *text)
{
	make_file(path, 0);
	put(path, 0, text, strlen(text));
}

static void make_links(void)
{
	CLEANUP_FREE char *longest = mem_alloc(4096);
	const size_t lengths[] = {1, 59, 60, 61, 120, 1000};

	memset(longest, 'x', 1000);
	longest[500] = '/';
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		CLEANUP_FREE char *name = str_format("tree/links/%zu", lengths[i]);
		CLEANUP_FREE char *target = mem_copy(longest, lengths[i]);

		if (symlink(target, name) < 0)
			fixture_fail(name, NULL);
	}
	if (symlink("../../../etc/passwd", "tree/links/outside") < 0 ||
	    link("tree/etc/os-release", "tree/etc/hard") < 0)
		fixture_fail("make links", NULL);
}

static void make_sizes(void)
{
	const size_t sizes[] = {0,    1,    59,    60,     61,  100,     160,     1023,  1024, 4095,
	                        4096, 4097, 65536, 300001, MIB, MIB + 1, 3 * MIB, 12288, 12289};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		CLEANUP_FREE char *name = str_format("tree/sizes/%zu", sizes[i]);

		make_file(name, 0);
		put_noise(name, 0, sizes[i], sizes[i] + 1);
	}
}

/* Holes at the begin, inside, at the end; a large one. */
static void make_sparse(void)
{
	make_file("tree/sparse/holes", 9 * MIB + 777);
	put_noise("tree/sparse/holes", 2 * MIB, 100000, 1);
	put_noise("tree/sparse/holes", 7 * MIB + 5, 5, 2);
	make_file("tree/sparse/far", 600 * MIB);
	put_noise("tree/sparse/far", 599 * MIB, 1000, 3);
	make_file("tree/sparse/many", MIB);
	for (uint64_t i = 0; i < 200; i++)
		put_noise("tree/sparse/many", i * 5000, 700, i);
}

static void make_dirs(void)
{
	CLEANUP_FREE char *deep = str_copy("tree/deep");

	for (int i = 0; i < 60; i++) {
		char *next = str_format("%s/d%d", deep, i);

		free(deep);
		deep = next;
		if (mkdir(deep, 0755) < 0)
			fixture_fail(deep, NULL);
	}
	strcpy(deep + strlen(deep) - 3, "end"); /* NOLINT: as long as "d59" */
	write_text(deep, "the end\n");
	for (int i = 0; i < 1500; i++) {
		CLEANUP_FREE char *name = str_format("tree/many/a file with number %d", i);

		make_file(name, 0);
	}
}

static bool make_attributes(void)
{
	/* Entries of tag, permission and id: owner rw, user 1000 r, group r, mask r, others none.
	 */
	const uint8_t acl[] = {2,    0,    0,    0,    1,    0,    6,  0,    0xff, 0xff, 0xff,
	                       0xff, 2,    0,    4,    0,    0xe8, 3,  0,    0,    4,    0,
	                       4,    0,    0xff, 0xff, 0xff, 0xff, 16, 0,    4,    0,    0xff,
	                       0xff, 0xff, 0xff, 0x20, 0,    0,    0,  0xff, 0xff, 0xff, 0xff};
	uint8_t large[800];

	fill(large, sizeof(large), 5);
	return setxattr("tree/modes/setuid", "user.large", large, sizeof(large), 0) == 0 &&
	       setxattr("tree/modes/setuid", "user.empty", "", 0, 0) == 0 &&
	       setxattr("tree/sizes/100", "user.small", "value", 5, 0) == 0 &&
	       setxattr("tree/links", "user.dir", "on a directory", 14, 0) == 0 &&
	       setxattr("tree/sizes/160", "system.posix_acl_access", acl, sizeof(acl), 0) == 0;
}

/* Only root may; what ping has: cap_net_raw=ep, version 2. */
static void make_capability(void)
{
	const uint8_t capability[20] = {1, 0, 0, 2, 0, 0x20};

	if (setxattr("tree/sizes/61", "security.capability", capability, sizeof(capability), 0) < 0)
		printf("ok %d - a capability comes out # SKIP %s\n", ++tap_count, strerror(errno));
}

static void make_modes(void)
{
	make_file("tree/modes/setuid", 10);
	make_file("tree/modes/none", 10);
	if (chmod("tree/modes/setuid", 04755) < 0 || chmod("tree/modes/none", 0) < 0 ||
	    chmod("tree/modes", 01777) < 0 || mkfifo("tree/modes/fifo", 0640) < 0)
		fixture_fail("set modes", NULL);
	if (geteuid() == 0 && (mknod("tree/modes/null", S_IFCHR | 0666, makedev(1, 3)) < 0 ||
	                       chown("tree/modes/none", 100000, 70000) < 0))
		fixture_fail("set owners", NULL);
}

static void make_tree(void)
{
	const char *const dirs[] = {"tree",        "tree/etc",   "tree/sizes",
	                            "tree/sparse", "tree/links", "tree/modes",
	                            "tree/deep",   "tree/many",  "tree/boot",
	                            "tree/bootx",  "tree/hole",  "tree/odd \n\xff name"};

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (mkdir(dirs[i], 0755) < 0)
			fixture_fail(dirs[i], NULL);
	write_text("tree/etc/os-release", "ID=test\nNAME=\"A test\"\n");
	make_file("tree/hole/only", 5 * MIB);
	write_text("tree/bootx/file", "not below /boot\n");
	make_links();
	make_sizes();
	make_sparse();
	make_dirs();
	make_modes();
}

/* A walk over the tree, comparing. */
struct comparison {
	struct rootfs *r;
	bool attributes;
	bool no_sparse; /* mke2fs 1.47 stores wrong sizes for them together with inline_data */
	size_t files;
	size_t differences;
};

static void differs(struct comparison *c, const char *path, const char *what, const char *why)
{
	if (c->differences++ < 10)
		printf("# %s: %s%s%s\n", path, what, why ? ": " : "", why ? why : "");
}

static bool same_content(int fd, const char *path)
{
	CLEANUP_CLOSE int want = fixture_open(path, O_RDONLY);
	char a[65536], b[sizeof(a)];
	off_t at = 0, size = lseek(want, 0, SEEK_END);

	if (lseek(fd, 0, SEEK_END) != size)
		return false;
	/* The long hole in the middle of the largest file is taken on trust. */
	while (at < size) {
		ssize_t n = pread(want, a, sizeof(a), at);

		if (n <= 0 || pread(fd, b, sizeof(b), at) != n || memcmp(a, b, (size_t)n) != 0)
			return false;
		at += n;
		if (size > (off_t)(100 * MIB) && at < (off_t)(590 * MIB))
			at = 590 * MIB;
	}
	return true;
}

static void compare_copy(struct comparison *c, const char *host, const char *guest)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int fd = fixture_open(".", O_RDWR | O_TMPFILE);
	struct stat want, got;

	if (c->r->ops->copy_out(c->r, guest, fd, &err) < 0) {
		differs(c, guest, "cannot be copied", err.message);
		return;
	}
	if (!same_content(fd, host))
		differs(c, guest, "its copy differs", NULL);
	stat(host, &want);
	fstat(fd, &got);
	/* A hole may shrink to the file system's blocks, and to our host's. */
	if (got.st_blocks > want.st_blocks + 16)
		differs(c, guest, "its copy is not sparse", NULL);
}

static void compare_read(struct comparison *c, const char *host, const char *guest, size_t size)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *want = mem_alloc(size + 1);
	CLEANUP_FREE void *got = NULL;
	size_t got_size = 0;

	get(host, 0, want, size);
	if (c->r->ops->read(c->r, guest, size, &got, &got_size, &err) < 0)
		differs(c, guest, "cannot be read", err.message);
	else if (got_size != size || memcmp(got, want, size + 1) != 0)
		differs(c, guest, "its content differs", NULL);
	if (size == 0)
		return;
	error_free(&err);
	free(STEAL(got));
	if (c->r->ops->read(c->r, guest, size - 1, &got, &got_size, &err) == 0 ||
	    !strstr(err.message, "more than"))
		differs(c, guest, "is read beyond the limit", NULL);
}

static void compare_link(struct comparison *c, const char *host, const char *guest)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *got = NULL;
	char want[4096] = {0};

	if (readlink(host, want, sizeof(want) - 1) < 0)
		fixture_fail(host, NULL);
	if (c->r->ops->readlink(c->r, guest, &got, &err) < 0)
		differs(c, guest, "its link cannot be read", err.message);
	else if (strcmp(got, want) != 0)
		differs(c, guest, "its link differs", got);
}

static const struct rootfs_xattr *find_xattr(const struct rootfs_xattr *list, size_t count,
                                             const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i].name, name) == 0)
			return &list[i];
	return NULL;
}

static void compare_attributes(struct comparison *c, const char *host, const char *guest)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char names[4096], value[4096];
	ssize_t length = llistxattr(host, names, sizeof(names));
	struct rootfs_xattr *got = NULL;
	size_t count = 0, want_count = 0;

	if (c->r->ops->xattrs(c->r, guest, &got, &count, &err) < 0) {
		differs(c, guest, "its attributes cannot be read", err.message);
		return;
	}
	for (ssize_t at = 0; at < length; at += (ssize_t)strlen(names + at) + 1) {
		ssize_t size = lgetxattr(host, names + at, value, sizeof(value));
		const struct rootfs_xattr *have = find_xattr(got, count, names + at);

		want_count++;
		if (!have)
			differs(c, guest, "lacks the attribute", names + at);
		else if (have->size != (size_t)size || memcmp(have->value, value, have->size) != 0)
			differs(c, guest, "another value", names + at);
	}
	if (count != want_count)
		differs(c, guest, "number of attributes", NULL);
	rootfs_xattrs_free(got, count);
}

static void compare_stat(struct comparison *c, const struct stat *want,
                         const struct rootfs_stat *got, const char *guest)
{
	if (got->mode != want->st_mode || got->uid != want->st_uid || got->gid != want->st_gid)
		differs(c, guest, "mode or owner", NULL);
	/* mke2fs writes lost+found into the root after it has set the time. */
	if (got->mtime_s != want->st_mtime && guest[1])
		differs(c, guest, "time", NULL);
	if (!S_ISDIR(want->st_mode) && got->size_bytes != (uint64_t)want->st_size)
		differs(c, guest, "size", NULL);
}

static void compare_dir(struct comparison *c, const char *host, const char *guest);

static void compare_path(struct comparison *c, const char *host, const char *guest)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct rootfs_stat got;
	struct stat want;

	c->files++;
	if (lstat(host, &want) < 0)
		fixture_fail(host, NULL);
	if (c->r->ops->lstat(c->r, guest, &got, &err) != 1) {
		differs(c, guest, "not found", err.message);
		return;
	}
	compare_stat(c, &want, &got, guest);
	if (c->attributes)
		compare_attributes(c, host, guest);
	if (S_ISDIR(want.st_mode))
		compare_dir(c, host, guest);
	else if (S_ISLNK(want.st_mode))
		compare_link(c, host, guest);
	else if (S_ISREG(want.st_mode))
		compare_copy(c, host, guest);
	if (S_ISREG(want.st_mode) && want.st_size < (off_t)(10 * MIB))
		compare_read(c, host, guest, (size_t)want.st_size);
}

static void compare_dir(struct comparison *c, const char *host, const char *guest)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv got = {0}, want = {0};
	CLEANUP_FREE char *host_names = NULL, *guest_names = NULL;
	struct dirent **entries;
	int count = scandir(host, &entries, NULL, NULL);

	for (int i = 0; i < count; i++) {
		const char *name = entries[i]->d_name;

		if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
			strv_add(&want, name);
		free(entries[i]);
	}
	free(entries);
	if (c->r->ops->list(c->r, guest, &got, &err) < 0)
		differs(c, guest, "cannot be listed", err.message);
	if (strcmp(guest, "/") == 0 && strv_has(&got, "lost+found"))
		strv_add(&want, "lost+found");
	strv_sort(&want);
	host_names = strv_join(&want, "/");
	guest_names = strv_join(&got, "/");
	if (strcmp(host_names, guest_names) != 0)
		differs(c, guest, "its names differ", guest_names);
	for (size_t i = 0; i < want.count; i++) {
		CLEANUP_FREE char *in = str_format("%s/%s", host, want.items[i]);
		CLEANUP_FREE char *of = str_format("%s/%s", guest[1] ? guest : "", want.items[i]);

		if (strcmp(of, "/lost+found") != 0 && !(c->no_sparse && strcmp(of, "/sparse") == 0))
			compare_path(c, in, of);
	}
}

static void check_tree(const char *path, const char *format, bool attributes, const char *name)
{
	CLEANUP_OPENED struct opened o = must_open(path, format);
	struct comparison c = {
		.r = o.root, .attributes = attributes, .no_sparse = strstr(name, "inline_data")};

	compare_path(&c, "tree", "/");
	check(c.files > 1600 && c.differences == 0, "%s (%zu files)", name, c.files);
}

static void make_ext(const char *path, const char *type, const char *features,
                     const char *block_size)
{
	unlink(path);
	run("mke2fs", "-q", "-F", "-t", type, "-O", features, "-b", block_size, "-I", "256", "-N",
	    "4000", "-d", "tree", path, "64M");
}

static void test_kinds(bool attributes)
{
	const struct {
		const char *type, *features, *block_size;
	} kinds[] = {
		{"ext4", "metadata_csum,64bit", "4096"},
		{"ext4", "^metadata_csum,^64bit,uninit_bg", "4096"},
		{"ext4", "metadata_csum,64bit", "1024"},
		{"ext4", "inline_data,metadata_csum", "4096"},
		{"ext4", "inline_data,^metadata_csum", "1024"},
		{"ext4", "bigalloc", "4096"},
		{"ext4", "ea_inode,large_dir,metadata_csum_seed", "2048"},
		{"ext4", "meta_bg,^resize_inode,^flex_bg", "1024"},
		{"ext3", "dir_index", "4096"},
		{"ext2", "^dir_index", "1024"},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		CLEANUP_FREE char *name =
			str_format("all comes out of %s with %s and blocks of %s", kinds[i].type,
		                   kinds[i].features, kinds[i].block_size);

		make_ext("kind.img", kinds[i].type, kinds[i].features, kinds[i].block_size);
		check_tree("kind.img", "raw", attributes, name);
	}
}

/* e2fsck -D makes hashed directories, which mke2fs -d does not. */
static void test_hashed(bool attributes)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int status;

	make_ext("ext.img", "ext4", "metadata_csum,dir_index", "1024");
	if (proc_run_status((const char *const[]){"e2fsck", "-fyD", "ext.img", NULL}, NULL, NULL, 0,
	                    &status, &err) < 0 ||
	    status > 1)
		fixture_fail("hash directories", err.message);
	convert("ext.img", "ext.qcow2");
	check_tree("ext.qcow2", "qcow2", attributes,
	           "all comes out of hashed directories in a compressed qcow2");
}

static void test_missing(void)
{
	CLEANUP_OPENED struct opened o = must_open("ext.qcow2", "qcow2");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	const struct rootfs_ops *ops = o.root->ops;
	struct rootfs_stat st;
	void *data = NULL;
	char *text = NULL;

	check(ops->lstat(o.root, "/etc/none", &st, &err) == 0 && !err.message,
	      "a missing file is no error to lstat");
	check(ops->lstat(o.root, "/etc/os-release/x", &st, &err) == 0, "nor one below a file");
	check(ops->lstat(o.root, "/links/outside/x", &st, &err) == 0, "nor one below a link");
	check(ops->read(o.root, "/etc/none", 10, &data, NULL, &err) < 0 &&
	              contains(err.message, "'/etc/none': no such file") &&
	              contains(err.message, "ext.qcow2") && error_exit_code(&err) == EXIT_INPUT,
	      "reading it is one, which names image and path");
	check(ops->read(o.root, "/etc", 10, &data, NULL, &err) < 0 &&
	              contains(err.message, "not a regular file"),
	      "a directory is not read as a file");
	check(ops->list(o.root, "/etc/os-release", &names, &err) < 0 &&
	              contains(err.message, "not a directory"),
	      "a file is not listed");
	check(ops->readlink(o.root, "/etc", &text, &err) < 0 &&
	              contains(err.message, "not a symbolic link"),
	      "a directory is no link");
	check(!ops->write && !ops->remove && !ops->run, "nothing can be written or run");
}

static void test_identity(void)
{
	CLEANUP_OPENED struct opened o = must_open("ext.qcow2", "qcow2");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct rootfs_stat a = {0}, b = {0}, c = {0};

	check(o.root->ops->lstat(o.root, "/etc/os-release", &a, &err) == 1 &&
	              o.root->ops->lstat(o.root, "/etc/hard", &b, &err) == 1 &&
	              o.root->ops->lstat(o.root, "/bootx/file", &c, &err) == 1 &&
	              a.inode == b.inode && a.device == b.device && a.inode != c.inode,
	      "hard links are one inode, others are not");
}

/* A number that dumpe2fs -h tells. */
static uint64_t told(const char *path, const char *field)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *text = NULL;
	const char *line;

	if (proc_run((const char *const[]){"dumpe2fs", "-h", path, NULL}, NULL, &text, MIB, &err) <
	    0)
		fixture_fail("run dumpe2fs", err.message);
	line = strstr(text, field);
	return line ? strtoull(line + strlen(field), NULL, 10) : 0;
}

static void test_statvfs(void)
{
	CLEANUP_OPENED struct opened o = must_open("ext.qcow2", "qcow2");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	uint64_t free_bytes = 0, size_bytes = 0;

	check(o.root->ops->statvfs(o.root, "/etc", &free_bytes, &size_bytes, &err) == 0 &&
	              size_bytes == 64 * MIB && free_bytes > MIB &&
	              free_bytes == told("ext.img", "\nFree blocks:") * 1024,
	      "free and whole space are what dumpe2fs says");
}

static void make_boot_tree(void)
{
	if (mkdir("boot", 0755) < 0 || mkdir("boot/efi", 0755) < 0 || mkdir("efi", 0755) < 0)
		fixture_fail("make directories", NULL);
	write_text("boot/vmlinuz", "a kernel\n");
	write_text("efi/grub", "a loader\n");
	run("mke2fs", "-q", "-F", "-t", "ext4", "-L", "BOOT", "-d", "boot", "boot.img", "16M");
	run("mke2fs", "-q", "-F", "-t", "ext2", "-L", "DEEPER", "-d", "efi", "efi.img", "4M");
	make_ext("ext.img", "ext4", "metadata_csum", "4096");
	make_file("disk.img", 100 * MIB);
	run("sgdisk", "-o", "-n", "1:2M:+64M", "-n", "2:70M:+16M", "-n", "3:90M:+4M", "disk.img");
	put_file("disk.img", 2 * MIB, "ext.img");
	put_file("disk.img", 70 * MIB, "boot.img");
	put_file("disk.img", 90 * MIB, "efi.img");
}

static bool content_is(struct rootfs *r, const char *path, const char *want)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE void *got = NULL;

	if (r->ops->read(r, path, 1000, &got, NULL, &err) < 0) {
		printf("# %s\n", err.message);
		return false;
	}
	return strcmp(got, want) == 0;
}

static void check_mounted(struct rootfs *r)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE char *joined = NULL;
	struct rootfs_stat root, boot, inside;

	check(content_is(r, "/boot/vmlinuz", "a kernel\n"), "a mounted file system is read");
	check(content_is(r, "/boot/efi/grub", "a loader\n"), "also one mounted in it");
	check(content_is(r, "/bootx/file", "not below /boot\n"),
	      "a name that begins as the mount's is not below it");
	check(content_is(r, "/etc/os-release", "ID=test\nNAME=\"A test\"\n"),
	      "the root is still read");
	check(r->ops->list(r, "/boot/efi", &names, &err) == 0, "a mount can be listed");
	joined = strv_join(&names, " ");
	check_str(joined, "grub lost+found", "with what is in it");
	check(r->ops->lstat(r, "/", &root, &err) == 1 &&
	              r->ops->lstat(r, "/boot", &boot, &err) == 1 &&
	              r->ops->lstat(r, "/boot/vmlinuz", &inside, &err) == 1 &&
	              root.device != boot.device && boot.device == inside.device &&
	              root.inode == boot.inode,
	      "each has a device number of its own");
}

static void test_mounts(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_OPENED struct opened o = {0};
	const struct volume *boot, *deeper;

	make_boot_tree();
	o = must_open("disk.img", "raw");
	boot = disk_find_volume(o.disk, "LABEL=BOOT");
	deeper = disk_find_volume(o.disk, "LABEL=DEEPER");
	check(extfs_mount(o.root, "/none", boot, &err) < 0 && contains(err.message, "'/none'"),
	      "a mount point that is missing is refused");
	check(extfs_mount(o.root, "/etc/os-release", boot, &err) < 0 &&
	              contains(err.message, "not a directory"),
	      "also one that is a file");
	check(extfs_mount(o.root, "boot", boot, &err) < 0, "also a relative one");
	check(extfs_mount(o.root, "/boot", boot, &err) == 0 &&
	              extfs_mount(o.root, "/boot/efi", deeper, &err) == 0,
	      "file systems are mounted into each other");
	check_mounted(o.root);
}

/* Opening must be refused, with 'part' in the message. */
static void check_refused(const char *part, const char *name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_OPENED struct opened o = {0};
	bool failed = try_open(&o, "bad.img", "raw", &err) < 0;

	check(failed && error_exit_code(&err) == EXIT_INPUT && contains(err.message, "bad.img") &&
	              contains(err.message, part),
	      "%s", name);
}

static void debugfs(const char *command)
{
	run("debugfs", "-w", "-R", command, "bad.img");
}

static void copy_to_bad(void)
{
	make_file("bad.img", 64 * MIB);
	put_file("bad.img", 0, "ext.img");
}

static void test_refused(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_OPENED struct opened o = {0};
	struct volume half, other;
	struct rootfs *r = NULL;
	uint8_t incompatible;

	copy_to_bad();
	debugfs("feature needs_recovery");
	check_refused("journal needs recovery", "a journal that needs recovery is refused");
	copy_to_bad();
	get("bad.img", SUPERBLOCK + 0x63, &incompatible, 1);
	incompatible |= 0x80;
	put("bad.img", SUPERBLOCK + 0x63, &incompatible, 1);
	o = must_open("ext.img", "raw");
	half = other = *disk_volume(o.disk, 0);
	half.size_bytes /= 2;
	check(extfs_open(&r, o.disk, &half, &err) < 0 && error_exit_code(&err) == EXIT_INPUT &&
	              contains(err.message, "more than the partition's"),
	      "a file system larger than its partition is refused");
	other.type = NULL;
	check(extfs_open(&r, o.disk, &other, &err) < 0 && contains(err.message, "unknown"),
	      "a partition of unknown content is refused");
}

/* libblkid does not call it ext4 any more, so the volume is taken from the good image. */
static void test_unknown_feature(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_OPENED struct opened good = must_open("ext.img", "raw");
	CLEANUP_DISK struct disk *bad = NULL;
	struct rootfs *r = NULL;

	check(disk_open(&bad, "bad.img", "raw", false, &err) == 0 &&
	              extfs_open(&r, bad, disk_volume(good.disk, 0), &err) < 0 &&
	              contains(err.message, "features") && contains(err.message, "0x80000000"),
	      "a feature that libext2fs does not know is refused");
}

/* Where these bytes are in the image, from a place on. */
static uint64_t find_bytes(const char *path, const char *bytes)
{
	size_t size = file_size(path);
	CLEANUP_FREE char *data = mem_alloc(size);
	char *found;

	get(path, 0, data, size);
	found = memmem(data, size, bytes, strlen(bytes));
	if (!found)
		fixture_fail("find bytes in an image", bytes);
	return (uint64_t)(found - data);
}

static void test_checksums(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT, later = ERROR_INIT;
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_STRV struct strv names = {0};
	struct rootfs_stat st;
	uint64_t place;

	copy_to_bad();
	put("bad.img", find_bytes("bad.img", "a file with number 77"), "b", 1);
	place = find_bytes("bad.img", "../../../etc/passwd");
	put("bad.img", place, "/", 1);
	o = must_open("bad.img", "raw");
	check(o.root->ops->list(o.root, "/many", &names, &err) < 0 &&
	              error_exit_code(&err) == EXIT_INPUT && contains(err.message, "'/many'") &&
	              contains(err.message, "checksum") && names.count == 0,
	      "a directory whose checksum is wrong is refused, with its name");
	check(o.root->ops->lstat(o.root, "/links/outside", &st, &later) < 0 &&
	              contains(later.message, "'/links/outside'") &&
	              contains(later.message, "checksum"),
	      "also an inode whose checksum is wrong");
	check(content_is(o.root, "/etc/os-release", "ID=test\nNAME=\"A test\"\n"),
	      "what is sound beside them is read");
}

/* The block map of one file: words 3 to 5 of i_block are its first extent. */
static void check_bad_file(const char *name, const char *part, const char *what)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_OPENED struct opened o = must_open("bad.img", "raw");
	CLEANUP_CLOSE int fd = fixture_open(".", O_RDWR | O_TMPFILE);

	check(o.root->ops->copy_out(o.root, name, fd, &err) < 0 && contains(err.message, name) &&
	              contains(err.message, part) && error_exit_code(&err) == EXIT_INPUT,
	      "%s", what);
}

static void test_bad_maps(void)
{
	copy_to_bad();
	debugfs("sif /sizes/4097 block[5] 4000000000");
	check_bad_file("/sizes/4097", "damaged", "an extent beyond the file system is refused");
	debugfs("sif /sizes/4096 block[4] 0x00007fff");
	check_bad_file("/sizes/4096", "damaged",
	               "an extent longer than the file system is refused");
	debugfs("sif /sizes/4095 block[0] 0x1234");
	check_bad_file("/sizes/4095", "'/sizes/4095'", "an extent tree that is none is refused");
	debugfs("sif /sizes/100 size 0x7fffffffffffffff");
	check_bad_file("/sizes/100", "size is not possible", "an impossible size is refused");
	debugfs("sif /sizes/61 flags 0x80800");
	check_bad_file("/sizes/61", "encrypted", "an encrypted file is refused");
}

/* An extent tree whose only interior node is its own child, five levels deep: without bounds
 * it has as many leaves as a node has entries, to the power of five. */
static void test_map_bomb(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_STRV struct strv names = {0};
	/* Magic, 340 entries of 340, depth 4. */
	const uint8_t header[] = {0x0a, 0xf3, 0x54, 0x01, 0x54, 0x01, 0x04, 0x00};
	uint8_t block[4096] = {0};
	const uint64_t place = 60 * MIB / sizeof(block);

	make_ext("ext.img", "ext4", "^metadata_csum,^64bit", "4096");
	copy_to_bad();
	memcpy(block, header, sizeof(header));
	for (size_t i = 0; i < 340; i++) {
		uint8_t *entry = block + sizeof(header) + 4 + 12 * i;

		memcpy(entry, &(uint32_t){(uint32_t)i}, 4);
		memcpy(entry + 4, &(uint32_t){(uint32_t)place}, 4);
	}
	put("bad.img", place * sizeof(block), block, sizeof(block));
	debugfs("sif /sizes/65536 block[0] 0x0001f30a");
	debugfs("sif /sizes/65536 block[1] 0x00050004");
	debugfs("sif /sizes/65536 block[3] 0");
	debugfs("sif /sizes/65536 block[4] 15360");
	debugfs("sif /sizes/65536 block[5] 0");
	check_bad_file("/sizes/65536", "'/sizes/65536'", "an extent tree that holds itself ends");
	debugfs("sif /many block[0] 0x0001f30a");
	debugfs("sif /many block[1] 0x00050004");
	debugfs("sif /many block[4] 15360");
	debugfs("sif /many block[5] 0");
	o = must_open("bad.img", "raw");
	check(o.root->ops->list(o.root, "/many", &names, &err) < 0 &&
	              contains(err.message, "'/many'"),
	      "also that of a directory");
}

static void test_bad_names(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_OPENED struct opened o = {0};
	CLEANUP_STRV struct strv names = {0};
	char *text = NULL;

	copy_to_bad();
	put("bad.img", find_bytes("bad.img", "a file with number 77"), "../../etc/p", 11);
	put("bad.img", find_bytes("bad.img", "os-release") + 2, "\0", 1);
	debugfs("sif /links/1000 size 5000");
	debugfs("sif /links/59 size 0");
	o = must_open("bad.img", "raw");
	check(o.root->ops->list(o.root, "/many", &names, &err) < 0 &&
	              contains(err.message, "not valid"),
	      "a name with a slash is refused");
	check(o.root->ops->list(o.root, "/etc", &names, &err) < 0 &&
	              contains(err.message, "not valid"),
	      "also a name with a NUL");
	check(o.root->ops->readlink(o.root, "/links/1000", &text, &err) < 0 &&
	              contains(err.message, "length"),
	      "a link longer than a path can be is refused");
	check(o.root->ops->readlink(o.root, "/links/59", &text, &err) < 0 &&
	              contains(err.message, "length"),
	      "also an empty one");
}

/* The image ends inside the file system, without a partition table that could tell. */
static void test_cut(void)
{
	copy_to_bad();
	if (truncate("bad.img", (off_t)(30 * MIB)) < 0)
		fixture_fail("cut an image", NULL);
	check_refused("more than the partition's",
	              "a file system cut off by the image's end is refused");
}

int main(void)
{
	bool attributes;

	fixture_begin((const char *const[]){"qemu-nbd", "qemu-img", "sgdisk", "mke2fs", "e2fsck",
	                                    "debugfs", "dumpe2fs", NULL});
	make_tree();
	attributes = make_attributes();
	make_capability();
	if (!attributes)
		printf("ok %d - attributes come out # SKIP no user attributes in '%s'\n",
		       ++tap_count, fixture_dir);
	test_kinds(attributes);
	test_hashed(attributes);
	test_missing();
	test_identity();
	test_statvfs();
	test_mounts();
	test_refused();
	test_unknown_feature();
	test_checksums();
	test_bad_maps();
	test_map_bomb();
	test_bad_names();
	test_cut();
	return tap_done();
}
