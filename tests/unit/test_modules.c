/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every case stands in a fabricated root, whose modules are ELF files of two sections and whose
 * indexes are depmod's; it is asked as a root and as an initramfs, and the answer is compared
 * with that of the real modprobe over the same files.
 */
#include <archive.h>
#include <archive_entry.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "builder/modules.h"
#include "builder/proc.h"
#include "builder/rootfs.h"
#include "dir-rootfs.h"
#include "tap.h"

#define KVER  "6.1.0-test"
#define ALIAS "pci:v000010DEd000027B8sv000010DEsd000016CAbc03sc02i00"

enum { NOUVEAU = 1, NOVA = 2, DEBIAN = 4, ANY = 8 };

struct fake_module {
	unsigned flag; /* 0: in every kernel */
	const char *name;
	const char *info; /* .modinfo, fields ended by '|' */
};

static const struct fake_module fake_modules[] = {
	{NOUVEAU, "nouveau",
         "alias=pci:v000010DEd*sv*sd*bc03sc*i*|alias=pci:v000012D2d*sv*sd*bc03sc*i*|"},
	{NOVA, "nova-core", "alias=pci:v000010DEd*sv*sd*bc*sc*i*|"},
	{DEBIAN, "nvidia-current",
         "alias=pci:v000010DEd*sv*sd*bc03sc02i00*|alias=pci:v000010DEd*sv*sd*bc03sc00i00*|"},
	{ANY, "anydisplay", "alias=pci:v*d*sv*sd*bc03sc*i*|"},
	{0, "amdgpu", "alias=pci:v00001002d*sv*sd*bc03sc00i00*|"},
	{0, "forcedeth", "alias=pci:v000010DEd00000057sv*sd*bc*sc*i*|"},
	{0, "snd-hda-intel", "alias=pci:v000010DEd*sv*sd*bc04sc03i00*|"},
	{0, "i2c-nvidia-gpu", "alias=pci:v000010DEd*sv*sd*bc0Csc80i00*|"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void write_at(const char *dir, const char *name, const void *data, size_t size)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);
	FILE *f = fopen(path, "we");

	if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) {
		perror(path);
		abort();
	}
}

static void make_dirs(const char *top, const char *path)
{
	CLEANUP_FREE char *full = str_format("%s/%s/", top, path);

	for (char *slash = full + strlen(top) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(full, 0755) < 0 && errno != EEXIST)
			abort();
		*slash = '/';
	}
}

static void link_at(const char *dir, const char *name, const char *target)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);

	if (symlink(target, path) < 0)
		abort();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
	(void)st;
	(void)type;
	(void)where;
	return remove(path);
}

