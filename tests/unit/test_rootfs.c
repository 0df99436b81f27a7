/* SPDX-License-Identifier: Apache-2.0 */
/* The shared part of rootfs.h, over a small guest in memory. */
#include <sys/stat.h>

#include "builder/rootfs.h"
#include "tap.h"

#define NODES_MAX 64

struct node {
	char *path;
	uint32_t mode;
	char *text; /* content or link target */
};

struct memory {
	struct rootfs base;
	struct node nodes[NODES_MAX];
	size_t count;
	unsigned lstats;
};

static struct node *find(struct rootfs *r, const char *path)
{
	struct memory *m = (struct memory *)r;

	for (size_t i = 0; i < m->count; i++)
		if (m->nodes[i].path && str_equal(m->nodes[i].path, path))
			return &m->nodes[i];
	return NULL;
}

static void add(struct rootfs *r, const char *path, uint32_t mode, const char *text)
{
	struct memory *m = (struct memory *)r;

	if (m->count < NODES_MAX)
		m->nodes[m->count++] = (struct node){str_copy(path), mode, str_copy(text)};
}

static void drop(struct node *n)
{
	free(n->path);
	free(n->text);
	*n = (struct node){0};
}

static int op_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret, struct error *err)
{
	const struct node *n = find(r, path);

	((struct memory *)r)->lstats++;
	if (n && str_equal(n->text, "broken"))
		return error_set(err, "the disk is broken");
	if (!n)
		return 0;
	*ret = (struct rootfs_stat){.mode = n->mode, .size_bytes = strlen(n->text)};
	return 1;
}

static int op_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	(void)err;
	*ret = str_copy(find(r, path)->text);
	return 0;
}

static int op_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	const struct memory *m = (struct memory *)r;
	CLEANUP_FREE char *prefix = str_format("%s/", str_equal(path, "/") ? "" : path);

	(void)err;
	strv_add(ret, ".");
	strv_add(ret, "..");
	for (size_t i = m->count; i > 0; i--) {
		const char *child = m->nodes[i - 1].path;

		if (child && str_starts(child, prefix) && child[strlen(prefix)] &&
		    !strchr(child + strlen(prefix), '/'))
			strv_add(ret, child + strlen(prefix));
	}
	return 0;
}

static int op_read(struct rootfs *r, const char *path, size_t max_bytes, void **ret,
                   size_t *ret_size, struct error *err)
{
	const char *text = find(r, path)->text;

	if (strlen(text) > max_bytes)
		return error_set(err, "too large");
	*ret = str_copy(text);
	*ret_size = strlen(text);
	return 0;
}

static int op_write(struct rootfs *r, const char *path, const void *data, size_t size,
                    uint32_t mode, struct error *err)
{
	CLEANUP_FREE char *text = mem_copy(data, size);

	(void)err;
	if (find(r, path))
		drop(find(r, path));
	add(r, path, S_IFREG | mode, text);
	return 0;
}

static int op_mkdir(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	if (find(r, path))
		return error_set(err, "'%s' is there", path);
	add(r, path, S_IFDIR | mode, "");
	return 0;
}

static int op_symlink(struct rootfs *r, const char *target, const char *path, struct error *err)
{
	if (find(r, path))
		return error_set(err, "'%s' is there", path);
	add(r, path, S_IFLNK | 0777, target);
	return 0;
}

static int op_remove(struct rootfs *r, const char *path, struct error *err)
{
	if (!find(r, path))
		return error_set(err, "'%s' is missing", path);
	drop(find(r, path));
	return 0;
}

static int op_rename(struct rootfs *r, const char *from, const char *to, struct error *err)
{
	struct node *n = find(r, from);

	(void)err;
	if (find(r, to))
		drop(find(r, to));
	free(n->path);
	n->path = str_copy(to);
	return 0;
}

static int op_chmod(struct rootfs *r, const char *path, uint32_t mode, struct error *err)
{
	(void)err;
	find(r, path)->mode = (find(r, path)->mode & S_IFMT) | mode;
	return 0;
}

static void op_close(struct rootfs *r)
{
	struct memory *m = (struct memory *)r;

	for (size_t i = 0; i < m->count; i++)
		drop(&m->nodes[i]);
	free(m);
}

