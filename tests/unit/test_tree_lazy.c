/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placeholders that are filled when something opens them. Needs root and fanotify permission
 * events; where they are missing, all is skipped with the reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "builder/proc.h"
#include "builder/sandbox.h"
#include "builder/tree.h"
#include "builder/usage.h"
#include "tap.h"

#define BASE       TREE_UID_BASE
#define OLD_TIME   1000000000
#define BIG_BYTES  ((size_t)4 << 20)
#define PROGRAMS   12
#define SAME_TICK  20
#define WAIT_MS    200
#define OUTPUT_MAX 4096

static const unsigned char caps_3[24] = {1, 0, 0, 3, 0, 0x20, [23] = 0x70};

struct fixture {
	char *dir; /* holds the others */
	char *source;
	char *copy;
	struct rootfs *from;
};

/* A filler that may be slow, torn, or of more data than there can be. */
struct filler {
	struct rootfs base;
	struct rootfs *inner;
	bool slow, torn, bomb;
};

static void must(bool good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static char *join(const char *root, const char *path)
{
	return str_format("%s%s", root, path);
}

static void put_bytes(const char *root, const char *path, const void *data, size_t size,
                      mode_t mode)
{
	const struct timespec times[2] = {{.tv_sec = OLD_TIME}, {.tv_sec = OLD_TIME}};
	CLEANUP_FREE char *full = join(root, path);
	CLEANUP_CLOSE int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	must(fd >= 0 && write(fd, data, size) == (ssize_t)size && fchown(fd, BASE, BASE) == 0 &&
	             fchmod(fd, mode) == 0 && futimens(fd, times) == 0,
	     full);
}

static void put_file(const char *root, const char *path, const char *text, mode_t mode)
{
	put_bytes(root, path, text, strlen(text), mode);
}

static void put_dir(const char *root, const char *path)
{
	CLEANUP_FREE char *full = join(root, path);

	must(mkdir(full, 0755) == 0 && chown(full, BASE, BASE) == 0, full);
}

static void put_big(const char *root, const char *path)
{
	CLEANUP_FREE char *data = mem_alloc(BIG_BYTES);

	memset(data, 'b', BIG_BYTES);
	put_bytes(root, path, data, BIG_BYTES, 0644);
}

static void put_sparse(const char *root, const char *path)
{
	CLEANUP_FREE char *full = join(root, path);
	CLEANUP_CLOSE int fd = -1;

	put_file(root, path, "", 0644);
	fd = open(full, O_WRONLY | O_CLOEXEC);
	must(fd >= 0 && pwrite(fd, "data", 4, 8 << 20) == 4 && ftruncate(fd, 20 << 20) == 0, full);
}

static void put_programs(const char *root)
{
	const char *const argv[] = {"cp", "-L", "/bin/true", "program", NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	for (int i = 0; i < PROGRAMS; i++) {
		CLEANUP_FREE char *full = str_format("%s/program-%d", root, i);
		const char *copy[] = {argv[0], argv[1], argv[2], full, NULL};

		must(proc_run(copy, NULL, NULL, 0, &err) == 0 && chown(full, BASE, BASE) == 0 &&
		             chmod(full, 0755) == 0,
		     full);
	}
}

static void put_caps(const char *root, const char *path)
{
	CLEANUP_FREE char *full = join(root, path);

	must(setxattr(full, "security.capability", caps_3, sizeof(caps_3), 0) == 0, full);
}

static void make_source(const char *s)
{
	static const char *const files[] = {"/read",       "/chmod",     "/rename",  "/shorter",
	                                    "/longer",     "/emptied",   "/xattr",   "/removed",
	                                    "/replaced",   "/one",       "/touched", "/xattr-late",
	                                    "/linked-new", "/late-mode", "/bad",     "/through"};
	CLEANUP_FREE char *one = join(s, "/one");
	CLEANUP_FREE char *two = join(s, "/two");
	CLEANUP_FREE char *three = join(s, "/three");
	CLEANUP_FREE char *four = join(s, "/four");

	must(mkdir(s, 0755) == 0 && chown(s, BASE, BASE) == 0, s);
	put_dir(s, "/sub");
	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
		put_file(s, files[i], "content", 0644);
	put_file(s, "/sub/inner", "inner", 0600);
	put_file(s, "/empty", "", 0644);
	put_file(s, "/su", "su", 04755);
	put_file(s, "/ping", "ping", 0755);
	put_caps(s, "/ping");
	put_sparse(s, "/sparse");
	put_big(s, "/big");
	must(link(one, two) == 0 && link(one, three) == 0 && link(one, four) == 0, one);
	put_programs(s);
	for (int i = 0; i < SAME_TICK; i++) {
		CLEANUP_FREE char *path = str_format("/tick-%d", i);

		put_file(s, path, "before", 0644);
	}
}

static int begin_read(const struct filler *f, const char *path, struct error *err)
{
	if (f->slow)
		poll(NULL, 0, WAIT_MS);
	return f->torn && str_equal(path, "/bad")
	               ? error_set(err, "cannot read '%s': bad block", path)
	               : 0;
}

static int filler_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	const struct filler *f = (struct filler *)r;

	if (begin_read(f, path, err) < 0 || f->inner->ops->copy_out(f->inner, path, fd, err) < 0)
		return -1;
	if (f->slow)
		poll(NULL, 0, WAIT_MS);
	return 0;
}

static int filler_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                       size_t *ret_size, struct error *err)
{
	const struct filler *f = (struct filler *)r;

	if (begin_read(f, path, err) < 0 ||
	    f->inner->ops->read(f->inner, path, max_bytes, ret, ret_size, err) < 0)
		return -1;
	if (f->slow)
		poll(NULL, 0, WAIT_MS);
	return 0;
}

