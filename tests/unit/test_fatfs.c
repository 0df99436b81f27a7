/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One directory tree, put by mcopy into FAT file systems of many kinds, must come out of each as
 * it went in; damaged ones must be refused in words. Most are read from memory, where a test can
 * break them byte by byte.
 */
#include <dirent.h>
#include <sys/mman.h>
#include <time.h>

#include "builder/disk.h"
#include "builder/fatfs-internal.h"
#include "builder/fatfs.h"
#include "tests/unit/disk-fixture.h"

#define MANY_FILES 400
#define DEEP_DIRS  60
#define WIDE_DIRS  300

/* An image in memory, and what a test has to know of its boot sector. */
struct image {
	uint8_t *data;
	size_t size, mapped;
	struct rootfs *root; /* opened by image_open() */
	bool broken;         /* each read fails */
	size_t breaks_at;    /* this read fails, counted from 1; 0: none */
	size_t reads;
};

static void image_free(struct image *image)
{
	rootfs_close(image->root);
	if (image->data)
		munmap(image->data, image->mapped);
}

#define CLEANUP_IMAGE CLEANUP(image_free)

static int read_memory(void *opaque, void *buffer, size_t size, uint64_t offset_bytes,
                       struct error *err)
{
	struct image *image = opaque;

	if (image->broken || offset_bytes + size > image->size)
		return error_set(err, "the disk is on fire");
	if (++image->reads == image->breaks_at)
		return error_set(err, "a bad sector");
	memcpy(buffer, image->data + offset_bytes, size);
	return 0;
}

static struct image image_load(const char *path)
{
	struct image image = {.size = file_size(path)};
	CLEANUP_CLOSE int fd = fixture_open(path, O_RDONLY);

	/* What a test changes stays in memory, and what nobody reads is never there. */
	image.data = mmap(NULL, image.size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (image.data == MAP_FAILED)
		fixture_fail(path, NULL);
	image.mapped = image.size;
	return image;
}

static int image_try_open(struct image *image, struct error *err)
{
	struct fat_source source = {
		.read = read_memory, .opaque = image, .size_bytes = image->size};

	rootfs_close(image->root);
	image->root = NULL;
	return fatfs_open_source(&image->root, &source, "image 'x'", err);
}

static struct rootfs *image_open(struct image *image)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (image_try_open(image, &err) < 0)
		fixture_fail("open a FAT file system", err.message);
	return image->root;
}

/* The directory entry with this short name, eleven bytes. */
static uint8_t *slot_of(const struct image *image, const char *short_name)
{
	for (size_t at = 0; at + FAT_SLOT_BYTES <= image->size; at += FAT_SLOT_BYTES)
		if (memcmp(image->data + at, short_name, 11) == 0)
			return image->data + at;
	fixture_fail("find a directory entry", short_name);
	return NULL;
}

static void put16(uint8_t *p, unsigned value)
{
	p[0] = (uint8_t)value;
	p[1] = (uint8_t)(value >> 8);
}

static void set_name(uint8_t *slot, const char *short_name)
{
	for (size_t i = 0; i < 11; i++)
		slot[i] = (uint8_t)short_name[i];
}

static unsigned cluster_of(const uint8_t *slot)
{
	return fat_le16(slot + 26);
}

/* FAT16's entry of a cluster, in the first table. */
static uint8_t *table_entry(const struct image *image, unsigned cluster)
{
	size_t table = (size_t)fat_le16(image->data + 14) * fat_le16(image->data + 11);

	return image->data + table + (size_t)cluster * 2;
}

static void write_text(const char *path, const char *text)
{
	make_file(path, 0);
	put(path, 0, text, strlen(text));
}

static void make_dir(const char *path)
{
	if (mkdir(path, 0755) < 0)
		fixture_fail(path, NULL);
}

static void make_sizes(void)
{
	const size_t sizes[] = {0, 1, 511, 512, 513, 2048, 4096, 4097, 32768, 65536, 65537};

	make_dir("tree/sizes");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		CLEANUP_FREE char *name = str_format("tree/sizes/%zu", sizes[i]);

		make_file(name, 0);
		put_noise(name, 0, sizes[i], i + 1);
	}
	make_file("tree/sizes/large", 0);
	put_noise("tree/sizes/large", 0, 2 * MIB + 17, 99);
}

static void make_deep(void)
{
	CLEANUP_FREE char *deep = str_copy("tree/deep");

	for (int i = 0; i <= DEEP_DIRS; i++) {
		char *next = str_format("%s/d", deep);

		make_dir(deep);
		free(deep);
		deep = next;
	}
	write_text(deep, "the end\n");
}

static void make_tree(void)
{
	CLEANUP_FREE char *longest = mem_alloc(256), *path = NULL;

	make_dir("tree");
	make_dir("tree/EFI");
	make_dir("tree/EFI/BOOT");
	make_dir("tree/EFI/debian");
	make_dir("tree/empty");
	make_file("tree/EFI/BOOT/BOOTX64.EFI", 0);
	put_noise("tree/EFI/BOOT/BOOTX64.EFI", 0, 100000, 7);
	write_text("tree/EFI/debian/grub.cfg", "search.fs_uuid x root\n");
	write_text("tree/6.12.0-1-amd64 with a long name.conf", "title Debian\n");
	write_text("tree/Gr\xc3\xb6\xc3\x9f"
	           "e mit Umlauten.txt",
	           "umlauts\n");
	write_text("tree/\xe6\x97\xa5\xe6\x9c\xac.txt", "three bytes a character\n");
	write_text("tree/readme", "in lower case\n");
	write_text("tree/lower.TXT", "in both\n");
	memset(longest, 'n', 255);
	path = str_format("tree/%s", longest);
	write_text(path, "255 units\n");
	make_dir("tree/many");
	for (int i = 0; i < MANY_FILES; i++) {
		CLEANUP_FREE char *name = str_format("tree/many/A file with number %d", i);

		make_file(name, 0);
	}
	make_sizes();
	make_deep();
}