static const struct rootfs_ops writable = {
	.name = "memory",
	.lstat = op_lstat,
	.readlink = op_readlink,
	.list = op_list,
	.read = op_read,
	.write = op_write,
	.mkdir = op_mkdir,
	.symlink = op_symlink,
	.rename = op_rename,
	.remove = op_remove,
	.chmod = op_chmod,
	.close = op_close,
};

static const struct rootfs_ops read_only = {
	.name = "memory",
	.lstat = op_lstat,
	.readlink = op_readlink,
	.list = op_list,
	.read = op_read,
	.close = op_close,
};

static struct rootfs *make_guest(const struct rootfs_ops *ops)
{
	struct memory *m = mem_alloc(sizeof(*m));
	struct rootfs *r = &m->base;

	r->ops = ops;
	add(r, "/", S_IFDIR | 0755, "");
	add(r, "/etc", S_IFDIR | 0755, "");
	add(r, "/etc/fstab", S_IFREG | 0644, "guest");
	add(r, "/etc/up", S_IFLNK | 0777, "../../../../../etc/fstab");
	add(r, "/etc/abs", S_IFLNK | 0777, "/etc/fstab");
	add(r, "/etc/rel", S_IFLNK | 0777, "fstab");
	add(r, "/etc/rel2", S_IFLNK | 0777, "./abs");
	add(r, "/etc/loop", S_IFLNK | 0777, "loop");
	add(r, "/etc/ping", S_IFLNK | 0777, "pong");
	add(r, "/etc/pong", S_IFLNK | 0777, "ping/x");
	add(r, "/etc/dangling", S_IFLNK | 0777, "../run/systemd/stub");
	add(r, "/etc/empty", S_IFLNK | 0777, "");
	add(r, "/usr", S_IFDIR | 0755, "");
	add(r, "/usr/lib", S_IFDIR | 0755, "");
	add(r, "/usr/lib/os", S_IFREG | 0644, "os");
	add(r, "/lib", S_IFLNK | 0777, "usr/lib");
	add(r, "/var", S_IFDIR | 0755, "");
	add(r, "/var/run", S_IFLNK | 0777, "/run");
	add(r, "/run", S_IFDIR | 0755, "");
	add(r, "/dev", S_IFDIR | 0755, "");
	add(r, "/dev/fifo", S_IFIFO | 0644, "");
	add(r, "/bad", S_IFREG | 0644, "broken");
	return r;
}

/* "RESULT PATH" of a resolution. */
static void check_resolve(struct rootfs *r, const char *path, bool follow, const char *want)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *real = NULL;
	int found = rootfs_resolve(r, path, follow, &real, &err);
	CLEANUP_FREE char *got = str_format("%d %s", found, real ? real : "-");

	check_str(got, want, "'%s' (last link %s) resolves to '%s'", path,
	          follow ? "followed" : "kept", want);
}

static void test_resolve(void)
{
	CLEANUP_ROOTFS struct rootfs *r = make_guest(&writable);

	check_resolve(r, "/", true, "1 /");
	check_resolve(r, "", true, "1 /");
	check_resolve(r, "etc//./fstab", true, "1 /etc/fstab");
	check_resolve(r, "/../../etc/../etc/fstab", true, "1 /etc/fstab");
	check_resolve(r, "/etc/up", true, "1 /etc/fstab");
	check_resolve(r, "/etc/up", false, "1 /etc/up");
	check_resolve(r, "/etc/rel2", true, "1 /etc/fstab");
	check_resolve(r, "/lib/os", false, "1 /usr/lib/os");
	check_resolve(r, "/lib", false, "1 /lib");
	check_resolve(r, "/lib/", false, "1 /usr/lib");
	check_resolve(r, "/lib/.", false, "1 /usr/lib");
	check_resolve(r, "/lib/..", true, "1 /usr");
	check_resolve(r, "/var/run/../etc/rel", true, "1 /etc/fstab");
	check_resolve(r, "/etc/new", true, "0 /etc/new");
	check_resolve(r, "/none/new", true, "0 -");
	check_resolve(r, "/none/../etc", true, "0 -");
	check_resolve(r, "/etc/fstab/x", true, "0 -");
	check_resolve(r, "/etc/fstab/..", true, "1 /etc");
	check_resolve(r, "/etc/dangling", true, "0 -");
	check_resolve(r, "/etc/empty", true, "0 -");
	check_resolve(r, "/etc/loop", true, "-1 -");
	check_resolve(r, "/etc/loop", false, "1 /etc/loop");
	check_resolve(r, "/etc/ping", true, "-1 -");
	check(((struct memory *)r)->lstats < 2000, "loops of links are given up soon");
}

