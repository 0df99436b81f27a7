/* SPDX-License-Identifier: Apache-2.0 */
/* The proof's points about what a build may leave behind. */
#include <string.h>
#include <sys/stat.h>

#include "proof.h"

#define TEXT_MAX_BYTES   (4UL * 1024 * 1024)
#define STATUS_MAX_BYTES (64UL * 1024 * 1024)

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
	/* A root by a disk's letter may be the choice of the image's maker: of one that we did not
	 * build, or where the file was made from the base's entries. */
	if (word && !before && str_starts(word, "root="))
		finding_note(f, "leak", "'%s' holds '%s': that is one kind of machine's disk", path,
		             word);
	else if (word)
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

	if (!rootfs_exists(root, "/var/lib/dpkg/status"))
		return 0; /* rpm's record cannot be half-written: it is a database */
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
	static const char *const paths[] = {"/boot/grub/grub.cfg", "/boot/grub2/grub.cfg",
	                                    "/etc/kernel/cmdline", "/etc/default/grub",
	                                    "/etc/fstab",          "/boot/grub/device.map"};

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++)
		if (check_leak(f, root, base_root, paths[i], err) < 0)
			return -1;
	if (check_packages(f, root, err) < 0 ||
	    (base_root && check_resolv(f, root, base_root, err) < 0))
		return -1;
	return check_leftovers(f, root, err);
}
