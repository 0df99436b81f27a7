/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trees out of tars: one that GNU tar made of a real directory, as libguestfs lets it, and
 * crafted ones. Needs root, for owners and device nodes; where it is missing, all is skipped.
 */
#include <archive.h>
#include <archive_entry.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "builder/proc.h"
#include "builder/tree.h"
#include "tap.h"

#define BASE TREE_UID_BASE
#define MUCH ((uint64_t)1 << 30)

/* cap_net_raw+ep */
static const unsigned char caps_2[20] = {1, 0, 0, 2, 0, 0x20};

struct fixture {
	char *dir, *source, *copy, *tar;
};

static void must(bool good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static char *in(const char *root, const char *path)
{
	return str_format("%s%s", root, path);
}

static void put_file(const char *root, const char *path, const char *text, uint32_t uid,
                     mode_t mode)
{
	CLEANUP_FREE char *full = in(root, path);
	CLEANUP_CLOSE int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), full);
	must(fchown(fd, uid, uid) == 0 && fchmod(fd, mode) == 0, full);
}

static void put_dir(const char *root, const char *path, mode_t mode)
{
	CLEANUP_FREE char *full = in(root, path);

	must(mkdir(full, 0700) == 0 && chmod(full, mode) == 0, full);
}

static void put_link(const char *root, const char *from, const char *to)
{
	CLEANUP_FREE char *full_from = in(root, from);
	CLEANUP_FREE char *full_to = in(root, to);

	must(link(full_from, full_to) == 0, full_to);
}

static void put_symlink(const char *root, const char *path, const char *target)
{
	CLEANUP_FREE char *full = in(root, path);

	must(symlink(target, full) == 0, full);
}

static void put_xattr(const char *root, const char *path, const char *name, const void *value,
                      size_t size)
{
	CLEANUP_FREE char *full = in(root, path);

	must(lsetxattr(full, name, value, size, 0) == 0, name);
}

static void put_node(const char *root, const char *path, mode_t mode)
{
	CLEANUP_FREE char *full = in(root, path);

	must(mknod(full, mode, (dev_t)0x103) == 0 && chmod(full, mode & 07777) == 0, full);
}

static struct stat stat_of(const char *root, const char *path)
{
	CLEANUP_FREE char *full = in(root, path);
	struct stat st = {0};

	if (lstat(full, &st) < 0)
		st.st_mode = 0;
	return st;
}

static bool text_is(const char *root, const char *path, const char *want)
{
	CLEANUP_FREE char *full = in(root, path);
	CLEANUP_CLOSE int fd = open(full, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char text[64] = "";

	return fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0 && str_equal(text, want);
}

/* Owners are the guest's own here, as the appliance's tar sees them. */
static void make_source(const char *s)
{
	static const char *const dirs[] = {"/etc", "/bin", "/tmp", "/proc", "/sub", "/sub/b"};
	CLEANUP_FREE char *sub = in(s, "/sub");
	CLEANUP_FREE char *holes = in(s, "/etc/sparse");
	CLEANUP_FREE char *old = in(s, "/etc/old");
	const struct timespec times[2] = {{.tv_sec = 1000000000, .tv_nsec = 7},
	                                  {.tv_sec = 1000000000, .tv_nsec = 7}};

	must(mkdir(s, 0755) == 0, s);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		put_dir(s, dirs[i], 0755);
	put_dir(s, "/new", 02750);
	put_file(s, "/etc/old", "old", 0, 0644);
	put_file(s, "/etc/user", "user", 1000, 0640);
	put_file(s, "/bin/su", "su", 0, 04755);
	put_file(s, "/bin/ping", "ping", 0, 0755);
	put_xattr(s, "/bin/ping", "security.capability", caps_2, sizeof(caps_2));
	put_file(s, "/bin/vi", "editor", 0, 0755);
	put_link(s, "/bin/vi", "/sub/vim");
	put_symlink(s, "/bin/sh", "/bin/dash");
	put_node(s, "/etc/fifo", S_IFIFO | 0620);
	put_node(s, "/etc/null", S_IFCHR | 0666);
	put_link(s, "/etc/null", "/etc/null2");
	put_node(s, "/sub/b/disk", S_IFBLK | 0660);
	put_file(s, "/tmp/left", "left", 0, 0644);
	put_file(s, "/etc/odd \n'\"\xc3\xbc \xff", "odd", 0, 0644);
	put_file(s, "/sub/a-b", "a-b", 0, 0644);
	put_xattr(s, "/etc/old", "trusted.note", "kept", 4);
	put_xattr(s, "/etc/old", "user.note", "mine", 4);
	put_xattr(s, "/sub", "security.selinux", "system_u:object_r:bin_t:s0", 27);
	put_file(s, "/etc/sparse", "", 0, 0600);
	must(truncate(holes, 20 << 20) == 0, holes);
	must(utimensat(AT_FDCWD, old, times, 0) == 0, old);
	must(utimensat(AT_FDCWD, sub, times, 0) == 0, sub);
}

static void pack(struct fixture *f, const char *const *env)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	const char *const argv[] = {"tar",  "-C", f->source, "--numeric-owner", "--xattrs", "-cf",
	                            f->tar, ".",  NULL};

	must(proc_run(argv, &(struct proc_options){.timeout_ms = 60000, .env = env}, NULL, 0,
	              &err) == 0,
	     err.message ? err.message : "tar");
}