static void remove_all(const char *dir)
{
	nftw(dir, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

/* The least that depmod takes for a module: an ELF object with .modinfo. */
static void write_module(const char *dir, const struct fake_module *m)
{
	static const char names[] = "\0.modinfo\0.shstrtab";
	struct {
		Elf64_Ehdr head;
		Elf64_Shdr sections[3];
		char names[sizeof(names)];
		char info[512];
	} file = {0};
	CLEANUP_FREE char *name = str_format("%s.ko", m->name);

	memcpy(file.head.e_ident, ELFMAG "\2\1\1", 7);
	file.head.e_type = ET_REL;
	file.head.e_machine = EM_X86_64;
	file.head.e_version = 1;
	file.head.e_ehsize = sizeof(file.head);
	file.head.e_shoff = sizeof(file.head);
	file.head.e_shentsize = sizeof(Elf64_Shdr);
	file.head.e_shnum = 3;
	file.head.e_shstrndx = 2;
	memcpy(file.names, names, sizeof(names));
	memcpy(file.info, m->info, strlen(m->info));
	for (char *c = file.info; *c; c++)
		if (*c == '|')
			*c = '\0';
	file.sections[1] = (Elf64_Shdr){.sh_name = 1,
	                                .sh_type = SHT_PROGBITS,
	                                .sh_flags = SHF_ALLOC,
	                                .sh_offset = (Elf64_Off)((char *)file.info - (char *)&file),
	                                .sh_size = strlen(m->info)};
	file.sections[2] =
		(Elf64_Shdr){.sh_name = 10,
	                     .sh_type = SHT_STRTAB,
	                     .sh_offset = (Elf64_Off)((char *)file.names - (char *)&file),
	                     .sh_size = sizeof(names)};
	write_at(dir, name, &file, sizeof(file));
}

static bool run_depmod(const char *root)
{
	const char *const argv[] = {"depmod", "-b", root, KVER, NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct proc_options options = {.timeout_ms = 60000};

	if (proc_run(argv, &options, NULL, 0, &err) == 0)
		return true;
	printf("# %s\n", err.message);
	return false;
}

/* A root with a merged /usr and these modules; ready to be asked. */
static char *make_root(const char *scratch, unsigned modules)
{
	CLEANUP_FREE char *root = str_format("%s/root-XXXXXX", scratch);
	CLEANUP_FREE char *dir = NULL;

	if (!mkdtemp(root))
		abort();
	make_dirs(root, "usr/lib/modules/" KVER "/kernel");
	make_dirs(root, "usr/lib/modprobe.d");
	make_dirs(root, "usr/local/lib/modprobe.d");
	make_dirs(root, "etc/modprobe.d");
	link_at(root, "lib", "usr/lib");
	dir = str_format("%s/usr/lib/modules/" KVER "/kernel", root);
	for (size_t i = 0; i < COUNT(fake_modules); i++)
		if (!fake_modules[i].flag || fake_modules[i].flag & modules)
			write_module(dir, &fake_modules[i]);
	dir[strlen(dir) - strlen("/kernel")] = '\0';
	write_at(dir, "modules.order", "", 0);
	write_at(dir, "modules.builtin", "", 0);
	if (!run_depmod(root))
		abort();
	return STEAL(root);
}

static int pack_one(struct archive *a, const char *root, const char *path, const struct stat *st)
{
	struct archive_entry *entry = archive_entry_new();
	CLEANUP_FREE char *text = mem_alloc((size_t)st->st_size + 4097);
	int fd = -1;
	ssize_t size = 0;

	archive_entry_copy_stat(entry, st);
	archive_entry_set_nlink(entry, 1);
	archive_entry_set_pathname(entry, path[strlen(root)] ? path + strlen(root) + 1 : ".");
	if (S_ISLNK(st->st_mode)) {
		if (readlink(path, text, 4096) < 0)
			abort();
		archive_entry_set_symlink(entry, text);
		archive_entry_set_size(entry, 0);
	} else if (S_ISREG(st->st_mode)) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		size = read(fd, text, (size_t)st->st_size);
		close(fd);
	}
	if (archive_write_header(a, entry) != ARCHIVE_OK ||
	    (size > 0 && archive_write_data(a, text, (size_t)size) != size))
		abort();
	archive_entry_free(entry);
	return 0;
}

static void pack_dir(struct archive *a, const char *root, const char *dir)
{
	CLEANUP_FREE char *pattern = str_format("%s/*", dir);
	glob_t found = {0};
	struct stat st;

	if (lstat(dir, &st) == 0)
		pack_one(a, root, dir, &st);
	if (S_ISDIR(st.st_mode) && glob(pattern, GLOB_PERIOD, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc; i++)
			if (!str_ends(found.gl_pathv[i], "/.") &&
			    !str_ends(found.gl_pathv[i], "/.."))
				pack_dir(a, root, found.gl_pathv[i]);
	globfree(&found);
}

/* The whole root as an initramfs. */
static void read_as_initramfs(struct initramfs *ret, const char *root)
{
	size_t capacity = 16 << 20, used = 0;
	CLEANUP_FREE uint8_t *memory = mem_alloc(capacity);
	CLEANUP_ERROR struct error err = ERROR_INIT;
	struct archive *a = archive_write_new();

	archive_write_set_format_cpio_newc(a);
	archive_write_open_memory(a, memory, capacity, &used);
	pack_dir(a, root, root);
	if (archive_write_close(a) != ARCHIVE_OK)
		abort();
	archive_write_free(a);
	if (initramfs_read_memory(ret, memory, used, "packed", modules_keep, NULL, &err) < 0) {
		printf("# %s\n", err.message);
		abort();
	}
}

static int open_world(struct modules *ret, const char *root, const char *scratch, struct error *err)
{
	CLEANUP_ROOTFS struct rootfs *r = open_dir(root);

	return modules_from_rootfs(ret, r, KVER, scratch, err);
}

static int open_early_world(struct modules *ret, const char *root, const char *scratch,
                            struct error *err)
{
	CLEANUP_INITRAMFS struct initramfs i = {0};

	read_as_initramfs(&i, root);
	return modules_from_initramfs(ret, &i, KVER, scratch, err);
}

/* Whether the real modprobe would insert the module, over the original files. */
static bool modprobe_loads(const char *root, const char *asked, bool by_alias, const char *name)
{
	CLEANUP_FREE char *etc = str_format("%s/etc/modprobe.d", root);
	CLEANUP_FREE char *local = str_format("%s/usr/local/lib/modprobe.d", root);
	CLEANUP_FREE char *usr = str_format("%s/usr/lib/modprobe.d", root);
	CLEANUP_FREE char *want = str_format("/%s.ko", name), *out = NULL;
	const char *const argv[] = {
		"modprobe", "-d",  root, "-S", KVER, "-C", etc,
		"-C",       local, "-C", usr,  "-n", "-v", by_alias ? "-b" : "-v",
		asked,      NULL};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv lines = {0};
	struct proc_options options = {.timeout_ms = 60000};
	int code = 0;

	if (proc_run_status(argv, &options, &out, 1 << 20, &code, &err) < 0)
		abort();
	lines = strv_split(out, "\n");
	for (size_t i = 0; i < lines.count; i++)
		if (str_starts(lines.items[i], "insmod ") && strstr(lines.items[i], want))
			return true;
	return false;
}

struct config {
	const char *path; /* below the root; directories exist */
	const char *text;
	const char *link; /* instead of text */
};

struct test_case {
	const char *sentence;
	unsigned modules;
	struct config files[4];
	const char *by_alias; /* what is loadable, joined by spaces */
	int by_name;          /* 'modprobe nouveau' */
	bool differs;         /* from 'modprobe -n', for the reason told */
};

#define BLOCK  "blacklist nouveau\n"
#define REFUSE "install nouveau /bin/false\n"

static const struct test_case cases[] = {
	{"without configuration nouveau is loadable", NOUVEAU, {{0}}, "nouveau", 1, false},
	{"a blacklist stops udev only",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", BLOCK, NULL}},
         "",
         1,
         false},
	{"an install line stops both",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", REFUSE, NULL}},
         "",
         0,
         false},
	{"both together stop both",
         NOUVEAU,
         {{"usr/lib/modprobe.d/a.conf", BLOCK REFUSE, NULL}},
         "",
         0,
         false},
	{"files in /usr/local/lib count",
         NOUVEAU,
         {{"usr/local/lib/modprobe.d/a.conf", BLOCK REFUSE, NULL}},
         "",
         0,
         false},
	{"a file without .conf does not count",
         NOUVEAU,
         {{"etc/modprobe.d/blacklist-nouveau", BLOCK REFUSE, NULL},
          {"etc/modprobe.d/a.conf.dpkg-old", BLOCK REFUSE, NULL},
          {"etc/modprobe.d/.hidden.conf", BLOCK REFUSE, NULL}},
         "nouveau",
         1,
         false},
	{"an .alias file does not count, as kmod is giving it up",
         NOUVEAU,
         {{"etc/modprobe.d/a.alias", BLOCK REFUSE, NULL}},
         "nouveau",
         1,
         true},
	{"a blacklist with CRLF names another module",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", "blacklist nouveau\r\n", NULL}},
         "nouveau",
         1,
         false},
	{"an install line with CRLF runs nothing, and stops both",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", "\r\ninstall nouveau /bin/false\r\n", NULL}},
         "",
         0,
         false},
	{"'alias nouveau off' stops modprobe by name only",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", "alias nouveau off\n", NULL}},
         "nouveau",
         0,
         false},
	{"an alias of the card to off stops udev only",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", "alias pci:v000010DEd*sv*sd*bc03sc*i* off\n", NULL}},
         "",
         1,
         false},
	{"an empty file in /etc hides the one of its name",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", "", NULL}, {"usr/lib/modprobe.d/a.conf", BLOCK REFUSE, NULL}},
         "nouveau",
         1,
         false},
	{"one of another name hides nothing",
         NOUVEAU,
         {{"etc/modprobe.d/b.conf", "", NULL}, {"usr/lib/modprobe.d/a.conf", BLOCK REFUSE, NULL}},
         "",
         0,
         false},
	{"a link to /dev/null hides the file of its name",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", NULL, "/dev/null"},
          {"usr/lib/modprobe.d/a.conf", BLOCK REFUSE, NULL}},
         "nouveau",
         1,
         false},
	{"a link to nowhere hides the file of its name",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", NULL, "nowhere"},
          {"usr/lib/modprobe.d/a.conf", BLOCK REFUSE, NULL}},
         "nouveau",
         1,
         false},
	{"a chain of links is followed, as Debian's alternatives need it",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", NULL, "../alternative.conf"},
          {"etc/alternative.conf", NULL, "real.conf"},
          {"etc/real.conf", BLOCK REFUSE, NULL}},
         "",
         0,
         false},
	{"comments, other cases and other names do not count",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf",
           "# blacklist nouveau\n#blacklist nouveau\nBlacklist nouveau\nblacklist nouveau2\n"
           "blacklist nouv*\nblacklist\n",
           NULL}},
         "nouveau",
         1,
         false},
	{"white space and continued lines count",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf",
           "junk\n \t blacklist\t\\\n  nouveau trailing\ninstall nouv\\\neau /bin/true", NULL}},
         "",
         0,
         false},
	{"of two install lines the first counts",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", REFUSE "install nouveau /sbin/modprobe -i nouveau\n", NULL}},
         "",
         0,
         false},
	{"an install line that may load it stops nothing",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", "install nouveau /sbin/modprobe -i nouveau\n", NULL}},
         "nouveau",
         1,
         true},
	{"an install line with a second command stops nothing",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", "install nouveau /bin/true; insmod x\n", NULL}},
         "nouveau",
         1,
         true},
	{"other inert commands stop both",
         NOUVEAU,
         {{"etc/modprobe.d/a.conf", "install nouveau /usr/bin/true # never\n", NULL}},
         "",
         0,
         false},
	{"blacklisting nouveau leaves nova_core",
         NOUVEAU | NOVA,
         {{"etc/modprobe.d/a.conf", BLOCK REFUSE, NULL}},
         "nova_core",
         0,
         false},
	{"both blocked leaves nothing, with - for _",
         NOUVEAU | NOVA,
         {{"etc/modprobe.d/a.conf", BLOCK REFUSE "blacklist nova-core\n", NULL}},
         "",
         0,
         false},
	{"NVIDIA's own driver is not counted",
         NOUVEAU | DEBIAN,
         {{"etc/modprobe.d/a.conf", BLOCK REFUSE, NULL}},
         "",
         0,
         false},
	{"a kernel without nouveau is fine", 0, {{0}}, "", 0, false},
	{"a driver for any display device is loadable too", ANY, {{0}}, "anydisplay", 0, false},
};

