/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files written into file systems of many kinds: e2fsck must find nothing to say afterwards, and
 * what is read back must be what a model of the tree says.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "builder/disk.h"
#include "builder/extfs.h"
#include "builder/extfs-write.h"
#include "tests/unit/disk-fixture.h"

#define FILES_MAX 4096

/* A file as it must be; the fields of a tree_node, the content told by size and seed. */
struct item {
	const char *path; /* NULL: not in use; in a model, the strings are its own */
	uint32_t mode, uid, gid;
	int64_t mtime_s;
	uint64_t size, seed, hole; /* 'hole' bytes before the data */
	const char *target;
	const char *same_as;
	size_t xattrs; /* how many, and how large */
	size_t xattr_size;
};

struct model {
	struct item items[FILES_MAX];
	size_t count;
};

struct session {
	struct disk *disk;
	struct extfs_writer *writer;
};

static void session_free(struct session *s)
{
	extfs_writer_free(s->writer);
	disk_close(s->disk);
}

#define CLEANUP_SESSION __attribute__((cleanup(session_free)))

/* An overlay over a raw image. */
static void make_overlay(const char *base, const char *overlay)
{
	run("qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, overlay);
}

/* The result of the mount: 0, 1 or -1. */
static int try_begin(struct session *ret, const char *overlay, char **ret_reason, struct error *err)
{
	*ret = (struct session){0};
	if (disk_open_writable(&ret->disk, overlay, err) < 0 || disk_probe(ret->disk, err) < 0 ||
	    extfs_writer_new(&ret->writer, ret->disk, err) < 0)
		fixture_fail("open an overlay", err->message);
	return extfs_writer_mount(ret->writer, "/", disk_volume(ret->disk, 0), ret_reason, err);
}

static void begin(struct session *ret, const char *overlay)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *reason = NULL;

	if (try_begin(ret, overlay, &reason, &err) != 0)
		fixture_fail("mount a file system", reason ? reason : err.message);
}

/* e2fsck's verdict over the overlay's content. */
static bool is_clean(const char *overlay, const char *name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *text = NULL;
	const char *const argv[] = {"e2fsck", "-fn", "check.img", NULL};
	const struct proc_options options = {.timeout_ms = 120000};
	int code = -1;

	run("qemu-img", "convert", "-q", "-f", "qcow2", "-O", "raw", overlay, "check.img");
	if (proc_run_status(argv, &options, &text, MIB, &code, &err) < 0)
		fixture_fail("run e2fsck", err.message);
	if (!check(code == 0, "%s: e2fsck finds nothing", name))
		printf("# %.4000s\n", text);
	return code == 0;
}

static void finish(struct session *s, const char *overlay, const char *name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (!check(extfs_writer_finish(s->writer, &err) == 0 && disk_finish(s->disk, &err) == 0,
	           "%s: the writer finishes", name))
		printf("# %s\n", err.message);
	is_clean(overlay, name);
}

static void fill_item(int fd, const struct item *item)
{
	CLEANUP_FREE uint8_t *data = mem_alloc(item->size - item->hole + 1);

	fill(data, item->size - item->hole, item->seed);
	if (ftruncate(fd, (off_t)item->size) < 0 ||
	    pwrite(fd, data, item->size - item->hole, (off_t)item->hole) !=
	            (ssize_t)(item->size - item->hole))
		fixture_fail("write content", NULL);
}

static void make_xattrs(const struct item *item, struct rootfs_xattr **ret)
{
	*ret = mem_alloc((item->xattrs + 1) * sizeof(**ret));
	for (size_t i = 0; i < item->xattrs; i++) {
		(*ret)[i].name = str_format("user.number-%zu", i);
		(*ret)[i].value = mem_alloc(item->xattr_size + 1);
		(*ret)[i].size = item->xattr_size;
		fill((*ret)[i].value, item->xattr_size, item->xattr_size + i);
	}
}

static int put_item(struct session *s, const struct item *item, struct error *err)
{
	struct tree_sink *sink = extfs_writer_sink(s->writer);
	CLEANUP_CLOSE int fd = fixture_open(".", O_RDWR | O_TMPFILE);
	struct rootfs_xattr *xattrs;
	struct tree_node node = {.path = item->path,
	                         .mode = item->mode,
	                         .uid = item->uid,
	                         .gid = item->gid,
	                         .mtime_s = item->mtime_s,
	                         .mtime_ns = 123456789,
	                         .size_bytes = item->size,
	                         .fd = -1,
	                         .link_target = item->target,
	                         .same_as = item->same_as,
	                         .xattr_count = item->xattrs};
	int result;

	if (S_ISREG(item->mode)) {
		fill_item(fd, item);
		node.fd = fd;
	}
	make_xattrs(item, &xattrs);
	node.xattrs = xattrs;
	result = sink->put(sink, &node, err);
	rootfs_xattrs_free(xattrs, item->xattrs);
	return result;
}

static void item_free(struct item *item)
{
	free((void *)item->path);
	free((void *)item->target);
	free((void *)item->same_as);
	*item = (struct item){0};
}

static struct item *find_item(struct model *m, const char *path)
{
	for (size_t i = 0; i < m->count; i++)
		if (m->items[i].path && strcmp(m->items[i].path, path) == 0)
			return &m->items[i];
	return NULL;
}

/* What is below goes too. */
static void forget(struct model *m, const char *path, bool itself)
{
	size_t length = strlen(path);

	for (size_t i = 0; i < m->count; i++) {
		const char *other = m->items[i].path;

		if (other && strncmp(other, path, length) == 0 &&
		    (other[length] == '/' || (itself && !other[length])))
			item_free(&m->items[i]);
	}
}