/* mkfs.vfat with up to six more arguments on a new file. */
#define make_fat(path, size, ...)                                                                  \
	do {                                                                                       \
		make_file(path, size);                                                             \
		run("mkfs.vfat", __VA_ARGS__, path);                                               \
	} while (0)

/* Everything in the directory 'tree' into the top of the file system. */
static void copy_tree(const char *image)
{
	CLEANUP_STRV struct strv argv = {0};
	DIR *dir = opendir("tree");
	struct dirent *entry;

	strv_addf(&argv, "mcopy");
	strv_addf(&argv, "-s");
	strv_addf(&argv, "-i");
	strv_add(&argv, image);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			strv_addf(&argv, "tree/%s", entry->d_name);
	if (dir)
		closedir(dir);
	strv_addf(&argv, "::");
	fixture_run(NULL, (const char *const *)argv.items);
}

/* How one image differs from the tree, and how much was compared. */
struct comparison {
	unsigned files, dirs, wrong;
};

static void note_wrong(struct comparison *c, const char *path, const char *why)
{
	printf("# %s: %s\n", path, why);
	c->wrong++;
}

static void compare_copy(struct comparison *c, struct rootfs *r, const char *path, const void *want,
                         size_t size)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	CLEANUP_FREE char *got = mem_alloc(size + 1);

	if (rootfs_copy_out(r, path, fd, &err) < 0)
		note_wrong(c, path, err.message);
	else if (pread(fd, got, size + 1, 0) != (ssize_t)size || memcmp(got, want, size) != 0)
		note_wrong(c, path, "the copy differs");
}

static void compare_file(struct comparison *c, struct rootfs *r, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *host = str_format("tree%s", path);
	CLEANUP_FREE void *got = NULL;
	size_t size = file_size(host), got_size = 0;
	CLEANUP_FREE char *want = mem_alloc(size + 1);

	c->files++;
	get(host, 0, want, size);
	if (rootfs_read(r, path, size, &got, &got_size, &err) < 0)
		note_wrong(c, path, err.message);
	else if (got_size != size || memcmp(got, want, size + 1) != 0)
		note_wrong(c, path, "the content differs");
	else
		compare_copy(c, r, path, want, size);
}

static struct strv host_names(const char *path)
{
	CLEANUP_FREE char *host = str_format("tree%s", path);
	struct strv names = {0};
	struct dirent *entry;
	DIR *dir = opendir(host);

	while (dir && (entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			strv_add(&names, entry->d_name);
	if (dir)
		closedir(dir);
	strv_sort(&names);
	return names;
}

/* The tests' own walk: a list of directories that are still to be compared. */
static void compare_dir(struct comparison *c, struct rootfs *r, const char *path, struct strv *todo)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv want = host_names(path), got = {0};
	CLEANUP_FREE char *wanted = strv_join(&want, "|"), *listed = NULL;

	c->dirs++;
	if (rootfs_list(r, path, &got, &err) < 0) {
		note_wrong(c, path, err.message);
		return;
	}
	listed = strv_join(&got, "|");
	if (!str_equal(listed, wanted))
		note_wrong(c, path, listed);
	for (size_t i = 0; i < want.count; i++) {
		CLEANUP_FREE char *child = str_format("%s/%s", path, want.items[i]);
		struct rootfs_stat st = {0};

		if (rootfs_lstat(r, child, &st, &err) != 1)
			note_wrong(c, child, err.message ? err.message : "missing");
		else if (S_ISDIR(st.mode))
			strv_add(todo, child);
		else
			compare_file(c, r, child);
	}
}

static struct comparison compare_tree(struct rootfs *r)
{
	CLEANUP_STRV struct strv todo = {0};
	struct comparison c = {0};

