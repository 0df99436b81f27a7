/* SPDX-License-Identifier: Apache-2.0 */
/* The proof's points about boot entries and what they boot. */
#include <string.h>
#include <sys/stat.h>

#include "cmdline.h"
#include "proof.h"

#define TEXT_MAX_BYTES   (4UL * 1024 * 1024)
#define STATUS_MAX_BYTES (64UL * 1024 * 1024)

static const char PARAM_CURE[] = "see which file of /etc/default/grub.d or /etc/grub.d sets it";

static void check_params(struct findings *f, const struct grub_entry *e, const struct strv *params)
{
	for (size_t i = 0; i < params->count; i++) {
		const char *param = params->items[i];
		CLEANUP_FREE char *why = NULL;
		size_t times = cmdline_count(&e->args, param);

		if (!cmdline_holds(&e->args, param, &why))
			finding_bad(f, "cmdline.param", PARAM_CURE,
			            "entry '%s' (line %d): '%s' is not in effect: %s", e->title,
			            e->line, param, why ? why : "missing");
		else if (times > 1)
			finding_bad(f, "cmdline.param", PARAM_CURE,
			            "entry '%s' (line %d): holds '%s' %zu times", e->title, e->line,
			            param, times);
		else
			finding_ok(f, "cmdline.param", "entry '%s': '%s'", e->title, param);
	}
}

static bool is_removed(const char *arg, const struct strv *removed)
{
	CLEANUP_STRV struct strv one = {0};
	const struct cmdline_edit edit = {.remove = *removed};
	CLEANUP_FREE char *left = NULL;

	strv_add(&one, arg);
	cmdline_apply(&one, &edit);
	left = cmdline_join(&one);
	return strcmp(left, arg) != 0;
}

/* The base's entry of the same kernel and kind. */
static const struct grub_entry *find_same(const struct bootchain *chain, const struct grub_entry *e)
{
	for (size_t i = 0; i < chain->grub.count; i++)
		if (str_equal(chain->grub.entries[i].kernel, e->kernel) &&
		    chain->grub.entries[i].recovery == e->recovery)
			return &chain->grub.entries[i];
	return NULL;
}

/* Merged into one list, so it does not stand as it stood. */
static bool is_merged(const char *arg)
{
	return str_starts(arg, "module_blacklist=") || str_starts(arg, "modprobe.blacklist=");
}

/* "root=" naming the image's own root file system in a way that holds on every machine. */
static bool names_root(const struct guest *guest, const char *arg)
{
	const struct volume *v = guest->mounts[0].volume;
	const struct {
		const char *prefix, *value;
	} forms[] = {{"root=UUID=", v->uuid},
	             {"root=/dev/disk/by-uuid/", v->uuid},
	             {"root=PARTUUID=", v->partuuid},
	             {"root=/dev/disk/by-partuuid/", v->partuuid},
	             {"root=LABEL=", v->label}};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (forms[i].value && str_starts(arg, forms[i].prefix) &&
		    strcasecmp(arg + strlen(forms[i].prefix), forms[i].value) == 0)
			return true;
	return false;
}

/* GRUB writes root= in another form where a kernel got its first initramfs: by UUID, since
 * the kernel alone cannot find a file system by that. */
static bool has_same_root(const struct guest *guest, const struct grub_entry *e, const char *was)
{
	if (!names_root(guest, was))
		return false;
	for (size_t i = 0; i < e->args.count; i++)
		if (names_root(guest, e->args.items[i]))
			return true;
	return false;
}

static void check_kept(struct findings *f, const struct guest *guest, const struct grub_entry *e,
                       const struct grub_entry *was, const struct strv *removed)
{
	bool all = true;

	for (size_t i = 0; i < was->args.count; i++) {
		const char *arg = was->args.items[i];

		if (strv_has(&e->args, arg) || is_removed(arg, removed) ||
		    (is_merged(arg) && cmdline_holds(&e->args, arg, NULL)) || *arg == '$' ||
		    has_same_root(guest, e, arg))
			continue;
		finding_bad(f, "cmdline.kept", PARAM_CURE,
		            "entry '%s' (line %d): lost '%s', which the base had", e->title,
		            e->line, arg);
		all = false;
	}
	if (all)
		finding_ok(f, "cmdline.kept", "entry '%s': keeps what the base had", e->title);
}

static void check_file(struct findings *f, struct rootfs *root, const struct guest *guest,
                       const struct grub_entry *e, const char *grub_path, const char *what)
{
	CLEANUP_FREE char *path = bootchain_guest_path(guest, grub_path);

	if (!rootfs_exists(root, path))
		finding_bad(f, "cmdline.files", "write the boot entries anew",
		            "entry '%s' (line %d): its %s '%s' does not exist", e->title, e->line,
		            what, path);
}

