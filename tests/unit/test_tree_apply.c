/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of one tree, packed and unpacked over another one of the same base: both are the same
 * then. Needs root, for owners; where it is missing, all is skipped.
 */
#include <archive.h>
#include <archive_entry.h>

#include "builder/changes-digest.h"
#include "tree-fixture.h"

#define BASE     TREE_UID_BASE
#define MUCH     ((uint64_t)1 << 30)
#define OLD_TIME 1000000000

/* cap_net_raw+ep of the shifted root */
static const unsigned char caps_3[24] = {1, 0, 0, 3, 0, 0x20, [23] = 0x70};

struct fixture {
	char *dir, *source, *one, *two, *tar;
	struct rootfs *from, *filler;
};

static void make_source(const char *s)
{
	static const char *const dirs[] = {"/etc",     "/etc/old",  "/bin",   "/usr",
	                                   "/usr/lib", "/usr/gone", "/proc",  "/tmp",
	                                   "/opt",     "/opt/full", "/labels"};

	must(mkdir(s, 0755) == 0 && chown(s, BASE, BASE) == 0, s);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		put_dir(s, dirs[i], 0, 0755);
	put_file(s, "/etc/kept", "kept", 0, 0644);
	put_file(s, "/etc/untouched", "untouched", 0, 0644);
	put_file(s, "/etc/old/in", "in", 0, 0644);
	put_file(s, "/etc/to-dir", "a file", 0, 0644);
	put_file(s, "/etc/removed", "removed", 0, 0644);
	put_file(s, "/usr/gone/a", "a", 0, 0644);
	put_file(s, "/opt/full/a", "a", 0, 0644);
	put_file(s, "/bin/vi", "vi", 0, 0755);
	put_link(s, "/bin/vi", "/bin/vim");
	put_file(s, "/bin/pair", "pair", 0, 0755);
	put_link(s, "/bin/pair", "/bin/pair2");
	put_symlink(s, "/bin/sh", "dash");
	put_symlink(s, "/lib", "usr/lib");
	put_xattr(s, "/labels", "user.gone", "x", 1);
	put_xattr(s, "/labels", "user.kept", "y", 1);
}

static void put_holes(const char *root, const char *path)
{
	CLEANUP_FREE char *full = in(root, path);
	CLEANUP_CLOSE int fd = -1;

	put_file(root, path, "", 0, 0644);
	fd = open(full, O_WRONLY | O_CLOEXEC);
	must(fd >= 0 && pwrite(fd, "data", 4, 5 << 20) == 4 && ftruncate(fd, 30 << 20) == 0, full);
}

/* What packages do: new files of all kinds, others replaced, removed, of another type. */
static void install(const char *t)
{
	CLEANUP_FREE char *fifo = in(t, "/usr/lib/fifo");
	CLEANUP_FREE char *labels = in(t, "/labels");

	put_dir(t, "/usr/lib/new", 33, 02750);
	put_file(t, "/usr/lib/new/user", "user", 1000, 0640);
	put_file(t, "/usr/lib/new/su", "su", 0, 04755);
	put_file(t, "/usr/lib/new/ping", "ping", 0, 0755);
	put_xattr(t, "/usr/lib/new/ping", "security.capability", caps_3, sizeof(caps_3));
	put_xattr(t, "/usr/lib/new/user", "user.note", "note", 4);
	put_link(t, "/usr/lib/new/su", "/bin/su");
	put_holes(t, "/usr/lib/new/holes");
	put_file(t, "/usr/lib/odd \n'\"\xc3\xbc \xff", "odd", 0, 0644);
	put_symlink(t, "/usr/lib/new/link", "/etc/shadow");
	must(mkfifo(fifo, 0600) == 0 && chown(fifo, BASE, BASE) == 0, fifo);
	put_file(t, "/etc/kept", "in place", 0, 0600);
	drop_path(t, "/etc/removed");
	drop_path(t, "/usr/gone/a");
	drop_path(t, "/usr/gone");
	drop_path(t, "/etc/old/in");
	drop_path(t, "/etc/old");
	put_file(t, "/etc/old", "now a file", 0, 0644);
	drop_path(t, "/etc/to-dir");
	put_dir(t, "/etc/to-dir", 0, 0755);
	put_file(t, "/etc/to-dir/in", "in", 0, 0644);
	drop_path(t, "/bin/sh");
	put_symlink(t, "/bin/sh", "bash");
	/* one name of two gets another file, then both names of one file get another text */
	drop_path(t, "/bin/vim");
	put_file(t, "/bin/vim", "another", 0, 0755);
	put_file(t, "/bin/pair", "changed", 0, 0755);
	must(lremovexattr(labels, "user.gone") == 0 && chmod(labels, 0711) == 0, labels);
	put_time(t, "/usr/lib/new/user", OLD_TIME);
	put_time(t, "/usr/lib/new", OLD_TIME);
}