	strv_add(&todo, "");
	for (size_t i = 0; i < todo.count; i++)
		compare_dir(&c, r, todo.items[i], &todo);
	return c;
}

static void check_kind(const char *path, const char *what)
{
	struct image image CLEANUP_IMAGE = image_load(path);
	struct comparison c = compare_tree(image_open(&image));

	check(c.wrong == 0 && c.files == MANY_FILES + 21 && c.dirs == DEEP_DIRS + 8,
	      "a tree comes out of %s as it went in (%u files, %u directories)", what, c.files,
	      c.dirs);
}

static void test_kinds(void)
{
	make_fat("fat12.img", 8 * MIB, "-F", "12", "-s", "8");
	make_fat("fat16.img", 16 * MIB, "-F", "16", "-s", "4", "-n", "A LABEL");
	make_fat("fat16-64k.img", 300 * MIB, "-F", "16", "-s", "128");
	make_fat("fat32.img", 40 * MIB, "-F", "32", "-s", "1", "-n", "ESP");
	make_fat("fat32-4k.img", 300 * MIB, "-F", "32", "-S", "4096", "-s", "1");
	make_fat("fat16-4k.img", 64 * MIB, "-F", "16", "-S", "4096", "-s", "1");
	copy_tree("fat12.img");
	check_kind("fat12.img", "FAT12 with clusters of 4 KiB");
	copy_tree("fat16.img");
	check_kind("fat16.img", "FAT16 with a label and clusters of 2 KiB");
	copy_tree("fat16-64k.img");
	check_kind("fat16-64k.img", "FAT16 with clusters of 64 KiB");
	copy_tree("fat32.img");
	check_kind("fat32.img", "FAT32 with clusters of 512 bytes and a root of many");
	/* As mkfs.vfat makes it where it is told, and firmware reads it, but mtools does not. */
	make_file("fat32-small.img", 40 * MIB);
	put_file("fat32-small.img", 0, "fat32.img");
	put("fat32-small.img", 32, "\0\300\0\0", 4);
	check_kind("fat32-small.img", "FAT32 with fewer clusters than the specification asks for");
	copy_tree("fat32-4k.img");
	check_kind("fat32-4k.img", "FAT32 with sectors of 4 KiB");
	copy_tree("fat16-4k.img");
	check_kind("fat16-4k.img", "FAT16 with sectors of 4 KiB");
}

/* Small files with holes between them, which a large one then fills. */
static void test_fragments(void)
{
	struct image image CLEANUP_IMAGE = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv argv = {0}, names = {0};
	CLEANUP_FREE uint8_t *want = mem_alloc(MIB);
	CLEANUP_FREE void *got = NULL;
	size_t size = 0;

	make_fat("holes.img", 3 * MIB, "-F", "12", "-s", "2");
	make_dir("holes");
	strv_addf(&argv, "mdel");
	strv_addf(&argv, "-i");
	strv_addf(&argv, "holes.img");
	for (int i = 0; i < 300; i++) {
		CLEANUP_FREE char *name = str_format("holes/file%03d", i);

		make_file(name, 0);
		put_noise(name, 0, 4000, (uint64_t)i);
		if (i % 2)
			strv_addf(&argv, "::holes/file%03d", i);
	}
	run("mcopy", "-s", "-i", "holes.img", "holes", "::");
	fixture_run(NULL, (const char *const *)argv.items);
	fill(want, MIB, 5);
	make_file("large", 0);
	put("large", 0, want, MIB);
	run("mcopy", "-i", "holes.img", "large", "::");
	image = image_load("holes.img");
	image_open(&image);
	check(rootfs_read(image.root, "/large", MIB, &got, &size, &err) == 0 && size == MIB &&
	              memcmp(got, want, MIB) == 0,
	      "a file in many pieces is read");
	check(image.reads > 50, "as it is one (%zu requests)", image.reads);
	check(rootfs_list(image.root, "/holes", &names, &err) == 0 && names.count == 150 &&
	              !rootfs_exists(image.root, "/holes/file001") &&
	              rootfs_exists(image.root, "/holes/file002"),
	      "deleted entries are not listed");
}

static void test_lookup(void)
{
	struct image image CLEANUP_IMAGE = image_load("fat16.img");
	struct rootfs *r = image_open(&image);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *link = NULL;
	struct rootfs_stat a = {0}, b = {0}, root = {0};
	time_t now = time(NULL);
	struct tm local;

	localtime_r(&now, &local);
	check(rootfs_lstat(r, "/EFI/BOOT/bootx64.efi", &a, &err) == 1 &&
	              rootfs_lstat(r, "/efi/boot/BOOTX64.EFI", &b, &err) == 1 &&
	              a.inode == b.inode && a.size_bytes == 100000,
	      "names are found without regard to case");
	check(a.mode == (S_IFREG | 0644) && a.uid == 0 && a.gid == 0, "a file is root's, 0644");
	check(a.mtime_s > now + local.tm_gmtoff - 600 && a.mtime_s < now + local.tm_gmtoff + 600,
	      "its time is the one that was written, as if it were UTC");
	check(rootfs_lstat(r, "/EFI", &b, &err) == 1 && b.mode == (S_IFDIR | 0755) &&
	              rootfs_lstat(r, "/", &root, &err) == 1 && root.mode == (S_IFDIR | 0755) &&
	              root.inode != b.inode && b.inode != a.inode,
	      "directories are 0755, and each inode is another");
	check(rootfs_exists(r, "/6120-1~1.CON"), "a short name finds the file with the long one");
	check(rootfs_exists(r, "/GR\xc3\xb6\xc3\x9f"
	                       "E MIT UMLAUTEN.TXT") &&
	              !rootfs_exists(r, "/GR\xc3\x96\xc3\x9f"
	                                "E MIT UMLAUTEN.TXT"),
	      "case is that of ASCII only");
	check(!rootfs_exists(r, "/EFI/none") && !rootfs_exists(r, "/readme/below") &&
	              !rootfs_exists(r, "/A LABEL") && !rootfs_exists(r, "/EFI/BOOT/BOOTX64"),
	      "what is missing, below a file, or the label is not there");
	check(r->ops->readlink(r, "/readme", &link, &err) < 0 &&
	              error_exit_code(&err) == EXIT_INPUT && !link,
	      "nothing is a link");
	check(!r->ops->write && !r->ops->remove && !r->ops->run && !r->ops->xattrs,
	      "nothing can be written");
}

static void test_refused_reads(void)
{
	struct image image CLEANUP_IMAGE = image_load("fat16.img");
	struct rootfs *r = image_open(&image);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE void *data = NULL;

	check(r->ops->read(r, "/sizes/4097", 4096, &data, NULL, &err) < 0 &&
	              contains(err.message, "4097 bytes, more than 4096") && !data,
	      "a file that is larger than the caller allows is refused");
	check(r->ops->read(r, "/EFI", 4096, &data, NULL, &err) < 0 &&
	              contains(err.message, "not a regular file"),
	      "reading a directory is refused");
	check(r->ops->list(r, "/readme", &names, &err) < 0 &&
	              contains(err.message, "not a directory"),
	      "listing a file is refused");
	check(r->ops->read(r, "/none", 4096, &data, NULL, &err) < 0 &&
	              contains(err.message, "'/none': no such file"),
	      "reading what is missing is refused");
	image.broken = true;
	check(r->ops->list(r, "/EFI", &names, &err) < 0 && contains(err.message, "on fire") &&
	              contains(err.message, "image 'x'"),
	      "a disk that cannot be read is told");
}

/* All that can be asked: the number of operations that failed, each of them in words. */
static unsigned ask_all(struct image *image)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_CLOSE int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	CLEANUP_FREE void *data = NULL;
	uint64_t free_bytes, size_bytes;
	unsigned failed = 0;

