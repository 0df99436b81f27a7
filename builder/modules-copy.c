/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of the guest's module indexes and modprobe.d files in a scratch directory, from its
 * root file system or from an initramfs: all that libkmod will see of the guest.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "modules-internal.h"
#include "str.h"

#define MAX_CONFIG_BYTES (1U << 20)
#define MAX_CONFIG_FILES 4096
#define MAX_INDEX_BYTES  (16U << 20)
#define COUNT(array)     (sizeof(array) / sizeof((array)[0]))

/* kmod's order: a file hides those of the same name in the directories after its own. /run is
 * not here: it is empty when a system starts. */
static const char *const config_paths[] = {
	"etc/modprobe.d",
	"usr/local/lib/modprobe.d",
	"usr/lib/modprobe.d",
	"lib/modprobe.d",
};

static const char *const index_names[] = {
	"modules.dep",
	"modules.dep.bin",
	"modules.alias",
	"modules.alias.bin",
	"modules.builtin",
	"modules.builtin.bin",
	"modules.builtin.modinfo",
	"modules.builtin.alias.bin",
};

static int make_dirs(const char *path, struct error *err)
{
	CLEANUP_FREE char *part = str_copy(path);

	for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = '\0';
		if (mkdir(part, 0700) < 0 && errno != EEXIST)
			return error_errno(err, errno, "cannot make the directory '%s'", part);
		*slash = '/';
	}
	if (mkdir(part, 0700) < 0 && errno != EEXIST)
		return error_errno(err, errno, "cannot make the directory '%s'", part);
	return 0;
}

static int put_file(const char *dir, const char *name, const void *data, size_t size,
                    struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);
	CLEANUP_CLOSE int fd =
		open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return error_errno(err, errno, "cannot make '%s'", path);
	for (size_t done = 0; done < size;) {
		ssize_t n = write(fd, (const char *)data + done, size - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return error_errno(err, errno, "cannot write '%s'", path);
		done += (size_t)n;
	}
	return 0;
}

static int put_index(const struct modules *m, const char *name, const char *from, const void *data,
                     size_t size, struct error *err)
{
	/* depmod leaves modules.builtin.alias.bin empty where there is no modinfo. */
	if (str_ends(name, ".bin") && size == 0)
		return 0;
	if (str_ends(name, ".bin") && !modules_index_is_sound(data, size)) {
		error_code(err, EXIT_INPUT);
		error_set(err, "cannot use the module index '%s': it is damaged", from);
		return error_hint(err, "run 'depmod %s' in the image", m->kver);
	}
	return put_file(m->dir, name, data, size, err);
}

static int put_config(const char *dir, const char *name, const char *text, size_t size,
                      struct error *err)
{
	CLEANUP_FREE char *sound = NULL;
	size_t sound_size = 0;
	FILE *out = open_memstream(&sound, &sound_size);

	if (!out)
		return error_errno(err, errno, "cannot copy '%s/%s'", dir, name);
	modules_write_sound_lines(out, text, size);
	if (fclose(out) != 0)
		return error_errno(err, errno, "cannot copy '%s/%s'", dir, name);
	return put_file(dir, name, sound, sound_size, err);
}

/* The empty world: its directories, and no configuration yet. A new one at every call, since
 * a scratch directory may serve for a root and for its initramfs. */
static int world_open(struct modules *m, const char *kver, const char *scratch, char **ret_top,
                      struct error *err)
{
	CLEANUP_FREE char *top = str_format("%s/modules-XXXXXX", scratch);

	if (!*kver || strchr(kver, '/') || kver[0] == '.') {
		CLEANUP_FREE char *shown = str_printable(kver, 100);

		error_code(err, EXIT_INPUT);
		return error_set(err, "'%s' cannot be the version of a kernel", shown);
	}
	if (!mkdtemp(top))
		return error_errno(err, errno, "cannot make a directory in '%s'", scratch);
	m->dir = str_format("%s/lib/modules/%s", top, kver);
	m->kver = str_copy(kver);
	*ret_top = STEAL(top);
	return make_dirs(m->dir, err);
}

static int too_many_files(const char *where, struct error *err)
{
	error_code(err, EXIT_INPUT);
	return error_set(err, "cannot read '%s': more than %d files", where, MAX_CONFIG_FILES);
}