static void check_world(const struct test_case *c, const struct modules *m, const char *kind)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv loadable = {0};
	CLEANUP_FREE char *joined = NULL;
	int rc = modules_loadable_by_alias(m, &loadable, &err);

	joined = strv_join(&loadable, " ");
	check_str(rc == 0 ? joined : err.message, c->by_alias, "%s: %s", kind, c->sentence);
	rc = modules_loadable_by_name(m, "nouveau", &err);
	check(rc == c->by_name, "%s: %s: by name %s", kind, c->sentence,
	      c->by_name ? "it loads" : "it does not load");
}

static void check_modprobe(const struct test_case *c, const char *root)
{
	static const char *const names[] = {"nouveau", "nova_core", "anydisplay"};
	CLEANUP_STRV struct strv want = strv_split(c->by_alias, " ");
	bool same = modprobe_loads(root, "nouveau", false, "nouveau") == c->by_name;

	for (size_t i = 0; i < COUNT(names); i++) {
		const char *file = i == 1 ? "nova-core" : names[i];

		same &= modprobe_loads(root, ALIAS, true, file) == strv_has(&want, names[i]);
	}
	check(same, "modprobe agrees: %s", c->sentence);
}

static void run_case(const struct test_case *c, const char *scratch)
{
	CLEANUP_FREE char *root = make_root(scratch, c->modules);
	CLEANUP_MODULES struct modules late = {0}, early = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	for (size_t i = 0; i < COUNT(c->files) && c->files[i].path; i++) {
		const struct config *f = &c->files[i];

		if (f->link)
			link_at(root, f->path, f->link);
		else
			write_at(root, f->path, f->text, strlen(f->text));
	}
	if (open_world(&late, root, scratch, &err) < 0 ||
	    open_early_world(&early, root, scratch, &err) < 0) {
		check(false, "%s: %s", c->sentence, err.message);
		return;
	}
	check_world(c, &late, "root");
	check_world(c, &early, "initramfs");
	if (c->differs)
		return;
	if (!proc_have("modprobe"))
		check(true, "modprobe agrees: %s # SKIP no modprobe", c->sentence);
	else
		check_modprobe(c, root);
	remove_all(root);
}