	if (image_try_open(image, &err) < 0)
		return contains(err.message, "a bad sector") ? 1 : 100;
	failed += rootfs_statvfs(image->root, "/", &free_bytes, &size_bytes, &err) < 0;
	failed += rootfs_list(image->root, "/many", &names, &err) < 0;
	failed += rootfs_read(image->root, "/sizes/large", 4 * MIB, &data, NULL, &err) < 0;
	failed += rootfs_copy_out(image->root, "/sizes/large", fd, &err) < 0;
	return failed == 0 || contains(err.message, "a bad sector") ? failed : 100;
}

static void test_bad_sector(void)
{
	struct image image CLEANUP_IMAGE = image_load("fat32.img");
	bool good = ask_all(&image) == 0;
	size_t reads = image.reads;

	for (size_t i = 1; good && i <= reads; i++) {
		image.reads = 0;
		image.breaks_at = i;
		good = ask_all(&image) == 1;
	}
	check(good && reads > 8, "a bad sector anywhere is told once (%zu places)", reads);
}

static void test_bad_copy(void)
{
	struct image image CLEANUP_IMAGE = image_load("fat16.img");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int fd = fixture_open("fat16.img", O_RDONLY);

	check(rootfs_copy_out(image_open(&image), "/readme", fd, &err) < 0 &&
	              contains(err.message, "cannot write a copy of '/readme'"),
	      "a copy that cannot be written is told");
}

static uint64_t free_of(struct rootfs *r, uint64_t *ret_size)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	uint64_t free_bytes = 0;

	if (rootfs_statvfs(r, "/", &free_bytes, ret_size, &err) < 0)
		fixture_fail("tell the free space", err.message);
	return free_bytes;
}

static void check_space(const char *kind, uint64_t size, uint64_t cluster, uint64_t root)
{
	struct image before CLEANUP_IMAGE = {0}, after CLEANUP_IMAGE = {0};
	uint64_t size_before, size_after, free_before, free_after;

	make_fat("space.img", size, "-F", kind, "-s", "4");
	before = image_load("space.img");
	free_before = free_of(image_open(&before), &size_before);
	run("mcopy", "-i", "space.img", "tree/sizes/large", "tree/sizes/4097", "::");
	after = image_load("space.img");
	free_after = free_of(image_open(&after), &size_after);
	check(free_before == size_before - root && size_before < size &&
	              size_before > size * 95 / 100 && size_after == size_before &&
	              free_before - free_after == (2 * MIB / cluster + 1 + 3) * cluster,
	      "FAT%s tells its size and what is free", kind);
}

static void test_space(void)
{
	check_space("12", 4 * MIB, 2048, 0);
	check_space("16", 32 * MIB, 2048, 0);
	check_space("32", 160 * MIB, 2048, 2048);
}

/* A table that takes too long to count; FAT32 keeps the number, which may be wrong. */
static void test_space_hint(void)
{
	struct image image CLEANUP_IMAGE = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	uint64_t free_bytes = 0, size_bytes = 0;
	uint8_t *hint;

	make_fat("huge.img", 2304 * MIB, "-F", "32", "-s", "1", "-f", "1");
	image = image_load("huge.img");
	hint = image.data + 512 + 488;
	put16(hint, 0);
	put16(hint + 2, 1);
	check(free_of(image_open(&image), &size_bytes) == 32 * MIB && size_bytes > 2200 * MIB &&
	              image.reads < 5,
	      "a large file system is asked for the number of free clusters that it keeps");
	memset(hint, 0xff, 4);
	check(rootfs_statvfs(image_open(&image), "/", &free_bytes, &size_bytes, &err) < 0 &&
	              error_exit_code(&err) == EXIT_INPUT && contains(err.message, "not kept"),
	      "an error if it keeps none");
}

/* --- one byte wrong ----------------------------------------------------------------------- */

