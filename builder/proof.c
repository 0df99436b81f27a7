/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/stat.h>

#include "proof-internal.h"

#define TEXT_MAX_BYTES (4UL * 1024 * 1024)

int proof_file(struct findings *f, struct rootfs *root, const char *id, const char *path,
               const char *text, struct error *err)
{
	static const char cure[] = "build the image again; nothing may change the file after us";
	CLEANUP_FREE void *found = NULL;
	struct rootfs_stat st;
	size_t size;
	int there = rootfs_lstat(root, path, &st, err);

	if (there < 0)
		return -1;
	if (there == 0 || !S_ISREG(st.mode)) {
		finding_bad(f, id, cure, "'%s' is %s", path,
		            there ? "not a regular file" : "missing");
		return 0;
	}
	if (rootfs_read(root, path, TEXT_MAX_BYTES, &found, &size, err) < 0)
		return -1;
	if (size != strlen(text) || memcmp(found, text, size) != 0)
		finding_bad(f, id, cure, "'%s' differs from what was written", path);
	else if ((st.mode & 0444) != 0444)
		finding_bad(f, id, cure, "'%s' is not readable for all (mode %04o)", path,
		            st.mode & 07777);
	else
		finding_ok(f, id, "'%s' stands as it was written", path);
	return 0;
}

int proof_builtin(struct findings *f, const struct modules *m, struct error *err)
{
	CLEANUP_STRV struct strv claimants = {0};
	CLEANUP_STRV struct strv builtin = {0};

	if (modules_claimants(m, &claimants, &builtin, err) < 0)
		return -1;
	for (size_t i = 0; i < builtin.count; i++)
		if (!modules_is_nvidia_driver(builtin.items[i]))
			finding_bad(
				f, "modules.builtin", "use a kernel that has it as a module",
				"kernel %s has '%s' built in, which claims NVIDIA display devices and "
				"cannot be blocked",
				m->kver, builtin.items[i]);
	return 0;
}

int proof_modules(struct findings *f, const struct modules *m, const char *where,
                  const struct strv *blocked, struct error *err)
{
	static const char cure[] = "see what else in modprobe.d names the module, and build again";
	CLEANUP_STRV struct strv loadable = {0};
	CLEANUP_FREE char *names = NULL;
	bool clean = true;

	if (modules_loadable_by_alias(m, &loadable, err) < 0)
		return -1;
	names = strv_join(&loadable, ", ");
	if (loadable.count) {
		finding_bad(f, "modules.alias", cure,
		            "kernel %s, %s: an NVIDIA display device would load %s", m->kver, where,
		            names);
		clean = false;
	}
	for (size_t i = 0; i < blocked->count; i++) {
		int loads = modules_loadable_by_name(m, blocked->items[i], err);

		if (loads < 0)
			return -1;
		if (loads == 0)
			continue;
		finding_bad(f, "modules.name", cure, "kernel %s, %s: 'modprobe %s' would load it",
		            m->kver, where, blocked->items[i]);
		clean = false;
	}
	if (clean)
		finding_ok(f, "modules.blocked", "kernel %s, %s: nothing can claim an NVIDIA card",
		           m->kver, where);
	return 0;
}

/* libkmod splits at blanks and line feeds only, so that with a CR behind it "nouveau" is another
 * module's name. What of the file still holds is the oracle's to say. */
void proof_modprobe_text(struct findings *f, const char *where, const char *path, const void *text,
                         size_t size)
{
	if (memmem(text, size, "\r\n", 2))
		finding_note(f, "modprobe.text",
		             "%s: '%s' has lines that end in CR and LF: 'blacklist' lines are "
		             "without effect in it",
		             where, path);
	if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		finding_note(f, "modprobe.text",
		             "%s: '%s' begins with a byte-order mark: its first line is without "
		             "effect",
		             where, path);
}

int proof_modprobe_texts(struct findings *f, struct rootfs *root, struct error *err)
{
	static const char *const dirs[] = {"/etc/modprobe.d", "/usr/local/lib/modprobe.d",
	                                   "/usr/lib/modprobe.d"};

	for (size_t d = 0; d < sizeof(dirs) / sizeof(dirs[0]); d++) {
		CLEANUP_STRV struct strv names = {0};

		if (rootfs_is_dir(root, dirs[d]) && rootfs_list(root, dirs[d], &names, err) < 0)
			return -1;
		for (size_t i = 0; i < names.count; i++) {
			CLEANUP_ERROR struct error unread = ERROR_INIT;
			CLEANUP_FREE char *path = str_format("%s/%s", dirs[d], names.items[i]);
			CLEANUP_FREE void *text = NULL;
			struct rootfs_stat st;
			size_t size;

			/* What cannot be read is told by who needs it. */
			if (str_ends(path, ".conf") && rootfs_stat(root, path, &st, &unread) == 1 &&
			    S_ISREG(st.mode) &&
			    rootfs_read(root, path, TEXT_MAX_BYTES, &text, &size, &unread) == 0)
				proof_modprobe_text(f, "root file system", path, text, size);
		}
	}
	return 0;
}
