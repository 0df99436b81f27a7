/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Package transactions that are taken from the cache: what is the same input, what is not, what is
 * kept and when, and what comes back. Needs root, for owners; where it is missing, all is skipped.
 */
#include <dirent.h>
#include <signal.h>

#include "builder/cache-internal.h"
#include "builder/changes-digest.h"
#include "builder/fd.h"
#include "builder/reuse-internal.h"
#include "builder/reuse.h"
#include "builder/transaction.h"
#include "builder/zstd-pipe.h"
#include "tree-fixture.h"

#define BASE TREE_UID_BASE

struct fixture {
	char *dir, *source, *work, *cache_dir, *tree_dir;
	struct cache *cache;
	struct options options;
	struct strv inputs;
};

/* One build, up to the transaction. */
struct attempt {
	struct build b;
	int found;
	struct error err;
};

static void make_source(const char *s)
{
	static const char *const dirs[] = {
		"/etc",     "/etc/modprobe.d", "/usr",  "/usr/sbin", "/usr/lib", "/var",
		"/var/log", "/var/cache",      "/proc", "/tmp",      "/opt"};

	must(mkdir(s, 0755) == 0 && chown(s, BASE, BASE) == 0, s);
	for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
		put_dir(s, dirs[i], 0, 0755);
	put_file(s, "/etc/status", "nothing", 0, 0644);
	put_file(s, "/etc/machine-id", "", 0, 0444);
	put_file(s, "/usr/lib/old", "old", 0, 0644);
	put_file(s, "/usr/lib/other", "other", 0, 0644);
}

/* What the stages before, and the plan, leave behind; 'id' is what is new in each build. */
static void begin_tree(const char *t, const char *id)
{
	put_file(t, "/etc/machine-id", id, 0, 0444);
	put_file(t, "/etc/modprobe.d/block", "blacklist nouveau", 0, 0644);
	put_file(t, "/usr/sbin/policy-rc.d", "exit 101", 0, 0755);
	put_dir(t, APT_DIR, 0, 0755);
	put_file(t, APT_DIR "/lists", id, 0, 0644);
	put_file(t, "/var/log/dpkg.log", id, 0, 0644);
	put_dir(t, "/opt/empty", 0, 0755);
	{
		CLEANUP_FREE char *opt = in(t, "/opt");

		must(chmod(opt, 0700) == 0, opt);
	}
}

static void end_apt(const char *t)
{
	drop_path(t, APT_DIR "/lists");
	drop_path(t, APT_DIR);
	drop_path(t, "/usr/sbin/policy-rc.d");
}

static void install(const char *t)
{
	CLEANUP_FREE char *opt = in(t, "/opt");

	put_file(t, "/etc/status", "driver installed", 0, 0644);
	put_dir(t, "/usr/lib/driver", 0, 0755);
	put_file(t, "/usr/lib/driver/nvidia.ko", "module", 0, 0644);
	put_link(t, "/usr/lib/driver/nvidia.ko", "/usr/lib/driver/again.ko");
	put_file(t, "/usr/lib/driver/su", "su", 44, 04755);
	drop_path(t, "/usr/lib/old");
	drop_path(t, "/opt/empty");
	must(chmod(opt, 0755) == 0, opt); /* as in the base again */
}

static void start(struct fixture *f, struct attempt *a, const char *id)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_ROOTFS struct rootfs *from = NULL;

	*a = (struct attempt){.b = {.options = &f->options,
	                            .sandbox = true,
	                            .cache = f->cache,
	                            .work_dir = f->work,
	                            .data_dir = f->dir,
	                            .base_digest = (char *)"0123",
	                            .source_date_epoch = 5}};
	must(tree_rootfs(&from, f->source, NULL, &err) == 0 &&
	             tree_extract(&a->b.tree, from, f->tree_dir, NULL, &err) == 0 &&
	             tree_rootfs(&a->b.root, f->tree_dir, NULL, &err) == 0,
	     err.message ? err.message : "tree");
	begin_tree(f->tree_dir, id);
}

static void ask(struct fixture *f, struct attempt *a)
{
	a->found = transaction_reuse(&a->b, "driver", &f->inputs, &a->err);
}

/* What it would be kept under; NULL: nothing is to be kept. */
static struct cache_key *key_of(const struct attempt *a)
{
	return a->b.reuse ? a->b.reuse->transaction.key : NULL;
}

static void end(struct fixture *f, struct attempt *a)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	reuse_finish(&a->b);
	error_free(&a->err);
	rootfs_close(a->b.root);
	tree_free(a->b.tree);
	must(tree_remove(f->tree_dir, &err) == 0, f->tree_dir);
}