static void check_claimants(const struct modules *m, const char *want, const char *want_builtin,
                            const char *sentence)
{
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_STRV struct strv names = {0}, builtin = {0};
	CLEANUP_FREE char *joined = NULL, *joined_builtin = NULL;
	int rc = modules_claimants(m, &names, &builtin, &err);

	joined = strv_join(&names, " ");
	joined_builtin = strv_join(&builtin, " ");
	check_str(rc == 0 ? joined : err.message, want, "claimants: %s", sentence);
	check_str(joined_builtin, want_builtin, "built-in claimants: %s", sentence);
}

static void test_claimants(const char *scratch)
{
	CLEANUP_FREE char *root = make_root(scratch, NOUVEAU | NOVA | DEBIAN | ANY);
	CLEANUP_FREE char *bin = str_format("%s/usr/lib/modules/" KVER "/modules.alias.bin", root);
	CLEANUP_FREE char *text = str_format("%s/usr/lib/modules/" KVER "/modules.alias", root);
	CLEANUP_FREE char *conf = str_format("%s/etc/modprobe.d", root);
	CLEANUP_FREE char *saved = str_format("%s/saved", root);
	CLEANUP_MODULES struct modules both = {0}, no_text = {0}, no_bin = {0};
	CLEANUP_STRV struct strv loadable = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	static const char all[] = "nouveau nova_core nvidia_current";

	write_at(conf, "a.conf", BLOCK, strlen(BLOCK));
	check(open_world(&both, root, scratch, &err) == 0 && rename(text, saved) == 0 &&
	              open_world(&no_text, root, scratch, &err) == 0 && rename(saved, text) == 0 &&
	              unlink(bin) == 0 && open_world(&no_bin, root, scratch, &err) == 0,
	      "worlds with both kinds of index, and with one only, are read");
	check_claimants(&both, all, "",
	                "all that name the vendor's displays, whatever is blacklisted; not the "
	                "chipset's network, sound and I2C, and not a driver for any vendor");
	check_claimants(&no_text, all, "", "from the binary index alone");
	check_claimants(&no_bin, all, "", "from the text alone");
	check(modules_loadable_by_alias(&no_bin, &loadable, &err) == 0 && loadable.count == 2 &&
	              strv_has(&loadable, "nova_core") && strv_has(&loadable, "anydisplay"),
	      "without modules.alias.bin the text answers, blacklists applied");
	remove_all(root);
}