static void extract(struct tree **ret, const struct fixture *f, const char *dir, bool lazy)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int result = lazy ? tree_extract_lazy(ret, f->from, f->filler, dir, NULL, &err)
	                  : tree_extract(ret, f->from, dir, NULL, &err);

	must(result == 0, err.message ? err.message : dir);
}

static void pack(const struct fixture *f, const struct tree *tree, struct strv *removed)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_CLOSE int fd = open(f->tar, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && tree_changes(tree, &changed, removed, &err) == 0 &&
	             tree_write_tar(tree, &changed, fd, &err) == 0,
	     err.message ? err.message : f->tar);
}

static int apply(struct tree *tree, const struct fixture *f, uint64_t max_bytes, struct error *err)
{
	CLEANUP_CLOSE int fd = open(f->tar, O_RDONLY | O_CLOEXEC);

	must(fd >= 0, f->tar);
	return tree_apply_tar(tree, fd, max_bytes, err);
}

static char *digest_of(const struct tree *tree)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv changed = {0}, removed = {0};
	char *digest = NULL;

	must(tree_changes(tree, &changed, &removed, &err) == 0 &&
	             changes_digest(&digest, tree, &changed, &removed, &err) == 0,
	     err.message ? err.message : "digest");
	return digest;
}

static void remove_all(const char *dir, const struct strv *removed)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ROOTFS struct rootfs *root = NULL;

	must(tree_rootfs(&root, dir, NULL, &err) == 0, dir);
	for (size_t i = 0; i < removed->count; i++)
		must(rootfs_remove(root, removed->items[i], &err) == 0, removed->items[i]);
}

static void check_files(const char *t)
{
	struct stat su = stat_of(t, "/bin/su"), new_dir = stat_of(t, "/usr/lib/new");
	struct stat user = stat_of(t, "/usr/lib/new/user"),
		    holes = stat_of(t, "/usr/lib/new/holes");
	CLEANUP_FREE char *ping = in(t, "/usr/lib/new/ping");
	CLEANUP_FREE char *labels = in(t, "/labels");
	unsigned char value[64];

	check(user.st_uid == BASE + 1000 && (user.st_mode & 07777) == 0640 &&
	              user.st_mtim.tv_sec == OLD_TIME && user.st_mtim.tv_nsec == 5,
	      "a new file has its owner, mode and time");
	check(new_dir.st_uid == BASE + 33 && (new_dir.st_mode & 07777) == 02750 &&
	              new_dir.st_mtim.tv_sec == OLD_TIME,
	      "a new directory too, though files were made in it later");
	check((su.st_mode & 07777) == 04755 && su.st_ino == stat_of(t, "/usr/lib/new/su").st_ino,
	      "hard links are kept, with the setuid bit");
	check(lgetxattr(ping, "security.capability", value, 64) == sizeof(caps_3) &&
	              memcmp(value, caps_3, sizeof(caps_3)) == 0,
	      "file capabilities are those of the shifted root");
	check(holes.st_size == 30 << 20 && holes.st_blocks < 512, "holes are kept");
	check(lgetxattr(labels, "user.gone", value, 64) < 0 &&
	              lgetxattr(labels, "user.kept", value, 64) == 1,
	      "a directory that stays has the attributes of the other one, and no others");
	check(text_is(t, "/bin/vi", "vi") && text_is(t, "/bin/vim", "another"),
	      "the other name of a file that was replaced is what it was");
	check(text_is(t, "/bin/pair2", "changed") &&
	              stat_of(t, "/bin/pair").st_ino == stat_of(t, "/bin/pair2").st_ino,
	      "two names of one changed file are one file");
}

static void test_same(struct fixture *f, bool lazy)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TREE struct tree *one = NULL;
	CLEANUP_TREE struct tree *two = NULL;
	CLEANUP_STRV struct strv removed = {0};
	CLEANUP_FREE char *want = NULL;
	CLEANUP_FREE char *got = NULL;
	CLEANUP_FREE char *again = NULL;

	extract(&one, f, f->one, false);
	extract(&two, f, f->two, lazy);
	install(f->one);
	pack(f, one, &removed);
	want = digest_of(one);
	remove_all(f->two, &removed);
	if (!check(apply(two, f, MUCH, &err) == 0, "changes are unpacked over a tree%s",
	           lazy ? " of placeholders" : ""))
		printf("# %s\n", err.message);
	check_files(f->two);
	got = digest_of(two);
	check_str(got, want, "the tree has the same changes then, byte for byte");
	if (lazy) {
		check(stat_of(f->two, "/etc/untouched").st_blocks == 0,
		      "a placeholder that was not touched is one still");
		check(text_is(f->two, "/etc/untouched", "untouched"),
		      "and is filled when it is opened");
	}
	check(text_is(f->two, "/etc/kept", "in place"), "one that was replaced has its new text");
	check(apply(two, f, MUCH, &err) == 0, "they can be unpacked again");
	again = digest_of(two);
	check_str(again, want, "which changes nothing more");
	check(apply(two, f, 20 << 20, &err) == -1 && err.code == EXIT_INPUT,
	      "more bytes than allowed are refused, holes too");
}

