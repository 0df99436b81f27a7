/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source directory with shifted owners, read by the tree backend, is extracted, changed and
 * packed. Needs root, for owners; where it is missing, all is skipped.
 */
#include <archive.h>
#include <archive_entry.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include "builder/proc.h"
#include "builder/tree.h"
#include "tap.h"

#define BASE TREE_UID_BASE

/* cap_net_raw+ep */
static const unsigned char caps_2[20] = {1, 0, 0, 2, 0, 0x20};
/* user::rw-, user:1000:r--, group::r--, mask::r--, other::--- */
static const unsigned char acl[] = {
	2, 0,    0,    0,    1,    0,    6,    0, 0xff, 0xff, 0xff, 0xff, 2,    0,    4,
	0, 0xe8, 3,    0,    0,    4,    0,    4, 0,    0xff, 0xff, 0xff, 0xff, 0x10, 0,
	4, 0,    0xff, 0xff, 0xff, 0xff, 0x20, 0, 0,    0,    0xff, 0xff, 0xff, 0xff};

struct fixture {
	char *dir; /* holds the others */
	char *source;
	char *copy;
};

static void must(bool good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static void own(const char *path, uint32_t uid, mode_t mode)
{
	must(lchown(path, BASE + uid, BASE + uid) == 0 && (!mode || chmod(path, mode) == 0), path);
}

static void put_dir(const char *root, const char *path, uint32_t uid, mode_t mode)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);

	must(mkdir(full, 0700) == 0, full);
	own(full, uid, mode);
}

static void put_file(const char *root, const char *path, const char *text, uint32_t uid,
                     mode_t mode)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);
	CLEANUP_CLOSE int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), full);
	own(full, uid, mode);
}

static void put_link(const char *root, const char *path, const char *target)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);

	must(symlink(target, full) == 0, full);
	own(full, 0, 0);
}

static void put_node(const char *root, const char *path, mode_t mode)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);

	must(mknod(full, mode, (dev_t)0x103) == 0, full);
	own(full, 0, mode & 07777);
}

static void put_xattr(const char *root, const char *path, const char *name, const void *value,
                      size_t size)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);

	must(lsetxattr(full, name, value, size, 0) == 0, name);
}

static void put_socket(const char *root, const char *path)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	must(strlen(full) < sizeof(address.sun_path), "socket path");
	memcpy(address.sun_path, full, strlen(full));
	must(bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0, full);
}

/* The capability as a guest's setcap leaves it in the tree. */
static void put_caps_3(const char *root, const char *path)
{
	unsigned char caps[24] = {0};
	uint32_t root_id = htole32(BASE);

	memcpy(caps, caps_2, sizeof(caps_2));
	caps[3] = 3;
	memcpy(caps + 20, &root_id, 4);
	put_xattr(root, path, "security.capability", caps, sizeof(caps));
}

static void make_sparse(const char *root, const char *path)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);
	CLEANUP_CLOSE int fd = open(full, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	must(fd >= 0 && pwrite(fd, "data", 4, 8 << 20) == 4 && ftruncate(fd, 20 << 20) == 0, full);
	own(full, 0, 0644);
}

static void make_hard_link(const char *root, const char *from, const char *to)
{
	CLEANUP_FREE char *full_from = str_format("%s%s", root, from);
	CLEANUP_FREE char *full_to = str_format("%s%s", root, to);

	must(link(full_from, full_to) == 0, full_to);
}