static int unpack(struct tree **ret, struct fixture *f, uint64_t max_bytes, struct error *err)
{
	CLEANUP_CLOSE int fd = open(f->tar, O_RDONLY | O_CLOEXEC);

	must(fd >= 0, f->tar);
	return tree_extract_tar(ret, fd, max_bytes, f->copy, NULL, err);
}

static void check_attributes(struct fixture *f)
{
	struct stat st = stat_of(f->copy, "/etc/old");
	CLEANUP_FREE char *ping = in(f->copy, "/bin/ping");
	CLEANUP_FREE char *old = in(f->copy, "/etc/old");
	CLEANUP_FREE char *sub = in(f->copy, "/sub");
	unsigned char value[64];

	check(st.st_size == 3 && st.st_uid == BASE && st.st_mtim.tv_sec == 1000000000 &&
	              st.st_mtim.tv_nsec == 7 && (st.st_mode & 07777) == 0644,
	      "a file has its size, owner, time and mode");
	st = stat_of(f->copy, "/etc/user");
	check(st.st_uid == BASE + 1000 && st.st_gid == BASE + 1000, "owners are shifted");
	check((stat_of(f->copy, "/bin/su").st_mode & 07777) == 04755 &&
	              (stat_of(f->copy, "/new").st_mode & 07777) == 02750,
	      "setuid and setgid bits are kept");
	check(stat_of(f->copy, "/sub").st_mtim.tv_sec == 1000000000,
	      "a directory has its time, though files were made in it later");
	check(lgetxattr(ping, "security.capability", value, 64) == 24 && value[3] == 3 &&
	              value[23] == 0x70,
	      "file capabilities are those of the shifted root");
	check(lgetxattr(old, "trusted.note", value, 64) == 4 && memcmp(value, "kept", 4) == 0 &&
	              lgetxattr(old, "user.note", value, 64) == 4,
	      "extended attributes are kept");
	check(lgetxattr(sub, "security.selinux", value, 64) == 27 && value[26] == 0,
	      "SELinux labels are kept, with their NUL");
}

static void check_copy(struct fixture *f, const struct tree *tree)
{
	struct stat vi = stat_of(f->copy, "/bin/vi"), vim = stat_of(f->copy, "/sub/vim");
	struct stat holes = stat_of(f->copy, "/etc/sparse");

	check_attributes(f);
	check(vi.st_ino == vim.st_ino && vi.st_nlink == 2, "hard links are kept");
	check(S_ISLNK(stat_of(f->copy, "/bin/sh").st_mode), "links are kept");
	check(stat_of(f->copy, "/etc/fifo").st_mode == (S_IFIFO | 0620), "FIFOs are kept");
	check(!stat_of(f->copy, "/etc/null").st_mode && !stat_of(f->copy, "/etc/null2").st_mode &&
	              !stat_of(f->copy, "/sub/b/disk").st_mode,
	      "device nodes and their other names are left out");
	check(holes.st_size == 20 << 20 && holes.st_blocks < 64, "a file of zeros takes no space");
	check(S_ISREG(stat_of(f->copy, "/etc/odd \n'\"\xc3\xbc \xff").st_mode),
	      "odd names are kept");
	check(S_ISDIR(stat_of(f->copy, "/tmp").st_mode) && !stat_of(f->copy, "/tmp/left").st_mode,
	      "/tmp is empty");
	check(stat_of(f->copy, "/dev").st_uid == BASE && S_ISDIR(stat_of(f->copy, "/sys").st_mode),
	      "/dev and /sys are made");
	check(tree_file_count(tree) == 8 && tree_data_bytes(tree) >= 20 << 20,
	      "files are counted once, whatever names they have");
	check(tree_filled_bytes(tree) < 4096, "what was copied is counted without holes");
}

