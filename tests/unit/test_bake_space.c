/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for packages: what the base has free, what a driver that was taken out of the tree leaves
 * free, and what of it does not count. Needs root, for owners; where it is missing, all is skipped.
 */
#include "builder/bake.h"
#include "builder/workdir.h"
#include "tree-fixture.h"

#define MIB    (1024ull * 1024)
#define MARGIN (256 * MIB)

/* The base: files of a directory, and as much free space as a test wants. Whatever is below
 * /usr/other is on a file system of its own. */
struct base {
	struct rootfs base;
	struct rootfs *files;
	uint64_t free_bytes;
};

static struct base *base_of(struct rootfs *r)
{
	return (struct base *)r;
}

static int base_lstat(struct rootfs *r, const char *path, struct rootfs_stat *ret,
                      struct error *err)
{
	int found = rootfs_lstat(base_of(r)->files, path, ret, err);

	ret->device = str_starts(path, "/usr/other") ? 2 : 1;
	return found;
}

static int base_readlink(struct rootfs *r, const char *path, char **ret, struct error *err)
{
	return rootfs_readlink(base_of(r)->files, path, ret, err);
}

static int base_list(struct rootfs *r, const char *path, struct strv *ret, struct error *err)
{
	return rootfs_list(base_of(r)->files, path, ret, err);
}

static int base_statvfs(struct rootfs *r, const char *path, uint64_t *ret_free_bytes,
                        uint64_t *ret_size_bytes, struct error *err)
{
	(void)path;
	(void)err;
	*ret_free_bytes = base_of(r)->free_bytes;
	*ret_size_bytes = 100 * MARGIN;
	return 0;
}

static const struct rootfs_ops base_ops = {
	.name = "test",
	.lstat = base_lstat,
	.readlink = base_readlink,
	.list = base_list,
	.statvfs = base_statvfs,
};

static void put_bytes(const char *root, const char *path, size_t size)
{
	CLEANUP_FREE char *text = mem_alloc(size + 1);

	memset(text, 'x', size);
	put_file(root, path, text, 0, 0644);
}

static void make_source(const char *s)
{
	static const char *const dirs[] = {"/usr", "/usr/lib", "/usr/lib/nvidia", "/usr/other",
	                                   "/proc"};

	must(mkdir(s, 0755) == 0 && chown(s, TREE_UID_BASE, TREE_UID_BASE) == 0, s);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		put_dir(s, dirs[i], 0, 0755);
	put_bytes(s, "/usr/lib/nvidia/libcuda.so.1", 2 * MIB);
	put_bytes(s, "/usr/lib/libnvidia-ml.so.1", MIB + 4095);
	put_bytes(s, "/usr/other/nvidia.ko", 50 * MIB);
}

/* The answer with this much free, for 5 MiB of packages. */
static void expect(struct build *b, uint64_t free_bytes, const char *words, const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	int result;

	base_of(b->base_root)->free_bytes = free_bytes;
	result = bake_check_space(b, "driver 1", 5 * MIB, &err);
	if (!check(words ? result == -1 && err.code == EXIT_INPUT && strstr(err.message, words)
	                 : result == 0,
	           "%s", holds))
		printf("# %s\n", err.message ? err.message : "no error");
}

static void test_tree(struct build *b, const char *t)
{
	expect(b, MARGIN + 5 * MIB, NULL, "what is just enough is enough");
	expect(b, MARGIN + 5 * MIB - 1, "too full for driver 1: 261.0 MiB free, 261.0 MiB needed",
	       "a byte less is not");
	drop_path(t, "/usr/lib/nvidia/libcuda.so.1");
	drop_path(t, "/usr/lib/nvidia");
	expect(b, MARGIN + 4 * MIB, "free, 261", "files that are gone do not count by themselves");
	b->driver_found = (char *)"a driver";
	expect(b, MARGIN + 3 * MIB, NULL, "those of a driver that was taken out do");
	expect(b, MARGIN + 3 * MIB - 1, "and 2.0 MiB of the driver that is taken out",
	       "and no more than that, which is told");
	drop_path(t, "/usr/lib/libnvidia-ml.so.1");
	expect(b, MARGIN + 2 * MIB, NULL, "of each file its whole blocks");
	expect(b, MARGIN + 2 * MIB - 1, "too full", "and not the rest");
	drop_path(t, "/usr/other/nvidia.ko");
	expect(b, MARGIN + 2 * MIB - 1, "too full", "nothing of another file system");
}

static void run(const char *dir)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *source = in(dir, "/source");
	CLEANUP_FREE char *tree = in(dir, "/tree");
	struct base base = {.base = {.ops = &base_ops}};
	struct base now = {.base = {.ops = &base_ops}};
	struct build b = {.base_root = &base.base, .work_dir = (char *)dir};

	make_source(source);
	must(tree_rootfs(&base.files, source, NULL, &err) == 0 &&
	             tree_extract(&b.tree, base.files, tree, NULL, &err) == 0,
	     "tree");
	test_tree(&b, tree);
	tree_free(b.tree);
	b.tree = NULL;
	b.root = &now.base;
	now.files = base.files;
	now.free_bytes = MARGIN + 5 * MIB;
	expect(&b, 0, NULL, "in the appliance the image itself tells what is free by now");
	rootfs_close(base.files);
}

int main(void)
{
	char dir[] = "/tmp/gpuimg-space-XXXXXX";

	if (geteuid() != 0) {
		printf("1..0 # SKIP needs root\n");
		return 0;
	}
	must(mkdtemp(dir) != NULL, dir);
	run(dir);
	workdir_remove(dir);
	return tap_done();
}