static void test_builtin(const char *scratch)
{
	static const char list[] = "kernel/drivers/gpu/drm/nouveau/nouveau.ko\n";
	static const char info[] = "nouveau.file=drivers/gpu/drm/nouveau/nouveau\0"
				   "nouveau.alias=pci:v000010DEd*sv*sd*bc03sc*i*\0"
				   "ahci.alias=pci:v000010DEd00000D8Fsv*sd*bc*sc*i*";
	CLEANUP_FREE char *root = make_root(scratch, 0);
	CLEANUP_FREE char *dir = str_format("%s/usr/lib/modules/" KVER, root);
	CLEANUP_MODULES struct modules named = {0}, full = {0};
	CLEANUP_STRV struct strv loadable = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	bool builtin = false;

	write_at(dir, "modules.builtin", list, strlen(list));
	check(open_world(&named, root, scratch, &err) == 0,
	      "a kernel with nouveau built in is read");
	check_claimants(&named, "", "nouveau", "by its known name where no modinfo is");
	write_at(dir, "modules.builtin.modinfo", info, sizeof(info));
	check(run_depmod(root) && open_world(&full, root, scratch, &err) == 0,
	      "a kernel with modules.builtin.modinfo is read");
	check_claimants(&full, "", "nouveau", "by its alias");
	check(modules_loadable_by_alias(&full, &loadable, &err) == 0 && loadable.count == 0 &&
	              modules_loadable_by_name(&full, "nouveau", &err) == 0,
	      "what is built in is not loadable");
	check(modules_have(&full, "nouveau", &builtin) && builtin, "modules_have tells built in");
	check(modules_have(&full, "snd_hda_intel", &builtin) && !builtin &&
	              modules_have(&full, "snd-hda-intel", NULL),
	      "modules_have finds a module file by either spelling");
	check(!modules_have(&full, "nova_core", &builtin) && !builtin &&
	              !modules_have(&full, "snd", NULL),
	      "modules_have does not find what is not there");
	remove_all(root);
}

