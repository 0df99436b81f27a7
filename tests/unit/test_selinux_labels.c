/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Labels by the policy of a fabricated tree, and the proof that files have them. With
 * GPUIMG_TEST_CONTEXTS=FILE also by a whole distribution's file_contexts.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "builder/proof-selinux.h"
#include "builder/selinux-labels.h"
#include "builder/tree.h"
#include "tap.h"

#define FILES "/etc/selinux/targeted/contexts/files"

struct fixture {
	char *dir, *tree, *scratch;
	struct rootfs *root;
};

static void must(bool good, const char *what)
{
	if (good)
		return;
	printf("Bail out! %s: %s\n", what, strerror(errno));
	exit(1);
}

static void put(struct fixture *f, const char *path, const char *text)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	must(rootfs_write(f->root, path, text, strlen(text), 0644, &err) == 0, err.message);
}

static void drop(struct fixture *f, const char *path)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;

	must(rootfs_remove(f->root, path, &err) == 0, path);
}

static void set_label(struct fixture *f, const char *path, const char *label)
{
	CLEANUP_FREE char *full = str_format("%s%s", f->tree, path);

	must(lsetxattr(full, "security.selinux", label, strlen(label) + 1, 0) == 0, path);
}

static void check_mode(struct fixture *f, enum selinux_mode want, const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	enum selinux_mode mode = SELINUX_NONE;

	check(selinux_read_mode(&mode, f->root, &err) == 0 && mode == want, "%s", holds);
}

static void test_mode(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	enum selinux_mode mode = SELINUX_NONE;

	check_mode(f, SELINUX_NONE, "an image without configuration has no SELinux");
	put(f, "/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=targeted\n");
	check_mode(f, SELINUX_NONE, "nor has one that names a policy which is not there");
	put(f, FILES "/file_contexts", "");
	check_mode(f, SELINUX_ENFORCING, "a policy may be enforced");
	put(f, "/etc/selinux/config", "# SELINUX=disabled\nSELINUX= Permissive  \n");
	check_mode(f, SELINUX_PERMISSIVE,
	           "or not, comments do not count, and the type has a default");
	put(f, "/etc/selinux/config", "SELINUX=disabled\nSELINUX=enforcing\n");
	check_mode(f, SELINUX_DISABLED, "or be switched off");
	put(f, "/etc/selinux/config", "SELINUX=off\n SELINUX=disabled\nSELINUX=enforcing\n");
	check_mode(f, SELINUX_ENFORCING,
	           "by the first line that begins with it and has a word that is known");
	put(f, "/etc/selinux/config", "SELINUXTYPE= targeted\n");
	check_mode(f, SELINUX_PERMISSIVE, "and without one the policy is loaded all the same");
	put(f, "/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=../../..\n");
	check(selinux_read_mode(&mode, f->root, &err) == -1 && err.code == EXIT_INPUT &&
	              strstr(err.message, "'../../..'"),
	      "a policy whose name is a path is refused");
}

static void check_label(struct selinux_labels *labels, const char *path, uint32_t mode,
                        const char *want, const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *label = NULL;

	check(selinux_labels_find(&label, labels, path, mode, &err) == 0, "'%s' is looked up",
	      path);
	check_str(label, want, "%s", holds);
}

static void make_policy(struct fixture *f)
{
	put(f, "/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=targeted\n");
	put(f, FILES "/file_contexts",
	    "/.*	system_u:object_r:default_t:s0\n"
	    "/etc(/.*)?	system_u:object_r:etc_t:s0\n"
	    "/etc/shadow	--	system_u:object_r:shadow_t:s0\n"
	    "/usr/lib(/.*)?	system_u:object_r:lib_t:s0\n"
	    "/usr/lib/modprobe\\.d(/.*)?	system_u:object_r:modules_conf_t:s0\n"
	    "/var/run(/.*)?	system_u:object_r:var_run_t:s0\n"
	    "/proc/.*	<<none>>\n");
	put(f, FILES "/file_contexts.homedirs",
	    "/root(/.*)?	system_u:object_r:admin_home_t:s0\n");
	put(f, FILES "/file_contexts.local", "/etc/mine	system_u:object_r:mine_t:s0\n");
	put(f, FILES "/file_contexts.subs_dist", "/run /var/run\n/usr/lib64 /usr/lib\n");
}