static struct item *remember(struct model *m, const struct item *item)
{
	struct item *old = find_item(m, item->path);

	if (old && !(S_ISDIR(old->mode) && S_ISDIR(item->mode)))
		forget(m, item->path, false);
	if (!old)
		old = &m->items[m->count++];
	else
		item_free(old);
	if (m->count > FILES_MAX)
		fixture_fail("keep so many files", "the model is full");
	*old = *item;
	old->path = str_copy(item->path);
	old->target = item->target ? str_copy(item->target) : NULL;
	old->same_as = item->same_as ? str_copy(item->same_as) : NULL;
	return old;
}

/* Writes it, and keeps it in the model. */
static void put_both(struct session *s, struct model *m, struct item item)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (!item.mtime_s)
		item.mtime_s = 1700000000 + (int64_t)m->count;
	if (put_item(s, &item, &err) < 0)
		check(false, "'%s' is written: %s", item.path, err.message);
	else
		remember(m, &item);
}

static void remove_both(struct session *s, struct model *m, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (extfs_writer_remove(s->writer, path, &err) < 0)
		check(false, "'%s' is removed: %s", path, err.message);
	forget(m, path, true);
}

static void model_free(struct model *m)
{
	for (size_t i = 0; i < m->count; i++)
		item_free(&m->items[i]);
	free(m);
}

DEFINE_CLEANUP(model, struct model *, model_free)
#define CLEANUP_MODEL CLEANUP(cleanup_model)

static size_t differs(const struct item *item, const char *what, const char *why)
{
	printf("# %s: %s%s%s\n", item->path, what, why ? ": " : "", why ? why : "");
	return 1;
}

static size_t compare_content(struct rootfs *r, const struct item *item)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int got = fixture_open(".", O_RDWR | O_TMPFILE);
	CLEANUP_CLOSE int want = fixture_open(".", O_RDWR | O_TMPFILE);
	uint8_t *a, *b;
	bool same;

	fill_item(want, item);
	if (r->ops->copy_out(r, item->path, got, &err) < 0)
		return differs(item, "cannot be read", err.message);
	if (item->size == 0)
		return 0;
	a = mmap(NULL, item->size, PROT_READ, MAP_SHARED, want, 0);
	b = mmap(NULL, item->size, PROT_READ, MAP_SHARED, got, 0);
	if (a == MAP_FAILED || b == MAP_FAILED)
		fixture_fail("map a file", NULL);
	same = memcmp(a, b, item->size) == 0;
	munmap(a, item->size);
	munmap(b, item->size);
	return same ? 0 : differs(item, "its content differs", NULL);
}

static size_t compare_xattrs(struct rootfs *r, const struct item *item)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct rootfs_xattr *want, *got = NULL;
	size_t count = 0, found = 0;

	if (r->ops->xattrs(r, item->path, &got, &count, &err) < 0)
		return differs(item, "its attributes cannot be read", err.message);
	make_xattrs(item, &want);
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < item->xattrs; j++)
			found += strcmp(got[i].name, want[j].name) == 0 &&
			         got[i].size == want[j].size &&
			         memcmp(got[i].value, want[j].value, got[i].size) == 0;
	rootfs_xattrs_free(want, item->xattrs);
	rootfs_xattrs_free(got, count);
	return count == item->xattrs && found == count ? 0
	                                               : differs(item, "other attributes", NULL);
}

static size_t compare_item(struct rootfs *r, struct model *m, const struct item *item)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *target = NULL;
	struct rootfs_stat st, first;

	if (r->ops->lstat(r, item->path, &st, &err) != 1)
		return differs(item, "is not there", err.message);
	if (item->same_as && find_item(m, item->same_as)) {
		if (r->ops->lstat(r, item->same_as, &first, &err) == 1 && first.inode == st.inode)
			return 0;
		return differs(item, "is not the same file as", item->same_as);
	}
	if (st.mode != item->mode || st.uid != item->uid || st.gid != item->gid)
		return differs(item, "mode or owner", NULL);
	/* Of a directory, what was put into it later is newer. */
	if (S_ISDIR(item->mode) ? st.mtime_s < item->mtime_s : st.mtime_s != item->mtime_s)
		return differs(item, "time", NULL);
	if (S_ISREG(item->mode) && st.size_bytes != item->size)
		return differs(item, "size", NULL);
	if (S_ISREG(item->mode) && compare_content(r, item))
		return 1;
	if (S_ISLNK(item->mode) && (r->ops->readlink(r, item->path, &target, &err) < 0 ||
	                            strcmp(target, item->target) != 0))
		return differs(item, "link", err.message);
	return compare_xattrs(r, item);
}

static size_t count_below(struct rootfs *r, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	size_t count = 0;

	if (r->ops->list(r, path, &names, &err) < 0)
		fixture_fail("list a directory", err.message);
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *below = str_format("%s/%s", path[1] ? path : "", names.items[i]);
		struct rootfs_stat st;

		if (strcmp(below, "/lost+found") == 0)
			continue;
		count++;
		if (r->ops->lstat(r, below, &st, &err) == 1 && S_ISDIR(st.mode))
			count += count_below(r, below);
	}
	return count;
}

static void compare(const char *overlay, struct model *m, const char *name)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_ROOTFS struct rootfs *r = NULL;
	size_t differences = 0, items = 0;

	if (disk_open(&disk, overlay, "qcow2", true, &err) < 0 || disk_probe(disk, &err) < 0 ||
	    extfs_open(&r, disk, disk_volume(disk, 0), &err) < 0)
		fixture_fail("open the result", err.message);
	for (size_t i = 0; i < m->count; i++)
		if (m->items[i].path) {
			items++;
			differences += compare_item(r, m, &m->items[i]);
		}
	check(differences == 0, "%s: all %zu files are as the model says", name, items);
	check(count_below(r, "/") == items, "%s: and there are no others", name);
}

