/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect over small images: a root that mke2fs makes from a directory, with modules that are ELF
 * files of one section, indexes that are depmod's, and initramfs that libarchive writes. One image
 * is as a distributor leaves it, one has everything wrong, one holds all that is wanted.
 */
#include <archive.h>
#include <archive_entry.h>

#include "builder/inspect-internal.h"
#include "builder/packages.h"
#include "disk-fixture.h"
#include "module-maker.h"

#define KVER      "6.1.0-test"
#define ROOT_UUID "11111111-2222-4333-8444-555555555555"
#define CARD      "alias=pci:v000010DEd*sv*sd*bc03sc*i*"
#define ROOT_ARG  "root=UUID=" ROOT_UUID " ro console=ttyS0"
#define GOOD_ARGS ROOT_ARG " pci=nocrs pci=realloc module_blacklist=nouveau"

/* --- Fixtures --- */

static void put_text(const char *dir, const char *path, const char *text)
{
	CLEANUP_FREE char *full = str_format("%s/%s", dir, path);
	CLEANUP_FREE char *parent = str_copy(full);

	*strrchr(parent, '/') = '\0';
	run("mkdir", "-p", parent);
	unlink(full);
	put(full, 0, text, strlen(text));
}

static void put_data(const char *dir, const char *path, const void *data, size_t size)
{
	CLEANUP_FREE char *full = str_format("%s/%s", dir, path);

	put_text(dir, path, "");
	put(full, 0, data, size);
}

static void put_module(const char *dir, const char *kver, const char *path, const char *fields)
{
	CLEANUP_FREE char *full = str_format("lib/modules/%s/%s", kver, path);
	struct made_module m;

	module_make(&m, EM_X86_64, fields);
	put_data(dir, full, m.data, m.size);
}

static void add_member(struct archive *a, const char *path, unsigned mode, const char *from)
{
	struct archive_entry *e = archive_entry_new();
	CLEANUP_FREE char *data = NULL;
	size_t size = from ? file_size(from) : 0;

	archive_entry_set_pathname(e, path);
	archive_entry_set_mode(e, (mode_t)mode);
	archive_entry_set_nlink(e, 1);
	archive_entry_set_size(e, (la_int64_t)size);
	if (archive_write_header(a, e) != ARCHIVE_OK)
		fixture_fail("write a cpio", archive_error_string(a));
	data = mem_alloc(size + 1);
	if (size) {
		get(from, 0, data, size);
		if (archive_write_data(a, data, size) != (la_ssize_t)size)
			fixture_fail("write a cpio", archive_error_string(a));
	}
	archive_entry_free(e);
}

static struct archive *add_target; /* nftw() passes nothing on */
static size_t add_skip;

static int add_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)ftw;
	if (strlen(path) > add_skip)
		add_member(add_target, path + add_skip, st->st_mode, flag == FTW_F ? path : NULL);
	return 0;
}

/* An initramfs of parts of a root: directories above each of them come before it. */
static void make_initramfs(const char *root, const char *to, const char *const *parts)
{
	struct archive *a = archive_write_new();

	archive_write_add_filter_gzip(a);
	archive_write_set_format_cpio_newc(a);
	if (archive_write_open_filename(a, to) != ARCHIVE_OK)
		fixture_fail("write a cpio", archive_error_string(a));
	add_target = a;
	add_skip = strlen(root) + 1;
	for (; *parts; parts++) {
		CLEANUP_FREE char *full = str_format("%s/%s", root, *parts);
		CLEANUP_FREE char *above = str_copy(*parts);

		for (char *slash = above; (slash = strchr(slash, '/')); *slash++ = '/') {
			*slash = '\0';
			add_member(a, above, S_IFDIR | 0755, NULL);
		}
		nftw(full, add_one, 16, FTW_PHYS);
	}
	if (archive_write_close(a) != ARCHIVE_OK)
		fixture_fail("write a cpio", archive_error_string(a));
	archive_write_free(a);
}

static void make_grub(const char *dir, const char *args, const char *recovery)
{
	CLEANUP_FREE char *text =
		str_format("menuentry 'Test' {\n\tlinux /boot/vmlinuz-" KVER " %s\n"
	                   "\tinitrd /boot/initrd.img-" KVER "\n}\n"
	                   "menuentry 'Test (recovery mode)' {\n\tlinux /boot/vmlinuz-" KVER
	                   " single %s\n\tinitrd /boot/initrd.img-" KVER "\n}\n",
	                   args, recovery);

	put_text(dir, "boot/grub/grub.cfg", text);
}