static void check_changes(const struct tree *tree, const char *changed, const char *removed,
                          const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv got_changed = {0};
	CLEANUP_STRV struct strv got_removed = {0};
	CLEANUP_FREE char *joined = NULL;
	CLEANUP_FREE char *joined_removed = NULL;

	check(tree_changes(tree, &got_changed, &got_removed, &err) == 0, "%s", holds);
	joined = strv_join(&got_changed, " ");
	joined_removed = strv_join(&got_removed, " ");
	check_str(joined, changed, "these are the changed ones");
	check_str(joined_removed, removed, "these are the removed ones");
}

static void change(struct fixture *f)
{
	CLEANUP_FREE char *old = in(f->copy, "/etc/old");
	CLEANUP_FREE char *sub = in(f->copy, "/sub");
	CLEANUP_FREE char *a_b = in(f->copy, "/sub/a-b");
	CLEANUP_FREE char *vi = in(f->copy, "/bin/vi");

	must(chmod(old, 0600) == 0 && chmod(vi, 0700) == 0, old);
	must(unlink(a_b) == 0, a_b);
	must(lsetxattr(sub, "security.selinux", "x", 2, 0) == 0, sub);
	put_file(f->copy, "/etc/null", "a file now", BASE, 0644);
}

static void test_gnu_tar(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TREE struct tree *tree = NULL;
	CLEANUP_TREE struct tree *again = NULL;
	static const char *const env[] = {"PATH=/usr/bin:/bin", "LC_ALL=C", NULL};

	make_source(f->source);
	pack(f, env);
	if (!check(unpack(&tree, f, MUCH, &err) == 0, "a tar of GNU tar is unpacked"))
		printf("# %s\n", err.message);
	if (!tree)
		return;
	check_copy(f, tree);
	check_changes(tree, "", "", "nothing has changed yet");
	change(f);
	check_changes(tree, "/bin/vi /etc/null /etc/old /sub /sub/vim", "/etc/null /sub/a-b",
	              "changes are found, a device node that became a file among them");
	check(unpack(&again, f, MUCH, &err) == -1 && !again && strstr(err.message, f->copy),
	      "a directory that is there is not unpacked into");
}

/* A crafted member: what is not named, is as in {0}. */
struct member {
	const char *path;
	mode_t type;
	const char *link;      /* of a symbolic link */
	const char *hard_link; /* another name of this one */
	const char *text;
	int64_t uid;
	mode_t perm; /* 0: 0755 */
	size_t hole; /* bytes of zeros, without text */
};

static void add_member(struct archive *a, const struct member *m)
{
	struct archive_entry *e = archive_entry_new();
	size_t size = m->text ? strlen(m->text) : 0;

	archive_entry_copy_pathname(e, m->path);
	archive_entry_set_filetype(e, m->type ? m->type : S_IFREG);
	archive_entry_set_perm(e, m->perm ? m->perm : 0755);
	archive_entry_set_uid(e, m->uid);
	archive_entry_set_size(e, (la_int64_t)(size + m->hole));
	if (m->link)
		archive_entry_copy_symlink(e, m->link);
	if (m->hard_link)
		archive_entry_copy_hardlink(e, m->hard_link);
	must(archive_write_header(a, e) >= ARCHIVE_WARN, archive_error_string(a));
	if (size)
		must(archive_write_data(a, m->text, size) == (la_ssize_t)size, m->path);
	archive_entry_free(e);
}

static void craft(struct fixture *f, const struct member *members)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct archive *a = archive_write_new();

	must(archive_write_set_format_pax(a) == ARCHIVE_OK &&
	             archive_write_open_filename(a, f->tar) == ARCHIVE_OK,
	     f->tar);
	for (; members->path; members++)
		add_member(a, members);
	must(archive_write_close(a) == ARCHIVE_OK, f->tar);
	archive_write_free(a);
	must(tree_remove(f->copy, &err) == 0, f->copy);
}