static void make_source(const char *s)
{
	static const char *const dirs[] = {"/etc", "/bin",   "/tmp",     "/proc",
	                                   "/sub", "/sub/a", "/sub/a/b", "/sub/z"};
	CLEANUP_FREE char *old = str_format("%s/etc/old", s);
	const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
	uint32_t shifted = htole32(BASE + 1000);
	unsigned char shifted_acl[sizeof(acl)];

	must(mkdir(s, 0755) == 0, s);
	own(s, 0, 0755);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		put_dir(s, dirs[i], 0, 0755);
	put_file(s, "/etc/old", "old", 0, 0644);
	put_file(s, "/etc/user", "user", 1000, 0640);
	put_file(s, "/bin/su", "su", 0, 04755);
	put_file(s, "/bin/ping", "ping", 0, 0755);
	put_file(s, "/bin/vi", "editor", 0, 0755);
	make_hard_link(s, "/bin/vi", "/bin/vim");
	put_link(s, "/bin/sh", "/bin/dash");
	put_node(s, "/etc/fifo", S_IFIFO | 0620);
	put_node(s, "/etc/null", S_IFCHR | 0666);
	put_node(s, "/etc/null2", S_IFCHR | 0666);
	make_sparse(s, "/etc/sparse");
	put_file(s, "/tmp/left", "left", 0, 0644);
	put_file(s, "/etc/odd \n'\"\xc3\xbc \xff", "odd", 0, 0644);
	put_file(s, "/sub/a/b/c", "c", 0, 0644);
	put_file(s, "/sub/a/b/d", "d", 0, 0644);
	put_file(s, "/sub/a-b", "a-b", 0, 0644);
	put_caps_3(s, "/bin/ping");
	put_xattr(s, "/etc/old", "trusted.note", "kept", 4);
	put_xattr(s, "/bin/sh", "trusted.note", "link", 4);
	memcpy(shifted_acl, acl, sizeof(acl));
	memcpy(shifted_acl + 16, &shifted, 4);
	put_xattr(s, "/etc/user", "system.posix_acl_access", shifted_acl, sizeof(acl));
	must(utimensat(AT_FDCWD, old, times, 0) == 0, old);
}

static struct stat stat_of(const char *root, const char *path)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);
	struct stat st = {0};

	if (lstat(full, &st) < 0)
		st.st_mode = 0;
	return st;
}

static ssize_t xattr_of(const char *root, const char *path, const char *name, unsigned char *ret)
{
	CLEANUP_FREE char *full = str_format("%s%s", root, path);

	return lgetxattr(full, name, ret, 256);
}

static void check_copy(struct fixture *f, const struct tree *tree)
{
	struct stat st = stat_of(f->copy, "/etc/old");
	struct stat vi = stat_of(f->copy, "/bin/vi"), vim = stat_of(f->copy, "/bin/vim");
	struct stat sparse = stat_of(f->copy, "/etc/sparse");
	unsigned char value[256];

	check(st.st_size == 3 && st.st_uid == BASE && st.st_mtim.tv_sec == 1000000000 &&
	              (st.st_mode & 07777) == 0644,
	      "a file has its size, owner, time and mode");
	st = stat_of(f->copy, "/etc/user");
	check(st.st_uid == BASE + 1000 && st.st_gid == BASE + 1000, "owners are shifted");
	check((stat_of(f->copy, "/bin/su").st_mode & 07777) == 04755, "setuid bits are kept");
	check(vi.st_ino == vim.st_ino && vi.st_nlink == 2, "hard links are kept");
	check(S_ISLNK(stat_of(f->copy, "/bin/sh").st_mode), "links are kept");
	check(stat_of(f->copy, "/etc/fifo").st_mode == (S_IFIFO | 0620), "FIFOs are kept");
	check(!stat_of(f->copy, "/etc/null").st_mode, "device nodes are left out");
	check(sparse.st_size == 20 << 20 && sparse.st_blocks < 2048, "holes are kept");
	check(S_ISREG(stat_of(f->copy, "/etc/odd \n'\"\xc3\xbc \xff").st_mode),
	      "odd names are kept");
	check(S_ISDIR(stat_of(f->copy, "/tmp").st_mode) && !stat_of(f->copy, "/tmp/left").st_mode,
	      "/tmp is empty");
	check(S_ISDIR(stat_of(f->copy, "/dev").st_mode) &&
	              S_ISDIR(stat_of(f->copy, "/sys").st_mode),
	      "/dev and /sys are made");
	check(xattr_of(f->copy, "/bin/ping", "security.capability", value) == 24 && value[3] == 3 &&
	              value[23] == 0x70 && value[20] == 0,
	      "file capabilities are those of the shifted root");
	check(xattr_of(f->copy, "/etc/old", "trusted.note", value) == 4 &&
	              memcmp(value, "kept", 4) == 0,
	      "extended attributes are kept");
	check(xattr_of(f->copy, "/bin/sh", "trusted.note", value) == 4, "those of a link too");
	check(xattr_of(f->copy, "/etc/user", "system.posix_acl_access", value) == sizeof(acl) &&
	              value[16] == 0xe8 && value[19] == 0x70,
	      "the users in an ACL are shifted");
	check(tree_file_count(tree) == 10, "files are counted once, whatever names they have");
	check(tree_data_bytes(tree) >= (20 << 20) && str_equal(tree_dir(tree), f->copy),
	      "bytes are counted, the directory is known");
}