static int copy_index(const struct modules *m, struct rootfs *r, const char *name,
                      struct error *err)
{
	CLEANUP_FREE char *path = str_format("/lib/modules/%s/%s", m->kver, name);
	CLEANUP_FREE void *data = NULL;
	struct rootfs_stat st;
	size_t size = 0;
	int there = rootfs_stat(r, path, &st, err);

	if (there <= 0)
		return there;
	if (!S_ISREG(st.mode)) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot read '%s': not a regular file", path);
	}
	if (rootfs_read(r, path, MAX_INDEX_BYTES, &data, &size, err) < 0)
		return -1;
	return put_index(m, name, path, data, size, err);
}

/* One file of modprobe.d. A link to nowhere or to /dev/null counts as an empty file, which
 * hides those of its name in later directories: a documented way to switch one off. */
static int copy_config(struct rootfs *r, const char *from_dir, const char *name, const char *to_dir,
                       struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/%s", from_dir, name);
	CLEANUP_FREE void *data = NULL;
	struct rootfs_stat st;
	size_t size = 0;
	int there = rootfs_stat(r, path, &st, err);

	if (there < 0)
		return -1;
	if (there == 0 || (!S_ISREG(st.mode) && !S_ISDIR(st.mode)))
		return put_file(to_dir, name, NULL, 0, err);
	if (S_ISDIR(st.mode))
		return 0;
	if (rootfs_read(r, path, MAX_CONFIG_BYTES, &data, &size, err) < 0)
		return -1;
	return put_config(to_dir, name, data, size, err);
}

static bool is_config_name(const char *name)
{
	return str_ends(name, ".conf") && name[0] != '.' && !strchr(name, '/');
}

static int copy_config_dir(struct modules *m, struct rootfs *r, const char *top, const char *dir,
                           struct strv *seen, struct error *err)
{
	CLEANUP_FREE char *to = str_format("%s/%s", top, dir), *path = str_format("/%s", dir);
	CLEANUP_FREE char *real = NULL;
	CLEANUP_STRV struct strv names = {0};
	int there = rootfs_resolve(r, path, true, &real, err);

	/* On a merged /usr two of them are one. */
	if (there <= 0 || strv_has(seen, real))
		return there < 0 ? -1 : 0;
	strv_add(seen, real);
	if (!rootfs_is_dir(r, real))
		return 0;
	if (rootfs_list(r, real, &names, err) < 0 || make_dirs(to, err) < 0)
		return -1;
	if (names.count > MAX_CONFIG_FILES)
		return too_many_files(path, err);
	for (size_t i = 0; i < names.count; i++)
		if (is_config_name(names.items[i]) &&
		    copy_config(r, real, names.items[i], to, err) < 0)
			return -1;
	strv_add(&m->config_dirs, to);
	return 0;
}

bool modules_have_file(const struct modules *m, const char *name)
{
	CLEANUP_FREE char *path = str_format("%s/%s", m->dir, name);

	return access(path, F_OK) == 0;
}

static int fill_from_rootfs(struct modules *m, struct rootfs *r, const char *top, struct error *err)
{
	CLEANUP_STRV struct strv seen = {0};

	for (size_t i = 0; i < COUNT(index_names); i++)
		if (copy_index(m, r, index_names[i], err) < 0)
			return -1;
	if (!modules_have_file(m, "modules.dep") && !modules_have_file(m, "modules.dep.bin")) {
		error_code(err, EXIT_INPUT);
		error_set(err,
		          "kernel %s has no module index: '/lib/modules/%s/modules.dep' is missing",
		          m->kver, m->kver);
		return error_hint(err, "run 'depmod %s' in the image", m->kver);
	}
	for (size_t i = 0; i < COUNT(config_paths); i++)
		if (copy_config_dir(m, r, top, config_paths[i], &seen, err) < 0)
			return -1;
	return 0;
}

int modules_from_rootfs(struct modules *ret, struct rootfs *r, const char *kver,
                        const char *scratch, struct error *err)
{
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_FREE char *top = NULL;

	if (world_open(&m, kver, scratch, &top, err) < 0 || fill_from_rootfs(&m, r, top, err) < 0)
		return -1;
	*ret = m;
	m = (struct modules){0};
	return 0;
}

/* Links in modprobe.d may lead anywhere inside the archive, so files are judged by their name. */
bool modules_keep(void *opaque, const char *path, uint64_t size_bytes)
{
	const char *slash = strrchr(path, '/');
	const char *name = slash ? slash + 1 : path;

	(void)opaque;
	if (is_config_name(name))
		return size_bytes <= MAX_CONFIG_BYTES;
	if (!str_starts(name, "modules.") || size_bytes > MAX_INDEX_BYTES)
		return false;
	for (size_t i = 0; i < COUNT(index_names); i++)
		if (strcmp(name, index_names[i]) == 0)
			return true;
	return false;
}