/* As much as the file system has, twice: in blocks that are allocated, not written. */
static int bomb_copy_out(struct rootfs *r, const char *path, int fd, struct error *err)
{
	(void)r;
	return fallocate(fd, 0, 0, 1 << 20) < 0 ? error_errno(err, errno, "%s", path) : 0;
}

/* Nothing but zeros, so that it is taken for sparse. */
static int bomb_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                     size_t *ret_size, struct error *err)
{
	(void)r, (void)path, (void)max_bytes, (void)err;
	*ret = mem_alloc(1 << 20);
	*ret_size = 1 << 20;
	return 0;
}

static int bomb_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                        uint64_t *ret_size_bytes, struct error *err)
{
	(void)r, (void)path, (void)err;
	*ret_free_bytes = 0;
	*ret_size_bytes = 1 << 19;
	return 0;
}

static const struct rootfs_ops filler_ops = {
	.name = "filler", .copy_out = filler_copy_out, .read = filler_read};
static const struct rootfs_ops bomb_ops = {
	.name = "bomb", .copy_out = bomb_copy_out, .read = bomb_read};

static struct tree *extract(struct fixture *f, struct filler *filler)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct tree *tree = NULL;

	tree_remove(f->copy, &ignored);
	filler->base.ops = &filler_ops;
	if (tree_rootfs(&filler->inner, f->source, NULL, &err) < 0 ||
	    tree_extract_lazy(&tree, f->from, &filler->base, f->copy, NULL, &err) < 0) {
		printf("Bail out! %s\n", err.message);
		exit(1);
	}
	return tree;
}

static void done(struct tree *tree, struct filler *filler)
{
	tree_free(tree);
	rootfs_close(filler->inner);
}

static struct stat stat_of(const char *root, const char *path)
{
	CLEANUP_FREE char *full = join(root, path);
	struct stat st = {0};

	if (lstat(full, &st) < 0)
		st.st_mode = 0;
	return st;
}