static struct item dir_item(const char *path)
{
	return (struct item){.path = path, .mode = S_IFDIR | 0755};
}

static struct item file_item(const char *path, uint64_t size, uint64_t seed)
{
	return (struct item){.path = path, .mode = S_IFREG | 0644, .size = size, .seed = seed};
}

static struct item link_item(const char *path, const char *target)
{
	return (struct item){.path = path, .mode = S_IFLNK | 0777, .target = target};
}

/* A file system of a kind, and the options that make it. */
struct kind {
	const char *name;
	const char *options[12];
	uint64_t size_mib;
};

static const struct kind kinds[] = {
	{"ext4", {"-t", "ext4", "-b", "4096"}, 320},
	{"ext4 1k", {"-t", "ext4", "-b", "1024"}, 256},
	{"ext4 no csum",
         {"-t", "ext4", "-b", "4096", "-O", "^metadata_csum,uninit_bg,^64bit"},
         320},
	{"ext4 no flex_bg", {"-t", "ext4", "-b", "4096", "-O", "^flex_bg"}, 640},
	{"ext4 orphan_file", {"-t", "ext4", "-b", "4096", "-O", "orphan_file"}, 320},
	{"ext4 meta_bg", {"-t", "ext4", "-b", "4096", "-O", "meta_bg,^resize_inode"}, 320},
	{"ext4 sparse_super2", {"-t", "ext4", "-b", "4096", "-O", "sparse_super2,large_dir"}, 320},
	{"ext4 no index", {"-t", "ext4", "-b", "4096", "-O", "^dir_index", "-I", "1024"}, 320},
	{"ext3", {"-t", "ext3", "-b", "4096"}, 320},
	{"ext3 1k", {"-t", "ext3", "-b", "1024", "-I", "128"}, 192},
	{"ext2", {"-t", "ext2", "-b", "4096", "-I", "128"}, 320},
};

#define KIND_COUNT (sizeof(kinds) / sizeof(kinds[0]))

/* base.img, made from 'tree' if that is not NULL, and an overlay of it. */
static void make_base(const struct kind *kind, const char *tree, const char *overlay)
{
	const char *argv[32] = {"mke2fs", "-q", "-F", "-U", "11111111-2222-3333-4444-555555555555"};
	size_t n = 5;

	for (size_t i = 0; kind->options[i]; i++)
		argv[n++] = kind->options[i];
	if (tree) {
		argv[n++] = "-d";
		argv[n++] = tree;
	}
	argv[n++] = "base.img";
	unlink("base.img");
	make_file("base.img", kind->size_mib * MIB);
	fixture_run(NULL, argv);
	make_overlay("base.img", overlay);
}

static char *path_of(const char *format, unsigned number)
{
	return str_format(format, number);
}

/* All types, twice: what is new, then what replaces it. */
static void put_types(struct session *s, struct model *m, int64_t latest)
{
	put_both(s, m, dir_item("/a"));
	put_both(s, m, dir_item("/a/b"));
	put_both(s, m,
	         (struct item){.path = "/a/sticky",
	                       .mode = S_IFDIR | 01777,
	                       .uid = 100000,
	                       .gid = 70000,
	                       .xattrs = 1,
	                       .xattr_size = 10});
	put_both(s, m, file_item("/a/empty", 0, 0));
	put_both(s, m, file_item("/a/one", 1, 1));
	put_both(s, m,
	         (struct item){.path = "/a/block",
	                       .mode = S_IFREG | 0644,
	                       .size = 4096,
	                       .seed = 2,
	                       .mtime_s = 1234567890});
	put_both(s, m, file_item("/a/b/large", 5 * MIB + 77, 3));
	put_both(s, m,
	         (struct item){.path = "/a/setuid",
	                       .mode = S_IFREG | 04755,
	                       .uid = 4000000000u,
	                       .gid = 4000000001u,
	                       .mtime_s = latest,
	                       .size = 100,
	                       .seed = 4});
	put_both(s, m,
	         (struct item){
			 .path = "/a/old", .mode = S_IFREG | 0600, .mtime_s = -100, .size = 3});
	put_both(s, m, (struct item){.path = "/a/fifo", .mode = S_IFIFO | 0640});
	put_both(s, m,
	         (struct item){.path = "/a/other",
	                       .mode = S_IFREG | 0644,
	                       .same_as = "/a/block",
	                       .size = 4096,
	                       .seed = 2,
	                       .mtime_s = 1234567890});
	put_both(s, m,
	         (struct item){
			 .path = "/a/some", .mode = S_IFREG | 0644, .xattrs = 2, .xattr_size = 5});
	put_both(
		s, m,
		(struct item){
			.path = "/a/many", .mode = S_IFREG | 0644, .xattrs = 3, .xattr_size = 200});
	put_both(s, m,
	         (struct item){.path = "/a/sparse",
	                       .mode = S_IFREG | 0644,
	                       .size = 9 * MIB + 5,
	                       .seed = 9,
	                       .hole = 8 * MIB + 333});
	put_both(s, m,
	         (struct item){.path = "/a/hole",
	                       .mode = S_IFREG | 0644,
	                       .size = 3 * MIB,
	                       .hole = 3 * MIB});
	/* Replaced by another type, by another content, without and with other names. */
	put_both(s, m, file_item("/a/b", 500, 10));
	put_both(s, m, dir_item("/a/one"));
	put_both(s, m, file_item("/a/one/inside", 9000, 11));
	put_both(s, m, link_item("/a/fifo", "one/inside"));
	put_both(s, m, file_item("/a/block", 8192, 12));
	free((void *)find_item(m, "/a/other")->same_as);
	find_item(m, "/a/other")->same_as = NULL;
	put_both(s, m, file_item("/a/sparse", 70000, 13));
	put_both(s, m, file_item("/a/many", 10, 14));
	put_both(s, m,
	         (struct item){.path = "/a/some",
	                       .mode = S_IFREG | 0644,
	                       .size = 5000,
	                       .xattrs = 1,
	                       .xattr_size = 800});
	put_both(s, m,
	         (struct item){.path = "/a/sticky", .mode = S_IFDIR | 0700, .uid = 1, .gid = 2});
}