/* What the breaking of a good FAT16 changes. */
static void make_small(void)
{
	make_fat("small.img", 8 * MIB, "-F", "16", "-s", "2");
	make_dir("small");
	make_dir("small/DIR");
	make_dir("small/OTHER");
	write_text("small/DIR/INNER", "inner\n");
	write_text("small/SHORT", "short\n");
	write_text("small/A long name", "long\n");
	make_file("small/BIG", 0);
	put_noise("small/BIG", 0, 10000, 3);
	make_file("small/TWIN", 0);
	put_noise("small/TWIN", 0, 10000, 4);
	make_file("small/MARKS", 0);
	{
		CLEANUP_FREE uint8_t *marks = mem_alloc(3 * MIB);

		memset(marks, 0xe5, 3 * MIB);
		put("small/MARKS", 0, marks, 3 * MIB);
	}
	run("mcopy", "-s", "-i", "small.img", "small/DIR", "small/OTHER", "small/SHORT",
	    "small/A long name", "small/BIG", "small/TWIN", "small/MARKS", "::");
}

#define SHORT_BIG   "BIG        "
#define SHORT_TWIN  "TWIN       "
#define SHORT_DIR   "DIR        "
#define SHORT_OTHER "OTHER      "
#define SHORT_INNER "INNER      "
#define SHORT_MARKS "MARKS      "
#define SHORT_SHORT "SHORT      "
#define SHORT_LONG  "ALONGN~1   "

/* The read of a file, or the list of a directory, must fail with 'part' in the message. */
static void check_fails(struct image *image, const char *path, const char *part, const char *name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE void *data = NULL;
	struct rootfs *r = image_open(image);
	bool is_dir = rootfs_is_dir(r, path);
	int rc = is_dir ? rootfs_list(r, path, &names, &err)
	                : rootfs_read(r, path, 64 * MIB, &data, NULL, &err);

	check(rc < 0 && error_exit_code(&err) == EXIT_INPUT && contains(err.message, path) &&
	              contains(err.message, "image 'x'") && contains(err.message, part),
	      "%s", name);
}

static void test_file_chains(void)
{
	struct image image CLEANUP_IMAGE = image_load("small.img");
	uint8_t *big = slot_of(&image, SHORT_BIG);
	unsigned first = cluster_of(big);
	uint8_t *second = table_entry(&image, first + 1);
	unsigned good = fat_le16(second);

	put16(second, first);
	check_fails(&image, "/BIG", "where it was before", "a chain in a circle is refused");
	put16(second, first + 1);
	check_fails(&image, "/BIG", "where it was before", "also one of a single cluster");
	put16(second, 0xfff0);
	check_fails(&image, "/BIG", "not one that holds data",
	            "a chain that leads outside is refused");
	put16(second, 0);
	check_fails(&image, "/BIG", "not one that holds data", "also one to a free cluster");
	put16(second, 0xfff7);
	check_fails(&image, "/BIG", "not one that holds data", "also one to a bad cluster");
	put16(second, 1);
	check_fails(&image, "/BIG", "cluster 1,", "also one to a cluster that there never is");
	put16(second, 0xffff);
	check_fails(&image, "/BIG", "ends before its size", "a chain that is too short is refused");
	put16(second, good);
	big[31] = 0x01;
	check_fails(&image, "/BIG", "larger than the file system", "a size of 16 MiB is refused");
	big[31] = 0x00;
	put16(big + 26, 0);
	check_fails(&image, "/BIG", "cluster 0,",
	            "a file without clusters but with a size is refused");
}

static void test_cross_link(void)
{
	struct image image CLEANUP_IMAGE = image_load("small.img");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE void *big = NULL, *twin = NULL;
	struct rootfs *r;

	put16(slot_of(&image, SHORT_TWIN) + 26, cluster_of(slot_of(&image, SHORT_BIG)));
	r = image_open(&image);
	check(rootfs_read(r, "/BIG", MIB, &big, NULL, &err) == 0 &&
	              rootfs_read(r, "/TWIN", MIB, &twin, NULL, &err) == 0 &&
	              memcmp(big, twin, 10000) == 0,
	      "two files in the same clusters can be read");
}

static void test_dir_chains(void)
{
	struct image image CLEANUP_IMAGE = image_load("small.img");
	uint8_t *marks = slot_of(&image, SHORT_MARKS), *dir = slot_of(&image, SHORT_DIR);
	unsigned own = cluster_of(dir);
	uint8_t *entry = table_entry(&image, cluster_of(marks));
	unsigned next = fat_le16(entry);

	marks[11] = 0x10;
	check_fails(&image, "/MARKS", "more than 65536 entries", "a directory of 3 MiB is refused");
	put16(entry, cluster_of(marks));
	check_fails(&image, "/MARKS", "where it was before", "a directory in a circle is refused");
	put16(entry, 0x5000);
	check_fails(&image, "/MARKS", "not one that holds data",
	            "a directory that leads outside is refused");
	put16(entry, next);
	put16(dir + 26, 0);
	check_fails(&image, "/DIR", "has no clusters", "a directory without clusters is refused");
	put16(dir + 26, 0xf000);
	check_fails(&image, "/DIR", "cluster 61440,", "a directory that begins outside is refused");
	put16(dir + 26, own);
	slot_of(&image, SHORT_INNER)[11] = 0x10;
	put16(slot_of(&image, SHORT_INNER) + 26, own);
	check_fails(&image, "/DIR/INNER", "at another place of the tree",
	            "a directory inside itself is refused");
}