static void check_list(const struct strv *list, const char *want, const char *holds)
{
	CLEANUP_FREE char *joined = strv_join(list, " ");

	check_str(joined, want, "%s", holds);
}

static void check_changes(const struct tree *tree, const char *changed, const char *removed,
                          const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv got_changed = {0};
	CLEANUP_STRV struct strv got_removed = {0};

	check(tree_changes(tree, &got_changed, &got_removed, &err) == 0, "%s", holds);
	check_list(&got_changed, changed, "these are the changed ones");
	check_list(&got_removed, removed, "these are the removed ones");
}

static char *in_copy(struct fixture *f, const char *path)
{
	return str_format("%s%s", f->copy, path);
}

/* Content changed, but size and mtime as before. */
static void forge(struct fixture *f)
{
	CLEANUP_FREE char *path = in_copy(f, "/etc/old");
	const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
	CLEANUP_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);

	must(fd >= 0 && write(fd, "new", 3) == 3 && futimens(fd, times) == 0, path);
}

static void change(struct fixture *f)
{
	CLEANUP_FREE char *vi = in_copy(f, "/bin/vi");
	CLEANUP_FREE char *sh = in_copy(f, "/bin/sh");
	CLEANUP_FREE char *b = in_copy(f, "/sub/a/b");
	CLEANUP_FREE char *a = in_copy(f, "/sub/a");
	CLEANUP_FREE char *c = in_copy(f, "/sub/a/b/c");
	CLEANUP_FREE char *d = in_copy(f, "/sub/a/b/d");
	CLEANUP_FREE char *a_b = in_copy(f, "/sub/a-b");
	CLEANUP_FREE char *z = in_copy(f, "/sub/z");

	forge(f);
	must(chmod(vi, 0700) == 0, vi);
	must(unlink(sh) == 0 && unlink(c) == 0 && unlink(d) == 0, "unlink");
	must(rmdir(b) == 0 && rmdir(a) == 0 && unlink(a_b) == 0, "rmdir");
	put_link(f->copy, "/bin/sh", "bash");
	must(rmdir(z) == 0, z);
	put_link(f->copy, "/sub/z", "../etc");
	put_file(f->copy, "/etc/null2", "a file now", 0, 0644);
	put_file(f->copy, "/tmp/x", "x", 0, 0644);
	put_socket(f->copy, "/etc/socket");
	put_dir(f->copy, "/new", 5, 02750);
	put_file(f->copy, "/new/\xc3\xbc \xff", "new", 0, 0644);
}

#define CHANGED "/bin/sh /bin/vi /bin/vim /etc/null2 /etc/old /new /new/\xc3\xbc \xff /sub/z"

/* A line per member: type, mode, owner, size, name, target, attributes. */
static char *list_tar(int fd)
{
	struct archive *a = archive_read_new();
	CLEANUP_STRV struct strv lines = {0};
	struct archive_entry *e;
	int status;

	archive_read_support_format_tar(a);
	must(lseek(fd, 0, SEEK_SET) == 0 && archive_read_open_fd(a, fd, 65536) == ARCHIVE_OK,
	     "tar");
	while ((status = archive_read_next_header(a, &e)) == ARCHIVE_OK || status == ARCHIVE_WARN) {
		const char *link = archive_entry_hardlink(e);
		const char *symlink_text = archive_entry_symlink(e);
		const char *name = NULL;
		const void *value = NULL;
		size_t size = 0;

		archive_entry_xattr_reset(e);
		archive_entry_xattr_next(e, &name, &value, &size);
		strv_addf(&lines, "%o %lld:%lld %lld %s%s%s%s%s", archive_entry_mode(e),
		          (long long)archive_entry_uid(e), (long long)archive_entry_gid(e),
		          (long long)archive_entry_size(e), archive_entry_pathname(e),
		          link           ? " = "
		          : symlink_text ? " > "
		                         : "",
		          link           ? link
		          : symlink_text ? symlink_text
		                         : "",
		          name ? " " : "", name ? name : "");
	}
	archive_read_free(a);
	return strv_join(&lines, "\n");
}