static void put_links(struct session *s, struct model *m, size_t longest)
{
	const size_t lengths[] = {1, 58, 59, 60, 61, 200, 1000, longest};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		CLEANUP_FREE char *target = mem_alloc(lengths[i] + 1);
		CLEANUP_FREE char *path = path_of("/link-%u", (unsigned)lengths[i]);

		memset(target, 'x', lengths[i]);
		put_both(s, m, link_item(path, target));
	}
}

/* A directory with many entries, then with few, then with others. */
static void put_crowd(struct session *s, struct model *m, unsigned count)
{
	put_both(s, m, dir_item("/crowd"));
	for (unsigned i = 0; i < count; i++) {
		CLEANUP_FREE char *path = path_of("/crowd/a file with the number %u", i);

		put_both(s, m, file_item(path, i % 7 ? 0 : 100 + i, i));
	}
	for (unsigned i = 0; i < count; i++) {
		CLEANUP_FREE char *path = path_of("/crowd/a file with the number %u", i);

		if (i % 5)
			remove_both(s, m, path);
	}
	for (unsigned i = 0; i < count / 4; i++) {
		CLEANUP_FREE char *path = path_of("/crowd/directory-%u", i);

		put_both(s, m, dir_item(path));
	}
}

static bool is_old(const struct kind *kind)
{
	for (size_t i = 0; kind->options[i]; i++)
		if (strcmp(kind->options[i], "128") == 0)
			return true;
	return false;
}

static void test_kind(const struct kind *kind)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SESSION struct session s = {0};
	CLEANUP_MODEL struct model *m = mem_alloc(sizeof(*m));
	bool small = strstr(kind->name, "1k") != NULL;

	make_base(kind, NULL, "over.qcow2");
	begin(&s, "over.qcow2");
	/* Inodes of 128 bytes have 32 bits for a time. */
	put_types(&s, m, is_old(kind) ? INT32_MAX : 4294967296 + 5);
	put_links(&s, m, small ? 1023 : 4000);
	put_crowd(&s, m, 300);
	put_both(&s, m, dir_item("/gone"));
	put_both(&s, m, dir_item("/gone/deeper"));
	put_both(&s, m, file_item("/gone/deeper/file", 200000, 5));
	remove_both(&s, m, "/gone");
	check(extfs_writer_remove(s.writer, "/never/was", &err) == 0,
	      "%s: a path that is not there can be removed", kind->name);
	check(extfs_writer_trim(s.writer, &err) == 0, "%s: it can be trimmed", kind->name);
	put_both(&s, m, file_item("/after-trim", 100000, 77));
	finish(&s, "over.qcow2", kind->name);
	compare("over.qcow2", m, kind->name);
}

/* A tree that mke2fs puts into a base, and what the model must know of it. */
static void make_tree(struct model *m)
{
	const char *const dirs[] = {"tree", "tree/big", "tree/deep", "tree/deep/er"};

	fixture_remove("tree");
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		if (mkdir(dirs[i], 0755) < 0)
			fixture_fail(dirs[i], NULL);
		if (i)
			remember(m, &(struct item){.path = dirs[i] + 4, .mode = S_IFDIR | 0755});
	}
	for (unsigned i = 0; i < 2000; i++) {
		CLEANUP_FREE char *path = str_format("tree/big/package-%u:amd64.list", i * 7919);
		struct item item = {.path = path + 4,
		                    .mode = S_IFREG | 0644,
		                    .mtime_s = 1600000000,
		                    .size = i % 50 ? 0 : 3000,
		                    .seed = i};
		const struct timespec times[2] = {{.tv_sec = item.mtime_s},
		                                  {.tv_sec = item.mtime_s}};
		CLEANUP_CLOSE int fd = fixture_open(path, O_RDWR | O_CREAT | O_TRUNC);

		fill_item(fd, &item);
		if (futimens(fd, times) < 0)
			fixture_fail(path, NULL);
		remember(m, &item);
	}
}

/* As /var/lib/dpkg/info is: indexed by the kernel, here by e2fsck. */
static void test_index(const struct kind *kind)
{
	CLEANUP_SESSION struct session s = {0};
	CLEANUP_MODEL struct model *m = mem_alloc(sizeof(*m));
	CLEANUP_FREE char *name = str_format("%s, indexed", kind->name);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const char *const argv[] = {"e2fsck", "-fyD", "base.img", NULL};
	const struct proc_options options = {.timeout_ms = 60000};
	int code;

	make_tree(m);
	make_base(kind, "tree", "over.qcow2");
	if (proc_run_status(argv, &options, NULL, 0, &code, &err) < 0 || code > 1)
		fixture_fail("index a directory", err.message);
	begin(&s, "over.qcow2");
	for (unsigned i = 0; i < 1500; i++) {
		CLEANUP_FREE char *path = path_of("/big/new-%u.md5sums", i * 104729);

		put_both(&s, m, file_item(path, i % 40 ? 0 : 2000, i));
	}
	for (unsigned i = 0; i < 2000; i++) {
		CLEANUP_FREE char *path = path_of("/big/package-%u:amd64.list", i * 7919);

		if (i % 3 == 0)
			remove_both(&s, m, path);
		else if (i % 97 == 0)
			put_both(&s, m, file_item(path, 6000, i));
	}
	remove_both(&s, m, "/deep");
	finish(&s, "over.qcow2", name);
	compare("over.qcow2", m, name);
}

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