/* Two entries for one directory, as a walk would find them. */
static void test_dir_twice(void)
{
	struct image image CLEANUP_IMAGE = image_load("small.img");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv first = {0}, second = {0}, again = {0};
	struct rootfs *r;

	put16(slot_of(&image, SHORT_OTHER) + 26, cluster_of(slot_of(&image, SHORT_DIR)));
	r = image_open(&image);
	check(rootfs_list(r, "/DIR", &first, &err) == 0 && first.count == 1 &&
	              rootfs_list(r, "/OTHER", &second, &err) < 0 &&
	              contains(err.message, "'/OTHER': it is also at another place") &&
	              rootfs_list(r, "/DIR", &again, &err) == 0,
	      "a directory with two entries is in the first one's place only");
}

static void test_short_names(void)
{
	struct image image CLEANUP_IMAGE = image_load("small.img");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE char *joined = NULL;
	uint8_t *big = slot_of(&image, SHORT_BIG), *twin = slot_of(&image, SHORT_TWIN);
	uint8_t *sum = slot_of(&image, SHORT_LONG) - FAT_SLOT_BYTES + 13;

	(*sum)++;
	set_name(big, "NAME    EXT");
	big[12] = 0x08;
	slot_of(&image, SHORT_SHORT)[12] = 0x18;
	slot_of(&image, SHORT_MARKS)[12] = 0x00;
	slot_of(&image, SHORT_MARKS)[11] |= 0x01;
	set_name(twin, "\x05\x81"
	               "B     \x9a  ");
	check(rootfs_list(image_open(&image), "/", &names, &err) == 0, "odd names are listed");
	joined = strv_join(&names, "|");
	check_str(joined,
	          "ALONGN~1|DIR|MARKS|OTHER|name.EXT|short|\xcf\x83\xc3\xbc"
	          "B.\xc3\x9c",
	          "a long name with a wrong checksum is not taken, bits tell of lower case, and "
	          "other bytes are code page 437");
	check(rootfs_exists(image.root, "/alongn~1") && !rootfs_exists(image.root, "/A long name"),
	      "that is also how it is found");
}

/* mtools writes no character that takes two units, so one is put in. */
static void test_emoji(void)
{
	struct image image CLEANUP_IMAGE = image_load("small.img");
	uint8_t *unit = slot_of(&image, SHORT_LONG) - FAT_SLOT_BYTES + 1;
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};

	put16(unit, 0xd83d);
	put16(unit + 2, 0xde00);
	check(rootfs_list(image_open(&image), "/", &names, &err) == 0 &&
	              strv_has(&names, "\xf0\x9f\x98\x80long name") &&
	              rootfs_exists(image.root, "/\xf0\x9f\x98\x80LONG NAME"),
	      "an emoji is two units in the directory, and four bytes in its name");
}

/* The slots of a long name that do not belong together. */
static void test_long_name_order(void)
{
	struct image image CLEANUP_IMAGE = image_load("fat16.img");
	uint8_t *slot = slot_of(&image, "6120-1~1CON") - FAT_SLOT_BYTES;
	const char *name = "/6.12.0-1-amd64 with a long name.conf";

	check(rootfs_exists(image_open(&image), name), "a name in three slots is found");
	slot[0] = 2;
	check(!rootfs_exists(image_open(&image), name) &&
	              rootfs_exists(image.root, "/6120-1~1.CON"),
	      "not if a slot has the number of another");
	slot[0] = 1;
	slot[-FAT_SLOT_BYTES] = 0xe5;
	check(!rootfs_exists(image_open(&image), name) &&
	              rootfs_exists(image.root, "/6120-1~1.CON"),
	      "nor if one of them was deleted");
}

static void test_names_refused(void)
{
	struct image image CLEANUP_IMAGE = image_load("small.img");
	uint8_t *unit = slot_of(&image, SHORT_LONG) - FAT_SLOT_BYTES + 3;
	uint8_t *letter = slot_of(&image, SHORT_INNER) + 1;

	put16(unit, '/');
	check_fails(&image, "/", "holds '/'", "a long name with '/' is refused");
	put16(unit, 0x1b);
	check_fails(&image, "/", "a control character", "also one with a control character");
	put16(unit, 0x9b);
	check_fails(&image, "/", "a control character", "also one with one of C1");
	put16(unit, 0xd83d);
	check_fails(&image, "/", "no Unicode", "also one with half a character");
	put16(unit, 0xdc00);
	check_fails(&image, "/", "no Unicode", "also one with the other half");
	put16(unit, '.');
	put16(unit - 2, '.');
	put16(unit + 2, 0);
	check_fails(&image, "/", "'.' or '..'", "also '..'");
	put16(unit - 2, 'A');
	*letter = '/';
	check_fails(&image, "/DIR", "holds '/'", "a short name with '/' is refused");
	*letter = '\n';
	check_fails(&image, "/DIR", "entry 3", "also one with a newline, and its place is told");
}

/* A directory ends at the first entry that was never used. */
static void test_end_mark(void)
{
	struct image image CLEANUP_IMAGE = image_load("small.img");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};

	slot_of(&image, SHORT_BIG)[0] = 0;
	check(rootfs_list(image_open(&image), "/", &names, &err) == 0 && names.count > 0 &&
	              !strv_has(&names, "TWIN"),
	      "what stands behind a directory's end is not listed");
}

