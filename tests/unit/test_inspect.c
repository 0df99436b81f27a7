/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inspect over small images: a root that mke2fs makes from a directory, with modules that are ELF
 * files of one section, indexes that are depmod's, and initramfs that libarchive writes. One image
 * is as a distributor leaves it, one has everything wrong, one holds all that is wanted.
 */
#include <archive.h>
#include <archive_entry.h>
#include <elf.h>

#include "builder/inspect-internal.h"
#include "builder/packages.h"
#include "disk-fixture.h"

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

/* A relocatable object with nothing but .modinfo; fields are ended by '|'. */
static size_t make_module(unsigned char *ret, size_t room, const char *fields)
{
	static const char names[] = "\0.modinfo\0.shstrtab";
	size_t size = strlen(fields), at = sizeof(Elf64_Ehdr);
	Elf64_Shdr s[3] = {{0}};
	Elf64_Ehdr head = {
		.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, 1},
		.e_type = ET_REL,
		.e_machine = EM_X86_64,
		.e_version = 1,
		.e_ehsize = sizeof(head),
		.e_shentsize = sizeof(s[0]),
		.e_shnum = 3,
		.e_shstrndx = 2,
	};

	s[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC};
	s[1].sh_offset = at;
	s[1].sh_size = size;
	s[1].sh_addralign = 1;
	s[2] = (Elf64_Shdr){.sh_name = 10, .sh_type = SHT_STRTAB};
	s[2].sh_offset = at + size;
	s[2].sh_size = sizeof(names);
	s[2].sh_addralign = 1;
	head.e_shoff = (at + size + sizeof(names) + 7) & ~(size_t)7;
	if (head.e_shoff + sizeof(s) > room)
		fixture_fail("make a module", "no room");
	memset(ret, 0, room);
	memcpy(ret, &head, sizeof(head));
	for (size_t i = 0; i < size; i++)
		ret[at + i] = fields[i] == '|' ? 0 : (unsigned char)fields[i];
	memcpy(ret + at + size, names, sizeof(names));
	memcpy(ret + head.e_shoff, s, sizeof(s));
	return head.e_shoff + sizeof(s);
}

static void put_module(const char *dir, const char *kver, const char *path, const char *fields)
{
	unsigned char data[2048];
	CLEANUP_FREE char *full = str_format("lib/modules/%s/%s", kver, path);
	size_t size = make_module(data, sizeof(data), fields);

	put_data(dir, full, data, size);
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

static struct asked ask(const char *dir, bool sealed)
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
	                                  .sealed = sealed};

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

static size_t compress(char *to, size_t room, const void *data, size_t size,
                       int (*filter)(struct archive *))
{
	struct archive *a = archive_write_new();
	struct archive_entry *e = archive_entry_new();
	size_t used = 0;

	filter(a);
	archive_write_set_format_raw(a);
	archive_write_set_bytes_in_last_block(a, 1);
	archive_write_open_memory(a, to, room, &used);
	archive_entry_set_filetype(e, AE_IFREG);
	if (archive_write_header(a, e) != ARCHIVE_OK ||
	    archive_write_data(a, data, size) != (la_ssize_t)size ||
	    archive_write_close(a) != ARCHIVE_OK)
		fixture_fail("compress", archive_error_string(a));
	archive_entry_free(e);
	archive_write_free(a);
	return used;
}

static void test_module_version(void)
{
	unsigned char module[2048], wrong[2048];
	char packed[8192];
	size_t size = make_module(module, sizeof(module),
	                          "license=NVIDIA|srcversion=ABC|version=550.54.14|");
	CLEANUP_FREE char *plain = inspect_module_version(module, size);
	CLEANUP_FREE char *xz =
		inspect_module_version(packed, compress(packed, sizeof(packed), module, size,
	                                                archive_write_add_filter_xz));
	CLEANUP_FREE char *zstd =
		inspect_module_version(packed, compress(packed, sizeof(packed), module, size,
	                                                archive_write_add_filter_zstd));
	CLEANUP_FREE char *gz =
		inspect_module_version(packed, compress(packed, sizeof(packed), module, size,
	                                                archive_write_add_filter_gzip));
	CLEANUP_FREE char *text = inspect_module_version("#!/bin/sh\n", 10);
	CLEANUP_FREE char *nothing = inspect_module_version("", 0);
	bool quiet = true, within = true;

	check_str(plain, "550.54.14", "a module says its version, and not its srcversion");
	check_str(xz, "550.54.14", "one that xz compressed does");
	check_str(zstd, "550.54.14", "one that zstd compressed does");
	check_str(gz, "550.54.14", "one that gzip compressed does");
	check(!text && !nothing, "a script and an empty file have none");
	for (size_t cut = 0; cut < size; cut++) {
		CLEANUP_FREE char *found = inspect_module_version(module, cut);

		quiet = quiet && !found;
	}
	check(quiet, "a module that is cut off anywhere has none");
	for (size_t at = 0; at < size; at++) {
		memcpy(wrong, module, size);
		wrong[at] = 0xff;
		CLEANUP_FREE char *found = inspect_module_version(wrong, size);

		within = within && (!found || memmem(wrong, size, found, strlen(found)));
	}
	check(within, "with any byte damaged, what is found still stands in the file");
}

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

static void test_containerd_config(void)
{
	static const char text[] =
		"version = 2 # of the schema\n"
		"imports = [\"/etc/containerd/conf.d/*.toml\",\n  'more.toml'] # \"no.toml\"\n"
		"disabled_plugins = [ \"cri\" ]\n"
		"[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n"
		"  default_runtime_name = \"runc\"\n"
		"  [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes]\n"
		"    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n"
		"      version = 7\n"
		"      [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n"
		"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.\"nvidia-cdi\"]\r\n"
		"# [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.comment]\n";
	CLEANUP_CONTAINERD_CONFIG struct containerd_config c = {0};
	CLEANUP_CONTAINERD_CONFIG struct containerd_config torn = {0};
	CLEANUP_FREE char *runtimes = NULL;
	CLEANUP_FREE char *imports = NULL;

	inspect_containerd_parse(&c, text);
	runtimes = strv_join(&c.runtimes, "; ");
	imports = strv_join(&c.imports, "; ");
	check_str(runtimes,
	          "runc io.containerd.grpc.v1.cri; nvidia-cdi io.containerd.cri.v1.runtime",
	          "runtimes of both schemas are read, and neither options nor comments");
	check_str(imports, "/etc/containerd/conf.d/*.toml; more.toml",
	          "imports of several lines are read");
	check(c.version == 2, "the first version is the file's");
	check(c.disabled.count == 1 && strv_has(&c.disabled, "cri"), "disabled plugins are read");
	check_str(c.default_runtime, "runc", "the default runtime is read");
	inspect_containerd_parse(&torn,
	                         "imports = [\"a\n[plugins.\"x\n[\n]\n='\nversion = 99999999");
	check(torn.runtimes.count == 0 && torn.version == 0, "a torn file gives nothing");
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
	check(contains(bad, "for kernel " KVER ", but not for 6.2.0-test"), "both are named");
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
	test_module_version();
	test_datasources();
	test_containerd_config();
	test_cures();
	test_plain(docs);
	test_json();
	test_wrong(docs);
	test_good();
	return tap_done();
}