/* The kernel that an entry boots, or NULL: not one that was found in /boot. */
static const struct guest_kernel *kernel_of(struct rootfs *root, const struct guest *guest,
                                            const struct grub_entry *e)
{
	CLEANUP_ERROR struct error ignored = ERROR_INIT;
	CLEANUP_FREE char *path = bootchain_guest_path(guest, e->kernel);
	CLEANUP_FREE char *real = NULL;

	/* "/vmlinuz" is a link to one of them on Debian. */
	rootfs_resolve(root, path, true, &real, &ignored);
	for (size_t i = 0; real && i < guest->kernel_count; i++)
		if (strcmp(guest->kernels[i].image, real) == 0)
			return &guest->kernels[i];
	return NULL;
}

/* Whether the entry loads the initramfs of its kernel that was proven, and no other kernel's. */
static bool loads_initramfs(struct rootfs *root, const struct guest *guest,
                            const struct grub_entry *e, const struct guest_kernel *k)
{
	for (size_t i = 0; i < e->initrds.count; i++) {
		CLEANUP_ERROR struct error ignored = ERROR_INIT;
		CLEANUP_FREE char *path = bootchain_guest_path(guest, e->initrds.items[i]);
		CLEANUP_FREE char *real = NULL;

		rootfs_resolve(root, path, true, &real, &ignored);
		if (str_equal(real, k->initramfs))
			return true;
	}
	return false;
}

static bool is_memory_test(const struct grub_entry *e)
{
	const char *slash = strrchr(e->kernel, '/');

	return str_starts(slash ? slash + 1 : e->kernel, "memtest");
}

static void check_entry(struct findings *f, struct rootfs *root, const struct guest *guest,
                        const struct grub_entry *e)
{
	const struct guest_kernel *k = kernel_of(root, guest, e);

	check_file(f, root, guest, e, e->kernel, "kernel");
	for (size_t i = 0; i < e->initrds.count; i++)
		check_file(f, root, guest, e, e->initrds.items[i], "initramfs");
	if (!k)
		finding_bad(
			f, "cmdline.files", "remove the entry, or put its kernel into /boot",
			"entry '%s' (line %d): boots '%s', which is none of the kernels that were "
			"proven",
			e->title, e->line, e->kernel);
	else if (!loads_initramfs(root, guest, e, k))
		finding_bad(f, "cmdline.files", "write the boot entries anew",
		            "entry '%s' (line %d): does not load '%s'", e->title, e->line,
		            k->initramfs);
}

static void check_coverage(struct findings *f, const struct guest *guest,
                           const struct bootchain *chain)
{
	for (size_t k = 0; k < guest->kernel_count; k++) {
		bool found = false;

		for (size_t i = 0; i < chain->grub.count && !found; i++) {
			CLEANUP_FREE char *path =
				bootchain_guest_path(guest, chain->grub.entries[i].kernel);

			found = strcmp(path, guest->kernels[k].image) == 0;
		}
		if (!found)
			finding_bad(f, "cmdline.coverage", "write the boot entries anew",
			            "kernel %s has no boot entry", guest->kernels[k].version);
	}
}

int proof_entries(struct findings *f, struct rootfs *root, const struct guest *guest,
                  const struct bootchain *before, const struct strv *params,
                  const struct strv *removed, struct error *err)
{
	struct bootchain chain = {0};

	if (bootchain_read(&chain, root, err) < 0)
		return -1;
	if (chain.grub.count == 0)
		finding_bad(f, "cmdline.coverage", "write the boot entries anew",
		            "'" BOOTCHAIN_GRUB_CFG "' has no boot entry");
	for (size_t i = 0; i < chain.grub.count; i++) {
		const struct grub_entry *e = &chain.grub.entries[i];
		const struct grub_entry *was = before ? find_same(before, e) : NULL;

		if (is_memory_test(e)) {
			finding_note(f, "cmdline.other", "entry '%s' boots no Linux", e->title);
			continue;
		}
		check_params(f, e, params);
		check_entry(f, root, guest, e);
		if (was)
			check_kept(f, guest, e, was, removed);
	}
	check_coverage(f, guest, &chain);
	bootchain_free(&chain);
	return 0;
}

static int read_text(struct rootfs *root, const char *path, char **ret, struct error *err)
{
	void *text = NULL;

	if (!rootfs_exists(root, path))
		return 0;
	if (rootfs_read(root, path, TEXT_MAX_BYTES, &text, NULL, err) < 0)
		return -1;
	*ret = text;
	return 0;
}

/* Words that only the appliance or a build environment can have put there, unless they stood in
 * the base already. */