static void check_tar(struct fixture *f, const struct tree *tree)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_STRV struct strv removed = {0};
	CLEANUP_FREE char *path = str_format("%s/out.tar", f->dir);
	CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CLEANUP_FREE char *list = NULL;

	must(tree_changes(tree, &changed, &removed, &err) == 0, "changes");
	strv_add(&changed, "/bin/ping");
	strv_add(&changed, "/etc/user");
	strv_add(&changed, "/etc/fifo");
	strv_add(&changed, "/etc/socket");
	check(tree_write_tar(tree, &changed, fd, &err) == 0, "changes are packed");
	list = list_tar(fd);
	check_str(list,
	          "120777 0:0 0 bin/sh > bash\n"
	          "100700 0:0 6 bin/vi\n"
	          "700 0:0 0 bin/vim = bin/vi\n"
	          "100644 0:0 10 etc/null2\n"
	          "100644 0:0 3 etc/old trusted.note\n"
	          "42750 5:5 0 new/\n"
	          "100644 0:0 3 new/\xc3\xbc \xff\n"
	          "120777 0:0 0 sub/z > ../etc\n"
	          "100755 0:0 4 bin/ping security.capability\n"
	          "100640 1000:1000 4 etc/user system.posix_acl_access\n"
	          "10620 0:0 0 etc/fifo",
	          "members have guest owners, modes, links and attributes; a socket is left out");
}

/* The first member's attribute of that name. */
static size_t tar_xattr(int fd, const char *want, unsigned char *ret)
{
	struct archive *a = archive_read_new();
	struct archive_entry *e;
	const char *name;
	const void *value;
	size_t size, found = 0;

	archive_read_support_format_tar(a);
	must(lseek(fd, 0, SEEK_SET) == 0 && archive_read_open_fd(a, fd, 65536) == ARCHIVE_OK,
	     "tar");
	if (archive_read_next_header(a, &e) == ARCHIVE_OK) {
		archive_entry_xattr_reset(e);
		while (!found && archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK)
			if (str_equal(name, want) && size <= 64) {
				memcpy(ret, value, size);
				found = size;
			}
	}
	archive_read_free(a);
	return found;
}

static void check_tar_ids(struct fixture *f, const struct tree *tree)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv ping = {0};
	CLEANUP_STRV struct strv user = {0};
	CLEANUP_FREE char *path = str_format("%s/ids.tar", f->dir);
	CLEANUP_FREE char *full = in_copy(f, "/etc/user");
	CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	unsigned char value[64];

	strv_add(&ping, "/bin/ping");
	strv_add(&user, "/etc/user");
	check(tree_write_tar(tree, &ping, fd, &err) == 0 &&
	              tar_xattr(fd, "security.capability", value) == sizeof(caps_2) &&
	              memcmp(value, caps_2, sizeof(caps_2)) == 0,
	      "file capabilities are packed in their plain form, version 2");
	must(lseek(fd, 0, SEEK_SET) == 0 && ftruncate(fd, 0) == 0, path);
	check(tree_write_tar(tree, &user, fd, &err) == 0 &&
	              tar_xattr(fd, "system.posix_acl_access", value) == sizeof(acl) &&
	              memcmp(value, acl, sizeof(acl)) == 0,
	      "an ACL is packed with the guest's own ids");
	must(lchown(full, 0, 0) == 0, full);
	check(tree_write_tar(tree, &user, fd, &err) == -1 && strstr(err.message, "'/etc/user'") &&
	              err.code == EXIT_INPUT,
	      "an owner outside the mapped ids is refused by name");
	own(full, 1000, 0640);
	strv_add(&ping, "/none");
	check(tree_write_tar(tree, &ping, fd, &err) == -1 && strstr(err.message, "'/none'"),
	      "a path that is missing is an error");
}