static void random_put(struct session *s, struct model *m, const char *path, uint64_t *state)
{
	struct item item = file_item(path, next_random(state) % 60000, next_random(state));

	item.mtime_s = 1500000000 + next_random(state) % 100000;
	item.xattrs = next_random(state) % 4 == 0 ? next_random(state) % 4 : 0;
	item.xattr_size = next_random(state) % 250;
	switch (next_random(state) % 6) {
	case 0:
		item = (struct item){.path = path,
		                     .mode = S_IFDIR | 0750,
		                     .xattrs = item.xattrs,
		                     .xattr_size = item.xattr_size};
		break;
	case 1:
		item = link_item(
			path,
			next_random(state) % 2
				? "short"
				: "a/link/that/does/not/fit/into/an/inode/since/it/is/far/too/long");
		break;
	case 2:
		item.hole = item.size / 2;
		break;
	default:
		break;
	}
	put_both(s, m, item);
}

/* The same operations in every run. */
static void random_steps(struct session *s, struct model *m, int steps, uint64_t seed)
{
	uint64_t state = seed;

	for (int i = 0; i < steps; i++) {
		uint32_t top = next_random(&state) % 12, name = next_random(&state) % 40;
		CLEANUP_FREE char *dir = str_format("/d%u", top);
		CLEANUP_FREE char *path = str_format("/d%u/n%u", top, name);
		const struct item *old = find_item(m, dir);

		if (next_random(&state) % 60 == 0)
			remove_both(s, m, dir);
		else if (!old || !S_ISDIR(old->mode))
			put_both(s, m, dir_item(dir));
		else if (next_random(&state) % 4 == 0)
			remove_both(s, m, path);
		else
			random_put(s, m, path, &state);
	}
}

static void test_random(const struct kind *kind)
{
	CLEANUP_MODEL struct model *m = mem_alloc(sizeof(*m));
	CLEANUP_FREE char *name = str_format("%s, random steps", kind->name);

	make_base(kind, NULL, "over.qcow2");
	for (uint64_t round = 1; round <= 2; round++) {
		CLEANUP_SESSION struct session s = {0};

		begin(&s, "over.qcow2");
		random_steps(&s, m, 700, round);
		finish(&s, "over.qcow2", name);
		compare("over.qcow2", m, name);
	}
}

static void test_same_bytes(void)
{
	for (int i = 0; i < 2; i++) {
		CLEANUP_MODEL struct model *m = mem_alloc(sizeof(*m));
		CLEANUP_SESSION struct session s = {0};
		const char *overlay = i ? "second.qcow2" : "first.qcow2";

		if (i == 0)
			make_base(&kinds[0], NULL, overlay);
		else
			make_overlay("base.img", overlay);
		begin(&s, overlay);
		random_steps(&s, m, 300, 42);
		finish(&s, overlay, overlay);
		run("qemu-img", "convert", "-q", "-O", "raw", overlay, i ? "b.img" : "a.img");
		if (i == 0)
			sleep(1); /* a time of now would show */
	}
	run("cmp", "a.img", "b.img");
	check(true, "the same changes give the same bytes");
}

/* How many ranges of blocks debugfs counts in a file. */
static size_t count_extents(const char *image, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *text = NULL, *request = str_format("dump_extents -l %s", path);
	const char *const argv[] = {"debugfs", "-R", request, image, NULL};
	const struct proc_options options = {.timeout_ms = 60000};
	size_t lines = 0;

	if (proc_run(argv, &options, &text, MIB, &err) < 0)
		fixture_fail("run debugfs", err.message);
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	return lines - 1; /* a headline */
}

static void test_large(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SESSION struct session s = {0};
	CLEANUP_MODEL struct model *m = mem_alloc(sizeof(*m));
	uint64_t left_mib;
	struct stat st;

	make_base(&kinds[0], NULL, "over.qcow2");
	begin(&s, "over.qcow2");
	put_both(&s, m, dir_item("/boot"));
	put_both(&s, m, file_item("/boot/large", 100 * MIB, 1));
	put_both(&s, m,
	         (struct item){.path = "/boot/far",
	                       .mode = S_IFREG | 0600,
	                       .size = 3000 * MIB,
	                       .hole = 3000 * MIB});
	finish(&s, "over.qcow2", "a file of 100 MB");
	check(count_extents("check.img", "/boot/large") <= 4, "it lies in a few pieces");
	item_free(find_item(m, "/boot/far"));
	session_free(&s);
	begin(&s, "over.qcow2");
	remove_both(&s, m, "/boot/large");
	put_both(&s, m, file_item("/boot/small", 1000, 2));
	check(extfs_writer_trim(s.writer, &err) == 0, "what it took is trimmed");
	finish(&s, "over.qcow2", "after it was removed");
	run("qemu-img", "convert", "-q", "-O", "qcow2", "over.qcow2", "packed.qcow2");
	stat("packed.qcow2", &st);
	left_mib = (uint64_t)st.st_size / MIB;
	check(left_mib < 20, "and does not come out again (%llu MiB are left)",
	      (unsigned long long)left_mib);
}