static void make_modules(const char *dir)
{
	CLEANUP_FREE char *base = str_format("%s/", dir);

	put_module(dir, KVER, "kernel/nouveau.ko", CARD "|license=GPL|");
	put_module(dir, KVER, "kernel/virtio_blk.ko", "license=GPL|");
	put_text(dir, "lib/modules/" KVER "/modules.builtin",
	         "kernel/virtio_scsi.ko\nkernel/nvme.ko\nkernel/ext4.ko\n");
	put_text(dir, "lib/modules/" KVER "/modules.order", "");
	run("depmod", "-b", base, KVER);
}

/* A root as a distributor leaves it. */
static void make_root(const char *dir)
{
	static const char *const parts[] = {"lib/modules", NULL};
	CLEANUP_FREE char *initrd = str_format("%s/boot/initrd.img-" KVER, dir);
	CLEANUP_FREE char *updates = str_format("%s/var/lib/dpkg/updates", dir);

	put_text(dir, "etc/os-release", "ID=debian\nVERSION_ID=12\nPRETTY_NAME=\"Test 12\"\n");
	put_text(dir, "etc/fstab", "UUID=" ROOT_UUID " / ext4 defaults 0 0\n");
	put_text(dir, "etc/machine-id", "");
	put_text(dir, "bin/true", "");
	run("mkdir", "-p", updates);
	put_text(dir, "var/lib/dpkg/status",
	         "Package: initramfs-tools\nStatus: install ok installed\nVersion: 0.142\n\n"
	         "Package: containerd\nStatus: install ok installed\nVersion: 1.6.20\n\n"
	         "Package: cloud-init\nStatus: install ok installed\nVersion: 22.4.2\n\n");
	put_text(dir, "etc/cloud/cloud.cfg", "datasource_list: [ NoCloud, None ]\n");
	put_text(dir, "boot/vmlinuz-" KVER, "no real kernel");
	make_modules(dir);
	make_initramfs(dir, initrd, parts);
	make_grub(dir, ROOT_ARG, ROOT_ARG);
}

/* What was asked of an image, and all that it took to ask. */
struct asked {
	struct inspect in;
	struct error err;
	int result;
};

static void asked_free(struct asked *a)
{
	inspect_free(&a->in);
	bootchain_free(&a->in.chain);
	strv_free(&a->in.packages);
	rootfs_close(a->in.root);
	guest_free(a->in.guest);
	disk_close(a->in.disk);
	error_free(&a->err);
}
#define CLEANUP_ASKED __attribute__((cleanup(asked_free)))

static struct asked ask_wanting(const char *dir, bool sealed, const char *runtime)
{
	struct asked a = {.err = ERROR_INIT};
	CLEANUP_STRV struct strv params = strv_split("pci=nocrs pci=realloc", " ");
	CLEANUP_STRV struct strv blocked = strv_split("nouveau", " ");
	CLEANUP_FREE char *image = str_format("%s.img", dir);
	CLEANUP_FREE char *work = str_format("%s.work", dir);
	const struct inspect_want want = {.profile = "test",
	                                  .params = &params,
	                                  .blocked = &blocked,
	                                  .module_blacklist = true,
	                                  .sealed = sealed,
	                                  .containerd_runtime = runtime,
	                                  .default_runtime = runtime != NULL};

	make_file(image, 32 * MIB);
	run("mke2fs", "-q", "-F", "-t", "ext4", "-U", ROOT_UUID, "-d", dir, image);
	run("rm", "-rf", work);
	run("mkdir", work);
	a.in.path = "test.img";
	a.in.work_dir = work;
	if (image_check(&a.in.info, image, &a.err) < 0 ||
	    disk_open(&a.in.disk, image, "raw", false, &a.err) < 0 ||
	    disk_probe(a.in.disk, &a.err) < 0 ||
	    guest_open(&a.in.guest, &a.in.root, a.in.disk, NULL, &a.err) != 0 ||
	    bootchain_read(&a.in.chain, a.in.root, a.in.guest, work, &a.err) < 0 ||
	    packages_read(&a.in.packages, a.in.root, &a.err) < 0)
		fixture_fail("open an image", a.err.message);
	a.result = inspect_run(&a.in, &want, &a.err);
	a.in.work_dir = NULL;
	return a;
}