static void test_extract(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ROOTFS struct rootfs *from = NULL;
	CLEANUP_TREE struct tree *tree = NULL;
	struct tree *second = NULL;

	must(tree_rootfs(&from, f->source, NULL, &err) == 0, "source");
	if (!check(tree_extract(&tree, from, f->copy, NULL, &err) == 0, "a source is extracted")) {
		printf("# %s\n", err.message);
		return;
	}
	check(tree_extract(&second, from, f->copy, NULL, &err) == -1 && !second &&
	              strstr(err.message, f->copy),
	      "a directory that is there is not extracted into");
	check_copy(f, tree);
	check_changes(tree, "", "", "nothing has changed yet");
	change(f);
	check_changes(tree, CHANGED, "/etc/null2 /sub/a /sub/a-b /sub/z", "changes are found");
	check_tar(f, tree);
	check_tar_ids(f, tree);
}

static struct strv list_of(const char *words)
{
	return strv_split(words, " ");
}

/* What a policy would say; the files' own labels are those of the fixture. */
static int label(void *opaque, const char *path, uint32_t mode, char **ret_label, struct error *err)
{
	struct strv *asked = opaque;

	strv_addf(asked, "%s:%o", path, mode & S_IFMT);
	if (str_equal(path, "/bad"))
		return error_set(err, "no label for '%s'", path);
	*ret_label = str_equal(path, "/none") ? NULL : str_copy("u:r:new_t:s0");
	return 0;
}

static void check_label(int fd, const struct tree *tree, const char *path, const char *want,
                        const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv paths = {0};
	unsigned char value[65] = "";
	size_t size;

	strv_add(&paths, path);
	must(lseek(fd, 0, SEEK_SET) == 0 && ftruncate(fd, 0) == 0 &&
	             tree_write_tar(tree, &paths, fd, &err) == 0,
	     path);
	size = tar_xattr(fd, "security.selinux", value);
	check(size == (want ? strlen(want) + 1 : 0) && (!want || memcmp(value, want, size) == 0),
	      "%s", holds);
}