static void add_member(struct archive *a, const char *path, mode_t type, const char *link,
                       const char *hard_link)
{
	struct archive_entry *e = archive_entry_new();

	archive_entry_copy_pathname(e, path);
	archive_entry_set_filetype(e, type);
	archive_entry_set_perm(e, 0644);
	archive_entry_set_size(e, type == S_IFREG && !hard_link ? 1 : 0);
	if (link)
		archive_entry_copy_symlink(e, link);
	if (hard_link)
		archive_entry_copy_hardlink(e, hard_link);
	must(archive_write_header(a, e) >= ARCHIVE_WARN, archive_error_string(a));
	if (type == S_IFREG && !hard_link)
		must(archive_write_data(a, "x", 1) == 1, path);
	archive_entry_free(e);
}

static const struct {
	const char *what, *path;
	mode_t type;
	const char *link, *hard_link, *why;
} hostile[] = {
	{"a member with '..'", "../outside/stolen", S_IFREG, NULL, NULL, "leads outside"},
	{"an absolute member", "/stolen", S_IFREG, NULL, NULL, "leads outside"},
	{"a member behind a link of the tree", "out/stolen", S_IFREG, NULL, NULL, "behind a link"},
	{"a hard link through a link of the tree", "x", S_IFREG, NULL, "out/kept", "does not hold"},
	{"a hard link to the outside", "x", S_IFREG, NULL, "../outside/kept", "leads outside"},
	{"a directory with files that becomes a link", "opt/full", S_IFLNK, "/etc", NULL,
         "as a directory first"},
};

static void test_hostile(struct fixture *f)
{
	CLEANUP_TREE struct tree *tree = NULL;
	CLEANUP_FREE char *outside = in(f->dir, "/outside");

	extract(&tree, f, f->one, false);
	must(mkdir(outside, 0755) == 0, outside);
	put_file(outside, "/kept", "kept", 0, 0644);
	put_symlink(f->one, "/out", outside);
	for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
		CLEANUP_ERROR struct error err = ERROR_INIT;
		struct archive *a = archive_write_new();

		must(archive_write_set_format_pax(a) == ARCHIVE_OK &&
		             archive_write_open_filename(a, f->tar) == ARCHIVE_OK,
		     f->tar);
		add_member(a, hostile[i].path, hostile[i].type, hostile[i].link,
		           hostile[i].hard_link);
		must(archive_write_close(a) == ARCHIVE_OK, f->tar);
		archive_write_free(a);
		if (!check(apply(tree, f, MUCH, &err) == -1 && err.code == EXIT_INPUT &&
		                   strstr(err.message, hostile[i].why),
		           "%s is refused", hostile[i].what))
			printf("# %s\n", err.message ? err.message : "no error");
	}
	check(!is_there(outside, "/stolen") && stat_of(outside, "/kept").st_nlink == 1,
	      "nothing was written outside");
}

static void test_torn(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TREE struct tree *tree = NULL;
	CLEANUP_STRV struct strv removed = {0};
	struct stat st;

	extract(&tree, f, f->one, false);
	put_file(f->one, "/etc/big", "", 0, 0644);
	put_holes(f->one, "/etc/holes");
	pack(f, tree, &removed);
	must(stat(f->tar, &st) == 0 && truncate(f->tar, st.st_size / 2) == 0, f->tar);
	check(apply(tree, f, MUCH, &err) == -1 && err.message,
	      "a tar that was cut off is an error");
}

static void each(struct fixture *f, void (*test)(struct fixture *f))
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	test(f);
	must(tree_remove(f->one, &err) == 0 && tree_remove(f->two, &err) == 0, f->dir);
}

static void test_full(struct fixture *f)
{
	test_same(f, false);
}

static void test_lazy(struct fixture *f)
{
	if (tree_can_be_lazy())
		test_same(f, true);
	else
		check(true, "placeholders # SKIP this host lets nobody watch who opens a file");
}

int main(void)
{
	char dir[] = "/var/tmp/gpuimg-apply-XXXXXX";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct fixture f = {.dir = dir};

	if (geteuid() != 0) {
		printf("1..0 # SKIP owners of files need root\n");
		return 0;
	}
	must(mkdtemp(dir) != NULL, dir);
	f.source = in(dir, "/source");
	f.one = in(dir, "/one");
	f.two = in(dir, "/two");
	f.tar = in(dir, "/tar");
	make_source(f.source);
	must(tree_rootfs(&f.from, f.source, NULL, &err) == 0 &&
	             tree_rootfs(&f.filler, f.source, NULL, &err) == 0,
	     f.source);
	each(&f, test_full);
	each(&f, test_lazy);
	each(&f, test_hostile);
	each(&f, test_torn);
	rootfs_close(f.from);
	rootfs_close(f.filler);
	check(tree_remove(dir, &err) == 0, "all of it can be removed");
	free(f.source);
	free(f.one);
	free(f.two);
	free(f.tar);
	return tap_done();
}