static void check_refused(struct fixture *f, const struct member *members, const char *why,
                          const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TREE struct tree *tree = NULL;

	craft(f, members);
	if (!check(unpack(&tree, f, MUCH, &err) == -1 && !tree && err.code == EXIT_INPUT &&
	                   strstr(err.message, why),
	           "%s", holds))
		printf("# %s\n", err.message ? err.message : "no error");
}

static void test_hostile(struct fixture *f)
{
	CLEANUP_FREE char *outside = in(f->dir, "/outside");
	CLEANUP_FREE char *stolen = in(outside, "/stolen");
	CLEANUP_FREE char *up = str_format("../outside/stolen");

	must(mkdir(outside, 0755) == 0, outside);
	check_refused(f, (struct member[]){{.path = up, .text = "x"}, {0}}, "leads outside",
	              "a member with '..' is refused");
	check_refused(f, (struct member[]){{.path = "a/../../outside/stolen", .text = "x"}, {0}},
	              "leads outside", "one with '..' in the middle too");
	check_refused(f, (struct member[]){{.path = stolen, .text = "x"}, {0}}, "leads outside",
	              "an absolute member is refused");
	check_refused(f,
	              (struct member[]){{.path = "d", .type = S_IFLNK, .link = outside},
	                                {.path = "d/stolen", .text = "x"},
	                                {0}},
	              "behind a link", "a member through an earlier link is refused");
	check_refused(f,
	              (struct member[]){{.path = "d", .type = S_IFLNK, .link = "../outside"},
	                                {.path = "d/e/stolen", .text = "x"},
	                                {0}},
	              "behind a link", "also with directories on the way that are missing");
	check_refused(f,
	              (struct member[]){{.path = "d", .type = S_IFLNK, .link = "../outside"},
	                                {.path = "x", .hard_link = "d/kept"},
	                                {0}},
	              "does not hold", "a hard link through a link is refused");
	check_refused(f, (struct member[]){{.path = "x", .hard_link = "../outside/kept"}, {0}},
	              "leads outside", "a hard link to the outside is refused");
	check(access(stolen, F_OK) < 0, "nothing was written outside");
	check_refused(f,
	              (struct member[]){{.path = "a/b", .text = "x"},
	                                {.path = "a", .type = S_IFLNK, .link = "b"},
	                                {0}},
	              "as a directory first", "a directory with files does not become a link");
	check_refused(f, (struct member[]){{.path = "a", .text = "x", .uid = TREE_UID_COUNT}, {0}},
	              "outside the ids", "an owner that is not mapped is refused");
	check_refused(f, (struct member[]){{.path = "a", .hard_link = "none"}, {0}},
	              "does not hold", "a hard link to nothing is refused");
	check_refused(f,
	              (struct member[]){
			      {.path = "d", .type = S_IFDIR}, {.path = "a", .hard_link = "d"}, {0}},
	              "of a directory", "a hard link to a directory is refused");
}

static void test_deep(struct fixture *f)
{
	CLEANUP_FREE char *deep = mem_alloc(2 * 300 + 1);
	CLEANUP_FREE char *name = mem_alloc(300 + 1);

	for (size_t i = 0; i < 600; i++)
		deep[i] = i % 2 ? '/' : 'd';
	memset(name, 'n', 300);
	check_refused(f, (struct member[]){{.path = deep, .type = S_IFDIR}, {0}}, "too deep",
	              "directories that are nested too deep are refused");
	check_refused(f, (struct member[]){{.path = name, .text = "x"}, {0}}, "too long",
	              "a name that is too long is refused");
}