/* The first bytes of a file as text; NULL: it cannot be opened. */
static char *text_of(const char *root, const char *path)
{
	CLEANUP_FREE char *full = join(root, path);
	CLEANUP_CLOSE int fd = open(full, O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	return n < 0 ? NULL : mem_copy(text, (size_t)n);
}

static void check_text(struct fixture *f, const char *path, const char *want, const char *holds)
{
	CLEANUP_FREE char *text = text_of(f->copy, path);

	check_str(text, want, "%s", holds);
}

static void check_changes(const struct tree *tree, const char *changed, const char *removed,
                          const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv got_changed = {0};
	CLEANUP_STRV struct strv got_removed = {0};
	CLEANUP_FREE char *joined = NULL;
	CLEANUP_FREE char *joined_removed = NULL;

	if (!check(tree_changes(tree, &got_changed, &got_removed, &err) == 0, "%s", holds))
		printf("# %s\n", err.message);
	joined = strv_join(&got_changed, " ");
	joined_removed = strv_join(&got_removed, " ");
	check_str(joined, changed, "these are the changed ones");
	check_str(joined_removed, removed, "these are the removed ones");
}

static void check_placeholders(struct fixture *f, const struct tree *tree)
{
	struct stat st = stat_of(f->copy, "/read");
	struct stat one = stat_of(f->copy, "/one"), two = stat_of(f->copy, "/two");
	struct stat su = stat_of(f->copy, "/su"), big = stat_of(f->copy, "/big");

	check(tree_is_lazy(tree) && tree_filled_bytes(tree) == 0, "no data is copied");
	check(big.st_size == (off_t)BIG_BYTES && big.st_blocks < 16,
	      "a placeholder has the size, but not the data");
	check(st.st_uid == BASE && st.st_mtim.tv_sec == OLD_TIME && (st.st_mode & 07777) == 0644,
	      "it has the owner, time and mode");
	check((su.st_mode & 07777) == 04755, "setuid bits are there");
	check(one.st_ino == two.st_ino && one.st_nlink == 4, "hard links are kept");
	check(tree_data_bytes(tree) > BIG_BYTES && usage_disk_bytes(f->copy) < 1 << 20,
	      "it takes little room on the disk");
	check_changes(tree, "", "", "nothing has changed yet");
	check(tree_filled_bytes(tree) == 0, "looking for changes fills nothing");
}

static void test_fill(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct filler filler = {0};
	struct tree *tree = extract(f, &filler);
	CLEANUP_FREE char *ping = join(f->copy, "/ping");
	unsigned char caps[64];
	struct stat before, after;
	uint64_t filled;

	check_placeholders(f, tree);
	before = stat_of(f->copy, "/read");
	check_text(f, "/read", "content", "a file has its content when it is opened");
	after = stat_of(f->copy, "/read");
	check(after.st_mtim.tv_sec == before.st_mtim.tv_sec && after.st_blocks > 0,
	      "its time is the old one afterwards");
	filled = tree_filled_bytes(tree);
	check(filled == strlen("content"), "the bytes are counted");
	check_text(f, "/read", "content", "it can be opened again");
	check(tree_filled_bytes(tree) == filled, "which fills nothing");
	check_text(f, "/two", "content", "by another name of a file it has its content too");
	check_text(f, "/empty", "", "an empty file is empty");
	check_text(f, "/sub/inner", "inner", "a file in a directory has its content");
	check_text(f, "/su", "su", "a setuid program has its content");
	check((stat_of(f->copy, "/su").st_mode & 07777) == 04755, "and still its bits");
	check_text(f, "/ping", "ping", "a program with capabilities has its content");
	check(getxattr(ping, "security.capability", caps, sizeof(caps)) == sizeof(caps_3) &&
	              memcmp(caps, caps_3, sizeof(caps_3)) == 0,
	      "and still its capabilities");
	check_text(f, "/sparse", "", "a file with holes is opened");
	after = stat_of(f->copy, "/sparse");
	check(after.st_size == 20 << 20 && after.st_blocks < 2048, "and keeps its holes");
	check_changes(tree, "", "", "a file that was only filled has not changed");
	check(tree_check(tree, &err) == 0, "nothing failed");
	done(tree, &filler);
}

/* Through nothing but their paths. */
static void change_unopened(struct fixture *f)
{
	CLEANUP_FREE char *mode = join(f->copy, "/chmod");
	CLEANUP_FREE char *from = join(f->copy, "/rename");
	CLEANUP_FREE char *to = join(f->copy, "/sub/renamed");
	CLEANUP_FREE char *shorter = join(f->copy, "/shorter");
	CLEANUP_FREE char *longer = join(f->copy, "/longer");
	CLEANUP_FREE char *emptied = join(f->copy, "/emptied");
	CLEANUP_FREE char *xattr = join(f->copy, "/xattr");
	CLEANUP_FREE char *removed = join(f->copy, "/removed");
	CLEANUP_FREE char *replaced = join(f->copy, "/replaced");
	CLEANUP_FREE char *touched = join(f->copy, "/touched");
	CLEANUP_FREE char *linked = join(f->copy, "/linked-new");
	CLEANUP_FREE char *link_name = join(f->copy, "/sub/link");
	const struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 5}};

	must(chmod(mode, 0600) == 0 && rename(from, to) == 0, mode);
	must(truncate(shorter, 3) == 0 && truncate(longer, 9) == 0 && truncate(emptied, 0) == 0,
	     shorter);
	must(setxattr(xattr, "trusted.note", "n", 1, 0) == 0, xattr);
	must(unlink(removed) == 0 && unlink(replaced) == 0, removed);
	put_file(f->copy, "/replaced", "another", 0644);
	must(utimensat(AT_FDCWD, touched, times, 0) == 0 && link(linked, link_name) == 0, touched);
}

