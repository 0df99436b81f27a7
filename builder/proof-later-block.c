/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an initramfs would hold that the node makes by itself for a kernel that is installed later.
 * initramfs-tools copies all of modprobe.d, so the root file system's answer is its answer. dracut
 * in its generic mode copies /usr/lib/modprobe.d and what install_items names, and leaves out what
 * omit_drivers names; nothing of the image is run here, its configuration is read. NVIDIA's own
 * driver is of no use in an initramfs, and too large for one.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "default-grub.h"
#include "generator.h"
#include "modules.h"
#include "proof.h"

#define DRIVER_ID      "initramfs.later"
#define TOOLS_MODULES  "/etc/initramfs-tools/modules"
#define TOOLS_HOOK     "/usr/share/initramfs-tools/hooks/framebuffer-nvidia"
#define CONF_MAX_BYTES (1024UL * 1024)
#define FILES_MAX      1000

/* dracut's, as far as it counts here. */
struct conf {
	char *text; /* all files, in the order in which they are read */
	bool hostonly;
	struct strv items;   /* paths */
	struct strv omitted; /* modules, with '_' */
};

static void conf_free(struct conf *c)
{
	free(c->text);
	strv_free(&c->items);
	strv_free(&c->omitted);
}

static int add_file(struct conf *c, struct rootfs *root, const char *path, struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	char *more;

	if (!rootfs_is_file(root, path))
		return 0;
	if (rootfs_read(root, path, CONF_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	more = str_format("%s%s\n", c->text, (char *)text);
	free(c->text);
	c->text = more;
	return 0;
}

/* /etc/dracut.conf, then the drop-ins by name, those of /etc in place of equal ones of /usr. */
static int read_files(struct conf *c, struct rootfs *root, struct error *err)
{
	static const char *const dirs[] = {"/etc/dracut.conf.d", "/usr/lib/dracut/dracut.conf.d"};
	CLEANUP_STRV struct strv names = {0};

	c->text = str_copy("");
	if (add_file(c, root, "/etc/dracut.conf", err) < 0)
		return -1;
	for (size_t d = 0; d < sizeof(dirs) / sizeof(dirs[0]); d++) {
		CLEANUP_STRV struct strv some = {0};

		if (rootfs_is_dir(root, dirs[d]) && rootfs_list(root, dirs[d], &some, err) < 0)
			return -1;
		for (size_t i = 0; i < some.count && names.count < FILES_MAX; i++)
			if (str_ends(some.items[i], ".conf") && !strv_has(&names, some.items[i]))
				strv_add(&names, some.items[i]);
	}
	strv_sort(&names);
	for (size_t i = 0; i < names.count; i++) {
		CLEANUP_FREE char *own = str_format("%s/%s", dirs[0], names.items[i]);
		CLEANUP_FREE char *shipped = str_format("%s/%s", dirs[1], names.items[i]);

		if (add_file(c, root, rootfs_exists(root, own) ? own : shipped, err) < 0)
			return -1;
	}
	return 0;
}

/* The words of a variable; what depends on a condition is an error. */
static int get_words(struct strv *ret, const struct conf *c, const char *name, struct error *err)
{
	return default_grub_get(ret, c->text, name, "dracut.conf.d", err);
}

/* As the kernel spells modules. */
static void normalize(struct strv *names)
{
	for (size_t i = 0; i < names->count; i++)
		for (char *at = names->items[i]; *at; at++)
			if (*at == '-')
				*at = '_';
}

static int read_conf(struct conf *c, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv mode = {0};
	CLEANUP_STRV struct strv optional = {0};

	if (read_files(c, root, err) < 0 || get_words(&mode, c, "hostonly", err) < 0 ||
	    get_words(&c->items, c, "install_items", err) < 0 ||
	    get_words(&optional, c, "install_optional_items", err) < 0 ||
	    get_words(&c->omitted, c, "omit_drivers", err) < 0)
		return -1;
	strv_add_all(&c->items, &optional);
	c->hostonly = mode.count == 1 && strcmp(mode.items[0], "yes") == 0;
	normalize(&c->omitted);
	return 0;
}

/* Of one directory of the copied world, what dracut would not copy. 'dir' is the guest's name of
 * it. */
static int drop_files(const struct conf *c, const char *copy, const char *dir, struct error *err)
{
	DIR *stream = opendir(copy);
	const struct dirent *d;

	if (!stream)
		return error_errno(err, errno, "cannot list '%s'", copy);
	while ((d = readdir(stream))) {
		CLEANUP_FREE char *path = str_format("%s/%s", dir, d->d_name);
		CLEANUP_FREE char *ours = str_format("%s/%s", copy, d->d_name);

		if (str_ends(path, ".conf") && !strv_has(&c->items, path))
			unlink(ours);
	}
	closedir(stream);
	return 0;
}

static int drop_uncopied(const struct conf *c, const struct modules *m, struct error *err)
{
	CLEANUP_FREE char *tail = str_format("/lib/modules/%s", m->kver);
	size_t top = strlen(m->dir) - strlen(tail);

	for (size_t i = 0; i < m->config_dirs.count; i++) {
		const char *dir = m->config_dirs.items[i] + top;

		if (strcmp(dir, "/usr/lib/modprobe.d") == 0 || strcmp(dir, "/lib/modprobe.d") == 0)
			continue;
		if (c->hostonly && strcmp(dir, "/etc/modprobe.d") == 0)
			continue;
		if (drop_files(c, m->config_dirs.items[i], dir, err) < 0)
			return -1;
	}
	return 0;
}

static bool is_omitted(const struct conf *c, const char *name)
{
	return strv_has(&c->omitted, name);
}

static int judge_kernel(struct findings *f, const struct conf *c, const struct modules *m,
                        const struct strv *blocked, struct error *err)
{
	CLEANUP_STRV struct strv loadable = {0};
	CLEANUP_STRV struct strv loads = {0};
	CLEANUP_STRV struct strv packed = {0};
	CLEANUP_FREE char *names = NULL;

	if (drop_uncopied(c, m, err) < 0 || modules_loadable_by_alias(m, &loadable, err) < 0)
		return -1;
	for (size_t i = 0; i < loadable.count; i++)
		if (!is_omitted(c, loadable.items[i]))
			strv_add(&loads, loadable.items[i]);
	for (size_t i = 0; i < blocked->count; i++)
		if (!is_omitted(c, blocked->items[i]) && modules_have(m, blocked->items[i], NULL))
			strv_add(&packed, blocked->items[i]);
	names = strv_join(loads.count ? &loads : &packed, ", ");
	if (loads.count)
		finding_bad(f, "modprobe.later",
		            "put the block into /usr/lib/modprobe.d too, or name it in "
		            "install_items in /etc/dracut.conf.d",
		            "kernel %s: an initramfs that dracut makes on the node would not hold "
		            "the block, and load %s",
		            m->kver, names);
	else if (packed.count)
		finding_note(f, "modprobe.later",
		             "kernel %s: no omit_drivers of dracut.conf.d keeps dracut on the node "
		             "from packing %s, which it would not load",
		             m->kver, names);
	else
		finding_ok(f, "modprobe.later",
		           "kernel %s: an initramfs that dracut makes on the node keeps the block",
		           m->kver);
	return 0;
}

/* dracut goes on without what is missing, and says so where nobody looks. */
static void judge_items(struct findings *f, const struct conf *c, struct rootfs *root)
{
	for (size_t i = 0; i < c->items.count; i++)
		if (strstr(c->items.items[i], "/modprobe.d/") &&
		    !rootfs_is_file(root, c->items.items[i]))
			finding_note(f, "modprobe.later",
			             "'%s', which install_items of dracut.conf.d names, is missing",
			             c->items.items[i]);
}

/* Modules that the configuration asks for by name; what cannot be told asks for none. */
static void get_added(struct strv *ret, const struct conf *c)
{
	static const char *const names[] = {"add_drivers", "force_drivers"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		CLEANUP_STRV struct strv words = {0};

		if (get_words(&words, c, names[i], &ignored) == 0)
			strv_add_all(ret, &words);
	}
	normalize(ret);
}

/* 'ret' gets what is in both. */
static void intersect(struct strv *ret, const struct strv *a, const struct strv *b)
{
	for (size_t i = 0; i < a->count; i++)
		if (strv_has(b, a->items[i]))
			strv_add(ret, a->items[i]);
}

/* omit_drivers wins over all that asks for a module. */
static void judge_dracut_driver(struct findings *f, const struct conf *c, const struct strv *driver)
{
	CLEANUP_STRV struct strv packable = {0};
	CLEANUP_STRV struct strv added = {0};
	CLEANUP_STRV struct strv packed = {0};
	CLEANUP_FREE char *names = NULL;

	for (size_t i = 0; i < driver->count; i++)
		if (!is_omitted(c, driver->items[i]))
			strv_add(&packable, driver->items[i]);
	get_added(&added, c);
	intersect(&packed, &packable, &added);
	names = strv_join(packed.count ? &packed : &packable, ", ");
	if (packed.count)
		finding_bad(f, DRIVER_ID,
		            "name NVIDIA's modules in omit_drivers in /etc/dracut.conf.d",
		            "dracut.conf.d has dracut on the node pack NVIDIA's driver into each "
		            "initramfs, which fills /boot: %s",
		            names);
	else if (packable.count)
		finding_note(
			f, DRIVER_ID,
			"no omit_drivers of dracut.conf.d keeps dracut on the node from packing "
			"NVIDIA's driver: %s",
			names);
	else
		finding_ok(f, DRIVER_ID,
		           "an initramfs that dracut makes on the node leaves NVIDIA's driver out");
}

/* The first word of each line. */
static int read_tools_modules(struct strv *ret, struct rootfs *root, struct error *err)
{
	CLEANUP_FREE void *text = NULL;
	CLEANUP_STRV struct strv lines = {0};

	if (!rootfs_is_file(root, TOOLS_MODULES))
		return 0;
	if (rootfs_read(root, TOOLS_MODULES, CONF_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	lines = strv_split(text, "\n");
	for (size_t i = 0; i < lines.count; i++) {
		char *line = str_trim(lines.items[i]);

		line[strcspn(line, " \t")] = '\0';
		if (*line && *line != '#')
			strv_add(ret, line);
	}
	normalize(ret);
	return 0;
}

static bool has_drop_hook(struct rootfs *root)
{
	const struct generator *g = generator_find("initramfs-tools");
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	struct rootfs_stat st;

	return rootfs_stat(root, g->drop_path, &st, &ignored) == 1 && S_ISREG(st.mode) &&
	       (st.mode & 0100);
}

static int judge_tools_driver(struct findings *f, struct rootfs *root, const struct strv *driver,
                              struct error *err)
{
	CLEANUP_STRV struct strv asked = {0};
	CLEANUP_STRV struct strv packed = {0};
	CLEANUP_FREE char *names = NULL;

	if (read_tools_modules(&asked, root, err) < 0)
		return -1;
	intersect(&packed, driver, &asked);
	names = strv_join(&packed, ", ");
	if (has_drop_hook(root))
		finding_ok(f, DRIVER_ID,
		           "an initramfs that initramfs-tools makes on the node leaves NVIDIA's "
		           "driver out");
	else if (packed.count)
		finding_bad(f, DRIVER_ID, "take them out of " TOOLS_MODULES,
		            "'" TOOLS_MODULES
		            "' has initramfs-tools on the node pack NVIDIA's driver "
		            "into each initramfs, which fills /boot: %s",
		            names);
	else if (rootfs_is_file(root, TOOLS_HOOK))
		finding_note(f, DRIVER_ID,
		             "'" TOOLS_HOOK "' may have initramfs-tools on the node pack NVIDIA's "
		             "driver into each initramfs");
	return 0;
}

static int judge_later_driver(struct findings *f, const struct conf *c, struct rootfs *root,
                              struct error *err)
{
	CLEANUP_STRV struct strv driver = {0};

	if (generator_gpu_modules(&driver, root, err) < 0)
		return -1;
	if (driver.count == 0)
		return 0;
	if (!c)
		return judge_tools_driver(f, root, &driver, err);
	judge_dracut_driver(f, c, &driver);
	return 0;
}

int proof_later_block(struct findings *f, struct rootfs *root, const struct guest *guest,
                      const struct strv *blocked, const char *scratch, struct error *err)
{
	CLEANUP_ERROR struct error unread = ERROR_INIT;
	CLEANUP(conf_free)
	struct conf c = {0};

	if (str_equal(guest->generator, "initramfs-tools"))
		return judge_later_driver(f, NULL, root, err);
	if (!str_equal(guest->generator, "dracut"))
		return 0;
	if (read_conf(&c, root, &unread) < 0) {
		finding_note(f, "modprobe.later",
		             "what dracut on the node would do is not known: %s", unread.message);
		return 0;
	}
	judge_items(f, &c, root);
	if (judge_later_driver(f, &c, root, err) < 0)
		return -1;
	for (size_t i = 0; i < guest->kernel_count; i++) {
		CLEANUP_ERROR struct error no_modules = ERROR_INIT;
		CLEANUP_MODULES struct modules m = {0};
		const struct guest_kernel *k = &guest->kernels[i];

		/* A kernel without modules has a point of its own. */
		if (k->rescue ||
		    modules_from_rootfs(&m, root, k->version, scratch, &no_modules) < 0)
			continue;
		if (judge_kernel(f, &c, &m, blocked, err) < 0)
			return -1;
	}
	return 0;
}