static void test_later_wins(struct fixture *f)
{
	static const struct member members[] = {
		{.path = "twice", .text = "first, and longer"},
		{.path = "other", .hard_link = "twice"},
		{.path = "twice", .text = "second"},
		{.path = "kind", .type = S_IFLNK, .link = "/outside"},
		{.path = "kind", .text = "a file"},
		{.path = "dir", .type = S_IFDIR, .perm = 0700},
		{.path = "dir/in", .text = "in"},
		{.path = "dir", .type = S_IFDIR, .perm = 0711},
		{.path = "node", .text = "was a file"},
		{.path = "node", .type = S_IFCHR},
		{.path = "file", .type = S_IFBLK},
		{.path = "file", .text = "was a node"},
		{.path = "self", .text = "itself"},
		{.path = "self", .hard_link = "./self"},
		{.path = "made/up/on/the/way", .text = "x"},
		{.path = "proc", .type = S_IFLNK, .link = "/etc"},
		{.path = "run/lock/x", .text = "x"},
		{0},
	};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TREE struct tree *tree = NULL;
	struct stat st;

	craft(f, members);
	if (!check(unpack(&tree, f, MUCH, &err) == 0, "members may come twice, in any order")) {
		printf("# %s\n", err.message);
		return;
	}
	check(text_is(f->copy, "/twice", "second") &&
	              text_is(f->copy, "/other", "first, and longer"),
	      "the later file takes the name, not the content of other names");
	check(text_is(f->copy, "/kind", "a file"), "a file takes a link's place");
	check((stat_of(f->copy, "/dir").st_mode & 07777) == 0711 &&
	              text_is(f->copy, "/dir/in", "in"),
	      "a directory keeps what is in it, and gets its later mode");
	check(!stat_of(f->copy, "/node").st_mode && text_is(f->copy, "/file", "was a node"),
	      "device nodes and files take each other's place");
	check(text_is(f->copy, "/self", "itself"), "a link to itself loses nothing");
	st = stat_of(f->copy, "/made/up/on");
	check(st.st_uid == BASE && S_ISDIR(st.st_mode), "directories on the way are made");
	check(S_ISDIR(stat_of(f->copy, "/proc").st_mode) && !stat_of(f->copy, "/run/lock").st_mode,
	      "what the sandbox mounts over is an empty directory");
	check_changes(tree, "", "", "nothing has changed yet");
	put_file(f->copy, "/node", "new", BASE, 0644);
	check_changes(tree, "/node", "/node", "a file in a device node's place replaces it");
}

static void test_bounds(struct fixture *f)
{
	static const struct member members[] = {
		{.path = "a", .text = "four"}, {.path = "b", .text = "more"}, {0}};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_TREE struct tree *tree = NULL;
	struct stat st = {0};

	craft(f, members);
	check(unpack(&tree, f, 7, &err) == -1 && err.code == EXIT_INPUT &&
	              strstr(err.message, "'/b'"),
	      "more data than the file systems hold is refused");
	error_free(&err);
	craft(f, (struct member[]){{.path = "hole", .hole = 2000}, {0}});
	check(unpack(&tree, f, 1999, &err) == -1 && err.code == EXIT_INPUT &&
	              strstr(err.message, "'/hole'") && err.hint,
	      "holes count, and the error says what to do about them");
	craft(f, members);
	must(stat(f->tar, &st) == 0 && truncate(f->tar, 514) == 0, f->tar);
	check(unpack(&tree, f, MUCH, &err) == -1 && !tree, "a tar that was cut off is an error");
	craft(f, members);
	must(truncate(f->tar, 0) == 0, f->tar);
	check(unpack(&tree, f, MUCH, &err) == -1 && !tree, "an empty one too");
	put_file(f->tar, "", "this is no tar at all", 0, 0600);
	must(truncate(f->tar, 4096) == 0 && tree_remove(f->copy, &err) == 0, f->tar);
	check(unpack(&tree, f, MUCH, &err) == -1 && !tree, "so is something else");
	craft(f, members);
	must(truncate(f->tar, st.st_size + (32 << 20)) == 0, f->tar);
	check(unpack(&tree, f, MUCH, &err) == -1 && strstr(err.message, "behind the end"),
	      "what goes on for ever behind the end is refused");
}

int main(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char dir[] = "/var/tmp/gpuimg-untar-XXXXXX";
	struct fixture f;

	if (geteuid() != 0) {
		printf("1..0 # SKIP owners and device nodes need root\n");
		return 0;
	}
	must(mkdtemp(dir) != NULL, dir);
	f = (struct fixture){dir, in(dir, "/source"), in(dir, "/copy"), in(dir, "/tar")};
	test_gnu_tar(&f);
	test_hostile(&f);
	test_deep(&f);
	test_later_wins(&f);
	test_bounds(&f);
	must(tree_remove(dir, &err) == 0, dir);
	free(f.source);
	free(f.copy);
	free(f.tar);
	return tap_done();
}