static void test_changed_unopened(struct fixture *f)
{
	struct filler filler = {0};
	struct tree *tree = extract(f, &filler);
	CLEANUP_FREE char *longer = join(f->copy, "/longer");
	CLEANUP_CLOSE int fd = -1;
	char text[16] = "";

	change_unopened(f);
	check_changes(tree,
	              "/chmod /emptied /linked-new /longer /replaced /shorter /sub/link "
	              "/sub/renamed /touched /xattr",
	              "/removed /rename", "what was done to files by their paths alone is found");
	check(stat_of(f->copy, "/chmod").st_blocks > 0, "a changed file is filled by then");
	check_text(f, "/chmod", "content", "with its content");
	check((stat_of(f->copy, "/chmod").st_mode & 07777) == 0600, "and the new mode");
	check_text(f, "/sub/renamed", "content", "a renamed one too");
	check_text(f, "/sub/link", "content", "a new name of a file too");
	check_text(f, "/xattr", "content", "one with a new attribute too");
	check_text(f, "/replaced", "another", "a file in the place of one keeps its own content");
	check_text(f, "/shorter", "con", "one that was cut has the rest of its content");
	check_text(f, "/emptied", "", "one that was emptied has none");
	check(stat_of(f->copy, "/touched").st_mtim.tv_sec == 5, "a new time is kept");
	fd = open(longer, O_RDONLY | O_CLOEXEC);
	check(fd >= 0 && read(fd, text, sizeof(text)) == 9 && memcmp(text, "content\0", 9) == 0,
	      "one that was made longer has zeros at its end");
	check_changes(tree,
	              "/chmod /emptied /linked-new /longer /replaced /shorter /sub/link "
	              "/sub/renamed /touched /xattr",
	              "/removed /rename", "asked again, it says the same");
	done(tree, &filler);
}

/* Faster than the clock that stamps files: opened, written, and all times set back. */
static void forge(struct fixture *f, const char *path)
{
	const struct timespec times[2] = {{.tv_sec = OLD_TIME}, {.tv_sec = OLD_TIME}};
	CLEANUP_FREE char *full = join(f->copy, path);
	CLEANUP_CLOSE int fd = open(full, O_WRONLY | O_CLOEXEC);

	must(fd >= 0 && write(fd, "behind", 6) == 6 && futimens(fd, times) == 0, full);
}