static void test_labeler(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *dir = str_format("%s/labels", f->dir);
	CLEANUP_FREE char *copy = str_format("%s/labels-copy", f->dir);
	CLEANUP_FREE char *tar = str_format("%s/labels.tar", f->dir);
	CLEANUP_CLOSE int fd = open(tar, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CLEANUP_ROOTFS struct rootfs *from = NULL;
	CLEANUP_TREE struct tree *tree = NULL;
	CLEANUP_STRV struct strv asked = {0};
	CLEANUP_STRV struct strv bad = list_of("/bad");
	CLEANUP_FREE char *all = NULL;

	must(mkdir(dir, 0755) == 0, dir);
	own(dir, 0, 0755);
	put_file(dir, "/old", "old", 0, 0644);
	put_xattr(dir, "/old", "security.selinux", "u:r:old_t:s0", 13);
	must(tree_rootfs(&from, dir, NULL, &err) == 0 &&
	             tree_extract(&tree, from, copy, NULL, &err) == 0,
	     "tree");
	put_file(copy, "/new", "new", 0, 0644);
	put_file(copy, "/none", "", 0, 0644);
	put_file(copy, "/bad", "", 0, 0644);
	put_link(copy, "/link", "new");
	check_label(fd, tree, "/new", NULL, "without a policy nothing is labelled");
	tree_set_labeler(tree, label, &asked);
	/* where the host has a policy of its own, no label in the tree is the guest's */
	if (access("/sys/fs/selinux/enforce", F_OK) == 0)
		check_label(fd, tree, "/old", "u:r:new_t:s0", "labels of the host do not count");
	else
		check_label(fd, tree, "/old", "u:r:old_t:s0", "a file keeps the label that it has");
	check_label(fd, tree, "/new", "u:r:new_t:s0", "a new file gets the policy's, with its NUL");
	check_label(fd, tree, "/link", "u:r:new_t:s0", "a link too");
	check_label(fd, tree, "/none", NULL, "where the policy has none, it gets none");
	check(tree_write_tar(tree, &bad, fd, &err) == -1 && strstr(err.message, "'/bad'"),
	      "a policy that fails is an error");
	all = strv_join(&asked, " ");
	check(strstr(all, "/new:100000 /link:120000 /none:100000") != NULL,
	      "the policy is asked for path and type");
}

static void check_sparse_file(const char *path, const char *holds)
{
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st = {0};
	char text[5] = "";

	must(fd >= 0 && fstat(fd, &st) == 0 && pread(fd, text, 4, 8 << 20) == 4, path);
	check(st.st_size == 20 << 20 && st.st_blocks < 2048 && str_equal(text, "data"), "%s",
	      holds);
}

/* By GNU tar, as in the appliance. */
static void test_sparse_tar(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *tar = str_format("%s/sparse.tar", f->dir);
	CLEANUP_FREE char *out = str_format("%s/unpacked", f->dir);
	CLEANUP_FREE char *dir = str_format("%s/holes", f->dir);
	CLEANUP_FREE char *huge = str_format("%s/holes/huge", f->dir);
	CLEANUP_FREE char *unpacked = str_format("%s/data", out);
	const char *const argv[] = {"tar", "-C", out, "-xf", tar, NULL};
	CLEANUP_CLOSE int fd = open(tar, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	CLEANUP_ROOTFS struct rootfs *from = NULL;
	CLEANUP_TREE struct tree *tree = NULL;
	CLEANUP_FREE char *copy = str_format("%s/holes-copy", f->dir);
	CLEANUP_FREE char *copy_huge = str_format("%s/huge", copy);
	CLEANUP_STRV struct strv paths = {0};
	struct stat st = {0};

	must(fd >= 0 && mkdir(dir, 0755) == 0 && mkdir(out, 0755) == 0, dir);
	own(dir, 0, 0755);
	make_sparse(dir, "/data");
	put_file(dir, "/empty", "", 0, 0644);
	must(tree_rootfs(&from, dir, NULL, &err) == 0, "source");
	put_file(dir, "/huge", "", 0, 0644);
	must(truncate(huge, (off_t)48 << 30) == 0, huge);
	check(tree_extract(&tree, from, copy, NULL, &err) == 0, "files with holes are extracted");
	strv_add(&paths, "/data");
	strv_add(&paths, "/empty");
	strv_add(&paths, "/huge");
	check(tree_write_tar(tree, &paths, fd, &err) == 0 && lseek(fd, 0, SEEK_END) < 1 << 20,
	      "holes are not in the tar");
	must(proc_run(argv, &(struct proc_options){.timeout_ms = 60000}, NULL, 0, &err) == 0,
	     err.message ? err.message : "tar");
	check_sparse_file(unpacked, "GNU tar unpacks the file with its holes and data");
	free(unpacked);
	unpacked = str_format("%s/huge", out);
	check(stat(unpacked, &st) == 0 && st.st_size == (off_t)48 << 30 && st.st_blocks < 64,
	      "a file that is one hole is unpacked as one");
	must(truncate(copy_huge, ((off_t)64 << 30) + 1) == 0, copy_huge);
	check(tree_write_tar(tree, &paths, fd, &err) == -1 && strstr(err.message, "'/huge'"),
	      "a file of more than 64 GiB is refused by name");
}

static void test_spare_mounts(void)
{
	CLEANUP_STRV struct strv mounts = list_of("/boot/efi");
	CLEANUP_STRV struct strv changed =
		list_of("/boot /boot/efi /boot/efi/EFI /boot/efi2 /boot/vmlinuz /etc");
	CLEANUP_STRV struct strv removed = list_of("/boot/efi /boot/ef /boot/efi-old /etc/x");
	CLEANUP_STRV struct strv replaced = list_of("/boot");
	CLEANUP_STRV struct strv gone = list_of("/boot");
	CLEANUP_STRV struct strv dropped = {0};
	CLEANUP_STRV struct strv dropped_above = {0};

	tree_spare_mounts(&mounts, &changed, &removed, &dropped);
	check_list(&dropped, "/boot/efi /boot/efi/EFI",
	           "what was changed or removed at a foreign mount is told once");
	check_list(&changed, "/boot /boot/efi2 /boot/vmlinuz /etc",
	           "other changes stay, names that only begin alike among them");
	check_list(&removed, "/boot/ef /boot/efi-old /etc/x", "other removals stay");
	tree_spare_mounts(&mounts, &replaced, &gone, &dropped_above);
	check(!replaced.count && !gone.count && dropped_above.count == 1,
	      "a directory above a foreign mount is neither removed nor replaced");
}

static void test_backend(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ROOTFS struct rootfs *r = NULL;
	CLEANUP_FREE char *text = NULL;
	uint64_t room = 0, size = 0;
	struct rootfs_stat st;
	int fd;

	must(tree_rootfs(&r, f->copy, NULL, &err) == 0, "tree");
	put_link(f->copy, "/etc/escape", "../../../../../../../etc/passwd");
	put_link(f->copy, "/escape-dir", "/../..");
	check(!rootfs_exists(r, "/etc/escape"), "a link does not lead outside");
	check(rootfs_write(r, "/escape-dir/etc/inside", "in", 2, 0600, &err) == 0 &&
	              stat_of(f->copy, "/etc/inside").st_uid == BASE,
	      "a link to above the root leads to the root, new files are the guest root's");
	check(r->ops->read(r, "/escape-dir/etc/old", 10, (void **)&text, &(size_t){0}, &err) == -1,
	      "the backend itself follows no link");
	check(rootfs_lstat(r, "/etc/user", &st, &err) == 1 && st.uid == 1000,
	      "owners are told as the guest sees them");
	check(rootfs_read(r, "/etc/old", 3, (void **)&text, NULL, &err) == 0 &&
	              str_equal(text, "new"),
	      "a file is read");
	check(rootfs_mkdir(r, "/a/b", 0711, &err) == 0 &&
	              stat_of(f->copy, "/a/b").st_mode == (S_IFDIR | 0711),
	      "a directory is made");
	check(rootfs_rename(r, "/etc/inside", "/a/b/moved", &err) == 0 &&
	              stat_of(f->copy, "/a/b/moved").st_size == 2,
	      "a file is renamed");
	check(rootfs_chmod(r, "/a/b/moved", 0751, &err) == 0 &&
	              stat_of(f->copy, "/a/b/moved").st_mode == (S_IFREG | 0751),
	      "a mode is changed");
	check(rootfs_statvfs(r, "/a", &room, &size, &err) == 0 && size > room,
	      "free space is told");
	fd = open(f->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	check(rootfs_copy_out(r, "/etc/sparse", fd, &err) == 0 &&
	              lseek(fd, 0, SEEK_END) == 20 << 20 && lseek(fd, 0, SEEK_DATA) >= 4 << 20,
	      "a file is copied out with its holes");
	close(fd);
	check(rootfs_run(r, &(struct guest_command){.argv = (const char *const[]){"x", NULL}},
	                 &err) == -1,
	      "without a sandbox nothing runs");
	check(rootfs_remove(r, "/a", &err) == 0 && !stat_of(f->copy, "/a").st_mode,
	      "a directory is removed with what is in it");
}

/* Far deeper than any path can name: as a program could leave it behind. */
static void test_remove_deep(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *top = str_format("%s/deep", f->dir);
	int fd;

	must(mkdir(top, 0755) == 0, top);
	fd = open(top, O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 3000; i++) {
		int next;

		must(mkdirat(fd, "d", 0755) == 0, "mkdirat");
		next = openat(fd, "d", O_PATH | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = next;
	}
	close(fd);
	check(tree_remove(top, &err) == 0 && access(top, F_OK) < 0,
	      "a directory that is nested 3000 deep is removed");
	check(tree_remove(top, &err) == 0, "removing it again is no error");
}

/* A source that lies: one directory that lists one name. */
struct liar {
	struct rootfs base;
	const char *name;
	struct rootfs_stat st;
};

static int liar_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                      struct error *err)
{
	const struct liar *l = (struct liar *)r;

	(void)err;
	if (!strstr(path, l->name))
		return 0;
	*ret = l->st;
	return 1;
}

static int liar_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	(void)path;
	(void)err;
	strv_add(ret, ((struct liar *)r)->name);
	return 0;
}

static int liar_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	(void)r;
	(void)fd;
	return error_set(err, "cannot read '%s': bad block", path);
}

static int liar_copy_much(struct rootfs *r, const char *path, int fd, struct error *err)
{
	static const char data[256 * 1024];

	(void)r;
	return write(fd, data, sizeof(data)) == sizeof(data)
	               ? 0
	               : error_errno(err, errno, "cannot write '%s'", path);
}

static int liar_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                        uint64_t *ret_size_bytes, struct error *err)
{
	(void)r, (void)path, (void)err;
	*ret_free_bytes = 0;
	*ret_size_bytes = (uint64_t)128 * 1024;
	return 0;
}