static struct asked ask(const char *dir, bool sealed)
{
	return ask_wanting(dir, sealed, NULL);
}

static size_t count_of(const struct asked *a, enum finding_verdict verdict, const char *id)
{
	size_t count = 0;

	for (size_t i = 0; i < a->in.findings.count; i++)
		count += a->in.findings.items[i].verdict == verdict &&
		         strcmp(a->in.findings.items[i].id, id) == 0;
	return count;
}

static bool is_bad(const struct asked *a, const char *id)
{
	return count_of(a, FINDING_BAD, id) > 0;
}

static bool is_noted(const struct asked *a, const char *id)
{
	return count_of(a, FINDING_NOTE, id) > 0;
}

static char *text_for(const struct asked *a, enum finding_verdict verdict)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	inspect_print_findings(&a->in, verdict, f);
	fclose(f);
	return text;
}

static char *facts_of(const struct asked *a)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	inspect_print_facts(&a->in, f);
	fclose(f);
	return text;
}

/* docs/inspect.md promises to name every id. */
static void check_documented(const struct asked *a, const char *docs)
{
	const char *unknown = NULL;

	for (size_t i = 0; i < a->in.findings.count; i++) {
		CLEANUP_FREE char *cell = str_format("| `%s`", a->in.findings.items[i].id);

		if (!strstr(docs, cell))
			unknown = a->in.findings.items[i].id;
	}
	check_str(unknown, NULL, "docs/inspect.md names every id of this image's findings");
}

/* --- Parts --- */

static void test_datasources(void)
{
	CLEANUP_STRV struct strv flow = {0};
	CLEANUP_STRV struct strv block = {0};
	CLEANUP_STRV struct strv none = {0};
	CLEANUP_STRV struct strv twice = {0};
	CLEANUP_STRV struct strv lines = {0};
	CLEANUP_FREE char *flow_text = NULL;
	CLEANUP_FREE char *block_text = NULL;
	CLEANUP_FREE char *lines_text = NULL;

	check(inspect_datasources("a: 1\ndatasource_list: [ NoCloud, \"ConfigDrive\" ] # x\n",
	                          &flow),
	      "a datasource_list in one line is found");
	flow_text = strv_join(&flow, "+");
	check_str(flow_text, "NoCloud+ConfigDrive", "its words are read");
	inspect_datasources("datasource_list:\n# which\n  - OpenStack\n  - 'Ec2'\nusers: []\n",
	                    &block);
	block_text = strv_join(&block, "+");
	check_str(block_text, "OpenStack+Ec2", "a list of one item a line is read to its end");
	inspect_datasources("datasource_list: [A,\n  B, # no C\n  D]\n", &lines);
	lines_text = strv_join(&lines, "+");
	check_str(lines_text, "A+B+D", "a list of several lines is read");
	check(!inspect_datasources("# datasource_list: [A]\n datasource_list: [B]\n", &none),
	      "a comment and a key of something else are none");
	inspect_datasources("datasource_list: [A]\ndatasource_list: [B]", &twice);
	check(twice.count == 1 && strv_has(&twice, "B"), "the last one counts");
}

/* --- Whole images --- */

static void test_plain(const char *docs)
{
	CLEANUP_ASKED struct asked a = {0};
	CLEANUP_FREE char *bad = NULL;
	CLEANUP_FREE char *notes = NULL;
	CLEANUP_FREE char *facts = NULL;

	make_root("plain");
	a = ask("plain", true);
	if (!check(a.result == 0, "an image as a distributor leaves it is inspected"))
		printf("# %s\n", a.err.message);
	bad = text_for(&a, FINDING_BAD);
	notes = text_for(&a, FINDING_NOTE);
	facts = facts_of(&a);
	check(is_bad(&a, "modules.alias"), "that nouveau is loadable is bad");
	check(contains(bad, "all 2 places (kernel " KVER ", root file system; kernel " KVER
	                    ", '/boot/initrd.img-" KVER "'): an NVIDIA display device would load "
	                    "nouveau"),
	      "root file system and initramfs are one line");
	check(contains(bad, "all 2 entries lack 'pci=nocrs', 'pci=realloc', "
	                    "'module_blacklist=nouveau'\n"),
	      "parameters that all entries lack are one line");
	check(count_of(&a, FINDING_BAD, "cmdline.param") == 6,
	      "the findings themselves hold each entry and parameter");
	check(contains(bad, "cure: 'gpuimg build' adds it"), "the cure is for who has a base");
	check(!strstr(bad, "identity."), "an image that is sealed already is not blamed for it");
	check(contains(facts, "claimed by nouveau; the root file system would load nouveau"),
	      "the text says what claims the card");
	check(contains(facts, "containerd  1.6.20 (containerd)"),
	      "the text says containerd's version");
	check(contains(facts, "22.4.2; datasources: NoCloud, None"),
	      "the text says the datasources");
	check(contains(notes, "build.refused"), "a note says what a build would say");
	check_documented(&a, docs);
}