/* More directories than are kept, and deeper ones than are followed. */
static void make_abyss(void)
{
	CLEANUP_FREE char *path = str_copy("abyss");

	for (int i = 0; i <= FAT_DEPTH_MAX; i++) {
		char *next = str_format("%s/d", path);

		make_dir(path);
		free(path);
		path = next;
	}
	make_dir("wide");
	for (int i = 0; i < WIDE_DIRS; i++) {
		CLEANUP_FREE char *dir = str_format("wide/%d", i), *file = NULL;

		make_dir(dir);
		file = str_format("%s/file%d", dir, i);
		make_file(file, 0);
	}
	make_fat("abyss.img", 8 * MIB, "-F", "16", "-s", "1");
	run("mcopy", "-s", "-i", "abyss.img", "abyss", "wide", "::");
}

static void test_too_deep(void)
{
	struct image image CLEANUP_IMAGE = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *path = str_copy("/abyss"), *deeper = NULL;
	struct rootfs_stat st = {0};
	struct rootfs *r;

	make_abyss();
	image = image_load("abyss.img");
	r = image_open(&image);
	for (int i = 1; i < FAT_DEPTH_MAX; i++) {
		char *next = str_format("%s/d", path);

		free(path);
		path = next;
	}
	check(r->ops->lstat(r, path, &st, &err) == 1 && S_ISDIR(st.mode),
	      "128 directories in each other are followed");
	deeper = str_format("%s/d", path);
	check(r->ops->lstat(r, deeper, &st, &err) < 0 && error_exit_code(&err) == EXIT_INPUT &&
	              contains(err.message, "too many directories"),
	      "and one more is refused");
}

static void test_many_dirs(void)
{
	struct image image CLEANUP_IMAGE = image_load("abyss.img");
	struct rootfs *r = image_open(&image);
	int found = 0;

	for (int i = 0; i < 2 * WIDE_DIRS; i++) {
		CLEANUP_FREE char *path =
			str_format("/wide/%d/file%d", i % WIDE_DIRS, i % WIDE_DIRS);

		found += rootfs_exists(r, path);
	}
	check(found == 2 * WIDE_DIRS, "more directories than are kept are read again");
}

/* --- the boot sector ---------------------------------------------------------------------- */

struct lie {
	size_t offset;
	size_t size;
	uint32_t value;
	const char *part; /* of the message */
};

static void check_lies(const char *path, const char *kind, const struct lie *lies, size_t count)
{
	struct image image CLEANUP_IMAGE = image_load(path);

	for (size_t i = 0; i < count; i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		uint8_t saved[4];

		memcpy(saved, image.data + lies[i].offset, 4);
		for (size_t n = 0; n < lies[i].size; n++)
			image.data[lies[i].offset + n] = (uint8_t)(lies[i].value >> 8 * n);
		check(image_try_open(&image, &err) < 0 && error_exit_code(&err) == EXIT_INPUT &&
		              contains(err.message, "image 'x'") &&
		              contains(err.message, lies[i].part),
		      "%s: '%s' is refused", kind, lies[i].part);
		memcpy(image.data + lies[i].offset, saved, 4);
	}
	image_open(&image); /* it was good but for that */
}

static void test_boot_sector(void)
{
	static const struct lie fat16[] = {
		{11, 2, 0, "sectors have 0 bytes"},
		{11, 2, 513, "sectors have 513 bytes"},
		{11, 2, 0x8000, "sectors have 32768 bytes"},
		{13, 1, 0, "clusters have 0 sectors"},
		{13, 1, 3, "clusters have 3 sectors"},
		{14, 2, 0, "no allocation table"},
		{14, 2, 0xffff, "data begins at sector"},
		{16, 1, 0, "no allocation table"},
		{17, 2, 0, "root directory has 0 entries"},
		{17, 2, 17, "root directory has 17 entries"},
		{19, 2, 0xffff, "more than the partition's"},
		{21, 1, 0x12, "media type is 0x12"},
		{22, 2, 0xffff, "data begins at sector"},
	};
	static const struct lie fat32[] = {
		{32, 4, 0xffffffff, "more than the partition's"},
		{32, 4, 0, "data begins at sector"},
		{36, 4, 0xffffffff, "data begins at sector"},
		{36, 4, 0, "no allocation table"},
		{40, 2, 0x8f, "table 15 is in use, of 2"},
		{42, 2, 1, "version is 0x0001"},
		{44, 4, 0, "cluster 0 of"},
		{44, 4, 0x0fffffff, "cluster 268435455 of"},
	};

	static const struct lie too_many[] = {{13, 1, 1, "it has 613"}};

	check_lies("fat16-64k.img", "FAT16 of 64 KiB", too_many, 1);
	check_lies("small.img", "FAT16", fat16, sizeof(fat16) / sizeof(fat16[0]));
	check_lies("fat32.img", "FAT32", fat32, sizeof(fat32) / sizeof(fat32[0]));
}