static void test_resolve_new(void)
{
	CLEANUP_ROOTFS struct rootfs *r = make_guest(&writable);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *stub = NULL;
	CLEANUP_FREE char *file = NULL;
	CLEANUP_FREE char *below = NULL;

	check(rootfs_resolve_new(r, "/etc/dangling", &stub, &err) == 0,
	      "a dangling link is missing");
	check_str(stub, "/run/systemd/stub", "it leads to where its file would be");
	check(rootfs_resolve_new(r, "/etc/rel", &file, &err) == 1, "a good link is there");
	check_str(file, "/etc/fstab", "it leads to its file");
	check(rootfs_resolve_new(r, "/etc/fstab/x/y", &below, &err) == 0 && !below,
	      "below a file nothing can be made");
}

static void test_readers(void)
{
	CLEANUP_ROOTFS struct rootfs *r = make_guest(&read_only);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ERROR struct error io = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_STRV struct strv none = {0};
	CLEANUP_FREE char *joined = NULL;
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *link = NULL;
	struct rootfs_stat st;
	size_t size = 0;

	check(rootfs_list(r, "/lib/../../usr/..", &names, &err) == 0, "the root can be listed");
	joined = strv_join(&names, " ");
	check_str(joined, "bad dev etc lib run usr var", "names are sorted, without dots");
	check(rootfs_list(r, "/none/at/all", &none, &err) == 0 && none.count == 0,
	      "a missing directory has no names");
	check(rootfs_list(r, "/etc/fstab", &none, &err) == -1 && strstr(err.message, "/etc/fstab"),
	      "a file cannot be listed");
	check(rootfs_read(r, "/etc/up", 5, (void **)&text, &size, &err) == 0 && size == 5,
	      "a link to a file can be read");
	check_str(text, "guest", "it is the guest's file");
	check(rootfs_read(r, "/etc/fstab", 4, (void **)&link, NULL, &err) == -1 && !link &&
	              err.code == EXIT_INPUT,
	      "a file that is larger than allowed is refused");
	check(rootfs_read(r, "/dev/fifo", 100, (void **)&link, NULL, &err) == -1 &&
	              strstr(err.message, "no regular file"),
	      "a FIFO is not read");
	check(rootfs_read(r, "/none", 100, (void **)&link, NULL, &err) == -1 &&
	              strstr(err.message, "'/none'"),
	      "a missing file is named");
	check(rootfs_readlink(r, "/etc/dangling", &link, &err) == 0, "a link can be read");
	check_str(link, "../run/systemd/stub", "its own text is told");
	check(rootfs_readlink(r, "/etc/fstab", &link, &err) == -1, "a file is no link");
	check(rootfs_lstat(r, "/lib", &st, &err) == 1 && S_ISLNK(st.mode), "lstat keeps a link");
	check(rootfs_stat(r, "/lib", &st, &err) == 1 && S_ISDIR(st.mode), "stat follows it");
	check(rootfs_is_dir(r, "/lib") && !rootfs_is_dir(r, "/etc/fstab"), "directories are told");
	check(rootfs_exists(r, "/etc/up") && !rootfs_exists(r, "/etc/dangling") &&
	              !rootfs_exists(r, "/etc/loop"),
	      "a dangling link and a loop do not exist");
	check(rootfs_stat(r, "/bad", &st, &io) == -1 && strstr(io.message, "'/bad'") &&
	              strstr(io.message, "broken"),
	      "an error of the disk is passed on, with the path");
	check(rootfs_write(r, "/etc/x", "", 0, 0644, &err) == -1 &&
	              strstr(err.message, "read-only") &&
	              rootfs_remove(r, "/etc/fstab", &err) == -1 &&
	              rootfs_mkdir(r, "/etc/y", 0755, &err) == -1,
	      "a read-only guest cannot be changed");
	check(rootfs_run(r, &(struct guest_command){.argv = (const char *const[]){"x", NULL}},
	                 &err) == -1 &&
	              strstr(err.message, "'x'"),
	      "nor can it run a program");
}