static json_t *at(json_t *from, const char *key)
{
	return json_object_get(from, key);
}

static void test_json(void)
{
	CLEANUP_ASKED struct asked a = ask("plain", true);
	json_t *all = inspect_json(&a.in);
	static const char *const keys[] = {
		"schema",     "verdict",  "image",     "disk",        "boot_types", "os",
		"mounts",     "kernels",  "generator", "loaders",     "entries",    "package_count",
		"wanted",     "modules",  "initramfs", "uefi_loader", "driver",     "containerd",
		"cloud_init", "identity", "selinux",   "findings"};
	json_t *entry = json_array_get(at(all, "entries"), 1);

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		check(at(all, keys[i]) != NULL, "the JSON has '%s'", keys[i]);
	check(json_integer_value(at(all, "schema")) == INSPECT_SCHEMA_VERSION,
	      "it says its schema's version");
	check_str(json_string_value(at(all, "verdict")), "bad", "it says the verdict");
	check(json_array_size(at(all, "findings")) == a.in.findings.count,
	      "it holds every finding");
	check_str(json_string_value(at(entry, "title")), "Test (recovery mode)",
	          "an entry has its title");
	check_str(json_string_value(at(entry, "cmdline")), "single " ROOT_ARG,
	          "an entry has its command line");
	check(json_is_true(at(entry, "recovery")), "a recovery entry is one");
	check(json_is_false(at(json_array_get(at(all, "initramfs"), 0), "blocks")),
	      "an initramfs that blocks nothing says so");
	json_decref(all);
}

static void put_wrong_driver(const char *dir)
{
	CLEANUP_FREE char *base = str_format("%s/", dir);

	put_module(dir, KVER, "updates/dkms/nvidia.ko", "version=550.54.14|license=NVIDIA|");
	run("depmod", "-b", base, KVER);
	put_text(dir, "boot/vmlinuz-6.2.0-test", "no real kernel");
	put_text(dir, "lib/modules/6.2.0-test/modules.order", "");
	put_text(dir, "lib/modules/6.2.0-test/modules.builtin", "");
	run("depmod", "-b", base, "6.2.0-test");
	put_text(dir, "usr/bin/nvidia-smi", "");
	put_text(dir, "usr/bin/nvidia-uninstall", "");
	put_text(dir, "var/lib/dkms/nvidia/550.54.14/source", "");
	put_text(dir, "var/lib/dkms/dkms_dbversion", "3.0\n");
}