static void test_full(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SESSION struct session s = {0};
	struct item large = file_item("/large", 40 * MIB, 1);
	struct item small = file_item("/small", 10, 1);
	static const struct kind tiny = {"tiny", {"-t", "ext4", "-N", "16"}, 16};
	int result = 0;

	make_base(&tiny, NULL, "over.qcow2");
	begin(&s, "over.qcow2");
	check(put_item(&s, &large, &err) < 0 && error_exit_code(&err) == EXIT_INPUT &&
	              contains(err.message, "/large") &&
	              contains(err.message, "the file system is full") && contains(err.hint, "'/'"),
	      "a full file system is an error that says so");
	session_free(&s);
	error_free(&err);
	make_base(&tiny, NULL, "over.qcow2");
	begin(&s, "over.qcow2");
	for (unsigned i = 0; i < 100 && result == 0; i++) {
		CLEANUP_FREE char *path = path_of("/%u", i);

		small.path = path;
		result = put_item(&s, &small, &err);
	}
	check(result < 0 && contains(err.message, "no free inode"), "so are too few inodes");
}

static void check_unwritable(const char *feature, const char *part, const char *extra)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *reason = NULL;
	CLEANUP_SESSION struct session s = {0};
	struct kind kind = {"", {"-t", "ext4", "-O", feature, extra, extra ? "8192" : NULL}, 32};
	int result;

	make_base(&kind, NULL, "over.qcow2");
	result = try_begin(&s, "over.qcow2", &reason, &err);
	check(result == 1 && reason && contains(reason, part),
	      "a file system with %s is not written: '%s'", feature, reason ? reason : err.message);
}

static void test_unwritable(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *reason = NULL;
	CLEANUP_SESSION struct session s = {0};
	const uint8_t state[2] = {0, 0}, bits[4] = {0, 0, 0, 0x40};

	check_unwritable("inline_data", "inline_data", NULL);
	check_unwritable("quota", "quota", NULL);
	check_unwritable("bigalloc", "bigalloc", NULL);
	check_unwritable("ea_inode", "ea_inode", NULL);
	check_unwritable("casefold", "casefold", NULL);
	check_unwritable("encrypt", "encrypt", NULL);
	make_base(&kinds[10], NULL, "over.qcow2");
	put("base.img", 1024 + 58, state, sizeof(state));
	check(try_begin(&s, "over.qcow2", &reason, &err) == 1 && contains(reason, "cleanly"),
	      "nor one that was not unmounted");
	session_free(&s);
	free(STEAL(reason));
	make_base(&kinds[10], NULL, "over.qcow2");
	put("base.img", 1024 + 100, bits, sizeof(bits));
	check(try_begin(&s, "over.qcow2", &reason, &err) == 1 && contains(reason, "0x40000000"),
	      "nor one with a feature that nobody knows");
}

/* Two directories that hold each other, and a block that is in use by nobody. */
static void test_damaged(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SESSION struct session s = {0};
	CLEANUP_MODEL struct model *m = mem_alloc(sizeof(*m));

	make_base(&kinds[0], NULL, "over.qcow2");
	begin(&s, "over.qcow2");
	put_both(&s, m, dir_item("/loop"));
	put_both(&s, m, file_item("/file", 100000, 1));
	finish(&s, "over.qcow2", "before it is damaged");
	session_free(&s);
	run("cp", "check.img", "base.img");
	make_overlay("base.img", "over.qcow2");
	run_with("cd /loop\nlink /loop again\nlink /loop more\nfreeb 33000 1\n", "debugfs", "-wf",
	         "/dev/stdin", "base.img");
	begin(&s, "over.qcow2");
	check(extfs_writer_remove(s.writer, "/loop", &err) < 0 && contains(err.message, "deleted"),
	      "a directory that holds itself is an error and no loop");
	error_free(&err);
	check(extfs_writer_remove(s.writer, "/", &err) < 0 && contains(err.message, "mounted"),
	      "the root cannot be removed");
	error_free(&err);
	check(extfs_writer_remove(s.writer, "/../etc", &err) < 0 && contains(err.message, "plain"),
	      "a path with '..' is refused");
}

static void mount_failed(const char *why)
{
	printf("ok %d - the kernel reads and writes it # SKIP cannot mount: %s\n", ++tap_count,
	       why);
}

static bool kernel_agrees(struct model *m)
{
	CLEANUP_FREE char *data = mem_alloc(100000), *want = mem_alloc(100000);
	char value[300];
	struct stat st;
	bool good = stat("mnt/dir/file", &st) == 0 && st.st_size == 100000 &&
	            st.st_mode == (S_IFREG | 04711) && st.st_uid == 70000 && st.st_gid == 80000 &&
	            st.st_mtim.tv_sec == 1700000001 && st.st_mtim.tv_nsec == 123456789 &&
	            st.st_nlink == 2;

	fill((uint8_t *)want, 100000, 8);
	get("mnt/dir/file", 0, data, 100000);
	return good && memcmp(data, want, 100000) == 0 && find_item(m, "/dir/file") &&
	       getxattr("mnt/dir/file", "user.number-1", value, sizeof(value)) == 250 &&
	       readlink("mnt/dir/link", value, sizeof(value)) == 200 && stat("mnt/dir", &st) == 0 &&
	       st.st_nlink == 3;
}