static void test_find(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SELINUX_LABELS struct selinux_labels *labels = NULL;
	CLEANUP_FREE char *label = NULL;
	char path[5000];

	make_policy(f);
	if (!check(selinux_labels_open(&labels, f->root, f->scratch, &err) == 0 && labels,
	           "a policy is read")) {
		printf("# %s\n", err.message);
		return;
	}
	check_label(labels, "/etc/shadow", S_IFREG | 0600, "system_u:object_r:shadow_t:s0",
	            "a file of its own line has that label");
	check_label(labels, "/etc/shadow", S_IFDIR | 0755, "system_u:object_r:etc_t:s0",
	            "a line for files is none for directories");
	check_label(labels, "/usr/lib/modprobe.d/x.conf", S_IFREG | 0644,
	            "system_u:object_r:modules_conf_t:s0", "the most exact line counts");
	check_label(labels, "/usr/lib64/x", S_IFREG | 0644, "system_u:object_r:lib_t:s0",
	            "a path that stands for another one has its label");
	check_label(labels, "/run/x", S_IFLNK | 0777, "system_u:object_r:var_run_t:s0", "/run too");
	check_label(labels, "/root/.bashrc", S_IFREG | 0644, "system_u:object_r:admin_home_t:s0",
	            "homes have theirs");
	check_label(labels, "/etc/mine", S_IFREG | 0644, "system_u:object_r:mine_t:s0",
	            "what an administrator added counts");
	check_label(labels, "/proc/1", S_IFDIR | 0555, NULL, "<<none>> is no label");
	memset(path, 'x', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	check(selinux_labels_find(&label, labels, path, S_IFREG | 0644, &err) == -1 && !label,
	      "a path that is none is an error");
}

static void test_open(struct fixture *f)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct selinux_labels *labels = NULL;
	CLEANUP_FREE char *label = NULL;

	drop(f, FILES "/file_contexts.local");
	check(selinux_labels_open(&labels, f->root, f->scratch, &err) == 0 && labels,
	      "what is optional may be missing");
	check_label(labels, "/etc/mine", S_IFREG | 0644, "system_u:object_r:etc_t:s0",
	            "and is not kept from the last time");
	selinux_labels_free(labels);
	put(f, FILES "/file_contexts", "\x8a\xff\x7c\xf9 anything");
	check(selinux_labels_open(&labels, f->root, f->scratch, &err) == -1 && !labels &&
	              err.code == EXIT_INPUT && strstr(err.message, "no text"),
	      "a compiled policy under the text's name is refused");
	put(f, FILES "/file_contexts", "/etc/(x	system_u:object_r:etc_t:s0\n");
	/* patterns are compiled when they are first needed */
	check(selinux_labels_open(&labels, f->root, f->scratch, &err) == 0 &&
	              selinux_labels_find(&label, labels, "/etc/x", S_IFREG, &err) == -1 && !label,
	      "a pattern that is none is an error");
	selinux_labels_free(STEAL(labels));
	drop(f, FILES "/file_contexts");
	check(selinux_labels_open(&labels, f->root, f->scratch, &err) == -1 && !labels &&
	              strstr(err.message, "file_contexts"),
	      "a policy without its main file is an error");
	put(f, "/etc/selinux/config", "SELINUX=disabled\n");
	check(selinux_labels_open(&labels, f->root, f->scratch, &err) == 0 && !labels,
	      "one that is switched off is not read");
	selinux_labels_free(NULL);
}

static void check_proof(struct fixture *f, size_t bad, const char *says, const char *holds)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv paths = strv_split("/etc/a /usr/lib/modprobe.d/b /none", " ");
	struct findings found = {0};
	bool said = false;

	check(proof_selinux(&found, f->root, &paths, f->scratch, &err) == 0, "labels are proven");
	for (size_t i = 0; i < found.count; i++)
		said = said || strstr(found.items[i].what, says);
	if (!check(found.bad == bad && said, "%s", holds))
		for (size_t i = 0; i < found.count; i++)
			printf("# %s\n", found.items[i].what);
	findings_free(&found);
}