/* A build that only asks. */
static void check_found(struct fixture *f, const char *id, int want, const char *holds)
{
	struct attempt a;

	start(f, &a, id);
	ask(f, &a);
	if (!check(a.found == want && (key_of(&a) != NULL) == (want == 0), "%s", holds))
		printf("# %d %s\n", a.found, a.err.message ? a.err.message : "");
	end(f, &a);
}

static char *digest_of(const struct tree *tree)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv changed = {0}, removed = {0};
	char *digest = NULL;

	must(tree_changes(tree, &changed, &removed, &err) == 0, "changes");
	for (size_t i = changed.count; i-- > 0;)
		if (str_equal(changed.items[i], "/etc/machine-id"))
			strv_remove(&changed, i);
	must(changes_digest(&digest, tree, &changed, &removed, &err) == 0, "digest");
	return digest;
}

static bool is_empty_dir(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *d;
	bool empty = true;

	must(dir != NULL, path);
	while ((d = readdir(dir)))
		empty &= *d->d_name == '.';
	closedir(dir);
	return empty;
}

/* The first build installs; its digest is what later ones are compared with. */
static char *install_and_keep(struct fixture *f, bool proven)
{
	struct attempt a;
	char *digest;

	start(f, &a, "first");
	ask(f, &a);
	check(a.found == 0 && key_of(&a), "nothing is known at first");
	install(f->tree_dir);
	end_apt(f->tree_dir);
	a.b.source_date_epoch++;
	transaction_keep(&a.b);
	check(!key_of(&a), "it is kept once, under what was asked for");
	digest = digest_of(a.b.tree);
	if (proven)
		reuse_start_keeping(&a.b);
	end(f, &a);
	check(is_empty_dir(f->work), "nothing stays in the work directory");
	return digest;
}

static void test_taken(struct fixture *f, const char *want)
{
	CLEANUP_FREE char *digest = NULL;
	struct attempt a;

	start(f, &a, "second");
	ask(f, &a);
	if (!check(a.found == 1 && !key_of(&a), "the same build is taken from the cache"))
		printf("# %s\n", a.err.message ? a.err.message : "no error");
	check(text_is(f->tree_dir, "/etc/status", "driver installed") &&
	              text_is(f->tree_dir, "/usr/lib/driver/nvidia.ko", "module") &&
	              stat_of(f->tree_dir, "/usr/lib/driver/again.ko").st_nlink == 2,
	      "what was installed is there");
	check(stat_of(f->tree_dir, "/usr/lib/driver/su").st_uid == BASE + 44 &&
	              (stat_of(f->tree_dir, "/usr/lib/driver/su").st_mode & 07777) == 04755,
	      "with owners and modes");
	check(!is_there(f->tree_dir, "/usr/lib/old"), "what was removed is gone");
	check(!is_there(f->tree_dir, "/usr/sbin/policy-rc.d") &&
	              !is_there(f->tree_dir, "/opt/empty"),
	      "what was there before, and then removed, is gone too");
	check((stat_of(f->tree_dir, "/opt").st_mode & 07777) == 0755,
	      "a directory that was taken back to the base's mode has it");
	check(text_is(f->tree_dir, "/etc/machine-id", "second"),
	      "the machine's id is this build's");
	drop_path(f->tree_dir, APT_DIR "/lists"); /* as apt_close() does */
	drop_path(f->tree_dir, APT_DIR);
	digest = digest_of(a.b.tree);
	check_str(digest, want, "all changes are those of the first build");
	end(f, &a);
	check(is_empty_dir(f->work), "nothing stays in the work directory then");
}

static void test_other_inputs(struct fixture *f)
{
	struct attempt a;

	strv_add(&f->inputs, "package=nvidia=2");
	check_found(f, "x", 0, "another package is another result");
	strv_remove(&f->inputs, f->inputs.count - 1);
	start(f, &a, "x");
	a.b.base_digest = (char *)"4567";
	ask(f, &a);
	check(a.found == 0, "so is another base");
	end(f, &a);
	start(f, &a, "x");
	a.b.source_date_epoch = 6;
	ask(f, &a);
	check(a.found == 0, "and another date for what is made");
	end(f, &a);
	start(f, &a, "x");
	put_file(f->tree_dir, "/etc/modprobe.d/block", "blacklist nouveau nova", 0, 0644);
	ask(f, &a);
	check(a.found == 0, "and what a stage wrote before");
	end(f, &a);
	start(f, &a, "x");
	drop_path(f->tree_dir, "/usr/lib/other");
	ask(f, &a);
	check(a.found == 0, "and what a stage removed before");
	end(f, &a);
	check_found(f, "third", 1, "but not the id, the lists of packages, and logs");
}