/* What 'modprobe NAME' comes to, by one modprobe.d file. */
static void check_loaded_for(const char *scratch, unsigned modules, const char *config,
                             const char *name, const char *want, const char *sentence)
{
	CLEANUP_FREE char *root = make_root(scratch, modules);
	CLEANUP_FREE char *dir = str_format("%s/etc/modprobe.d", root);
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_STRV struct strv found = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;
	CLEANUP_FREE char *got = NULL;

	write_at(dir, "a.conf", config, strlen(config));
	if (open_world(&m, root, scratch, &err) < 0 ||
	    modules_loaded_for(&m, name, &found, &err) < 0)
		printf("# %s\n", err.message);
	got = strv_join(&found, " ");
	check_str(got, want, "%s", sentence);
	remove_all(root);
}

/* Debian's line as its package has it; the others are what people write. */
static void test_loaded_for(const char *scratch)
{
	static const struct {
		unsigned modules;
		const char *config, *name, *want, *sentence;
	} rows[] = {
		{NOUVEAU, "", "nouveau", "nouveau", "a module loads itself"},
		{NOUVEAU, BLOCK, "nouveau", "nouveau", "by name, even if udev may not"},
		{NOUVEAU, REFUSE, "nouveau", "", "one with an inert install line does not"},
		{NOUVEAU, "", "nvidia", "", "one that is not there does not"},
		{DEBIAN, "install nvidia modprobe -i nvidia-current $CMDLINE_OPTS\n", "nvidia",
	         "nvidia_current", "Debian's install line leads to the module that was chosen"},
		{DEBIAN, "install nvidia modprobe -i nvidia-current-open $CMDLINE_OPTS\n", "nvidia",
	         "", "one that leads to a module that is not there does not"},
		{DEBIAN,
	         "install nvidia modprobe -i nvidia-current\n"
	         "install nvidia-uvm modprobe nvidia ; modprobe -i anydisplay\n",
	         "nvidia_uvm", "nvidia_current", "lines are followed one after the other"},
		{DEBIAN | ANY,
	         "install nvidia modprobe -i nvidia-current\n"
	         "install nvidia-uvm modprobe nvidia ; modprobe -i anydisplay\n",
	         "nvidia_uvm", "nvidia_current anydisplay", "each of a line's commands counts"},
		{DEBIAN,
	         "install nvidia /sbin/modprobe --ignore-install nvidia-current && "
	         "/sbin/modprobe -q nvidia-uvm\n",
	         "nvidia", "nvidia_current", "a path, a long option and && are understood"},
		{DEBIAN,
	         "install nvidia modprobe nvidia-current\ninstall nvidia_current /bin/false\n",
	         "nvidia", "", "without -i the next name's own install line counts"},
		{DEBIAN, "install nvidia modprobe -r nvidia-current\n", "nvidia", "",
	         "a modprobe that removes loads nothing"},
		{DEBIAN, "install nvidia modprobe nvidia\n", "nvidia", "",
	         "a line that asks for itself ends"},
		{DEBIAN,
	         "install a modprobe b; modprobe b; modprobe b\n"
	         "install b modprobe a; modprobe a; modprobe a\n",
	         "a", "", "lines that ask for each other end"},
		{DEBIAN, "alias nvidia nvidia-current\n", "nvidia", "nvidia_current",
	         "an alias is followed"},
	};

	for (size_t i = 0; i < COUNT(rows); i++)
		check_loaded_for(scratch, rows[i].modules, rows[i].config, rows[i].name,
		                 rows[i].want, rows[i].sentence);
}