static void test_changed_after_fill(struct fixture *f)
{
	struct filler filler = {0};
	struct tree *tree = extract(f, &filler);
	CLEANUP_FREE char *late = join(f->copy, "/xattr-late");
	CLEANUP_FREE char *mode = join(f->copy, "/late-mode");
	CLEANUP_FREE char *touched = join(f->copy, "/touched");
	CLEANUP_FREE char *want = NULL;
	CLEANUP_STRV struct strv list = {0};

	for (int i = 0; i < SAME_TICK; i++) {
		strv_addf(&list, "/tick-%d", i);
		forge(f, list.items[i]);
	}
	free(text_of(f->copy, "/xattr-late"));
	must(setxattr(late, "trusted.note", "n", 1, 0) == 0, late);
	free(text_of(f->copy, "/late-mode"));
	must(chmod(mode, 0640) == 0, mode);
	free(text_of(f->copy, "/touched"));
	must(utimensat(AT_FDCWD, touched, NULL, 0) == 0, touched);
	strv_add(&list, "/late-mode");
	strv_add(&list, "/touched");
	strv_add(&list, "/xattr-late");
	strv_sort(&list);
	want = strv_join(&list, " ");
	check_changes(tree, want, "", "a change in the same clock tick as the fill is found");
	check_text(f, "/tick-0", "behind", "and what was written is what is there");
	done(tree, &filler);
}

static int exit_of(pid_t pid)
{
	int status = 0;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Forks all the time: what the filling thread has open is open in these children too. */
static void fork_until(pid_t shell, int *ret_status)
{
	while (waitpid(shell, ret_status, WNOHANG) == 0) {
		pid_t pid = fork();

		if (pid == 0) {
			poll(NULL, 0, 3);
			_exit(0);
		}
		must(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
	}
}

static const char run_programs[] =
	"for i in 0 1 2 3 4 5 6 7 8 9 10 11; do\n"
	"  $0/program-$i & a=$!; $0/program-$i & b=$!; $0/program-$i || exit 1\n"
	"  wait $a || exit 1; wait $b || exit 1\n"
	"done\n";

static void test_exec(struct fixture *f)
{
	struct filler filler = {0};
	struct tree *tree = extract(f, &filler);
	int status = -1;
	pid_t shell = fork();

	if (shell == 0) {
		execl("/bin/sh", "sh", "-c", run_programs, f->copy, (char *)NULL);
		_exit(255);
	}
	fork_until(shell, &status);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	      "programs run, also when several start one at the same time");
	check(tree_filled_bytes(tree) > PROGRAMS * (uint64_t)4096, "they were filled for that");
	check_changes(tree, "", "", "running them changes nothing");
	done(tree, &filler);
}

/* A child that reads the whole of the big file: 0 if all is there. */
static pid_t start_reader(struct fixture *f)
{
	CLEANUP_FREE char *full = join(f->copy, "/big");
	CLEANUP_FREE char *data = mem_alloc(BIG_BYTES);
	pid_t pid = fork();
	size_t good = 0;
	int fd;

	if (pid != 0)
		return pid;
	fd = open(full, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, data, BIG_BYTES) != (ssize_t)BIG_BYTES)
		_exit(1);
	while (good < BIG_BYTES && data[good] == 'b')
		good++;
	_exit(good == BIG_BYTES ? 0 : 2);
}

static void test_second_opener(struct fixture *f)
{
	struct filler filler = {.slow = true};
	struct tree *tree = extract(f, &filler);
	CLEANUP_FREE char *big = join(f->copy, "/big");
	pid_t pids[3];
	int good = 0;

	for (size_t i = 0; i < 3; i++) {
		pids[i] = start_reader(f);
		poll(NULL, 0, WAIT_MS * 2 / 3); /* before, while and after data is written */
	}
	must(chmod(big, 0600) == 0, big);
	for (size_t i = 0; i < 3; i++)
		good += exit_of(pids[i]) == 0;
	check(good == 3, "who opens a file that is half full waits for the rest");
	check_changes(tree, "/big", "", "a change while a file is filled is found");
	done(tree, &filler);
}