static void test_left_out(struct fixture *f)
{
	struct attempt a;

	f->options.cache = false;
	start(f, &a, "x");
	ask(f, &a);
	check(a.found == 0 && !key_of(&a), "with --no-cache nothing is asked");
	transaction_keep(&a.b);
	check(is_empty_dir(f->work), "and nothing is kept");
	end(f, &a);
	f->options.cache = true;
	start(f, &a, "x");
	a.b.sandbox = false;
	ask(f, &a);
	check(a.found == 0 && !key_of(&a), "the appliance does neither");
	end(f, &a);
}

static struct cache_item *only_entry(struct fixture *f, struct cache_items *list)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	must(cache_list(f->cache, true, list, &err) == 0 && list->count == 1, "entries");
	return &list->items[0];
}

static void test_listed(struct fixture *f)
{
	CLEANUP_CACHE_ITEMS struct cache_items list = {0};
	const struct cache_item *item = only_entry(f, &list);
	CLEANUP_FREE char *label = cache_item_label(item);

	check_str(item->kind, "driver", "the cache lists it under its kind");
	check(strstr(label, "branch=535") != NULL, "people see what it is ('%s')", label);
}

/* Under the key of the next build, what is no transaction. */
static void put_garbage(struct fixture *f, const void *head, size_t size, size_t cut)
{
	CLEANUP_FREE char *path = in(f->dir, "/garbage");
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct zstd_pipe *pipe;
	json_t *meta = json_pack("{s:i}", "bytes", 1000);
	struct attempt a;
	struct stat st;

	must(fd >= 0 && zstd_pipe_compress(&pipe, fd, 1, path, &err) == 0 &&
	             fd_write_all(zstd_pipe_fd(pipe), head, size) == 0 &&
	             zstd_pipe_end(pipe, &err) == 0 && fstat(fd, &st) == 0 &&
	             ftruncate(fd, st.st_size - (off_t)cut) == 0,
	     path);
	start(f, &a, "x");
	ask(f, &a);
	must(a.found == 0 && key_of(&a), "a key");
	cache_put(f->cache, key_of(&a), path, meta);
	json_decref(meta);
	end(f, &a);
}

#define HEAD(size) "gpuimg transaction 1 000000000000000000" size "\n"

static void check_garbled(struct fixture *f, const void *head, size_t size, size_t cut,
                          const char *why, const char *holds)
{
	struct attempt a;

	strv_addf(&f->inputs, "garbage=%s", holds);
	put_garbage(f, head, size, cut);
	start(f, &a, "x");
	ask(f, &a);
	if (!check(a.found == -1 && strstr(a.err.message, why) && a.err.hint &&
	                   strstr(a.err.hint, "--no-cache"),
	           "%s", holds))
		printf("# %d %s\n", a.found, a.err.message ? a.err.message : "no error");
	end(f, &a);
	strv_remove(&f->inputs, f->inputs.count - 1);
}

static void test_garbled(struct fixture *f)
{
	CLEANUP_FREE char *kept = in(f->dir, "/kept");
	static const char cut[] = HEAD("04") "/a\0";

	must(mkdir(kept, 0755) == 0, kept);
	check_garbled(f, "nonsense", 8, 0, "garbled", "a file without a head is an error");
	check_garbled(f, HEAD("-4"), 42, 0, "garbled", "a size that is none too");
	check_garbled(f, HEAD("04") "/abc", 46, 0, "garbled", "a list without its end too");
	check_garbled(f, HEAD("04") "abc", 46, 0, "garbled", "a relative path too");
	check_garbled(f, HEAD("02") "/", 44, 0, "garbled", "the root itself too");
	check_garbled(f, cut, sizeof(cut), 0, "garbled", "a list that is longer than the file too");
	check_garbled(f, HEAD("00") "no tar", 48, 0, "tar", "what is no tar too");
	check_garbled(f, HEAD("00"), 42, 3, "too early", "a file that was cut off is told as such");
	check_garbled(f, HEAD("15") "/../../../kept", 57, 0, "", "'..' leads nowhere else");
	check(access(kept, F_OK) == 0, "what is outside stays");
}

static void test_damaged(struct fixture *f)
{
	CLEANUP_CACHE_ITEMS struct cache_items list = {0};
	const struct cache_item *item = only_entry(f, &list);
	CLEANUP_CLOSE int fd = open(item->path, O_WRONLY | O_CLOEXEC);

	must(fd >= 0 && pwrite(fd, "damage", 6, 20) == 6, item->path);
	check_found(f, "x", 0, "an entry whose bytes are not what was kept counts as missing");
}