/* Through the kernel's eyes, if we may look. */
static void test_kernel(void)
{
	CLEANUP_SESSION struct session s = {0};
	CLEANUP_MODEL struct model *m = mem_alloc(sizeof(*m));
	CLEANUP_FREE char *target = mem_alloc(201);
	const char *const argv[] = {"mount", "-o", "loop", "check.img", "mnt", NULL};
	const struct proc_options options = {.timeout_ms = 60000};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	memset(target, 'y', 200);
	make_base(&kinds[0], NULL, "over.qcow2");
	begin(&s, "over.qcow2");
	put_both(&s, m, dir_item("/dir"));
	put_both(&s, m, dir_item("/dir/below"));
	put_both(&s, m,
	         (struct item){.path = "/dir/file",
	                       .mode = S_IFREG | 04711,
	                       .uid = 70000,
	                       .gid = 80000,
	                       .mtime_s = 1700000001,
	                       .size = 100000,
	                       .seed = 8,
	                       .xattrs = 2,
	                       .xattr_size = 250});
	put_both(&s, m,
	         (struct item){.path = "/dir/name",
	                       .mode = S_IFREG | 04711,
	                       .size = 100000,
	                       .same_as = "/dir/file"});
	put_both(&s, m, link_item("/dir/link", target));
	put_crowd(&s, m, 200);
	finish(&s, "over.qcow2", "for the kernel");
	if (mkdir("mnt", 0755) < 0)
		fixture_fail("make a directory", NULL);
	if (geteuid() != 0 || proc_run(argv, &options, NULL, 0, &err) < 0) {
		mount_failed(err.message ? err.message : "not root");
		return;
	}
	check(kernel_agrees(m), "the kernel sees what was written");
	run("cp", "-r", "mnt/crowd", "mnt/copy");
	run("rm", "-r", "mnt/crowd", "mnt/dir");
	run("umount", "mnt");
	run("e2fsck", "-fn", "check.img");
	check(true, "and can change it, and e2fsck still finds nothing");
}

/* Extended attributes that fill a block, which the kernel lets inodes share. */
static void test_shared_attributes(void)
{
	CLEANUP_SESSION struct session s = {0};
	CLEANUP_MODEL struct model *m = mem_alloc(sizeof(*m));
	const char *const argv[] = {"mount", "-o", "loop", "base.img", "mnt", NULL};
	const struct proc_options options = {.timeout_ms = 60000};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char value[800] = "the same for all";

	make_base(&kinds[0], NULL, "over.qcow2");
	if (geteuid() != 0 || proc_run(argv, &options, NULL, 0, &err) < 0) {
		mount_failed(err.message ? err.message : "not root");
		return;
	}
	for (unsigned i = 0; i < 4; i++) {
		CLEANUP_FREE char *path = path_of("mnt/shared-%u", i);

		make_file(path, 0);
		if (setxattr(path, "user.large", value, sizeof(value), 0) < 0)
			fixture_fail("set an attribute", NULL);
	}
	run("umount", "mnt");
	begin(&s, "over.qcow2");
	put_both(&s, m, file_item("/shared-0", 5, 1));
	put_both(&s, m,
	         (struct item){.path = "/shared-1",
	                       .mode = S_IFREG | 0644,
	                       .xattrs = 1,
	                       .xattr_size = 500});
	remove_both(&s, m, "/shared-2");
	remove_both(&s, m, "/shared-3");
	finish(&s, "over.qcow2", "shared attributes");
	compare("over.qcow2", m, "shared attributes");
}

/* ACLs have another form on the disk; the others are bytes for us. */
static void test_special_attributes(void)
{
	/* Owner rw, user 1000 r, group r, mask r, others none. */
	static uint8_t acl[] = {2,    0,    0,    0,    1,    0,    6,  0,    0xff, 0xff, 0xff,
	                        0xff, 2,    0,    4,    0,    0xe8, 3,  0,    0,    4,    0,
	                        4,    0,    0xff, 0xff, 0xff, 0xff, 16, 0,    4,    0,    0xff,
	                        0xff, 0xff, 0xff, 0x20, 0,    0,    0,  0xff, 0xff, 0xff, 0xff};
	static uint8_t capability[20] = {1, 0, 0, 2, 0, 0x20};
	static char label[] = "system_u:object_r:ping_exec_t:s0";
	static char names[3][32] = {"system.posix_acl_access", "security.capability",
	                            "security.selinux"};
	const struct rootfs_xattr want[] = {{names[0], acl, sizeof(acl)},
	                                    {names[1], capability, sizeof(capability)},
	                                    {names[2], label, sizeof(label)}};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SESSION struct session s = {0};
	CLEANUP_DISK struct disk *disk = NULL;
	CLEANUP_ROOTFS struct rootfs *r = NULL;
	struct rootfs_xattr *got = NULL;
	struct tree_node node = {.path = "/fifo",
	                         .mode = S_IFIFO | 0640,
	                         .fd = -1,
	                         .xattrs = want,
	                         .xattr_count = 3};
	size_t count = 0, same = 0;

	make_base(&kinds[0], NULL, "over.qcow2");
	begin(&s, "over.qcow2");
	if (extfs_writer_sink(s.writer)->put(extfs_writer_sink(s.writer), &node, &err) < 0)
		fixture_fail("write special attributes", err.message);
	finish(&s, "over.qcow2", "special attributes");
	if (disk_open(&disk, "over.qcow2", "qcow2", true, &err) < 0 || disk_probe(disk, &err) < 0 ||
	    extfs_open(&r, disk, disk_volume(disk, 0), &err) < 0 ||
	    r->ops->xattrs(r, "/fifo", &got, &count, &err) < 0)
		fixture_fail("read special attributes", err.message);
	for (size_t i = 0; i < count; i++)
		for (size_t j = 0; j < 3; j++)
			same += strcmp(got[i].name, want[j].name) == 0 &&
			        got[i].size == want[j].size &&
			        memcmp(got[i].value, want[j].value, got[i].size) == 0;
	rootfs_xattrs_free(got, count);
	check(count == 3 && same == 3, "an ACL, a capability and a label come out as they went in");
}