static void test_failure(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error again = ERROR_INIT;
	CLEANUP_ERROR struct error changes = ERROR_INIT;
	CLEANUP_STRV struct strv changed = {0};
	CLEANUP_STRV struct strv removed = {0};
	struct filler filler = {.torn = true};
	struct tree *tree = extract(f, &filler);
	CLEANUP_FREE char *text = NULL;

	check(tree_check(tree, &err) == 0, "nothing failed yet");
	text = text_of(f->copy, "/bad");
	check(!text && errno == EPERM, "a file that cannot be filled cannot be opened");
	check_text(f, "/read", "content", "others can");
	check(tree_check(tree, &err) == -1 && strstr(err.message, "'/bad'") &&
	              strstr(err.message, "bad block"),
	      "why is told, with the path");
	check(tree_check(tree, &again) == -1 && str_equal(err.message, again.message),
	      "as often as it is asked");
	check(tree_changes(tree, &changed, &removed, &changes) == -1 &&
	              strstr(changes.message, "bad block") && !changed.count,
	      "the changes are not told then");
	done(tree, &filler);
}

static void test_bomb(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct rootfs_ops small_ops = *f->from->ops;
	const struct rootfs_ops *real_ops = f->from->ops;
	struct rootfs bomb = {.ops = &bomb_ops};
	struct tree *tree = NULL;
	CLEANUP_FREE char *text = NULL;

	small_ops.statvfs = bomb_statvfs;
	tree_remove(f->copy, &ignored);
	f->from->ops = &small_ops;
	must(tree_extract_lazy(&tree, f->from, &bomb, f->copy, NULL, &err) == 0, "bomb");
	f->from->ops = real_ops;
	text = text_of(f->copy, "/big");
	check(!text && tree_check(tree, &err) == -1 && strstr(err.message, "more data than") &&
	              error_exit_code(&err) == EXIT_INPUT,
	      "more data than the file systems can hold is not filled");
	tree_free(tree);
}

/* The directory is given up while somebody waits for a file. */
static void test_free(struct fixture *f)
{
	struct filler filler = {.slow = true};
	struct tree *tree = extract(f, &filler);
	pid_t first = start_reader(f);

	poll(NULL, 0, WAIT_MS / 4);
	done(tree, &filler);
	check(exit_of(first) == 0, "a fill that goes on is ended before the tree is");
}

static void drop_sys_admin(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	must(syscall(SYS_capget, &header, data) == 0, "capget");
	data[0].effective &= ~(1u << CAP_SYS_ADMIN);
	must(syscall(SYS_capset, &header, data) == 0, "capset");
}

static void test_without_fanotify(struct fixture *f)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct filler filler = {0};
		struct tree *tree;

		drop_sys_admin();
		tree = extract(f, &filler);
		_exit(!tree_is_lazy(tree) && tree_filled_bytes(tree) > BIG_BYTES &&
		                      stat_of(f->copy, "/big").st_blocks > 0
		              ? 0
		              : 1);
	}
	check(exit_of(pid) == 0, "without permission events all data is copied at once");
	check_text(f, "/read", "content", "and is there");
}

static const char make_guest[] =
	"set -e; t=$1; b=$2; cd /\n"
	"mkdir -p $t/bin $t/etc $t/root\n"
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
	"for p in bash cat cp; do\n"
	"  f=$(command -v $p)\n"
	"  cp -L $f $t/bin/$p\n"
	"  for l in $(ldd $f | grep -o '/[^ ]*'); do\n"
	"    mkdir -p $t${l%/*}; [ -e $t$l ] || cp -L $l $t$l\n"
	"  done\n"
	"done\n"
	"echo from the image >$t/etc/file; echo old >$t/etc/other\n"
	"chown -hR $b:$b $t\n";