static void test_proof(struct fixture *f)
{
	put(f, "/etc/a", "a");
	put(f, "/usr/lib/modprobe.d/b", "b");
	check_proof(f, 0, "not in use", "without SELinux no file needs a label");
	put(f, "/etc/selinux/config", "SELINUX=enforcing\n");
	check_proof(f, 1, "cannot read", "a policy that cannot be read is told");
	make_policy(f);
	check_proof(f, 2, "'/etc/a': has no SELinux label", "files without a label are named");
	set_label(f, "/etc/a", "unconfined_u:object_r:etc_t:s0");
	set_label(f, "/usr/lib/modprobe.d/b", "system_u:object_r:lib_t:s0");
	check_proof(f, 1, "the policy wants 'system_u:object_r:modules_conf_t:s0'",
	            "a wrong label is named with the right one; the user in it does not count");
	set_label(f, "/usr/lib/modprobe.d/b", "nonsense");
	check_proof(f, 1, "'nonsense'", "what is no label at all is named");
	set_label(f, "/usr/lib/modprobe.d/b", "system_u:object_r:modules_conf_t:s0");
	check_proof(f, 0, "has the SELinux label", "right labels hold");
	drop(f, "/etc/a");
	put(f, "/etc/a", "new");
	check_proof(f, 1, "has no SELinux label", "a file that was replaced is found again");
	put(f, SELINUX_AUTORELABEL, "");
	check_proof(f, 0, "reboots", "where the first boot relabels, its cost is told");
	put(f, "/etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=../../..\n");
	check_proof(f, 0, "reboots", "also with a configuration that is none");
	drop(f, SELINUX_AUTORELABEL);
	check_proof(f, 1, "no directory's name", "which is told otherwise");
}

static void test_distribution(struct fixture *f, const char *contexts)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_SELINUX_LABELS struct selinux_labels *labels = NULL;
	CLEANUP_CLOSE int fd = open(contexts, O_RDONLY | O_CLOEXEC);

	must(fd >= 0 && rootfs_copy_in(f->root, FILES "/file_contexts", fd, 0644, &err) == 0,
	     contexts);
	drop(f, FILES "/file_contexts.subs_dist");
	check(selinux_labels_open(&labels, f->root, f->scratch, &err) == 0 && labels,
	      "a distribution's policy is read");
	check_label(labels, "/etc/modprobe.d/x.conf", S_IFREG | 0644,
	            "system_u:object_r:modules_conf_t:s0", "modprobe.d has its label");
	check_label(labels, "/boot/initrd.img-6.1", S_IFREG | 0644, "system_u:object_r:boot_t:s0",
	            "an initramfs too");
	check_label(labels, "/etc/shadow", S_IFREG | 0600, "system_u:object_r:shadow_t:s0",
	            "and the passwords");
}

int main(void)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	char dir[] = "/var/tmp/gpuimg-selinux-XXXXXX";
	const char *contexts = getenv("GPUIMG_TEST_CONTEXTS");
	struct fixture f = {.dir = dir};

	if (geteuid() != 0 || access("/sys/fs/selinux/enforce", F_OK) == 0) {
		printf("1..0 # SKIP labels are set by root, on a host without a policy of its own\n");
		return 0;
	}
	must(mkdtemp(dir) != NULL, dir);
	f.tree = str_format("%s/tree", dir);
	f.scratch = str_format("%s/scratch", dir);
	must(mkdir(f.tree, 0755) == 0 && lchown(f.tree, TREE_UID_BASE, TREE_UID_BASE) == 0 &&
	             mkdir(f.scratch, 0700) == 0 && tree_rootfs(&f.root, f.tree, NULL, &err) == 0,
	     dir);
	test_mode(&f);
	test_find(&f);
	test_open(&f);
	test_proof(&f);
	if (contexts)
		test_distribution(&f, contexts);
	rootfs_close(f.root);
	must(tree_remove(dir, &err) == 0, dir);
	free(f.tree);
	free(f.scratch);
	return tap_done();
}