static const struct rootfs_ops liar_ops = {
	.name = "liar", .lstat = liar_lstat, .list = liar_list, .copy_out = liar_copy_out};
static const struct rootfs_ops bomb_ops = {.name = "bomb",
                                           .lstat = liar_lstat,
                                           .list = liar_list,
                                           .copy_out = liar_copy_much,
                                           .statvfs = liar_statvfs};

static void check_refused(struct fixture *f, const char *name, struct rootfs_stat st,
                          enum exit_code code, const char *want, const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	bool is_bomb = str_equal(name, "bomb");
	struct liar liar = {.base.ops = is_bomb ? &bomb_ops : &liar_ops, .name = name, .st = st};
	CLEANUP_FREE char *dir = str_format("%s/liar", f->dir);
	CLEANUP_TREE struct tree *tree = NULL;
	int result = tree_extract(&tree, &liar.base, dir, NULL, &err);

	check(result == -1 && !tree && strstr(err.message, want) && error_exit_code(&err) == code,
	      "%s", holds);
	if (result == -1 && !strstr(err.message, want))
		printf("# %s\n", err.message);
	tree_remove(dir, &ignored);
}

static void test_hostile_source(struct fixture *f)
{
	const struct rootfs_stat file = {.mode = S_IFREG | 0644, .inode = 12};
	const struct rootfs_stat dir = {.mode = S_IFDIR | 0755, .inode = 13};
	const struct rootfs_stat far_user = {.mode = S_IFIFO | 0644, .uid = TREE_UID_COUNT};

	check_refused(f, "../x", file, EXIT_INPUT, "name", "a name with a slash is refused");
	check_refused(f, "..", file, EXIT_INPUT, "name", "the name '..' is refused");
	check_refused(f, "", file, EXIT_INPUT, "name", "an empty name is refused");
	check_refused(f, "loop", dir, EXIT_INPUT, "damaged", "a directory in itself is refused");
	check_refused(f, "far", far_user, EXIT_INPUT, "'/far'",
	              "an owner that cannot be shifted is refused by name");
	check_refused(f, "bomb", file, EXIT_INPUT, "more data than",
	              "files that hold more data than their file system are refused");
	check_refused(f, "torn", file, EXIT_BUILD, "bad block",
	              "an error of the source is passed on");
}

int main(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct fixture f = {.dir = str_copy("/var/tmp/gpuimg-tree-XXXXXX")};

	if (geteuid() != 0 || !mkdtemp(f.dir)) {
		printf("1..0 # SKIP needs root and /var/tmp\n");
		return 0;
	}
	f.source = str_format("%s/source", f.dir);
	f.copy = str_format("%s/copy", f.dir);
	make_source(f.source);
	test_extract(&f);
	test_backend(&f);
	test_hostile_source(&f);
	test_sparse_tar(&f);
	test_labeler(&f);
	test_spare_mounts();
	test_remove_deep(&f);
	check(tree_remove(f.dir, &err) == 0 && access(f.dir, F_OK) < 0, "all is removed again");
	free(f.source);
	free(f.copy);
	free(f.dir);
	return tap_done();
}