/* In its namespaces, over its bind mount, as another user. */
static void run_in_sandbox(const char *copy, struct tree *tree)
{
	const char *const argv[] = {"bash", "-c",
	                            "cat /etc/file; cp /bin/cat /bin/new; /bin/new /etc/other; "
	                            "echo more >>/etc/other",
	                            NULL};
	const struct sandbox_options options = {.dir = copy, .data_dir = "/nonexistent"};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SANDBOX struct sandbox *sandbox = NULL;
	CLEANUP_FREE char *out = NULL;
	CLEANUP_FREE char *other = NULL;
	const struct guest_command command = {
		.argv = argv, .ret_stdout = &out, .max_bytes = OUTPUT_MAX, .timeout_ms = 60000};

	if (!check(sandbox_new(&sandbox, &options, &err) == 0 &&
	                   sandbox_run(sandbox, &command, &err) == 0,
	           "a program runs in the sandbox"))
		printf("# %s\n", err.message);
	check_str(out, "from the image\nold\n", "and sees the image's files");
	check_changes(tree, "/bin/new /etc/other", "", "only what it wrote has changed");
	other = text_of(copy, "/etc/other");
	check_str(other, "old\nmore\n", "what it appended stands behind the image's content");
}

static void test_sandbox(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *guest = join(f->dir, "/guest");
	CLEANUP_FREE char *copy = join(f->dir, "/guest-copy");
	CLEANUP_FREE char *base = str_format("%u", BASE);
	const char *const argv[] = {"sh", "-c", make_guest, "sh", guest, base, NULL};
	CLEANUP_ROOTFS struct rootfs *from = NULL;
	CLEANUP_ROOTFS struct rootfs *filler = NULL;
	struct tree *tree = NULL;

	if (sandbox_check_host(f->dir, &err) < 0) {
		check(true, "a program runs in the sandbox # SKIP %s", err.message);
		return;
	}
	must(mkdir(guest, 0755) == 0 && proc_run(argv, NULL, NULL, 0, &err) == 0, guest);
	must(tree_rootfs(&from, guest, NULL, &err) == 0 &&
	             tree_rootfs(&filler, guest, NULL, &err) == 0 &&
	             tree_extract_lazy(&tree, from, filler, copy, NULL, &err) == 0,
	     guest);
	run_in_sandbox(copy, tree);
	tree_free(tree);
}

/* Whether this host can do it at all. */
static bool have_placeholders(struct fixture *f)
{
	struct filler filler = {0};
	struct tree *tree = extract(f, &filler);
	bool lazy = tree_is_lazy(tree);

	done(tree, &filler);
	return lazy;
}

int main(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct fixture f = {.dir = str_copy("/var/tmp/gpuimg-lazy-XXXXXX")};

	if (geteuid() != 0 || !mkdtemp(f.dir) || chmod(f.dir, 0755) < 0) {
		printf("1..0 # SKIP needs root and /var/tmp\n");
		return 0;
	}
	f.source = str_format("%s/source", f.dir);
	f.copy = str_format("%s/copy", f.dir);
	make_source(f.source);
	must(tree_rootfs(&f.from, f.source, NULL, &err) == 0, "source");
	if (have_placeholders(&f)) {
		test_fill(&f);
		test_changed_unopened(&f);
		test_changed_after_fill(&f);
		test_exec(&f);
		test_second_opener(&f);
		test_failure(&f);
		test_bomb(&f);
		test_free(&f);
		test_without_fanotify(&f);
		test_sandbox(&f);
	} else {
		check(true, "placeholders # SKIP no fanotify permission events here");
	}
	rootfs_close(f.from);
	check(tree_remove(f.dir, &err) == 0 && access(f.dir, F_OK) < 0, "all is removed again");
	free(f.source);
	free(f.copy);
	free(f.dir);
	return tap_done();
}