static const char *text_at(struct rootfs *r, const char *path)
{
	const struct node *n = find(r, path);

	return n ? n->text : NULL;
}

static void test_write(void)
{
	CLEANUP_ROOTFS struct rootfs *r = make_guest(&writable);
	CLEANUP_ERROR struct error err = ERROR_INIT;

	check(rootfs_write(r, "/lib/modprobe.d/a/x.conf", "x", 1, 0640, &err) == 0 &&
	              str_equal(text_at(r, "/usr/lib/modprobe.d/a/x.conf"), "x"),
	      "missing directories are made, behind a link too");
	check(find(r, "/usr/lib/modprobe.d")->mode == (S_IFDIR | 0755) &&
	              find(r, "/usr/lib/modprobe.d/a/x.conf")->mode == (S_IFREG | 0640),
	      "directories are 0755, the file has the mode asked for");
	check(rootfs_write(r, "/etc/rel", "new", 3, 0644, &err) == 0 &&
	              str_equal(text_at(r, "/etc/fstab"), "guest") &&
	              S_ISREG(find(r, "/etc/rel")->mode),
	      "a link in the last place is replaced, not written through");
	check(rootfs_write(r, "/etc", "x", 1, 0644, &err) == -1, "a directory is not overwritten");
	check(rootfs_write(r, "/etc/fstab/x", "x", 1, 0644, &err) == -1,
	      "nothing is written below a file");
	check(rootfs_write(r, "/etc/..", "x", 1, 0644, &err) == -1 &&
	              rootfs_write(r, "/", "x", 1, 0644, &err) == -1,
	      "a path without a last name is refused");
}

static void test_change(void)
{
	CLEANUP_ROOTFS struct rootfs *r = make_guest(&writable);
	CLEANUP_ERROR struct error err = ERROR_INIT;

	check(rootfs_mkdir(r, "/lib", 0700, &err) == 0 && S_ISLNK(find(r, "/lib")->mode),
	      "a link to a directory stays when that directory is asked for");
	check(rootfs_mkdir(r, "/etc/dangling", 0755, &err) == -1,
	      "a dangling link is not replaced by a directory");
	check(rootfs_mkdir(r, "/var/run/a/b", 0750, &err) == 0 &&
	              find(r, "/run/a/b")->mode == (S_IFDIR | 0750),
	      "a directory is made with its parents");
	add(r, "/etc/abs.gpuimg-new", S_IFREG | 0644, "left over");
	check(rootfs_symlink(r, "elsewhere", "/etc/abs", &err) == 0 &&
	              str_equal(text_at(r, "/etc/abs"), "elsewhere") &&
	              !find(r, "/etc/abs.gpuimg-new"),
	      "a link replaces what stood there, and leaves nothing behind");
	check(rootfs_symlink(r, "x", "/new/link", &err) == 0 &&
	              str_equal(text_at(r, "/new/link"), "x"),
	      "a new link is made with its directory");
	check(rootfs_symlink(r, "x", "/usr", &err) == -1, "a link does not replace a directory");
	check(rootfs_rename(r, "/etc/up", "/srv/up", &err) == 0 && find(r, "/srv/up") &&
	              !find(r, "/etc/up"),
	      "a link is renamed, not what it points to");
	check(rootfs_rename(r, "/none", "/srv/x", &err) == -1, "a missing file cannot be renamed");
	check(rootfs_remove(r, "/lib", &err) == 0 && !find(r, "/lib") && find(r, "/usr/lib"),
	      "a link is removed, not what it points to");
	check(rootfs_remove(r, "/lib", &err) == 0 && rootfs_remove(r, "/none/x", &err) == 0,
	      "what is missing is removed already");
	check(rootfs_remove(r, "/", &err) == -1, "the root is not removed");
	check(rootfs_chmod(r, "/etc/fstab", 0600, &err) == 0 &&
	              find(r, "/etc/fstab")->mode == (S_IFREG | 0600),
	      "a mode is changed");
	check(rootfs_chmod(r, "/etc/rel", 0600, &err) == -1, "a link has no mode to change");
}

int main(void)
{
	test_resolve();
	test_resolve_new();
	test_readers();
	test_write();
	test_change();
	return tap_done();
}