static void test_names(void)
{
	check(modules_is_nvidia_driver("nvidia") && modules_is_nvidia_driver("nvidia_drm") &&
	              modules_is_nvidia_driver("nvidia-current-open") &&
	              modules_is_nvidia_driver("nvidia_tesla_535"),
	      "NVIDIA's driver is known by its names, Debian's included");
	check(!modules_is_nvidia_driver("nvidia_wmi_ec_backlight") &&
	              !modules_is_nvidia_driver("nvidia-cspmu") &&
	              !modules_is_nvidia_driver("nvidia-fs"),
	      "modules of the kernel and of GPUDirect Storage are not of the driver");
	check(!modules_is_nvidia_driver("nvidiafb") && !modules_is_nvidia_driver("nouveau") &&
	              !modules_is_nvidia_driver("i2c_nvidia_gpu") && !modules_is_nvidia_driver(""),
	      "nvidiafb and others are not NVIDIA's driver");
	check(modules_keep(NULL, "usr/lib/modprobe.d/a.conf", 100) &&
	              modules_keep(NULL, "lib/modules/6.1/modules.dep.bin", 1000000) &&
	              !modules_keep(NULL, "lib/modules/6.1/kernel/nouveau.ko", 100) &&
	              !modules_keep(NULL, "etc/huge.conf", 1 << 30),
	      "modules_keep keeps configuration and indexes, within bounds");
}

static void test_errors(const char *scratch)
{
	CLEANUP_FREE char *root = make_root(scratch, NOUVEAU);
	CLEANUP_FREE char *dir = str_format("%s/usr/lib/modules/" KVER, root);
	CLEANUP_FREE char *dep = str_format("%s/modules.dep", dir);
	CLEANUP_FREE char *dep_bin = str_format("%s/modules.dep.bin", dir);
	CLEANUP_ROOTFS struct rootfs *r = open_dir(root);
	CLEANUP_INITRAMFS struct initramfs i = {0};
	CLEANUP_MODULES struct modules m = {0}, bare = {0};
	CLEANUP_STRV struct strv loadable = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	check(modules_from_rootfs(&m, r, "../../etc", scratch, &err) < 0 && !m.dir &&
	              error_exit_code(&err) == EXIT_INPUT,
	      "a kernel version that is a path is refused");
	error_free(&err);
	unlink(dep);
	unlink(dep_bin);
	check(open_world(&m, root, scratch, &err) < 0 && strstr(err.message, "modules.dep") &&
	              strstr(err.hint, "depmod " KVER),
	      "a kernel without an index is told with the cure");
	error_free(&err);
	check(open_early_world(&m, root, scratch, &err) == 0,
	      "for an initramfs that is a legal state");
	read_as_initramfs(&i, scratch);
	check(modules_from_initramfs(&bare, &i, KVER, scratch, &err) == 0 &&
	              modules_loadable_by_alias(&bare, &loadable, &err) == 0 &&
	              loadable.count == 0 && modules_loadable_by_name(&bare, "nouveau", &err) == 0,
	      "in an initramfs without modules nothing can be loaded");
	remove_all(root);
}

/* 'r': refused as damaged, 'a': answered, '?': neither. */
static char ask_index(const char *root, const char *scratch, const uint8_t *index, size_t size)
{
	CLEANUP_FREE char *dir = str_format("%s/usr/lib/modules/" KVER, root);
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_STRV struct strv names = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	write_at(dir, "modules.alias.bin", index, size);
	if (open_world(&m, root, scratch, &err) < 0)
		return strstr(err.message, "damaged") && err.code == EXIT_INPUT ? 'r' : '?';
	return modules_loadable_by_alias(&m, &names, &err) == 0 &&
	                       modules_claimants(&m, &names, NULL, &err) == 0
	               ? 'a'
	               : '?';
}

/* libkmod reads the binary indexes without a look at their offsets: what we hand it must be
 * sound. */