static int need_data(const struct initramfs_member *m, struct error *err)
{
	CLEANUP_FREE char *shown = NULL;

	if (m->data || m->size_bytes == 0)
		return 0;
	shown = str_printable(m->path, 200);
	error_code(err, EXIT_INPUT);
	return error_set(err, "cannot use '%s' of the initramfs: its content was not read", shown);
}

static int take_index(const struct modules *m, const struct initramfs *i, const char *name,
                      struct error *err)
{
	CLEANUP_FREE char *path = str_format("lib/modules/%s/%s", m->kver, name);
	CLEANUP_FREE char *usr = str_format("usr/%s", path);
	const struct initramfs_member *found = initramfs_find_target(i, path);

	if (!found)
		found = initramfs_find_target(i, usr);
	if (!found)
		return 0;
	if (!S_ISREG(found->mode)) {
		error_code(err, EXIT_INPUT);
		return error_set(err, "cannot use '%s' of the initramfs: not a regular file", path);
	}
	if (need_data(found, err) < 0)
		return -1;
	return put_index(m, name, path, found->data, found->size_bytes, err);
}

static int take_config(const struct initramfs *i, const char *dir, const char *name, const char *to,
                       struct error *err)
{
	CLEANUP_FREE char *path = str_format("%s/%s", dir, name);
	const struct initramfs_member *m = initramfs_find(i, path);

	if (!m)
		return 0;
	m = initramfs_find_target(i, path);
	if (m && S_ISDIR(m->mode))
		return 0;
	if (!m || !S_ISREG(m->mode))
		return put_file(to, name, NULL, 0, err);
	if (need_data(m, err) < 0)
		return -1;
	return put_config(to, name, (const char *)m->data, m->size_bytes, err);
}

/* All file names that a modprobe.d file can have here, each once. */
static int list_config_names(const struct initramfs *i, struct strv *ret, struct error *err)
{
	CLEANUP_STRV struct strv all = {0};

	for (size_t n = 0; n < i->count; n++) {
		const char *slash = strrchr(i->members[n].path, '/');

		if (slash && is_config_name(slash + 1))
			strv_add(&all, slash + 1);
	}
	strv_sort(&all);
	for (size_t n = 0; n < all.count; n++)
		if (n == 0 || strcmp(all.items[n], all.items[n - 1]) != 0)
			strv_add(ret, all.items[n]);
	if (ret->count > MAX_CONFIG_FILES)
		return too_many_files("the initramfs", err);
	return 0;
}

static int fill_from_initramfs(struct modules *m, const struct initramfs *i, const char *top,
                               struct error *err)
{
	const struct initramfs_member *seen[COUNT(config_paths)] = {NULL};
	CLEANUP_STRV struct strv names = {0};

	for (size_t n = 0; n < COUNT(index_names); n++)
		if (take_index(m, i, index_names[n], err) < 0)
			return -1;
	if (list_config_names(i, &names, err) < 0)
		return -1;
	for (size_t d = 0; d < COUNT(config_paths); d++) {
		CLEANUP_FREE char *to = str_format("%s/%s", top, config_paths[d]);
		bool again = false;

		seen[d] = initramfs_find_target(i, config_paths[d]);
		for (size_t e = 0; e < d; e++)
			again |= seen[e] == seen[d];
		if (!seen[d] || again)
			continue;
		if (make_dirs(to, err) < 0)
			return -1;
		for (size_t n = 0; n < names.count; n++)
			if (take_config(i, config_paths[d], names.items[n], to, err) < 0)
				return -1;
		strv_add(&m->config_dirs, to);
	}
	return 0;
}

int modules_from_initramfs(struct modules *ret, const struct initramfs *i, const char *kver,
                           const char *scratch, struct error *err)
{
	CLEANUP_MODULES struct modules m = {0};
	CLEANUP_FREE char *top = NULL;

	if (world_open(&m, kver, scratch, &top, err) < 0 ||
	    fill_from_initramfs(&m, i, top, err) < 0)
		return -1;
	*ret = m;
	m = (struct modules){0};
	return 0;
}

void modules_free(struct modules *m)
{
	free(m->dir);
	free(m->kver);
	strv_free(&m->config_dirs);
	*m = (struct modules){0};
}