static void test_wrong(const char *docs)
{
	CLEANUP_ASKED struct asked a = {0};
	CLEANUP_ASKED struct asked unsealed = {0};
	CLEANUP_FREE char *bad = NULL;
	CLEANUP_FREE char *notes = NULL;
	CLEANUP_FREE char *facts = NULL;

	make_root("wrong");
	put_wrong_driver("wrong");
	make_grub("wrong", GOOD_ARGS, ROOT_ARG);
	put_text("wrong", "etc/machine-id", "0123456789abcdef0123456789abcdef\n");
	put_text("wrong", "etc/ssh/ssh_host_rsa_key", "x");
	put_text("wrong", "etc/ssh/ssh_host_rsa_key.pub", "x");
	put_text("wrong", "etc/nvidia/ClientConfigToken/client_configuration_token.tok", "x");
	put_text("wrong", "home/a/\033[31mred.tok", "x");
	put_text("wrong", "etc/containerd/config.toml",
	         "version = 2\nimports = [\"/etc/containerd/good.d/*.toml\"]\n"
	         "disabled_plugins = [\"cri\"]\n");
	put_text("wrong", "etc/containerd/good.d/a.toml",
	         "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]\n");
	put_text("wrong", "etc/containerd/conf.d/99-nvidia.toml",
	         "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.nvidia]\n");
	put_text("wrong", "etc/cloud/cloud.cfg.d/99.cfg", "datasource_list: [None]\n");
	a = ask("wrong", true);
	unsealed = ask("wrong", false);
	if (!check(a.result == 0, "an image with much that is wrong is inspected"))
		printf("# %s\n", a.err.message);
	bad = text_for(&a, FINDING_BAD);
	notes = text_for(&a, FINDING_NOTE);
	facts = facts_of(&a);
	check(is_bad(&a, "identity.machine-id") && is_bad(&a, "identity.host-keys"),
	      "an identity is bad where the profile seals");
	check(is_noted(&unsealed, "identity.machine-id") &&
	              is_noted(&unsealed, "identity.host-keys"),
	      "an identity is a note where it does not");
	check(count_of(&a, FINDING_BAD, "identity.token") == 2, "licence tokens are found");
	check(!strchr(bad, '\033') && !strchr(facts, '\033'),
	      "no control byte of the guest is printed");
	check(is_bad(&a, "driver.kernels"),
	      "a kernel without the driver that another one has is bad");
	check(contains(bad,
	               "kernel 6.2.0-test has no modules of NVIDIA's, and kernel " KVER " has"),
	      "both are named");
	check(is_bad(&a, "driver.vermagic") && is_noted(&a, "driver.userspace") &&
	              is_noted(&a, "driver.modules") && !is_noted(&a, "driver.present"),
	      "a driver that nobody wants is told of where it is not whole");
	check(is_noted(&a, "driver.host") && contains(notes, "kernel modules (550.54.14)"),
	      "a host driver is a note that says its version");
	check(contains(notes, "DKMS has nvidia/550.54.14 registered"), "a DKMS leftover is a note");
	check(is_bad(&a, "initramfs.present"), "a kernel without an initramfs is bad");
	check(contains(bad, "entry 'Test (recovery mode)' (line 6) lacks 'pci=nocrs', "
	                    "'pci=realloc', 'module_blacklist=nouveau'\n"),
	      "one entry of two is named alone");
	check(is_noted(&a, "cmdline.hotplug"), "pci=nocrs in effect tells of memory hot-plug");
	check(is_noted(&a, "containerd.unread"), "a drop-in that nothing imports is noted");
	check(is_noted(&a, "containerd.schema"), "a runtime in the other schema is noted");
	check(is_noted(&a, "containerd.cri-disabled"), "a CRI plugin that is off is noted");
	check(is_noted(&a, "cloud-init.datasources"), "a datasource list of None alone is noted");
	check(contains(facts, "machine-id set; SSH host keys: 1; licence tokens: 2"),
	      "the text says the identity");
	check(strstr(bad, "cmdline.coverage") < strstr(bad, "modules.alias") &&
	              strstr(bad, "modules.alias") < strstr(bad, "identity."),
	      "what keeps a node from booting comes first, the identity last");
	check_documented(&a, docs);
}

static void test_good(void)
{
	static const char *const parts[] = {"etc/modprobe.d", "lib/modules", NULL};
	CLEANUP_ASKED struct asked a = {0};
	CLEANUP_FREE char *bad = NULL;

	make_root("good");
	put_text("good", "etc/modprobe.d/block.conf",
	         "blacklist nouveau\ninstall nouveau /bin/false\n");
	run("rm", "good/lib/modules/" KVER "/kernel/nouveau.ko");
	make_initramfs("good", "good/boot/initrd.img-" KVER, parts);
	put_module("good", KVER, "kernel/nouveau.ko", CARD "|license=GPL|");
	make_grub("good", GOOD_ARGS, GOOD_ARGS);
	a = ask("good", true);
	bad = text_for(&a, FINDING_BAD);
	/* A file system without a partition table has no boot code; that alone is bad here. */
	check(a.result == 0 && a.in.findings.bad == count_of(&a, FINDING_BAD, "boot.types"),
	      "an image that holds all that is wanted has nothing bad");
	if (a.in.findings.bad > 1)
		printf("# %s\n", bad);
	check(json_is_true(at(json_array_get(at(a.in.facts, "initramfs"), 0), "blocks")),
	      "its initramfs blocks the card's drivers");
}