/* More than fits beside the inode and in one block. */
static void test_large_attributes(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SESSION struct session s = {0};
	struct item item = file_item("/file", 10, 1);

	item.xattrs = 9;
	item.xattr_size = 900;
	make_base(&kinds[0], NULL, "over.qcow2");
	begin(&s, "over.qcow2");
	check(put_item(&s, &item, &err) < 0 && contains(err.message, "attributes of '/file'"),
	      "attributes that do not fit are an error");
}

static const struct volume *ext_volume(struct disk *disk, const char *label)
{
	const struct volume *v = disk_find_volume(disk, label);

	if (!v)
		fixture_fail("find a partition", label);
	return v;
}

/* Two partitions, one of them at an odd place: / and /boot. */
static void make_two(void)
{
	make_file("base.img", 64 * MIB);
	run_with("label: dos\nstart=63, size=60000\nstart=65536, size=60000\n", "sfdisk", "-q",
	         "base.img");
	make_file("part.img", (uint64_t)60000 * 512);
	run("mke2fs", "-q", "-F", "-L", "root", "-t", "ext4", "-b", "4096", "part.img");
	run_with("mkdir boot\n", "debugfs", "-wf", "/dev/stdin", "part.img");
	put_file("base.img", (uint64_t)63 * 512, "part.img");
	make_file("part.img", (uint64_t)60000 * 512);
	run("mke2fs", "-q", "-F", "-L", "boot", "-t", "ext2", "part.img");
	put_file("base.img", (uint64_t)65536 * 512, "part.img");
	make_overlay("base.img", "over.qcow2");
}

static void mount_two(struct session *s)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char *reason = NULL;

	*s = (struct session){0};
	if (disk_open_writable(&s->disk, "over.qcow2", &err) < 0 || disk_probe(s->disk, &err) < 0 ||
	    extfs_writer_new(&s->writer, s->disk, &err) < 0)
		fixture_fail("open an overlay", err.message);
	check(extfs_writer_mount(s->writer, "/boot", ext_volume(s->disk, "LABEL=boot"), &reason,
	                         &err) < 0,
	      "the root has to be mounted first");
	error_free(&err);
	check(extfs_writer_mount(s->writer, "/", ext_volume(s->disk, "LABEL=root"), &reason,
	                         &err) == 0 &&
	              extfs_writer_mount(s->writer, "/boot", ext_volume(s->disk, "LABEL=boot"),
	                                 &reason, &err) == 0,
	      "two file systems are mounted");
}

static void fsck_part(uint64_t sector)
{
	CLEANUP_FREE char *name =
		str_format("check.img?offset=%llu", (unsigned long long)sector * 512);

	run("e2fsck", "-fn", name);
}

static void test_mounts(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SESSION struct session s = {0};
	CLEANUP_MODEL struct model *m = mem_alloc(sizeof(*m));
	CLEANUP_ROOTFS struct rootfs *r = NULL;
	CLEANUP_DISK struct disk *disk = NULL;
	size_t differences = 0;

	make_two();
	mount_two(&s);
	put_both(&s, m, (struct item){.path = "/boot", .mode = S_IFDIR | 0700});
	put_both(&s, m, dir_item("/boot/grub"));
	put_both(&s, m, file_item("/boot/grub/grub.cfg", 3000, 1));
	put_both(&s, m, file_item("/bootx", 7000, 2));
	/* A program in the sandbox does not see the border, and may link across it. */
	put_both(&s, m,
	         (struct item){.path = "/linked",
	                       .mode = S_IFREG | 0644,
	                       .size = 3000,
	                       .seed = 1,
	                       .same_as = "/boot/grub/grub.cfg"});
	check(extfs_writer_remove(s.writer, "/boot", &err) < 0 && contains(err.message, "mounted"),
	      "a mount point is not removed");
	check(extfs_writer_trim(s.writer, &err) < 0 || extfs_writer_finish(s.writer, &err) == 0,
	      "both are finished");
	check(disk_finish(s.disk, &err) == 0, "and the disk");
	run("qemu-img", "convert", "-q", "-O", "raw", "over.qcow2", "check.img");
	fsck_part(63);
	fsck_part(65536);
	if (disk_open(&disk, "over.qcow2", "qcow2", true, &err) < 0 || disk_probe(disk, &err) < 0 ||
	    extfs_open(&r, disk, ext_volume(disk, "LABEL=root"), &err) < 0 ||
	    extfs_mount(r, "/boot", ext_volume(disk, "LABEL=boot"), &err) < 0)
		fixture_fail("open the result", err.message);
	free((void *)find_item(m, "/linked")->same_as);
	find_item(m, "/linked")->same_as = NULL;
	for (size_t i = 0; i < m->count; i++)
		differences += compare_item(r, m, &m->items[i]);
	check(differences == 0, "both hold what was put into them");
}

int main(void)
{
	const char *const programs[] = {"mke2fs",   "e2fsck", "debugfs", "qemu-img",
	                                "qemu-nbd", "sfdisk", "cmp",     NULL};

	fixture_begin(programs);
	for (size_t i = 0; i < KIND_COUNT; i++)
		test_kind(&kinds[i]);
	test_index(&kinds[0]);
	test_index(&kinds[1]);
	test_index(&kinds[9]);
	test_random(&kinds[0]);
	test_random(&kinds[2]);
	test_random(&kinds[9]);
	test_same_bytes();
	test_large();
	test_full();
	test_unwritable();
	test_damaged();
	test_kernel();
	test_shared_attributes();
	test_special_attributes();
	test_large_attributes();
	test_mounts();
	return tap_done();
}