static void test_network(void)
{
	struct options o = {0};
	struct build b = {.options = &o};

	check(!build_uses_network_packages(&b), "a build without driver and runtime takes none");
	o.driver_branch = (char *)"535";
	o.driver_source = DRIVER_DISTRO;
	check(build_uses_network_packages(&b), "a driver of the distribution comes by the network");
	o.driver_source = DRIVER_NVIDIA_REPO;
	check(build_uses_network_packages(&b), "one of NVIDIA's repository too");
	o.driver_source = DRIVER_RUN;
	check(!build_uses_network_packages(&b), "a .run file does not");
	o.driver_source = DRIVER_DEBS;
	check(!build_uses_network_packages(&b), "nor a directory of packages");
	o.network = true;
	check(build_uses_network_packages(&b), "unless the network may be used beside them");
	o = (struct options){.containerd_runtime = (char *)"nvidia"};
	check(build_uses_network_packages(&b), "a runtime that has to be installed does");
	b.containerd.runtime_binary = (char *)"/usr/bin/nvidia-container-runtime";
	check(!build_uses_network_packages(&b), "one that is there does not");
	strv_add(&b.toolkit_install, "nvidia-container-toolkit=1");
	check(build_uses_network_packages(&b), "unless it was installed by this build");
	strv_free(&b.toolkit_install);
}

static char *image_key(const struct options *o)
{
	struct guest guest = {0};
	struct build b = {
		.options = o, .guest = &guest, .sandbox = true, .data_dir = (char *)"/nonexistent"};
	CLEANUP_CACHE_KEY struct cache_key *key = NULL;
	CLEANUP_ERROR struct error err = ERROR_INIT;

	must(reuse_image_key(&key, &b, &err) == 0, err.message ? err.message : "key");
	return str_copy(cache_key_hex(key));
}

#define OTHER(member, value)                                                                       \
	{                                                                                          \
#member,                                                                           \
		{                                                                                  \
			.member = (value)                                                          \
		}                                                                                  \
	}

static void test_image_key(void)
{
	static const struct options none = {0};
	static char *extra[] = {(char *)"persistenced", NULL};
	const struct {
		const char *name;
		struct options o;
	} others[] = {
		OTHER(driver_branch, (char *)"535"),
		OTHER(driver_flavour, DRIVER_PROPRIETARY),
		OTHER(driver_source, DRIVER_RUN),
		OTHER(driver_path, (char *)"/x.run"),
		OTHER(driver_repo, (char *)"http://localhost/"),
		OTHER(driver_repo_key, (char *)"/proc/self/exe"),
		OTHER(driver_extra, ((struct strv){extra, 1})),
		OTHER(require_signed, true),
		OTHER(replace_driver, true),
		OTHER(allow_branch_forward, true),
		OTHER(dkms_unregister, true),
		OTHER(apt_mirrors, ((struct strv){extra, 1})),
		OTHER(apt_repos, ((struct strv){extra, 1})),
		OTHER(containerd_runtime, (char *)"nvidia"),
		OTHER(default_runtime, true),
		OTHER(toolkit_repo, (char *)"http://localhost/"),
		OTHER(toolkit_key, (char *)"/proc/self/exe"),
	};
	CLEANUP_STRV struct strv seen = {0};

	strv_take(&seen, image_key(&none));
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		char *hex = image_key(&others[i].o);

		check(!strv_has(&seen, hex), "an image with another '%s' is another one",
		      others[i].name);
		strv_take(&seen, hex);
	}
}

static void test_all(struct fixture *f)
{
	CLEANUP_FREE char *unproven = install_and_keep(f, false);
	CLEANUP_FREE char *want = NULL;

	check_found(f, "x", 0, "what was not proven is not kept");
	want = install_and_keep(f, true);
	check_str(want, unproven, "two installations without the cache are the same");
	test_taken(f, want);
	test_listed(f);
	test_other_inputs(f);
	test_left_out(f);
	test_damaged(f);
	test_garbled(f);
}

int main(void)
{
	char dir[] = "/var/tmp/gpuimg-transaction-XXXXXX";
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct fixture f = {.dir = dir, .options = {.cache = true}};

	if (geteuid() != 0) {
		printf("1..0 # SKIP owners of files need root\n");
		return 0;
	}
	signal(SIGPIPE, SIG_IGN); /* as main() does */
	must(mkdtemp(dir) != NULL, dir);
	f.source = in(dir, "/source");
	f.work = in(dir, "/work");
	f.cache_dir = in(dir, "/cache");
	f.tree_dir = in(dir, "/tree");
	strv_add(&f.inputs, "branch=535");
	strv_add(&f.inputs, "package=nvidia=1");
	must(mkdir(f.work, 0700) == 0, f.work);
	make_source(f.source);
	must(cache_open(&f.cache, f.cache_dir, 0, false, NULL, &err) == 0, f.cache_dir);
	test_all(&f);
	test_network();
	test_image_key();
	cache_close(f.cache);
	check(tree_remove(dir, &err) == 0, "all of it can be removed");
	strv_free(&f.inputs);
	free(f.source);
	free(f.work);
	free(f.cache_dir);
	free(f.tree_dir);
	return tap_done();
}