static void test_short_table(void)
{
	struct image image CLEANUP_IMAGE = image_load("fat32.img");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE void *data = NULL;
	uint64_t size;

	/* One sector for 126 clusters, wherever their data may be then. */
	put16(image.data + 36, 1);
	put16(image.data + 38, 0);
	free_of(image_open(&image), &size);
	check(size == 64512, "only clusters that the table tells of are there");
	check(rootfs_read(image.root, "/sizes/large", 4 * MIB, &data, NULL, &err) < 0 &&
	              err.message,
	      "and nothing is read beyond them");
}

static void test_active_table(void)
{
	struct image image CLEANUP_IMAGE = image_load("fat32.img");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	size_t table = (size_t)fat_le16(image.data + 14) * 512;
	size_t bytes = (size_t)fat_le32(image.data + 36) * 512;
	CLEANUP_FREE void *data = NULL;

	memset(image.data + table, 0, bytes);
	check(rootfs_read(image_open(&image), "/EFI/BOOT/BOOTX64.EFI", MIB, &data, NULL, &err) < 0,
	      "the first table is the one that is read");
	image.data[40] = 0x81;
	check(rootfs_read(image_open(&image), "/EFI/BOOT/BOOTX64.EFI", MIB, &data, NULL, &err) == 0,
	      "unless another one is said to be in use");
}

/* The length of an image that was cut off; and bytes that are no file system. */
static void test_no_fat(void)
{
	struct image image CLEANUP_IMAGE = image_load("small.img");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	size_t size = image.size;

	image.size = size / 2;
	check(image_try_open(&image, &err) < 0 &&
	              contains(err.message, "more than the partition's"),
	      "a file system that is cut off is refused");
	image.size = 100;
	check(image_try_open(&image, &err) < 0 && contains(err.message, "only 100 bytes"),
	      "a partition of less than a sector is refused");
	image.size = size;
	fill(image.data, image.size, 1);
	check(image_try_open(&image, &err) < 0 && error_exit_code(&err) == EXIT_INPUT,
	      "noise is refused");
	memset(image.data, 0, image.size);
	check(image_try_open(&image, &err) < 0 && error_exit_code(&err) == EXIT_INPUT,
	      "zeroes are refused");
}

/* What a walk over a whole ESP costs in requests to the disk. */
static void test_few_reads(void)
{
	struct image image CLEANUP_IMAGE = image_load("fat16.img");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_FREE void *data = NULL;
	struct rootfs *r = image_open(&image);
	size_t read;
	bool all = rootfs_list(r, "/many", &names, &err) == 0 && names.count == MANY_FILES;
	size_t listed = image.reads;

	for (size_t i = 0; all && i < names.count; i++) {
		CLEANUP_FREE char *path = str_format("/many/%s", names.items[i]);

		all = rootfs_exists(r, path);
	}
	check(all && image.reads == listed && listed < 10,
	      "names are looked up in what was read once (%zu reads)", listed);
	check(rootfs_read(r, "/sizes/large", 4 * MIB, &data, NULL, &err) == 0,
	      "a file of two MiB is read");
	read = image.reads - listed;
	check(read < 8, "in few requests (%zu)", read);
}

/* --- on a disk ---------------------------------------------------------------------------- */

static void test_disk(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_ROOTFS struct rootfs *r = NULL, *none = NULL;
	struct volume other;
	struct comparison c;

	make_file("disk.img", 20 * MIB);
	run_with("label: dos\nstart=2048, size=32768, type=ef\n", "sfdisk", "-q", "disk.img");
	put_file("disk.img", MIB, "fat16.img");
	convert("disk.img", "disk.qcow2");
	if (disk_open(&disk, "disk.qcow2", "qcow2", false, &err) < 0 || disk_probe(disk, &err) < 0)
		fixture_fail("open a disk", err.message);
	check(disk_volume_count(disk) == 1 && fatfs_supports(disk_volume(disk, 0)),
	      "a FAT partition is one that can be read");
	check(fatfs_open(&r, disk, disk_volume(disk, 0), &err) == 0, "it is opened");
	c = compare_tree(r);
	check(c.wrong == 0 && c.files == MANY_FILES + 21, "and has the tree that went in");
	other = *disk_volume(disk, 0);
	other.lv = other.type;
	check(!fatfs_supports(&other), "a logical volume is not: the disk does not have it whole");
	other.lv = NULL;
	other.type = NULL;
	check(!fatfs_supports(&other) && fatfs_open(&none, disk, &other, &err) < 0 &&
	              error_exit_code(&err) == EXIT_INPUT && contains(err.message, "unknown") &&
	              contains(err.message, "disk.qcow2', partition 1"),
	      "nor is a partition of unknown content");
}

int main(void)
{
	fixture_begin((const char *const[]){"mkfs.vfat", "mcopy", "mdel", "sfdisk", "qemu-nbd",
	                                    "qemu-img", NULL});
	/* mtools converts names from the locale's character set. */
	setenv("LC_ALL", "C.UTF-8", 1);
	make_tree();
	test_kinds();
	test_fragments();
	test_lookup();
	test_refused_reads();
	test_bad_sector();
	test_bad_copy();
	test_space();
	test_space_hint();
	make_small();
	test_file_chains();
	test_cross_link();
	test_dir_chains();
	test_dir_twice();
	test_short_names();
	test_emoji();
	test_long_name_order();
	test_names_refused();
	test_end_mark();
	test_too_deep();
	test_many_dirs();
	test_boot_sector();
	test_short_table();
	test_active_table();
	test_no_fat();
	test_few_reads();
	test_disk();
	return tap_done();
}