#define RUNTIMES "plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes"

static void put_runtime(const char *dir, const char *more, const char *binary)
{
	CLEANUP_FREE char *text = str_format(
		"version = 2\n[" RUNTIMES ".runc]\nruntime_type = \"io.containerd.runc.v2\"\n"
		"[" RUNTIMES ".runc.options]\nSystemdCgroup = true\n"
		"[" RUNTIMES ".nvidia]\nruntime_type = \"io.containerd.runc.v2\"\n"
		"[" RUNTIMES ".nvidia.options]\nBinaryName = \"%s\"\n%s",
		binary, more);

	put_text(dir, "etc/containerd/config.toml", text);
}

static void put_program(const char *dir, const char *path)
{
	CLEANUP_FREE char *full = str_format("%s/%s", dir, path);

	put_text(dir, path, "#!");
	run("chmod", "0755", full);
}

static void test_runtime(const char *docs)
{
	CLEANUP_ASKED struct asked none = ask_wanting("plain", true, "nvidia");
	CLEANUP_ASKED struct asked bad = {0};
	CLEANUP_ASKED struct asked told = {0};
	CLEANUP_ASKED struct asked good = {0};

	check(is_bad(&none, "containerd.runtime"), "a wanted runtime that is not there is bad");
	check_documented(&none, docs);
	make_root("runtime");
	put_program("runtime", "usr/bin/containerd");
	put_runtime("runtime", "", "/usr/bin/nvidia-container-runtime");
	put_text("runtime", "etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n");
	bad = ask_wanting("runtime", true, "nvidia");
	told = ask("runtime", true);
	check(is_bad(&bad, "containerd.cgroup") && is_bad(&bad, "containerd.binary") &&
	              is_bad(&bad, "containerd.cdi"),
	      "without runc's cgroup driver, without its program, beside a CDI specification it is bad");
	check(is_bad(&bad, "containerd.runtime"),
	      "so is one that is not the default, if it shall be");
	check(is_noted(&told, "containerd.cgroup") && is_noted(&told, "containerd.binary") &&
	              is_noted(&told, "containerd.cdi") && !is_bad(&told, "containerd.cgroup"),
	      "where nobody wants it, each is a note");
	check_documented(&bad, docs);
	put_program("runtime", "usr/bin/nvidia-container-runtime");
	put_runtime("runtime",
	            "SystemdCgroup = true\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n"
	            "default_runtime_name = \"nvidia\"\n",
	            "/usr/bin/nvidia-container-runtime");
	run("rm", "runtime/etc/cdi/nvidia.yaml");
	good = ask_wanting("runtime", true, "nvidia");
	check(!is_bad(&good, "containerd.runtime") && !is_bad(&good, "containerd.cgroup") &&
	              !is_bad(&good, "containerd.binary") && !is_bad(&good, "containerd.cdi"),
	      "one that is whole has nothing bad");
	check_str(json_string_value(at(at(good.in.facts, "containerd"), "default_runtime")),
	          "nvidia", "the facts name the default runtime");
}

static void test_cures(void)
{
	struct findings f = {0};

	finding_bad(&f, "modules.alias", "build again", "x");
	finding_note(&f, "driver.dkms", "x");
	finding_ok(&f, "identity.machine-id", "x");
	finding_bad(&f, "unknown.id", "its own", "x");
	inspect_set_cures(&f);
	check(f.items[0].cure && strstr(f.items[0].cure, "gpuimg build"),
	      "a bad point gets our cure");
	check(f.items[1].cure != NULL, "a note gets one, too");
	check(!f.items[2].cure, "what holds needs none");
	check_str(f.items[3].cure, "its own", "a cure that we do not know better stays");
	findings_free(&f);
}

int main(void)
{
	static const char *const programs[] = {"mke2fs", "depmod", "qemu-nbd", NULL};
	const char *path = "docs/inspect.md"; /* tests run from the top of the source tree */
	size_t size = (size_t)file_size(path);
	CLEANUP_FREE char *docs = mem_alloc(size + 1);

	get(path, 0, docs, size);
	fixture_begin(programs);
	test_datasources();
	test_cures();
	test_plain(docs);
	test_json();
	test_wrong(docs);
	test_good();
	test_runtime(docs);
	return tap_done();
}