static const char *find_leak(const char *text, const char *before)
{
	static const char *const words[] = {"guestfs", "root=/dev/sd", "root=/dev/vd",
	                                    "gpuimg-new"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strstr(text, words[i]) && !(before && strstr(before, words[i])))
			return words[i];
	return NULL;
}

static int check_leak(struct findings *f, struct rootfs *root, struct rootfs *base_root,
                      const char *path, struct error *err)
{
	CLEANUP_FREE char *text = NULL;
	CLEANUP_FREE char *before = NULL;
	const char *word;

	if (read_text(root, path, &text, err) < 0 ||
	    (base_root && read_text(base_root, path, &before, err) < 0))
		return -1;
	word = text ? find_leak(text, before) : NULL;
	if (word)
		finding_bad(f, "leak", "rebuild; tell us if it comes back", "'%s' holds '%s'", path,
		            word);
	else if (text)
		finding_ok(f, "leak", "'%s' holds nothing of the build environment", path);
	return 0;
}

/* /etc/resolv.conf is often a link into /run, dangling while offline: it must stay that link. */
static int check_resolv(struct findings *f, struct rootfs *root, struct rootfs *base_root,
                        struct error *err)
{
	static const char path[] = "/etc/resolv.conf";
	struct rootfs_stat was, is;
	CLEANUP_FREE char *before = NULL;
	CLEANUP_FREE char *after = NULL;
	int had = rootfs_lstat(base_root, path, &was, err);
	int has = rootfs_lstat(root, path, &is, err);
	bool same;

	if (had < 0 || has < 0)
		return -1;
	same = had == has && (!had || (was.mode & S_IFMT) == (is.mode & S_IFMT));
	if (same && had && S_ISLNK(was.mode)) {
		if (rootfs_readlink(base_root, path, &before, err) < 0 ||
		    rootfs_readlink(root, path, &after, err) < 0)
			return -1;
	} else if (same && had &&
	           (read_text(base_root, path, &before, err) < 0 ||
	            read_text(root, path, &after, err) < 0)) {
		return -1;
	}
	if (same && str_equal(before, after))
		finding_ok(f, "leak.resolv", "'%s' is as it was", path);
	else
		finding_bad(f, "leak.resolv", "rebuild without the script that changes it",
		            "'%s' is not what the base had", path);
	return 0;
}

/* dpkg keeps unfinished work in updates/; "half-" states name packages that are broken. */
static int check_packages(struct findings *f, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv updates = {0};
	CLEANUP_FREE void *status = NULL;

	if (rootfs_list(root, "/var/lib/dpkg/updates", &updates, err) < 0 ||
	    rootfs_read(root, "/var/lib/dpkg/status", STATUS_MAX_BYTES, &status, NULL, err) < 0)
		return -1;
	if (updates.count || strstr(status, " half-configured\n") ||
	    strstr(status, " half-installed\n") || strstr(status, " unpacked\n"))
		finding_bad(f, "packages", "run 'dpkg --configure -a' in a script, or see its log",
		            "packages of the image are not fully installed");
	else
		finding_ok(f, "packages", "every package is fully installed or not at all");
	return 0;
}

static int check_leftovers(struct findings *f, struct rootfs *root, struct error *err)
{
	CLEANUP_STRV struct strv names = {0};

	if (rootfs_list(root, "/boot", &names, err) < 0)
		return -1;
	for (size_t i = 0; i < names.count; i++)
		if (str_ends(names.items[i], ".gpuimg-new"))
			finding_bad(f, "leak", "rebuild", "'/boot/%s' was left behind",
			            names.items[i]);
	if (rootfs_exists(root, "/usr/share/initramfs-tools/conf-hooks.d/zz-gpuimg-root-type"))
		finding_bad(f, "leak", "rebuild",
		            "a file of the build is left in "
		            "'/usr/share/initramfs-tools/conf-hooks.d'");
	if (rootfs_exists(root, "/usr/sbin/policy-rc.d"))
		finding_bad(f, "leak", "remove it: services would not start on the node",
		            "'/usr/sbin/policy-rc.d' is there");
	return 0;
}

int proof_leaks(struct findings *f, struct rootfs *root, struct rootfs *base_root,
                struct error *err)
{
	static const char *const paths[] = {BOOTCHAIN_GRUB_CFG, "/etc/kernel/cmdline",
	                                    "/etc/default/grub", "/etc/fstab",
	                                    "/boot/grub/device.map"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (check_leak(f, root, base_root, paths[i], err) < 0)
			return -1;
	if (check_packages(f, root, err) < 0 ||
	    (base_root && check_resolv(f, root, base_root, err) < 0))
		return -1;
	return check_leftovers(f, root, err);
}