static void test_damaged_index(const char *scratch)
{
	CLEANUP_FREE char *root = make_root(scratch, NOUVEAU);
	CLEANUP_FREE char *path = str_format("%s/usr/lib/modules/" KVER "/modules.alias.bin", root);
	uint8_t index[4096];
	size_t refused = 0, strange = 0, size;
	FILE *f = fopen(path, "re");

	size = f ? fread(index, 1, sizeof(index), f) : 0;
	if (!f || fclose(f) != 0 || size == 0 || size == sizeof(index))
		abort();
	for (size_t n = 1; n < size; n += 2)
		refused += ask_index(root, scratch, index, n) == 'r';
	check(refused == size / 2, "a binary index cut short is refused before libkmod sees it");
	for (size_t n = 0; n < 2 * size; n += 3) {
		uint8_t flip = n < size ? 0x01 : 0x80;

		index[n % size] ^= flip;
		strange += ask_index(root, scratch, index, size) == '?';
		index[n % size] ^= flip;
	}
	check(strange == 0, "one with a changed byte is refused or answered");
	remove_all(root);
}

static void test_host_initramfs(const char *kver, const char *scratch)
{
	CLEANUP_FREE char *path = str_format("/boot/initrd.img-%s", kver);
	CLEANUP_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	CLEANUP_INITRAMFS struct initramfs i = {0};
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_ERROR struct error err = ERROR_INIT;

	if (fd < 0) {
		check(true, "the host's own initramfs is read # SKIP no readable '%s'", path);
		return;
	}
	check(initramfs_read_file(&i, fd, path, modules_keep, NULL, &err) == 0 &&
	              modules_from_initramfs(&m, &i, kver, scratch, &err) == 0 &&
	              m.config_dirs.count > 0 && !modules_have(&m, "no_such_module", NULL),
	      "the host's own initramfs '%s' is read", path);
	if (err.message)
		printf("# %s\n", err.message);
	if (initramfs_find_module(&i, "virtio_blk"))
		check(modules_loadable_by_name(&m, "virtio_blk", &err) == 1,
		      "and its disk driver is loadable there");
}

/* This host's own kernel, if it has one with modules. */
static void test_host(const char *scratch)
{
	glob_t found = {0};

	if (glob("/lib/modules/*/modules.alias.bin", 0, NULL, &found) != 0)
		check(true, "the host's own modules are read # SKIP none here");
	for (size_t n = 0; n < found.gl_pathc; n++) {
		CLEANUP_STRV struct strv parts = strv_split(found.gl_pathv[n], "/");
		CLEANUP_ROOTFS struct rootfs *r = open_dir("");
		CLEANUP_MODULES struct modules m = {0};
		CLEANUP_STRV struct strv names = {0}, builtin = {0};
		CLEANUP_ERROR struct error err = ERROR_INIT;
		const char *kver = parts.items[2];

		check(modules_from_rootfs(&m, r, kver, scratch, &err) == 0 &&
		              modules_claimants(&m, &names, &builtin, &err) == 0,
		      "the host's own modules of %s are read", kver);
		if (err.message)
			printf("# %s\n", err.message);
		check(modules_have(&m, "nouveau", NULL) ==
		              (strv_has(&names, "nouveau") || strv_has(&builtin, "nouveau")),
		      "nouveau is a claimant there if it is there at all");
		check(!strv_has(&names, "forcedeth") && !strv_has(&names, "snd_hda_intel") &&
		              !strv_has(&names, "ahci"),
		      "its drivers for other devices of the vendor are no claimants");
		test_host_initramfs(kver, scratch);
	}
	globfree(&found);
}

int main(void)
{
	char scratch[] = "/tmp/gpuimg-modules-XXXXXX";

	if (!mkdtemp(scratch))
		return 1;
	test_names();
	if (!proc_have("depmod")) {
		check(true, "modules of fabricated roots # SKIP no depmod");
		remove_all(scratch);
		return tap_done();
	}
	for (size_t i = 0; i < COUNT(cases); i++)
		run_case(&cases[i], scratch);
	test_claimants(scratch);
	test_builtin(scratch);
	test_loaded_for(scratch);
	test_errors(scratch);
	test_damaged_index(scratch);
	test_host(scratch);
	remove_all(scratch);
	return tap_done();
}
